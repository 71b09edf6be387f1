# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from pathlib import Path

from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmmoca.checkpoints import read_checkpoint, write_checkpoint
from mmmoca.engine.steps import unwrap_model
from mmmoca.files import write_text
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
        result = {k.removeprefix('linear/'): v for k, v in metrics.items()}
        model, winner = unwrap_model(runner.model), result['head']
        weights = {
            name: value.cpu()
            for name, value in model.state_dict().items()
            if name.startswith(('backbone.', 'neck.'))
        }
        weights['head.fc.weight'] = model.head.weight[winner].cpu()
        weights['head.fc.bias'] = model.head.bias[winner].cpu()
        config = classifier_config(runner.cfg, model.head.in_channels)
        meta = dict(
            epoch=runner.epoch,
            iter=runner.iter,
            linear_probe=result,
            cfg=config.pretty_text,
            dataset_meta=runner.train_dataloader.dataset.metainfo,
        )
        path = Path(runner.work_dir, f'{self.name}.pth')
        write_checkpoint(dict(meta=meta, state_dict=weights), path)
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
    model, classes = cfg.model, cfg.model.head.num_classes
    head = dict(
        type='LinearClsHead', num_classes=classes, in_channels=in_channels
    )
    return Config(
        dict(
            default_scope='mmpretrain',
            data_preprocessor=cfg.get('data_preprocessor'),
            model=dict(
                model,
                type='ImageClassifier',
                backbone=dict(model.backbone, init_cfg=None),
                head=head,
            ),
            test_dataloader=cfg.get('test_dataloader') or cfg.val_dataloader,
            test_evaluator=dict(type='Accuracy', topk=(1, min(5, classes))),
            test_cfg=dict(),
            custom_hooks=[dict(type='mmmoca.CheckpointFitHook')],
        )
    )
