# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Lookups in the scope ``mmmoca`` and into it."""

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import mmengine.registry
import pytest
from mmengine.registry import DefaultScope, Registry

from mmmoca import registry

ROOTS = {
    name: value
    for name, value in vars(mmengine.registry).items()
    if isinstance(value, Registry)
}


@pytest.mark.parametrize('name', ROOTS)
def test_every_registry_of_mmengine_has_a_child(name):
    child = getattr(registry, name)
    assert child.scope == 'mmmoca'
    assert child.parent is ROOTS[name]
    assert child.build_func is ROOTS[name].build_func
    # A folder without __init__.py would import here, but not be packaged.
    for location in child._locations:
        assert import_module(location).__file__ is not None


@pytest.mark.parametrize(
    'registry_name, old, new',
    [
        ('DATASETS', 'coco', 'CheckedCocoDataset'),
        ('MODELS', 'detector', 'CheckedDetector'),
    ],
)
def test_old_names_of_what_is_built(registry_name, old, new):
    get = ROOTS[registry_name].get
    assert get(f'mmmoca.{old}') is get(f'mmmoca.{new}') is not None


@pytest.mark.parametrize('name', registry.GONE)
def test_names_that_are_gone_say_what_to_write(monkeypatch, name):
    child = registry.MODELS
    # Projects may have registered them.
    left = {k: v for k, v in child.module_dict.items() if k != name}
    monkeypatch.setattr(child, '_module_dict', left)
    with pytest.raises(KeyError, match=f'mmmoca.{name} is gone'):
        ROOTS['MODELS'].get(f'mmmoca.{name}')


@pytest.mark.slow
def test_prefix_resolves_without_an_import():
    libraries = ['mmpretrain', 'mmseg']
    if find_spec('mmcv._ext') is not None:  # mmdet needs the compiled ops
        libraries.append('mmdet')
    # Of all classes this one takes the fewest imports.
    code = (
        'import sys\n'
        'from {}.registry import METRICS\n'
        "print(METRICS.get('mmmoca.KNNAccuracy'))\n"
        # Checkpoints of others are read by our reader from now on.
        "print('mmmoca.checkpoints.scheme' in sys.modules)"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, '-c', code.format(library)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for library in libraries
    ]
    for process in processes:
        output, _ = process.communicate()
        assert output.endswith(
            "mmmoca.evaluation.metrics.KNNAccuracy'>\nTrue\n"
        )


def test_scope_knows_mmpretrain_after_itself_and_mmengine():
    from mmengine.model import MMDistributedDataParallel
    from mmpretrain.models import SelfSupDataPreprocessor

    from mmmoca.models import MOCA

    models = registry.MODELS
    assert models.get('MOCA') is MOCA
    assert models.get('SelfSupDataPreprocessor') is SelfSupDataPreprocessor
    assert models.get('mmpretrain.MOCA') is None
    assert models.get('NoSuchModel') is None
    assert models.get('mmmoca.NoSuchModel') is None
    wrapper = registry.MODEL_WRAPPERS.get('MMDistributedDataParallel')
    assert wrapper is MMDistributedDataParallel


@pytest.mark.parametrize('kind', ['mmpretrain.Solarize', 'Solarize'])
def test_types_of_mmpretrain_build_in_the_scope(kind):
    # The second carries no scope: it is looked up in the outer one.
    pipeline = dict(
        type='RandomApply',
        transforms=[dict(type=kind, thr=128)],
        _scope_='mmmoca',
    )
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        built = mmengine.registry.TRANSFORMS.build(pipeline)
    (solarize,) = built.transforms.transforms
    assert type(solarize).__module__.startswith('mmpretrain.')
