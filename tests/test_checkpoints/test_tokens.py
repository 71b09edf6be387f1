# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Encoders with registers and DINOv3's: in, on, and out of a run again."""

import pytest
import timm
import torch
from mmengine.runner import load_checkpoint
from mmpretrain.registry import MODELS

import mmmoca
from mmmoca.apis.exports import export_encoder
from mmmoca.checkpoints import CheckpointError
from mmmoca.checkpoints.fitting import check_fit, loaded_names
from mmmoca.checkpoints.start import load_start

from ..helpers import checkpoint_files as files
from ..helpers.builders import moca_config
from ..helpers.tools import run_tool

# The first that knows DINOv3.
transformers = pytest.importorskip('transformers', '4.56')
WIDTH = dict(
    hidden_size=128,
    num_attention_heads=2,
    num_hidden_layers=2,
    num_register_tokens=4,
    patch_size=8,
    image_size=224,
)
TIMM = dict(embed_dim=128, depth=2, num_heads=2, patch_size=8, num_classes=0)
EVA = TIMM | dict(dynamic_img_size=True)
KINDS = {
    'dinov3-transformers': lambda: transformers.DINOv3ViTModel(
        transformers.DINOv3ViTConfig(**WIDTH, intermediate_size=256)
    ),
    'dinov2-transformers': lambda: transformers.Dinov2WithRegistersModel(
        transformers.Dinov2WithRegistersConfig(**WIDTH, mlp_ratio=2)
    ),
    'dinov3-timm': lambda: timm.create_model(
        'vit_small_patch16_dinov3', **EVA
    ),
    'dinov3-authors': lambda: timm.create_model(
        'vit_small_patch16_dinov3_qkvb', **EVA
    ),
    'dinov2-timm': lambda: timm.create_model(
        'vit_small_patch14_reg4_dinov2', **TIMM, img_size=224
    ),
}


def content_of(kind, model):
    """The file; that of DINOv3's authors is made from timm's."""
    state = dict(model.state_dict())
    if kind != 'dinov3-authors':
        return state
    for name in [n for n in state if n.endswith('q_bias')]:
        query, value = state.pop(name), state.pop(name.replace('q_b', 'v_b'))
        key = torch.full_like(query, 7.0)  # which the mask switches off
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


@pytest.fixture(scope='module', params=KINDS)
def source(request, tmp_path_factory):
    """The model of a library, and its file."""
    torch.manual_seed(0)
    model = KINDS[request.param]().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    path = tmp_path_factory.mktemp('tokens') / f'{request.param}.pth'
    torch.save(content_of(request.param, model), path)
    return model, path


def kind_of(path):
    return 'DINOv3ViT' if 'dinov3' in path.stem else 'RegisterViT'


def moca(path, **backbone):
    arch = dict(
        embed_dims=128,
        num_layers=2,
        num_heads=2,
        feedforward_channels=256 if 'transformers' in path.stem else 512,
    )
    cfg = moca_config()
    cfg['backbone'] |= dict(
        type=f'mmmoca.{kind_of(path)}', arch=arch, in_channels=3, tap_layer=1
    )
    cfg['backbone'] |= backbone
    model = MODELS.build(cfg)
    model.init_weights()
    return model


def test_reads_what_the_library_computes(source):
    model, path = source
    # Learned positions are resized by another rule in each library.
    fixed = [(224, 224)]
    sizes = [(64, 64), (40, 72)] if 'dinov3' in path.stem else fixed
    for size in sizes:
        encoder = mmmoca.load(path, img_size=size, num_heads=2)
        images = torch.randn(2, 3, *size)
        with torch.no_grad():
            found = encoder(images)
        expected = files.tokens(model, images)
        files.assert_close(found.cls, expected[:, 0])
        files.assert_close(found.patches.flatten(2).mT, expected[:, 1:])
        files.assert_close(found.avg, expected[:, 1:].mean(dim=1))


def test_pretraining_starts_from_it(source, tmp_path):
    """Student and teacher, and what the run then saves."""
    model, path = source
    run = moca(path)
    load_start(run, path)
    run.eval()
    meta = dict(iter=1, epoch=0, mmmoca=dict(num_heads=2, grid=(4, 6)))
    saved = tmp_path / 'epoch_1.pth'
    torch.save(dict(state_dict=run.state_dict(), meta=meta), saved)
    again = mmmoca.load(saved)
    images = torch.randn(2, 3, 32, 48)
    with torch.no_grad():
        patches = again(images).patches.flatten(2).mT
        for vit in (run.backbone, run.teacher):
            vit.eval()
            found = vit.encode(images)
            files.assert_close(patches, found.patches)
    if 'dinov3' in path.stem:
        expected = files.tokens(model, images)
        files.assert_close(found.cls, expected[:, 0])
        files.assert_close(found.patches, expected[:, 1:])


def test_an_error_names_the_type(source):
    _, path = source
    for options in (dict(type='mmmoca.MOCAViT'), dict(num_registers=2)):
        with pytest.raises(CheckpointError, match=f'{kind_of(path)}$'):
            load_start(moca(path, **options), path)


def test_downstream_backbones(source):
    """As the backbone of a classifier, by the address of its file."""
    _, path = source
    arch = moca(path).backbone.arch_settings
    options = dict(arch=arch, img_size=(32, 48), patch_size=8)
    for kind in ('VisionTransformer', f'mmmoca.{kind_of(path)}'):
        model = MODELS.build(
            dict(type='ImageClassifier', backbone=dict(type=kind, **options))
        )
        content = load_checkpoint(model, f'mmmoca-teacher://{path}', 'cpu')
        fit = model, loaded_names(content), content['meta'], 'x'
        if kind == 'VisionTransformer':
            with pytest.raises(CheckpointError, match=f'{kind_of(path)}$'):
                check_fit(*fit)
        else:
            assert 'missing' not in check_fit(*fit)


def test_gated_mlps_are_refused(tmp_path):
    config = transformers.DINOv3ViTConfig(
        **WIDTH, intermediate_size=256, use_gated_mlp=True
    )
    torch.save(
        transformers.DINOv3ViTModel(config).state_dict(), tmp_path / 'plus.pth'
    )
    with pytest.raises(CheckpointError, match='SwiGLU'):
        mmmoca.load(tmp_path / 'plus.pth')


@pytest.mark.parametrize('to', ['timm', 'transformers', 'torch-export'])
def test_out_again(source, to, tmp_path):
    """Loaded in the real library, by the code of the folder's card."""
    _, path = source
    square = 'dinov2' in path.stem
    size = (64, 64) if square else (40, 72)
    encoder = mmmoca.load(path, img_size=size, num_heads=2, device='cpu')
    folder = tmp_path / 'out'
    export_encoder(encoder, folder, to)
    images = torch.randn(2, 3, *size)
    text = (folder / 'README.md').read_text().split('```')[1]
    names = dict(images=images)
    with torch.no_grad():
        exec(text.removeprefix('python').replace('FOLDER', str(folder)), names)
        found = encoder(images)
    expected = found.cls, found.patches.flatten(2).mT
    actual = names.get('cls'), names.get('patches')
    if 'tokens' in names:
        assert '1 + 4 + L' in text
        actual = names['tokens'][:, 0], names['tokens'][:, 5:]
    for one, other in zip(actual, expected):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    if to == 'timm':
        line = path, tmp_path / 'x.pth', '--to', 'timm'
        convert = 'tools/model_converters/convert.py'
        assert 'tools/export.py' in run_tool(convert, *line, code=2)
        again = mmmoca.load(folder / 'model.safetensors')
        with torch.no_grad():
            files.assert_close(again(images).cls, found.cls)


def test_biases_of_keys_have_no_place_in_timm(tmp_path):
    torch.manual_seed(0)
    path = tmp_path / 'dinov3.pth'
    run = moca(path)
    for layer in run.teacher.layers:
        torch.nn.init.ones_(layer.attn.qkv.bias)
    meta = dict(mmmoca=dict(num_heads=2, grid=(4, 6)))
    torch.save(dict(state_dict=run.state_dict(), meta=meta), path)
    encoder = mmmoca.load(path, device='cpu')
    with pytest.raises(CheckpointError, match='keys have biases'):
        export_encoder(encoder, tmp_path / 'timm', 'timm')
    export_encoder(encoder, tmp_path / 'hf', 'transformers')
    images = torch.randn(2, 3, 32, 48)
    model = transformers.DINOv3ViTModel.from_pretrained(tmp_path / 'hf')
    with torch.no_grad():
        files.assert_close(
            files.tokens(model, images)[:, 0], encoder(images).cls
        )
