# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""In-context segmentation as a test."""

from collections.abc import Iterator
from typing import Any

import torch
from mmengine.dist import get_world_size
from mmengine.structures import PixelData
from torch import Tensor
from torch.utils.data import DataLoader

from mmmoca.engine.steps import unwrap_model
from mmmoca.evaluation.loaders import (
    check_mask_labels,
    class_names,
    sample_index,
)
from mmmoca.evaluation.memory import check_memory
from mmmoca.evaluation.protocols.in_context import PatchBank, label_pixels
from mmmoca.messages import listed
from mmmoca.registry import LOOPS

from .feature_loop import LOG_INTERVAL, FeatureLoop


@LOOPS.register_module()
class InContextTestLoop(FeatureLoop):
    """Segments images with the labels of the most similar patches in a bank.

    This is the protocol of Hummingbird (Balazevic et al., NeurIPS 2023,
    section 3.1). Nothing is trained. Predictions are enlarged to the size of
    the true masks, and mmsegmentation's metrics compare the two. The result
    does not depend on the number of ranks. The metric ``bank_patches`` is the
    size of the bank. Results with banks of different sizes are not comparable.

    Args:
        *args: See :class:`FeatureLoop`. The metrics are mmsegmentation's.
            ``extract_feat(inputs)`` of the model returns patch features,
            (B, D, h, w), or a tuple with these as its last item.
        bank_dataloader (DataLoader or dict): Loader of the images and masks of
            the bank, all of one size.
        bank_size (int): Intended number of patches in the bank. In each pass,
            every image contributes the same number (at least one), or all its
            labelled patches if it has fewer. Defaults to 1 024 000. The paper
            has at most 10 240 000, as do the configs for public data sets.
        bank_epochs (int): Passes over the bank's images. Random transforms
            differ between passes. Defaults to 2, as in the paper.
        k (int): Number of neighbours. Defaults to 30.
        temperature (float): Temperature of the softmax that weights the
            neighbours by similarity. Defaults to 0.02.
        allow_missing (bool): Whether the bank may lack pixels of a class. Such
            a class is never predicted. Defaults to False.
        seed (int): Seed for choosing the patches. Defaults to 0.
        **kwargs: See :class:`FeatureLoop`.

    Raises:
        ValueError: If an argument is out of range; if bank and test images
            have different classes; if a mask differs in size from its image or
            has labels that belong to no class; if the sides of images are not
            multiples of the patch size; if the bank does not fit in memory, or
            has no pixel of a class.
    """

    with_label = False  # the images have masks instead

    def __init__(
        self,
        *args,
        bank_dataloader: DataLoader | dict,
        bank_size: int = 1_024_000,
        bank_epochs: int = 2,
        k: int = 30,
        temperature: float = 0.02,
        allow_missing: bool = False,
        seed: int = 0,
        **kwargs,
    ) -> None:
        super().__init__(*args, **kwargs)
        if min(bank_size, bank_epochs, k) < 1 or temperature <= 0:
            raise ValueError(
                f'bank_size={bank_size}, bank_epochs={bank_epochs} and k={k} '
                f'must be at least 1, and temperature={temperature} above 0'
            )
        self.labelled = self.build_labelled(bank_dataloader)
        self.classes = class_names(self.dataloader)
        self.ignored = getattr(self.dataloader.dataset, 'ignore_index', 255)
        self.bank_size = bank_size
        self.bank_epochs = bank_epochs
        self.k = k
        self.temperature = temperature
        self.allow_missing = allow_missing
        self.seed = seed

    @torch.no_grad()
    def measure(self) -> dict:
        """Build the bank, segment the images and compute the metrics.

        Returns:
            dict: Metrics of the evaluator, and ``bank_patches``.
        """
        self.runner.model.eval()
        call_hook, bank = self.runner.call_hook, self.make_bank()
        for index, batch in enumerate(self.dataloader):
            step = dict(batch_idx=index, data_batch=batch)
            call_hook('before_test_iter', **step)
            maps, samples = self._encode(batch, 'ori_shape')
            shares = bank.predict(maps, self.k, self.temperature)
            for sample, share in zip(samples, shares):
                mask = label_pixels(share[None], sample.ori_shape)
                sample.pred_sem_seg = PixelData(data=mask)
            self.evaluator.process(samples, batch)
            call_hook('after_test_iter', **step, outputs=samples)
        bank.serve(self.k)
        metrics = self.evaluator.evaluate(len(self.dataloader.dataset))
        return metrics | dict(bank_patches=bank.size)

    def make_bank(self) -> PatchBank:
        """Extract the labelled patches of the bank's images.

        Returns:
            PatchBank: The bank, ready to predict.
        """
        loader, epochs = self.labelled, self.bank_epochs
        bank = PatchBank(
            self._bank_parts(),
            len(self.classes),
            max(1, self.bank_size // (len(loader.dataset) * epochs)),
            len(loader.sampler) * epochs,
            self.seed,
        )
        self.runner.logger.info(
            f'in-context segmentation with {bank.size} patches'
        )
        lacking = [self.classes[label] for label in bank.missing()]
        if lacking and not self.allow_missing:
            raise ValueError(
                f'the bank has no pixel of {len(lacking)} of '
                f'{len(self.classes)} classes: {listed(lacking)}. Add images '
                'of these classes to it, or set test_cfg.allow_missing=True'
            )
        return bank

    def _bank_parts(self) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Yield indices, patch features and masks of the bank's images."""
        loader, images = self.labelled, len(self.labelled.dataset)
        for epoch in range(self.bank_epochs):
            if hasattr(loader.sampler, 'set_epoch'):
                loader.sampler.set_epoch(epoch)
            for index, batch in enumerate(loader):
                maps, samples = self._encode(batch)
                if not index + epoch:
                    patches = images * self.bank_epochs * maps[0, 0].numel()
                    check_memory(
                        'patches of the bank (bank_size)',
                        min(patches, self.bank_size),
                        # Features in float32 are split over the ranks. Each
                        # rank has the label shares of all patches.
                        4 * maps.shape[1] / get_world_size()
                        + 2 * len(self.classes),
                        maps.device,
                    )
                ids = [sample_index(sample, 'bank') for sample in samples]
                masks = [sample.gt_sem_seg.data for sample in samples]
                yield [epoch * images + i for i in ids], maps, torch.cat(masks)
                if index % LOG_INTERVAL == LOG_INTERVAL - 1:
                    self.runner.logger.info(
                        f'bank, pass {epoch + 1} of {self.bank_epochs} '
                        f'[{index + 1}/{len(loader)}]'
                    )

    def _encode(
        self, batch: dict, size_of_mask: str = 'img_shape'
    ) -> tuple[Tensor, list]:
        """Return patch features of a batch, (B, D, h, w), and its samples."""
        for sample in batch['data_samples']:  # before they leave the CPU
            self._check_mask(sample, size_of_mask)
        model = unwrap_model(self.runner.model)
        data = model.data_preprocessor(batch, False)
        inputs, size = data['inputs'], data['inputs'].shape[-2:]
        maps = self.encode(inputs)
        if maps.ndim != 4:
            raise ValueError(
                'extract_feat must return patch features, (B, D, h, w), but '
                f"returned {tuple(maps.shape)}: set out_type='featmap' in the "
                'backbone, and remove the neck'
            )
        patch = model.backbone.patch_embed.projection.stride
        if any(side % step for side, step in zip(size, patch)):
            raise ValueError(
                f'the sides of images, {tuple(size)}, are not multiples of '
                f'the patch size, {tuple(patch)}: change Resize in '
                'test_dataloader and bank_dataloader'
            )
        return maps, data['data_samples']

    def _check_mask(self, sample: Any, size_of_mask: str) -> None:
        """Refuse a mask of the wrong size, or with labels without a class."""
        mask = sample.gt_sem_seg.data
        size = tuple(sample.metainfo[size_of_mask][:2])
        if mask.shape[1:] != size:
            raise ValueError(
                f'the mask of {sample.img_path} has {tuple(mask.shape[1:])} '
                f'pixels, not {size} ({size_of_mask}): image and mask must '
                'have the same size. Put LoadAnnotations after Resize in '
                'test_dataloader, and before it in bank_dataloader'
            )
        check_mask_labels(sample, len(self.classes), self.ignored)
