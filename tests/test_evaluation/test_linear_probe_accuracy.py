# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The best of a linear probe's classifiers."""

import numpy as np
import pytest
import torch

from mmmoca.evaluation import LinearProbeAccuracy

from ..distributed import run_processes

# Places of the truth for six images and three classifiers.
PLACES = [[0, 3, 0], [1, 0, 0], [6, 0, 4], [2, 0, 0], [0, 5, 5], [4, 1, 0]]


def samples(indices, num_classes=8):
    return [
        dict(
            sample_idx=index,
            label_places=torch.tensor(PLACES[index]),
            base_lrs=(0.01, 0.1, 1.0),
            num_classes=num_classes,
        )
        for index in indices
    ]


def evaluate(indices=range(6), **kwargs):
    metric = LinearProbeAccuracy()
    for sample in samples(indices, **kwargs):
        metric.process(None, [sample])
    return metric.evaluate(6)


def test_best_classifier():
    assert evaluate() == {
        'linear/top1': pytest.approx(400 / 6),
        'linear/top5': pytest.approx(500 / 6),
        'linear/base_lr': 1.0,
        'linear/head': 2,
    }


def test_few_classes_have_no_top5():
    assert 'linear/top5' not in evaluate(num_classes=5)


def test_of_equal_ones_the_lowest_rate():
    metric = LinearProbeAccuracy()
    results = [(0, np.array([1, 0, 0])), (1, np.array([0, 0, 0]))]
    metric.process(None, samples([0]))
    metrics = metric.compute_metrics(results)
    assert metrics['head'] == 1 and metrics['base_lr'] == 0.1


def test_images_shown_twice_count_once():
    metric = LinearProbeAccuracy()
    metric.process(None, samples([*range(6), 4, 4, 4]))
    metrics = metric.compute_metrics(metric.results)
    assert metrics['top1'] == pytest.approx(400 / 6)


def run_rank():
    # Four each, as a padded sampler deals them.
    rank = torch.distributed.get_rank()
    return evaluate([0, 2, 4, 0] if rank == 0 else [1, 3, 5, 1])


@pytest.mark.processes
def test_two_ranks_agree_with_one():
    assert run_processes(run_rank, 2) == [evaluate()] * 2


def test_foreign_samples():
    metric = LinearProbeAccuracy()
    sample = samples([0])[0]
    with pytest.raises(ValueError, match="model.type='mmmoca.LinearProbe'"):
        metric.process(None, [dict(sample_idx=0, pred_score=0)])
    del sample['sample_idx']
    with pytest.raises(ValueError, match='meta_keys of PackInputs'):
        metric.process(None, [sample])
