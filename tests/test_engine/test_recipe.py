# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The own-images config: values that follow from a few numbers."""

import copy
import math
import re
import time
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mmengine.registry import DATASETS, MODELS, init_default_scope

from mmmoca.checkpoints.fit import check_fit
from mmmoca.engine import complete_recipe
from mmmoca.engine.config import read_run
from mmmoca.engine.dry_run import dry_run
from mmmoca.engine.mmengine import built_loops, loaders_by_role
from mmmoca.engine.recipe import (
    WORDS,
    RunSize,
    recipe_numbers,
    run_size,
    scale_lr,
    training_set,
)
from mmmoca.engine.slips import likely_slips
from mmmoca.engine.training import build_runner, run
from mmmoca.models import AssignmentHead

from ..helpers.images import CONFIGS, DEMO_CONFIG, write_images
from ..helpers.runs import OWN_CONFIG, own_config

CONFIG = OWN_CONFIG
TINY_CONFIG = CONFIGS / 'demo' / 'moca_vit-tiny_own-images.py'
LR = 'optim_wrapper.optimizer.lr'


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp('own')
    write_images(root, train=16, val=3)
    (root / 'broken.jpg').write_text('no image')
    return root


def numbers(*run):
    return [*recipe_numbers(RunSize(*run)).values()]


def test_rules_pass_through_the_recipes_that_were_tried():
    rate, momentum, *words = numbers(1_281_167, 2048, 125_000)
    assert (rate, words) == (pytest.approx(1.2e-3), [4096, 4])
    assert momentum == pytest.approx(0.99, abs=2e-4)
    _, momentum, words, new_words = numbers(5000, 64, 600)
    assert (momentum, words, new_words) == (0.9, 1024, 16)
    _, momentum, words, _ = numbers(5000, 32, 1400)
    assert (momentum, words) == (pytest.approx(0.9, abs=6e-3), 1024)
    assert numbers(5000, 64, 60)[2:] == [512, 64]
    assert numbers(50_000, 512, 19_400)[2] == 1024
    # A quarter of the batch halves the rate.
    assert numbers(10**6, 512, 10**5)[0] == pytest.approx(0.6e-3)
    # A short run: the warm-up, 30 of 200 steps, still replaces all words.
    # There are no more words than images in the warm-up.
    assert numbers(50_000, 512, 200)[2:] == [1024, 64]
    assert numbers(50_000, 24, 200)[2:] == [512, 16]


@given(
    images=st.integers(1, 10**7),
    batch=st.integers(1, 4096),
    steps=st.integers(1, 10**6),
)
def test_numbers_of_any_run(images, batch, steps):
    rate, momentum, words, new = numbers(images, batch, steps)
    assert rate**2 == pytest.approx(1.2e-3**2 * batch / 2048, rel=0.01)
    assert 0.9 <= momentum <= numbers(images, batch, 2 * steps)[1] <= 0.996
    assert words in {2**power for power in range(6, 13)}
    assert words % new == 0 and new <= batch
    assert words <= numbers(4 * images, batch, 4 * steps)[2]
    warmup = max(1, 0.15 * steps)
    # The warm-up replaces all words, or as many as the batch allows.
    divisors = [n for n in range(1, batch + 1) if words % n == 0]
    assert new * warmup >= words or new == divisors[-1]
    assert words <= max(64, batch * warmup)


def test_steps_of_an_epoch(root, monkeypatch):
    options = {'train_dataloader.drop_last': False, 'batch_size': 10}
    assert run_size(own_config(root, **options)).steps == 24
    monkeypatch.setenv('WORLD_SIZE', '4')
    cfg = own_config(root, batch_size=14)
    cfg.launcher = 'pytorch'
    assert run_size(cfg) == RunSize(images=58, batch=56, steps=4)
    cfg.train_cfg = dict(max_iters=9)
    assert run_size(cfg).steps == 9
    # The last step has one of four micro-batches, so fewer new words.
    cfg.optim_wrapper.accumulative_counts = 4
    run = run_size(cfg)
    assert run == RunSize(images=58, batch=224, steps=2, missing=168)
    assert recipe_numbers(run)['model.codebook.num_new_words'] <= 56
    # Two of 58 images are left for the last batch of an epoch.
    cfg = own_config(root, **options | {'batch_size': 56})
    assert run_size(cfg).missing == 54


def test_what_is_not_auto_stays(root):
    cfg = own_config(root, **{'model.codebook.num_words': 32})
    written = complete_recipe(cfg)
    # 57 images and a broken one: 7 steps an epoch.
    expected = recipe_numbers(RunSize(58, 8, 28), 32)
    assert expected.pop('model.codebook.num_words') == 32
    assert written == expected
    assert cfg.optim_wrapper.optimizer.lr == expected[LR]
    assert complete_recipe(cfg) == {}


def test_words_of_a_checkpoint(root):
    """A test or a picture accepts any number that the recipe chose."""
    init_default_scope('mmpretrain')
    of_64 = own_config(root, **{'model.codebook.num_words': 64}).model
    state = MODELS.build(of_64).state_dict()
    model = MODELS.build(own_config(root).model)
    check_fit(model, state, None, 'a.pth', training=False)
    model.load_state_dict(state)
    assert len(model.codebook.words) == 64


def test_a_longer_run_keeps_its_words(root, tmp_path, monkeypatch):
    state = {'codebook.words': torch.zeros(512, 4)}
    torch.save(dict(state_dict=state), tmp_path / 'epoch_3.pth')
    settings = dict(data_root=str(root), epochs=400, batch_size=8)
    resume = dict(work_dir=str(tmp_path), resume='auto', stages=['train'])
    cfg = read_run(TINY_CONFIG, settings, **resume)
    built = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr('mmmoca.engine.training.build_runner', built)
    with pytest.raises(KeyboardInterrupt):
        run(copy.deepcopy(cfg))
    assert built.call_args.args[0].model.codebook.num_words == 512
    numbers = complete_recipe(cfg, 58)
    expected = recipe_numbers(RunSize(58, 8, 2800), 512)
    del expected[LR]  # this config sets the rate itself
    assert numbers == expected
    fresh = read_run(TINY_CONFIG, settings, work_dir=str(tmp_path))
    assert complete_recipe(fresh, 58)[WORDS] != 512


def test_a_start_keeps_the_words_of_a_large_codebook(root, tmp_path):
    cfg = read_run(TINY_CONFIG, dict(data_root=str(root), epochs=4))
    state = {'codebook.words': torch.zeros(512, 4)}
    torch.save(dict(state_dict=state), tmp_path / 'moca.pth')
    cfg.load_from = f'mmmoca-start://{tmp_path}/moca.pth'
    words = [
        complete_recipe(copy.deepcopy(cfg), images)[WORDS]
        for images in (58, 58_000)
    ]
    assert words == [512, 1024]  # 58 000 images call for more


def test_tiny_follows_the_same_rules(root):
    """The rate is different, but scales with the batch in the same way."""
    settings = dict(data_root=str(root), epochs=4, batch_size=8)
    cfg = read_run(TINY_CONFIG, settings)
    written = complete_recipe(cfg) | scale_lr(cfg)
    expected = recipe_numbers(RunSize(58, 8, 28))
    assert written == expected | {LR: pytest.approx(1e-3 / 2**0.5)}


def test_size_and_views_have_names(root, tmp_path):
    """Settings change crops, positions, the border and probabilities."""
    own = [f'data_root={root}/train', f'knn_root={root}', 'img_size=160']
    own += ['flip=0', 'jitter=0.25', 'solarize=0']
    cfg = read_run(CONFIG, own)
    assert cfg.model.backbone.img_size == 160
    assert cfg.model.codebook.border == 1
    tiny = read_run(TINY_CONFIG, own[:3])
    assert tiny.model.codebook.border == 3
    init_default_scope('mmpretrain')
    sets = [cfg.train_dataloader, cfg.val_dataloader, cfg.test_dataloader]
    sets += [cfg.val_cfg.bank_dataloader, cfg.test_cfg.bank_dataloader]
    for dataset in (loader.dataset for loader in sets):
        dataset.data_root = str(root)
        inputs = DATASETS.build(dataset)[0]['inputs']
        views = inputs if isinstance(inputs, list) else [inputs]
        assert {view.shape for view in views} == {(3, 160, 160)}
    assert {part.dataset.pipeline[1].scale for part in sets[1:]} == {182}
    load, multi = cfg.train_dataloader.dataset.pipeline[1:3]
    assert load.reduce_to == 414
    for view in multi.transforms:
        assert (view[1].prob, view[-1].prob) == (0.25, 0)
    assert multi.transforms[1][4].prob == 0
    wrapped = tmp_path / 'wrapped.py'
    wrapped.write_text(
        f"_base_ = '{CONFIG}'\nimages = _base_.train_dataloader.dataset\n"
        'train_dataloader = dict(dataset=dict(_delete_=True, '
        "type='RepeatDataset', times=2, dataset=images))\n"
    )
    repeated = read_run(wrapped, own).train_dataloader.dataset
    assert repeated.dataset == read_run(CONFIG, own).train_dataloader.dataset


@pytest.mark.slow
def test_a_run_of_other_numbers(root, tmp_path, capsys):
    """The run warns about words, and labelled images switch k-NN on."""
    options = {
        LR: 1e-3,
        'model.codebook.num_words': 64,
        'model.codebook.num_new_words': 4,
        'train_cfg.val_interval': 1,
        'val_dataloader.num_workers': 0,
        'val_cfg.bank_dataloader.num_workers': 0,
        'log_level': 'INFO',
    }
    options |= dict(knn_root=str(root), epochs=1, img_size=64)
    runner = run(own_config(root, tmp_path, **options))
    # Agreement, which needs no labels, is measured too.
    assert 'val/agreement/neighbours' in runner.message_hub.log_scalars
    printed = capsys.readouterr().out
    assert '--auto-scale-lr' not in printed  # the rate is the user's
    assert '36 of the 64 words' in printed
    assert list(tmp_path.glob('best_knn_top1_k20_epoch_*.pth'))


def test_all_loaders_of_a_run_are_known(root):
    """A loop inside another loop is found, and no data set is copied."""
    cfg = own_config(root, knn_root=str(root))
    complete_recipe(cfg)
    dataset = training_set(cfg)
    runner = build_runner(cfg, dataset)
    assert runner.train_loop.dataloader.dataset is dataset
    agreement = runner.val_loop.agreement
    assert agreement in built_loops(runner)
    assert agreement.dataloader in loaders_by_role(runner).values()


@pytest.mark.parametrize(
    ('launcher', 'images'), [('none', 4), ('slurm', 8), ('mpi', 8)]
)
def test_rates_follow_the_images(monkeypatch, launcher, images):
    for place in ('SLURM_STEP_NUM_TASKS', 'OMPI_COMM_WORLD_SIZE'):
        monkeypatch.setenv(place, '2')
    cfg = read_run(DEMO_CONFIG, launcher=launcher)
    assert scale_lr(cfg) == {}
    cfg.train_dataloader.batch_size = 4
    cfg.optim_wrapper.accumulative_counts = 3
    (slip,) = likely_slips(cfg)
    assert f'{3 * images}' in slip
    cfg.auto_scale_lr.enable = True
    lr = pytest.approx(2e-3 * 3 * images / 32, rel=1e-12)
    assert scale_lr(cfg) == {LR: lr}
    assert cfg.optim_wrapper.optimizer.lr == lr
    assert scale_lr(cfg) == {} and not likely_slips(cfg)  # only once


def test_schedules_that_change_the_rate_of_the_prototypes():
    schedules = [dict(type='LinearLR'), dict(type='mmengine.PolyLR')]
    cfg = read_run(DEMO_CONFIG)
    cfg.param_scheduler = [*schedules, cfg.param_scheduler]
    (slip,) = likely_slips(cfg)
    assert 'LinearLR, PolyLR:' in slip
    cfg.optim_wrapper.paramwise_cfg = None
    assert not likely_slips(cfg)


@pytest.mark.parametrize(
    'part', [dict(init_cfg=dict(checkpoint='a.pth')), dict(pretrained='a.pth')]
)
def test_weights_that_no_hook_checks(part):
    cfg = read_run(DEMO_CONFIG)
    cfg.model.backbone.update(part)
    assert not likely_slips(cfg)
    cfg.default_hooks.checkpoint_fit = None
    (slip,) = likely_slips(cfg)
    assert 'CheckpointFitHook' in slip
    cfg.custom_hooks = [dict(type='mmmoca.CheckpointFitHook')]
    assert not likely_slips(cfg)


@pytest.mark.parametrize(
    'arch, tap, usual',
    [('deit-t', 5, 8), ('l', 8, 20), (dict(num_layers=6), 2, 4)],
)
def test_the_decoder_reads_an_upper_layer(arch, tap, usual):
    cfg = read_run(DEMO_CONFIG)
    cfg.model.backbone.update(arch=arch, tap_layer=tap)
    (slip,) = likely_slips(cfg)
    assert f'tap_layer={usual}' in slip
    cfg.model.backbone.tap_layer = usual
    assert not likely_slips(cfg)


def test_the_momentum_is_not_that_of_averages():
    cfg = read_run(DEMO_CONFIG, {'default_hooks.teacher_ema.momentum': 0.004})
    (slip,) = likely_slips(cfg)
    assert '0.996' in slip


def test_images_are_large_enough_for_the_crops():
    """Crops of 1 % of the area, at 3 : 4, should still have 48 pixels."""
    cfg = read_run(DEMO_CONFIG)
    assert not likely_slips(cfg)
    steps = cfg.train_dataloader.dataset.pipeline
    views = next(step for step in steps if step.type == 'MultiView')
    views.transforms[1][0].crop_ratio_range = (0.01, 1.0)
    (slip,) = likely_slips(cfg)
    assert f'{48 / math.sqrt(0.0075) + 0.5:.0f}' in slip


@pytest.mark.slow
def test_dry_run_takes_three_steps_and_keeps_nothing(
    root, tmp_path, monkeypatch
):
    options = {'optim_wrapper.accumulative_counts': 2}
    cfg = own_config(root, tmp_path / 'work', **options)
    complete_recipe(cfg)
    file = tmp_path / 'start.pth'
    torch.save(MODELS.build(cfg.model).state_dict(), file)
    cfg.load_from = f'mmmoca-start://{file}'
    before = cfg.to_dict()
    # The wait for a slow device counts. A step has two batches.
    lags = iter((0.3, 0.3, *[0.1] * 6))  # the first step, then three
    monkeypatch.setattr(
        'mmmoca.engine.dry_run.wait_for_device',
        lambda: time.sleep(next(lags)),
    )
    looks = []
    report = dry_run(cfg, looks.append)
    (look,) = looks
    assert next(lags, None) is None
    first, step = (
        float(report[k].split()[0]) for k in ('the first step', 'a step')
    )
    assert first >= 0.6 and step >= 0.2
    assert cfg.to_dict() == before and [*tmp_path.iterdir()] == [file]
    assert 'start.pth' in report['starts from']
    assert report['images'] == '58' and 'without a gradient' not in report
    (broken,) = (line for line in look.odd if 'broken.jpg' in line)
    assert '1 of 58' in broken
    assert (report['images a step'], report['steps']) == ('16', '14')
    assert report['learning rate'] == '0.000106'
    assert 'a smaller batch' not in report  # 16 is small
    assert report['learning rate of prototypes'] == '0.0001'
    assert report['codebook'] == '64 words, renewed 3.5 times'
    # 55 % and 75 % of 196 patches are masked.
    numbers = re.findall(r'\d+', report['masks'])
    assert numbers == ['88', '39', '49', '39']


@pytest.mark.slow
def test_dry_run_for_other_processes(root, monkeypatch):
    """A process has fewer images than a step has new words."""
    new_words = {'model.codebook.num_new_words': 16}
    cfg = own_config(root, epochs=3, batch_size=4, **new_words)
    report = dry_run(cfg, processes=5)
    monkeypatch.setenv('WORLD_SIZE', '5')
    cfg.launcher = 'pytorch'
    numbers = complete_recipe(cfg)
    steps = run_size(cfg).steps
    assert (report['images a step'], report['steps']) == ('20', f'{steps}')
    assert {k: f'{v:g}' for k, v in numbers.items()}.items() <= report.items()
    turns = 16 * steps / cfg.model.codebook.num_words
    assert f'{turns:.3g} times' in report['codebook']


@pytest.mark.slow
def test_dry_run_of_less_than_three_steps(root, monkeypatch):
    """A short run ends by itself, and an unread last batch does not count."""
    loss_loc = AssignmentHead.loss_loc

    def detached(*args):
        loss, *rest = loss_loc(*args)
        return loss.detach(), *rest

    monkeypatch.setattr(AssignmentHead, 'loss_loc', detached)
    loader = {'num_workers': 0, 'persistent_workers': False}
    loader |= {'drop_last': False, 'num_batch_per_epoch': 1}
    loader = {f'train_dataloader.{k}': v for k, v in loader.items()}
    # The last batch of an epoch, which is never read, has 10 images.
    new_words = {'model.codebook.num_new_words': 16}
    cfg = own_config(root, epochs=1, batch_size=24, **loader, **new_words)
    complete_recipe(cfg)
    report = dry_run(cfg)
    assert (report['images a step'], report['steps']) == ('24', '1')
    assert '16' in report['a smaller batch']
    assert 'neck.projection' in report['without a gradient']


@pytest.mark.slow
def test_dry_run_evaluates_a_batch(root):
    """A failing metric would end a run only after its first epoch."""
    options = dict(data_root=str(root), batch_size=8)
    options['default_hooks.checkpoint_fit.needs_checkpoint'] = False
    options['experiment_name'] = 'twice'  # as if in one second
    for stage in ('train', 'val'):
        options |= {
            f'{stage}_dataloader.num_workers': 0,
            f'{stage}_dataloader.persistent_workers': False,
        }
    config = CONFIGS / 'demo' / 'finetune_vit-tiny_textures.py'
    cfg = read_run(config, options)
    report = dry_run(cfg)
    assert float(report['a validation'].split()[0]) > 0
    cfg.val_evaluator.type = 'MultiLabelMetric'  # keeps Accuracy's topk
    with pytest.raises(TypeError, match='topk'):
        dry_run(cfg)


def test_dry_run_needs_no_default_hooks(root, tmp_path, monkeypatch):
    """A config without default hooks gets MMEngine's own."""
    cfg = own_config(root, tmp_path)
    complete_recipe(cfg)
    cfg.pop('default_hooks')
    build = Mock(side_effect=InterruptedError)
    monkeypatch.setattr('mmmoca.engine.dry_run.build_runner', build)
    with pytest.raises(InterruptedError):
        dry_run(cfg)
    assert build.call_args.args[0].default_hooks == dict(checkpoint=None)
