# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Weighted k-NN classification as a validation and as a test."""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice

from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch.utils.data import DataLoader

from mmmoca.checkpoints.pretrained_init import starts_pretrained
from mmmoca.engine.mmengine import has_loaded, resumes
from mmmoca.evaluation.features import FeatureShard, raw_pixels
from mmmoca.evaluation.loaders import class_label, class_names
from mmmoca.evaluation.protocols.knn import (
    ONE_CLASS,
    knn_predictions,
    knn_settings,
)
from mmmoca.evaluation.report import render_table
from mmmoca.registry import LOOPS

from .feature_loop import FeatureLoop


@LOOPS.register_module()
class KNNValLoop(FeatureLoop):
    """Validation by weighted k-NN, during a training or alone.

    The loop L2-normalises the features of the bank and of its own images, the
    queries. The k bank images of highest cosine similarity vote for their
    class with weight exp(sim / T). Each rank holds a part of the bank; the
    result does not depend on the number of ranks.

    Each query's data sample gets ``knn_pred`` (setting -> up to five labels,
    best first) for :class:`KNNAccuracy` and, for any other metric,
    ``pred_score`` and ``pred_label`` from the first k and temperature.

    Args:
        *args: See :class:`FeatureLoop`.
        bank_dataloader (DataLoader or dict): Loader of the labelled bank
            images.
        k (int or Sequence[int]): Numbers of neighbours. In a smaller bank
            all images vote. Defaults to (10, 20).
        temperature (float or Sequence[float]): T. Defaults to 0.07.
        baselines (bool): Whether a training also measures, before its first
            step, the encoder that it starts from and raw pixels (up to 6912
            numbers an image), by the last k and temperature. Each validation
            then logs ``knn/untrained_k20``, or ``knn/start_k20`` of weights
            that were loaded, and ``knn/raw_pixels_k20``. Defaults to False.
        **kwargs: See :class:`FeatureLoop`.

    Raises:
        ValueError: If an argument is out of range, images have no label,
            bank and queries have different classes or only one, a loader
            never ends, or ``save_best`` names a metric that the loop does
            not measure.
    """

    stage = 'val'

    def __init__(
        self,
        *args,
        bank_dataloader: DataLoader | dict,
        k: int | Sequence[int] = (10, 20),
        temperature: float | Sequence[float] = 0.07,
        baselines: bool = False,
        **kwargs,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.settings = knn_settings(k, temperature)
        self.labelled = self.build_labelled(bank_dataloader)
        bank = self.labelled.dataset
        if hasattr(bank, 'get_data_info'):
            infos = map(bank.get_data_info, range(len(bank)))
            labels = (class_label(info, 'bank') for info in infos)
            if len([*islice(groupby(labels), 2)]) < 2:
                raise ValueError(ONE_CLASS)
        names = [
            f'knn/top{n}_{s}' for s, _, _ in self.settings for n in (1, 5)
        ]
        for hook in self.runner.hooks:
            for best in getattr(hook, 'save_best', None) or ():
                if best.startswith('knn/') and best not in names:
                    raise ValueError(f'save_best={best}: write one of {names}')
        if baselines and self.stage == 'val':
            self.runner.register_hook(_BaselinesHook(self))

    def predict(
        self, known: FeatureShard, asked: FeatureShard
    ) -> Iterator[list[dict]]:
        """Let the neighbours vote, see :func:`knn_predictions`."""
        number = len(class_names(self.labelled))
        return knn_predictions(known, asked, self.settings, number)


class _BaselinesHook(Hook):
    """Measures what a training starts from, and says what it has gained.

    A resumed run has the numbers from the message hub of its checkpoint.
    """

    def __init__(self, loop: KNNValLoop) -> None:
        self.loop = loop
        self.setting = loop.settings[-1][0]
        self.last: float | None = None

    def before_train(self, runner: Runner) -> None:
        """Measure it, unless the run is resumed or never validates."""
        # One that was stopped before its first step is resumed, too.
        goes_on = resumes(runner) and has_loaded(runner)
        if goes_on or runner.train_loop.val_begin > runner.max_iters:
            return
        loads = runner.cfg.get('load_from') or starts_pretrained(runner.model)
        start = 'start' if loads else 'untrained'
        for name, encode in ((start, None), ('raw_pixels', raw_pixels)):
            metrics = self.loop.measure(encode=encode)
            if (top1 := metrics.get(f'knn/top1_{self.setting}')) is not None:
                # Under a name of the validation, whose log lines have it.
                key = f'knn/{name}_{self.setting}'
                runner.message_hub.update_scalar(f'val/{key}', top1)
                runner.visualizer.add_scalars({key: top1}, step=0)
                runner.logger.info(f'k-NN before training, {key}: {top1:.2f}')

    def after_val_epoch(
        self, runner: Runner, metrics: dict[str, float] | None = None
    ) -> None:
        """Keep the accuracy. A complete run that is resumed has none."""
        self.last = (metrics or {}).get(f'knn/top1_{self.setting}')

    def after_train(self, runner: Runner) -> None:
        """Compare the last accuracy with them."""
        logs, end = runner.message_hub.log_scalars, f'_{self.setting}'
        found = {
            name: logs[key].current()
            for name in ('start', 'untrained', 'raw_pixels')
            if (key := f'val/knn/{name}{end}') in logs
        }
        if (last := self.last) is not None and found:
            gains = ', '.join(
                f'{name.replace("_", " ")} {value:.1f} ({last - value:+.1f})'
                for name, value in found.items()
            )
            runner.logger.info(
                f'k-NN top-1 ({self.setting}): {last:.1f} % of '
                f'{len(runner.val_dataloader.dataset)} images; {gains}'
            )


@LOOPS.register_module()
class KNNTestLoop(KNNValLoop):
    """:class:`KNNValLoop` for ``test_cfg``, with the same arguments.

    It logs the accuracies of :class:`KNNAccuracy` as a table, too.
    """

    stage = 'test'

    def run(self) -> dict:
        """Classify the queries and log the accuracies.

        Returns:
            dict: Metrics of the evaluator.
        """
        metrics = super().run()
        rows: dict[float, list[str]] = {}
        for name, _, t in self.settings:
            accuracy = metrics.get(f'knn/top1_{name}')
            if accuracy is not None:
                row = rows.setdefault(t, [f'T = {t:g}'])
                row.append(f'{accuracy:.2f}')
        if rows:
            ks = dict.fromkeys(f'k = {k}' for _, k, _ in self.settings)
            table = render_table(['k-NN top-1 (%)', *ks], [*rows.values()])
            self.runner.logger.info(f'\n{table}')
        return metrics
