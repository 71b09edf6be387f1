# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Curves of a run, from the scalars of MMEngine's log."""

import json
from itertools import chain
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from mmengine.config import Config

from mmmoca.config_parts import member_configs
from mmmoca.messages import listed

Curve = tuple[list[int], list[float]]

# Title of a panel -> how the names of its scalars in the log begin.
PANELS = {
    'k-NN accuracy (%)': 'knn/top1_',
    'agreement of neighbours (%)': 'agreement/neighbours',
    'loss': 'loss',
    'codebook perplexity': 'codebook_perplexity',
    'image information (nats)': 'image_information',
    'effective rank (RankMe)': 'rank_me',
    'mean similarity difference μ': 'msd',
    'teacher momentum': 'momentum',
    'learning rate': 'lr',
}
# Scalars that mmmoca or MMEngine logs but that get no panel. Scalars that are
# neither here nor in PANELS come from the user's own classes or hooks.
WITHOUT = (
    *('time', 'data_time', 'memory', 'base_lr', 'grad_norm', 'skipped'),
    *('knn/', 'agreement/'),
)
STYLES = ('--', ':', '-.')


def read_scalars(path: str | Path) -> dict[str, Curve]:
    """Read the scalars of a run.

    Args:
        path (str | Path): A ``scalars.json``, or a work dir. If a resumed run
            repeated a step, the later values are returned.

    Returns:
        dict[str, tuple[list, list]]: Name -> iterations and values. If
        training and validation log the same name, such as a time, the values
        are those of training.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file does not contain scalars.
    """
    path = Path(path)
    files = [path]
    if path.is_dir():
        files = sorted(path.glob('*/vis_data/scalars.json'))
        if not files:
            raise FileNotFoundError(f'no run has written scalars in {path}')
    points: dict[str, dict[int, float]] = {}
    trained, now = {}, 0
    for step, record in chain.from_iterable(map(_records, files)):
        if 'iter' in record:
            if step <= now:  # a resumed run repeats this step
                for name, values in points.items():
                    points[name] = {
                        s: v for s, v in values.items() if s < step
                    }
            trained, now = record, step
        for name, value in record.items():
            if 'iter' in record or name not in trained:
                # Validation may log the epoch as the step. It is smaller than
                # the iteration.
                points.setdefault(name, {})[max(step, now)] = value
    return {
        name: (list(values), list(values.values()))
        for name, values in points.items()
        if values and name not in ('iter', 'epoch')
    }


def _records(path: Path) -> list[tuple[int, dict]]:
    """Return the step and the values of each line of a file."""
    try:
        records = map(json.loads, path.read_text('utf-8').splitlines())
        return [(record.pop('step'), record) for record in records]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f'{path} does not contain scalars') from error


def _without_baselines(
    scalars: dict[str, Curve],
) -> tuple[dict[str, Curve], dict[str, dict[str, float]]]:
    """Separate the baselines, measured before the first step, from the rest.

    Returns the other scalars, then protocol -> name -> baseline.
    """
    judged = 'knn/top', 'agreement/neighbours'
    others = dict(scalars)
    found: dict[str, dict[str, float]] = {'knn': {}, 'agreement': {}}
    for name in scalars:
        protocol, _, short = name.partition('/')
        if protocol in found and not name.startswith(judged):
            found[protocol][short] = others.pop(name)[1][-1]
    return others, found


def draw_curves(
    scalars: dict[str, Curve],
    num_words: int | None = None,
    title: str = '',
) -> Figure:
    """Draw the curves of a MOCA run, with a panel for each kind of scalar.

    Each scalar that a user's own class or hook logs gets its own panel.

    Args:
        scalars (dict[str, tuple[list, list]]): Result of
            :func:`read_scalars`. A measurement from before the first step is
            a horizontal line, dashed or dotted, in the panel of its kind.
        num_words (int, optional): K, drawn as a line in the panel of the
            perplexity.
        title (str): Title of the figure.

    Returns:
        Figure: The figure.

    Raises:
        ValueError: If none of the scalars is from a MOCA run.
    """
    scalars, baselines = _without_baselines(scalars)
    panels = {
        panel: names
        for panel, start in PANELS.items()
        if (names := [name for name in scalars if name.startswith(start)])
    }
    if not panels:
        raise ValueError(
            f'nothing to draw among {sorted(scalars)}: these are not the '
            'scalars of a MOCA run'
        )
    drawn = (*WITHOUT, *PANELS.values())
    panels |= {name: [name] for name in scalars if not name.startswith(drawn)}
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure((3.7 * columns, 2.7 * rows + 0.3), layout='constrained')
    figure.suptitle(title, fontsize=10.5)
    # The first panel takes the cells that would otherwise be empty.
    cells = [*panels][:1] * (rows * columns - len(panels)) + [*panels]
    grid = np.reshape(np.array(cells, object), (rows, columns)).tolist()
    for panel, axes in figure.subplot_mosaic(grid, sharex=True).items():
        axes.set_title(panel, fontsize=10.5, weight='bold', loc='left')
        names = panels[panel]
        for name in names:
            label = name.rpartition('/')[2]
            axes.plot(*scalars[name], label=label, marker='.', markersize=4)
        lines = {}
        if names[0] == 'codebook_perplexity' and num_words:
            lines = {f'K = {num_words}': num_words}
        if (protocol := names[0].partition('/')[0]) in baselines:
            lines = baselines[protocol]
        for style, (name, value) in zip(STYLES * 9, lines.items()):
            axes.axhline(value, label=name, color='grey', linestyle=style)
        if protocol in baselines:
            # Even a good encoder's agreement is far below 100 %.
            axes.set_ylim(0, 102 if protocol == 'knn' else None)
        if len(axes.get_legend_handles_labels()[1]) > 1:
            axes.legend(fontsize=8, frameon=False)
        cell = axes.get_subplotspec()
        if cell.is_last_row() or len(cell.colspan) > 1:  # a wider panel
            axes.tick_params(labelbottom=True)
            axes.set_xlabel('iteration', fontsize=9)
        axes.grid(color='#eeeeee')
    steps = [max(scalars[name][0]) for name in sum(panels.values(), [])]
    axes.set_xlim(0, 1.02 * max(steps))
    return figure


def draw_run(path: str | Path) -> Figure:
    """Draw a run's curves, and name its work dir, its image folders and K.

    Args:
        path (str | Path): See :func:`read_scalars`.

    Returns:
        Figure: The figure.

    Raises:
        FileNotFoundError: See :func:`read_scalars`.
        ValueError: See :func:`read_scalars` and :func:`draw_curves`.
    """
    scalars, path = read_scalars(path), Path(path)
    found = sorted(path.glob('*/vis_data/config.py')) if path.is_dir() else []
    file = found[-1] if found else path.with_name('config.py')
    if not file.is_file():
        return draw_curves(scalars)
    cfg = Config.fromfile(file, import_custom_modules=False)
    words = cfg.get('model', {}).get('codebook', {}).get('num_words')
    data = cfg.get('train_dataloader', {}).get('dataset', {})
    roots = [part.get('data_root') for part in member_configs(data)]
    title = f'{cfg.get("work_dir")}'
    if roots := [*dict.fromkeys(filter(None, roots))]:
        title += f', trained on {listed(roots)}'
    return draw_curves(scalars, words, title)
