# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import io
import math

import cv2
import numpy as np

from mmmoca.messages import printable
from mmmoca.registry import TRANSFORMS
from mmmoca.requirements import import_extra

from .loading import DepthError, LoadImage

NPY = b'\x93NUMPY'
TIFF = (b'II*\0', b'MM\0*', b'II+\0', b'MM\0+')  # the last two: BigTIFF


@TRANSFORMS.register_module()
class LoadBands(LoadImage):
    """Load an image of any channels and depth: TIFF, PNG, NPY and others.

    The first bytes of a file tell its format: TIFF is read by tifffile,
    ``.npy`` by NumPy, all else by OpenCV. Integers of 8, 16 and 32 bits,
    signed or not, and floats become float32 with the same values (rounded
    from 2**24 on). Channels keep the order of the file: a colour PNG is RGB,
    so that ``to_rgb`` of the data preprocessor stays False.

    As in :class:`LoadImage`, a damaged file is skipped in training, or named
    in an error, and so is one of other bits than the first image of its set.
    One with other channels is always an error.

    **Required Keys:** ``img_path``.

    **Added Keys:** ``img``, float32, (H, W, C); ``img_shape`` and
    ``ori_shape``, its (H, W).

    Args:
        channels (int): Channels of every image, C: ``in_channels`` of the
            backbone.
        channel_axis (str, optional): ``'last'`` for files of shape (H, W, C),
            ``'first'`` for (C, H, W). Defaults to None, the one of both axes
            that has C entries.
        nodata (float | str, optional): Value that stands for a pixel without a
            measurement, such as -9999 or ``'nan'``; NaN then counts as such,
            too. Defaults to None, all pixels have one.
        fill (float | str, optional): Value for those pixels. Defaults to None:
            the mean of the channel's measured pixels in this image, or 0 if it
            has none.
        **kwargs: ``skip_unreadable``, ``max_unreadable`` and
            ``backend_args`` of :class:`LoadImage`.

    Raises:
        ValueError: At build time, for an unknown ``channel_axis`` or
            ``channels`` below 1; later, for an image of other channels, or
            whose channel axis is not clear. It names the file.
        OSError: As :class:`LoadImage`, for values that are not finite, too.
    """

    def __init__(
        self,
        channels: int,
        channel_axis: str | None = None,
        nodata: float | str | None = None,
        fill: float | str | None = None,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        if channels < 1:
            raise ValueError(f'channels must be 1 or more but got {channels}')
        if channel_axis not in (None, 'first', 'last'):
            raise ValueError(
                f"channel_axis={channel_axis!r} must be 'first', 'last', None"
            )
        self.channels = channels
        self.channel_axis = channel_axis
        self.nodata = None if nodata is None else np.float32(nodata)
        self.fill = None if fill is None else np.float32(fill)
        # Bits and file of the first image. Copies share it, so that a look
        # at the set before its workers start decides for all of them.
        self._first: dict[str, tuple[int, str]] = {}

    def decode(self, content: bytes) -> np.ndarray | None:
        """Decode the bytes of a file; its shape is that of the file."""
        if content.startswith(NPY):
            return self._decode_npy(content)
        if content.startswith(TIFF):
            return self._decode_tiff(content)
        img = self.of_opencv(content, cv2.IMREAD_UNCHANGED)
        if img is not None and img.ndim == 3:  # BGR or BGRA
            img = img[..., [2, 1, 0, 3][: img.shape[2]]]
        return img

    def _decode_npy(self, content: bytes) -> np.ndarray:
        stream = io.BytesIO(content)
        old = np.lib.format.read_magic(stream) == (1, 0)
        read = np.lib.format.read_array_header_1_0
        read = read if old else np.lib.format.read_array_header_2_0
        shape, columns, dtype = read(stream)
        self.check_size(shape)
        # np.load would make room for whatever the header says.
        values = np.frombuffer(content, dtype, math.prod(shape), stream.tell())
        return values.reshape(shape, order='F' if columns else 'C')

    def _decode_tiff(self, content: bytes) -> np.ndarray:
        tifffile = import_extra('tifffile', 'TIFF')
        with tifffile.TiffFile(io.BytesIO(content)) as file:
            self.check_size(file.series[0].shape)
            self.check_size(file.series[0].keyframe.chunks)
            return file.asarray()

    def check(self, img: np.ndarray, name: str) -> np.ndarray:
        """Check an image that is decoded, and bring it into its form.

        Args:
            img (np.ndarray): Image of any shape and depth.
            name (str): What to call it in errors.

        Returns:
            The image, float32, (H, W, C).

        Raises:
            OSError: If it has values that are no real or finite numbers.
            DepthError: If it has other bits than the first image.
            ValueError: If its channels are others, or not clear.
        """
        self._check_depth(img.dtype, name)
        img = self._channels_last(img, name)
        with np.errstate(over='ignore'):  # to infinity, seen below
            img = np.array(img, np.float32, order='C')
        valid = np.isfinite(img)
        if self.nodata is not None:
            missing = np.isnan(img) | (img == self.nodata)
            self._fill(img, missing)
            valid |= missing
        if not valid.all():
            raise OSError(
                f'cannot use the image {printable(name)}: it has values that '
                "are not finite; for NaN write nodata='nan' in LoadBands"
            )
        return img

    def _check_depth(self, dtype: np.dtype, name: str) -> None:
        if dtype.kind not in 'buif':
            raise OSError(
                f'cannot use the image {printable(name)}: its values are '
                f'{dtype}, no real numbers'
            )
        bits = 1 if dtype.kind == 'b' else min(8 * dtype.itemsize, 16)
        expected, first = self._first.setdefault('image', (bits, name))
        if bits != expected:
            raise DepthError(
                f'{printable(name)} is {dtype}, and {printable(first)} of '
                'other bits, whose numbers mean other things: convert one '
                'kind, or take it out'
            )

    def _channels_last(self, img: np.ndarray, path: str) -> np.ndarray:
        if img.ndim == 2 and self.channels == 1:
            return img[..., None]
        sizes = img.shape if img.ndim == 3 else (0, 0, 0)
        axis = self.channel_axis
        first = sizes[0] == self.channels and axis in (None, 'first')
        last = sizes[2] == self.channels and axis in (None, 'last')
        if first == last:
            raise ValueError(
                f'{printable(path)} has the shape {img.shape}, in which '
                f'{"both axes fit" if first else "no axis fits"} channels='
                f'{self.channels} and channel_axis={self.channel_axis!r} of '
                "LoadBands: write channel_axis='first' or 'last' if both fit, "
                'else correct channels, model.backbone.in_channels and the '
                'length of mean and std, or take the file out'
            )
        return np.moveaxis(img, 0, 2) if first else img

    def _fill(self, img: np.ndarray, missing: np.ndarray) -> None:
        """Replace missing pixels in place."""
        if self.fill is not None:
            img[missing] = self.fill
        elif missing.any():
            counts = (~missing).sum(axis=(0, 1)).clip(min=1)
            sums = img.sum(axis=(0, 1), where=~missing, dtype=np.float64)
            np.copyto(img, (sums / counts).astype(np.float32), where=missing)
