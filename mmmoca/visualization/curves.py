# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Curves of a run, from the scalars that MMEngine writes."""

import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

__all__ = ['draw_curves', 'read_scalars']

Curve = tuple[np.ndarray, np.ndarray]

# Title, then name in the log -> name in the legend.
PANELS = (
    ('k-NN accuracy (%)', {}),
    (
        'loss (KL divergence)',
        {'loss': 'sum', 'loss_img': 'L_IMG', 'loss_loc': 'L_LOC'},
    ),
    ('codebook perplexity', {'codebook_perplexity': ''}),
    ('image information (nats)', {'image_information': ''}),
    ('mean similarity difference μ', {'msd': ''}),
    ('teacher momentum', {'momentum': ''}),
    ('learning rate', {'lr': ''}),
)
COLORS = ('#0072b2', '#d55e00', '#009e73', '#cc79a7')
DASHES = ('#777777', '#b0781e')


def read_scalars(path: str | Path) -> dict[str, Curve]:
    """Read the scalars of a run.

    Args:
        path (str | Path): A ``scalars.json``, or a work dir: then the one
            of its latest run.

    Returns:
        Dict[str, Tuple[np.ndarray, np.ndarray]]: Name -> iterations and
        values, (n, ) each. Of what training and validation both log (their
        times) training's.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it holds no scalars.
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob('*/vis_data/scalars.json'))
        if not files:
            raise FileNotFoundError(
                f'no run has written scalars in {path}: expected '
                '<time>/vis_data/scalars.json'
            )
        path = files[-1]
    points: dict[str, dict[int, float]] = {}
    trained = dict(step=0)
    for record in _records(path):
        step = record['step']
        if 'iter' in record:
            trained = record
        else:
            # Validations may be counted in epochs, which are fewer.
            step = max(step, trained['step'])
        for name, value in record.items():
            if record is trained or name not in trained:
                points.setdefault(name, {})[step] = value
    if not points:
        raise ValueError(f'{path} holds no scalars')
    return {
        name: (np.array(list(values)), np.array(list(values.values())))
        for name, values in points.items()
        if name not in ('iter', 'step', 'epoch')
    }


def _records(path: Path) -> list[dict]:
    try:
        lines = path.read_text(encoding='utf-8').splitlines()
        records = [json.loads(line) for line in lines]
    except ValueError as error:
        raise ValueError(f'{path} holds no scalars: {error}') from error
    if not all(isinstance(record, dict) for record in records):
        raise ValueError(f'{path} holds no scalars')
    return records


def draw_curves(
    scalars: dict[str, Curve], baselines: dict[str, float] | None = None
) -> Figure:
    """Draw the curves of a MOCA run, a panel for each kind that it logged.

    Args:
        scalars (Dict[str, Tuple[np.ndarray, np.ndarray]]): What
            :func:`read_scalars` returns.
        baselines (Dict[str, float], optional): Name -> accuracy to be drawn
            as a dashed line beside the k-NN accuracy.

    Returns:
        Figure: To be written by its ``savefig``.

    Raises:
        ValueError: If none of the scalars is one that has a panel.
    """
    accuracies = {
        name: f'MOCA ({name.removeprefix("knn/")})'
        for name in scalars
        if name.startswith('knn/top1')
    }
    panels = []
    for title, names in PANELS:
        names = names or accuracies
        names = {name: names[name] for name in names if name in scalars}
        if names:
            panels.append((title, names))
    if not panels:
        raise ValueError(
            f'nothing to draw among {sorted(scalars)}: these are not the '
            'scalars of a MOCA run'
        )
    rows = 1 if len(panels) < 4 else 2
    columns = -(-len(panels) // rows)
    figure = Figure(
        (3.7 * columns, 2.7 * rows), facecolor='white', layout='constrained'
    )
    end = max(steps[-1] for steps, _ in scalars.values())
    for index, (title, names) in enumerate(panels, start=1):
        axes = figure.add_subplot(rows, columns, index)
        axes.set_title(title, fontsize=10.5, weight='bold', loc='left')
        for color, (name, label) in zip(COLORS, names.items()):
            steps, values = scalars[name]
            marker = 'o' if name in accuracies else None
            axes.plot(
                steps,
                values,
                color=color,
                label=label,
                marker=marker,
                markersize=4,
                clip_on=False,
            )
        if name in accuracies:
            for color, (label, value) in zip(
                DASHES, (baselines or {}).items()
            ):
                axes.axhline(value, color=color, label=label, linestyle='--')
            axes.set_ylim(0, 100)
        if any(names.values()):
            axes.legend(fontsize=8, frameon=False)
        axes.set_xlim(0, end)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.tick_params(labelsize=8, color='#999999')
        axes.grid(color='#eeeeee')
        axes.spines[['top', 'right']].set_visible(False)
        axes.spines[['left', 'bottom']].set_color('#999999')
        if index > len(panels) - columns:
            axes.set_xlabel('iteration', fontsize=9)
    return figure
