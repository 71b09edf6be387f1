# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import logging
import math
from collections.abc import Iterable

import numpy as np
from mmcv.transforms import LoadImageFromFile
from mmengine import fileio
from mmengine.dist import get_rank
from mmengine.logging import print_log

from mmmoca.files import check_regular
from mmmoca.messages import printable
from mmmoca.registry import TRANSFORMS

from .decoding import decode
from .headers import Header, Source, read_header

# Names as in MMCV. LoadBands replaces MMCV's 'unchanged' and 'tifffile'.
TURNING = ('color', 'grayscale')  # turned as EXIF says
COLOR_TYPES = (*TURNING, *(f'{kind}_ignore_orientation' for kind in TURNING))
BACKENDS = ('cv2', 'pillow')
# The header of a file that Pillow cannot read. OpenCV may still read the file,
# for example an AVIF if Pillow is old.
_UNKNOWN = Header('', '', (0, 0), channels=0, bits=8)


class DepthError(OSError, ValueError):
    """A loader or data set does not accept an image's bit depth or bands."""


@TRANSFORMS.register_module()
class LoadImage(LoadImageFromFile):
    """Load an image; skip unreadable images, and shrink huge ones.

    In training an unreadable image is skipped: the transform returns None
    and the data set draws another image. Each process logs such a file once,
    with the reason and the number of such files so far, and raises an error
    if there are too many. An evaluation must not skip images, or its score
    would be that of another set. ``skip_unreadable=False`` raises an error
    that names the file, and so does :class:`mmmoca.ImageFolder` in
    ``test_mode``.

    **Required Keys:** ``img_path``.

    **Added Keys:** ``img``, uint8 unless ``to_float32``, (H, W, 3) in BGR
    order for ``'color'``, (H, W) for ``'grayscale'``; ``img_shape`` and
    ``ori_shape``, the (H, W) of ``img`` as decoded; ``oddities``, phrases that
    say what stands out in the file.

    Args:
        color_type (str): ``'color'``, ``'grayscale'``, or one of MMCV's
            ``'*_ignore_orientation'``.
        imdecode_backend (str): ``'cv2'`` or ``'pillow'``.
        to_float32 (bool): Return float32 instead of uint8, with the same
            values.
        reduce_to (int, optional): Decode a JPEG file at 1/2, 1/4 or 1/8 of its
            size as long as its shorter side keeps this many pixels. None
            always decodes the full size. Suppose that views have n pixels a
            side, and that crops cover at least a fraction ``a`` of the image
            and have an aspect ratio from 3/4 to 4/3. Then
            ``reduce_to = n / (0.75 * a)**0.5`` loses nothing, because no crop
            is smaller than its view. With n = 224 and a = 0.2, this is 579,
            which saves work if the shorter side has 1158 pixels or more.
        skip_unreadable (bool): Skip unreadable images with a warning; False
            raises an error instead.
        max_unreadable (float): Largest share of unreadable images that a
            process tolerates; three standard deviations are added to allow
            for chance. The check begins with the 50th image. Defaults to 0.2.
        cut_to_8_bits (bool): Allow files with more than 8 bits per channel,
            and use the upper 8 bits. By default such a file counts as
            unreadable. :class:`LoadBands` keeps the values of these files.
        background (tuple[int, int, int], optional): RGB colour behind
            transparent pixels. Defaults to None: their stored colours are
            used, as in torchvision and timm.
        backend_args (dict, optional): Storage backend, see
            :func:`mmengine.fileio.get`.

    Raises:
        ValueError: At build time, for an unknown colour type or backend, a
            ``reduce_to`` without ``color_type='color'`` and
            ``imdecode_backend='cv2'``, or a number out of its range; later,
            for an image whose size differs from that in its COCO annotation.
        OSError: For an unreadable image if ``skip_unreadable`` is False, or if
            too many images are unreadable. If the bit depth of the image is
            wrong, the error is also a ValueError.
    """

    def __init__(
        self,
        *,
        color_type: str = 'color',
        imdecode_backend: str = 'cv2',
        to_float32: bool = False,
        reduce_to: int | None = None,
        skip_unreadable: bool = True,
        max_unreadable: float = 0.2,
        cut_to_8_bits: bool = False,
        background: tuple[int, int, int] | None = None,
        backend_args: dict | None = None,
    ) -> None:
        for name, value, known in (
            ('color_type', color_type, COLOR_TYPES),
            ('imdecode_backend', imdecode_backend, BACKENDS),
        ):
            if value not in known:
                raise ValueError(
                    f'{name} must be one of {", ".join(known)} but got '
                    f'{value!r}: mmmoca.LoadBands reads images with any '
                    'number of channels and bits'
                )
        if reduce_to is not None and (
            reduce_to < 1 or (color_type, imdecode_backend) != ('color', 'cv2')
        ):
            raise ValueError(
                f'reduce_to={reduce_to} must be a number of pixels, and needs '
                "color_type='color' and imdecode_backend='cv2', the defaults"
            )
        if not 0 <= max_unreadable <= 1:
            raise ValueError(
                f'max_unreadable={max_unreadable} must be between 0 and 1'
            )
        if background is not None and not (
            len(background) == 3 and all(x in range(256) for x in background)
        ):
            raise ValueError(
                f'background={background} must be a colour, such as '
                '(255, 255, 255)'
            )
        super().__init__(
            to_float32=to_float32,
            color_type=color_type,
            imdecode_backend=imdecode_backend,
            backend_args=backend_args,
        )
        self.reduce_to = reduce_to
        self.skip_unreadable = skip_unreadable
        self.max_unreadable = max_unreadable
        self.cut_to_8_bits = cut_to_8_bits
        self.background = background and tuple(background)
        self._named: dict[str, set[str]] = {}
        self._read = self._failed = 0

    def decode(self, source: Source, header: Header) -> np.ndarray | None:
        """Decode an image; return None if the backend cannot."""
        shrink = 1
        if self.reduce_to is not None and header.format in ('JPEG', 'MPO'):
            fits = min(header.size) // self.reduce_to
            shrink = next((n for n in (8, 4, 2) if fits >= n), 1)
        return decode(
            source,
            header,
            self.color_type.removesuffix('_ignore_orientation'),
            self.imdecode_backend,
            turned=self.color_type in TURNING,
            shrink=shrink,
            deep=not self.cut_to_8_bits,
            background=self.background,
        )

    def read(self, path: str) -> np.ndarray:
        """Read and decode one file.

        Args:
            path (str): Path or URL of the file.

        Returns:
            The image, like ``img`` of :class:`LoadImage`.

        Raises:
            OSError: If the file cannot be read or decoded. The message names
                the file and says why.
        """
        return self.load(self._content(path), path)[0]

    def _content(self, path: str) -> bytes:
        try:
            check_regular(path)
            if old := self.file_client_args:  # MMCV's old option
                return fileio.FileClient(**old).get(path)
            return fileio.get(path, backend_args=self.backend_args)
        except Exception as error:  # each backend has errors of its own
            raise _unreadable(path, error) from error

    def load(self, source: Source, name: str) -> tuple[np.ndarray, Header]:
        """Decode and check an image, from a file or in memory.

        Args:
            source (bytes | Image.Image | np.ndarray): The bytes of a file, or
                an image. An array has its channels last, in RGB order.
            name (str): Name of the image in error messages.

        Returns:
            tuple[np.ndarray, Header]: The image, like ``img`` of
            :class:`LoadImage`, and its header. With a ``background``, the
            header's ``transparent`` is False.

        Raises:
            OSError: If it cannot be decoded, or its bit depth is wrong.
            TypeError: For some images in memory, see :meth:`check_header`.
        """
        if isinstance(source, bytes) and not source:
            raise _unreadable(name, 'the file is empty')
        problem: object = f'{self.imdecode_backend} cannot decode it'
        try:
            header = read_header(source)
        except OSError as error:
            if not isinstance(source, bytes):
                raise _unreadable(name, error) from error
            header, problem = _UNKNOWN, error
        self.check_header(source, header, name)
        try:
            img = self.decode(source, header)
        except Exception as error:  # each decoder has errors of its own
            raise _unreadable(name, error) from error
        if img is None:
            cut = 'the file is cut short'
            raise _unreadable(name, problem if header.whole else cut)
        return self.check(img, header, name), self._as_loaded(header)

    def header(self, content: bytes, name: str) -> Header:
        """Read the header of a file, without decoding it.

        Args:
            content (bytes): Content of the file.
            name (str): Name of the image in error messages.

        Returns:
            Header: The header that :meth:`load` returns.

        Raises:
            OSError: If the file is not an image.
        """
        return self._as_loaded(read_header(content))

    def _as_loaded(self, header: Header) -> Header:
        if self.background is None:
            return header
        return header._replace(transparent=False)

    def check_header(self, source: Source, header: Header, name: str) -> None:
        """Raise if an image's header shows that the loader cannot use it.

        Args:
            source (bytes | Image.Image | np.ndarray): See :meth:`load`.
            header (Header): Its header.
            name (str): Name of the image in error messages.

        Raises:
            DepthError: If it has more than 8 bits, or bands that are neither
                colours nor transparency.
            TypeError: If an array is not uint8, or its shape is neither (H, W)
                nor (H, W, C) with 1, 3 or 4 channels; or if a PIL image has
                more than 8 bits.
        """
        if isinstance(source, np.ndarray):
            known = source.ndim == 2 or source.shape[2:] in ((1,), (3,), (4,))
            if source.dtype != np.uint8 or not (known and source.size):
                raise TypeError(
                    f'{name} is {source.dtype} of the shape {source.shape}: '
                    'pass a uint8 array, either (H, W, 3) in RGB order or '
                    '(H, W); or a normalised batch as a tensor, (B, C, H, W)'
                )
        elif not isinstance(source, bytes) and header.bits > 8:
            # PIL would clip the values at 255 when converting them to RGB.
            raise TypeError(
                f'{name} has the PIL mode {header.mode}: convert it to 8 bits'
            )
        if header.extra:
            raise DepthError(
                f'{printable(name)} has {header.channels} bands, more than '
                'colours and transparency: use '
                f'mmmoca.LoadBands(channels={header.channels})'
            )
        if header.bits > 8 and not self.cut_to_8_bits:
            raise _too_deep(name, f'of {header.bits} bits ({header.mode})')

    def check(self, img: np.ndarray, header: Header, name: str) -> np.ndarray:
        """Check a decoded image, and give it its final type.

        Args:
            img (np.ndarray): The image as decoded.
            header (Header): Its header.
            name (str): Name of the image in error messages.

        Returns:
            The image, like ``img`` of :class:`LoadImage`.

        Raises:
            DepthError: If it does not have 8 bits.
        """
        if img.dtype != np.uint8:
            raise _too_deep(name, img.dtype)
        return img.astype(np.float32) if self.to_float32 else img

    def transform(self, results: dict) -> dict | None:
        """Load ``results['img_path']``; return None if it is skipped."""
        path = results['img_path']
        self._read += 1
        try:
            img, header = self.load(self._content(path), path)
        except OSError as error:
            if not self.skip_unreadable:
                raise
            self._skip(path, error)
            return None
        if not header.whole:
            text = f'{printable(path)} is cut short. Its readable part is used'
            self._say_once('cut short', path, text)
        shape = img.shape[:2]
        problem = size_problem(path, shape, results)
        if problem and self.reduce_to is None:
            raise ValueError(problem)
        results['img'] = img
        results['img_shape'] = results['ori_shape'] = shape
        results['oddities'] = header.oddities
        return results

    def _skip(self, path: str, error: OSError) -> None:
        """Log an unreadable file once; raise if there are too many."""
        self._failed += 1
        most, read = self.max_unreadable, self._read
        # Three standard deviations allow for chance: the order is random.
        chance = 3 * math.sqrt(most * (1 - most) * read)
        if read >= 50 and self._failed > most * read + chance:
            share = min(1.0, math.ceil(10 * self._failed / read) / 10 + 0.1)
            raise OSError(
                f'{self._failed} of {read} reads of images have failed: '
                f'{error}. Replace the files, or allow this with '
                f'train_dataloader.dataset.pipeline.{type(self).__name__}.'
                f'max_unreadable={share:.1f}'
            ) from error
        self._say_once('unreadable', path, f'{error}. Skipped')

    def skip_silently(self, paths: Iterable[str]) -> None:
        """Do not log these unreadable images: a report has named them."""
        self._named.setdefault('unreadable', set()).update(paths)

    def _say_once(self, kind: str, path: str, text: str) -> None:
        """Log what is wrong with a file, and how many there are so far."""
        named = self._named.setdefault(kind, set())
        if path not in named:
            named.add(path)
            print_log(
                f'{text}; {len(named)} {kind} so far',
                # MMLogger does not show warnings of ranks other than 0.
                logger='current' if get_rank() == 0 else None,
                level=logging.WARNING,
            )


def size_problem(path: str, size: tuple[int, int], info: dict) -> str | None:
    """Compare the size of an image with that in its COCO annotation.

    Args:
        path (str): The image.
        size (tuple[int, int]): Its height and width when it is loaded.
        info (dict): The entry of the image, which may have ``height`` and
            ``width``, the size that its boxes and masks refer to.

    Returns:
        str | None: What to correct, or None if the sizes are equal.
    """
    stated = info.get('height', size[0]), info.get('width', size[1])
    if stated == size:
        return None
    return (
        f'{printable(path)} has the height and width {size} as this run '
        f'loads it, but {stated} in its annotation entry: correct the entry '
        'and its objects (perhaps EXIF turns the image)'
    )


def _unreadable(name: str, reason: object) -> OSError:
    return OSError(
        f'cannot read the image {printable(name)}: {printable(reason)}'
    )


def _too_deep(name: str, kind: object) -> DepthError:
    return DepthError(
        f'{printable(name)} is {kind}, but LoadImage reads 8 bits: use '
        'mmmoca.LoadBands(channels=...), or, if 8 bits suffice, '
        'mmmoca.LoadImage(cut_to_8_bits=True)'
    )
