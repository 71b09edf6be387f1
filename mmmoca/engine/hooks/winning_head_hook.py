# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import os

import torch
from mmengine import __version__ as mmengine_version
from mmengine.config import Config, ConfigDict
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmmoca.checkpoints import read_checkpoint
from mmmoca.engine.steps import unwrap_model
from mmmoca.files import whole, write_text
from mmmoca.registry import HOOKS

__all__ = ['WinningHeadHook']


@HOOKS.register_module()
class WinningHeadHook(Hook):
    """Writes a linear probe's best classifier as one of MMPreTrain's.

    After each validation that is better than all before, the work dir gets
    ``linear_best.pth``, the weights of an ``ImageClassifier`` of the frozen
    backbone and the winning linear layer, and ``linear_best.py``, its
    config. Both ``tools/test.py`` and MMPreTrain's
    ``ImageClassificationInferencer`` load the two. The checkpoint's ``meta``
    says which learning rate won, how well and when.

    Goes with :class:`~mmmoca.evaluation.LinearProbeAccuracy`. A resumed run
    goes on from the accuracy in the file.

    Args:
        name (str): Names of the two files, without ending. Defaults to
            'linear_best'.
    """

    def __init__(self, name: str = 'linear_best') -> None:
        self.name = name
        self._best = -1.0

    def before_train(self, runner: Runner) -> None:
        """Take up the best accuracy of the run that is resumed."""
        path = self._path(runner, '.pth')
        if runner.iter == 0 or not os.path.isfile(path):
            return
        saved = read_checkpoint(path, lazy=True)['meta']
        # Later ones are of another continuation of the same run.
        if saved['iter'] <= runner.iter:
            self._best = saved['linear_probe']['top1']

    def after_val_epoch(
        self, runner: Runner, metrics: dict[str, float] | None = None
    ) -> None:
        """Write the winner if it is better than those before.

        Args:
            runner (Runner): The runner of the training.
            metrics (Dict[str, float]): Metrics of the validation.

        Raises:
            KeyError: If they have none of ``LinearProbeAccuracy``.
        """
        if 'linear/top1' not in metrics:
            raise KeyError(
                'WinningHeadHook found no linear/top1 among the metrics: '
                "write val_evaluator=dict(type='mmmoca.LinearProbeAccuracy')"
            )
        if metrics['linear/top1'] <= self._best:
            return
        self._best = metrics['linear/top1']
        if not is_main_process():
            return
        result = {
            name.removeprefix('linear/'): value
            for name, value in metrics.items()
            if name.startswith('linear/')
        }
        self._write(runner, result)
        runner.logger.info(
            f'best linear classifier so far: top-1 {result["top1"]:.2f} with '
            f'base learning rate {result["base_lr"]:g}, written to '
            f'{self._path(runner, ".py")} and .pth'
        )

    def _write(self, runner: Runner, result: dict[str, float]) -> None:
        """Write checkpoint and config, each whole or not at all."""
        model = unwrap_model(runner.model)
        head, winner = model.head, result['head']
        weights = {
            name: value.cpu()
            for name, value in model.state_dict().items()
            if name.startswith(('backbone.', 'neck.'))
        }
        # Cloned: a slice would be saved with the storage of all heads.
        weights['head.fc.weight'] = head.weight[winner].detach().clone().cpu()
        weights['head.fc.bias'] = head.bias[winner].detach().clone().cpu()
        config = classifier_config(runner.cfg, head.in_channels).pretty_text
        meta = dict(
            epoch=runner.epoch,
            iter=runner.iter,
            mmengine_version=mmengine_version,
            linear_probe=result,
            cfg=config,
        )
        metainfo = getattr(runner.train_dataloader.dataset, 'metainfo', {})
        if 'classes' in metainfo:
            meta['dataset_meta'] = dict(classes=tuple(metainfo['classes']))
        with whole(self._path(runner, '.pth')) as temporary:
            torch.save(dict(meta=meta, state_dict=weights), temporary)
        write_text(self._path(runner, '.py'), config)

    def _path(self, runner: Runner, ending: str) -> str:
        return os.path.join(runner.work_dir, self.name + ending)


def classifier_config(cfg: Config, in_channels: int) -> Config:
    """Config to test one of a linear probe's classifiers.

    Args:
        cfg (Config): Config of the probe's training.
        in_channels (int): Width of the features.

    Returns:
        Config: An ``ImageClassifier`` and how to test it.
    """
    probe = cfg.model
    backbone = ConfigDict(probe.backbone)
    backbone.pop('init_cfg', None)
    loader = ConfigDict(cfg.get('test_dataloader') or cfg.val_dataloader)
    # The tools choose these for the machine that they run on.
    for name in ('pin_memory', 'persistent_workers'):
        loader.pop(name, None)
    classes = probe.head.num_classes
    return Config(
        dict(
            default_scope='mmpretrain',
            model=dict(
                type='ImageClassifier',
                data_preprocessor=probe.get('data_preprocessor')
                or cfg.get('data_preprocessor'),
                backbone=backbone,
                neck=probe.get('neck'),
                head=dict(
                    type='LinearClsHead',
                    num_classes=classes,
                    in_channels=in_channels,
                ),
            ),
            test_dataloader=loader,
            test_evaluator=dict(
                type='Accuracy', topk=(1, 5) if classes > 5 else (1,)
            ),
            test_cfg=dict(),
            custom_hooks=[dict(type='mmmoca.CheckpointFitHook')],
            env_cfg=cfg.get('env_cfg'),
        )
    )
