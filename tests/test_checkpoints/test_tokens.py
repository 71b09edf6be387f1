# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Encoders of transformers, those with registers, and DINOv3's.

Where they go on: test_export, test_segmentation and test_detection.
"""

from functools import partial

import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner

import mmmoca
from mmmoca.apis.export import export_encoder
from mmmoca.checkpoints import CheckpointError
from mmmoca.checkpoints.start import load_start

from ..helpers import checkpoint_files as files
from ..helpers.builders import build_moca
from ..helpers.images import CONFIGS, point_to

# The first that knows DINOv3.
transformers = pytest.importorskip('transformers', '4.56')
SIZES = dict(
    hidden_size=128,
    num_attention_heads=2,
    num_hidden_layers=2,
    patch_size=8,
    image_size=224,
)
# What version 5 calls otherwise in memory, which it does not save so.
IN_MEMORY = {
    'attention.attention.query': 'attention.q_proj',
    'attention.attention.key': 'attention.k_proj',
    'attention.attention.value': 'attention.v_proj',
    'attention.output.dense': 'attention.o_proj',
    'encoder.layer.': 'layers.',
    'intermediate.dense': 'mlp.fc1',
    'output.dense': 'mlp.fc2',
}


def authors_dinov2(model):
    """Their file has a position of [CLS], and timm's adds it to [CLS]."""
    state = model.state_dict()
    position = torch.randn(1, 1, 128)
    state['cls_token'] = state['cls_token'] - position
    state['pos_embed'] = torch.cat((position, state['pos_embed']), dim=1)
    state['register_tokens'] = state.pop('reg_token')
    return state | dict(mask_token=torch.zeros(1, 128))


def authors_dinov3(model):
    """Their file has biases of keys, which a mask switches off."""
    state = model.state_dict()
    for name in [n for n in state if n.endswith('q_bias')]:
        query, value = state.pop(name), state.pop(name.replace('q_b', 'v_b'))
        key = torch.full_like(query, 7.0)
        new = name.replace('q_bias', 'qkv.bias')
        state[new] = torch.cat((query, key, value))
        mask = torch.ones(3, len(query))
        mask[1] = 0
        state[f'{new}_mask'] = mask.flatten()
    state['storage_tokens'] = state.pop('reg_token')
    state['mask_token'] = torch.zeros(1, 128)
    state['rope_embed.periods'] = 100 ** (torch.arange(16) / 16)
    for name in [n for n in state if '.gamma_' in n]:
        branch, number = name.split('.gamma_')
        state[f'{branch}.ls{number}.gamma'] = state.pop(name)
    return state


def in_memory(model):
    """Below a classifier, whose own weights are left out."""
    state = files.with_prefix('vit.', model.state_dict())
    for old, new in IN_MEMORY.items():
        state = {name.replace(old, new): v for name, v in state.items()}
    return state | {'classifier.weight': torch.ones(3, 2)}


def of_transformers(name, **sizes):
    config = getattr(transformers, f'{name}Config')(**SIZES, **sizes)
    return files.randomise(getattr(transformers, f'{name}Model')(config), 0)


VIT = partial(
    of_transformers, 'ViT', intermediate_size=512, layer_norm_eps=1e-6
)
DINOV2 = partial(of_transformers, 'Dinov2', mlp_ratio=4)
REGISTERS = partial(
    of_transformers, 'Dinov2WithRegisters', mlp_ratio=4, num_register_tokens=4
)
DINOV3 = partial(
    of_transformers, 'DINOv3ViT', intermediate_size=512, num_register_tokens=4
)
OF_TIMM = partial(files.token_vit, 'RegisterViT')
SAVED = torch.nn.Module.state_dict
# The model of a library, and how a file is made of it.
KINDS = {
    'vit': (VIT, SAVED),
    'vit-in-memory': (VIT, in_memory),
    'dinov2': (DINOV2, SAVED),
    'dinov2-registers': (REGISTERS, SAVED),
    'dinov2-timm': (OF_TIMM, SAVED),
    'dinov2-authors': (OF_TIMM, authors_dinov2),
    'dinov3': (DINOV3, SAVED),
    'dinov3-timm': (partial(files.token_vit, 'DINOv3ViT'), SAVED),
    'dinov3-authors': (
        partial(files.token_vit, 'DINOv3ViT', qkv_bias=True),
        authors_dinov3,
    ),
}


@pytest.fixture(scope='module', params=KINDS)
def source(request, tmp_path_factory):
    """Its name, the model of a library, and its file."""
    build, write = KINDS[request.param]
    model = build()
    path = tmp_path_factory.mktemp('tokens') / 'a.pth'
    torch.save(write(model), path)
    return request.param, model, path


@pytest.fixture(scope='module', params=['RegisterViT', 'DINOv3ViT'])
def file(request, tmp_path_factory):
    """Our type, and a file of timm's for it."""
    path = tmp_path_factory.mktemp('timm') / 'a.pth'
    torch.save(files.token_vit(request.param).state_dict(), path)
    return request.param, path


ARCH = dict(
    embed_dims=128, num_layers=2, num_heads=2, feedforward_channels=512
)


def moca(kind, **backbone):
    """A model of pretraining that such a file fills."""
    vit = dict(type=f'mmmoca.{kind}', arch=ARCH, in_channels=3, tap_layer=1)
    vit |= backbone
    return build_moca(**{f'backbone__{key}': v for key, v in vit.items()})


@pytest.fixture
def half_by_default():
    """Types that a caller prefers are not those of an encoder."""
    torch.set_default_dtype(torch.bfloat16)
    yield
    torch.set_default_dtype(torch.float32)


def test_reads_what_the_library_computes(source, half_by_default):
    name, model, path = source
    # Learned positions are resized by another rule in each library.
    any_size = 'dinov3' in name
    for size in [(64, 64), (40, 72)] if any_size else [(224, 224)]:
        encoder = mmmoca.load(path, img_size=size, num_heads=2)
        others = name.endswith(('timm', 'authors'))
        assert (encoder.metainfo['layout'] == 'huggingface') != others
        known = 'dinov2' if name.endswith('authors') else None
        assert encoder.preset.method == known
        images = torch.randn(2, 3, *size, dtype=torch.float32)
        with torch.no_grad():
            found = encoder(images)
        expected = files.tokens(model, images)
        files.assert_close(found.cls, expected[:, 0])
        files.assert_close(found.patches.flatten(2).mT, expected[:, 1:])
        files.assert_close(found.avg, expected[:, 1:].mean(dim=1))


def test_pretraining_starts_from_it(file, tmp_path):
    """Student and teacher, and what the run then saves."""
    kind, path = file
    run = moca(kind)
    load_start(run, path)
    run.eval()
    meta = dict(iter=1, epoch=0, mmmoca=dict(num_heads=2, grid=(4, 6)))
    saved = tmp_path / 'epoch_1.pth'
    torch.save(dict(state_dict=run.state_dict(), meta=meta), saved)
    images = torch.randn(2, 3, 32, 48)
    with torch.no_grad():
        expected = mmmoca.load(path, num_heads=2, img_size=(32, 48))(images)
        again = mmmoca.load(saved)(images)
        for vit in (run.backbone, run.teacher):
            vit.eval()
            found = vit.encode(images)
            for encoder in (expected, again):
                files.assert_close(encoder.cls, found.cls)
                files.assert_close(encoder.avg, found.avg)


def test_errors_name_the_key(file):
    kind, path = file
    registers = dict(num_registers=2)
    cases = [
        (kind, registers, f'{kind} model.backbone.num_registers=4'),
        ('MOCAViT', {}, f'type=mmmoca.{kind}$'),
    ]
    if kind == 'DINOv3ViT':
        heads = dict(arch=ARCH | dict(num_heads=4))
        cases.append((kind, heads, 'arch.num_heads=2'))
    for built, options, message in cases:
        with pytest.raises(CheckpointError, match=message):
            load_start(moca(built, **options), path)


def test_k_nn(file, root, tmp_path):
    """Through the real config, by the type of the backbone alone."""
    kind, path = file

    def runner(vit):
        cfg = Config.fromfile(CONFIGS / 'demo' / 'knn_vit-tiny_textures.py')
        cfg.model.backbone.update(type=vit, arch=ARCH)
        cfg.update(work_dir=str(tmp_path), load_from=str(path))
        cfg.experiment_name = f'{kind} in {vit}'
        point_to(cfg, root)
        return Runner.from_cfg(cfg)

    with pytest.raises(CheckpointError, match=f'type=mmmoca.{kind}$'):
        runner('mmpretrain.VisionTransformer').test()
    tested = runner(f'mmmoca.{kind}')
    assert tested.test()['knn/top1_k20_t0.07'] > 60  # of three classes
    images = torch.randn(2, 3, 48, 48)
    encoder = mmmoca.load(path, num_heads=2, img_size=48)
    with torch.no_grad():
        (found,) = tested.model.extract_feat(images)
        files.assert_close(found, encoder(images).avg)


def test_biases_of_keys_have_no_place_in_timm(tmp_path):
    torch.manual_seed(0)
    path = tmp_path / 'dinov3.pth'
    run = moca('DINOv3ViT')
    for layer in run.teacher.layers:
        torch.nn.init.ones_(layer.attn.qkv.bias)
    meta = dict(mmmoca=dict(num_heads=2, grid=(4, 6)))
    torch.save(dict(state_dict=run.state_dict(), meta=meta), path)
    encoder = mmmoca.load(path, device='cpu')
    with pytest.raises(CheckpointError):
        export_encoder(encoder, tmp_path / 'timm', 'timm')
    export_encoder(encoder, tmp_path / 'hf', 'transformers')
    images = torch.randn(2, 3, 32, 48)
    model = transformers.DINOv3ViTModel.from_pretrained(tmp_path / 'hf')
    with torch.no_grad():
        files.assert_close(
            files.tokens(model, images)[:, 0], encoder(images).cls
        )
