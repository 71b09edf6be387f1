# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Weighted k-NN classification as a validation and as a test."""

from collections.abc import Callable, Sequence
from itertools import groupby, islice

import torch
import torch.nn.functional as F
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch.utils.data import DataLoader

from mmmoca.checkpoints.pretrained_init import starts_pretrained
from mmmoca.engine.steps import has_loaded, resumes
from mmmoca.evaluation.features import raw_pixels
from mmmoca.evaluation.knn import knn_settings, knn_vote
from mmmoca.evaluation.knn_bank import ShardedBank
from mmmoca.evaluation.loaders import (
    check_same_classes,
    class_label,
    class_names,
)
from mmmoca.evaluation.report import render_table
from mmmoca.registry import LOOPS

from .feature_loop import FeatureLoop

_ONE_CLASS = (
    'k-NN needs labelled images of at least two classes: put those of each '
    'into a folder, <data_root>/<class>/<image>'
)


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
        bank_dtype (str): 'float32', or 'float16' to halve the memory of a
            large bank. Defaults to 'float32'.
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
        bank_dtype: str = 'float32',
        baselines: bool = False,
        **kwargs,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.settings = knn_settings(k, temperature)
        if bank_dtype not in ('float32', 'float16'):
            raise ValueError("bank_dtype must be 'float32' or 'float16'")
        self.bank_dtype = getattr(torch, bank_dtype)
        self.bank_dataloader = self.build_labelled(bank_dataloader)
        check_same_classes(
            self.bank_dataloader, self.dataloader, ('bank', 'query')
        )
        bank = self.bank_dataloader.dataset
        if hasattr(bank, 'get_data_info'):
            infos = map(bank.get_data_info, range(len(bank)))
            labels = (class_label(info, 'bank') for info in infos)
            if len([*islice(groupby(labels), 2)]) < 2:
                raise ValueError(_ONE_CLASS)
        names = [
            f'knn/top{n}_{s}' for s, _, _ in self.settings for n in (1, 5)
        ]
        for hook in self.runner.hooks:
            for best in getattr(hook, 'save_best', None) or ():
                if best.startswith('knn/') and best not in names:
                    raise ValueError(f'save_best={best}: write one of {names}')
        if baselines and self.stage == 'val':
            self.runner.register_hook(_BaselinesHook(self))

    @torch.no_grad()
    def classify(self, encode: Callable | None = None) -> None:
        """Extract bank and queries, and let the neighbours vote.

        Args:
            encode (Callable, optional): See :meth:`extract`.
        """
        options = F.normalize, encode
        bank = ShardedBank(
            self.extract(
                self.bank_dataloader, 'k-NN bank', *options, self.bank_dtype
            )
        )
        labels = bank.class_labels
        if len(labels) < 2 or labels[0] < 0:
            raise ValueError(_ONE_CLASS)
        names = class_names(self.bank_dataloader)
        num_classes = max(len(names), int(labels[-1]) + 1)
        queries = self.extract(self.dataloader, 'k-NN query', *options)
        max_k = max(k for _, k, _ in self.settings)
        for ids, feats, truth in zip(*(part.split(256) for part in queries)):
            sims, _, labels = bank.search(feats, max_k)
            samples = [
                dict(
                    sample_idx=index,
                    num_classes=num_classes,
                    gt_label=label,
                    knn_pred={},
                )
                for index, label in zip(ids.tolist(), truth.unsqueeze(1))
            ]
            for name, k, t in self.settings:
                shares = knn_vote(
                    sims[:, :k], labels[:, :k], num_classes, t
                ).cpu()
                best = shares.topk(min(5, num_classes))
                for sample, share, votes, classes in zip(
                    samples, shares, *best
                ):
                    sample['knn_pred'][name] = classes[votes > 0].tolist()
                    sample.setdefault('pred_score', share)
                    sample.setdefault('pred_label', classes[:1])
            self.evaluator.process(data_samples=samples)
        bank.serve(max_k)


class _BaselinesHook(Hook):
    """Measures what a training starts from, and says what it has gained.

    A resumed run has the numbers from the message hub of its checkpoint.
    """

    def __init__(self, loop: KNNValLoop) -> None:
        self.loop = loop
        self.setting = loop.settings[-1][0]

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

    def after_train(self, runner: Runner) -> None:
        """Compare the last accuracy with them."""
        logs, end = runner.message_hub.log_scalars, f'_{self.setting}'
        found = {
            name: logs[key].current()
            for name in ('top1', 'start', 'untrained', 'raw_pixels')
            if (key := f'val/knn/{name}{end}') in logs
        }
        last = found.pop('top1', None)
        if last is not None and found:
            log = runner.logger
            say = log.info if last > max(found.values()) else log.warning
            gains = (
                f'{n} {v:.1f} ({last - v:+.1f})' for n, v in found.items()
            )
            say(f'k-NN accuracy{end}: {last:.1f} %; {", ".join(gains)}')


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
