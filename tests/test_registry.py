# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Lookups from the scope ``mmmoca``, and from other scopes into it."""

from importlib import import_module

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
    # A folder without __init__.py could be imported but not packaged.
    for location in child._locations:
        assert import_module(location).__file__ is not None


def test_scope_knows_itself_mmengine_and_mmpretrain():
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


def test_scope_knows_that_of_the_run():
    """MMEngine builds the parts that a config inherits in this way."""
    pytest.importorskip('mmseg')
    step = dict(type='LoadAnnotations', _scope_='mmmoca')
    for scope, package in (('mmseg', 'mmseg.'), ('mmpretrain', 'mmcv.')):
        with DefaultScope.overwrite_default_scope(scope):
            built = mmengine.registry.TRANSFORMS.build(step)
        assert type(built).__module__.startswith(package)


def test_batch_augments_of_mmpretrain():
    """Without a registry of this scope, MMEngine would warn."""
    import mmmoca.models  # noqa: F401  isort: skip
    from mmpretrain.registry import BATCH_AUGMENTS

    mixup = dict(type='Mixup', alpha=0.8, _scope_='mmmoca')
    assert BATCH_AUGMENTS.build(mixup).alpha == 0.8
    assert 'mmmoca' in BATCH_AUGMENTS.children
