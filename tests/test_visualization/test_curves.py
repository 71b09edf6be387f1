# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Curves of a run."""

import json

import pytest
from mmengine.config import Config

from mmmoca.visualization.curves import draw_curves, draw_run, read_scalars


def write(path, *records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(''.join(json.dumps(record) + '\n' for record in records))
    return path


def train(step, **values):
    return dict(loss=10 - step, time=0.5, iter=step, step=step) | values


def curves(scalars):
    return {name: list(zip(*curve)) for name, curve in scalars.items()}


def test_iterations(tmp_path):
    path = write(
        tmp_path / 'scalars.json',
        train(2, lr=0.1, own=3),
        train(4),
        {'knn/top1_k20': 30, 'knn/top5_k20': 60, 'time': 9, 'step': 5},
        train(6, lr=0.2),
    )
    scalars = read_scalars(path)
    assert curves(scalars) == {
        'loss': [(2, 8), (4, 6), (6, 4)],
        'time': [(2, 0.5), (4, 0.5), (6, 0.5)],
        'lr': [(2, 0.1), (6, 0.2)],
        'own': [(2, 3)],
        'knn/top1_k20': [(5, 30)],
        'knn/top5_k20': [(5, 60)],
    }
    measured = {'knn/untrained_k20': ([0], [7]), 'knn/raw_k20': ([0], [9])}
    figure = draw_curves(scalars | measured)
    accuracy, loss, rate, own = figure.axes
    dots, *dashes = accuracy.lines
    assert dots.get_xydata().tolist() == [[5, 30]]
    assert [set(line.get_ydata()) for line in dashes] == [{7}, {9}]
    labels = [line.get_label() for line in dashes]
    assert labels == ['untrained_k20', 'raw_k20']
    # Lines look different, and all panels have the same range.
    assert len({line.get_linestyle() for line in dashes}) == 2
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert loss.get_xlim()[1] > 6
    (line,) = loss.lines
    assert line.get_xydata().tolist() == [[2, 8], [4, 6], [6, 4]]
    assert rate.lines[0].get_xydata().tolist() == [[2, 0.1], [6, 0.2]]
    assert rate.get_title(loc='left') == 'learning rate'
    assert own.get_title(loc='left') == 'own'


def test_a_run_with_its_config(tmp_path):
    """The figure shows K and a title, and has no empty cell."""
    names = 'loss', 'codebook_perplexity', 'msd', 'momentum', 'lr'
    folder = tmp_path / '20260101_000000' / 'vis_data'
    values = train(3, **dict.fromkeys(names, 0.5))
    write(folder / 'scalars.json', values, {'knn/top1_k20': 30, 'step': 3})
    part = dict(data_root='photos')
    data = dict(dataset=dict(type='RepeatDataset', dataset=part))
    model = dict(codebook=dict(num_words=640))
    cfg = dict(work_dir='runs/a', train_dataloader=data, model=model)
    Config(cfg).dump(folder / 'config.py')
    figure = draw_run(tmp_path)
    title = figure.get_suptitle()
    assert 'runs/a' in title and 'photos' in title
    _, _, perplexity, *others = figure.axes
    assert len(others) == 3
    spans = [a.get_subplotspec() for a in figure.axes]
    cells = [(s.rowspan, s.colspan) for s in spans]
    assert sum(len(row) * len(column) for row, column in cells) == 8
    assert set(perplexity.lines[1].get_ydata()) == {640}


KNN = {'knn/top1_k20': 30, 'step': 2}


@pytest.mark.parametrize(
    'runs, loss, accuracy',
    [
        # A validation is counted in epochs.
        ([[train(100, epoch=2), KNN]], [100], [(100, 30)]),
        # If a run stopped before a validation, the resumed run begins with it.
        ([[train(3), train(6)], [KNN, train(9)]], [3, 6, 9], [(6, 30)]),
        # The run was at step 7, and resumed from a checkpoint of step 4.
        ([[train(3), train(7)], [train(5), train(9)]], [3, 5, 9], None),
    ],
)
def test_runs_that_go_on(tmp_path, runs, loss, accuracy):
    for day, records in enumerate(runs):
        folder = tmp_path / f'2026010{day}_000000' / 'vis_data'
        write(folder / 'scalars.json', *records)
    found = curves(read_scalars(tmp_path))
    assert [step for step, _ in found['loss']] == loss
    assert found.get('knn/top1_k20') == accuracy


def test_nothing_to_read(tmp_path):
    with pytest.raises(FileNotFoundError, match=tmp_path.name):
        read_scalars(tmp_path)
    path = write(tmp_path / 'scalars.json', dict(mIoU=3, step=1))
    with pytest.raises(ValueError, match='draw'):
        draw_curves(read_scalars(path))
    path.write_bytes(b'PK\x03\x80')  # a checkpoint, for example
    with pytest.raises(ValueError, match='scalars.json'):
        read_scalars(path)
