# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checkpoints side by side: a table and a figure."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mmmoca.evaluation.presets import preset_line
from mmmoca.evaluation.report import render_table
from mmmoca.messages import shown

__all__ = ['comparison_table', 'draw_comparison']

COLORS = ('#d55e00', '#0072b2', '#009e73', '#cc79a7', '#e69f00', '#56b4e9')
MARKERS = 'o^s*Dv'


def comparison_table(results: list[dict]) -> str:
    """One row a checkpoint, one column a protocol and setting.

    Args:
        results (list[dict]): A ``name`` for each, and what
            :meth:`~mmmoca.evaluation.comparison.Comparison.evaluate` gave.

    Returns:
        str: A table in Markdown; accuracies in percent. A list below it says
        which features they are of.
    """
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
    table = render_table(list(rows[0]), [list(row.values()) for row in rows])
    notes = [
        f'- {shown(result["name"])}: {preset_line(result["settings"])}\n'
        for result in results
    ]
    return f'{table}\n{"".join(notes)}'


def draw_comparison(results: list[dict]) -> Figure:
    """Draw low-shot accuracies as the paper's Figure 1b, others as bars.

    Args:
        results (list[dict]): A ``name`` for each, and what
            :meth:`~mmmoca.evaluation.comparison.Comparison.evaluate` gave.

    Returns:
        Figure: To be written by its ``savefig``.
    """
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


def _draw_lines(axes: Axes, results: list[dict]) -> None:
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


def _draw_bars(axes: Axes, results: list[dict], panel: str) -> None:
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
