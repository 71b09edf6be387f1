# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Compare backbones on a folder of classes: ``compare.py A.pth B.pth ...``.

Features are extracted once a checkpoint, and k-NN, linear probing and
low-shot classification share them. Unlike in the protocols' own configs,
linear probing sees no augmented images, and all transforms are those of
k-NN.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

# --help and wrong arguments need not wait for PyTorch: what does the work is
# imported where it is done.
if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
PROTOCOLS = ('knn', 'linear', 'lowshot')
COLORS = ('#d55e00', '#0072b2', '#009e73', '#cc79a7', '#e69f00', '#56b4e9')
MARKERS = 'o^s*Dv'


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description='Compare backbones by k-NN, linear probing and low-shot '
        'classification'
    )
    add = parser.add_argument
    add('checkpoints', nargs='+', help='files of any layout known')
    add('--data-root', required=True, help='folder with train/ and val/')
    add('--protocols', nargs='+', choices=PROTOCOLS, default=PROTOCOLS)
    add(
        '--config',
        default='classification/knn_vit-b16_in1k.py',
        help='a k-NN config, for architecture and transforms',
    )
    add('--out-dir', default='work_dirs/compare', type=Path)
    add('--names', nargs='+', help='names of the checkpoints')
    add('--which', default='teacher', choices=['teacher', 'student'])
    add(
        '--feature',
        default='avg',
        choices=['avg', 'cls', 'cls-avg'],
        help='what k-NN and linear probing take: mean patch token, [CLS], or '
        'both',
    )
    add('--shots', type=int, nargs='*', default=[1, 2, 5])
    add('--percent', type=float, nargs='*', default=[1.0])
    add('--sets', type=int, default=3, help='low-shot sets that are drawn')
    add('--epochs', type=int, default=100, help='of linear probing')
    add('--batch-size', type=int, default=256, help='of linear probing')
    add('--num-workers', type=int, help="processes that read (the config's)")
    add('--seed', type=int, default=0)
    args = parser.parse_args(argv)
    if args.names is None:
        args.names = _short_names(args.checkpoints)
    if len(args.names) != len(args.checkpoints):
        parser.error(
            f'{len(args.names)} names for {len(args.checkpoints)} checkpoints'
        )
    if len(set(args.names)) < len(args.names):
        parser.error(f'the names {args.names} repeat: give others by --names')
    config = next(
        (p for p in (Path(args.config), CONFIGS / args.config) if p.is_file()),
        None,
    )
    if config is None:
        parser.error(f'there is no config {args.config}')
    args.config = config
    if not Path(args.data_root).is_dir():
        parser.error(f'there is no folder {args.data_root}')
    return args


def run(args: argparse.Namespace) -> list[dict]:
    """Run the protocols on all checkpoints.

    Args:
        args (argparse.Namespace): The arguments.

    Returns:
        list[dict]: For each checkpoint its ``name`` and file, and what each
        protocol gave.

    Raises:
        ValueError: If a file or the images do not fit.
        OSError: If there are no images.
    """
    from mmengine.config import Config
    from mmengine.registry import init_default_scope

    from _comparison import Comparison
    from mmmoca.evaluation.linear import linear_accuracy

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
    results = []
    for name, checkpoint in zip(args.names, args.checkpoints):
        train, val = comparison.features(checkpoint, args.which)
        result = dict(name=name, checkpoint=checkpoint)
        if 'knn' in args.protocols:
            result['knn'] = comparison.knn(train, val, args.feature)
        if 'linear' in args.protocols:
            result['linear'] = linear_accuracy(
                *((p.pick(args.feature), p.labels) for p in (train, val)),
                len(comparison.classes),
                args.epochs,
                args.batch_size,
                args.seed,
            )
        if 'lowshot' in args.protocols:
            result['lowshot'] = comparison.low_shot(train, val, subsets)
        results.append(result)
    return results


def make_table(results: list[dict]) -> str:
    """One row a checkpoint, one column a protocol and setting.

    Args:
        results (list[dict]): What :func:`run` returned.

    Returns:
        str: A table in Markdown; accuracies in percent.
    """
    from mmmoca.evaluation.report import render_table

    rows = []
    for result in results:
        row = {'top-1 (%)': result['name']}
        for k, accuracy in result.get('knn', {}).items():
            row[f'k-NN, {k}'] = f'{accuracy:.1f}'
        if 'linear' in result:
            row['linear'] = f'{result["linear"]["top1"]:.1f}'
        for subset in result.get('lowshot', ()):
            spread = f' ± {subset["std"]:.1f}' * (len(subset['top1']) > 1)
            row[subset['subset']] = f'{subset["mean"]:.1f}{spread}'
        rows.append(row)
    return render_table(list(rows[0]), [list(row.values()) for row in rows])


def draw_comparison(results: list[dict]) -> 'Figure':
    """Draw low-shot accuracies as the paper's Figure 1b, others as bars.

    Args:
        results (list[dict]): What :func:`run` returned.

    Returns:
        Figure: To be written by its ``savefig``.
    """
    from matplotlib.figure import Figure

    first = results[0]
    panels = [name for name in ('lowshot', 'knn', 'linear') if name in first]
    figure = Figure(
        (4 * len(panels), 3.6), facecolor='white', layout='constrained'
    )
    titles = dict(lowshot='low-shot', knn='k-NN', linear='linear probing')
    for number, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), number)
        axes.set_title(titles[panel], fontsize=10.5, weight='bold', loc='left')
        axes.set_ylabel('top-1 (%)', fontsize=9)
        axes.grid(color='#eeeeee', axis='y')
        axes.set_axisbelow(True)
        axes.spines[['top', 'right']].set_visible(False)
        if panel == 'lowshot':
            _draw_lines(axes, results)
        else:
            _draw_bars(axes, results, panel)
    figure.axes[0].legend(fontsize=8, frameon=False)
    return figure


def _draw_lines(axes: 'Axes', results: list[dict]) -> None:
    for index, result in enumerate(results):
        points = sorted(
            (subset['images_per_class'], subset['mean'], subset['std'])
            for subset in result['lowshot']
        )
        images, means, stds = zip(*points)
        axes.errorbar(
            images,
            means,
            stds,
            color=COLORS[index % len(COLORS)],
            marker=MARKERS[index % len(MARKERS)],
            label=result['name'],
            linestyle='--',
            capsize=3,
        )
    axes.set_xscale('log')
    axes.set_xticks(images, [f'{number:.3g}' for number in images])
    axes.minorticks_off()
    axes.set_xlabel('labelled images a class', fontsize=9)


def _draw_bars(axes: 'Axes', results: list[dict], panel: str) -> None:
    width = 0.8 / len(results)
    for index, result in enumerate(results):
        values = result[panel]
        if panel == 'linear':
            values = {'': values['top1']}
        places = [i + width * index for i in range(len(values))]
        bars = axes.bar(
            places,
            list(values.values()),
            0.92 * width,
            color=COLORS[index % len(COLORS)],
            label=result['name'],
        )
        axes.bar_label(bars, fmt='%.1f', fontsize=8)
    centre = 0.4 - width / 2
    axes.set_xticks([i + centre for i in range(len(values))], list(values))


def _short_names(paths: Sequence[str]) -> list[str]:
    """File names where they differ, else paths."""
    names = [Path(path).stem for path in paths]
    return names if len(set(names)) == len(names) else list(paths)


def main(argv: Sequence[str] | None = None) -> None:
    """Compare them, print the table, write table, figures and plot."""
    args = parse_args(argv)
    # The first import of mmmoca checks the installation.
    from mmmoca.evaluation.report import write_json, write_whole

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
    write_whole(
        args.out_dir / 'compare.md', lambda path: path.write_text(table)
    )
    figure = draw_comparison(results)
    write_whole(
        args.out_dir / 'compare.png',
        lambda path: figure.savefig(path, dpi=130),
    )
    print(f'\n{table}\n{args.out_dir / "compare.png"}')


if __name__ == '__main__':
    main()
