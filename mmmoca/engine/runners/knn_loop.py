# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Loops for validating and testing by weighted k-NN classification."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice

from torch.utils.data import DataLoader

from mmmoca.config_parts import member_configs, stage_loaders
from mmmoca.engine.copies import plain
from mmmoca.engine.views import views_loader
from mmmoca.evaluation.features import FeatureShard
from mmmoca.evaluation.loaders import class_label, class_names
from mmmoca.evaluation.metrics import (
    KNNAccuracy,
    meaningful_difference,
    top_accuracies,
)
from mmmoca.evaluation.protocols.knn import (
    ONE_CLASS,
    knn_predictions,
    knn_settings,
    small_bank,
)
from mmmoca.evaluation.report import render_table
from mmmoca.registry import LOOPS

from .agreement_loop import NeighbourAgreementValLoop
from .baselines_hook import BaselinesHook, Judgement
from .feature_loop import FeatureLoop


@LOOPS.register_module()
class KNNValLoop(FeatureLoop):
    """Validates by weighted k-NN, during training or on its own.

    The loop L2-normalises the features of the bank and of the queries (the
    images to classify). The k bank images with the highest cosine similarity
    vote for their class with weight exp(sim / T). Each rank holds a part of
    the bank; the result does not depend on the number of ranks.

    Each query's data sample gets ``knn_pred`` for :class:`KNNAccuracy`: a dict
    that maps each setting of k and temperature, such as 'k20', to at most five
    labels, the best first. For other metrics it gets ``pred_score`` and
    ``pred_label``, computed with the first k and temperature.

    Args:
        *args: See :class:`FeatureLoop`.
        bank_dataloader (DataLoader or dict): Loader of the labelled bank
            images.
        k (int or Sequence[int]): Numbers of neighbours. If the bank has fewer
            images, all of them vote. Defaults to (10, 20).
        temperature (float or Sequence[float]): T. Defaults to 0.07.
        baselines (bool): Whether to measure two baselines before the first
            training step: the initial encoder and raw pixels (up to 6912
            numbers per image), both with the last k and temperature. Each
            validation then also logs ``knn/raw_pixels_k20`` and
            ``knn/untrained_k20`` (or ``knn/start_k20``, if training starts
            from loaded weights). Defaults to False.
        agreement (dict, optional): Arguments of
            :class:`NeighbourAgreementValLoop` and of
            :func:`~mmmoca.engine.views.views_loader`. If given, each
            validation also measures the agreement of neighbours among the
            training images. Defaults to None.
        **kwargs: See :class:`FeatureLoop`.

    Raises:
        ValueError: If an argument is out of range, if images have no label,
            if bank and queries have different classes or only one class, or
            if a loader never ends.
    """

    stage = 'val'

    def __init__(
        self,
        *args,
        bank_dataloader: DataLoader | dict,
        k: int | Sequence[int] = (10, 20),
        temperature: float | Sequence[float] = 0.07,
        baselines: bool = False,
        agreement: dict | None = None,
        **kwargs,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.settings = knn_settings(k, temperature)
        self.labelled = self.build_labelled(bank_dataloader)
        bank = self.labelled.dataset
        if note := small_bank(self.settings, len(bank)):
            self.runner.logger.warning(note)
        self._compare_pipelines()
        if hasattr(bank, 'get_data_info'):
            infos = map(bank.get_data_info, range(len(bank)))
            labels = (class_label(info, 'bank') for info in infos)
            if len([*islice(groupby(labels), 2)]) < 2:
                raise ValueError(ONE_CLASS)
        tops = top_accuracies(len(class_names(self.labelled)))
        names = [f'knn/top{n}_{s}' for s, _, _ in self.settings for n in tops]
        names += ['agreement/neighbours'] * (agreement is not None)
        if self.measures_only(KNNAccuracy):
            self.metric_names = names
        last, k, t = self.settings[-1]
        number = len(self.dataloader.dataset)
        title = f'k-NN top-1 ({number} images, k = {k}, T = {t:g})'
        margin = meaningful_difference(number)
        self.judgements = [
            Judgement(f'knn/top1_{last}', f'knn/{{}}_{last}', title, margin)
        ]
        self.agreement = None
        if agreement is not None and self.stage == 'val':
            options = dict(agreement)
            number = options.pop('num_images', None)
            self.agreement = NeighbourAgreementValLoop(
                self.runner,
                views_loader(self.runner.cfg.train_dataloader, number),
                dict(type='mmmoca.NeighbourAgreement'),
                which=self.which,
                fp16=self.fp16,
                **options,
            )
            self.judgements += self.agreement.judgements
        if baselines and self.stage == 'val':
            self.runner.register_hook(BaselinesHook(self))

    def _compare_pipelines(self) -> None:
        """Warn if bank and queries have different pipelines."""
        loaders = stage_loaders(self.runner.cfg, self.stage).values()
        found = [
            [plain(part.get('pipeline')) for part in member_configs(x.dataset)]
            for x in loaders
        ]
        if any(pipelines != found[0] for pipelines in found):
            self.runner.logger.warning(
                f'{self.stage}_dataloader and {self.stage}_cfg.'
                'bank_dataloader have different pipelines, but k-NN needs '
                'images that are prepared in the same way'
            )

    def measure(self, encode: Callable | None = None) -> dict:
        """Measure k-NN accuracy and, if configured, agreement of neighbours.

        See :meth:`FeatureLoop.measure`.
        """
        metrics = super().measure(encode)
        if self.agreement is not None:
            metrics |= self.agreement.measure(encode)
        return metrics

    def predict(
        self, known: FeatureShard, asked: FeatureShard
    ) -> Iterator[list[dict]]:
        """Let the neighbours vote, see :func:`knn_predictions`."""
        number = len(class_names(self.labelled))
        return knn_predictions(known, asked, self.settings, number)


@LOOPS.register_module()
class KNNTestLoop(KNNValLoop):
    """:class:`KNNValLoop` for ``test_cfg``, with the same arguments.

    ``baselines`` and ``agreement`` have no effect in a test. They are accepted
    so that ``test_cfg`` can be a copy of ``val_cfg``.

    The loop also logs the accuracies of :class:`KNNAccuracy` as a table.
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
