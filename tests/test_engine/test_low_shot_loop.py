# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Low-shot classification in real runners, on one and two processes."""

import numpy as np
import pytest

from tests.helpers.distributed import run_processes
from tests.helpers.frozen import described, draw, folder_loader, toy_runner
from tests.helpers.judges import centre, low_shot_judge
from tests.helpers.tools import load_tool

SUBSETS = dict(
    few=[
        ['class_0/0.jpg', 'class_1/0.jpg', 'class_2/1.jpg', 'class_3/2.jpg'],
        ['class_0/1.jpg', 'class_1/0.jpg', 'class_2/0.jpg', 'class_3/0.jpg'],
    ],
    more=[[f'class_{label}/{i}.jpg' for label in range(4) for i in range(3)]],
)


@pytest.fixture
def root(tmp_path):
    """Write 20 training and 19 validation images of 4 classes, and subsets."""
    draw(tmp_path / 'train', (5, 6, 5, 4), 0)
    draw(tmp_path / 'val', (4, 5, 7, 3), 1)
    for name, lists in SUBSETS.items():
        for number, lines in enumerate(lists):
            file = tmp_path / f'{name}{number}.txt'
            file.write_text('\n'.join(lines) + '\n')
    return tmp_path


def config(root, **loop):
    subsets = {
        name: [str(root / f'{name}{i}.txt') for i in range(len(lists))]
        for name, lists in SUBSETS.items()
    }
    loop_cfg = dict(
        type='mmmoca.LowShotTestLoop',
        train_dataloader=folder_loader(root / 'train'),
        subsets=subsets,
    )
    return dict(
        work_dir=str(root / 'work'),
        test_dataloader=folder_loader(root / 'val'),
        test_evaluator=dict(type='mmmoca.LowShotAccuracy'),
        test_cfg=loop_cfg | loop,
    )


def expected(root):
    """Return each subset's accuracies, from features computed one by one."""
    paths, feats, labels = described(root / 'train')
    rows = {path.split('train/')[1]: row for row, path in enumerate(paths)}
    feats = centre(feats)
    _, query, truth = described(root / 'val')

    def accuracy(lines):
        own = [rows[line] for line in lines]
        judge = low_shot_judge(feats[own], labels[own])
        return 100 * judge.score(centre(query), truth)

    return {name: [*map(accuracy, lists)] for name, lists in SUBSETS.items()}


def test_equals_sklearn(root):
    accuracies = expected(root)
    assert accuracies['few'][0] != accuracies['few'][1]
    metrics = toy_runner(**config(root)).test()
    assert metrics == {
        'lowshot/top1_few': pytest.approx(np.mean(accuracies['few'])),
        'lowshot/top1_few_std': pytest.approx(np.std(accuracies['few'])),
        'lowshot/top1_more': pytest.approx(accuracies['more'][0]),
    }


def test_images_are_drawn_from_a_seed(root):
    """make_subset.py draws the same lists; None leaves a subset out."""
    tool = load_tool('dataset_converters/make_subset')
    lists = tool.make_subsets(root / 'train', root, [2], [], 2, seed=7)
    read, made = (
        toy_runner(**config(root, subsets=dict(a=x, b=None), seed=7)).test()
        for x in (list(map(str, lists)), dict(shots=2, sets=2))
    )
    assert read == made and len(made) == 2


def test_what_does_not_converge_is_said_once(root, caplog):
    run = toy_runner(**config(root, max_iter=1))
    run.logger.addHandler(caplog.handler)
    run.test()
    (warning,) = [
        r.message for r in caplog.records if r.levelname == 'WARNING'
    ]
    for part in ('few, set 0', 'few, set 1', 'more, set 0', 'max_iter'):
        assert part in warning


def evaluate(root):
    run = toy_runner(**config(root), launcher='pytorch')
    return run.test(), len(run.model.module.log)


@pytest.mark.processes
def test_two_processes_agree_with_one(root):
    expected = toy_runner(**config(root)).test()
    # Each process takes half of 12 and of 19 images, four at a time.
    assert run_processes(evaluate, 2, root) == [(expected, 2 + 3)] * 2
