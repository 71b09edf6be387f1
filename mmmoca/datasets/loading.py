# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import logging
import math
from collections.abc import Sequence

import cv2
import mmcv
import numpy as np
from mmcv.image.io import _pillow2array
from mmcv.transforms import LoadImageFromFile
from mmengine import fileio
from mmengine.dist import get_rank
from mmengine.logging import print_log
from PIL import Image

from mmmoca.files import check_regular
from mmmoca.messages import printable
from mmmoca.registry import TRANSFORMS

from .decoding import TURN, open_image, upright

# MMCV's. LoadBands is in the place of 'unchanged' and 'tifffile'.
COLOR_TYPES = (
    'color',
    'grayscale',
    'color_ignore_orientation',
    'grayscale_ignore_orientation',
)
BACKENDS = ('cv2', 'pillow')
OPENCV_PIXELS = 2**30  # OpenCV's own limit


class DepthError(OSError, ValueError):
    """An image of other bits than its loader, or its set, is for."""


@TRANSFORMS.register_module()
class LoadImage(LoadImageFromFile):
    """Load an image; skip one that cannot be read; shrink a huge one.

    In training an unreadable image is skipped: the transform returns None
    and the data set draws another image. Each process logs such a file once,
    with the reason and the number of such files so far, and raises an error
    if there are too many. In evaluation nothing may be skipped, or the score
    would belong to another set of images: ``skip_unreadable=False`` raises an
    error that names the file, and so does :class:`mmmoca.ImageFolder` in
    ``test_mode``.

    **Required Keys:** ``img_path``.

    **Added Keys:** ``img``, uint8 unless ``to_float32``, (H, W, 3) in BGR
    order for ``'color'``, (H, W) for ``'grayscale'``; ``img_shape`` and
    ``ori_shape``, the (H, W) of ``img`` as decoded.

    Args:
        color_type (str): ``'color'``, ``'grayscale'``, or one of MMCV's
            ``'*_ignore_orientation'``.
        imdecode_backend (str): ``'cv2'`` or ``'pillow'``.
        to_float32 (bool): Give float32 instead of uint8, with the same values.
        reduce_to (int, optional): Decode a JPEG file at 1/2, 1/4 or 1/8 of its
            size as long as its shorter side keeps this many pixels. None
            always decodes the full size. For views of n pixels cut from at
            least a part a of the area at a ratio of 3/4 or more, ``n / (0.75 *
            a)**0.5`` loses nothing: no crop gets smaller than its view. For
            224 and 0.2 that is 579, which spares work from 1158 pixels on.
        skip_unreadable (bool): Skip unreadable images with a warning; False
            raises an error instead.
        max_unreadable (float): Largest share of unreadable images in a
            process. It is checked from the 50th image on. Defaults to 0.2.
        cut_to_8_bits (bool): Allow files of more than 8 bits a channel, of
            which the upper 8 are taken. By default such a file counts as
            unreadable. :class:`LoadBands` keeps their values.
        max_pixels (int): Most pixels of an image, judged before it is decoded.
            Of more than four channels, a quarter of its values. OpenCV takes
            no more than the default, 2**30.
        backend_args (dict, optional): Storage backend, see
            :func:`mmengine.fileio.get`.

    Raises:
        ValueError: At build time, for an unknown colour type or backend, a
            ``reduce_to`` without ``color_type='color'`` and
            ``imdecode_backend='cv2'``, or a number out of its range.
        OSError: For an unreadable image if ``skip_unreadable`` is False, or
            there are too many of them; for an image of other bits it is a
            ValueError, too.
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
        max_pixels: int = OPENCV_PIXELS,
        backend_args: dict | None = None,
    ) -> None:
        for name, value, known in (
            ('color_type', color_type, COLOR_TYPES),
            ('imdecode_backend', imdecode_backend, BACKENDS),
        ):
            if value not in known:
                raise ValueError(
                    f'{name} must be one of {", ".join(known)} but got '
                    f'{value!r}: mmmoca.LoadBands reads other images'
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
        self.max_pixels = max_pixels
        self._unreadable: set[str] = set()
        self._read = self._failed = 0

    def check_size(self, shape: Sequence[int]) -> None:
        """Refuse an image of too many pixels.

        Args:
            shape (Sequence[int]): Its (H, W), or with channels at either end,
                or pages.

        Raises:
            ValueError: If there are more than ``max_pixels``.
        """
        values = math.prod(shape)
        pixels = values // max(1, min(shape)) if len(shape) == 3 else values
        if max(pixels, values // 4) > self.max_pixels:
            raise ValueError(
                f'its shape is {tuple(shape)}, which is more than '
                f'max_pixels={self.max_pixels} of {type(self).__name__}'
            )

    def _reduction(self, content: bytes) -> int:
        """By what number the size of a JPEG file may be divided."""
        if self.reduce_to is None or not content.startswith(b'\xff\xd8'):
            return 1
        side = min(open_image(content).size)
        fits = (n for n in (8, 4, 2) if side >= n * self.reduce_to)
        return next(fits, 1)

    def _of_pillow(self, image: Image.Image) -> np.ndarray:
        deep = image.mode[0] in 'IF' or ';16' in str(image.tile)
        if deep and not self.cut_to_8_bits:
            return np.asarray(image, np.uint16)  # refused later
        # It has no public function for an image that is open.
        return _pillow2array(image, self.color_type)

    def decode(self, content: bytes) -> np.ndarray | None:
        """Decode the bytes of a file; None if the backend cannot."""
        pillow = self.imdecode_backend == 'pillow'
        # OpenCV reads the orientation of neither WebP nor AVIF.
        turn = content[8:16] == b'WEBPVP8X' or content[4:8] == b'ftyp'
        turn &= not pillow and self.color_type in ('color', 'grayscale')
        if pillow or turn:
            header = open_image(content)
            self.check_size(header.size)
        if pillow:
            return self._of_pillow(header)
        flag = mmcv.image.io.imread_flags[self.color_type]
        if not self.cut_to_8_bits:
            flag |= cv2.IMREAD_ANYDEPTH  # the same for files of 8 bits
        if turn:
            flag |= cv2.IMREAD_IGNORE_ORIENTATION
        if (divisor := self._reduction(content)) > 1:
            flag |= getattr(cv2, f'IMREAD_REDUCED_COLOR_{divisor}')
        img = self.of_opencv(content, flag)
        if turn and img is not None:
            img = upright(img, header.getexif().get(TURN, 1))
        return img

    def of_opencv(self, content: bytes, flag: int) -> np.ndarray | None:
        """Decode by OpenCV, an image of its and our number of pixels.

        Args:
            content (bytes): The bytes of a file.
            flag (int): OpenCV's.

        Returns:
            The image, None if OpenCV cannot decode it.

        Raises:
            ValueError: If it has more than ``max_pixels``.
            cv2.error: If it has more than OpenCV's own limit, or 2**20 on a
                side. It names the limit.
        """
        if self.max_pixels < OPENCV_PIXELS:
            self.check_size(open_image(content).size)
        return cv2.imdecode(np.frombuffer(content, np.uint8), flag)

    def read(self, path: str) -> np.ndarray:
        """Read and decode one file.

        Args:
            path (str): Path or URL of the file.

        Returns:
            The image, see the class.

        Raises:
            OSError: If the file cannot be read or decoded; it names the
                file and says why.
        """
        try:
            check_regular(path)
            if old := self.file_client_args:  # of MMCV's loader
                content = fileio.FileClient(**old).get(path)
            else:
                content = fileio.get(path, backend_args=self.backend_args)
        except Exception as error:  # each backend has errors of its own
            raise _unreadable(path, error) from error
        return self.read_bytes(content, path)

    def read_bytes(self, content: bytes, name: str) -> np.ndarray:
        """Decode and check the bytes of one file.

        Args:
            content (bytes): The bytes.
            name (str): What to call it in errors.

        Returns:
            The image, see the class.

        Raises:
            OSError: If they cannot be decoded, or have other bits.
        """
        try:
            img = self.decode(content)
        except Exception as error:  # each decoder has errors of its own
            raise _unreadable(name, error) from error
        if img is None:
            reason = f'damaged or no image that {self.imdecode_backend} knows'
            raise _unreadable(name, f'it is {reason}')
        return self.check(img, name)

    def check(self, img: np.ndarray, name: str) -> np.ndarray:
        """Check an image that is decoded, and bring it into its form.

        Args:
            img (np.ndarray): The image as decoded.
            name (str): What to call it in errors.

        Returns:
            The image, see the class.

        Raises:
            DepthError: If it has other than 8 bits.
        """
        if img.dtype != np.uint8:
            raise DepthError(
                f'{printable(name)} is {img.dtype}, but LoadImage reads 8 '
                'bits: write mmmoca.LoadBands(channels=...), or if 8 suffice, '
                'mmmoca.LoadImage(cut_to_8_bits=True)'
            )
        return img.astype(np.float32) if self.to_float32 else img

    def transform(self, results: dict) -> dict | None:
        """Load ``results['img_path']``; None for an unreadable file."""
        path = results['img_path']
        self._read += 1
        try:
            img = self.read(path)
        except OSError as error:
            if not self.skip_unreadable:
                raise
            self._skip(path, error)
            return None
        results['img'] = img
        results['img_shape'] = results['ori_shape'] = img.shape[:2]
        return results

    def _skip(self, path: str, error: OSError) -> None:
        """Log a file once; raise if there are too many of them."""
        self._failed += 1
        share = self._failed / self._read
        if self._read >= 50 and share > self.max_unreadable:
            raise OSError(
                f'{self._failed} of the {self._read} images so far could not '
                f'be read. {error}. Replace the files, or allow it by '
                f'max_unreadable={share:.2f} of LoadImage'
            ) from error
        if path not in self._unreadable:
            self._unreadable.add(path)
            print_log(
                f'{error}. Skipped; {len(self._unreadable)} unreadable so far',
                # MMLogger does not show the warnings of other ranks.
                logger='current' if get_rank() == 0 else None,
                level=logging.WARNING,
            )


def _unreadable(name: str, reason: object) -> OSError:
    return OSError(
        f'cannot read the image {printable(name)}: {printable(reason)}'
    )
