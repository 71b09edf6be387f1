# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from pathlib import Path

from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmmoca.checkpoints import read_checkpoint, run_record, write_checkpoint
from mmmoca.engine.steps import unwrap_model
from mmmoca.files import write_text
from mmmoca.registry import HOOKS


@HOOKS.register_module()
class WinningHeadHook(Hook):
    """Writes the best classifier of a linear probe.

    After each validation with the highest accuracy so far, the hook writes two
    files to the work dir. ``linear_best.pth`` contains the weights of
    mmpretrain's ``ImageClassifier``: the frozen backbone and the best linear
    layer. ``linear_best.py`` is its config. ``tools/test.py`` and mmpretrain's
    ``ImageClassificationInferencer`` load these files. The checkpoint's
    ``meta`` contains the learning rate, the accuracy and the iteration.

    The hook needs :class:`~mmmoca.evaluation.LinearProbeAccuracy`. A resumed
    run takes the best accuracy so far from ``linear_best.pth``.
    """

    def __init__(self) -> None:
        self._best = -1.0

    def before_train(self, runner: Runner) -> None:
        """Take over the best accuracy of a resumed run."""
        path = Path(runner.work_dir, 'linear_best.pth')
        if path.is_file():
            saved = read_checkpoint(path, lazy=True)['meta']
            # The run repeats the iterations after its checkpoint, so a file
            # from one of them does not count.
            if saved['iter'] <= runner.iter:
                self._best = saved['linear_probe']['top1']

    def after_val_epoch(
        self, runner: Runner, metrics: dict[str, float] | None = None
    ) -> None:
        """Write the best classifier if it is better than all earlier ones.

        Args:
            runner (Runner): The runner of the training run.
            metrics (dict[str, float]): Metrics of the validation, including
                those of ``LinearProbeAccuracy``.
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
            mmmoca=run_record(runner.cfg.to_dict(), model),
        )
        path = Path(runner.work_dir, 'linear_best.pth')
        write_checkpoint(dict(meta=meta, state_dict=weights), path)
        write_text(path.with_suffix('.py'), config.pretty_text)
        runner.logger.info(f'the best linear classifier so far is in {path}')

    def after_train(self, runner: Runner) -> None:
        """Log the accuracy of the best classifier."""
        if self._best >= 0:
            runner.logger.info(
                f'linear probe: top-1 {self._best:.2f} % with the classifier '
                'in linear_best.pth'
            )


def classifier_config(cfg: Config, in_channels: int) -> Config:
    """Build the config that tests one classifier of a linear probe.

    Args:
        cfg (Config): The config of the linear probe's training run.
        in_channels (int): Width of the features.

    Returns:
        Config: The config of the ``ImageClassifier`` and of its test.
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
            custom_hooks=[
                dict(type='mmmoca.CheckpointFitHook'),
                dict(type='mmmoca.ClassCheckHook'),
            ],
        )
    )
