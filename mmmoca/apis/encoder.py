# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The encoder that :func:`mmmoca.load` returns."""

import copy
import hashlib
import logging
import multiprocessing
from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import chain
from typing import Any

import torch
from mmengine.logging import print_log
from mmengine.model import BaseModel
from mmpretrain.models.backbones import VisionTransformer
from torch import Tensor
from torch.utils.data import DataLoader

from mmmoca.checkpoints import Preprocessing
from mmmoca.evaluation.memory import shared_memory
from mmmoca.evaluation.presets import Preset
from mmmoca.messages import listed, printable, warn
from mmmoca.models import ViewsDataPreprocessor
from mmmoca.progress import progress_bar

from .features import KINDS, Embeddings, check_batch_size, refuse
from .images import Images, PreparedImages, collate, usable_cores
from .opening import open_images


class Encoder(BaseModel):
    """A ViT together with the transforms of its images.

    It is a PyTorch module: ``encoder.to(device)`` moves it, and
    ``encoder(images)`` encodes a normalised batch, with gradients.

    Args:
        backbone (VisionTransformer): A ViT that returns all tokens after its
            final norm.
        settings (Preprocessing): How images are prepared for the ViT.
        preset (Preset): The published evaluation settings of the encoder's
            method. If the encoder's run recorded a feature, it replaces the
            published feature of each protocol.
        metainfo (dict): ``checkpoint`` (its path), ``layout``, ``which`` and
            ``feature`` (see :class:`~mmmoca.checkpoints.Backbone`),
            ``num_heads`` and ``norm_eps``.

    Attributes:
        backbone (VisionTransformer): The ViT, of mmpretrain's class.
        preprocessing (Preprocessing): The argument ``settings``.
        pipeline (list[dict]): Configs of the transforms before normalisation,
            the loader first.
        preset (Preset): The argument ``preset``.
        feature (str): The feature for k-NN: 'avg', 'cls' or 'cls-avg'.
        metainfo (dict): The argument ``metainfo``.
    """

    def __init__(
        self,
        backbone: VisionTransformer,
        settings: Preprocessing,
        preset: Preset,
        metainfo: dict,
    ) -> None:
        super().__init__(
            ViewsDataPreprocessor(
                settings.mean, settings.std, settings.channel_order == 'rgb'
            )
        )
        self.backbone = backbone
        self.preprocessing = settings
        loader, *resizing = settings.pipeline
        self.pipeline = [dict(loader, skip_unreadable=False), *resizing]
        self.preset, self.feature = preset, preset.knn
        self.metainfo = metainfo
        self._checks_values = True  # until a batch has passed the check
        self.eval()

    def forward(self, images: Tensor) -> Embeddings:
        """Encode a batch.

        Args:
            images (Tensor): Normalised images, (B, C, H, W), on the encoder's
                device.

        Returns:
            Embeddings: Features of all kinds, on the encoder's device.

        Raises:
            ValueError: If the images have another number of channels than the
                ViT, if their sides are not multiples of the patch size, or if
                the values of the first batch are from 0 to 255.
        """
        traced = images.is_meta or torch.compiler.is_compiling()
        if self._checks_values and not traced:
            self._checks_values = not self._check_values(images)
        return self._encode_all(images)

    def _encode_all(self, images: Tensor) -> Embeddings:
        projection = self.backbone.patch_embed.projection
        patch, channels = projection.kernel_size, projection.in_channels
        height, width = images.shape[-2:]
        if (
            images.shape[1:] != (channels, height, width)
            or height % patch[0]
            or width % patch[1]
        ):
            raise ValueError(
                f'images must be a batch of {channels} channels, (B, '
                f'{channels}, H, W), with H and W multiples of the patch size '
                f'{patch}, but got {tuple(images.shape)}'
            )
        grid = height // patch[0], width // patch[1]
        # Only a shallow copy is changed: other threads may use the backbone.
        unnormed = copy.copy(self.backbone)
        unnormed.final_norm = False
        raw = unnormed(images)[-1]  # (B, 1 + L, D)
        tokens = self.backbone.ln1(raw)
        patches = tokens[:, 1:]
        return Embeddings(
            tokens[:, 0],
            patches.mean(dim=1),
            patches.mT.unflatten(2, grid),  # (B, L, D) -> (B, D, h, w)
            raw_cls=raw[:, 0],
            raw_avg=raw[:, 1:].mean(dim=1),
        )

    def embed(
        self,
        images: Any,
        batch_size: int = 64,
        features: Sequence[str] = ('cls', 'avg'),
        num_workers: int | None = None,
        amp: bool = False,
        progress: bool = False,
        skip_unreadable: bool = False,
    ) -> Embeddings:
        """Return the features of images.

        Args:
            images (Any): A folder of images at any depth, a folder of shards,
                or a Hugging Face data set, on disk or opened; an image as a
                file, as the bytes of a file, as a PIL image or as a uint8
                array, (H, W, 3) in RGB or (H, W); a list of folders and
                images; an array of paths or of images; or a normalised
                tensor, (B, C, H, W).
            batch_size (int): Images in a batch. Defaults to 64.
            features (Sequence[str]): The kinds to return: 'cls', 'avg' and
                'patches' after the final norm, 'raw_cls' and 'raw_avg' before
                it.
            num_workers (int, optional): Number of processes that read files.
                Defaults to one for each core that this process may use, up to
                8. A daemonic process, such as a worker of a process pool,
                reads files itself.
            amp (bool): Compute in half precision (bfloat16 on a CPU).
            progress (bool): Show a progress bar.
            skip_unreadable (bool): Return NaN for images that cannot be
                read, and log their number, instead of raising an error.

        Returns:
            Embeddings: Features on the CPU, in float32, not L2-normalised.
            Kinds that were not asked for are None.

        Raises:
            FileNotFoundError: If the file or folder does not exist, or the
                folder has no image.
            OSError: If an image cannot be read; the message names the file.
                With ``skip_unreadable``, only if none of up to 20 images of a
                folder, evenly spaced, can be read.
            TypeError: If ``images`` is of none of the types above.
            ValueError: For an unknown feature, images with another number of
                channels than the ViT, a folder of 16-bit images if the loader
                reads 8 bits, a tensor of pixels from 0 to 255, features that
                are not finite, or a batch size below 1.
        """
        kinds = (features,) if isinstance(features, str) else tuple(features)
        check_batch_size(batch_size)
        if not kinds or not set(kinds) <= set(KINDS):
            raise ValueError(
                f'{features!r} is not a feature: choose from '
                f'{", ".join(KINDS)}'
            )
        if isinstance(images, Tensor):
            return self._embed_tensor(images, batch_size, kinds, amp)
        found = open_images(images, self.pipeline)
        stream = self.stream(found, batch_size, kinds, num_workers, amp)
        # Allocated once: joining parts would need twice the memory.
        kept = {
            kind: torch.full(
                (len(found), *self.feature_shape(kind)),
                torch.nan,
                dtype=torch.float32,
            )
            for kind in kinds
        }
        failed: dict[int, Exception] = {}
        with (
            progress_bar('images', len(found), progress) as update,
            closing(stream),
        ):
            for rows, embeddings, errors in stream:
                refuse(errors, skip_unreadable)
                failed |= {rows[i]: error for i, error in errors.items()}
                good = [row for row in rows if row not in failed]
                for kind in kinds if good else ():
                    kept[kind][good] = getattr(embeddings, kind)
                update(rows.stop)
        if failed:
            message = (
                f'{len(failed)} of {len(found)} images cannot be read: '
                f'{listed(failed.values())}'
            )
            print_log(message, 'current', level=logging.WARNING)
        found.say_oddities()
        paths = [found.path(i) for i in range(len(found))]
        return Embeddings(**kept, paths=paths)

    def feature_shape(self, kind: str) -> tuple[int, ...]:
        """Return the shape of a feature of one image: (D,), or (D, h, w).

        Args:
            kind (str): See ``features`` of :meth:`embed`.

        Returns:
            tuple[int, ...]: The shape, for images of the encoder's input size.
        """
        sides = self.preprocessing.img_size
        patch = self.backbone.patch_embed.projection.kernel_size
        grid = tuple(side // step for side, step in zip(sides, patch))
        return self.backbone.embed_dims, *(grid if kind == 'patches' else ())

    def _embed_tensor(
        self, images: Tensor, batch_size: int, kinds: Sequence[str], amp: bool
    ) -> Embeddings:
        if not images.is_floating_point():
            raise TypeError(
                f'a tensor of {images.dtype} is not normalised: give images '
                'in memory as arrays, (H, W, 3)'
            )
        self._check_values(images)
        device = self.data_preprocessor.device
        dtype = self.backbone.patch_embed.projection.weight.dtype
        parts = [
            self._encode(part.to(device, dtype), kinds, amp)
            for part in images.split(batch_size)
        ]
        kept: dict[str, Any] = {
            k: torch.cat([getattr(part, k) for part in parts]) for k in kinds
        }
        return Embeddings(**kept)

    def _check_values(self, images: Tensor) -> bool:
        """Refuse pixels from 0 to 255, and warn if no value is below 0.

        Returns:
            bool: False after a warning, otherwise True.
        """
        normalise = self.data_preprocessor
        of_bytes = not self.pipeline[0]['type'].endswith('LoadBands')
        if not (of_bytes and images.numel()):
            return True
        ends = torch.stack([-normalise.mean, 255 - normalise.mean])
        # Tensors of random numbers and resized images exceed the range of
        # normalised pixels, but not fivefold.
        limit = 5 * (ends / normalise.std).abs().max().item()
        low, high = (end.item() for end in images.detach().aminmax())
        advice = 'give images in memory as arrays, uint8, (H, W, 3)'
        if max(-low, high) > limit:
            raise ValueError(
                f'a tensor of values from {low:.4g} to {high:.4g} is not '
                f'normalised: {advice}'
            )
        if low >= 0 and normalise.mean.min() > 0:
            warn(
                'no value of the tensor is below 0: if it is not normalised, '
                f'{advice}'
            )
            return False
        return True

    def stream(
        self,
        images: Images,
        batch_size: int = 64,
        features: Sequence[str] = KINDS,
        num_workers: int | None = None,
        amp: bool = False,
        spans: Sequence[range] | None = None,
    ) -> Generator[
        tuple[range, Embeddings | None, dict[int, Exception]], None, None
    ]:
        """Yield the features of any number of images, batch by batch.

        Args:
            images (Images): What :func:`open_images` returned.
            batch_size (int): Images in a batch.
            features (Sequence[str]): See :meth:`embed`.
            num_workers (int, optional): See :meth:`embed`.
            amp (bool): See :meth:`embed`.
            spans (Sequence[range], optional): Ranges of indices of the images
                to read. No batch has images from two ranges. Defaults to all
                images.

        Yields:
            tuple[range, Embeddings | None, dict[int, Exception]]: For each
            batch: the indices of its images; the features of those that could
            be read, or None if there are none; and the errors of the others,
            by their place in the batch.

        Raises:
            ValueError: If features are not finite.
        """
        spans = [range(len(images))] if spans is None else spans
        batches = [
            span[start : start + batch_size]
            for span in spans
            for start in range(0, len(span), batch_size)
        ]
        if num_workers is None:
            num_workers = min(8, usable_cores()) if len(batches) > 1 else 0
        if multiprocessing.current_process().daemon:
            num_workers = 0  # a daemonic process may have no children
        loader = DataLoader(
            PreparedImages(images),
            batch_sampler=map(list, batches),
            num_workers=num_workers,
            collate_fn=collate,
            # Without this, the loader would draw from the caller's generator.
            generator=torch.Generator(),
            pin_memory=self.data_preprocessor.device.type == 'cuda',
        )
        with shared_memory():
            for rows, (inputs, errors, oddities) in zip(batches, loader):
                images.odd += sum(map(bool, oddities))
                images.oddities.update(chain.from_iterable(oddities))
                embeddings = None
                if inputs is not None:
                    data = self.data_preprocessor(dict(inputs=inputs))
                    embeddings = self._encode(data['inputs'], features, amp)
                yield rows, embeddings, errors

    @torch.no_grad()
    def _encode(
        self, inputs: Tensor, features: Sequence[str], amp: bool
    ) -> Embeddings:
        with torch.autocast(inputs.device.type, enabled=amp):
            found = self._encode_all(inputs)
        kept = {kind: getattr(found, kind).float().cpu() for kind in features}
        if not all(part.isfinite().all() for part in kept.values()):
            path = printable(self.metainfo['checkpoint'])
            raise ValueError(
                f'the encoder of {path} gives features that are not finite: '
                'its training has diverged, its weights were loaded wrongly, '
                'or the images do not suit it'
            )
        return Embeddings(**kept)

    def identity(self) -> dict:
        """Return what the features depend on, besides the images.

        Returns:
            dict: ``weights`` (the SHA-256 of names, types, shapes and values
            of all weights), ``num_heads``, ``norm_eps``, ``pipeline``, and
            ``mean``, ``std`` and ``to_rgb`` of the normalisation.
        """
        digest = hashlib.sha256()
        for name, value in sorted(self.state_dict().items()):
            value = value.cpu().contiguous()
            digest.update(
                f'{name} {value.dtype} {tuple(value.shape)}'.encode()
            )
            digest.update(value.flatten().view(torch.uint8).numpy())
        normalise = self.data_preprocessor
        loader, *resizing = self.pipeline
        # Images that cannot be read do not change the features of others.
        loader = {k: v for k, v in loader.items() if k != 'skip_unreadable'}
        return dict(
            weights=digest.hexdigest(),
            num_heads=self.metainfo['num_heads'],
            norm_eps=self.metainfo['norm_eps'],
            pipeline=[loader, *resizing],
            mean=normalise.mean.tolist(),
            std=normalise.std.tolist(),
            to_rgb=normalise.to_rgb,
        )

    def __repr__(self) -> str:
        info = self.metainfo
        height, width = self.preprocessing.img_size
        return (
            f'Encoder({info["checkpoint"]}: {info["which"]} encoder of '
            f'layout {info["layout"]}, images of {height} x {width} pixels)'
        )
