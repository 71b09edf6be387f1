# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Exports are loaded by the libraries that they are for."""

import json
import os
import re
import resource
import sys
from unittest import mock

import numpy as np
import pytest
import timm
import torch
import yaml
from mmpretrain.registry import MODELS
from PIL import Image
from transformers import (
    AutoBackbone,
    AutoImageProcessor,
    Dinov2Model,
    ViTConfig,
    ViTModel,
    pipeline,
)

import mmmoca
from mmmoca.apis.export import FORMATS, export_encoder
from mmmoca.apis.export.timm import mlp_ratio
from mmmoca.apis.opening import open_images
from mmmoca.checkpoints import (
    CheckpointError,
    build_vit,
    preprocessing_of,
    read_backbone,
    run_record,
)

from ..helpers.checkpoint_files import (
    PATCH,
    SIZE,
    checkpoint,
    mm_vit,
    randomise,
    token_vit,
    tokens,
    with_prefix,
)
from ..helpers.tools import run_tool

# Exports to these formats take seconds.
GRAPHS = 'onnx', 'torch-export'
EVERY_FORMAT = [
    pytest.param(name, marks=[pytest.mark.slow] * (name in GRAPHS))
    for name in sorted(FORMATS)
]
TRAINED, OTHER = (32, 48), (48, 80)


def pictures(size, channels=3, batch=3):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(batch, channels, *size, generator=generator)


@pytest.fixture
def export(tmp_path, monkeypatch):
    """Return a function that runs the tool and returns its output folder."""
    monkeypatch.chdir(tmp_path)

    def run(content, to, *options, code=0):
        source, folder = tmp_path / 'in.pth', tmp_path / to
        if content is not None:
            torch.save(content, source)
        output = run_tool(
            'tools/export.py', source, folder, '--to', to, *options, code=code
        )
        return output if code else folder

    return run


def split(encoded):
    """Split all tokens into [CLS], [AVG] and patches."""
    patches = encoded[:, 1:]
    return encoded[:, 0], patches.mean(dim=1), patches


def run_card(folder, images):
    """Run the code of a folder's card; return the names that it defines."""
    *_, code = card_code(folder)
    # Graphs take NumPy arrays, the only input of ONNX Runtime.
    graph = 'session.run' in code or 'from_numpy' in code
    names = dict(images=images.numpy() if graph else images)
    with torch.no_grad():
        exec(code, names)
    return names


def card_code(folder):
    """Return the code blocks of a card; the last one encodes images.

    If there is another block, it prepares a photo.
    """
    name = re.escape(folder.name)
    code = re.findall(r'```python\n(.*?)```', card_of(folder)[1], re.S)
    return [re.sub(rf"(?<=['\:]){name}\b", str(folder), c) for c in code]


def assert_same_features(names, encoded):
    """Check the features that a card's code computes against all tokens."""
    if 'tokens' in names:
        actual = split(names['tokens'])
    elif 'found' in names:
        found = names['found']
        actual = found.cls, found.avg, found.patches.flatten(2).mT
    else:
        actual = [names[kind] for kind in ('cls', 'avg', 'patches')]
    for a, e in zip(actual, split(encoded), strict=True):
        a = torch.as_tensor(a).cpu()
        torch.testing.assert_close(a, e, atol=1e-4, rtol=1e-4)


def assert_features_of_a_photo(folder, encoder):
    """Check that a card's code computes the encoder's [CLS] of a photo."""
    photo = folder.parent / 'photo.png'
    pixels = np.random.default_rng(0).integers(0, 255, (9, 12, 3), np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn, as a phone may save it
    image = Image.fromarray(pixels).resize((120, 90))
    image.putalpha(image.convert('L'))
    image.save(photo, exif=exif)
    code = card_code(folder)
    names = {}
    with torch.no_grad():
        # This package embeds the photo itself.
        for part in code[:1] if folder.name == 'safetensors' else code:
            exec(part.replace('photo.jpg', str(photo)), names)
    if 'found' in names:
        actual = names['found'].cls
    else:
        actual = (
            split(names['tokens'])[0] if 'tokens' in names else names['cls']
        )
    actual, expected = torch.as_tensor(actual), encoder.embed(photo).cls
    torch.testing.assert_close(actual, expected, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize('to', EVERY_FORMAT)
def test_features_in_other_libraries(export, tmp_path, to):
    """Features are those of the trained ViT, which resizes its positions."""
    resize = dict(type='Resize', scale=TRAINED[::-1], backend='pillow')
    resize['interpolation'] = 'bicubic'
    steps = [dict(type='mmmoca.LoadImage', background=(9, 99, 200)), resize]
    content, teacher = run_content(
        TRAINED,
        model=dict(data_preprocessor=NUMBERS | dict(to_rgb=True)),
        test_dataloader=dict(dataset=dict(pipeline=steps)),
    )
    size = (48, 48) if to == 'dinov2' else OTHER
    folder = export(content, to, '--img-size', *size)
    for batch in (1, 3):
        images = pictures(size, batch=batch)
        names = run_card(folder, images)
        assert_same_features(names, tokens(teacher, images))
    encoder = mmmoca.load(tmp_path / 'in.pth', img_size=size, device='cpu')
    assert_features_of_a_photo(folder, encoder)
    if to == 'timm':
        with torch.no_grad():
            pooled = names['model'](images)
        torch.testing.assert_close(pooled, split(names['tokens'])[1])
        place = f'local-dir:{folder}'
        other = timm.create_model(place, True, num_classes=5, in_chans=1)
        assert other(images[:, :1]).shape == (3, 5)
        weights = names['model'].patch_embed.proj.weight.sum(1, keepdim=True)
        torch.testing.assert_close(other.patch_embed.proj.weight, weights)
        last = [m.blocks[-1].mlp.fc2.weight for m in (other, names['model'])]
        assert torch.equal(*last)
    elif to == 'transformers':
        assert type(names['model']) is ViTModel
    elif to == 'dinov2':  # for segmentors, which need a map of patches
        assert type(names['model']) is Dinov2Model
        assert type(names['model'].config.mlp_ratio) is int  # for version 5
        found = AutoBackbone.from_pretrained(folder)(images).feature_maps[-1]
        _, _, patches = split(names['tokens'])
        torch.testing.assert_close(found.flatten(2).mT, patches)
    elif to == 'onnx':
        outputs = names['session'].get_outputs()
        assert [o.name for o in outputs] == ['cls', 'avg', 'patches']
        assert {o.shape[0] for o in outputs} == {'batch'}


# One graph format per kind, since ONNX's graph comes from torch.export's.
KINDS = {
    'RegisterViT': FORMATS.keys() - {'onnx'},
    # No class of dinov2 has both registers and rotary positions.
    'DINOv3ViT': FORMATS.keys() - {'dinov2', 'torch-export'},
}


@pytest.mark.parametrize(
    'kind, to',
    [
        pytest.param(kind, to, marks=[pytest.mark.slow] * (to in GRAPHS))
        for kind, formats in KINDS.items()
        for to in sorted(formats)
    ],
)
def test_registers_and_rotary_positions(export, tmp_path, kind, to):
    """test_libraries checks which files these ViTs are read from."""
    pytest.importorskip('transformers', '4.56')  # a version that knows DINOv3
    squares = to in ('transformers', 'dinov2') and kind == 'RegisterViT'
    size = (64, 64) if squares else (40, 72)
    options = '--num-heads', 2, '--img-size', *size
    folder = export(token_vit(kind).state_dict(), to, *options)
    source = tmp_path / 'in.pth'
    encoder = mmmoca.load(source, img_size=size, num_heads=2, device='cpu')
    images = pictures(size)
    names = run_card(folder, images)
    if 'tokens' in names:
        assert '1 + 4 + L' in card_of(folder)[1]
        cls, _, patches = names['tokens'].tensor_split((1, 5), dim=1)
        names['tokens'] = torch.cat((cls, patches), dim=1)
    with torch.no_grad():
        found = encoder(images)
    patches = found.patches.flatten(2).mT
    assert_same_features(names, torch.cat((found.cls[:, None], patches), 1))
    if to == 'timm':
        line = source, tmp_path / 'x.pth', '--to', 'timm'
        convert = 'tools/model_converters/convert.py'
        assert 'tools/export.py' in run_tool(convert, *line, code=2)
    if (folder / 'model.safetensors').exists():
        again = mmmoca.load(folder / 'model.safetensors', device='cpu')
        assert again.pipeline == encoder.pipeline
        with torch.no_grad():
            torch.testing.assert_close(again(images).cls, found.cls)


def rotary(registers=4, patch=PATCH, heads=4):
    """Return the checkpoint of a run whose rotary ViT has no key biases."""
    pytest.importorskip('transformers', '4.56')  # a version that knows DINOv3
    arch = dict(embed_dims=128, num_layers=2, feedforward_channels=256)
    kind = MODELS.get('mmmoca.MOCAViT')
    vit = kind(
        arch=arch | dict(num_heads=heads),
        img_size=64,
        patch_size=patch,
        out_type='raw',
        num_registers=registers,
        positions='rope',
    )
    randomise(vit, seed=0)
    for layer in vit.layers:
        layer.attn.qkv.bias.data[128:256] = 0
    record = dict(num_heads=heads, grid=tuple(vit.patch_resolution))
    state = with_prefix('backbone.', vit.state_dict())
    return dict(state_dict=state, meta=dict(mmmoca=record))


@pytest.mark.parametrize(
    'to, registers, heads, biases',
    [
        ('timm', 4, 4, False),
        ('timm', 0, 1, False),
        ('transformers', 4, 4, True),
        ('transformers', 0, 1, False),
    ],
)
@pytest.mark.slow
def test_rotary_heads_of_any_width_are_read_again(
    export, tmp_path, to, registers, heads, biases
):
    """Biases of keys are kept where a library has a place for them."""
    content = rotary(registers, heads=heads)
    if biases:
        of_key_biases(content)
    folder = export(content, to)
    images = pictures((64, 64))
    encoders = [
        mmmoca.load(path, device='cpu')
        for path in (tmp_path / 'in.pth', folder / 'model.safetensors')
    ]
    with torch.no_grad():
        expected, again = (encoder(images).cls for encoder in encoders)
    torch.testing.assert_close(again, expected, atol=1e-4, rtol=1e-4)


def of_other_periods(content):
    content['state_dict']['backbone.rotary_periods'] *= 1.1


def of_key_biases(content):
    for name, value in content['state_dict'].items():
        if name.endswith('qkv.bias'):
            value[128:256] = 1


def of_nan(content):
    content['state_dict']['backbone.ln1.bias'][0] = torch.nan


def test_libraries_round_the_width_of_an_mlp_down():
    for hidden in range(24, 200):
        arch = dict(feedforward_channels=hidden)
        ratio = mlp_ratio(mock.Mock(embed_dims=24, arch_settings=arch))
        assert int(24 * ratio) == hidden


@pytest.mark.parametrize(
    'change, patch, to',
    [
        (of_other_periods, 8, 'timm'),
        (of_other_periods, 8, 'transformers'),
        (of_key_biases, 8, 'timm'),
        (of_nan, 8, 'transformers'),
        (None, (8, 16), 'transformers'),
        (None, 8, 'dinov2'),
    ],
)
def test_what_a_library_does_not_compute(tmp_path, change, patch, to):
    """If a library would compute other features, nothing is written."""
    content = rotary(patch=patch)
    if change is not None:
        change(content)
    torch.save(content, tmp_path / 'in.pth')
    encoder = mmmoca.load(tmp_path / 'in.pth', device='cpu')
    with pytest.raises(CheckpointError):
        export_encoder(encoder, tmp_path / 'out', to)
    assert os.listdir(tmp_path) == ['in.pth']


def test_periods_in_bfloat16_are_those_of_the_libraries(tmp_path):
    """DINOv3's authors save the periods in bfloat16."""
    content = rotary()
    periods = content['state_dict']['backbone.rotary_periods']
    periods.copy_(periods.bfloat16())
    torch.save(content, tmp_path / 'in.pth')
    encoder = mmmoca.load(tmp_path / 'in.pth', device='cpu')
    state = torch.random.get_rng_state()
    for to in ('timm', 'transformers'):
        export_encoder(encoder, tmp_path / to, to)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    'to', ['timm', pytest.param('torch-export', marks=pytest.mark.slow)]
)
def test_a_full_disk_is_an_error(export, tmp_path, to):
    """PyTorch's own writer would end the process."""
    torch.save(run_content()[0], tmp_path / 'in.pth')
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, old[1]))
    try:
        export(None, to, code=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert os.listdir(tmp_path) == ['in.pth']


def run_content(img_size=SIZE, channels=3, **config):
    """Return a checkpoint of a run with this config, and its teacher."""
    content, teacher, _ = checkpoint('mmmoca', img_size)
    if channels != 3:
        teacher = mm_vit(img_size, seed=1, in_channels=channels)
        for name, value in teacher.state_dict().items():
            content['state_dict'][f'teacher.{name}'] = value
    model = config.pop('model', {})
    record = run_record(dict(model=model) | config, teacher)
    content['meta']['mmmoca'] = record
    return content, teacher


NUMBERS = dict(mean=[100.0, 120.0, 140.0], std=[50.0, 60.0, 70.0])


def test_images_are_prepared_as_in_the_evaluation(
    root, export, tmp_path, monkeypatch
):
    """Libraries and cards prepare images as the evaluation does."""
    resize = dict(type='ResizeEdge', scale=40, edge='short', backend='pillow')
    steps = [
        dict(type='LoadImageFromFile'),
        dict(resize, interpolation='bicubic'),
        dict(type='CenterCrop', crop_size=SIZE),
        dict(type='PackInputs'),
    ]
    content, _ = run_content(
        model=dict(data_preprocessor=NUMBERS | dict(to_rgb=True)),
        test_dataloader=dict(dataset=dict(pipeline=steps)),
    )
    file = root / 'val/class_0/0.jpg'
    image = Image.open(file)
    folder = export(content, 'transformers')
    encoder = mmmoca.load(tmp_path / 'in.pth', device='cpu')
    inputs = open_images([image], encoder.pipeline)[0][None]
    expected = encoder.data_preprocessor(dict(inputs=inputs))['inputs']
    processor = AutoImageProcessor.from_pretrained(folder, use_fast=False)
    actual = processor(image, return_tensors='pt').pixel_values
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    # The pooler has no weights of its own and returns [CLS].
    _, loaded = ViTModel.from_pretrained(folder, output_loading_info=True)
    assert not any(loaded.values())
    if ViTConfig().to_dict().get('pooler_act'):  # only from 4.50 on
        options = dict(model=str(folder), device='cpu', use_fast=False)
        extract = pipeline('image-feature-extraction', **options)
        found = extract(image, pool=True, return_tensors=True)
        cls = encoder(expected).cls
        torch.testing.assert_close(found, cls, atol=1e-4, rtol=1e-4)

    folder = export(None, 'timm')
    model = timm.create_model(f'local-dir:{folder}')
    settings = timm.data.resolve_model_data_config(model)
    actual = timm.data.create_transform(**settings)(image)[None]
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)

    only_card = 'pytorch', [], lambda *_: None
    monkeypatch.setitem(FORMATS, 'torch-export', only_card)
    code, names = card_code(export(None, 'torch-export'))[0], {}
    exec(code.replace('photo.jpg', str(file)), names)
    actual = torch.from_numpy(names['images'])
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def preprocessing_in(folder):
    return json.loads((folder / 'preprocessing.json').read_text())


@pytest.mark.parametrize('to', ['timm', 'safetensors'])
def test_models_of_bgr_images(export, to):
    """Exports for other libraries expect RGB images; our own keeps BGR."""
    content, teacher = run_content(model=dict(data_preprocessor=NUMBERS))
    folder = export(content, to)
    images = pictures((SIZE, SIZE))
    kept = to == 'safetensors'
    names = run_card(folder, images if kept else images.flip(1))
    assert_same_features(names, tokens(teacher, images))
    written = preprocessing_in(folder)
    assert written['channel_order'] == ('bgr' if kept else 'rgb')
    assert written['mean'] == NUMBERS['mean'][:: 1 if kept else -1]


def test_many_bands(export):
    numbers = dict(mean=[1000.0] * 13, std=[300.0] * 13)
    content, teacher = run_content(
        channels=13,
        model=dict(data_preprocessor=numbers),
        test_pipeline=[dict(type='mmmoca.LoadBands', channels=13)],
    )
    folder = export(content, 'transformers')
    images = pictures((SIZE, SIZE), channels=13)
    assert_same_features(run_card(folder, images), tokens(teacher, images))
    # transformers has no image processor for them.
    assert not (folder / 'preprocessor_config.json').exists()
    assert '13 channels (bands)' in card_of(folder)[1]
    loader = preprocessing_in(folder)['pipeline'][0]
    assert loader == dict(type='mmmoca.LoadBands', channels=13)


@pytest.mark.parametrize('to', ['timm', 'transformers', 'safetensors'])
def test_exports_are_checkpoints(export, to):
    """An export records all that the original file recorded."""
    content, teacher = run_content(
        TRAINED, model=dict(data_preprocessor=NUMBERS | dict(to_rgb=True))
    )
    content['meta']['mmmoca']['feature'] = 'cls'
    folder = export(content, to)
    read = read_backbone(folder / 'model.safetensors')
    images = pictures(TRAINED)
    assert torch.equal(
        tokens(build_vit(read), images), tokens(teacher, images)
    )
    assert read[1:3] == ('mmmoca', 'teacher') and read.feature == 'cls'
    if to == 'timm':  # whose model returns [CLS]
        pooled = run_card(folder, images)['model'](images)
        torch.testing.assert_close(pooled, tokens(teacher, images)[:, 0])
    known = preprocessing_of(read)
    assert (list(known.mean), list(known.std)) == tuple(NUMBERS.values())
    assert (known.img_size, known.resize) == (TRAINED, None)
    assert (known.channel_order, known.source) == ('rgb', 'config')


def card_of(folder):
    """Return the front matter and the text of a card."""
    _, front, text = (folder / 'README.md').read_text().split('---\n', 2)
    return yaml.safe_load(front), text


def test_cards(export):
    """Cards state what the checkpoint says, and name no folders."""
    content = run_content(data_root='/home/me', work_dir='/home/me/work')[0]
    front, text = card_of(export(content, 'safetensors'))
    assert front['library_name'] == 'mmmoca'
    assert 'license' not in front and 'not stated' in text
    assert '/home' not in text and 'Gidaris' in text
    options = '--num-heads', 3, '--license', 'CC-BY-4.0'
    front, text = card_of(export(checkpoint('mae')[0], 'timm', *options))
    assert front['license'] == 'cc-by-4.0' and 'Gidaris' not in text
    assert 'ImageNet' in text  # whose mean and std are assumed


@pytest.mark.slow
def test_nothing_is_overwritten_or_half_written(export, tmp_path, monkeypatch):
    content = run_content()[0]
    (tmp_path / 'timm').mkdir()
    assert 'timm' in export(content, 'timm', code=2)
    fail = mock.Mock(side_effect=RuntimeError('disk'))
    monkeypatch.setattr('torch.onnx.export', fail)
    assert 'disk' in export(content, 'onnx', code=2)
    monkeypatch.setitem(sys.modules, 'onnxscript', None)
    assert 'onnxscript' in export(content, 'onnx', code=2)
    assert sorted(os.listdir(tmp_path)) == ['in.pth', 'timm']
