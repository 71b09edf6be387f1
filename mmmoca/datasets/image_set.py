# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What image sets have in common, wherever the images are kept."""

import copy
from collections.abc import Sequence

import numpy as np
from mmcv.transforms import LoadImageFromFile
from mmpretrain.datasets import CustomDataset
from mmpretrain.datasets.base_dataset import expanduser

from mmmoca.messages import printable

from .loading import LoadImage
from .samples import Samples

__all__ = ['EXTENSIONS', 'ImageSet', 'labelled']

EXTENSIONS = (
    '.bmp',
    '.gif',
    '.jpeg',
    '.jpg',
    '.pgm',
    '.png',
    '.ppm',
    '.tif',
    '.tiff',
    '.webp',
)


class ImageSet(CustomDataset):
    """Base of the image sets: a compact list, checked when it is built.

    A subclass says by :meth:`find_samples` which images there are. What a
    loader reads is the path or URL of an image, so that reading from
    elsewhere is a matter of MMEngine's file backends alone.

    Args:
        data_root: Where the images are; ``~`` is understood.
        data_prefix: Part of ``data_root``, if any.
        with_label: Whether there are labels.
        extensions: Endings of the files to take.
        **kwargs: Further arguments of ``CustomDataset``: ``pipeline``,
            ``test_mode``, ``indices``, ``lazy_init``, ...

    Raises:
        OSError: At build time, if none of the images can be decoded; later,
            in ``test_mode``, for an image that cannot be decoded.
        ValueError: At build time, if the images have 16 bits a channel and
            the pipeline's loader reads 8, or ``data_prefix`` is a dict
            without ``img_path``.
    """

    # Far more files than a readable folder needs, still checked in seconds.
    MAX_PROBES = 500
    # A few 16-bit files among many others are no mistake.
    DEPTH_PROBES = 5

    def __init__(
        self,
        data_root: str = '',
        data_prefix: str | dict = '',
        with_label: bool = True,
        extensions: Sequence[str] = EXTENSIONS,
        **kwargs,
    ) -> None:
        if isinstance(data_prefix, dict) and 'img_path' not in data_prefix:
            raise ValueError(
                'data_prefix must be the part of data_root that holds the '
                f'images, or dict(img_path=...), but got {data_prefix}'
            )
        # MMEngine serialises lists of dicts; this one is compact already.
        kwargs['serialize_data'] = False
        super().__init__(
            data_root=expanduser(data_root),
            data_prefix=data_prefix,
            with_label=with_label,
            extensions=extensions,
            **kwargs,
        )

    def find_samples(self) -> Samples:
        """Find the images, at least one."""
        raise NotImplementedError

    def load_data_list(self) -> Samples:
        """Find the images and check that they can be read."""
        samples = self.find_samples()
        self._check_readable(samples)
        return samples

    def _get_unserialized_subset(self, indices: int | Sequence) -> Samples:
        if isinstance(indices, int):
            return super()._get_unserialized_subset(indices)
        return self.data_list[np.asarray(indices, np.int64)]

    def get_gt_labels(self) -> np.ndarray:
        """Classes of all images, (N, ), without a look at each."""
        self.full_init()
        labels = self.data_list.labels
        return super().get_gt_labels() if labels is None else labels.copy()

    def _searched(self) -> str:
        """Where and what to look for, for messages."""
        extensions = ', '.join(sorted(self.extensions))
        return f'{self.img_prefix!r} (accepted extensions: {extensions})'

    def _check_readable(self, samples: Samples) -> None:
        """Raise unless one of some images, spread evenly, decodes."""
        loader = next(
            (
                transform
                for transform in self.pipeline.transforms
                if isinstance(transform, LoadImageFromFile)
            ),
            # One that is not known may read any depth.
            LoadImage(cut_to_8_bits=True),
        )
        loader = copy.deepcopy(loader)
        # Errors are for this check, and the type is to be the decoder's.
        loader.skip_unreadable = loader.to_float32 = False
        # Each decoder has errors of its own.
        errors = OSError if isinstance(loader, LoadImage) else Exception
        number = min(len(samples), self.MAX_PROBES)
        for i in np.linspace(0, len(samples) - 1, number).astype(int):
            try:
                results = loader.transform(dict(samples[i]))
            except errors as error:
                last = error
                continue
            if results is not None:
                self._check_depth(samples, loader, results['img'].dtype)
                return
            last = OSError(f'{samples[i]["img_path"]} is skipped')
        raise OSError(
            f'none of the {number} files tried of {len(samples)} in '
            f'{self._searched()} is a readable image. Replace the damaged '
            f'files or set data_root to another folder. Last error: {last}'
        ) from last

    def _check_depth(
        self, samples: Samples, loader: LoadImageFromFile, dtype: np.dtype
    ) -> None:
        """Raise if all of some images would lose bits.

        Args:
            samples: All images.
            loader: The pipeline's.
            dtype: What it makes of one of them.
        """
        if getattr(loader, 'cut_to_8_bits', False) or dtype != np.uint8:
            return
        whole = LoadImage(
            color_type='unchanged', backend_args=loader.backend_args
        )
        number = min(len(samples), self.DEPTH_PROBES)
        for i in np.linspace(0, len(samples) - 1, number).astype(int):
            path = samples[i]['img_path']
            try:
                depth = whole.read(path).dtype
            except OSError:  # the loader will say so
                return
            if depth == np.uint8:
                return
        raise ValueError(
            f'{path} and the other images tried have more than 8 bits a '
            f'channel, but color_type={loader.color_type!r} of the loader '
            'reads 8: write mmmoca.LoadBands(channels=...), or if 8 suffice, '
            'mmmoca.LoadImage(cut_to_8_bits=True)'
        )

    def prepare_data(self, idx: int) -> dict | None:
        """Run the pipeline on one image.

        Args:
            idx: Index of the image.

        Returns:
            The pipeline's result; None in training if it skipped the image.

        Raises:
            OSError: In ``test_mode``, if the pipeline skipped the image.
        """
        data = super().prepare_data(idx)
        if data is None and self.test_mode:
            path = self.get_data_info(idx)['img_path']
            raise OSError(
                f'cannot read the image {printable(path)}: evaluation skips '
                'nothing, so replace the file or remove it from the data set'
            )
        return data


def labelled(paths: Sequence[str], labels: np.ndarray, advice: str) -> Samples:
    """Samples, each of which has a label.

    Args:
        paths: Path or URL of each image.
        labels: Class of each, (N, ), below 0 if it has none.
        advice: How to give it one, for the error.

    Returns:
        The samples.

    Raises:
        ValueError: If some have no label. It names the first of them.
    """
    missing = np.flatnonzero(labels < 0)
    if len(missing):
        raise ValueError(
            f'{len(missing)} of {len(paths)} images have no label, '
            f'{paths[missing[0]]} is the first: {advice}, or write '
            'with_label=False'
        )
    return Samples(paths, labels)
