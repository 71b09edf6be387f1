# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A test of other classes than the head was trained on is no test of it."""

from types import SimpleNamespace

import pytest
from torch import nn

from mmmoca.engine.hooks import ClassCheckHook, class_check_hook


class Model(nn.Module):
    def __init__(self, part):
        super().__init__()
        head = nn.Identity()
        head.num_classes = 3
        setattr(self, part, head)


@pytest.mark.parametrize('part', ['head', 'decode_head', 'neck'])
@pytest.mark.parametrize(
    'trained, tested, differ',
    [
        ('abc', 'abc', False),
        ('abc', 'bcd', True),
        ('abc', 'acb', True),
        ('abc', 'ab', True),
        ('ab', 'abc', True),
        ('', 'abc', False),  # of a file that does not say
        ('abc', '', False),
    ],
)
@pytest.mark.parametrize('training', [False, True])
def test_classes_of_a_checkpoint(
    monkeypatch, part, trained, tested, differ, training
):
    dataset = SimpleNamespace(metainfo=dict(classes=tuple(tested)))
    loop = SimpleNamespace(dataloader=SimpleNamespace(dataset=dataset))
    monkeypatch.setattr(class_check_hook, 'built_loops', lambda _: [loop])
    monkeypatch.setattr(class_check_hook, 'is_training', lambda _: training)
    runner = SimpleNamespace(model=Model(part))
    content = dict(meta=dict(dataset_meta=dict(classes=[*trained])))
    call = ClassCheckHook().after_load_checkpoint
    if differ and part != 'neck' and not training:
        with pytest.raises(ValueError, match='class'):
            call(runner, content)
    else:
        call(runner, content)
    call(runner, dict(state_dict={}))
