# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Weighted k-NN classification as a validation loop."""

import copy
import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmengine.evaluator import Evaluator
from mmengine.hooks import IterTimerHook
from mmengine.runner import ValLoop
from torch import Tensor
from torch.utils.data import DataLoader

from mmmoca.engine.steps import unwrap_model
from mmmoca.evaluation.features import describe_batch, extract_shard
from mmmoca.evaluation.knn import knn_settings, knn_vote
from mmmoca.evaluation.knn_bank import ShardedBank
from mmmoca.evaluation.loaders import (
    check_loader,
    check_same_classes,
    class_names,
    moved,
    rng_untouched,
)
from mmmoca.registry import LOOPS

__all__ = ['KNNValLoop']


@LOOPS.register_module()
class KNNValLoop(ValLoop):
    """Validation by weighted k-NN, for use during training too.

    The features of the bank images and of the loop's own images (the queries)
    are L2-normalised; the k bank images of highest cosine similarity vote for
    their class with weight exp(sim / T). The result does not depend on the
    number of ranks, each of which holds its own part of the bank only. Random
    states and the mode of the model are the same before and after: training
    goes on as if the loop had not run.

    Each query's data sample gets ``knn_pred`` (setting -> up to five labels,
    best first) for :class:`KNNAccuracy` and, for any other metric,
    ``pred_score`` and ``pred_label`` from the first k and temperature.

    Args:
        runner (Runner): The runner. Its model has ``data_preprocessor`` and
            ``extract_feat(inputs)``, which returns (B, D), or a tuple whose
            last item is that.
        dataloader (DataLoader or dict): Loader of the query images.
        evaluator (Evaluator or dict or list): Metrics.
        bank_dataloader (DataLoader or dict): Loader of the labelled bank
            images. Its sampler defaults to ``DefaultSampler`` unshuffled.
        k (int or Sequence[int]): Numbers of neighbours; all images vote if the
            bank has fewer. Defaults to (10, 20).
        temperature (float or Sequence[float]): T. Defaults to 0.07.
        which (str, optional): 'teacher' or 'student', handed on to
            ``extract_feat``; the model's own default if not given.
        fp16 (bool): Extract under autocast (bfloat16 on a CPU). Defaults to
            False.
        bank_dtype (str): 'float32', or 'float16' to halve the memory of a
            large bank. Defaults to 'float32'.
        chunk_size (int): Rows compared at a time, see
            :func:`mmmoca.evaluation.knn_search`. Defaults to 8192.
        log_interval (int): Bank batches from one log line to the next.
            Defaults to 50.
        data_root (str, optional): Folder of both sets, in the place of the
            ``data_root`` that each has.

    Raises:
        ValueError: If an argument is out of range; bank or query images have
            no label; their classes differ, or there is but one; the best
            checkpoint is asked for by what is not measured; or a loader never
            ends.
    """

    stage = 'val'

    def __init__(
        self,
        runner,
        dataloader: DataLoader | dict,
        evaluator: Evaluator | dict | list,
        bank_dataloader: DataLoader | dict,
        k: int | Sequence[int] = (10, 20),
        temperature: float | Sequence[float] = 0.07,
        which: str | None = None,
        fp16: bool = False,
        bank_dtype: str = 'float32',
        chunk_size: int = 8192,
        log_interval: int = 50,
        data_root: str | None = None,
    ) -> None:
        dataloader = moved(dataloader, data_root)
        bank_dataloader = moved(bank_dataloader, data_root)
        super().__init__(runner, dataloader, evaluator, fp16=fp16)
        self.settings = knn_settings(k, temperature)
        self.max_k = max(k for _, k, _ in self.settings)
        if bank_dtype not in ('float32', 'float16'):
            raise ValueError(
                "bank_dtype must be 'float32' or 'float16', but "
                f'got {bank_dtype!r}.'
            )
        self.which = which
        self.bank_dtype = getattr(torch, bank_dtype)
        self.chunk_size = chunk_size
        self.log_interval = log_interval
        if isinstance(bank_dataloader, dict):
            bank_dataloader = copy.deepcopy(bank_dataloader)
            bank_dataloader.setdefault(
                'sampler', dict(type='DefaultSampler', shuffle=False)
            )
            # Shards of a shuffled bank fit together only if all ranks shuffle
            # alike: this flag makes the sampler draw a common seed.
            with rng_untouched():
                bank_dataloader = runner.build_dataloader(
                    bank_dataloader, seed=runner.seed, diff_rank_seed=True
                )
        self.bank_dataloader = bank_dataloader
        check_loader(bank_dataloader, 'k-NN bank')
        check_loader(self.dataloader, 'k-NN query')
        check_same_classes(bank_dataloader, self.dataloader, ('bank', 'query'))
        size = len(bank_dataloader.dataset)
        if self.max_k > size:
            message = (
                f'k={self.max_k} neighbours, but the bank has only {size} '
                'images'
            )
            if self.stage == 'test':
                raise ValueError(f'{message}: write a smaller test_cfg.k')
            runner.logger.warning(f'{message}: all of them vote')
        self._check_best()

    def _check_best(self) -> None:
        names = [name for name, _, _ in self.settings]
        measured = [f'knn/top{n}_{name}' for name in names for n in (1, 5)]
        for hook in self.runner.hooks:
            for name in getattr(hook, 'save_best', None) or ():
                if name.startswith('knn/') and name not in measured:
                    raise ValueError(
                        f'save_best={name}: the k-NN measures '
                        f'{", ".join(measured)}'
                    )

    def run(self) -> dict:
        """Extract the bank, classify the queries, compute the metrics.

        Returns:
            dict: Metrics of the evaluator.
        """
        runner, stage = self.runner, self.stage
        training = runner.model.training
        runner.call_hook(f'before_{stage}')
        runner.call_hook(f'before_{stage}_epoch')
        runner.model.eval()
        with rng_untouched():
            self._bank = self._extract_bank()
            self._classes = self._label_values(self._bank)
            for hook in runner.hooks:
                # Else the bank's minutes count as loading of the first query
                # batch and spoil the remaining time that is shown.
                if isinstance(hook, IterTimerHook):
                    getattr(hook, f'before_{stage}_epoch')(runner)
            for idx, data_batch in enumerate(self.dataloader):
                self.run_iter(idx, data_batch)
            self._bank.serve(self.max_k)
            del self._bank
        metrics = self.evaluator.evaluate(len(self.dataloader.dataset))
        runner.call_hook(f'after_{stage}_epoch', metrics=metrics)
        runner.call_hook(f'after_{stage}')
        runner.model.train(training)
        return metrics

    @torch.no_grad()
    def run_iter(self, idx: int, data_batch: dict) -> None:
        """Classify one batch of queries.

        Args:
            idx (int): Index of the batch.
            data_batch (dict): Batch of the query loader.
        """
        hook = self.runner.call_hook
        hook(f'before_{self.stage}_iter', batch_idx=idx, data_batch=data_batch)
        classes = self._classes
        feats, samples = self._features(data_batch, 'k-NN query')
        sims, _, labels = self._bank.search(feats, self.max_k)
        rows = torch.searchsorted(classes.to(labels.device), labels)
        shares = {
            name: knn_vote(sims[:, :k], rows[:, :k], len(classes), t).cpu()
            for name, k, t in self.settings
        }
        first = shares[next(iter(shares))]
        best = {
            name: share.topk(min(5, len(classes)))
            for name, share in shares.items()
        }
        for i, sample in enumerate(samples):
            preds = {
                name: classes[top[i][votes[i] > 0]].tolist()
                for name, (votes, top) in best.items()
            }
            sample.set_field(preds, 'knn_pred')
            sample.set_field(first[i], 'pred_score')
            sample.set_field(classes[first[i].argmax(0, True)], 'pred_label')
            sample.set_field(
                len(classes), 'num_classes', field_type='metainfo'
            )
        self.evaluator.process(data_samples=samples, data_batch=data_batch)
        hook(
            f'after_{self.stage}_iter',
            batch_idx=idx,
            data_batch=data_batch,
            outputs=samples,
        )

    def _features(self, data_batch: dict, role: str) -> tuple[Tensor, list]:
        """L2-normalised features (B, D) and the data samples of a batch."""
        model = unwrap_model(self.runner.model)
        feats, samples = describe_batch(
            model, data_batch, role, self.which, self.fp16
        )
        return F.normalize(feats, dim=1), samples

    def _extract_bank(self) -> ShardedBank:
        loader, logger = self.bank_dataloader, self.runner.logger
        count = itertools.count()

        def describe(data_batch: dict) -> tuple[Tensor, list]:
            described = self._features(data_batch, 'k-NN bank')
            # Not a hook of MMEngine's: PreemptionHook has it.
            self.runner.call_hook(
                'after_bank_iter', batch_idx=next(count), loader=loader
            )
            return described

        shard = extract_shard(
            loader,
            describe,
            'k-NN bank',
            logger,
            self.bank_dtype,
            self.log_interval,
        )
        bank = ShardedBank(shard, self.chunk_size)
        logger.info(
            f'k-NN bank: {bank.num_images} of {len(loader.dataset)} images, '
            f'{bank.feats.shape[1]} features'
        )
        return bank

    def _label_values(self, bank: ShardedBank) -> Tensor:
        """Labels of the classes, ascending, (C,), on the CPU."""
        names, labels = class_names(self.bank_dataloader), bank.class_labels
        if len(labels) < 2:
            raise ValueError(
                'All bank images are of one class, so any accuracy would be '
                '100 %: put the images of each class into a folder of its '
                'own, <data_root>/<class>/<image>.'
            )
        if labels.min() < 0 or labels.max() >= len(names):
            return labels
        return torch.arange(len(names))
