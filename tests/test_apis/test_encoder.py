# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The encoder that ``mmmoca.load`` returns gives the protocols' features."""

import io
import logging
import multiprocessing
import os
import shutil
import warnings
from pathlib import Path
from unittest import mock
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import default_collate
from mmengine.registry import DefaultScope
from mmpretrain import ModelHub
from mmpretrain.registry import DATASETS, MODELS
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms

import mmmoca
from mmmoca.apis.comparison import evaluate
from mmmoca.apis.export import export_encoder
from mmmoca.apis.images import usable_cores
from mmmoca.apis.opening import open_images
from mmmoca.checkpoints import CheckpointError
from mmmoca.evaluation import memory
from mmmoca.messages import DataWarning
from mmmoca.models import MOCA, MOCAViT

from ..helpers import checkpoint_files as files
from ..helpers.encoders import write_run
from ..helpers.errors import raises
from ..helpers.stores import write_shards

PACK = dict(type='PackInputs')


@pytest.fixture(scope='module')
def run(root):
    """Return the config and model of the run behind ``root / 'run.pth'``."""
    return write_run(root / 'run.pth')


@pytest.fixture(scope='module')
def encoder(root, run):
    return mmmoca.load(root / 'run.pth', device='cpu')


@pytest.mark.slow
def test_features_are_those_of_k_nn(root, run, encoder):
    cfg, model = run
    source = dict(cfg.test_dataloader.dataset, data_root=str(root))
    dataset = DATASETS.build(dict(source, data_prefix='val'))

    @torch.no_grad()
    def features(encode):
        batches = DataLoader(dataset, 8, collate_fn=default_collate)
        inputs = [model.data_preprocessor(b, False)['inputs'] for b in batches]
        return torch.cat([*map(encode, inputs)])

    found = encoder.embed(root / 'val', 8, num_workers=2)
    expected = features(model.extract_feat)
    torch.testing.assert_close(found.avg, expected)
    cls = features(lambda x: encoder.backbone(x)[-1][:, 0])
    torch.testing.assert_close(found.cls, cls)
    paths = [info['img_path'] for info in dataset.data_list]
    assert found.paths == paths and found.patches is None
    path = os.fsencode(root / 'run.pth')
    student = mmmoca.load(path, 'student', 'cpu')
    avg = features(lambda x: model.extract_feat(x, 'student'))
    torch.testing.assert_close(student.embed(root / 'val', 8).avg, avg)


@pytest.mark.filterwarnings('ignore::mmmoca.messages.DataWarning')
def test_all_kinds_of_images_are_prepared_alike(root, encoder, tmp_path):
    """Files, folders and images in memory give the same features."""
    folder = root / 'val' / 'class_0'
    expected = encoder.embed(folder)
    paths = expected.paths
    pictures = [Image.open(path) for path in paths]
    arrays = np.stack(pictures)
    contents = [Path(path).read_bytes() for path in paths]
    write_shards(folder, tmp_path / 'shards', with_label=False)
    datasets = pytest.importorskip('datasets')
    rows = datasets.Dataset.from_dict(dict(picture=paths))
    rows = rows.cast_column('picture', datasets.Image())
    with raises(ValueError, 'with_transform'):
        encoder.embed(rows.with_transform(lambda batch: batch))
    rows.save_to_disk(tmp_path / 'rows')
    with pytest.raises(ValueError):
        encoder.embed(rows.select([]))
    for images in (
        str(folder),
        tmp_path / 'shards',
        tmp_path / 'rows',
        rows,
        np.array(paths),
        iter(pictures),
        arrays,
        contents,
        [contents[0], pictures[1], arrays[2], *paths[3:]],
    ):
        found = encoder.embed(images, num_workers=0)
        torch.testing.assert_close(found.avg, expected.avg)
    places = np.array([folder, folder])
    assert len(encoder.embed(places, num_workers=0).avg) == 2 * len(paths)
    for image in (paths[3], pictures[3], arrays[3], contents[3]):
        found = encoder.embed(image)
        torch.testing.assert_close(found.cls, expected.cls[3:4])
    grey = pictures[0].convert('L')
    arrays = [np.array(image) for image in (grey, grey.convert('RGBA'))]
    found = encoder.embed([grey, *arrays])
    assert torch.equal(found.cls[:1].expand(3, -1), found.cls)
    # Phones save the orientation separately from the pixels.
    exif = Image.Exif()
    exif[0x0112] = 6
    pictures[0].save(tmp_path / 'turned.png', exif=exif)
    upright = pictures[0].transpose(Image.Transpose.ROTATE_270)
    found = encoder.embed([Image.open(tmp_path / 'turned.png'), upright])
    torch.testing.assert_close(found.cls[0], found.cls[1])


def test_tensors_are_taken_as_normalised(encoder):
    images = torch.randn(5, 3, 48, 64, requires_grad=True)
    found = encoder.embed(images, 2, ('cls', 'patches'))
    assert found.paths is None and not found.cls.requires_grad
    tokens = []
    with encoder.backbone.layers[-1].register_forward_hook(
        lambda _, __, output: tokens.append(output)
    ):
        alone = encoder(images)
    assert alone.patches.shape == (5, 16, 6, 8)
    torch.testing.assert_close(found.patches, alone.patches)
    # The final norm turns raw [CLS] into [CLS].
    torch.testing.assert_close(encoder.backbone.ln1(alone.raw_cls), alone.cls)
    torch.testing.assert_close(alone.raw_avg, tokens[0][:, 1:].mean(dim=1))
    alone.cls.sum().backward()
    assert images.grad.any()


def test_tensors_of_pixels(encoder, recwarn, monkeypatch):
    """Values from 0 to 255 are refused; those from 0 to 1 give a warning.

    They are not refused, since normalised white images are also above 0.
    """
    images = torch.rand(2, 3, 48, 64)
    monkeypatch.setattr(encoder, '_checks_values', True)
    for encode in (encoder.embed, encoder):
        with pytest.raises(ValueError, match='^a tensor'):
            encode(255 * images)
    for number, values in enumerate([images - 0.5, images]):
        encoder.embed(values)
        assert len(recwarn) == number
    warnings.simplefilter('always')
    right = images - 0.5
    for values, number in ((images, 2), (images, 3), (right, 3), (images, 3)):
        encoder(values)
        assert len(recwarn) == number  # no warning after a batch that is right


@pytest.fixture
def half_by_default():
    """Make bfloat16 the default type, which must not affect an encoder."""
    torch.set_default_dtype(torch.bfloat16)
    yield
    torch.set_default_dtype(torch.float32)


@MODELS.register_module()
class OwnViT(MOCAViT):
    """A user's class with the same parameters."""


@MODELS.register_module()
class OwnMOCA(MOCA):
    """A user's class with other features."""

    def embed_image(self, encoded):
        return encoded.patches.amax(1)


@MODELS.register_module()
class OtherLoss(MOCA):
    """A user's class with the same features."""


@pytest.mark.parametrize(
    ('key', 'name', 'warned'),
    [
        ('model.type', 'OwnMOCA', True),
        ('model.backbone.type', 'OwnViT', True),
        ('model.type', 'OtherLoss', False),
    ],
)
def test_features_of_classes_of_ones_own(tmp_path, key, name, warned):
    """A warning says that the features of a user's class are not computed."""
    write_run(tmp_path / 'run.pth', **{key: name})
    with mock.patch('mmmoca.apis.loading.print_log') as log:
        mmmoca.load(tmp_path / 'run.pth')
    levels = [c.kwargs.get('level') for c in log.call_args_list]
    assert (logging.WARNING in levels) == warned
    assert (name in f'{log.call_args_list}') == warned


def test_without_a_record_images_are_those_of_torchvision(
    root, tmp_path, half_by_default
):
    """Images are prepared as for ImageNet; test_libraries tests layouts."""
    contents, vit, _ = files.checkpoint('dino')
    torch.save(contents, tmp_path / 'a.pth')
    encoder = mmmoca.load(tmp_path / 'a.pth', num_heads=files.HEADS)
    assert encoder.feature == 'cls'
    numbers = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    steps = (
        transforms.Resize(round(files.SIZE * 8 / 7), 3),
        transforms.CenterCrop(files.SIZE),
        transforms.PILToTensor(),
        transforms.ConvertImageDtype(torch.float32),
        transforms.Normalize(*numbers),
    )
    prepare = transforms.Compose(steps)
    found = encoder.embed(root / 'val' / 'class_0')
    images = torch.stack([prepare(Image.open(path)) for path in found.paths])
    expected = files.tokens(vit.float(), images)[:, 0]
    # Pillow rounds to whole numbers, so values may be half a unit apart.
    torch.testing.assert_close(found.cls, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings('ignore::mmmoca.messages.DataWarning')
def test_a_recorded_background_shows_where_images_are_clear(tmp_path):
    """Files, their bytes and images in memory get the same background."""
    colour = (250, 10, 90)
    load = dict(type='mmmoca.LoadImage', background=colour)
    resize = dict(type='Resize', scale=48)
    key = 'val_dataloader.dataset.pipeline'
    write_run(tmp_path / 'run.pth', **{key: [load, resize, PACK]})
    encoder = mmmoca.load(tmp_path / 'run.pth', device='cpu')
    assert encoder.pipeline[0]['background'] == colour
    pixels = np.random.default_rng(0).integers(0, 256, (48, 48, 4), np.uint8)
    clear, canvas = (
        Image.fromarray(pixels),
        Image.new('RGBA', (48, 48), colour),
    )
    canvas.alpha_composite(clear)
    clear.save(tmp_path / 'clear.png')
    expected = encoder.embed(canvas.convert('RGB')).cls
    content = (tmp_path / 'clear.png').read_bytes()
    opened = Image.open(tmp_path / 'clear.png')
    for image in (tmp_path / 'clear.png', content, opened, clear):
        found = encoder.embed(image, num_workers=0).cls
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(
        encoder.embed(clear.convert('RGB')).cls, expected
    )


def test_given_mean_and_std(tmp_path):
    torch.save(files.checkpoint('timm')[0], tmp_path / 'a.pth')
    half = [127.5] * 3
    encoder = mmmoca.load(tmp_path / 'a.pth', num_heads=3, mean=half, std=half)
    white = np.full((40, 40, 3), 255, np.uint8)
    expected = encoder.embed(torch.ones(1, 3, 32, 32))
    assert torch.equal(encoder.embed(white).cls, expected.cls)


@pytest.mark.slow
def test_models_by_name(root, run, tmp_path, monkeypatch):
    name = 'moca_vit-b16_200e_v1.0'
    monkeypatch.setenv('TORCH_HOME', str(tmp_path))
    offline = mock.Mock(side_effect=URLError('no network'))
    monkeypatch.setattr('torch.hub.urlopen', offline)
    with raises(CheckpointError, 'v1p0.pth', str(tmp_path)):
        mmmoca.load(name)
    assert not list(tmp_path.rglob('*.pth'))
    with raises(CheckpointError, 'moca_vit-b16_100e'):  # not published
        mmmoca.load('moca_vit-b16_100e')
    local = (root / 'run.pth').as_uri()
    there = mock.Mock(side_effect=lambda _: urlopen(local))
    monkeypatch.setattr('torch.hub.urlopen', there)
    found = mock.Mock(weights='https://hub.org/one/run.pth')
    monkeypatch.setattr(ModelHub, 'get', lambda _: found)
    for _ in range(2):
        path = mmmoca.load(name, device='cpu').metainfo['checkpoint']
        assert path.startswith(f'{tmp_path}/hub/checkpoints/')
        monkeypatch.setattr('torch.hub.urlopen', offline)  # the file exists
    # A file of the same name at another address is a different file.
    found.weights = 'https://hub.org/other/run.pth?download=true'
    with raises(CheckpointError, 'hub.org_other/run.pth'):
        mmmoca.load(name)
    # A local file is read in place, since it may have changed.
    found.weights = local
    path = mmmoca.load(name, device='cpu').metainfo['checkpoint']
    assert path == str(root / 'run.pth')


def test_other_sizes(root, run):
    larger = mmmoca.load(root / 'run.pth', device='cpu', img_size=(48, 96))
    # The whole image is used, as in exports of this size.
    image = np.zeros((64, 64, 3), np.uint8)
    image[:, 32:] = 255
    pixels = open_images([image], larger.pipeline)[0]
    assert pixels.shape == (3, 48, 96)
    assert not pixels[..., :47].any() and (pixels[..., 49:] == 255).all()
    found = larger.embed(image, features='patches')
    assert found.patches.shape == (1, 16, 6, 12)
    assert 'images of 48 x 96 pixels' in repr(larger)
    shapes = repr(larger(torch.zeros(2, 3, 48, 96)))
    assert f'avg=(2, {larger.backbone.embed_dims})' in shapes
    same = mmmoca.load(root / 'run.pth', img_size=np.array([48.0, 96.0]))
    assert same.pipeline == larger.pipeline


@pytest.mark.parametrize(
    'loaders, channels, dtype',
    [
        # mmpretrain's CIFAR10 is an example: it is RGB and is not resized.
        ([], 3, np.uint8),
        ([dict(type='mmmoca.LoadBands', channels=4)], 4, np.uint16),
    ],
    ids=['a set in memory', 'bands'],
)
def test_channels_in_the_order_of_the_training(
    tmp_path, loaders, channels, dtype
):
    _, model = write_run(
        tmp_path / 'run.pth',
        **{
            'model.backbone.in_channels': channels,
            'model.data_preprocessor.mean': [100.0] * channels,
            'model.data_preprocessor.std': [50.0, 60.0, 70.0, 80.0][:channels],
            'model.data_preprocessor.to_rgb': False,
            'val_dataloader.dataset.pipeline': [*loaders, PACK],
        },
    )
    shape = 2, 48, 48, channels
    images = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
    inputs = torch.tensor(images.astype(np.float32)).permute(0, 3, 1, 2)
    inputs = model.data_preprocessor(dict(inputs=inputs))['inputs']
    expected = model.extract_feat(inputs)
    encoder = mmmoca.load(tmp_path / 'run.pth', device='cpu')
    torch.testing.assert_close(encoder.embed(images).avg, expected)
    if loaders:
        np.save(tmp_path / 'a.npy', images[0])
        found = encoder.embed(tmp_path / 'a.npy').avg
        torch.testing.assert_close(found, expected[:1])
        with raises(ValueError, 'image 0', 'channels=4'):
            encoder.embed(images[..., :3])


SIZE = torch.zeros(1, 3, 48, 48)


@pytest.mark.parametrize(
    'images, options, error, key',
    [
        ('nowhere', {}, FileNotFoundError, 'nowhere'),
        ([], {}, ValueError, ''),
        (3, {}, TypeError, 'int'),
        ({'a.png', 'b.png'}, {}, TypeError, 'set'),
        (io.BytesIO(b'png'), {}, TypeError, 'BytesIO'),
        ('16.png', {}, ValueError, '16.png'),
        ('empty.png', {}, OSError, 'empty.png'),
        ('a.tar.gz', {}, ValueError, 'a.tar.gz'),
        (np.zeros((9, 9, 3)), {}, TypeError, 'image 0'),
        (Image.new('I;16', (9, 9)), {}, TypeError, 'image 0'),
        (np.zeros((9, 9, 7), np.uint8), {}, TypeError, '(9, 9, 7)'),
        (np.zeros(99, np.uint8), {}, TypeError, '(99,)'),  # from a file
        (torch.zeros(1, 3, 9, 48), {}, ValueError, ''),
        (torch.zeros(1, 2, 48, 48), {}, ValueError, '3 channels'),
        (SIZE.int(), {}, TypeError, ''),
        (SIZE * np.nan, {}, ValueError, ''),
        (SIZE, dict(batch_size=0), ValueError, 'batch_size'),
        (SIZE, dict(features='mean'), ValueError, 'cls, avg, patches'),
        (SIZE, dict(features=()), ValueError, 'cls, avg, patches'),
    ],
)
def test_refused_images(
    encoder, tmp_path, monkeypatch, images, options, error, key
):
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.ones((9, 9), np.uint16)).save('16.png')
    for name in ('a.tar.gz', 'empty.png'):
        Path(name).touch()
    with raises(error, key):
        encoder.embed(images, **options)


def test_what_stands_out_is_counted(root, encoder, tmp_path):
    picture = Image.fromarray(np.full((48, 48, 4), 99, np.uint8))
    picture.save(tmp_path / 'clear.png')
    picture = picture.convert('RGB')
    picture.save(
        tmp_path / 'pages.tif', save_all=True, append_images=[picture]
    )
    picture.save(tmp_path / 'plain.png')
    noise = np.random.default_rng(0).integers(0, 255, (99, 99, 3), np.uint8)
    Image.fromarray(noise).save(file := io.BytesIO(), 'JPEG')
    half = file.getvalue()[: file.tell() // 2]
    (tmp_path / 'cut.jpg').write_bytes(half.ljust(file.tell(), b'\0'))
    for workers in (0, 1):
        with pytest.warns(DataWarning, match=r'\b3\b.*\b4\b(.*\b1\b){3}'):
            encoder.embed(tmp_path, 2, num_workers=workers)


def test_closed_images_and_daemons(encoder, tmp_path):
    picture = Image.new('RGB', (48, 48))
    picture.save(tmp_path / 'a.png')
    with Image.open(tmp_path / 'a.png') as closed:
        pass
    with raises(OSError, 'image 1'):
        encoder.embed([picture, closed], num_workers=0)
    process = multiprocessing.current_process()
    with mock.patch.dict(process._config, daemon=True):
        found = encoder.embed([picture] * 3, 1, num_workers=2)
    assert len(found.avg) == 3


@pytest.mark.parametrize(
    'channels, options, key',
    [
        (3, dict(num_heads=None), '--num-heads'),
        (4, {}, '--mean'),
        (3, dict(mean=[1, 2, 3], std=[1, 0, 1]), '--std'),
        (3, dict(mean=127.5, std=64), '--std'),
        (3, dict(config=Config()), 'data_preprocessor'),
        (3, dict(img_size=50), '8 x 8'),
        (3, dict(img_size=(48,)), '8 x 8'),
        (3, dict(img_size=(48, 96, 3)), '8 x 8'),
    ],
)
def test_refused_files(tmp_path, channels, options, key):
    content = files.checkpoint('timm')[0]
    name = 'patch_embed.proj.weight'
    content[name] = content[name][:, :1].repeat(1, channels, 1, 1)
    torch.save(content, tmp_path / 'a.pth')
    with raises(CheckpointError, 'a.pth', key):
        mmmoca.load(tmp_path / 'a.pth', **dict(num_heads=3) | options)


def test_calls_share_no_state(encoder):
    """A call may begin while another one runs, for example in a thread."""
    one, other = torch.randn(2, 1, 3, 48, 48)
    expected, between = encoder(one).raw_avg, []

    def call(*_):
        if not between:
            between.append(None)
            between.append(encoder(other).raw_avg)

    with encoder.backbone.ln1.register_forward_pre_hook(call):
        assert torch.equal(encoder(one).raw_avg, expected)
    assert torch.equal(between[1], encoder(other).raw_avg)


@pytest.mark.parametrize('scope', ['mmengine', 'mmseg', 'nowhere'])
def test_no_scope_of_others_matters(root, encoder, tmp_path, scope):
    expected = encoder.embed(root / 'val', num_workers=0).avg
    with DefaultScope.overwrite_default_scope(scope):
        again = mmmoca.load(root / 'run.pth', device='cpu')
        found = again.embed(root / 'val', num_workers=0).avg
        assert torch.equal(found, expected)
        options = dict(protocols=['knn'], num_workers=0)
        assert evaluate(again, root, tmp_path, **options)['knn']
        export_encoder(again, tmp_path / 'out', 'safetensors')


def test_unreadable_images_are_skipped_if_asked(root, encoder, tmp_path):
    shutil.copytree(root / 'val' / 'class_0', tmp_path, dirs_exist_ok=True)
    (tmp_path / '1.jpg').write_text('none')
    os.mkfifo(tmp_path / '9.jpg')
    pipe = tmp_path / '9.jpg'
    with raises(OSError, '1.jpg', 'skip_unreadable'):
        encoder.embed(tmp_path)
    with raises(OSError, '9.jpg'):
        encoder.embed(pipe)
    images = [tmp_path, pipe, b'none']
    found = encoder.embed(images, 2, skip_unreadable=True)
    bad = found.avg.isnan().all(dim=1)
    assert bad.tolist() == [False, True] + [False] * 3 + [True] * 2
    expected = encoder.embed(root / 'val' / 'class_0').avg[[0, 2, 3, 4]]
    torch.testing.assert_close(found.avg[~bad], expected)
    none = encoder.embed(images[1:], skip_unreadable=True)
    assert none.cls.shape == (2, found.cls.shape[1])
    assert none.cls.isnan().all()


@pytest.mark.parametrize(
    'limits, cores',
    [(['max', 'max'], 6), (['250000', 'max'], 3), (['max', '150000'], 2)],
)
def test_workers_are_as_many_as_usable_cores(
    tmp_path, monkeypatch, limits, cores
):
    """The limits of the process's own cgroup and of its parents count."""
    monkeypatch.setattr(os, 'sched_getaffinity', lambda _: range(6))
    monkeypatch.setattr(memory, 'GROUPS', tmp_path)
    monkeypatch.setattr(memory, 'OWN', tmp_path / 'own')
    memory.OWN.write_text('0::/job/step\n')
    for group, limit in zip(('job/step', 'job'), limits):
        (tmp_path / group).mkdir(parents=True, exist_ok=True)
        (tmp_path / group / 'cpu.max').write_text(f'{limit} 100000\n')
    assert usable_cores() == cores
