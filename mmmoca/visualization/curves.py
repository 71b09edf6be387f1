# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Curves of a run, from the scalars of MMEngine's log."""

import json
import math
from pathlib import Path

from matplotlib.figure import Figure

Curve = tuple[list[int], list[float]]

# Title of a panel, and the prefix of its names in the log.
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
        path (str | Path): A ``scalars.json``, or a work dir. What a resumed
            run did again counts once.

    Returns:
        Dict[str, Tuple[list, list]]: Name -> iterations and values. For names
        that training and validation share, such as times, those of training.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no file of scalars.
    """
    path = Path(path)
    files = [path]
    if path.is_dir():
        files = sorted(path.glob('*/vis_data/scalars.json'))
        if not files:
            raise FileNotFoundError(f'no run has written scalars in {path}')
    points: dict[str, dict[int, float]] = {}
    for file in files:
        later = _read(file, max(points.get('iter', [0])))
        start = min(later.get('iter', ()), default=math.inf)
        for name in points | later:
            before = points.get(name, {})
            kept = {step: v for step, v in before.items() if step < start}
            points[name] = kept | later.get(name, {})
    return {
        name: (list(values), list(values.values()))
        for name, values in points.items()
        if values and name not in ('iter', 'epoch')
    }


def _read(path: Path, step: int) -> dict[str, dict[int, float]]:
    """Values of a file that begins at a step, by name and step."""
    points: dict[str, dict[int, float]] = {}
    trained = dict(step=step)
    try:
        with path.open(encoding='utf-8') as file:
            records = [json.loads(line) for line in file]
        steps = [record.pop('step') for record in records]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f'{path} is no file of scalars') from error
    for step, record in zip(steps, records):
        if 'iter' in record:
            trained = dict(record, step=step)
        # The step of a validation may be an epoch, which is smaller.
        step = max(step, trained['step'])
        for name, value in record.items():
            if 'iter' in record or name not in trained:
                points.setdefault(name, {})[step] = value
    return points


def draw_curves(
    scalars: dict[str, Curve], baselines: dict[str, float] | None = None
) -> Figure:
    """Draw the curves of a MOCA run, with a panel for each kind of scalar.

    Args:
        scalars (Dict[str, Tuple[list, list]]): Result of
            :func:`read_scalars`.
        baselines (Dict[str, float], optional): Name -> accuracy, drawn as a
            dashed line in the panel of k-NN.

    Returns:
        Figure: The figure.

    Raises:
        ValueError: If no scalar has a panel.
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
