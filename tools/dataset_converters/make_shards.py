# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Put the images of a folder into tar files (WebDataset).

``mmmoca.ImageShards`` reads the result. Millions of small files are slow to
list, to copy and to open. The images keep their bytes and their order, so that
a run draws the same images from the shards as from the folder.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import (
    image_folder,
    import_stack,
    positive_integer,
    run_program,
)

if TYPE_CHECKING:
    from mmmoca.datasets import ImageFolder


def make_shards(
    images: str | Path,
    out: str | Path,
    with_label: bool = False,
    number: int = 10_000,
    megabytes: float = 1000,
) -> tuple[int, int]:
    """Write ``out/images-000000.tar`` and so on, each with an index file.

    WebDataset joins files whose names agree up to the first dot into one
    sample. So a member is named by its image's path, with a unique number
    before the file name. The folder appears whole or not at all. Images that
    cannot be read are named and left out.

    Args:
        images (str | Path): Folder of images, at any depth.
        out (str | Path): Folder to make.
        with_label (bool): Whether the folders in ``images`` are classes. If
            so, ``.cls`` files and ``classes.txt`` are added. Defaults to
            False.
        number (int): Largest number of images in a shard.
        megabytes (float): A shard ends after the image with which it reaches
            this size.

    Returns:
        tuple[int, int]: How many images were written, and how many could not
        be read.

    Raises:
        FileExistsError: If ``out`` exists.
        FileNotFoundError: If there is no such folder or no image in it.
        ImportError: If webdataset is missing.
        OSError: If no image can be read, or the shards cannot be written.
    """
    out = Path(out).absolute()
    if out.exists():
        raise FileExistsError(f'{out} exists: remove it or give another name')
    from webdataset import ShardWriter

    from mmmoca.datasets import ImageFolder
    from mmmoca.datasets.shard_index import read_index
    from mmmoca.files import atomic_write

    folder = ImageFolder(str(images), with_label=with_label, pipeline=[])
    with atomic_write(out) as root:
        root.mkdir()

        def finish(shard: str) -> None:
            # This writes the index. It also checks the shard, since it reads
            # all headers again.
            read_index(shard, folder.extensions)
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
            for sample in _samples(folder):
                writer.write(sample)
            total = writer.total
        if not total:
            raise OSError(f'none of the {len(folder)} images can be read')
        if with_label:
            names = ''.join(f'{name}\n' for name in folder.CLASSES)
            (root / 'classes.txt').write_text(names, encoding='utf-8')
    return total, len(folder) - total


def _samples(folder: 'ImageFolder') -> Iterator[dict[str, str | bytes]]:
    """Yield the images as samples that WebDataset writes."""
    for index, info in enumerate(folder.data_list):
        path = Path(info['img_path'])
        try:
            content = path.read_bytes()
        except OSError as error:
            print(f'left out: {error}', file=sys.stderr)
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


def write(args: argparse.Namespace) -> None:
    """Write the shards that a command line asks for.

    Args:
        args (argparse.Namespace): The command line.
    """
    import_stack()
    total, left_out = make_shards(
        args.images, args.out, args.with_label, args.number, args.megabytes
    )
    print(f'{args.out}: {total} images, {left_out} could not be read')


def main() -> None:
    """Write shards of a folder of images."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('images', type=image_folder, help='folder of images, at any depth')
    add('out', help='folder to make')
    classes = 'treat the subfolders as classes'
    add('--with-label', action='store_true', help=classes)
    number = 'maximum number of images in a shard (10000)'
    add('--number', type=positive_integer, default=10_000, help=number)
    size = 'size in megabytes at which a shard ends (1000)'
    add('--megabytes', type=float, default=1000, help=size)
    run_program(parser, write)


if __name__ == '__main__':
    main()
