# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Real files give the right pixels and findings however they are read."""

import io
import struct
from contextlib import suppress

import cv2
import numpy as np
import pytest
import tifffile
from PIL import Image

from mmmoca.apis.images import Images
from mmmoca.datasets import LoadBands, LoadImage
from mmmoca.datasets.functional import grayscale
from mmmoca.datasets.headers import read_header
from mmmoca.engine.runners import ConsoleRunner

from ..helpers.photos import photo
from ..helpers.stores import write_arrow, write_shards

RGB = photo(0, 32, 48)[..., ::-1].copy()
GREY = RGB[..., 1].copy()
CLEAR = np.where(np.arange(32)[:, None] < 16, 0, 255 + np.zeros(48, int))
CLEAR = CLEAR.astype(np.uint8)
LA = Image.merge('LA', [Image.fromarray(GREY), Image.fromarray(CLEAR)])
RGBA = np.dstack([RGB, CLEAR])
SIX = b'II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0'
XMP = b'http://ns.adobe.com/xap/1.0/\0<x:xmpmeta></x:xmpmeta>'
ONES = (np.indices((32, 48)).sum(axis=0) % 3 > 0).astype(np.uint8)
INDICES = (RGB[..., 0] // 86).astype(np.uint8)
PALETTE = np.array([[9, 200, 30], [250, 0, 120], [0, 0, 255]], np.uint8)
FINEST = dict(
    WEBP=dict(lossless=True, exact=True),
    JPEG=dict(quality=100, subsampling=0),
    AVIF=dict(quality=100, subsampling='4:4:4'),
)


def saved(image, kind, **options):
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image)
    image.save(file := io.BytesIO(), kind, **FINEST.get(kind, {}), **options)
    return file.getvalue()


def tiff(*pages, **options):
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        for page in pages:
            writer.write(page, **options)
    return file.getvalue()


def of_palette(kind, **options):
    image = Image.fromarray(INDICES).convert('P')
    image.putpalette(PALETTE.flatten().tolist())
    return saved(image, kind, **options)


def behind_xmp():
    content = saved(RGB, 'JPEG', exif=b'Exif\0\0' + SIX)
    place = content.index(b'\xff\xe1')
    size = (len(XMP) + 2).to_bytes(2, 'big')
    return content[:place] + b'\xff\xe1' + size + XMP + content[place:]


def late_exif():
    """Write a PNG with EXIF after its pixels."""
    content = saved(RGB, 'PNG', exif=SIX)
    begin = content.index(b'eXIf') - 4
    chunk = content[begin : begin + 12 + len(SIX)]
    return content.replace(chunk, b'')[:-12] + chunk + content[-12:]


def portable(kind, values, white):
    """Write a PGM or PPM whose white is a number other than 255."""
    height, width = values.shape[:2]
    return b'%b\n%d %d\n%d\n' % (kind, width, height, white) + values.tobytes()


def high_colour():
    """Write a BMP with 5, 6 and 5 bits for the colours."""
    rows = np.where(ONES[::-1], 0xFFFF, 0).astype('<u2').tobytes()
    size = struct.pack('<IiiHHII', 40, 48, 32, 1, 16, 3, len(rows))
    masks = struct.pack('<III', 0xF800, 0x7E0, 0x1F)
    start = 14 + 40 + 12
    file = struct.pack('<2sIHHI', b'BM', start + len(rows), 0, 0, start)
    return file + size + bytes(16) + masks + rows


def turned(kind, turn):
    if kind == 'TIFF':
        return tiff(RGB, extratags=[(274, 'H', 1, turn, True)])
    exif = Image.Exif()
    exif[0x112] = turn
    return saved(RGB, kind, exif=exif)


flip = RGB[:, ::-1]
ways = [None, RGB, flip, np.rot90(RGB, 2), RGB[::-1], np.rot90(flip)]
ways += [np.rot90(RGB, -1), np.rot90(flip, -1), np.rot90(RGB)]
JUNK = b'Exif\0\0junkjunkjunk'
TWICE = b'Exif\0\0Exif\0\0' + SIX
UNREAD, TURN = 'with EXIF that cannot be read', 'turned by EXIF'
CLEARLY, PAGES = 'with transparency', 'of several pages or frames'
FILES = {
    **{kind: (saved(RGB, kind), RGB)
       for kind in ('JPEG', 'PNG', 'WEBP', 'AVIF', 'BMP', 'TIFF', 'JPEG2000')},
    'CMYK': (saved(Image.fromarray(RGB).convert('CMYK'), 'JPEG'), RGB),
    'grey': (saved(GREY, 'PNG'), np.dstack([GREY] * 3)),
    'xmp before exif': (behind_xmp(), ways[6], TURN),
    'late exif': (late_exif(), ways[6], TURN),
    **{f'{kind} {turn}': (turned(kind, turn), ways[turn], TURN)
       for kind in ('JPEG', 'PNG', 'WEBP', 'AVIF', 'TIFF')
       for turn in range(2, 9)},
    **{f'junk {k}': (saved(RGB, k, exif=JUNK), RGB, UNREAD)
       for k in ('JPEG', 'PNG', 'WEBP')},
    'twice': (saved(RGB, 'JPEG', exif=TWICE), RGB, UNREAD),
    'once more': (saved(RGB, 'WEBP', exif=TWICE), ways[6], TURN),
    **{f'clear {k}': (saved(RGBA, k), RGB, CLEARLY)
       for k in ('PNG', 'TIFF', 'WEBP')},
    'clear, multiplied': (
        tiff(np.where(CLEAR[..., None], RGBA, 0).astype(np.uint8),
             photometric='rgb', extrasamples=['assocalpha']),
        np.where(CLEAR[..., None], RGB, 0),
        CLEARLY,
    ),
    'grey and clear': (
        saved(LA, 'PNG'),
        np.dstack([GREY] * 3),
        CLEARLY,
    ),
    'one colour clear': (
        saved(RGB, 'PNG', transparency=tuple(RGB[0, 0].tolist())), RGB, CLEARLY
    ),
    'PGM of 85': (
        portable(b'P5', GREY // 3, 85), np.dstack([GREY // 3 * 3] * 3)
    ),
    'PPM of 85': (portable(b'P6', RGB // 3, 85), RGB // 3 * 3),
    'BMP of 16 bits': (high_colour(), np.dstack([ONES * 255] * 3)),
    'small tiles': (tiff(RGB, photometric='rgb', tile=(16, 16)), RGB),
    'palette': (of_palette('PNG'), PALETTE[INDICES]),
    'palette, clear': (
        of_palette('PNG', transparency=1), PALETTE[INDICES], CLEARLY
    ),
    'palette GIF': (of_palette('GIF'), PALETTE[INDICES]),
    'palette TIFF': (of_palette('TIFF'), PALETTE[INDICES]),
    'pages': (tiff(RGB, 255 - RGB, photometric='rgb'), RGB, PAGES),
    'frames': (
        saved(RGB, 'WEBP', save_all=True,
              append_images=[Image.fromarray(255 - RGB)]), RGB, PAGES,
    ),
    'white is 0': (
        tiff(255 - GREY, photometric='miniswhite'), np.dstack([GREY] * 3)
    ),
    'white is 0, 1 bit': (
        tiff(ONES == 0, photometric='miniswhite'), np.dstack([ONES * 255] * 3)
    ),
}  # fmt: skip


LOSSY = 'JPEG', 'junk JPEG', 'twice', 'AVIF', 'xmp'
NAMES = [
    name
    for name in FILES
    if 'AVIF' not in name or cv2.haveImageWriter('a.avif')
]


def assert_is(name, pixels, grey=False):
    """Check that a BGR or grey image shows a file of :data:`FILES`."""
    expected = FILES[name][1][..., ::-1]
    tolerance = 6 if name == 'CMYK' else 4 * name.startswith(LOSSY)
    if grey:
        expected, tolerance = grayscale(expected)[..., 0], tolerance + 1
    np.testing.assert_allclose(pixels, expected, atol=tolerance)


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('backend', ['cv2', 'pillow'])
def test_pixels_by_each_door(tmp_path, name, backend):
    """A path, bytes and an opened image give the right colours and grey."""
    content, _, *oddities = FILES[name]
    (tmp_path / 'a').write_bytes(content)
    opened = Image.open(tmp_path / 'a')
    sources = [str(tmp_path / 'a'), content, opened]
    load = dict(type='mmmoca.LoadImage', imdecode_backend=backend)
    images = Images(sources, [load])
    for index in range(3):
        assert_is(name, images[index].numpy().transpose(1, 2, 0))
    assert list(read_header(content).oddities) == oddities
    grey = LoadImage(color_type='grayscale', imdecode_backend=backend)
    assert_is(name, grey.read(sources[0]), grey=True)
    floats = LoadImage(to_float32=True, imdecode_backend=backend)
    img = floats.read(sources[0])
    assert img.dtype == np.float32
    assert_is(name, img)


@pytest.mark.parametrize('backend', ['cv2', 'pillow'])
@pytest.mark.parametrize('kind', ['JPEG', 'PNG', 'WEBP', 'TIFF'])
def test_pixels_that_are_not_turned(kind, backend):
    load = LoadImage(
        color_type='color_ignore_orientation', imdecode_backend=backend
    )
    for turn in range(1, 9):
        assert_is(kind, load.load(turned(kind, turn), 'a')[0])


@pytest.fixture(scope='module')
def stores(tmp_path_factory):
    """Write all files, and some of other depths, to a store of each kind."""
    root = tmp_path_factory.mktemp('stores')
    (root / 'folder/a').mkdir(parents=True)
    for index, name in enumerate(NAMES + [*DEEP]):
        content = FILES[name][0] if name in FILES else DEEP[name]
        (root / f'folder/a/{index:03}.png').write_bytes(content)
    write_shards(root / 'folder', root / 'shards', with_label=False)
    write_arrow(root / 'folder', root / 'arrow')
    return root


DEEP = {
    f'{mode} {kind}': tiff(np.full(shape, 4000, kind))
    for mode, shape in dict(L=(9, 12), RGB=(9, 12, 3), RGBA=(9, 12, 4)).items()
    for kind in ('u2', 'f4')
}
DEEP['PNG of 16 bits'] = cv2.imencode('.png', np.full((9, 12), 200, 'u2'))[
    1
].tobytes()
STORES = {
    'mmmoca.ImageFolder': dict(data_root='folder'),
    'mmmoca.ImageShards': dict(data_root='shards'),
    'mmmoca.HFImages': dict(data_root='arrow'),
    # Data sets of other packages, built as in a run, with MMCV's loader.
    'mmpretrain.CustomDataset': dict(data_prefix='folder'),
    'mmseg.BaseSegDataset': dict(data_prefix=dict(img_path='folder')),
}


@pytest.mark.parametrize('kind', STORES)
def test_pixels_from_each_store(stores, monkeypatch, kind):
    """A file of another depth counts as unreadable and is replaced."""
    monkeypatch.chdir(stores)
    load = dict(type='mmcv.LoadImageFromFile')
    if kind.startswith('mmmoca'):
        load = dict(type='mmmoca.LoadImage', max_unreadable=1)
    dataset = dict(STORES[kind], type=kind, pipeline=[load], _scope_='mmcv')
    if 'seg' in kind:
        pytest.importorskip('mmseg.datasets')
        dataset |= dict(img_suffix='.png')
    else:
        dataset |= dict(with_label=False)
    loader = dict(dataset=dataset, batch_size=1, num_workers=0)
    loader['sampler'] = dict(type='DefaultSampler', shuffle=False)
    images = ConsoleRunner.build_dataloader(loader).dataset
    assert len(images) == len(NAMES) + len(DEEP)
    for index, name in enumerate(NAMES):
        assert_is(name, images[index]['img'])
    for index in range(len(NAMES), len(images)):
        with suppress(ValueError):  # the error names it
            assert images.prepare_data(index) is None


@pytest.mark.parametrize('name', DEEP)
@pytest.mark.parametrize('backend', ['cv2', 'pillow'])
def test_files_of_other_bits(name, backend):
    """Other depths are refused; 16 bits are cut to 8 only if asked for."""
    for color in ('color', 'grayscale'):
        options = dict(color_type=color, imdecode_backend=backend)
        with pytest.raises(OSError, match=name):
            LoadImage(**options).load(DEEP[name], name)
        if name.startswith(('L u2', 'RGB u2')) and backend == 'cv2':
            cut = LoadImage(**options, cut_to_8_bits=True)
            img = cut.load(DEEP[name], name)[0]
            assert abs(img.astype(int) - 4000 / 256).max() <= 1


def bands(content, channels=1, **options):
    return LoadBands(channels, **options).load(content, 'a')[0]


@pytest.mark.parametrize('dtype', ['?', 'u1', 'u2', 'i2', 'u4', 'f4'])
def test_white_that_is_zero(dtype):
    """A picture is the same whether 0 is black or white."""
    grey = (GREY > 120) if dtype == '?' else GREY.astype(dtype)
    other = ~grey if grey.dtype.kind in 'biu' else -grey
    expected = bands(tiff(grey, photometric='minisblack'))
    found = bands(tiff(other, photometric='miniswhite'))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    'dtype, value, text',
    [
        ('f4', -9999, '-9999'),
        ('f4', np.nan, 'nan'),
        ('f4', np.finfo('f4').min, '-3.4028234663852886e+38'),
        ('f8', 1e300, '1e300'),
        ('i2', -32768, '-32768.0'),
        ('u4', 2**32 - 1, '4294967295'),
        ('u1', None, '-9999'),  # not a value of this type
        ('u1', None, 'none'),
        ('u1', 0, '0 \0'),
    ],
)
def test_tag_of_what_was_not_measured(dtype, value, text):
    measured = (GREY | 1).astype(dtype)
    stored = measured.copy()
    if value is not None:
        stored[:9] = value
    content = tiff(stored, extratags=[(42113, 's', 0, text, True)])
    found = bands(content, fill=7)[..., 0]
    assert (found[:9] == (measured[:9] if value is None else 7)).all()
    np.testing.assert_array_equal(found[9:], measured[9:])
    if dtype == 'u1':  # a value in the config takes precedence
        found = bands(content, nodata=999)[..., 0]
        np.testing.assert_array_equal(found, stored)


def test_bands_as_they_are_stored():
    ones = Image.fromarray(ONES * 255).convert('1')
    for source in (
        ones,
        saved(ones, 'PNG'),
        saved(ones, 'TIFF'),
        tiff(ONES > 0, photometric='minisblack'),
    ):
        np.testing.assert_array_equal(bands(source)[..., 0], ONES * 255)
    grey = saved(LA, 'PNG')
    for source in (grey, Image.open(io.BytesIO(grey))):
        np.testing.assert_array_equal(
            bands(source, 2), np.dstack([GREY, CLEAR])
        )
    for kind in ('PNG', 'GIF', 'TIFF'):
        content = of_palette(kind)
        for source in (content, Image.open(io.BytesIO(content))):
            np.testing.assert_array_equal(bands(source, 3), PALETTE[INDICES])
            np.testing.assert_array_equal(bands(source)[..., 0], INDICES)
    clear = of_palette('PNG', transparency=1)
    expected = np.dstack([PALETTE[INDICES], 255 * (INDICES != 1)])
    np.testing.assert_array_equal(bands(clear, 4), expected)


@pytest.mark.parametrize('background', [(255, 255, 255), (9, 99, 200)])
def test_transparency_on_a_colour(background):
    load = LoadImage(background=background)
    half = np.dstack([RGB, np.full_like(CLEAR, 128)])
    shown = np.where(CLEAR[..., None], RGB, background)
    opaque = Image.fromarray(RGB)
    opaque.info['transparency'] = tuple(RGB[0, 0].tolist())
    for name in ('clear PNG', 'clear TIFF', 'clear WEBP', 'clear, multiplied'):
        content = FILES[name][0]
        for source in (content, Image.open(io.BytesIO(content)), RGBA):
            img = load.load(source, 'a')[0][..., ::-1]
            np.testing.assert_allclose(img, shown, atol=1)
    img = load.load(half, 'a')[0][..., ::-1]
    np.testing.assert_allclose(img, (RGB + np.array(background)) / 2, atol=2)
    content = FILES['palette, clear'][0]
    expected = np.where(INDICES[..., None] == 1, background, PALETTE[INDICES])
    np.testing.assert_array_equal(
        load.load(content, 'a')[0][..., ::-1], expected
    )
    content = FILES['one colour clear'][0]
    img = load.load(content, 'a')[0][..., ::-1]
    assert (img[0, 0] == background).all()
    assert (img == RGB).all(axis=-1).mean() > 0.9
    plain = saved(RGB, 'PNG')
    np.testing.assert_array_equal(load.load(plain, 'a')[0][..., ::-1], RGB)


def test_what_is_neither_colour_nor_transparency():
    rgbn = tiff(RGBA, photometric='rgb', extrasamples=['unspecified'])
    grey2 = tiff(
        RGBA[..., :2].copy(), photometric='minisblack', planarconfig='contig'
    )
    for content, channels in ((rgbn, 4), (grey2, 2)):
        with pytest.raises(ValueError, match='LoadBands'):
            LoadImage().load(content, 'a')
        assert bands(content, channels).shape[2] == channels


@pytest.mark.parametrize(
    'kind, options',
    [('JPEG', {}), ('JPEG', dict(progressive=True)), ('PNG', {}), ('GIF', {}),
     ('WEBP', {}), ('TIFF', {}), ('BMP', {}), ('JPEG2000', {})],
)  # fmt: skip
def test_files_that_do_not_end(kind, options):
    content = saved(RGB, kind, **options)
    assert read_header(content).whole
    assert read_header(content + bytes(99)).whole  # as on a full disk
    for cut in (content[: len(content) // 2], content[:-9]):
        with suppress(OSError):
            assert not read_header(cut).whole
    if kind not in ('TIFF', 'BMP'):
        half = content[: len(content) // 2]
        zeros = half + bytes(len(content) - len(half))
        assert not read_header(zeros).whole


def test_a_stack_that_is_cut_short():
    content = tiff(RGB, 255 - RGB, photometric='rgb')
    cut = content[: -RGB.size // 2]
    assert not read_header(cut).whole
    np.testing.assert_array_equal(
        LoadImage().load(cut, 'a')[0][..., ::-1], RGB
    )


def test_a_tag_that_is_lost():
    """A tag may point outside its block after a thumbnail was removed."""
    exif = bytearray(SIX)
    exif[8] = 2
    lost = b'\x0f\x01\x02\0\x63\0\0\0\xff\xff\0\0'
    content = saved(
        RGB, 'JPEG', exif=b'Exif\0\0' + exif[:10] + lost + exif[10:]
    )
    assert read_header(content).orientation == 6
    assert not read_header(content).odd_exif


def test_cameras_add_to_what_is_whole():
    small = saved(photo(1, 8, 8), 'JPEG')
    within = b'Exif\0\0' + SIX + small  # has its own end
    whole = saved(RGB, 'JPEG', exif=within)
    assert read_header(whole).whole and read_header(whole + b'video').whole
    assert not read_header(whole[:-99]).whole


@pytest.mark.parametrize(
    'content',
    [
        b'',
        b'II*\0',
        b'GIF89a',
        b'\xff\xd8\xff',
        b'II*\0\xff\0\0\0',
        b'MM\0+\0\x08',
        b'\x93NUMPY',
        b'RIFF\0\0\0\0WEBP',
        b'\x89PNG\r\n\x1a\n' + bytes(99),
        b'BM' + bytes(99),
        b'text' * 99,
    ],
)
def test_what_is_no_image(content):
    with pytest.raises(OSError):
        read_header(content)


PAM = b'P7\nWIDTH 48\nHEIGHT 32\nDEPTH 3\nMAXVAL 255\nTUPLTYPE RGB\nENDHDR\n'
LAB = saved(Image.fromarray(RGB).convert('LAB'), 'TIFF')


@pytest.mark.parametrize('content', [LAB, PAM + RGB.tobytes()])
def test_colours_that_would_be_wrong(content):
    with pytest.raises(OSError):
        LoadImage().load(content, 'a')


def test_pages_that_are_no_images_of_their_own():
    """GDAL writes overviews, and a TIFF's directories may form a circle."""
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        writer.write(RGB)
        writer.write(RGB[::2, ::2], subfiletype=1)
    assert read_header(file.getvalue()).frames == 1
    content = bytearray(tiff(RGB))
    place = int.from_bytes(content[4:8], 'little')
    count = int.from_bytes(content[place : place + 2], 'little')
    end = place + 2 + 12 * count
    content[end : end + 4] = place.to_bytes(4, 'little')
    assert read_header(bytes(content)).frames == 1
