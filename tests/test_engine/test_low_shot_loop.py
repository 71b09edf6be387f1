# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Low-shot classification in real Runners, on 1 to 3 processes."""

import numpy as np
import pytest
from mmengine.fileio import load

from tests.distributed import run_processes
from tests.frozen import described, draw, folder_loader, toy_runner
from tests.judges import centre, low_shot_judge

SUBSETS = dict(
    few=[
        ['class_0/0.jpg', 'class_1/0.jpg', 'class_2/1.jpg', 'class_3/2.jpg'],
        ['class_0/1.jpg', 'class_1/0.jpg', 'class_2/0.jpg', 'class_3/0.jpg'],
    ],
    more=[[f'class_{label}/{i}.jpg' for label in range(4) for i in range(3)]],
)


@pytest.fixture
def root(tmp_path):
    """20 training and 19 validation images of 4 classes, and subsets."""
    draw(tmp_path / 'train', (5, 6, 5, 4), 0)
    draw(tmp_path / 'val', (4, 5, 7, 3), 1)
    for name, lists in SUBSETS.items():
        for number, lines in enumerate(lists):
            file = tmp_path / f'{name}{number}.txt'
            file.write_text('\n'.join(lines) + '\n')
    return tmp_path


def config(root, subsets=None, **loop):
    if subsets is None:
        subsets = {
            name: [str(root / f'{name}{i}.txt') for i in range(len(lists))]
            for name, lists in SUBSETS.items()
        }
    return dict(
        work_dir=str(root / 'work'),
        test_dataloader=folder_loader(root / 'val'),
        test_evaluator=dict(type='mmmoca.LowShotAccuracy'),
        test_cfg=dict(
            type='mmmoca.LowShotTestLoop',
            train_dataloader=folder_loader(root / 'train'),
            subsets=subsets,
            **loop,
        ),
    )


def expected(root):
    """Name -> accuracy of each set, from features made one by one."""
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
    cfg, dump = config(root), str(root / 'predictions.pkl')
    dumping = dict(type='DumpResults', out_file_path=dump)
    cfg['test_evaluator'] = [cfg['test_evaluator'], dumping]
    metrics = toy_runner(**cfg).test()
    mean, std = np.mean(accuracies['few']), np.std(accuracies['few'])
    assert metrics == {
        'lowshot/top1_few': pytest.approx(mean),
        'lowshot/top1_few_std': pytest.approx(std),
        'lowshot/top1_more': pytest.approx(accuracies['more'][0]),
    }
    samples = load(dump)
    assert [sample['sample_idx'] for sample in samples] == list(range(19))
    hits = [s['lowshot_pred']['few'] == s['gt_label'].numpy() for s in samples]
    assert 100 * np.mean(hits, axis=0) == pytest.approx(accuracies['few'])


def test_what_does_not_converge_is_said_once(root, caplog):
    run = toy_runner(**config(root, max_iter=1))
    run.logger.addHandler(caplog.handler)
    run.test()
    said = [r.getMessage() for r in caplog.records if r.levelname == 'WARNING']
    assert len(said) == 1
    for part in ('few, set 0', 'few, set 1', 'more, set 0', 'max_iter'):
        assert part in said[0]


def _evaluate(root):
    run = toy_runner(**config(root), launcher='pytorch')
    return run.test(), len(run.model.module.log)


@pytest.mark.processes
@pytest.mark.parametrize('world', [2, 3])
def test_many_processes_agree_with_one(root, world):
    expected = toy_runner(**config(root)).test()
    for found, seen in run_processes(_evaluate, world, root):
        assert found == expected
        # A share of 12 and of 19 images.
        assert seen == {2: 2 + 3, 3: 1 + 2}[world]


def test_bad_config(root):
    for word, change in (
        ('at least one list', dict(subsets={})),
        ('no.txt', dict(subsets=dict(a='no.txt'))),
        ('regularization', dict(regularization=0)),
    ):
        with pytest.raises(ValueError, match=word):
            toy_runner(**config(root, **change)).test()
