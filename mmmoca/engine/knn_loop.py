# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Weighted k-NN classification as validation and test loops."""

import copy
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.dataset import InfiniteSampler
from mmengine.evaluator import Evaluator
from mmengine.hooks import IterTimerHook
from mmengine.runner import ValLoop, autocast
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader

from mmmoca.evaluation.knn import gather_samples, knn_search, knn_vote
from mmmoca.registry import LOOPS

from .steps import unwrap_model

__all__ = ['KNNTestLoop', 'KNNValLoop']


@contextmanager
def _rng_untouched() -> Iterator[None]:
    """Give the caller its random states back, as if nothing had run."""
    # A data loader draws a seed from the global generator each time that it
    # is iterated over: training would go on differently after a validation.
    states = random.getstate(), np.random.get_state()
    cuda = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices=cuda):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


@LOOPS.register_module()
class KNNValLoop(ValLoop):
    """Validation by weighted k-NN, for use during training too.

    The features of the bank images and of the loop's own images (the queries)
    are L2-normalised; the k bank images of highest cosine similarity vote for
    their class with weight exp(sim / T). The result does not depend on the
    number of ranks. Random states and the mode of the model are the same
    before and after: training goes on as if the loop had not run.

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

    Raises:
        ValueError: If an argument is out of range; bank or query images have
            no label; their classes differ; or a loader never ends.
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
    ) -> None:
        super().__init__(runner, dataloader, evaluator, fp16=fp16)
        self.k = (k,) if isinstance(k, int) else tuple(k)
        if not self.k or any(not isinstance(n, int) or n < 1 for n in self.k):
            raise ValueError(
                'k must be one or several integers of at least '
                f'1, such as k=(10, 20), but got {k!r}.'
            )
        self.temperature = (
            (temperature,)
            if isinstance(temperature, (int, float))
            else tuple(temperature)
        )
        if not self.temperature or any(
            not isinstance(t, (int, float)) or t <= 0 for t in self.temperature
        ):
            raise ValueError(
                'temperature must be one or several numbers above'
                f' 0, such as 0.07, but got {temperature!r}.'
            )
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
            with _rng_untouched():
                bank_dataloader = runner.build_dataloader(
                    bank_dataloader, seed=runner.seed, diff_rank_seed=True
                )
        self.bank_dataloader = bank_dataloader
        self._check_data()

    def _check_data(self) -> None:
        """Refuse at build time what would go wrong hours later."""
        classes = {}
        for role, loader in (
            ('bank', self.bank_dataloader),
            ('query', self.dataloader),
        ):
            dataset = loader.dataset
            sampler = getattr(loader.batch_sampler, 'sampler', loader.sampler)
            if isinstance(sampler, InfiniteSampler):
                raise ValueError(
                    f'The k-NN {role} loader would never end: write '
                    "sampler=dict(type='DefaultSampler', shuffle=False)."
                )
            if isinstance(dataset, ConcatDataset):
                raise ValueError(
                    f'The k-NN {role} images are told apart by sample_idx, '
                    'which ConcatDataset repeats: list all images in one '
                    'data set, for example by CustomDataset(ann_file=...).'
                )
            if hasattr(dataset, 'get_data_info'):
                self._check_label(dataset.get_data_info(0), role)
            classes[role] = getattr(dataset, 'metainfo', {}).get('classes')
        bank, query = classes.values()
        if bank and query and tuple(bank) != tuple(query):
            differ = [str(name) for name in sorted(set(bank) ^ set(query))]
            raise ValueError(
                f'Bank ({len(bank)}) and query images ({len(query)}) must '
                'have the same classes in the same order, but these differ: '
                f'{", ".join(differ[:5]) or "order"}. Make the same folders '
                'on both sides, empty ones for absent classes.'
            )
        size = len(self.bank_dataloader.dataset)
        if max(self.k) > size:
            self.runner.logger.warning(
                f'k-NN with k={max(self.k)}, but the bank has only {size} '
                'images: all of them vote.'
            )

    def _check_label(self, sample, role: str) -> None:
        """Raise an error unless the sample has one class label."""
        label = sample.get('gt_label')
        if label is None or torch.as_tensor(label).numel() != 1:
            raise ValueError(
                f'The k-NN {role} images have no class label. Use a data set '
                'with one integer label per image (CustomDataset: a folder '
                f'per class, with_label=True), or leave out {self.stage}_cfg, '
                f'{self.stage}_dataloader and {self.stage}_evaluator.'
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
        with _rng_untouched():
            self._bank = self._extract_bank()
            for hook in runner.hooks:
                # Else the bank's minutes count as loading of the first query
                # batch and spoil the remaining time that is shown.
                if isinstance(hook, IterTimerHook):
                    getattr(hook, f'before_{stage}_epoch')(runner)
            for idx, data_batch in enumerate(self.dataloader):
                self.run_iter(idx, data_batch)
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
        bank, targets, classes = self._bank
        feats, samples = self._features(data_batch, 'query')
        sims, rows = knn_search(feats, bank, max(self.k), self.chunk_size)
        labels = targets.to(rows.device)[rows]
        shares = {}
        for k in self.k:
            for t in self.temperature:
                name = f'k{k}_t{t:g}' if len(self.temperature) > 1 else f'k{k}'
                shares[name] = knn_vote(
                    sims[:, :k], labels[:, :k], len(classes), t
                ).cpu()
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
        data = model.data_preprocessor(data_batch, False)
        kwargs = {} if self.which is None else dict(which=self.which)
        with autocast(enabled=self.fp16):
            feats = model.extract_feat(data['inputs'], **kwargs)
        if isinstance(feats, (tuple, list)):
            feats = feats[-1]
        if feats.ndim != 2:
            raise ValueError(
                f'k-NN needs extract_feat of {type(model).__name__} to return '
                f'one vector per image, (B, D), but got {tuple(feats.shape)}.'
            )
        samples = data.get('data_samples') or [{}]
        for sample in samples:
            self._check_label(sample, role)
            if 'sample_idx' not in sample:
                raise ValueError(
                    f'The k-NN {role} images have no sample_idx: keep it '
                    'among the meta_keys of PackInputs.'
                )
        return F.normalize(feats.float(), dim=1), samples

    @torch.no_grad()
    def _extract_bank(self) -> tuple[Tensor, Tensor, Tensor]:
        """Features (N, D), class rows (N,) and labels of the classes (C,)."""
        logger, loader = self.runner.logger, self.bank_dataloader
        feats = [torch.empty(0, 0, dtype=self.bank_dtype)]
        labels, ids = [], []
        start = time.time()
        for i, data_batch in enumerate(loader, 1):
            batch, samples = self._features(data_batch, 'bank')
            feats.append(batch.to(self.bank_dtype))
            labels += [int(sample.gt_label) for sample in samples]
            ids += [int(sample.sample_idx) for sample in samples]
            if i % self.log_interval == 0:
                each = (time.time() - start) / i
                eta = timedelta(seconds=int(each * (len(loader) - i)))
                logger.info(
                    f'k-NN bank [{i}/{len(loader)}]  eta: {eta}  '
                    f'time: {each:.4f}'
                )
        ids, bank, labels = gather_samples(
            torch.tensor(ids, dtype=torch.int64),
            torch.cat(feats[1:] or feats),
            torch.tensor(labels, dtype=torch.int64),
        )
        if not bank.isfinite().all():
            raise ValueError(
                'The model gives features that are not finite: '
                'it has diverged or its weights do not fit.'
            )
        logger.info(
            f'k-NN bank: {len(ids)} of {len(loader.dataset)} images, '
            f'{bank.shape[1]} features, {bank.nbytes / 2**20:.1f} MiB,'
            f' {time.time() - start:.1f} s'
        )
        names = getattr(loader.dataset, 'metainfo', {}).get('classes') or ()
        classes = torch.arange(len(names))
        if labels.min() < 0 or labels.max() >= len(names):
            classes = labels.unique()
        return bank, torch.searchsorted(classes, labels), classes


@LOOPS.register_module()
class KNNTestLoop(KNNValLoop):
    """:class:`KNNValLoop` for ``test_cfg``, with the same arguments."""

    stage = 'test'
