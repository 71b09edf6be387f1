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
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import config_file, image_folder
from _presets import FEATURES, PRESETS, Entry, parse_entry

if TYPE_CHECKING:
    from _comparison import Comparison

PROTOCOLS = ('knn', 'linear', 'lowshot')


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
    add('--shots', type=int, nargs='*', default=[1, 2, 5])
    add('--percent', type=float, nargs='*', default=[1.0])
    add('--sets', type=int, default=3, help='low-shot sets that are drawn')
    add('--epochs', type=int, default=100, help='of linear probing')
    add('--batch-size', type=int, default=256, help='of linear probing')
    add('--num-workers', type=int, help="processes that read (the config's)")
    add('--seed', type=int, default=0)
    args = parser.parse_args(argv)
    try:
        args.checkpoints = [parse_entry(text) for text in args.checkpoints]
    except ValueError as error:
        parser.error(str(error))
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
    return args


def run(args: argparse.Namespace) -> list[dict]:
    """Run the protocols on all checkpoints.

    Args:
        args (argparse.Namespace): The arguments.

    Returns:
        list[dict]: For each checkpoint its ``name``, file and settings, and
        what each protocol gave.

    Raises:
        ValueError: If a file or the images do not fit.
        OSError: If there are no images.
    """
    from mmengine.config import Config
    from mmengine.registry import init_default_scope

    from _comparison import Comparison

    cfg = Config.fromfile(args.config)
    if cfg.get('test_cfg', {}).get('bank_dataloader') is None:
        raise ValueError(
            f'{args.config} is no k-NN config: it needs '
            'test_cfg.bank_dataloader, as knn_vit-b16_in1k.py has'
        )
    init_default_scope(cfg.default_scope)
    if args.num_workers is not None:
        for loader in (cfg.test_dataloader, cfg.test_cfg.bank_dataloader):
            loader.num_workers = args.num_workers
            loader.persistent_workers = args.num_workers > 0
    comparison = Comparison(cfg, args.data_root, args.out_dir / 'features')
    if 'lowshot' in args.protocols:
        subsets = comparison.draw_subsets(
            args.shots, args.percent, args.sets, args.seed
        )
    else:
        subsets = {}
    return [
        dict(name=name) | _evaluate(comparison, entry, subsets, args)
        for name, entry in zip(args.names, args.checkpoints)
    ]


def _evaluate(
    comparison: 'Comparison',
    entry: Entry,
    subsets: dict[str, list[list[int]]],
    args: argparse.Namespace,
) -> dict:
    from _encoders import load_encoder
    from mmmoca.evaluation.linear import linear_accuracy

    model, preset, settings = load_encoder(
        comparison.cfg.model,
        entry,
        args.which,
        args.feature,
        comparison.logger,
    )
    train, val = comparison.features(model, entry.path)
    result = dict(checkpoint=entry.path, settings=settings)
    if 'knn' in args.protocols:
        result['knn'] = comparison.knn(
            train, val, preset.knn, preset.temperature
        )
    if 'linear' in args.protocols:
        result['linear'] = linear_accuracy(
            *((p.pick(preset.linear), p.labels) for p in (train, val)),
            len(comparison.classes),
            args.epochs,
            args.batch_size,
            args.seed,
        )
    if 'lowshot' in args.protocols:
        result['lowshot'] = comparison.low_shot(
            train, val, preset.lowshot, preset.regularization, subsets
        )
    return result


def _names(entries: Sequence[Entry]) -> list[str]:
    """Their names, else file names where these differ, else paths."""
    names = [entry.name or Path(entry.path).stem for entry in entries]
    if len(set(names)) == len(names):
        return names
    return [entry.name or entry.path for entry in entries]


def main(argv: Sequence[str] | None = None) -> None:
    """Compare them, print the table, write table, figures and plot."""
    args = parse_args(argv)
    import mmmoca  # noqa: F401  checks the installation before all else
    from _comparison_report import draw_comparison, make_table
    from mmmoca.files import whole, write_json, write_text

    try:
        results = run(args)
    except (OSError, ValueError) as error:
        sys.exit(f'compare.py: error: {error}')
    table = make_table(results)
    settings = {
        name: getattr(args, name)
        for name in ('data_root', 'which', 'feature', 'seed')
    }
    write_json(args.out_dir / 'compare.json', dict(settings, results=results))
    write_text(args.out_dir / 'compare.md', table)
    picture = args.out_dir / 'compare.png'
    with whole(picture) as temporary:
        draw_comparison(results).savefig(temporary, dpi=130)
    print(f'\n{table}\n{picture}')


if __name__ == '__main__':
    main()
