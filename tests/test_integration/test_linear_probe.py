# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Linear probing on real digits through the real configs, Runner and tools."""

import json

import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner
from mmpretrain import ImageClassificationInferencer

from ..digits import digits_config, save_pretraining, train, write_digits
from ..distributed import run_processes
from ..tools import run_tool

CONFIG = 'linear_vit-b16_100e_in1k.py'
FEW_IMAGES = {'train_dataloader.dataset.indices': 150}


@pytest.fixture(scope='module')
def digits(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp('linear') / 'digits')


@pytest.fixture(scope='module')
def teacher(digits):
    return save_pretraining(digits / 'moca.pth').teacher


def config(digits, work_dir, name=CONFIG, **options):
    checkpoint = {'load_from': str(digits / 'moca.pth')}
    return digits_config(name, digits, work_dir, **checkpoint | options)


@pytest.fixture(scope='module')
def probe(digits, teacher):
    cfg = config(digits, digits / 'probe', **{'train_cfg.max_epochs': 5})
    return train(cfg)


def scalars(runner, name):
    return runner.message_hub.get_scalar(name).data[0]


def test_accuracy_far_above_chance(probe):
    top1 = scalars(probe, 'val/linear/top1')
    assert len(top1) == 5
    assert top1[-1] > 45  # chance is 10
    assert scalars(probe, 'val/linear/top5')[-1] > 85
    entropy = scalars(probe, 'train/best_cross_entropy')
    assert entropy[-5:].mean() < 0.8 * entropy[:5].mean()


def test_frozen_teacher(probe, teacher):
    for name, value in teacher.state_dict().items():
        assert torch.equal(probe.model.backbone.state_dict()[name], value)


@pytest.fixture(scope='module')
def winner(probe, digits):
    """Config and checkpoint of the exported classifier, and its meta."""
    stem = digits / 'probe' / 'linear_best'
    saved = torch.load(f'{stem}.pth', weights_only=True)
    return f'{stem}.py', f'{stem}.pth', saved


def test_winning_head_is_written(probe, winner):
    cfg, saved = Config.fromfile(winner[0]), winner[2]
    best = saved['meta']['linear_probe']
    top1 = scalars(probe, 'val/linear/top1')
    assert best['top1'] == top1.max()
    assert saved['meta']['epoch'] == 1 + int(top1.argmax())
    assert best['base_lr'] == probe.model.head.base_lrs[best['head']]
    assert saved['meta']['dataset_meta']['classes'] == tuple('0123456789')
    # Nothing but MMPreTrain is in the model.
    assert cfg.model.type == 'ImageClassifier'
    assert 'mmmoca' not in str(cfg.model)
    if saved['meta']['epoch'] == 5:
        head, index = probe.model.head, best['head']
        weights = saved['state_dict']
        assert torch.equal(weights['head.fc.weight'], head.weight[index])
        assert torch.equal(weights['head.fc.bias'], head.bias[index])


def test_tool_tests_the_winner(winner, digits):
    out = digits / 'metrics.json'
    run_tool(
        *('tools/test.py', *winner[:2], '--work-dir', digits / 'test'),
        *('--out', out, '--out-item', 'metrics'),
    )
    metrics = json.loads(out.read_text())
    best = winner[2]['meta']['linear_probe']
    assert metrics['accuracy/top1'] == pytest.approx(best['top1'])
    assert metrics['accuracy/top5'] == pytest.approx(best['top5'])


def test_inferencer_loads_the_winner(winner, digits):
    inferencer = ImageClassificationInferencer(
        winner[0], pretrained=winner[1], device='cpu'
    )
    files = sorted((digits / 'val').glob('*/*.png'))
    predictions = inferencer([str(file) for file in files], batch_size=100)
    hits = [
        prediction['pred_class'] == file.parent.name
        for prediction, file in zip(predictions, files)
    ]
    best = winner[2]['meta']['linear_probe']
    assert 100 * sum(hits) / len(hits) == pytest.approx(best['top1'])


@pytest.mark.parametrize(
    'name, options',
    [
        ('linear_vit-b16_100e_in1k_cls-avg.py', {}),
        (
            'linear_vit-b16_100e_in1k_cls-avg.py',
            {
                'model.backbone.out_indices': [0, 1],
                'model.neck.num_blocks': 2,
                'model.neck.with_avg': False,
                'model.neck.embed_dims': 64,
            },
        ),
        (CONFIG, {'model.backbone.out_type': 'cls_token', 'model.neck': None}),
    ],
)
def test_other_features(digits, teacher, tmp_path, name, options):
    """Trained, exported and tested with the same result."""
    options = options | FEW_IMAGES | {'train_cfg.max_epochs': 1}
    runner = train(config(digits, tmp_path, name, **options))
    exported = Config.fromfile(tmp_path / 'linear_best.py')
    exported.update(
        work_dir=str(tmp_path / 'test'),
        load_from=str(tmp_path / 'linear_best.pth'),
        log_level='WARNING',
        experiment_name=f'test_{tmp_path.name}',
    )
    metrics = Runner.from_cfg(exported).test()
    top1 = scalars(runner, 'val/linear/top1')[-1]
    assert metrics['accuracy/top1'] == pytest.approx(top1)


def state(runner):
    momenta = runner.optim_wrapper.state_dict()['state']
    momenta = {
        f'momentum{i}': s['momentum_buffer'] for i, s in momenta.items()
    }
    return runner.model.state_dict() | momenta


def test_resumed_run_is_the_same(digits, teacher, tmp_path):
    options = FEW_IMAGES | {'default_hooks.checkpoint.max_keep_ckpts': -1}
    whole = train(config(digits, tmp_path / 'whole', **options))
    options['resume'] = True
    options['load_from'] = str(tmp_path / 'whole' / 'epoch_1.pth')
    resumed = train(config(digits, tmp_path / 'resumed', **options))
    assert resumed.iter == whole.iter == 6
    first, second = state(whole), state(resumed)
    assert first.keys() == second.keys() and len(first) > 30
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
    for metric in ('linear/top1', 'linear/base_lr'):
        values = [scalars(r, f'val/{metric}')[-1] for r in (whole, resumed)]
        assert values[0] == values[1]
    # A checkpoint of the probe itself is tested as it is.
    options.update(resume=False, load_from=f'{tmp_path}/resumed/epoch_2.pth')
    cfg = config(digits, tmp_path / 'tested', **options)
    metrics = Runner.from_cfg(cfg).test()
    assert metrics['linear/top1'] == scalars(resumed, 'val/linear/top1')[-1]


def run_rank(digits, name, batch_size):
    options = FEW_IMAGES | {
        'train_dataloader.batch_size': batch_size,
        'train_cfg.max_epochs': 1,
        # The same for both: MMEngine knows the ranks' batches only.
        'auto_scale_lr.enable': False,
        'optim_wrapper.optimizer.lr': 50 / 256,
    }
    if torch.distributed.get_world_size() > 1:
        options['launcher'] = 'pytorch'
        options['model_wrapper_cfg'] = dict(
            type='MMDistributedDataParallel', device_ids=None
        )
    runner = train(config(digits, digits / name, **options))
    model = getattr(runner.model, 'module', runner.model)
    return model.head.weight.detach(), scalars(runner, 'val/linear/top1')[-1]


@pytest.mark.processes
def test_two_ranks_train_as_one(digits, teacher):
    (alone,) = run_processes(run_rank, 1, digits, 'alone', 50)
    first, second = run_processes(run_rank, 2, digits, 'both', 25)
    assert torch.equal(first[0], second[0])
    torch.testing.assert_close(first[0], alone[0], rtol=1e-4, atol=1e-5)
    assert first[1] == second[1] == alone[1]
    assert (digits / 'both' / 'linear_best.pth').exists()
