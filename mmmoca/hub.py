# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Importing this module adds our models to mmpretrain's ``ModelHub``.

``list_models``, ``get_model`` and mmpretrain's inferencers then know the names
of our models. The published weights are loaded with this package's reader of
checkpoints.
"""

# This import comes first because it silences mmpretrain's messages.
from .checkpoints import guarded  # isort: skip
from mmpretrain.apis.model import ModelHub

from .shipped import shipped

# These folders hold the models that mmpretrain can build. model-index.yml,
# which mim reads, also lists segmentors and detectors.
_others = set(ModelHub._models_dict)
for _folder in ('', 'classification/', 'demo/'):
    _metafile = shipped(f'configs/{_folder}metafile.yml')
    ModelHub.register_model_index(_metafile, shipped('configs').parent)
for _name in ModelHub._models_dict.keys() - _others:
    if (_model := ModelHub._models_dict[_name]).weights:
        _model.weights = guarded(_model.weights)
