# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Show what a model learned: ``python .../overview.py CONFIG CHECKPOINT``.

The picture shows for some images: what the student sees of them, their patch
features as colours (before and after training), their code words, and their
nearest images by features and by pixels, among up to --bank images.
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import (
    add_cfg_options,
    config_file,
    image_place,
    import_stack,
    local_file,
    positive_integer,
    run_program,
)


def draw(args: argparse.Namespace) -> None:
    """Draw the overview that a command line asks for.

    Args:
        args (argparse.Namespace): The command line.
    """
    import_stack()
    from mmmoca.engine.config import read_run
    from mmmoca.files import write_figure
    from mmmoca.visualization.overview import draw_overview

    figure = draw_overview(
        read_run(args.config, args.cfg_options),
        args.checkpoint,
        args.data,
        args.images,
        args.bank,
        num_workers=args.num_workers,
        seed=args.seed,
    )
    default = Path(args.checkpoint).with_suffix('.png')
    if args.data:  # must not replace the picture of the config's images
        default = default.with_stem(
            f'{default.stem}_{Path(args.data).absolute().name}'
        )
    out = args.out or default
    write_figure(out, figure)
    print(out)


def main() -> None:
    """Show what a model learned."""
    parser = argparse.ArgumentParser(description='Show what a model learned')
    add = parser.add_argument
    config = 'the config that the model was trained with'
    add('config', type=config_file, help=config)
    add('checkpoint', type=local_file, help='the checkpoint file')
    add_cfg_options(parser)
    data = 'a folder of images or tar files, or a Hugging Face data set, to '
    data += 'show instead of the images of the config'
    add('--data', type=image_place, metavar='IMAGES', help=data)
    out = 'the picture (by default next to the checkpoint, with its name)'
    add('--out', type=Path, help=out)
    rows = 'number of images to show, one in each row (8)'
    add('--images', type=positive_integer, default=8, help=rows)
    bank = 'number of images to search for neighbours (2000)'
    add('--bank', type=positive_integer, default=2000, help=bank)
    workers = 'number of processes that read images (2)'
    add('--num-workers', type=int, default=2, help=workers)
    seed = 'seed for the choice of images (0)'
    add('--seed', type=int, default=0, help=seed)
    run_program(parser, draw)


if __name__ == '__main__':
    main()
