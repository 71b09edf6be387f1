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
    """Load an image with any number of channels and bits, such as a TIFF.

    The first bytes of a file tell its format. Pillow reads palette images.
    Otherwise tifffile reads TIFF, NumPy reads ``.npy``, Pillow reads 8-bit
    images with transparency, and OpenCV reads the rest. Integers of 8, 16 and
    32 bits, signed or not, and floats become float32 with the same values
    (rounded from 2**24 on). Channels keep the order of the file: a colour PNG
    is RGB, so ``to_rgb`` of the data preprocessor must stay False. A palette
    image gives its colours if ``channels`` is 3 or 4, and otherwise its
    indices. A TIFF in which 0 is white is inverted. If a TIFF has several
    series, the first is read.

    As in :class:`LoadImage`, a damaged file is skipped in training, or raises
    an error that names it. The same happens to a file whose bit depth differs
    from that of the first image. There are three depths: Boolean arrays, up to
    8 bits, and 16 or more bits (integer or float). A wrong number of channels
    always raises an error.

    **Required Keys:** ``img_path``.

    **Added Keys:** ``img``, float32, (H, W, C); ``img_shape`` and
    ``ori_shape``, its (H, W); ``oddities``, see :class:`LoadImage`.

    Args:
        channels (int): C, the number of channels of every image; equal to
            ``in_channels`` of the backbone.
        channel_axis (str, optional): ``'last'`` for files of shape (H, W, C),
            ``'first'`` for (C, H, W). Defaults to None: the first or the last
            axis, whichever has C entries.
        nodata (float | str, optional): Value that marks pixels without a
            measurement, such as -9999 or ``'nan'``. Defaults to None: the
            value in GDAL's tag of a TIFF, or no value if there is no such
            tag. If there is a value, NaN also marks pixels without a
            measurement.
        fill (float | str, optional): New value of pixels without a
            measurement. Defaults to None: the mean of the channel's measured
            pixels in this image, or 0 if there are none.
        **kwargs: ``skip_unreadable``, ``max_unreadable`` and
            ``backend_args`` of :class:`LoadImage`.

    Raises:
        ValueError: At build time, for an unknown ``channel_axis`` or
            ``channels`` below 1; later, for an image with another number of
            channels or an ambiguous channel axis. The message names the file.
        OSError: As in :class:`LoadImage`; also for values that are not finite.
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
                f"channel_axis={channel_axis!r} must be 'first', 'last' or "
                'None'
            )
        self.channels = channels
        self.channel_axis = channel_axis
        self.nodata = None if nodata is None else float(nodata)
        self.fill = None if fill is None else np.float32(fill)
        # Bits and file of the first image. Shallow copies of this transform
        # share the dict, so an image that such a copy reads before the workers
        # start sets the bits for all workers.
        self._first: dict[str, tuple[int, str]] = {}

    def decode(self, source: Source, header: Header) -> np.ndarray | None:
        """Decode an image, and keep the shape that the file stores."""
        palette = {3: 'RGB', 4: 'RGBA'}.get(self.channels, '')
        img = decode(source, header, palette=palette)
        if header.mode == '1' and img is not None and img.dtype == bool:
            img = img * np.uint8(255)  # as OpenCV reads such files
        return img

    def load(self, source: Source, name: str) -> tuple[np.ndarray, Header]:
        """Decode and check an image, see :class:`LoadImage`.

        In the returned header, ``transparent`` is False, and ``frames`` does
        not count pages that became bands.
        """
        img, header = super().load(source, name)
        return img, _of_bands(header, img)

    def header(self, content: bytes, name: str) -> Header:
        """Read the header of a file, see :class:`LoadImage`.

        Raises:
            OSError: If the file is not an image.
            ValueError: If the number of channels is wrong, or the channel axis
                is ambiguous.
        """
        header = read_header(content)
        if header.format in ('NPY', 'TIFF'):
            shape = stored_shape(content, header)
            empty = np.broadcast_to(np.uint8(0), shape)  # takes no memory
            return _of_bands(header, self._channels_last(empty, name))
        return header._replace(transparent=False, orientation=1)

    def check_header(self, source: Source, header: Header, name: str) -> None:
        """Accept images of all kinds."""

    def check(self, img: np.ndarray, header: Header, name: str) -> np.ndarray:
        """Check a decoded image, and give it its final type.

        Args:
            img (np.ndarray): Image of any shape and depth.
            header (Header): Its header.
            name (str): Name of the image in error messages.

        Returns:
            The image, float32, (H, W, C).

        Raises:
            OSError: If some values are not real or not finite.
            DepthError: If its bit depth differs from that of the first image.
            ValueError: If the number of channels is wrong, or the channel axis
                is ambiguous.
        """
        self._check_depth(img.dtype, name)
        stored = self._channels_last(img, name)
        nodata = header.nodata if self.nodata is None else self.nodata
        with np.errstate(over='ignore'):  # overflow gives inf, refused below
            img = np.array(stored, np.float32, order='C')
            if nodata is not None and stored.dtype.kind == 'f':
                nodata = stored.dtype.type(nodata)  # rounded as in the file
        valid = np.isfinite(img)
        if nodata is not None:
            missing = np.isnan(img) | (stored == nodata)
            self._fill(img, missing)
            valid |= missing
        if not valid.all():
            raise OSError(
                f'cannot use the image {printable(name)}: some values are '
                'not finite. If NaN marks missing pixels, set '
                "nodata='nan' in LoadBands"
            )
        return img

    def _check_depth(self, dtype: np.dtype, name: str) -> None:
        if dtype.kind not in 'buif':
            raise OSError(
                f'cannot use the image {printable(name)}: its values are '
                f'{dtype}, which are not real numbers'
            )
        bits = 1 if dtype.kind == 'b' else min(8 * dtype.itemsize, 16)
        expected, first = self._first.setdefault('image', (bits, name))
        if bits != expected:
            raise DepthError(
                f'{printable(name)} is {dtype}, but {printable(first)} has '
                'another bit depth, so the same value means different things: '
                'convert all files to one type, or remove some'
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
                f'{printable(path)} has the shape {img.shape}. '
                f'{"Both axes fit" if first else "No axis fits"} channels='
                f'{self.channels} and channel_axis={self.channel_axis!r} of '
                "LoadBands. If both fit, set channel_axis to 'first' or "
                "'last'. Otherwise correct channels, "
                'model.backbone.in_channels and the length of mean and std, '
                'or remove the file'
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
    """Return a file's header, adapted to its loaded bands, (H, W, C)."""
    there = math.prod(header.size) * header.channels * header.frames
    left = header.frames if img.size < there else 1  # pages that are not bands
    return header._replace(
        size=img.shape[:2], transparent=False, orientation=1, frames=left
    )
