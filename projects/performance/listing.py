# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Measure the time and memory to build a data set of millions of images.

For folders, the names of the files are made up, because ten million files
take too long to make; the time that a file system needs to list them is not
included. For shards, one real tar file of 10 000 members is written, and all
shards are links to it. Memory is the process's peak minus what it had after
its imports; time is CPU time. Linux only.

Example:
    python projects/performance/listing.py --images 1e6
"""

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

FORMS = {
    'mmpretrain': "MMPreTrain's CustomDataset, 1000 classes",
    'classes': 'ImageFolder, 1000 classes',
    'flat': 'ImageFolder, no labels',
    'headers': 'ImageShards, the first time',
    'shards': 'ImageShards, later',
}
SHARD = 10_000


def measure(form: str, images: int, folder: str) -> tuple[float, float]:
    """Build one data set in this process.

    Args:
        form (str): One of ``FORMS``.
        images (int): Number of images in the data set.
        folder (str): Folder of the shards, see :func:`write_links`.

    Returns:
        tuple[float, float]: CPU seconds, and peak memory in MiB.
    """
    import mmmoca.import_mmpretrain  # noqa: F401  # isort: skip
    from mmengine.fileio import LocalBackend
    from mmpretrain.datasets import CustomDataset

    from mmmoca.datasets import ImageFolder, ImageShards, image_folder

    def files(root: str, *_: object) -> Iterator[str]:
        count = images if form == 'flat' else images // 1000
        # As on a disk, the names are in no particular order.
        for i in (i * 7919 % count for i in range(count)):
            yield f'{root}/part-{i % 1000:05}/photo_{i:010}.jpg'

    def names(self, path: str, list_dir: bool = True, **_) -> Iterator[str]:
        return iter(classes) if list_dir else files('.')

    classes = [f'n{i:08}' for i in range(1000)]
    LocalBackend.list_dir_or_file = names
    image_folder.visible_folders = lambda *_: classes
    image_folder.visible_files = files
    kinds = dict(mmpretrain=CustomDataset, headers=ImageShards)
    build = (kinds | dict(shards=ImageShards)).get(form, ImageFolder)
    pages = int(Path('/proc/self/statm').read_text().split()[1])
    before = pages * os.sysconf('SC_PAGE_SIZE')
    start = time.process_time()
    dataset = build(
        data_root=folder, with_label=form in ('mmpretrain', 'classes')
    )
    seconds = time.process_time() - start
    if len(dataset) != images:
        raise RuntimeError(f'{len(dataset)} of {images} images were listed')
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return seconds, max(0, peak - before) / 2**20


def write_links(folder: str, images: int) -> None:
    """Write one shard of empty files, and links to it for all ``images``."""
    from webdataset import TarWriter

    first = Path(folder, 'first')
    with TarWriter(str(first), encoder=False) as writer:
        for i in range(SHARD):
            name = f'{i % 1000:05}/{i:08}_photo'
            writer.write({'__key__': name, 'jpg': b''})
    for i in range(images // SHARD):
        Path(folder, f'images-{i:06}.tar').symlink_to(first)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    add = parser.add_argument
    add('--images', type=float, default=1e6, help='a multiple of 10 000')
    add('--forms', nargs='+', choices=FORMS, default=list(FORMS))
    args = parser.parse_args()
    images = int(args.images)
    if images < 1 or images % SHARD:
        parser.error(f'--images must be a multiple of {SHARD}')
    # This import also checks the versions.
    import mmmoca.import_mmpretrain  # noqa: F401

    # isort: split
    from measure import apart, report

    figures = []
    with tempfile.TemporaryDirectory() as folder:
        write_links(folder, images)
        for form in args.forms:
            seconds, memory = apart(measure, form, images, folder)
            figures.append(
                {
                    f'{images:,} images': FORMS[form],
                    'seconds': seconds,
                    'MiB at most': memory,
                }
            )
    report(figures)


if __name__ == '__main__':
    main()
