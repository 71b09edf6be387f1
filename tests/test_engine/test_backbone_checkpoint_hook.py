# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Evaluating checkpoints of any layout by one config."""

import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner

from mmmoca.checkpoints import CheckpointError, convert_to_timm_name
from mmmoca.engine import BackboneCheckpointHook

from ..images import DEMO_CONFIG, point_to, write_images
from ..test_checkpoints.files import (
    LAYOUTS,
    PAIRED,
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
def build(images, tmp_path):
    def build_runner(
        load_from, img_size=SIZE, head=None, backbone=None, **hook
    ):
        cfg = Config.fromfile(DEMO_CONFIG)
        point_to(cfg, images)
        cfg.val_cfg.k = cfg.test_cfg.k = 5
        cfg.model = dict(
            type='ImageClassifier',
            data_preprocessor=dict(mean=[0] * 3, std=[255] * 3),
            backbone=mm_config(
                img_size, out_type='featmap', **(backbone or {})
            ),
            neck=dict(type='GlobalAveragePooling'),
            head=head,
        )
        cfg.custom_hooks = [dict(type='mmmoca.BackboneCheckpointHook', **hook)]
        cfg.work_dir = str(tmp_path / 'work')
        cfg.log_level = 'ERROR'
        cfg.load_from = str(load_from)
        return Runner.from_cfg(cfg)

    return build_runner


def save(content, path):
    torch.save(content, path)
    return path


def backbone_of(runner):
    return runner.model.backbone.state_dict()


def assert_holds(runner, model):
    """The backbone has the weights of a model of either library."""
    names = {convert_to_timm_name(n): n for n in backbone_of(runner)}
    actual, expected = backbone_of(runner), model.state_dict()
    assert len(actual) == len(expected)
    for name, value in expected.items():
        assert torch.equal(actual[names.get(name, name)], value), name


@pytest.mark.parametrize('layout', LAYOUTS)
def test_the_teacher_of_every_layout_is_evaluated(build, tmp_path, layout):
    content, teacher, _ = checkpoint(layout)
    runner = build(save(content, tmp_path / 'a.pth'))
    assert 'knn/top1_k5' in runner.test()
    assert_holds(runner, teacher)


@pytest.mark.parametrize('layout', PAIRED)
def test_the_student_on_request(build, tmp_path, layout):
    content, _, student = checkpoint(layout)
    runner = build(save(content, tmp_path / 'a.pth'), which='student')
    runner.val()
    assert_holds(runner, student)


def test_the_student_by_the_name_of_the_file(build, tmp_path):
    content, _, student = checkpoint('mmmoca')
    path = save(content, tmp_path / 'a.pth')
    runner = build(f'mmmoca-student://{path}')
    runner.test()
    assert_holds(runner, student)


def test_layer_scale_of_the_very_model(build, tmp_path):
    """Other files with it are refused, see test_layouts."""
    model = mm_vit(layer_scale_init_value=0.1)
    path = save(
        dict(state_dict=with_prefix('backbone.', model.state_dict())),
        tmp_path / 'a.pth',
    )
    runner = build(path, backbone=dict(layer_scale_init_value=0.1))
    runner.test()
    assert_holds(runner, model)
    with pytest.raises(CheckpointError, match='have no .*gamma1.weight'):
        build(path).test()


def test_one_encoder_is_no_student(build, tmp_path):
    path = save(checkpoint('mae')[0], tmp_path / 'a.pth')
    with pytest.raises(CheckpointError, match='one encoder only'):
        build(path, which='student').test()
    with pytest.raises(ValueError, match="must be 'teacher' or 'student'"):
        BackboneCheckpointHook('ema')


HEAD = dict(type='LinearClsHead', num_classes=3, in_channels=24)


def test_a_checkpoint_of_the_model_itself(build, tmp_path):
    runner = build('none', head=HEAD)
    state = runner.model.state_dict()
    state['head.fc.bias'] = torch.tensor([1.0, 2.0, 3.0])
    path = save(dict(state_dict=state, meta={}), tmp_path / 'a.pth')
    runner = build(path, head=HEAD)
    runner.test()
    assert runner.model.head.fc.bias.tolist() == [1, 2, 3]

    # A head that nothing is loaded into must not be tested.
    path = save(checkpoint('mmmoca')[0], tmp_path / 'b.pth')
    with pytest.raises(CheckpointError, match='nothing of head is in the ch'):
        build(path, head=HEAD).test()


def test_other_grids(build, tmp_path):
    """A square grid is resized; one on record even if it is not square."""
    for trained, evaluated in (
        ((32, 32), (48, 64)),
        ((32, 72), (64, 48)),
        ((32, 72), (48, 48)),
        ((48, 48), (32, 72)),
    ):
        content, teacher, _ = checkpoint('mmmoca', trained)
        runner = build(save(content, tmp_path / 'a.pth'), evaluated)
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


def test_files_of_no_use(build, tmp_path):
    path = tmp_path / 'a.pth'
    path.write_bytes(b'')
    with pytest.raises(CheckpointError, match='truncated'):
        build(path).test()
    save({'conv1.weight': torch.ones(2)}, path)
    with pytest.raises(CheckpointError, match='has no ViT.*conv1.weight'):
        build(path).test()
    wide = mm_vit(in_channels=4).state_dict()
    with pytest.raises(CheckpointError, match='1 of another shape'):
        build(save(wide, path)).test()
    runner = build(path)
    runner.model.backbone = torch.nn.Linear(1, 1)
    with pytest.raises(TypeError, match='ImageClassifier has not'):
        runner.test()


def test_an_untrained_final_norm_is_not_evaluated(build, tmp_path):
    content = checkpoint('timm')[0]
    for name in ('weight', 'bias'):
        content[f'fc_norm.{name}'] = content.pop(f'norm.{name}')
    path = save(content, tmp_path / 'a.pth')
    with pytest.raises(CheckpointError, match='no ln1.bias, ln1.weight'):
        build(path).test()


def test_training_starts_from_the_teacher(build, tmp_path):
    """Weights that are loaded outlive the initialisation of the model."""
    content, teacher, _ = checkpoint('moca')
    runner = build(save(content, tmp_path / 'a.pth'), head=HEAD)
    runner._train_loop = runner.build_train_loop(runner._train_loop)
    runner.optim_wrapper = runner.build_optim_wrapper(runner.optim_wrapper)
    runner.call_hook('before_run')
    runner.model.init_weights()
    runner.load_or_resume()
    assert_holds(runner, teacher)
