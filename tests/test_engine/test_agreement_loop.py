# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A run on unlabelled images measures the agreement of neighbours."""

import shutil
from types import SimpleNamespace

import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.registry import RUNNERS

from mmmoca.engine.resume_check import validation_digest
from mmmoca.engine.runners.baselines_hook import BaselinesHook, Judgement
from mmmoca.engine.training import run
from mmmoca.engine.views import views_loader
from mmmoca.evaluation.features import raw_pixels
from mmmoca.registry import DATASETS
from tests.helpers.images import write_images
from tests.helpers.judges import agreement_judge
from tests.helpers.runs import own_config

LOGGED = 'val/agreement/{}'
SHORT = {
    'img_size': 64,
    'epochs': 2,
    'train_cfg.val_interval': 1,
    'default_hooks.checkpoint.interval': 1,
}


@pytest.fixture(scope='module')
def images(tmp_path_factory):
    root = tmp_path_factory.mktemp('agreement')
    write_images(root)
    return root


@pytest.mark.slow
def test_without_labels(images, tmp_path):
    """Each validation uses the same views, drawn as in training."""
    best = {'default_hooks.checkpoint.save_best': ['knn/top1_k20']}
    runner = run(own_config(images, tmp_path, **SHORT, **best))
    found = {
        name: runner.message_hub.get_scalar(LOGGED.format(name)).data[0]
        for name in ('neighbours', 'untrained', 'raw_pixels')
    }
    assert len(found['untrained']) == 1
    assert len(found['neighbours']) == 2
    (best,) = tmp_path.glob('best_agreement_neighbours_*.pth')
    loop = runner.val_loop
    assert loop.run() == loop.run()
    prepare = runner.model.data_preprocessor
    views = [prepare(batch)['inputs'] for batch in loop.dataloader]
    pixels = [torch.cat([*map(raw_pixels, parts)]) for parts in zip(*views)]
    assert len(pixels[0]) == len(runner.train_dataloader.dataset)
    shares = agreement_judge(pixels, len(pixels[0]) // 10)
    expected = 100 * sum(shares) / len(shares)
    assert found['raw_pixels'] == [pytest.approx(expected)]


@pytest.mark.slow
def test_other_views_begin_anew(images, tmp_path):
    """A run resumed with other views does not compare with earlier numbers."""
    options = SHORT | {'epochs': 1}
    first = run(own_config(images, tmp_path, **options, jitter=0, flip=0))
    cfg = own_config(images, tmp_path, **SHORT)
    cfg.resume = True
    runner = run(cfg)
    scalars = runner.message_hub.log_scalars
    start, neighbours, raw = (
        scalars[LOGGED.format(name)].data[0]
        for name in ('start', 'neighbours', 'raw_pixels')
    )
    assert [len(start), len(neighbours), len(raw)] == [1, 2, 1]
    # The start is the encoder of the first epoch, measured with the views of
    # the second run.
    assert start[0] != neighbours[0]
    assert LOGGED.format('untrained') not in scalars
    score = runner.message_hub.get_info('best_score')
    assert score == neighbours[1]
    assert score < first.message_hub.get_info('best_score')  # easier views


@pytest.mark.slow
def test_what_a_validation_measures_by(images, tmp_path):
    """A validation with k-NN also depends on the training's views."""
    fewer = tmp_path / 'fewer'
    shutil.copytree(images, fewer, ignore=lambda *_: ['0.jpg', 'agreement'])

    def digest(root=images, **options):
        cfg = own_config(images, tmp_path, knn_root=str(root), **options)
        runner = RUNNERS.build(cfg)
        assert runner.val_loop is not None  # builds its data sets
        return validation_digest(runner)

    usual = digest()
    assert usual == digest(**{'val_cfg.fp16': False, 'epochs': 7})
    load = 'train_dataloader.dataset.pipeline.LoadImage'
    assert usual == digest(**{f'{load}.max_unreadable': 0.5})
    moved = shutil.copytree(images, tmp_path / 'moved')
    assert usual == digest(moved)
    others = (
        digest(jitter=0),
        digest(fewer),
        digest(**{'val_cfg.which': 'student'}),
    )
    assert len({usual, *others}) == 4


def test_can_be_left_out(images):
    cfg = own_config(images, **{'val_cfg.agreement': None})
    assert cfg.val_cfg is cfg.val_dataloader is cfg.val_evaluator is None


def test_takes_each_image_of_a_wrapper_once(images):
    cfg = own_config(images)
    plain = views_loader(cfg.train_dataloader)
    part = cfg.train_dataloader.dataset
    cfg.train_dataloader.num_batch_per_epoch = 3
    cfg.train_dataloader.dataset = dict(
        type='RepeatDataset', times=2, dataset=part
    )
    assert views_loader(cfg.train_dataloader) == plain


@pytest.mark.slow
def test_takes_images_of_all_sets(images):
    """Images are numbered across the sets, and keep their own views."""
    cfg = own_config(images)
    part = cfg.train_dataloader.dataset
    several = dict(type='ConcatDataset', datasets=[part, part])
    cfg.train_dataloader.dataset = several
    cfg.val_dataloader = views_loader(cfg.train_dataloader)
    loop = RUNNERS.build(cfg).val_loop
    both = loop.dataloader.dataset
    half = len(both) // 2
    found = [*map(both.__getitem__, range(len(both)))]
    ids = [row['data_samples'].sample_idx for row in found]
    paths = [row['data_samples'].img_path for row in found]
    assert ids == [*range(len(both))]
    assert paths[:half] == paths[half:]
    assert (found[0]['inputs'][0] != found[half]['inputs'][0]).any()
    assert 0 <= loop.measure()['agreement/neighbours'] <= 100


def test_takes_some_images_evenly_spaced(images):
    options = {'val_cfg.agreement': dict(num_images=4, k=1)}
    cfg = own_config(images, **SHORT, **options)
    chosen = RUNNERS.build(cfg).build_dataloader(cfg.val_dataloader).dataset
    files = [chosen.get_data_info(row)['img_path'] for row in range(4)]
    whole = DATASETS.build(cfg.train_dataloader.dataset)
    every = [whole.get_data_info(row)['img_path'] for row in range(len(whole))]
    assert files == [every[row] for row in (0, 21, 41, 62)]


def test_ends_with_a_verdict():
    """A drop below random weights is worded differently from other drops."""
    margin = 2.0
    judgement = Judgement('last', '{}', 'agreement', margin)
    hook = BaselinesHook(SimpleNamespace(judgements=[judgement]))
    last = hook.last['last'] = 30.0
    for kind, before, raw in (
        ('start', last + margin, 0.0),
        ('untrained', last + margin, 0.0),
        ('start', last + 0.9 * margin, 0.0),
        ('start', last - 0.9 * margin, 0.0),
        ('untrained', last - margin, 0.0),
        ('untrained', last - margin, last + 1),
    ):
        numbers = {kind: before, 'raw_pixels': raw}
        logs = {
            f'val/{k}': HistoryBuffer([n], [1]) for k, n in numbers.items()
        }
        hook.after_train(
            SimpleNamespace(
                message_hub=SimpleNamespace(log_scalars=logs),
                logger=SimpleNamespace(info=lambda _: None),
            )
        )
    lost, less, *small, learned, like_pixels = (
        text.rsplit('):')[-1] for text in hook.gains
    )
    assert small[0] == small[1]
    assert len({lost, less, small[0], learned, like_pixels}) == 5
