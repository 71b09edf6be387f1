# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of any number of images, written to a file that can be resumed."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np
from mmengine.dist import barrier, get_rank, get_world_size

from mmmoca.evaluation.feature_cache import weights_digest
from mmmoca.evaluation.presets import FEATURES
from mmmoca.progress import ProgressBar
from mmmoca.version import __version__

from .encoder import Encoder
from .feature_files import check_names, check_suffix, read_about
from .images import Images, open_images
from .unfinished_file import UnfinishedFile, check_same

__all__ = ['embed_to_file']

# Batches of a block: what is lost at most where a process is killed.
BATCHES = 8


def embed_to_file(
    encoder: Encoder,
    images: str | os.PathLike,
    out: str | os.PathLike,
    feature: str | None = None,
    batch_size: int = 64,
    num_workers: int | None = None,
    amp: bool = False,
    skip_unreadable: bool = False,
    progress: bool = True,
) -> dict:
    """Write the features of images, and go on where an earlier call stopped.

    What is done lies in ``OUT.incomplete`` until all of it is. A block of
    images is always computed in the same batches, whoever computes it, so
    that the result does not depend on stops. Called by all ranks together,
    which share the blocks.

    Args:
        encoder (Encoder): Of :func:`mmmoca.load`.
        images (str | os.PathLike): A folder, shards, or a data set of
            Hugging Face, see :meth:`Encoder.embed`.
        out (str | os.PathLike): ``.npy``, with the names of the images one a
            line in ``OUT.names.txt`` and what they were made from in
            ``OUT.json``; or ``.parquet`` with the columns ``name`` and
            ``feature``.
        feature (str, optional): 'avg', 'cls' or 'cls-avg'; by default what
            k-NN takes of this encoder.
        batch_size (int): Images at a time.
        num_workers (int, optional): See :meth:`Encoder.embed`.
        amp (bool): See :meth:`Encoder.embed`.
        skip_unreadable (bool): Write NaN for an image that cannot be read,
            instead of an error.
        progress (bool): Show a progress bar, on the first rank.

    Returns:
        dict: The record of the file: ``number`` of images, names of those
        ``unreadable``, and what the features were made from.

    Raises:
        FileExistsError: If ``out`` was made from other images or another
            encoder, as a whole or in part. It says what differs.
        FileNotFoundError: If there are no images.
        OSError: For an image that cannot be read; it names the file.
        BlockingIOError: If another process writes ``out``.
        ValueError: If ``out`` ends in something else, or as
            :meth:`Encoder.embed`.
    """
    if batch_size < 1:
        raise ValueError(f'batch_size must be 1 or more but got {batch_size}')
    out = check_suffix(out)
    found = open_images(images, encoder.pipeline)
    names = _Names(found, images)
    check_names(names, out)
    feature = feature or encoder.feature
    if feature not in FEATURES:
        raise ValueError(
            f'{feature!r} is no feature: choose of {", ".join(FEATURES)}'
        )
    width = encoder.backbone.embed_dims * len(feature.split('-'))
    about = dict(
        encoder.about,
        weights=weights_digest(encoder),
        preprocessing=encoder.preprocessing._asdict(),
        feature=feature,
        amp=amp,
        images=os.path.abspath(os.path.expanduser(images)),
        number=len(found),
        width=width,
        names=_digest(names),
        version=__version__,
    )
    about = json.loads(json.dumps(about))  # tuples become lists, as in a file
    if out.exists():
        earlier = read_about(out)
        check_same(out, earlier, about)
        return earlier
    work = UnfinishedFile(out, about, BATCHES * batch_size)
    blocks = work.left()[get_rank() :: get_world_size()]
    spans = [work.span(block) for block in blocks]
    kinds = feature.split('-')
    stream = encoder.stream(found, batch_size, kinds, num_workers, amp, spans)
    show = progress and get_rank() == 0
    total, done = sum(map(len, spans)), 0
    with (
        ProgressBar('images', total, show=show) as bar,
        closing(stream),
    ):
        for block, span in zip(blocks, spans):
            rows = np.full((len(span), width), np.nan, np.float32)
            for _ in range(0, len(span), batch_size):
                batch, embeddings, errors = next(stream)
                for error in errors.values():
                    if not (skip_unreadable and isinstance(error, OSError)):
                        raise error
                good = [i for i in range(len(batch)) if i not in errors]
                if good:
                    places = batch.start - span.start + np.array(good)
                    rows[places] = embeddings.pick(feature).numpy()
                done += len(batch)
                bar.update(done)
            work.write(block, rows)
    barrier()
    if get_rank() == 0:
        about = work.finish(names)
    barrier()
    return about


class _Names(Sequence):
    """Names of images relative to the place that was asked for."""

    def __init__(self, images: Images, place: str | os.PathLike) -> None:
        self._images = images
        root = os.path.expanduser(os.fspath(place))
        self._root = os.path.join(root, '') if os.path.isdir(root) else None

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> str:
        path = self._images.path(range(len(self))[index])
        return path.removeprefix(self._root) if self._root else path

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))


def _digest(names: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode('utf-8', 'surrogatepass') + b'\0')
    return digest.hexdigest()
