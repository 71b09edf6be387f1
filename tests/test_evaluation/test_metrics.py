# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The metrics of the frozen protocols, on predictions made by hand."""

import pytest
import torch

from mmmoca.evaluation import KNNAccuracy, LinearProbeAccuracy

# Places of the true class for six images and three classifiers.
PLACES = [[0, 3, 0], [1, 0, 0], [6, 0, 4], [2, 0, 0], [0, 5, 5], [4, 1, 0]]


def evaluate(metric, samples):
    for sample in samples:
        metric.process(None, [sample])
    return metric.evaluate(len(samples))


def probe_sample(places, num_classes=10):
    return dict(
        label_places=torch.tensor(places),
        base_lrs=(0.01, 0.1, 1.0),
        num_classes=num_classes,
    )


def test_top5_only_of_many_classes():
    found = dict(gt_label=torch.tensor([1]), knn_pred=dict(k1=[1]))
    sample = found | dict(num_classes=9)
    assert evaluate(KNNAccuracy(), [sample]) == {'knn/top1_k1': 100.0}
    sample = probe_sample(PLACES[0], num_classes=9)
    assert 'linear/top5' not in evaluate(LinearProbeAccuracy(), [sample])


def test_best_classifier_of_a_probe():
    samples = map(probe_sample, PLACES)
    assert evaluate(LinearProbeAccuracy(), [*samples]) == {
        'linear/top1': pytest.approx(400 / 6),
        'linear/top5': pytest.approx(500 / 6),
        'linear/base_lr': 1.0,
        'linear/head': 2,
    }


def test_of_equal_classifiers_the_lowest_rate():
    samples = [probe_sample([1, 0, 0]), probe_sample([0, 0, 0])]
    metrics = evaluate(LinearProbeAccuracy(), samples)
    assert metrics['linear/head'] == 1 and metrics['linear/base_lr'] == 0.1
