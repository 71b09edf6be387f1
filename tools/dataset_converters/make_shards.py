# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Put the images of a folder into tar files: ``make_shards.py IMAGES OUT``.

In the layout of WebDataset, for ``mmmoca.ImageShards``: millions of small
files are slow to list, to copy and to open. Bytes and order stay as they are,
so that a run draws the same from both.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmmoca.datasets import ImageFolder


def make_shards(
    images: str | Path,
    out: str | Path,
    with_label: bool = False,
    number: int = 10_000,
    megabytes: float = 1000,
) -> tuple[int, list[str]]:
    """Write ``out/images-000000.tar`` and so on, an index beside each.

    A file in them is called as its path, with a number before its name, as
    WebDataset tells images apart by what stands before the first dot. The
    folder appears whole or not at all.

    Args:
        images (str | Path): Folder of images, at any depth.
        out (str | Path): Folder to make.
        with_label (bool): Whether the folders in it are classes: adds
            ``.cls`` files and ``classes.txt``. Defaults to False.
        number (int): Images of a shard, at most.
        megabytes (float): Size of a shard; the image that goes beyond is the
            last one.

    Returns:
        tuple[int, list[str]]: How many images were written, and errors for
        those that could not be read.

    Raises:
        FileExistsError: If ``out`` exists.
        FileNotFoundError: If there is no such folder or no image in it.
        ImportError: If webdataset is missing.
        OSError: If no image can be read, or the shards not be written.
        ValueError: If ``number`` or ``megabytes`` is not above 0.
    """
    out = Path(out).absolute()
    if number < 1 or megabytes <= 0:
        raise ValueError('number and megabytes must be above 0')
    if out.exists():
        raise FileExistsError(f'{out} exists: remove it or give another name')
    from mmmoca.datasets import ImageFolder
    from mmmoca.datasets.tar_index import index_shards
    from mmmoca.files import atomic_write

    try:
        from webdataset import ShardWriter
    except ImportError as error:
        raise ImportError(
            'make_shards.py needs: pip install webdataset'
        ) from error

    folder = ImageFolder(str(images), with_label=with_label, pipeline=[])
    problems = []
    with atomic_write(out) as root:
        root.mkdir()

        def finish(shard: str) -> None:
            # Reads all headers again, which is a check, too.
            list(index_shards([shard], folder.extensions, with_label))
            done = f'{writer.total} of {len(folder)} images'
            print(f'{Path(shard).name}: {done}', flush=True)

        with ShardWriter(
            f'{root}'.replace('%', '%%') + '/images-%06d.tar',
            maxcount=number,
            maxsize=megabytes * 1e6,
            post=finish,
            verbose=0,
            encoder=False,
            mtime=0,  # the same images give the same bytes
        ) as writer:
            for sample in _samples(folder, problems):
                writer.write(sample)
            total = writer.total
        if with_label:
            names = ''.join(f'{name}\n' for name in folder.CLASSES)
            (root / 'classes.txt').write_text(names, encoding='utf-8')
    return total, problems


def _samples(
    folder: 'ImageFolder', problems: list[str]
) -> Iterator[dict[str, str | bytes]]:
    """Images as WebDataset takes them; adds what cannot be read."""
    for index in range(len(folder)):
        info = folder.get_data_info(index)
        path = Path(info['img_path'])
        try:
            content = path.read_bytes()
        except OSError as error:
            problems.append(str(error))
            continue
        place = path.relative_to(folder.img_prefix)
        name = f'{index:08}_{place.stem}'.replace('.', '_')
        sample = {
            '__key__': place.with_name(name).as_posix(),
            place.suffix[1:].lower(): content,
        }
        if 'gt_label' in info:
            sample['cls'] = f'{info["gt_label"]}'.encode()
        yield sample


def main() -> None:
    """Write them."""
    parser = argparse.ArgumentParser(
        description='Put the images of a folder into tar files (WebDataset)'
    )
    parser.add_argument('images', help='folder of images, at any depth')
    parser.add_argument('out', help='folder to make')
    parser.add_argument(
        '--with-label',
        action='store_true',
        help='the folders in it are classes',
    )
    parser.add_argument(
        '--number', type=int, default=10_000, help='images of a shard'
    )
    parser.add_argument(
        '--megabytes', type=float, default=1000, help='size of a shard'
    )
    args = parser.parse_args()
    if not Path(args.images).is_dir():
        parser.error(f'there is no folder {args.images}')
    from mmmoca import stack

    stack.import_quietly('mmpretrain.datasets')

    try:
        total, problems = make_shards(**vars(args))
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f'make_shards.py: error: {error}')
    for problem in problems:
        print(f'left out: {problem}', file=sys.stderr)
    print(f'{args.out}: {total} images, {len(problems)} could not be read')


if __name__ == '__main__':
    main()
