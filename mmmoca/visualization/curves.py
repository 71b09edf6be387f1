# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Curves of a run, from the scalars that MMEngine writes."""

import json
from pathlib import Path

from matplotlib.figure import Figure

__all__ = ['draw_curves', 'read_scalars']

Curve = tuple[list[int], list[float]]

# Title, and what the names in the log begin with.
PANELS = {
    'k-NN accuracy (%)': 'knn/top1_',
    'loss (KL divergence)': 'loss',
    'codebook perplexity': 'codebook_perplexity',
    'image information (nats)': 'image_information',
    'mean similarity difference μ': 'msd',
    'teacher momentum': 'momentum',
    'learning rate': 'lr',
}


def read_scalars(path: str | Path) -> dict[str, Curve]:
    """Read the scalars of a run.

    Args:
        path (str | Path): A ``scalars.json``, or a work dir: then the one
            of its latest run.

    Returns:
        Dict[str, Tuple[list, list]]: Name -> iterations and values. Of what
        training and validation both log (their times) training's.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no file of scalars.
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob('*/vis_data/scalars.json'))
        if not files:
            raise FileNotFoundError(f'no run has written scalars in {path}')
        path = files[-1]
    points: dict[str, dict[int, float]] = {}
    trained = dict(step=0)
    for line in path.read_text(encoding='utf-8').splitlines():
        record = json.loads(line)
        step = record.pop('step')
        if 'iter' in record:
            trained = dict(record, step=step)
        # Validations may be counted in epochs, which are fewer.
        step = max(step, trained['step'])
        for name, value in record.items():
            if 'iter' in record or name not in trained:
                points.setdefault(name, {})[step] = value
    return {
        name: (list(values), list(values.values()))
        for name, values in points.items()
        if name not in ('iter', 'epoch')
    }


def draw_curves(
    scalars: dict[str, Curve], baselines: dict[str, float] | None = None
) -> Figure:
    """Draw the curves of a MOCA run, a panel for each kind that it logged.

    Args:
        scalars (Dict[str, Tuple[list, list]]): What :func:`read_scalars`
            returns.
        baselines (Dict[str, float], optional): Name -> accuracy to be drawn
            as a dashed line beside the k-NN accuracy.

    Returns:
        Figure: To be written by its ``savefig``.

    Raises:
        ValueError: If none of the scalars is one that has a panel.
    """
    panels = {
        title: names
        for title, start in PANELS.items()
        if (names := [name for name in scalars if name.startswith(start)])
    }
    if not panels:
        raise ValueError(
            f'nothing to draw among {sorted(scalars)}: these are not the '
            'scalars of a MOCA run'
        )
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure((3.7 * columns, 2.7 * rows), layout='constrained')
    for index, (title, names) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(rows, columns, index)
        axes.set_title(title, fontsize=10.5, weight='bold', loc='left')
        for name in names:
            axes.plot(*scalars[name], label=name, marker='.')
        if names[0].startswith('knn/'):
            for name, value in (baselines or {}).items():
                axes.axhline(value, label=name, color='grey', linestyle='--')
            axes.set_ylim(0, 100)
        if len(axes.lines) > 1:
            axes.legend(fontsize=8, frameon=False)
        axes.set_xlabel('iteration', fontsize=9)
        axes.grid(color='#eeeeee')
    return figure
