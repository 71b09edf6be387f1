# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import math

import numpy as np

from mmmoca.messages import printable
from mmmoca.registry import TRANSFORMS

from .decoding import decode, stored_shape
from .headers import Header, Source, read_header
from .loading import DepthError, LoadImage


@TRANSFORMS.register_module()
class LoadBands(LoadImage):
    """Load an image of any channels and depth: TIFF, PNG, NPY and others.

    The first bytes of a file tell its format: TIFF is read by tifffile,
    ``.npy`` by NumPy, all else by OpenCV. Integers of 8, 16 and 32 bits,
    signed or not, and floats become float32 with the same values (rounded
    from 2**24 on). Channels keep the order of the file: a colour PNG is RGB,
    so that ``to_rgb`` of the data preprocessor stays False. A palette gives
    its colours where there are 3 or 4 channels, else its indices. A TIFF
    where 0 is white is inverted. Of its series the first is read.

    As in :class:`LoadImage`, a damaged file is skipped in training, or named
    in an error. The same goes for a file whose values have other bits than
    those of the first image of its set. A wrong number of channels is always
    an error.

    **Required Keys:** ``img_path``.

    **Added Keys:** ``img``, float32, (H, W, C); ``img_shape`` and
    ``ori_shape``, its (H, W).

    Args:
        channels (int): Channels of every image, C: ``in_channels`` of the
            backbone.
        channel_axis (str, optional): ``'last'`` for files of shape (H, W, C),
            ``'first'`` for (C, H, W). Defaults to None: whichever of the two
            axes has C entries.
        nodata (float | str, optional): Value that stands for a pixel without a
            measurement, such as -9999 or ``'nan'``; NaN then counts as such,
            too. Defaults to None: what GDAL's tag in a TIFF says, or,
            without it, no such value.
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
        self.nodata = None if nodata is None else float(nodata)
        self.fill = None if fill is None else np.float32(fill)
        # Bits and file of the first image. Copies share it, so that a look
        # at the set before its workers start decides for all of them.
        self._first: dict[str, tuple[int, str]] = {}

    def decode(self, source: Source, header: Header) -> np.ndarray | None:
        """Decode an image; its shape is that of the file."""
        palette = {3: 'RGB', 4: 'RGBA'}.get(self.channels, '')
        img = decode(source, header, palette=palette)
        if header.mode == '1' and img is not None and img.dtype == bool:
            img = img * np.uint8(255)  # as OpenCV reads such files
        return img

    def load(self, source: Source, name: str) -> tuple[np.ndarray, Header]:
        """Decode and check an image, see :class:`LoadImage`.

        In its header, transparency and pages that are bands do not count as
        left out.
        """
        img, header = super().load(source, name)
        return img, _of_bands(header, img)

    def header(self, content: bytes, name: str) -> Header:
        """Read what a file says of its bands, without their values.

        Args:
            content (bytes): Content of the file.
            name (str): What to call it in errors.

        Returns:
            Header: As of :meth:`load`.

        Raises:
            OSError: If it is no image.
            ValueError: If its channels are others, or not clear.
        """
        header = read_header(content)
        if header.format in ('NPY', 'TIFF'):
            shape = stored_shape(content, header)
            empty = np.broadcast_to(np.uint8(0), shape)  # takes no memory
            return _of_bands(header, self._channels_last(empty, name))
        return header._replace(transparent=False, orientation=1)

    def check_header(self, source: Source, header: Header, name: str) -> None:
        """Take images of all kinds."""

    def check(self, img: np.ndarray, header: Header, name: str) -> np.ndarray:
        """Check a decoded image, and give it its final type.

        Args:
            img (np.ndarray): Image of any shape and depth.
            header (Header): What it says of itself.
            name (str): What to call it in errors.

        Returns:
            The image, float32, (H, W, C).

        Raises:
            OSError: If it has values that are no real or finite numbers.
            DepthError: If it has other bits than the first image.
            ValueError: If its channels are others, or not clear.
        """
        self._check_depth(img.dtype, name)
        stored = self._channels_last(img, name)
        nodata = header.nodata if self.nodata is None else self.nodata
        with np.errstate(over='ignore'):  # to infinity, seen below
            img = np.array(stored, np.float32, order='C')
            if nodata is not None and stored.dtype.kind == 'f':
                nodata = stored.dtype.type(nodata)  # as it was rounded there
        valid = np.isfinite(img)
        if nodata is not None:
            missing = np.isnan(img) | (stored == nodata)
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
                f'{printable(name)} is {dtype}, but {printable(first)} has '
                'another number of bits, so that equal values mean different '
                'things: convert the files of one kind, or take them out'
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


def _of_bands(header: Header, img: np.ndarray) -> Header:
    """Return the header of an image of bands, (H, W, C)."""
    there = math.prod(header.size) * header.channels * header.frames
    left = header.frames if img.size < there else 1  # pages that are no bands
    return header._replace(
        size=img.shape[:2], transparent=False, orientation=1, frames=left
    )
