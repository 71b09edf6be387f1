# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Adds our models to mmpretrain's ``ModelHub`` when it is imported.

``list_models``, ``get_model`` and mmpretrain's inferencers know their names
then. Weights of the release are read in the names of our models.
"""

from mmpretrain.apis.model import ModelHub

from .checkpoints import guarded
from .files import shipped

__all__ = ['ModelHub']

# Of models that mmpretrain can build. mim reads model-index.yml, which has
# segmentors and detectors, too.
for _folder in ('', 'classification/', 'demo/'):
    _metafile = shipped(f'configs/{_folder}metafile.yml')
    ModelHub.register_model_index(_metafile, shipped('configs').parent)
for _model in ModelHub._models_dict.values():
    if 'moca_' in _model.name and _model.weights:
        _model.weights = guarded(_model.weights)
