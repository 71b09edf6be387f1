# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The k-NN loops in real Runners, on image folders, on 1 to 3 processes."""

import itertools
import json
import os
import pickle
import random
import re
import time

import numpy as np
import pytest
import torch
from mmengine.dist import get_rank
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.runner import Runner
from mmpretrain.models import ClsDataPreprocessor
from PIL import Image
from torch import nn

from mmmoca.engine import MOCAFSDPStrategy
from mmmoca.evaluation import gather_samples
from tests.distributed import run_processes
from tests.judges import knn_judge

_COUNT = itertools.count()
PIPELINE = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=16),
    dict(type='PackInputs'),
]


class ToyModel(BaseModel):
    """Pooled pixels through one layer; trains with dropout."""

    def __init__(self):
        super().__init__(ClsDataPreprocessor([120.0] * 3, [60.0] * 3))
        self.student = nn.Linear(48, 8)
        self.teacher = nn.Linear(48, 8)
        generator = torch.Generator().manual_seed(0)
        for param in self.parameters():
            param.data.normal_(generator=generator)
        self.log = []

    def extract_feat(self, inputs, which='teacher'):
        self.log.append(('extract_feat', self.training))
        pooled = nn.functional.adaptive_avg_pool2d(inputs, 4).flatten(1)
        return getattr(self, which)(pooled)

    def forward(self, inputs, data_samples=None, mode='tensor'):
        pooled = nn.functional.adaptive_avg_pool2d(inputs, 4).flatten(1)
        return dict(
            loss=nn.functional.dropout(self.student(pooled)).square().mean()
            + 0 * self.teacher(pooled).sum()
        )


def draw(folder, counts, seed):
    """A folder per class, whose colours overlap with other classes'."""
    rng = np.random.RandomState(seed)
    for label, count in enumerate(counts):
        path = folder / f'class_{label}'
        path.mkdir(parents=True)
        colour = np.random.RandomState(label).randint(60, 196, 3)
        for i in range(count):
            shift = rng.normal(0, 45, (4, 4, 3))
            small = np.clip(colour + shift, 0, 255).astype(np.uint8)
            Image.fromarray(small).resize((20, 20)).save(path / f'{i}.jpg')


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    """17 bank and 13 query images of 6 classes: 2 and 3 divide neither."""
    root = tmp_path_factory.mktemp('images')
    draw(root / 'bank', (5, 1, 4, 2, 3, 2), 0)
    draw(root / 'query', (2, 3, 1, 3, 2, 2), 1)
    draw(root / 'one_class', (4,), 2)
    return root


def loader(folder, **kwargs):
    shuffle = kwargs.pop('shuffle', False)
    dataset = dict(
        type='CustomDataset', data_root=str(folder), pipeline=PIPELINE
    )
    dataset.update(kwargs.pop('dataset', {}))
    return (
        dict(
            dataset=dataset,
            batch_size=4,
            num_workers=0,
            sampler=dict(type='DefaultSampler', shuffle=shuffle),
        )
        | kwargs
    )


def config(root, work_dir, bank=None, query=None, stage='val', **loop):
    loop_cfg = (
        dict(
            type=f'mmmoca.KNN{stage.capitalize()}Loop',
            bank_dataloader=bank or loader(root / 'bank'),
        )
        | loop
    )
    return {
        'work_dir': str(work_dir),
        f'{stage}_dataloader': query or loader(root / 'query'),
        f'{stage}_evaluator': dict(type='mmmoca.KNNAccuracy'),
        f'{stage}_cfg': loop_cfg,
    }


def runner(model=None, **kwargs):
    return Runner(
        model=model or ToyModel(),
        default_scope='mmpretrain',
        experiment_name=f'knn_{os.getpid()}_{next(_COUNT)}',
        randomness=dict(seed=3),
        **kwargs,
    )


def expected_accuracy(root, k, temperature, which='teacher'):
    """Top-1 of scikit-learn on features that are extracted one by one."""
    model = ToyModel().eval()
    feats, labels = {}, {}
    for part in ('bank', 'query'):
        dataset = Runner.build_dataloader(loader(root / part)).dataset
        inputs = [dataset[i]['inputs'] for i in range(len(dataset))]
        data = [
            model.data_preprocessor(dict(inputs=[img]))['inputs']
            for img in inputs
        ]
        with torch.no_grad():
            feats[part] = torch.cat(
                [model.extract_feat(img, which) for img in data]
            ).numpy()
        labels[part] = dataset.get_gt_labels()
    judge = knn_judge(feats['bank'], labels['bank'], k, temperature)
    return 100 * judge.score(feats['query'], labels['query'])


def test_val_equals_sklearn(root, tmp_path):
    metrics = runner(**config(root, tmp_path, k=(1, 3, 17))).val()
    assert list(metrics) == [
        'knn/top1_k1',
        'knn/top1_k3',
        'knn/top1_k17',
        'knn/top5_k1',
        'knn/top5_k3',
        'knn/top5_k17',
    ]
    for k in (1, 3, 17):
        expected = expected_accuracy(root, k, 0.07)
        assert 0 < expected < 100
        assert metrics[f'knn/top1_k{k}'] == pytest.approx(expected)
    # One neighbour votes for one class: the other four of the top five do
    # not count.
    assert metrics['knn/top5_k1'] == metrics['knn/top1_k1']
    assert metrics['knn/top5_k17'] > metrics['knn/top1_k17']


def test_one_key_moves_both_sets(root, tmp_path):
    parts = {
        part: loader(tmp_path / 'nowhere', dataset=dict(data_prefix=part))
        for part in ('bank', 'query')
    }
    cfg = config(root, tmp_path, **parts, k=3, data_root=str(root))
    metrics = runner(**cfg).val()
    expected = expected_accuracy(root, 3, 0.07)
    assert metrics['knn/top1_k3'] == pytest.approx(expected)
    assert parts['bank']['dataset']['data_root'] == str(tmp_path / 'nowhere')

    cfg['val_dataloader'] = Runner.build_dataloader(loader(root / 'query'))
    with pytest.raises(ValueError, match='a loader that is built'):
        runner(**cfg).val()


def test_test_loop_with_several_temperatures(root, tmp_path):
    metrics = runner(
        **config(
            root,
            tmp_path,
            stage='test',
            k=3,
            temperature=(0.05, 0.5),
            which='student',
        )
    ).test()
    for t in (0.05, 0.5):
        expected = expected_accuracy(root, 3, t, 'student')
        assert metrics[f'knn/top1_k3_t{t}'] == pytest.approx(expected)


def test_test_loop_writes_what_it_measured(root, tmp_path, caplog):
    run = runner(
        **config(root, tmp_path, stage='test', k=(3, 5), temperature=(0.05, 1))
    )
    run.logger.addHandler(caplog.handler)
    metrics = run.test()
    report = json.loads((tmp_path / 'knn.json').read_text())
    assert report['bank_images'] == 17 and report['query_images'] == 13
    assert report['classes'] == 6
    assert report['results'] == [
        dict(
            k=k,
            temperature=t,
            top1=metrics[f'knn/top1_k{k}_t{t:g}'],
            top5=metrics[f'knn/top5_k{k}_t{t:g}'],
        )
        for k in (3, 5)
        for t in (0.05, 1)
    ]
    text = '\n'.join(record.getMessage() for record in caplog.records)
    row = [f'{metrics[f"knn/top1_k{k}_t1"]:.2f}' for k in (3, 5)]
    assert re.search(rf'\| T = 1 +\| +{row[0]} \| +{row[1]} \|', text)

    one = runner(**config(root, tmp_path, stage='test', k=4)).test()
    report = json.loads((tmp_path / 'knn.json').read_text())
    assert [r['top1'] for r in report['results']] == [one['knn/top1_k4']]


def test_what_the_protocol_refuses(root, tmp_path):
    run = runner(**config(root, tmp_path, stage='test', k=(10, 18)))
    with pytest.raises(ValueError, match='k=18 .* only 17 images: write'):
        run.test()
    few = loader(root / 'one_class')
    run = runner(
        **config(root, tmp_path, bank=few, query=few, stage='test', k=2)
    )
    with pytest.raises(ValueError, match='of one class'):
        run.test()
    assert not (tmp_path / 'knn.json').exists()


def test_other_metrics_can_read_the_predictions(root, tmp_path):
    cfg = config(root, tmp_path, k=(3, 1))
    cfg['val_evaluator'] = [
        cfg['val_evaluator'],
        dict(type='mmpretrain.Accuracy', topk=1),
        dict(type='mmpretrain.ConfusionMatrix'),
    ]
    metrics = runner(**cfg).val()
    assert metrics['accuracy/top1'] == pytest.approx(metrics['knn/top1_k3'])
    right = metrics['confusion_matrix/result'].trace() / 13
    assert 100 * right == pytest.approx(metrics['knn/top1_k3'])


def test_small_sets_large_k_and_half_precision(root, tmp_path, caplog):
    few = loader(root / 'one_class')
    run = runner(**config(root, tmp_path, bank=few, query=few, k=20))
    run.logger.addHandler(caplog.handler)
    metrics = run.val()
    assert metrics == {'knn/top1_k20': 100.0}
    warnings = [r for r in caplog.records if 'k=20' in r.getMessage()]
    assert len(warnings) == 1
    assert 'only 4 images' in warnings[0].getMessage()

    full = runner(**config(root, tmp_path, k=(1, 3))).val()
    half = runner(
        **config(root, tmp_path, k=(1, 3), bank_dtype='float16', chunk_size=5)
    ).val()
    assert half == full
    bf16 = runner(**config(root, tmp_path, k=(1, 3), fp16=True)).val()
    assert bf16.keys() == full.keys()


def test_any_integers_as_labels(root, tmp_path):
    expected = runner(**config(root, tmp_path, k=(3, 17))).val()
    numbers = (-7, 1000000, 40, 41, 0, 1)

    def renumbered(part):
        files = sorted((root / part).glob('*/*.jpg'))
        ann_file = tmp_path / f'{part}.txt'
        ann_file.write_text(
            '\n'.join(
                f'{file} {numbers[int(file.parent.name[-1])]}'
                for file in files
            )
        )
        return loader('', dataset=dict(ann_file=str(ann_file)))

    cfg = config(
        root,
        tmp_path,
        bank=renumbered('bank'),
        query=renumbered('query'),
        k=(3, 17),
    )
    assert runner(**cfg).val() == expected


def test_shuffled_bank_gives_the_same(root, tmp_path):
    plain = runner(**config(root, tmp_path, k=(3,))).val()
    shuffled = loader(root / 'bank', shuffle=True)
    assert (
        runner(**config(root, tmp_path, bank=shuffled, k=(3,))).val() == plain
    )
    no_sampler = loader(root / 'bank')
    no_sampler.pop('sampler')
    assert (
        runner(**config(root, tmp_path, bank=no_sampler, k=(3,))).val()
        == plain
    )


class Recorder(Hook):
    """Notes every hook call in the model's log."""

    def __init__(self, log):
        self.log = log

    def _note(self, name):
        self.log.append((name, None))

    def before_val(self, runner):
        self._note('before_val')

    def before_val_epoch(self, runner):
        self._note('before_val_epoch')

    def before_val_iter(self, runner, batch_idx, data_batch=None):
        assert len(data_batch['inputs']) in (1, 4)
        self._note('before_val_iter')

    def after_val_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        assert len(outputs) in (1, 4)
        self._note('after_val_iter')

    def after_val_epoch(self, runner, metrics=None):
        assert 'knn/top1_k3' in metrics
        self._note('after_val_epoch')

    def after_val(self, runner):
        self._note('after_val')


def test_hooks_and_mode(root, tmp_path):
    model = ToyModel()
    run = runner(
        model,
        custom_hooks=[Recorder(model.log)],
        **config(root, tmp_path, k=(3,)),
    )
    model.train()
    run.val()
    # The bank follows before_val_epoch, where EMAHook swaps the weights.
    feat = ('extract_feat', False)
    batch = [('before_val_iter', None), feat, ('after_val_iter', None)]
    assert model.log == [('before_val', None), ('before_val_epoch', None)] + [
        feat
    ] * 5 + batch * 4 + [('after_val_epoch', None), ('after_val', None)]
    assert model.training


def test_bank_progress_is_logged(root, tmp_path, caplog):
    run = runner(**config(root, tmp_path, k=(3,), log_interval=2))
    run.logger.addHandler(caplog.handler)
    run.val()
    lines = [r.getMessage() for r in caplog.records]
    bank = [line for line in lines if line.startswith('k-NN bank')]
    assert [line.split('  ')[0] for line in bank[:2]] == [
        'k-NN bank [2/5]',
        'k-NN bank [4/5]',
    ]
    assert all('eta: 0:00:0' in line for line in bank[:2])
    assert '17 of 17 images, 8 features' in bank[2]
    assert any('knn/top1_k3: ' in line for line in lines)


def test_remaining_time_leaves_the_bank_out(root, tmp_path):
    class SlowModel(ToyModel):
        def extract_feat(self, inputs):
            if not self.log:  # the bank's first batch
                time.sleep(1)
            return super().extract_feat(inputs)

    run = runner(SlowModel(), **config(root, tmp_path, k=(3,)))
    run.val()
    waited = run.message_hub.log_scalars['val/data_time'].data[0]
    assert len(waited) == 4
    assert max(waited) < 0.9


@pytest.mark.parametrize('by_epoch', [True, False])
def test_training_goes_on_as_if_nothing_had_run(root, tmp_path, by_epoch):
    flip = PIPELINE[:2] + [dict(type='RandomFlip', prob=0.5), PIPELINE[2]]

    def train(with_knn):
        model = ToyModel()
        cfg = config(root, tmp_path / f'{with_knn}', k=(3,))
        if not with_knn:
            cfg = dict(work_dir=cfg['work_dir'])
        train_loader = loader(
            root / 'bank', dataset=dict(pipeline=flip), shuffle=True
        )
        hooks = {}
        if with_knn:
            hooks = dict(
                checkpoint=dict(
                    type='CheckpointHook',
                    interval=10,
                    by_epoch=by_epoch,
                    save_best='knn/top1_k3',
                )
            )
        run = runner(
            model,
            train_dataloader=train_loader,
            train_cfg=dict(by_epoch=True, max_epochs=2)
            if by_epoch
            else dict(by_epoch=False, max_iters=4, val_interval=2),
            optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)),
            log_processor=dict(by_epoch=by_epoch),
            default_hooks=hooks,
            **cfg,
        )
        run.train()
        states = (
            torch.rand(3).tolist(),
            np.random.rand(3).tolist(),
            random.random(),
        )
        return run, model.student.weight.detach(), states

    run, weight, states = train(True)
    _, plain_weight, plain_states = train(False)
    assert not torch.equal(weight, ToyModel().student.weight)
    assert torch.equal(weight, plain_weight)
    assert states == plain_states
    history = run.message_hub.log_scalars['val/knn/top1_k3']
    expected = expected_accuracy(root, 3, 0.07)
    assert history.current() == pytest.approx(expected)
    assert len(history.data[0]) == 2
    assert list((tmp_path / 'True').glob('best_knn_top1_k3_*.pth'))


@pytest.mark.parametrize(
    'change, message',
    [
        (dict(k=0), 'k must be one or several integers'),
        (dict(k=()), 'k must be one or several integers'),
        (dict(k=(1, 2.5)), 'k must be one or several integers'),
        (dict(temperature=(0.07, 0)), 'temperature must be one or several'),
        (dict(temperature='0.07'), 'temperature must be one or several'),
        (dict(bank_dtype='int8'), "bank_dtype must be 'float32' or 'float16'"),
    ],
)
def test_bad_arguments(root, tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        runner(**config(root, tmp_path, **change)).val()


def test_refuses_a_sharded_student(root, tmp_path):
    run = runner(**config(root, tmp_path, which='student'))
    run.strategy = object.__new__(MOCAFSDPStrategy)
    with pytest.raises(ValueError, match='this run shards it'):
        run.val()


def test_bad_data(root, tmp_path):

    def fails_with(message, **kwargs):
        run = runner(**config(root, tmp_path, **kwargs))
        with pytest.raises(ValueError, match=message):
            run.build_val_loop(run._val_loop)

    no_labels = dict(with_label=False)
    fails_with(
        'bank images have no class label.*leave out val_cfg',
        bank=loader(root / 'bank', dataset=no_labels),
    )
    fails_with(
        'query images have no class label',
        query=loader(root / 'query', dataset=no_labels),
    )
    fails_with(
        r'Bank \(1\) and query images \(6\) must have the same classes.*'
        'class_1, class_2',
        bank=loader(root / 'one_class'),
    )
    fails_with(
        'bank loader would never end',
        bank=loader(root / 'bank', sampler=dict(type='InfiniteSampler')),
    )
    both = dict(
        type='ConcatDataset', datasets=[loader(root / 'bank')['dataset']] * 2
    )
    fails_with(
        'ConcatDataset repeats',
        bank=loader(root / 'bank') | dict(dataset=both),
    )


def test_bad_data_that_only_batches_show(root, tmp_path):
    no_index = PIPELINE[:2] + [dict(type='PackInputs', meta_keys=())]
    bank = loader(root / 'bank', dataset=dict(pipeline=no_index))
    with pytest.raises(ValueError, match='meta_keys of PackInputs'):
        runner(**config(root, tmp_path, bank=bank)).val()

    model = ToyModel()
    model.extract_feat = lambda inputs: inputs
    with pytest.raises(ValueError, match=r'one vector per image, \(B, D\)'):
        runner(model, **config(root, tmp_path)).val()

    model = ToyModel()
    model.teacher.weight.data[0, 0] = float('nan')
    with pytest.raises(ValueError, match='not finite'):
        runner(model, **config(root, tmp_path)).val()


def _evaluate(root, work_dir, sampler=None, **kwargs):
    """Metrics and the votes per image, keyed by its index."""
    sampler = sampler or dict(type='DefaultSampler', shuffle=False)
    cfg = config(
        root,
        work_dir,
        bank=loader(root / 'bank', sampler=sampler),
        query=loader(root / 'query', sampler=sampler),
        k=(1, 4),
    )
    dump = str(work_dir / 'results.pkl')
    cfg['val_evaluator'] = [
        cfg['val_evaluator'],
        dict(type='DumpResults', out_file_path=dump, collect_device='gpu'),
    ]
    metrics = runner(**cfg, **kwargs).val()
    with open(dump, 'rb') as file:
        results = pickle.load(file)
    return metrics, {r['sample_idx']: r['pred_score'] for r in results}


def _evaluate_with_three_samplers(root, work_dir):
    # The first is the usual one; then shards of a random order, and shards of
    # unequal length.
    return [
        _evaluate(
            root,
            work_dir,
            dict(type='DefaultSampler') | sampler,
            launcher='pytorch',
            cfg=dict(model_wrapper_cfg=dict(device_ids=None)),
        )
        for sampler in (
            dict(shuffle=False),
            dict(shuffle=True),
            dict(shuffle=False, round_up=False),
        )
    ]


@pytest.mark.processes
@pytest.mark.parametrize('world', [2, 3])
def test_many_processes_agree_with_one(root, tmp_path, world):
    expected, votes = _evaluate(root, tmp_path)
    assert 0 < expected['knn/top1_k4'] < 100
    ranks = run_processes(_evaluate_with_three_samplers, world, root, tmp_path)
    for outputs in ranks:
        assert len(outputs) == 3
        for metrics, found in outputs:
            assert metrics == expected
            assert found.keys() == votes.keys()
            for idx, vote in votes.items():
                torch.testing.assert_close(found[idx], vote)


def _gather():
    ids = torch.tensor(([4, 0, 2], [], [2])[get_rank()], dtype=torch.int64)
    feats = torch.stack([ids, 10 * ids], 1) if len(ids) else ids.view(0, 0)
    return gather_samples(ids, feats.half(), ids + 7)


@pytest.mark.processes
def test_gather_with_an_empty_shard():
    for ids, feats, labels in run_processes(_gather, 3):
        assert ids.tolist() == [0, 2, 4]
        assert feats.dtype == torch.float16
        assert feats.tolist() == [[0, 0], [2, 20], [4, 40]]
        assert labels.tolist() == [7, 9, 11]
