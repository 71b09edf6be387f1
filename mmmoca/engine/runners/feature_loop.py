# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What the protocols on frozen features share."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from mmengine.dist import is_main_process
from mmengine.evaluator import Evaluator
from mmengine.runner import TestLoop
from torch import Tensor
from torch.utils.data import DataLoader

from mmmoca.engine.steps import unwrap_model
from mmmoca.evaluation.features import (
    FeatureShard,
    describe_batch,
    extract_shard,
)
from mmmoca.evaluation.loaders import check_loader, moved, rng_untouched
from mmmoca.files import write_json

__all__ = ['FeatureLoop']


class FeatureLoop(TestLoop):
    """Extracts the features of all images, then classifies by them.

    A subclass has ``classify()``, which does both by :meth:`extract` and hands
    its predictions to the evaluator.

    Random states are the same before and after: training goes on as if the
    loop had not run.

    Args:
        runner (Runner): The runner. Its model has ``data_preprocessor`` and
            ``extract_feat(inputs)``, which returns (B, D), or a tuple whose
            last item is that.
        dataloader (DataLoader or dict): Loader of the images to classify.
        evaluator (Evaluator or dict or list): Metrics.
        which (str, optional): 'teacher' or 'student', handed on to
            ``extract_feat``; the model's own default if not given.
        fp16 (bool): Extract under autocast (bfloat16 on a CPU). Defaults to
            False.
        data_root (str, optional): Folder of all sets, in the place of the
            ``data_root`` that each has.

    Raises:
        ValueError: If images have no label, or a loader never ends.
    """

    stage = 'test'

    def __init__(
        self,
        runner,
        dataloader: DataLoader | dict,
        evaluator: Evaluator | dict | list,
        which: str | None = None,
        fp16: bool = False,
        data_root: str | None = None,
    ) -> None:
        super().__init__(runner, moved(dataloader, data_root), evaluator, fp16)
        check_loader(self.dataloader, self.stage)
        self.which = which
        self.data_root = data_root

    def run(self) -> dict:
        """Extract features, classify, compute the metrics.

        Returns:
            dict: Metrics of the evaluator.
        """
        runner, stage = self.runner, self.stage
        runner.call_hook(f'before_{stage}')
        runner.call_hook(f'before_{stage}_epoch')
        runner.model.eval()
        with rng_untouched():
            self.classify()
        metrics = self.evaluator.evaluate(len(self.dataloader.dataset))
        runner.call_hook(f'after_{stage}_epoch', metrics=metrics)
        runner.call_hook(f'after_{stage}')
        return metrics

    def build_labelled(self, loader: DataLoader | dict) -> DataLoader:
        """Build the loader of the images to compare with.

        Args:
            loader (DataLoader or dict): The loader, or its config.

        Returns:
            DataLoader: It, checked; unshuffled by default.
        """
        loader = moved(loader, self.data_root)
        if isinstance(loader, dict):
            sampler = dict(type='DefaultSampler', shuffle=False)
            loader = dict(sampler=sampler) | loader
        loader = self.runner.build_dataloader(loader, seed=0)
        check_loader(loader, 'labelled')
        return loader

    def extract(
        self,
        loader: DataLoader,
        title: str,
        scale: Callable[[Tensor], Tensor],
        dtype: torch.dtype = torch.float32,
    ) -> FeatureShard:
        """Features of this rank's share of the images.

        Args:
            loader (DataLoader): The images.
            title (str): What they are, for log lines.
            scale (Callable): Applied to the features of a batch, (B, D).
            dtype (torch.dtype): What features are kept in. Defaults to
                float32.

        Returns:
            FeatureShard: In the order of the loader.
        """
        count, runner = itertools.count(), self.runner
        model = unwrap_model(runner.model)

        def describe(data_batch: dict) -> tuple[Tensor, Sequence]:
            feats, samples = describe_batch(
                model, data_batch, title, self.which, self.fp16
            )
            # Not a hook of MMEngine's: PreemptionHook has it.
            runner.call_hook(
                'after_bank_iter', batch_idx=next(count), loader=loader
            )
            return scale(feats), samples

        return extract_shard(loader, describe, title, runner.logger, dtype)

    def report(self, file: str, table: str, protocol: str, **facts) -> None:
        """Show a table, and write the facts into the work dir.

        Args:
            file (str): Name of the JSON file.
            table (str): The results, for the log.
            protocol (str): Name of the protocol.
            **facts: What else goes into the file.
        """
        if is_main_process():
            path = Path(self.runner.work_dir) / file
            checkpoint = self.runner.cfg.get('load_from')
            write_json(
                path, dict(protocol=protocol, checkpoint=checkpoint, **facts)
            )
            self.runner.logger.info(f'{path}\n{table}')
