# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A file of any library gives the same tokens however it is loaded.

test_export checks exports to other libraries.
"""

import json
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from timm.data import create_transform
from torch import nn

import mmmoca
from mmmoca.apis.export import export_encoder
from mmmoca.checkpoints import CheckpointError, run_record
from mmmoca.models import MOCAViT

from ..helpers import checkpoint_files as files
from ..helpers.builders import build_moca
from ..helpers.tools import run_tool

transformers = pytest.importorskip('transformers')
# The sizes of `files.token_vit` and of its images.
SIZES = dict(
    hidden_size=128,
    num_attention_heads=2,
    num_hidden_layers=2,
    patch_size=8,
    image_size=32,
)
# Version 5 of transformers renames these in memory, but not in files.
IN_MEMORY = {
    'attention.attention.query': 'attention.q_proj',
    'attention.attention.key': 'attention.k_proj',
    'attention.attention.value': 'attention.v_proj',
    'attention.output.dense': 'attention.o_proj',
    'encoder.layer.': 'layers.',
    'intermediate.dense': 'mlp.fc1',
    'output.dense': 'mlp.fc2',
}


class Source(NamedTuple):
    """A file of a library.

    Attributes:
        content (dict | None): Its content; None if ``vit`` saves itself, as
            models of transformers do.
        vit (nn.Module): The library's model.
        layout (str): The layout that the reader recognises.
        student (nn.Module | None): The student, if there are two encoders.
        heads (int): Number of attention heads.
        kind (str): The type of the ViT that loads the file.
        size (tuple[int, int]): Size of the images.
    """

    content: dict | None
    vit: nn.Module
    layout: str
    student: nn.Module | None = None
    heads: int = files.HEADS
    kind: str = 'mmpretrain.VisionTransformer'
    size: tuple[int, int] = (files.SIZE, files.SIZE)


WIDE = dict(heads=2)
ROTARY = dict(heads=2, kind='mmmoca.DINOv3ViT', size=(40, 72))
REGISTERS = dict(heads=2, kind='mmmoca.RegisterViT')


def plain(name, layout, paired=False):
    content, teacher, student = files.checkpoint(name)
    return Source(content, teacher, layout, student if paired else None)


def saved(vit):
    return vit.state_dict()


def scaled(layout, write=saved, **options):
    """Return a file of timm's ViT with LayerScale."""
    vit = files.timm_vit(**dict(init_values=0.3) | options)
    return Source(write(vit), vit, layout)


def of_timm(kind, layout, target, write=saved, **sizes):
    vit = files.token_vit(kind, img_size=files.SIZE, **sizes)
    return Source(write(vit), vit, layout, **target)


def of_transformers(name, target, sizes, write=lambda vit: None):
    """Build a model of transformers; skip the test if it is not available."""
    if not hasattr(transformers, f'{name}Model'):
        pytest.skip(f'transformers {transformers.__version__}')
    config = getattr(transformers, f'{name}Config')(**SIZES, **sizes)
    build = getattr(transformers, f'{name}Model')
    vit = files.randomise(build(config), 0)
    return Source(write(vit), vit, 'huggingface', **target)


def chunked(vit):
    """Put blocks into chunks, as runs of DINOv2 do."""
    teacher = {
        f'backbone.{name}'.replace('blocks.', 'blocks.0.'): value
        for name, value in vit.state_dict().items()
    }
    return dict(teacher=teacher)


def in_memory(vit):
    """Put the ViT into a classifier, under the names that it has in memory."""
    state = files.with_prefix('vit.', vit.state_dict())
    for old, new in IN_MEMORY.items():
        state = {name.replace(old, new): v for name, v in state.items()}
    return state | {'classifier.weight': torch.ones(3, 2)}


def authors_dinov2(vit):
    """Return the authors' file, in which [CLS] has a position."""
    state = vit.state_dict()
    position = torch.randn(1, 1, 128)
    state['cls_token'] = state['cls_token'] - position
    state['pos_embed'] = torch.cat((position, state['pos_embed']), dim=1)
    state['register_tokens'] = state.pop('reg_token')
    return state | dict(mask_token=torch.zeros(1, 128))


def authors_dinov3(vit):
    """Return the authors' file, which masks out the biases of keys."""
    state = vit.state_dict()
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


RATIO, HIDDEN = dict(mlp_ratio=4), dict(intermediate_size=512)
FOUR, EPS = dict(num_register_tokens=4), dict(layer_norm_eps=1e-6)
SOURCES = {
    'ours': partial(plain, 'mmmoca', 'mmmoca', True),
    "the authors'": partial(plain, 'moca', 'moca', True),
    'DINO': partial(plain, 'dino', 'dino', True),
    'MSN': partial(plain, 'msn', 'msn', True),
    'MoCo-v3': partial(plain, 'mocov3', 'mocov3', True),
    'iBOT': partial(plain, 'ibot-backbone', 'timm'),
    'MAE': partial(plain, 'mae', 'mae'),
    'DeiT': partial(plain, 'deit', 'timm'),
    'timm': partial(plain, 'timm', 'timm'),
    'mmpretrain': partial(plain, 'classifier', 'mmpretrain'),
    'timm DINOv2': partial(scaled, 'timm'),
    'timm DeiT III': partial(scaled, 'timm', no_embed_class=True),
    'timm FlexiViT': partial(
        scaled, 'timm', no_embed_class=True, init_values=None
    ),
    'run of DINOv2': partial(scaled, 'dino', chunked),
    'timm registers': partial(of_timm, 'RegisterViT', 'timm', REGISTERS),
    'timm positions of registers': partial(
        of_timm, 'RegisterViT', 'timm', REGISTERS, no_embed_class=False
    ),
    'DINOv2 registers': partial(
        of_timm, 'RegisterViT', 'dinov2', REGISTERS, authors_dinov2
    ),
    'timm DINOv3': partial(of_timm, 'DINOv3ViT', 'timm', ROTARY),
    'DINOv3': partial(
        of_timm, 'DINOv3ViT', 'dinov2', ROTARY, authors_dinov3, qkv_bias=True
    ),
    'HF ViT': partial(of_transformers, 'ViT', WIDE, HIDDEN | EPS),
    'HF ViT in memory': partial(
        of_transformers, 'ViT', WIDE, HIDDEN | EPS, in_memory
    ),
    'HF DINOv2': partial(of_transformers, 'Dinov2', WIDE, RATIO),
    'HF registers': partial(
        of_transformers, 'Dinov2WithRegisters', REGISTERS, RATIO | FOUR
    ),
    'HF DINOv3': partial(of_transformers, 'DINOv3ViT', ROTARY, HIDDEN | FOUR),
}
PAIRED = list(SOURCES)[:5]
# Some files are older than PyTorch's zip archives.
LEGACY = 'DINO', 'DeiT'


@pytest.fixture(scope='module', params=SOURCES)
def source(request, tmp_path_factory):
    """Return a file of a library, and its path."""
    found = SOURCES[request.param]()
    folder = tmp_path_factory.mktemp('source')
    if found.content is None:
        found.vit.save_pretrained(folder)
        return found, folder / 'model.safetensors'
    zipped = request.param not in LEGACY
    path = folder / 'a.pth'
    torch.save(found.content, path, _use_new_zipfile_serialization=zipped)
    return found, path


def vit_config(source, **options):
    """Return the config of the ViT that loads a source."""
    dims = 128 if source.heads == 2 else files.DIMS
    arch = dict(
        embed_dims=dims,
        num_layers=2,
        num_heads=source.heads,
        feedforward_channels=4 * dims,
    )
    vit = files.mm_config(source.size, type=source.kind, arch=arch)
    return vit | options


def features(encoder, images):
    """Return all tokens of one of our encoders."""
    with torch.no_grad():
        found = encoder(images)
    torch.testing.assert_close(found.avg, found.patches.flatten(2).mean(2))
    return torch.cat((found.cls[:, None], found.patches.flatten(2).mT), 1)


def load(source, path, which='teacher'):
    encoder = mmmoca.load(
        path, which, 'cpu', img_size=source.size, num_heads=source.heads
    )
    assert encoder.metainfo['layout'] == source.layout
    return encoder


def by_load(source, path, which, folder):
    return [partial(features, load(source, path, which))]


def by_load_from(source, path, which, folder):
    """Load the file in a test run; the config only gives the ViT's type."""
    model = files.classifier(**vit_config(source))
    scheme = '' if which == 'teacher' else 'mmmoca-student://'
    files.load_as_a_run(model, f'{scheme}{path}', trains=False)
    return [partial(files.tokens, model.backbone)]


def initialised(source, address):
    init = dict(type='Pretrained', checkpoint=address, prefix='backbone.')
    model = files.classifier(**vit_config(source, init_cfg=init))
    files.load_as_a_run(model, None)
    model.eval()
    return [partial(files.tokens, model.backbone)]


def by_init(source, path, which, folder):
    return initialised(source, f'mmmoca-{which}://{path}')


def by_convert(source, path, which, folder):
    out = folder / 'out.pth'
    tool = 'tools/model_converters/convert.py'
    run_tool(tool, path, out, '--which', which)
    return initialised(source, str(out))


def by_export(source, path, which, folder):
    export_encoder(load(source, path, which), folder / 'out', 'safetensors')
    written = folder / 'out' / 'model.safetensors'
    return [partial(features, mmmoca.load(written, device='cpu'))]


DOORS = {
    'mmmoca.load': by_load,
    'load_from': by_load_from,
    'Pretrained': by_init,
    'convert': by_convert,
    'export': by_export,
}


def check(model, encoders, size):
    images = torch.randn(2, 3, *size)
    expected = files.tokens(model, images)
    for encode in encoders:
        files.assert_close(encode(images), expected)


# All converted and exported files have one form, so a few sources suffice.
WRITERS = 'convert', 'export'
WRITTEN = 'ours', 'timm', 'DINOv2 registers', 'DINOv3', 'HF ViT'
READ = [
    (name, door)
    for name in SOURCES
    for door in DOORS
    if door not in WRITERS or name in WRITTEN
]


@pytest.mark.parametrize(('source', 'door'), READ, indirect=['source'])
@pytest.mark.slow
def test_tokens(source, tmp_path, door):
    source, path = source
    check(
        source.vit, DOORS[door](source, path, 'teacher', tmp_path), source.size
    )


def write_photo(folder):
    photo = np.random.default_rng(0).integers(0, 256, (60, 90, 3), np.uint8)
    image = Image.fromarray(photo).resize((180, 120))
    image.save(folder / 'photo.png')
    return image


@pytest.mark.parametrize(
    ('kind', 'options'),
    [
        ('ViT', dict(size=dict(height=32, width=32))),
        (
            'Bit',
            dict(size=dict(shortest_edge=48), crop_size=32, resample=3),
        ),
    ],
)
def test_images_of_transformers(tmp_path, kind, options):
    """A file next to the weights says how images are prepared."""
    source = of_transformers('ViT', WIDE, HIDDEN)
    processor = getattr(transformers, f'{kind}ImageProcessor')(**options)
    source.vit.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    image = write_photo(tmp_path)
    encoder = mmmoca.load(tmp_path / 'model.safetensors', device='cpu')
    found = encoder.embed([tmp_path / 'photo.png']).cls
    with torch.no_grad():
        images = processor(image, return_tensors='pt')
        expected = source.vit(**images).last_hidden_state[:, 0]
    assert (found - expected).norm() < 0.02 * expected.norm()


@pytest.mark.parametrize(('mode', 'share'), [('center', 0.7), ('squash', 1)])
def test_images_of_timm(tmp_path, mode, share):
    vit = files.timm_vit(dynamic_img_size=False)
    images = dict(input_size=[3, 32, 32], crop_pct=share, crop_mode=mode)
    images |= dict(interpolation='bicubic', mean=[0.4] * 3, std=[0.2] * 3)
    save_file(vit.state_dict(), tmp_path / 'model.safetensors')
    model = dict(model_args=dict(num_heads=files.HEADS))
    config = json.dumps(model | dict(pretrained_cfg=images))
    (tmp_path / 'config.json').write_text(config)
    image = write_photo(tmp_path)
    encoder = mmmoca.load(tmp_path / 'model.safetensors', device='cpu')
    found = encoder.embed([tmp_path / 'photo.png']).cls
    prepare = create_transform(**images)
    with torch.no_grad():
        expected = vit.forward_features(prepare(image)[None])[:, 0]
    assert (found - expected).norm() < 0.02 * expected.norm()


@pytest.mark.parametrize('door', [by_load, by_export])
def test_norms_of_another_eps(tmp_path, door):
    sizes = HIDDEN | dict(layer_norm_eps=1e-2)
    source = of_transformers('ViT', WIDE, sizes)
    source.vit.save_pretrained(tmp_path)
    path = tmp_path / 'model.safetensors'
    encoders = door(source, path, 'teacher', tmp_path)
    check(source.vit, encoders, source.size)


@pytest.mark.slow
@pytest.mark.parametrize(
    ('name', 'door'),
    [(name, 'mmmoca.load') for name in PAIRED]
    + [('ours', door) for door in DOORS if door != 'mmmoca.load'],
)
def test_tokens_of_students(tmp_path, name, door):
    source, path = SOURCES[name](), tmp_path / 'a.pth'
    torch.save(source.content, path)
    encoders = DOORS[door](source, path, 'student', tmp_path)
    check(source.student, encoders, source.size)


@pytest.mark.slow
def test_starts_of_pretraining(source, tmp_path):
    """Student and teacher start from the file, and the run saves them."""
    source, path = source
    vit = vit_config(source, tap_layer=1, in_channels=3)
    if source.kind.startswith('mmpretrain'):
        vit['type'] = 'mmmoca.MOCAViT'
    vit.pop('out_type')
    model = build_moca(**{f'backbone__{key}': v for key, v in vit.items()})

    files.load_as_a_run(model, f'mmmoca-start://{path}')
    record = run_record({}, model)
    saved = dict(state_dict=model.state_dict(), meta=dict(mmmoca=record))
    torch.save(saved, tmp_path / 'a.pth')
    model.eval()
    for which, part in (
        ('teacher', model.teacher),
        ('student', model.backbone),
    ):
        assert isinstance(part, MOCAViT)
        part.eval()
        part.out_type = 'raw'
        again = mmmoca.load(tmp_path / 'a.pth', which, 'cpu')
        given = source.vit
        if source.layout in ('mmmoca', 'moca') and which == 'student':
            given = source.student
        check(
            given,
            [partial(files.tokens, part), partial(features, again)],
            source.size,
        )


@pytest.mark.slow
def test_what_lies_beside_the_weights(tmp_path):
    """The number of heads and the normalisation are read from other files."""
    sizes = SIZES | dict(num_attention_heads=8, layer_norm_eps=1e-6)
    config = transformers.ViTConfig(**sizes)
    vit = files.randomise(transformers.ViTModel(config), 0)
    vit.save_pretrained(tmp_path)
    images = dict(image_mean=[0.5] * 3, image_std=[0.25] * 3)
    (tmp_path / 'preprocessor_config.json').write_text(json.dumps(images))
    path = tmp_path / 'model.safetensors'
    encoder = mmmoca.load(path, device='cpu')
    check(vit, [partial(features, encoder)], (32, 32))
    assert encoder.preprocessing.mean == (127.5,) * 3
    assert encoder.preprocessing.std == (63.75,) * 3
    arch = dict(embed_dims=128, num_layers=2, feedforward_channels=3072)
    for heads in (8, 2):
        arch['num_heads'] = heads
        cfg = files.mm_config((32, 32), in_channels=3, arch=arch)
        classifier = files.classifier(**cfg)
        cfg |= dict(type='mmmoca.MOCAViT', tap_layer=1)
        moca = build_moca(**{f'backbone__{k}': v for k, v in cfg.items()})
        for model, scheme in ((classifier, ''), (moca, 'mmmoca-start://')):
            if heads == 8:
                files.load_as_a_run(model, f'{scheme}{path}')
            else:
                with pytest.raises(CheckpointError, match='num_heads=8'):
                    files.load_as_a_run(model, f'{scheme}{path}')
    for odd in ([], 'a', dict(height='a'), dict(shortest_edge=[1])):
        odd = dict(size=odd, crop_size=odd, resample=odd, do_center_crop=odd)
        (tmp_path / 'preprocessor_config.json').write_text(
            json.dumps(images | odd)
        )
        loaded = mmmoca.load(path, device='cpu')
        assert loaded.preprocessing.pipeline == encoder.preprocessing.pipeline
    given = mmmoca.load(
        path, device='cpu', num_heads=2, mean=[1, 2, 3], std=[1, 1, 1]
    )
    assert given.metainfo['num_heads'] == 2
    assert given.preprocessing.mean == (1, 2, 3)
    images = dict(image_mean=None, rescale_factor=1 / 127.5)
    (tmp_path / 'preprocessor_config.json').write_text(json.dumps(images))
    other = dict(model_args=dict(num_heads=4), mean=[0] * 3, std=[1] * 3)
    (tmp_path / 'config.json').write_text(json.dumps(other))
    loaded = mmmoca.load(path, device='cpu')
    assert loaded.metainfo['num_heads'] == 4
    assert loaded.preprocessing.source == 'assumed'  # the scale differs
    (tmp_path / 'preprocessor_config.json').unlink()
    loaded = mmmoca.load(path, device='cpu')  # timm's file
    assert loaded.preprocessing.mean == (0,) * 3
    # A ViT with added positions ignores this entry.
    theta = {'model_type': 'vit', 'rope_theta': 10000}
    (tmp_path / 'config.json').write_text(json.dumps(theta))
    assert mmmoca.load(path, device='cpu', num_heads=2)
    for beside in (
        {'hidden_act': 'silu'},
        {'architecture': 'vit_small_patch16_rope_ape_224'},
        {'model_args': {'act_layer': 'relu'}},
        {'architecture': 'vit_tiny_patch16_quickgelu_224'},
        {'model_type': 'dinov3_vit', 'rope_parameters': {'rope_theta': 9}},
    ):
        (tmp_path / 'config.json').write_text(json.dumps(beside))
        with pytest.raises(CheckpointError, match='config.json'):
            mmmoca.load(path, num_heads=8)
    (tmp_path / 'config.json').write_text('["no"]')
    with pytest.raises(CheckpointError, match='heads'):
        mmmoca.load(path)
    config = transformers.DINOv3ViTConfig(
        **SIZES | dict(num_attention_heads=8)
    )
    vit = files.randomise(transformers.DINOv3ViTModel(config), 0)
    vit.save_pretrained(tmp_path)
    encoder = mmmoca.load(path, device='cpu')
    check(vit, [partial(features, encoder)], (32, 32))
    with pytest.raises(CheckpointError, match='rotary'):
        mmmoca.load(path, device='cpu', num_heads=4)
    cut = path.rename(tmp_path / 'model-00001-of-00002.safetensors')
    for place in (tmp_path, cut):
        with pytest.raises(CheckpointError, match=place.name):
            mmmoca.load(place)
