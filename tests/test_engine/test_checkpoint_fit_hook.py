# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.runner import Runner
from mmpretrain.registry import MODELS

import mmmoca  # noqa: F401  for its scheme of checkpoints
from mmmoca.checkpoints import (
    CheckpointError,
    check_pretrained_inits,
    convert_to_timm_name,
)

from ..images import DEMO_CONFIG, write_images
from ..test_checkpoints.files import (
    DIMS,
    checkpoint,
    mm_config,
    timm_vit,
    tokens,
)


@pytest.fixture(scope='module')
def runner(tmp_path_factory):
    cfg = Config.fromfile(DEMO_CONFIG)
    cfg.work_dir = str(tmp_path_factory.mktemp('fit'))
    cfg.log_level = 'ERROR'
    return Runner.from_cfg(cfg)


@pytest.fixture
def load(runner, tmp_path):
    def load_state(state, resume=False):
        path = tmp_path / 'checkpoint.pth'
        torch.save(dict(state_dict=state, meta=dict(iter=1)), path)
        runner._resume = resume
        runner.load_checkpoint(str(path))

    return load_state


def test_fitting_checkpoints(runner, load):
    state = {k: v.clone() for k, v in runner.model.state_dict().items()}
    state['backbone.cls_token'].fill_(3)
    load(state, resume=True)
    assert (runner.model.backbone.cls_token == 3).all()
    load({f'module.{name}': value for name, value in state.items()})
    # To start from a part is fine, to resume from it is not.
    part = {k: v for k, v in state.items() if k.startswith('backbone.')}
    load(part)
    with pytest.raises(ValueError, match=r'missing \(codebook.msd'):
        load(part, resume=True)


def test_checkpoints_that_do_not_fit(runner, load):
    state = runner.model.state_dict()
    with pytest.raises(ValueError, match='0 of the .* 1 unexpected'):
        load({'encoder.weight': torch.zeros(2)})
    other = dict(state)
    other['codebook.words'] = torch.zeros(8, 128)
    message = r'1 of another shape \(codebook.words\)'
    with pytest.raises(ValueError, match=message):
        load(other)


def test_only_a_run_is_resumed(runner, tmp_path):
    path = tmp_path / 'a.pth'
    torch.save(dict(state_dict=runner.model.state_dict(), meta={}), path)
    runner._resume = True
    with pytest.raises(CheckpointError, match='weights only'):
        runner.load_checkpoint(str(path))


def test_a_student_does_not_pass_for_the_teacher(runner, tmp_path):
    path = tmp_path / 'a.pth'
    torch.save(dict(state_dict=runner.model.state_dict(), meta={}), path)
    runner._resume = False
    runner.load_checkpoint(str(path))
    teacher = runner.model.teacher
    del runner.model.teacher
    try:
        with pytest.raises(CheckpointError, match='BackboneCheckpointHook'):
            runner.load_checkpoint(str(path))
    finally:
        runner.model.teacher = teacher


def vit(**kwargs):
    """A backbone of the small test ViT, with a Pretrained init."""
    size = kwargs.pop('img_size', 32)
    init = dict(type='Pretrained', **kwargs)
    return mm_config(size, init_cfg=init)


def classifier(backbone):
    head = dict(type='LinearClsHead', num_classes=3, in_channels=DIMS)
    return MODELS.build(
        dict(type='ImageClassifier', backbone=backbone, head=head)
    )


def segmentor(backbone):
    pytest.importorskip('mmseg')
    from mmseg.registry import MODELS

    head = dict(
        type='mmseg.FCNHead',
        in_channels=DIMS,
        channels=DIMS,
        num_classes=3,
        num_convs=0,
        kernel_size=1,
    )
    return MODELS.build(
        dict(type='mmseg.EncoderDecoder', backbone=backbone, decode_head=head)
    )


def detector(backbone):
    pytest.importorskip('mmcv._ext')  # the compiled operations
    from mmdet.registry import MODELS

    head = dict(
        type='mmdet.RetinaHead',
        num_classes=3,
        in_channels=DIMS,
        anchor_generator=dict(
            type='mmdet.AnchorGenerator',
            octave_base_scale=4,
            scales_per_octave=3,
            ratios=[0.5, 1.0, 2.0],
            strides=[8],
        ),
    )
    # The scope of a runner that went before would hold for mmdet's defaults.
    with DefaultScope.overwrite_default_scope('mmdet'):
        return MODELS.build(
            dict(type='SingleStageDetector', backbone=backbone, bbox_head=head)
        )


@pytest.mark.parametrize('build', [classifier, segmentor, detector])
def test_pretrained_backbones(tmp_path, build):
    content, teacher, student = checkpoint('mmmoca')
    path = str(tmp_path / 'a.pth')
    torch.save(content, path)
    total = len(teacher.state_dict())
    for prefix, expected in (('teacher.', teacher), ('backbone', student)):
        model = build(vit(checkpoint=path, prefix=prefix))
        (report,) = check_pretrained_inits(model)
        assert f'backbone ({path}): {total} of its {total} names' in report
        assert ("This is a pretraining run's student" in report) == (
            prefix == 'backbone'
        )
        model.init_weights()
        assert check_pretrained_inits(model) == []
        actual = model.backbone.state_dict()
        for name, value in expected.state_dict().items():
            assert torch.equal(actual[name], value)

    has = 'matches none of its .*the file has backbone., codebook., teacher.'
    for wrong in (dict(), dict(prefix='encoder.')):
        advice = r"; write prefix='teacher\.' or prefix='backbone\.'"
        with pytest.raises(CheckpointError, match=has + advice):
            check_pretrained_inits(build(vit(checkpoint=path, **wrong)))


def test_pretrained_files_of_other_layouts(tmp_path):
    path = str(tmp_path / 'a.pth')
    content, teacher, _ = checkpoint('moca')
    torch.save(content, path)
    advice = "layout moca; write checkpoint='mmmoca-teacher://FILE', prefix="
    with pytest.raises(CheckpointError, match=advice):
        check_pretrained_inits(classifier(vit(checkpoint=path)))
    any_layout = vit(checkpoint=f'mmmoca-teacher://{path}', prefix='backbone.')
    model = classifier(any_layout)
    (report,) = check_pretrained_inits(model)
    model.init_weights()
    assert 'unexpected' not in report and 'missing' not in report
    actual = model.backbone.state_dict()
    for name, value in actual.items():
        expected = teacher.state_dict()[convert_to_timm_name(name)]
        assert torch.equal(value, expected)

    torch.save(checkpoint('mmpretrain')[1].state_dict(), path)
    with pytest.raises(CheckpointError, match='pos_embed.*; leave out prefix'):
        check_pretrained_inits(classifier(vit(checkpoint=path, prefix='a')))
    torch.save({'conv1.weight': torch.ones(2)}, path)
    with pytest.raises(CheckpointError, match='checkpoint of another model'):
        check_pretrained_inits(classifier(vit(checkpoint=path)))
    with pytest.raises(CheckpointError, match='reads no safetensors: write'):
        check_pretrained_inits(classifier(vit(checkpoint='a.safetensors')))
    with pytest.raises(CheckpointError, match='no file on this machine'):
        check_pretrained_inits(classifier(vit(checkpoint='none.pth')))


def test_pretrained_partly(tmp_path):
    path = str(tmp_path / 'a.pth')
    state = checkpoint('mmpretrain')[1].state_dict()
    torch.save(state | {'ln3.bias': state.pop('ln1.bias')}, path)
    (report,) = check_pretrained_inits(classifier(vit(checkpoint=path)))
    assert '1 missing (ln1.bias); 1 unexpected (ln3.bias)' in report
    state['patch_embed.projection.weight'] = torch.ones(DIMS, 4, 8, 8)
    torch.save(state, path)
    message = r'patch_embed.projection.weight differ in shape'
    with pytest.raises(CheckpointError, match=message):
        check_pretrained_inits(classifier(vit(checkpoint=path)))


def test_frozen_encoders_are_loaded_whole(tmp_path):
    """A file without a final norm, as MAE's fine-tuned ones."""
    path = str(tmp_path / 'a.pth')
    state = checkpoint('timm')[0]
    for name in ('weight', 'bias'):
        state[f'fc_norm.{name}'] = state.pop(f'norm.{name}')
    torch.save(dict(model=state), path)
    source = dict(checkpoint=f'mmmoca-teacher://{path}', prefix='backbone.')
    message = 'no ln1.bias, ln1.weight of Vision.*final_norm=False'
    frozen = dict(frozen_stages=2)
    with pytest.raises(CheckpointError, match=message):
        check_pretrained_inits(classifier(vit(**source) | frozen))
    (report,) = check_pretrained_inits(classifier(vit(**source)))
    assert '2 missing (ln1.bias, ln1.weight)' in report  # trained anew
    pooled = dict(out_type='avg_featmap', final_norm=False)
    (report,) = check_pretrained_inits(
        classifier(vit(**source) | frozen | pooled)
    )
    assert 'missing' not in report


def pretrain(tmp_path, trained, img_size, mode='bicubic'):
    content, teacher, _ = checkpoint('mmmoca', trained)
    path = str(tmp_path / 'a.pth')
    torch.save(content, path)
    model = classifier(
        vit(checkpoint=path, prefix='teacher.', img_size=img_size)
    )
    model.backbone.interpolate_mode = mode
    check_pretrained_inits(model)
    model.init_weights()
    return model.backbone.pos_embed, teacher.pos_embed


def test_pretrained_positions_of_other_sizes(tmp_path):
    """Square grids are resized rightly; what would go wrong is refused."""
    actual, trained = pretrain(tmp_path, 32, (64, 48))
    assert torch.equal(actual[:, :1], trained[:, :1])
    expected = torch.nn.functional.interpolate(
        trained[:, 1:].unflatten(1, (4, 4)).permute(0, 3, 1, 2),
        (8, 6),
        mode='bicubic',
    )
    torch.testing.assert_close(
        actual[:, 1:], expected.flatten(2).transpose(1, 2)
    )
    for size in ((48, 48), (64, 48)):
        with pytest.raises(CheckpointError, match=r'grid that is 4 x 9, and'):
            pretrain(tmp_path, (32, 72), size)
    with pytest.raises(CheckpointError, match=r'6 x 6.*--img-size 32 72$'):
        pretrain(tmp_path, (48, 48), (32, 72))
    with pytest.raises(CheckpointError, match=r'72 --interpolation bilinear$'):
        pretrain(tmp_path, (48, 48), (32, 72), 'bilinear')
    actual, trained = pretrain(tmp_path, (32, 72), (32, 72))
    assert torch.equal(actual, trained)


@pytest.mark.parametrize('size', [(224, 224), (160, 288)])
def test_features_of_the_authors_names_and_ours(tmp_path, size):
    """Also at an input whose grid is neither the trained one nor square."""
    content, teacher, _ = checkpoint('moca', 224)
    path = str(tmp_path / 'a.pth')
    torch.save(content, path)
    source = dict(checkpoint=f'mmmoca-teacher://{path}', prefix='backbone.')
    model = classifier(vit(img_size=size, **source))
    check_pretrained_inits(model)
    model.init_weights()
    model.eval()
    # timm resizes with antialiasing; given resized positions it does not.
    theirs = timm_vit(img_size=size)
    positions = model.backbone.pos_embed.detach()
    theirs.load_state_dict(teacher.state_dict() | dict(pos_embed=positions))
    images = torch.randn(2, 3, *size)
    torch.testing.assert_close(
        tokens(model.backbone, images),
        tokens(theirs, images),
        atol=1e-5,
        rtol=1e-5,
    )


def test_the_hook_checks_before_a_training(tmp_path):
    """In time: a training initialises its model after ``before_run``."""
    content, teacher, _ = checkpoint('mmmoca')
    path = str(tmp_path / 'a.pth')
    torch.save(content, path)
    write_images(tmp_path / 'images', train=2, val=1)
    loader = dict(
        batch_size=2,
        num_workers=0,
        sampler=dict(type='DefaultSampler', shuffle=False),
        collate_fn=dict(type='default_collate'),
        dataset=dict(
            type='mmmoca.ImageFolder',
            data_root=str(tmp_path / 'images'),
            data_prefix='train',
            pipeline=[
                dict(type='mmmoca.LoadImage'),
                dict(type='Resize', scale=32),
                dict(type='PackInputs'),
            ],
        ),
    )

    def train(name, **init):
        backbone = vit(**init) | dict(out_type='cls_token')
        head = dict(type='LinearClsHead', num_classes=3, in_channels=DIMS)
        cfg = Config(
            dict(
                default_scope='mmpretrain',
                model=dict(
                    type='ImageClassifier', backbone=backbone, head=head
                ),
                train_dataloader=loader,
                train_cfg=dict(by_epoch=False, max_iters=1),
                optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.0)),
                custom_hooks=[dict(type='mmmoca.CheckpointFitHook')],
                default_hooks=dict(checkpoint=None),
                work_dir=str(tmp_path / name),
                experiment_name=name,
            )
        )
        runner = Runner.from_cfg(cfg)
        runner.train()
        (log,) = (tmp_path / name).glob('*/*.log')
        return runner.model, log.read_text()

    with pytest.raises(CheckpointError, match=r"write prefix='teacher\.'"):
        train('wrong', checkpoint=path)
    model, log = train('right', checkpoint=path, prefix='teacher.')
    names = teacher.state_dict()
    assert f'{len(names)} of its {len(names)} names match' in log
    for name, value in model.backbone.state_dict().items():
        assert torch.equal(value, names[name])
