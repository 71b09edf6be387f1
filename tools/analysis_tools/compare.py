# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Compare backbones on a folder of classes: ``compare.py A.pth B.pth ...``.

Features are extracted once a checkpoint, and k-NN, linear probing and
low-shot classification share them. Each takes the feature that the method of
the checkpoint is published with (docs/evaluation.md). Unlike in the
protocols' own configs, linear probing sees no augmented images, and all
transforms are those of k-NN.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import (
    config_file,
    image_folder,
    import_stack,
    positive_integer,
)

PROTOCOLS = ('knn', 'linear', 'lowshot')
# The names of mmmoca.evaluation.presets, which takes PyTorch to be imported.
FEATURES = ('avg', 'cls', 'cls-avg')
PRESETS = ('moca', 'dino', 'ibot', 'msn', 'mocov3', 'mae')


class Entry(NamedTuple):
    """A checkpoint on the command line.

    Attributes:
        name (str, optional): What to call it.
        path (str): The file.
        feature (str, optional): One of :data:`FEATURES` or :data:`PRESETS`.
    """

    name: str | None
    path: str
    feature: str | None


def parse_entry(text: str) -> Entry:
    """Type of an argument: ``[NAME=]FILE[:FEATURE]``.

    What is there decides: a '=' or ':' that belongs to the name of an
    existing file is left to it.

    Args:
        text (str): The argument.

    Returns:
        Entry: Its parts.

    Raises:
        argparse.ArgumentTypeError: If there is no such file or feature.
    """
    name, equals, named = text.partition('=')
    for label, rest in [(None, text)] + [(name, named)] * bool(equals):
        if Path(rest).is_file():
            return Entry(label, rest, None)
        path, colon, feature = rest.rpartition(':')
        if not colon or not Path(path).is_file():
            continue
        if feature not in FEATURES and feature not in PRESETS:
            raise argparse.ArgumentTypeError(
                f'{feature!r} after {path} is no feature '
                f'({", ".join(FEATURES)}) and no preset '
                f'({", ".join(PRESETS)})'
            )
        return Entry(label, path, feature)
    raise argparse.ArgumentTypeError(
        f'there is no file {named or text}: a checkpoint is written '
        '[NAME=]FILE[:FEATURE]'
    )


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description='Compare backbones by k-NN, linear probing and low-shot '
        'classification'
    )
    add = parser.add_argument
    add(
        'checkpoints',
        nargs='+',
        type=parse_entry,
        metavar='[NAME=]FILE[:FEATURE]',
        help='files of any layout known. FEATURE is that of the protocols '
        f'({", ".join(FEATURES)}), or the method whose published features '
        f'and settings to take ({", ".join(PRESETS)}); by default that of '
        'the layout, else MOCA',
    )
    add(
        '--data-root',
        type=image_folder,
        required=True,
        help='folder with train/ and val/',
    )
    add('--protocols', nargs='+', choices=PROTOCOLS, default=PROTOCOLS)
    add(
        '--config',
        type=config_file,
        default='classification/knn_vit-b16_in1k.py',
        help='a k-NN config, for architecture and transforms',
    )
    add('--out-dir', default='work_dirs/compare', type=Path)
    add('--names', nargs='+', help='names of the checkpoints')
    add(
        '--which',
        choices=['teacher', 'student'],
        help="the encoder (the teacher; the student of MoCo-v3's files)",
    )
    add(
        '--feature',
        choices=FEATURES,
        help='for all checkpoints without a FEATURE of their own: mean patch '
        'token, [CLS], or both (low-shot takes it before the final norm)',
    )
    add('--shots', type=positive_integer, nargs='*', default=[1, 2, 5])
    add('--percent', type=float, nargs='*', default=[1.0])
    add(
        '--sets',
        type=positive_integer,
        default=3,
        help='low-shot sets that are drawn',
    )
    linear = dict(type=positive_integer, help='of linear probing')
    add('--epochs', default=100, **linear)
    add('--batch-size', default=256, **linear)
    add('--num-workers', type=int, help="processes that read (the config's)")
    add('--seed', type=int, default=0)
    args = parser.parse_args(argv)
    if args.names is None:
        args.names = _names(args.checkpoints)
    elif any(entry.name for entry in args.checkpoints):
        parser.error('give names by NAME=FILE or by --names, not by both')
    if len(args.names) != len(args.checkpoints):
        parser.error(
            f'{len(args.names)} names for {len(args.checkpoints)} checkpoints'
        )
    if len(set(args.names)) < len(args.names):
        parser.error(f'the names {args.names} repeat: write NAME=FILE')
    if 'lowshot' in args.protocols and not args.shots + args.percent:
        parser.error(
            'low-shot classification needs --shots or --percent: give one of '
            'them, or --protocols without lowshot'
        )
    return args


def run(args: argparse.Namespace) -> list[dict]:
    """Run the protocols on all checkpoints.

    Args:
        args (argparse.Namespace): The arguments.

    Returns:
        list[dict]: For each checkpoint its ``name``, and what
        :meth:`Comparison.evaluate` gave.

    Raises:
        ValueError: If a file or the images do not fit.
        OSError: If there are no images.
    """
    from mmengine.config import Config

    from mmmoca.evaluation.comparison import Comparison

    comparison = Comparison(
        Config.fromfile(args.config),
        args.data_root,
        args.out_dir / 'features',
        args.num_workers,
    )
    subsets = None
    if 'lowshot' in args.protocols:
        subsets = comparison.draw_subsets(
            args.shots, args.percent, args.sets, args.seed
        )
    return [
        dict(name=name)
        | comparison.evaluate(
            entry.path,
            subsets,
            args.which,
            entry.feature or args.feature,
            args.protocols,
            args.epochs,
            args.batch_size,
            args.seed,
        )
        for name, entry in zip(args.names, args.checkpoints)
    ]


def _names(entries: Sequence[Entry]) -> list[str]:
    """Their names, else file names where these differ, else paths."""
    names = [entry.name or Path(entry.path).stem for entry in entries]
    if len(set(names)) == len(names):
        return names
    return [entry.name or entry.path for entry in entries]


def main(argv: Sequence[str] | None = None) -> None:
    """Compare them, print and write the table."""
    args = parse_args(argv)
    import_stack()
    from mmmoca.evaluation.report import comparison_table
    from mmmoca.files import write_json, write_text

    try:
        results = run(args)
    except (OSError, ValueError) as error:
        sys.exit(f'compare.py: error: {error}')
    table = comparison_table(results)
    settings = {
        name: getattr(args, name)
        for name in ('data_root', 'which', 'feature', 'seed')
    }
    write_json(args.out_dir / 'compare.json', dict(settings, results=results))
    write_text(args.out_dir / 'compare.md', table)
    print(f'\n{table}\n{args.out_dir}')


if __name__ == '__main__':
    main()
