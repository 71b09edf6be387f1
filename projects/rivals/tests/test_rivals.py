# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Rivals train the same encoder, and are measured by the same numbers."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.logging import MessageHub
from mmengine.registry import MODELS, init_default_scope
from sklearn.metrics import average_precision_score
from torch.nn import functional as F

from mmmoca.models.transformer import attention
from projects import trials
from projects.rivals import run
from projects.rivals.hooks import CPUSecondsHook, RivalHook
from projects.rivals.measure import accuracies
from projects.rivals.pictures import draw
from projects.rivals.run import CONFIGS, HEAD, table
from tests.helpers.judges import knn_judge


def model_of(method):
    cfg = Config.fromfile(CONFIGS[method])
    init_default_scope(cfg.default_scope)
    return MODELS.build(cfg.model)


def test_all_train_one_encoder():
    shapes = []
    for method in CONFIGS:
        weights = model_of(method).backbone.state_dict()
        shapes.append({k: v.shape for k, v in weights.items()})
    assert all(found == shapes[0] for found in shapes)


def test_rivals_have_what_moca_has():
    """A teacher that may end near the student, and the faster attention."""
    model = model_of('byol')
    assert model.target_net.end_momentum == 0  # mmpretrain's own
    RivalHook(end=0.7).before_train(SimpleNamespace(model=model))
    assert model.target_net.end_momentum == 0.7
    layers = [*model.backbone.layers, *model.target_net.module[0].layers]
    assert len(layers) == 8
    for layer in layers:
        assert layer.attn.scaled_dot_product_attention is attention


def test_seconds_of_a_run_that_was_stopped():
    hub = MessageHub.get_instance('rivals')
    runner, hook = SimpleNamespace(message_hub=hub), CPUSecondsHook()
    hub.update_info('cpu_seconds', 1000.0)
    hook.before_train(runner)
    hook.after_train_iter(runner)
    assert 1000 < hub.get_info('cpu_seconds') < 1010


def test_accuracies():
    """k-NN and retrieval again, by scikit-learn."""
    generator = torch.Generator().manual_seed(0)
    known, asked = torch.arange(60) % 3, torch.arange(30) % 3
    bank, queries = (
        torch.randn(len(labels), 6, generator=generator)
        + 4 * F.one_hot(labels, 6)
        for labels in (known, asked)
    )
    values, rate = accuracies(bank, known, queries, asked, [1e-9, 1.0])
    bank, queries = F.normalize(bank), F.normalize(queries)
    accuracy = knn_judge(bank, known, 20).score(queries, asked)
    precisions = [
        average_precision_score(known == label, row)
        for row, label in zip(queries @ bank.T, asked)
    ]
    assert values['k-NN'] == pytest.approx(100 * accuracy, abs=0.01)
    assert values['mAP'] == pytest.approx(100 * np.mean(precisions), abs=0.01)
    assert values['linear'] > 90 and rate == 1


def curve_of(avg, cls):
    """Two measurements of a run; [CLS] is better for the linear probe."""
    report = {
        feature: {'k-NN': knn, 'linear': 100 - knn, 'mAP': 3.0}
        for feature, knn in (('avg', avg), ('cls', cls))
    }
    end = dict(step=9, seconds=4.4, report=report)
    return [dict(end, step=4, seconds=2.0), end]


def test_table_and_picture():
    seeds = dict(moca=[curve_of(65.0, 60.0), curve_of(69.0, 60.0)])
    row = dict(zip(HEAD, *table(seeds, 'report')))
    assert row['k-NN avg'] == '67.0 ± 2.8' and row['seconds'] == '4'
    assert row['linear'] == '40.0 ± 0.0'
    (line,) = draw(dict(small=seeds)).axes[0].get_lines()
    assert line.get_xdata().tolist() == [2, 4.4]
    assert line.get_ydata().tolist() == [67, 67]


@pytest.mark.slow
@pytest.mark.processes
def test_command(root, tmp_path, monkeypatch, capsys):
    """Methods train and are measured, once: with two encoders, with one."""
    monkeypatch.setattr(run, 'SETS', dict(small=[]))
    monkeypatch.setattr(run, 'RESULTS', tmp_path / 'results.jsonl')
    run.RESULTS.touch()
    (tmp_path / 'small').symlink_to(root)
    command = ['run', tmp_path, '--seeds', 1, '--times', 0.01, '--jobs', 2]
    command += ['--methods', 'byol', 'mae']
    monkeypatch.setattr(sys, 'argv', [*map(str, command)])
    run.main()
    printed = capsys.readouterr().out
    curves = [json.loads(row)['curve'] for row in run.RESULTS.open()]
    assert len(curves) == 2
    for curve in curves:
        steps, seconds = zip(*((p['step'], p['seconds']) for p in curve))
        assert sorted(set(steps)) == [*steps]
        assert seconds[0] > 0 and sorted(seconds) == [*seconds]
    assert (tmp_path / 'curves.png').stat().st_size > 10_000
    monkeypatch.setattr(trials, 'tool', None)  # nothing is trained again
    run.main()
    assert (
        printed.splitlines()[-4:] == capsys.readouterr().out.splitlines()[-4:]
    )


def test_bad_methods(tmp_path, monkeypatch, capsys):
    for method in ('dino', 'mae batch-few'):
        command = ['run', str(tmp_path), '--methods', method]
        monkeypatch.setattr(sys, 'argv', command)
        with pytest.raises(SystemExit):
            run.main()
        assert '--methods' in capsys.readouterr().err
