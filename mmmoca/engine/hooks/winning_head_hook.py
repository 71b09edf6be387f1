# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmmoca.checkpoints import read_checkpoint
from mmmoca.engine.steps import unwrap_model
from mmmoca.files import atomic_write, write_text
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
        path = Path(runner.work_dir, f'{self.name}.pth')
        if path.is_file():
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
            metrics (Dict[str, float]): Metrics of the validation, those of
                ``LinearProbeAccuracy`` among them.
        """
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
        model, winner = unwrap_model(runner.model), result['head']
        weights = {
            name: value
            for name, value in model.state_dict().items()
            if name.startswith(('backbone.', 'neck.'))
        }
        weights['head.fc.weight'] = model.head.weight[winner]
        weights['head.fc.bias'] = model.head.bias[winner]
        # Cloned: a slice would be saved with the storage of all heads.
        weights = {k: v.detach().cpu().clone() for k, v in weights.items()}
        config = classifier_config(runner.cfg, model.head.in_channels)
        meta = dict(
            epoch=runner.epoch,
            iter=runner.iter,
            linear_probe=result,
            cfg=config.pretty_text,
            dataset_meta=runner.train_dataloader.dataset.metainfo,
        )
        path = Path(runner.work_dir, f'{self.name}.pth')
        with atomic_write(path) as temporary:
            torch.save(dict(meta=meta, state_dict=weights), temporary)
        write_text(path.with_suffix('.py'), config.pretty_text)
        runner.logger.info(f'best linear classifier so far in {path}')


def classifier_config(cfg: Config, in_channels: int) -> Config:
    """Config to test one of a linear probe's classifiers.

    Args:
        cfg (Config): Config of the probe's training.
        in_channels (int): Width of the features.

    Returns:
        Config: An ``ImageClassifier`` and how to test it.
    """
    classes = cfg.model.head.num_classes
    model = dict(
        dict(data_preprocessor=cfg.get('data_preprocessor')) | cfg.model,
        type='ImageClassifier',
        backbone=dict(cfg.model.backbone, init_cfg=None),
        head=dict(
            type='LinearClsHead', num_classes=classes, in_channels=in_channels
        ),
    )
    return Config(
        dict(
            default_scope='mmpretrain',
            model=model,
            test_dataloader=cfg.get('test_dataloader') or cfg.val_dataloader,
            test_evaluator=dict(type='Accuracy', topk=(1, min(5, classes))),
            test_cfg=dict(),
            custom_hooks=[dict(type='mmmoca.CheckpointFitHook')],
        )
    )
