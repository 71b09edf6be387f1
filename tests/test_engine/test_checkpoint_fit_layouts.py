# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Evaluating checkpoints of any layout by one config."""

import pytest
import torch

from mmmoca.checkpoints import CheckpointError, convert_to_timm_name
from mmmoca.engine import CodebookHook, TeacherEMAHook

from ..images import write_images
from ..runs import demo_runner
from ..test_checkpoints.files import (
    SIZE,
    checkpoint,
    mm_config,
    mm_vit,
    with_prefix,
)


@pytest.fixture(scope='module')
def images(tmp_path_factory):
    root = tmp_path_factory.mktemp('images')
    write_images(root, train=2, val=1)
    return root


@pytest.fixture
def build(images):
    def build_runner(load_from, img_size=SIZE, head=None, backbone=None):
        model = dict(
            _delete_=True,
            type='ImageClassifier',
            data_preprocessor=dict(mean=[0] * 3, std=[255] * 3),
            backbone=mm_config(
                img_size, out_type='featmap', **(backbone or {})
            ),
            neck=dict(type='GlobalAveragePooling'),
            head=head,
        )
        options = dict(model=model, load_from=str(load_from))
        options |= {'val_cfg.k': 5, 'test_cfg.k': 5}
        return demo_runner(images, 'work', **options)

    return build_runner


@pytest.fixture
def save(tmp_path):
    """Write what a file holds; its path."""

    def write(content):
        torch.save(content, tmp_path / 'a.pth')
        return tmp_path / 'a.pth'

    return write


def backbone_of(runner):
    return runner.model.backbone.state_dict()


def assert_holds(runner, model):
    """The backbone has the weights of a model of either library."""
    names = {convert_to_timm_name(n): n for n in backbone_of(runner)}
    actual, expected = backbone_of(runner), model.state_dict()
    assert len(actual) == len(expected)
    for name, value in expected.items():
        assert torch.equal(actual[names.get(name, name)], value), name


# What files of all layouts hold is a matter of test_layouts.
@pytest.mark.parametrize('layout', ['mmmoca', 'moca', 'classifier', 'timm'])
def test_the_teacher_is_evaluated(build, save, layout):
    content, teacher, _ = checkpoint(layout)
    runner = build(save(content))
    assert 'knn/top1_k5' in runner.test()
    assert_holds(runner, teacher)


@pytest.mark.parametrize('layout', ['mmmoca', 'moca'])
def test_the_student_on_request(build, save, layout):
    content, _, student = checkpoint(layout)
    runner = build(f'mmmoca-student://{save(content)}')
    runner.val()
    assert_holds(runner, student)


def test_layer_scale_of_the_very_model(build, save):
    """It stays apart where the config builds it, and is folded elsewhere."""
    model = mm_vit(layer_scale_init_value=0.1)
    path = save(dict(state_dict=with_prefix('backbone.', model.state_dict())))
    runner = build(path, backbone=dict(layer_scale_init_value=0.1))
    runner.test()
    assert_holds(runner, model)
    with pytest.raises(CheckpointError, match='have no .*gamma1.weight'):
        build(path).test()
    build(f'mmmoca-teacher://{path}').test()
    path = save(checkpoint('timm')[0])
    runner = build(path, backbone=dict(layer_scale_init_value=0.1))
    message = 'gamma1.*layer_scale_init_value'
    with pytest.raises(CheckpointError, match=message):
        runner.test()


HEAD = dict(type='LinearClsHead', num_classes=3, in_channels=24)


def test_a_checkpoint_of_the_model_itself(build, save):
    runner = build('none', head=HEAD)
    state = runner.model.state_dict()
    state['head.fc.bias'] = torch.tensor([1.0, 2.0, 3.0])
    path = save(dict(state_dict=state, meta={}))
    runner = build(path, head=HEAD)
    runner.test()
    assert runner.model.head.fc.bias.tolist() == [1, 2, 3]

    # A head that nothing is loaded into must not be tested.
    path = save(checkpoint('mmmoca')[0])
    with pytest.raises(CheckpointError, match='missing .head'):
        build(path, head=HEAD).test()


def test_other_grids(build, save):
    """A square grid is resized; one on record even if it is not square."""
    for trained, evaluated in (((32, 32), (48, 64)), ((32, 72), (48, 48))):
        content, teacher, _ = checkpoint('mmmoca', trained)
        runner = build(save(content), evaluated)
        runner.test()
        rows, columns = (side // 8 for side in trained)
        old = teacher.pos_embed[:, 1:].unflatten(1, (rows, columns))
        new = torch.nn.functional.interpolate(
            old.permute(0, 3, 1, 2),
            (evaluated[0] // 8, evaluated[1] // 8),
            mode='bicubic',
        )
        actual = runner.model.backbone.pos_embed
        assert torch.equal(actual[:, :1], teacher.pos_embed[:, :1])
        torch.testing.assert_close(
            actual[:, 1:], new.flatten(2).transpose(1, 2)
        )


@pytest.mark.parametrize(
    ('state', 'message'),
    [
        (lambda: {'conv1.weight': torch.ones(2)}, 'has no ViT.*conv1.weight'),
        (lambda: mm_vit(in_channels=4).state_dict(), 'in_channels'),
    ],
)
def test_files_of_no_use(build, save, state, message):
    with pytest.raises(CheckpointError, match=message):
        build(save(state())).test()


def test_an_untrained_final_norm_is_not_evaluated(build, save):
    content = checkpoint('timm')[0]
    for name in ('weight', 'bias'):
        content[f'fc_norm.{name}'] = content.pop(f'norm.{name}')
    path = save(content)
    with pytest.raises(CheckpointError, match='no ln1.bias, ln1.weight'):
        build(path).test()


def test_training_starts_from_the_teacher(build, save):
    """Weights that are loaded outlive the initialisation of the model."""
    content, teacher, _ = checkpoint('moca')
    runner = build(save(content), head=HEAD)
    runner._train_loop = runner.build_train_loop(runner._train_loop)
    runner.optim_wrapper = runner.build_optim_wrapper(runner.optim_wrapper)
    moves = CodebookHook, TeacherEMAHook  # of pretraining
    runner._hooks = [h for h in runner.hooks if not isinstance(h, moves)]
    runner.call_hook('before_run')
    runner.model.init_weights()
    runner.load_or_resume()
    assert_holds(runner, teacher)
