# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import io
import logging

import cv2
import mmcv
import numpy as np
from mmcv.transforms import LoadImageFromFile
from mmengine import fileio
from mmengine.dist import get_rank
from mmengine.logging import print_log
from PIL.JpegImagePlugin import JpegImageFile

from mmmoca.messages import printable
from mmmoca.registry import TRANSFORMS

COLOR_TYPES = (
    *('color', 'grayscale', 'unchanged'),
    *('color_ignore_orientation', 'grayscale_ignore_orientation'),
)
BACKENDS = ('cv2', 'pillow', 'tifffile')


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
    order for ``'color'``, (H, W) for ``'grayscale'``, and whatever is in the
    file for ``'unchanged'``; ``img_shape`` and ``ori_shape``, the (H, W) of
    ``img`` as decoded.

    Args:
        color_type: ``'color'``, ``'grayscale'``, ``'unchanged'`` (any number
            of channels), or one of MMCV's ``'*_ignore_orientation'``.
        imdecode_backend: ``'cv2'``, ``'pillow'`` or ``'tifffile'``, which
            takes the file as it is, with more than four channels too.
        to_float32: Give float32 instead of the file's own type, with the
            same values. Needed for 16-bit images.
        reduce_to: Decode a JPEG file at 1/2, 1/4 or 1/8 of its size as long
            as its shorter side keeps this many pixels. None always decodes
            the full size. For views of n pixels cut from at least a part a
            of the area at a ratio of 3/4 or more, ``n / (0.75 * a)**0.5``
            loses nothing: no crop gets smaller than its view. For 224 and
            0.2 that is 579, which spares work from 1158 pixels on.
        skip_unreadable: Skip unreadable images with a warning; False raises
            an error instead.
        max_unreadable: Largest share of unreadable images in a process. It
            is checked from the 50th image on. Defaults to 0.2.
        cut_to_8_bits: Allow 16-bit files although the loader reads 8 bits.
            Only ``'unchanged'`` and tifffile keep 16. By default
            :class:`ImageFolder` refuses a set of 16-bit files.
        backend_args: Storage backend, see :func:`mmengine.fileio.get`.

    Raises:
        ValueError: At build time, for an unknown colour type or backend, a
            ``reduce_to`` without ``color_type='color'`` and
            ``imdecode_backend='cv2'``, or a number out of its range.
        OSError: For an unreadable image if ``skip_unreadable`` is False, or
            there are too many of them.
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
        backend_args: dict | None = None,
    ) -> None:
        for name, value, known in (
            ('color_type', color_type, COLOR_TYPES),
            ('imdecode_backend', imdecode_backend, BACKENDS),
        ):
            if value not in known:
                raise ValueError(
                    f'{name} must be one of {", ".join(known)} '
                    f'but got {value!r}'
                )
        if reduce_to is not None and (
            reduce_to < 1 or (color_type, imdecode_backend) != ('color', 'cv2')
        ):
            raise ValueError(
                f'reduce_to={reduce_to} must be a number of pixels, and '
                "works with color_type='color' and imdecode_backend='cv2' "
                'only: leave it out, or leave these two at their defaults'
            )
        if not 0 <= max_unreadable <= 1:
            raise ValueError(
                'max_unreadable is a share of the images, between 0 and 1, '
                f'but got {max_unreadable}'
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
        self._unreadable: set[str] = set()
        self._read = self._failed = 0

    def _flag(self, content: bytes) -> str | int:
        """Decoding flag for the bytes of a file."""
        if self.reduce_to is None or not content.startswith(b'\xff\xd8'):
            return self.color_type
        # Image.open would refuse more than 179 megapixels.
        with JpegImageFile(io.BytesIO(content)) as header:
            side = min(header.size)
        for divisor in (8, 4, 2):
            if side >= divisor * self.reduce_to:
                return getattr(cv2, f'IMREAD_REDUCED_COLOR_{divisor}')
        return self.color_type

    def decode(self, content: bytes) -> np.ndarray | None:
        """Decode the bytes of a file; None if the backend cannot."""
        if self.imdecode_backend == 'tifffile':
            return read_tiff(content)
        return mmcv.imfrombytes(
            content, flag=self._flag(content), backend=self.imdecode_backend
        )

    def read(self, path: str) -> np.ndarray:
        """Read and decode one file.

        Args:
            path: Path or URL of the file.

        Returns:
            The image, see the class.

        Raises:
            OSError: If the file cannot be read or decoded; it names the
                file and says why.
        """
        try:
            content = fileio.get(path, backend_args=self.backend_args)
            img = self.decode(content)
        except Exception as error:  # each decoder has errors of its own
            raise OSError(
                f'cannot read the image {printable(path)}: {printable(error)}'
            ) from error
        if img is None:
            raise OSError(
                f'cannot read the image {printable(path)}: it is damaged or '
                f'no image that {self.imdecode_backend} knows'
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
                f'{error}. Skipped; {len(self._unreadable)} unreadable so far '
                'in this process.',
                # MMLogger does not show the warnings of other ranks.
                logger='current' if get_rank() == 0 else None,
                level=logging.WARNING,
            )


def read_tiff(content: bytes) -> np.ndarray:
    """Decode a TIFF file as it is.

    Raises:
        ImportError: If tifffile is missing.
    """
    try:
        import tifffile
    except ImportError as error:
        raise ImportError('TIFF needs: pip install tifffile') from error
    return tifffile.imread(io.BytesIO(content))
