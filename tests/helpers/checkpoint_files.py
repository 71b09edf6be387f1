# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Small checkpoint files in all layouts that libraries write."""

import itertools
import logging
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

import timm
import torch
from mmengine.evaluator import Evaluator
from mmengine.runner import Runner
from mmpretrain.registry import MODELS
from timm.models.vision_transformer import VisionTransformer as TimmViT
from torch.utils.data import DataLoader

import mmmoca
from mmmoca.checkpoints import run_record
from mmmoca.engine import CheckpointFitHook

SIZE, PATCH, DIMS, DEPTH, HEADS = 32, 8, 24, 2, 3
COUNT = itertools.count()


def randomise(model, seed):
    """Move every parameter off its initial value, norms included."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.1 * noise)
    model.eval()  # returns None in mmpretrain
    return model


def timm_vit(seed=0, img_size=SIZE, **kwargs):
    """Return a small timm ViT that has no head after its final norm."""
    defaults = dict(patch_size=PATCH, num_classes=0, dynamic_img_size=True)
    torch.manual_seed(seed)
    return randomise(
        TimmViT(
            img_size=img_size,
            embed_dim=DIMS,
            depth=DEPTH,
            num_heads=HEADS,
            **defaults | kwargs,
        ),
        seed,
    )


def token_vit(kind, **sizes):
    """Return a timm ViT with registers, 128 channels and two heads.

    Args:
        kind (str): Our type of this ViT: 'RegisterViT' (for DINOv2) or
            'DINOv3ViT'.
        **sizes (int): Other sizes, under timm's names.
    """
    name = dict(
        RegisterViT='vit_small_patch14_reg4_dinov2',
        DINOv3ViT='vit_small_patch16_dinov3',
    )[kind]
    defaults = dict(embed_dim=128, depth=2, num_heads=2, patch_size=PATCH)
    defaults |= dict(num_classes=0, img_size=224)
    torch.manual_seed(0)
    return randomise(timm.create_model(name, **defaults | sizes), seed=0)


def from_file(kind, path, **init):
    """Return config options that start the backbone from a file."""
    init |= dict(checkpoint=f'mmmoca-teacher://{path}', prefix='backbone.')
    return {
        'model.backbone.type': f'mmmoca.{kind}',
        'model.backbone.init_cfg': dict(init, type='Pretrained'),
    }


def assert_goes_on(runner, vit):
    """Check that a run has moved the weights of ``vit`` in small steps."""
    trained = runner.model.backbone
    for ours, theirs in (
        (trained.register_tokens, vit.reg_token),
        (trained.layers[0].ln1.weight, vit.blocks[0].norm1.weight),
        (trained.layers[-1].ln2.bias, vit.blocks[-1].norm2.bias),
    ):
        step = (ours.detach().cpu() - theirs.detach()).abs().max()
        assert 0 < step < 0.01


def mm_config(img_size=SIZE, **kwargs):
    """Return mmpretrain's config of the ViT of :func:`timm_vit`."""
    config = dict(
        type='mmpretrain.VisionTransformer',
        arch=dict(
            embed_dims=DIMS,
            num_layers=DEPTH,
            num_heads=HEADS,
            feedforward_channels=4 * DIMS,
        ),
        img_size=img_size,
        patch_size=PATCH,
        out_type='raw',
    )
    return config | kwargs


def mm_vit(img_size=SIZE, seed=0, **kwargs):
    """Return mmpretrain's version of the ViT of :func:`timm_vit`."""
    return randomise(MODELS.build(mm_config(img_size, **kwargs)), seed)


def classifier(head=None, **backbone):
    """Return an mmpretrain classifier with this ViT as its backbone."""
    backbone = mm_config(**backbone)
    config = dict(type='ImageClassifier', backbone=backbone, head=head)
    return MODELS.build(config)


def timm_state(**changes):
    """Return timm's weights with some parts changed; None removes a part."""
    state = checkpoint('timm')[0] | changes
    return {name: part for name, part in state.items() if part is not None}


def load_as_a_run(
    model,
    address,
    resume=False,
    trains=True,
    wrapper=None,
    cfg=None,
    level=logging.NOTSET,
):
    """Load a checkpoint in a run without steps; return our log lines.

    Args:
        model (nn.Module): The model that loads it.
        address (str): ``load_from`` of the run.
        resume (bool): Whether the run resumes from the file.
        trains (bool): Whether the run trains; otherwise it tests.
        wrapper (OptimWrapper, optional): The wrapper, if the run trains.
        cfg (dict, optional): The content of the run's config.
        level (int): The lowest level of the returned lines.
    """
    images = DataLoader([])
    if trains:
        sgd = dict(optimizer=dict(type='SGD', lr=0.1))
        parts = dict(
            train_dataloader=images,
            train_cfg=dict(by_epoch=True, max_epochs=0),
            optim_wrapper=wrapper or sgd,
        )
    else:
        parts = dict(
            test_dataloader=images, test_cfg={}, test_evaluator=Evaluator([])
        )
    lines = []
    with TemporaryDirectory() as folder:
        runner = Runner(
            model,
            folder,
            load_from=address,
            resume=resume,
            custom_hooks=[CheckpointFitHook()],
            default_scope='mmpretrain',
            experiment_name=f'load_{next(COUNT)}',
            cfg=cfg,
            **parts,
        )
        handler = logging.Handler(level)
        handler.emit = lambda line: lines.append(line)
        runner.logger.addHandler(handler)
        (runner.train if trains else runner.test)()
    ours = str(Path(mmmoca.__file__).parent)
    return [x.getMessage() for x in lines if x.pathname.startswith(ours)]


def with_prefix(prefix, state):
    return {prefix + name: value for name, value in state.items()}


def checkpoint(layout, img_size=SIZE):
    """Return a checkpoint, and the ViTs in it.

    Returns:
        tuple[dict, nn.Module, nn.Module]: The content to save; the teacher (or
        the only encoder) and the student, both as models of the library that
        uses this layout.
    """
    vit = mm_vit if layout in ('mmmoca', 'classifier') else timm_vit
    models = vit(img_size=img_size, seed=1), vit(img_size=img_size, seed=2)
    teacher, student = (model.state_dict() for model in models)
    extra = torch.ones(3, 2)
    args = Namespace(lr=0.1, arch='vit_small', paths=['a', 'b'], seed=None)
    decoder = 'mask_token', 'decoder_blocks.0.attn.qkv.weight'
    fc, head = {'fc.fc1.weight': extra}, {'head.mlp.0.weight': extra}
    codebook, mask = {'codebook.words': extra}, {'mask_token_cls_pt': extra}
    backbone = with_prefix('backbone.', teacher)
    heads = 'base_encoder.head', 'momentum_encoder.head', 'predictor'
    heads = {f'{name}.0.weight': extra for name in heads}

    def both(student_prefix, teacher_prefix, **others):
        first = with_prefix(student_prefix, student)
        return first | others | with_prefix(teacher_prefix, teacher)

    contents = {
        'mmmoca': dict(
            state_dict=both('backbone.', 'teacher.', **codebook),
            meta=dict(mmmoca=run_record({}, models[0]), iter=7),
        ),
        'moca': dict(
            model=both('encoder.', 'encoder_teacher.', **mask),
            optimizer=dict(state={}, param_groups=[dict(lr=0.1)]),
            epoch=199,
            args=args,
        ),
        'dino': dict(
            student=with_prefix('module.backbone.', student)
            | with_prefix('module.', head),
            teacher=backbone | head,
            dino_loss={'center': extra},
            args=args,
        ),
        'msn': dict(
            encoder=with_prefix('module.', student | fc),
            target_encoder=with_prefix('module.', teacher | fc),
            prototypes=extra,
        ),
        'mocov3': dict(
            arch='vit_small',
            state_dict=both(
                'module.base_encoder.',
                'module.momentum_encoder.',
                **with_prefix('module.', heads),
            ),
        ),
        'classifier': dict(state_dict=backbone | head),
        'ibot-backbone': dict(state_dict=teacher | dict(masked_embed=extra)),
        'mae': dict(model=teacher | dict.fromkeys(decoder, extra)),
        'deit': dict(model=teacher | {'head.weight': extra}, args=args),
        'timm': teacher | {'head.weight': extra},
    }
    return contents[layout], *models


def tokens(model, images):
    """Return a model's tokens after its final norm, (B, 1 + L, D).

    The model may be of any library. Registers are left out.
    """
    with torch.no_grad():
        if hasattr(model, 'forward_features'):  # a model of timm
            x = model.forward_features(images)
            start = model.num_prefix_tokens
        else:
            # The others return a tuple or, in transformers, a similar object.
            x = model(images)[0]
            config = getattr(model, 'config', None)
            start = 1 + getattr(config, 'num_register_tokens', 0)
    return torch.cat((x[:, :1], x[:, start:]), dim=1)


def assert_close(actual, expected):
    """Check that tensors are equal up to the order of sums."""
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def assert_same_tokens(*models):
    """Check that two models, each of any library, give the same tokens."""
    images = torch.randn(2, 3, SIZE, SIZE)
    assert_close(*(tokens(model, images) for model in models))
