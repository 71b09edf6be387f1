# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Sequence
from typing import NamedTuple

import torch
from mmcv.cnn.bricks import DropPath
from mmengine.model import ModuleList, PretrainedInit
from mmpretrain.models.backbones import VisionTransformer
from mmpretrain.models.utils import resize_pos_embed
from torch import Tensor, nn
from torch.nn import functional as F

from mmmoca.registry import MODELS

from .initialization import init_encoder
from .position_encoding import sincos_positions_2d
from .rotary import rotary_angles, rotary_periods
from .transformer import EncoderLayer, join_rounds


class EncodedTokens(NamedTuple):
    """The encoder outputs that MOCA uses.

    Attributes:
        cls (Tensor): [CLS] after the final norm, (B, D).
        patches (Tensor): Patch tokens after the final norm, (B, n, D). n is
            the number of patches that the encoder sees.
        tap (Tensor, optional): Patch tokens after the layer ``tap_layer`` of
            :class:`MOCAViT`, without the final norm, (B, n, D).
    """

    cls: Tensor
    patches: Tensor
    tap: Tensor | None

    @property
    def avg(self) -> Tensor:
        """Tensor: [AVG], the mean patch token, (B, D)."""
        return self.patches.mean(dim=1)


@MODELS.register_module()
class MOCAViT(VisionTransformer):
    """Vision Transformer that encodes visible patches and taps a layer.

    It is mmpretrain's :class:`VisionTransformer` (same arguments, parameter
    names and ``forward``) with fixed sine-cosine positions and MAE's
    initialisation. ``mmpretrain.VisionTransformer`` loads its weights for
    every downstream task, unless there are registers or rotary positions.

    Args:
        num_registers (int): R, number of learned tokens after [CLS] that are
            left out of all outputs, as in DINOv2 and DINOv3. Defaults to 0.
        positions (str): 'sincos', or 'rope' for DINOv3's rotary positions of
            patches. Defaults to 'sincos'.
        tap_layer (int, optional): l, the layer (counted from 1) whose
            output feeds the condenser decoder (paper, section 3.3 and Table
            2f). Defaults to None, no tap.
        lean_mlp (bool): Whether to keep one hidden tensor of each MLP for
            the backward pass instead of two. This costs one more GELU.
            Defaults to True.
        half_residuals (bool): Whether :meth:`encode` keeps the tokens between
            layers in autocast's 16-bit type. Defaults to False: tokens stay in
            float32, the type of positions and [CLS].
        **kwargs: Arguments of :class:`VisionTransformer`.

    Raises:
        ValueError: If there is no layer ``tap_layer``, the image size is not
            a multiple of the patch size, [CLS] is switched off,
            ``num_registers`` or ``positions`` is not an allowed value, or,
            with rotary positions, the width of a head is not a multiple of 4.
    """

    def __init__(
        self,
        *args,
        num_registers: int = 0,
        positions: str = 'sincos',
        tap_layer: int | None = None,
        lean_mlp: bool = True,
        half_residuals: bool = False,
        **kwargs,
    ) -> None:
        if positions not in ('sincos', 'rope') or num_registers < 0:
            raise ValueError(
                "positions must be 'sincos' or 'rope' and num_registers 0 or "
                f'more, got {positions!r} and {num_registers}'
            )
        if positions == 'rope':  # as in DINOv3
            kwargs.setdefault('norm_cfg', dict(type='LN', eps=1e-5))
        super().__init__(*args, **kwargs)
        if self.cls_token is None:
            raise ValueError('MOCAViT needs with_cls_token=True')
        if tap_layer is not None and not 1 <= tap_layer <= self.num_layers:
            raise ValueError(
                f'tap_layer={tap_layer} is outside the {self.num_layers} '
                f'layers of this encoder; choose 1 to {self.num_layers}'
            )
        self.tap_layer = tap_layer
        self.half_residuals = half_residuals
        self.patch_size: tuple[int, int] = self.patch_embed.projection.stride
        self.check_image_size(self.img_size)
        self.layers: ModuleList = ModuleList(
            EncoderLayer(layer, lean_mlp) for layer in self.layers
        )
        for module in self.modules():
            if isinstance(module, DropPath):
                # A NumPy number breaks the graph of torch.compile.
                module.drop_prob = float(module.drop_prob)

        self.num_registers = num_registers
        if num_registers:
            self.register_tokens = nn.Parameter(
                torch.zeros(1, num_registers, self.embed_dims),
                requires_grad=self.frozen_stages <= 0,  # like [CLS]
            )
        self.pos_embed.requires_grad = False
        self.register_buffer('rotary_periods', None)
        if positions == 'rope':
            num_heads = self.arch_settings['num_heads']
            if self.embed_dims % (4 * num_heads):
                raise ValueError(
                    'rotary positions need heads of 4, 8, 12 ... channels; '
                    f'arch has embed_dims={self.embed_dims} and num_heads='
                    f'{num_heads}: change one of them'
                )
            self.rotary_periods = rotary_periods(self.embed_dims // num_heads)
            # Rotary positions add nothing to the tokens.
            self.register_parameter('pos_embed', None)
        else:
            grid = self.patch_resolution
            self.pos_embed.data[:, 1:] = sincos_positions_2d(
                grid, self.embed_dims
            )

    def check_image_size(self, size: Sequence[int]) -> None:
        """Raise a ValueError if (H, W) is not a multiple of the patch size."""
        if any(side % patch for side, patch in zip(size, self.patch_size)):
            raise ValueError(
                f'image size {tuple(size)} is not a multiple of the patch '
                f'size {tuple(self.patch_size)}; change img_size (and the '
                'crop of the pipeline) or patch_size'
            )

    def init_weights(self) -> None:
        """Initialise as MAE does. Positions keep their values."""
        inits = self.init_cfg or []
        inits = [inits] if isinstance(inits, dict) else inits
        if any(i['type'] in ('Pretrained', PretrainedInit) for i in inits):
            # mmpretrain's method would overwrite the weights that a list of
            # initialisers has loaded.
            super(VisionTransformer, self).init_weights()
            return
        positions = self.pos_embed
        kept = None if positions is None else positions.detach().clone()
        super().init_weights()
        init_encoder(self)
        if kept is not None:
            positions.data.copy_(kept)

    def encode(
        self, images: Tensor, visible: Tensor | None = None
    ) -> EncodedTokens:
        """Encode all patches, or only the visible ones.

        Args:
            images (Tensor): (B, C, H, W).
            visible (Tensor, optional): Patch indices, (B, n). Defaults to
                None, all L patches.

        Returns:
            EncodedTokens: [CLS] and the n patch tokens of each image.

        Raises:
            ValueError: If the image size is not a multiple of the patch size.
        """
        (encoded,) = self.encode_rounds(images, [visible])
        return encoded

    def encode_rounds(
        self, images: Tensor, rounds: Sequence[Tensor | None]
    ) -> list[EncodedTokens]:
        """Encode several sets of visible patches in one pass.

        The tokens of all rounds stand side by side. Linear layers and norms
        process them together; attention mixes tokens only within a round. The
        results are those of :meth:`encode` for each round. Drop path skips a
        layer for an image in all rounds at once.

        Args:
            images (Tensor): (B, C, H, W).
            rounds (Sequence[Tensor | None]): Patch indices of each round,
                (B, n), or None for all L patches.

        Returns:
            list[EncodedTokens]: One for each round.

        Raises:
            ValueError: If the image size is not a multiple of the patch size.
        """
        self.check_image_size(images.shape[-2:])
        embedded = [self._embed(images, visible) for visible in rounds]
        tokens, angles = zip(*embedded)
        lengths = [x.shape[1] for x in tokens]
        x = join_rounds(tokens)  # (B, sum of 1 + R + n, D)
        # For a single round no lengths are passed, which keeps the shapes of
        # compiled layers static.
        parts = lengths if len(lengths) > 1 else None
        dtype = x.dtype
        if self.half_residuals and torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        tap = None
        for index, layer in enumerate(self.layers, start=1):
            x = layer(x, angles, parts)
            if index == self.tap_layer:
                tap = x
        first = 1 + self.num_registers
        taps = [None] * len(lengths)
        if tap is not None:
            taps = [part[:, first:] for part in tap.split(lengths, dim=1)]
        x = self.ln1(x.to(dtype))
        return [
            EncodedTokens(part[:, 0], part[:, first:], tapped)
            for part, tapped in zip(x.split(lengths, dim=1), taps)
        ]

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Encode whole images with the interface of mmpretrain's ViT.

        Args:
            images (Tensor): (B, C, H, W).

        Returns:
            tuple[Tensor, ...]: The output of each layer in ``out_indices``,
            without registers, in the form that ``out_type`` names.
        """
        if not self.num_registers and self.rotary_periods is None:
            return super().forward(images)
        x, angles = self._embed(images)
        outputs = []
        for index, layer in enumerate(self.layers):
            x = layer(x, [angles])
            if index == self.num_layers - 1 and self.final_norm:
                x = self.ln1(x)
            if index in self.out_indices:
                kept = x[:, 1 + self.num_registers :]
                kept = torch.cat((x[:, :1], kept), dim=1)
                outputs.append(self._format_output(kept, self._grid(images)))
        return tuple(outputs)

    def get_layer_depth(
        self, param_name: str, prefix: str = ''
    ) -> tuple[int, int]:
        """Return a parameter's layer; registers share the layer of [CLS]."""
        if param_name == f'{prefix}register_tokens':
            param_name = f'{prefix}cls_token'
        return super().get_layer_depth(param_name, prefix)

    def _prepare_pos_embed(self, state_dict: dict, prefix: str, *args) -> None:
        """Resize loaded positions, unless they are rotary."""
        if self.pos_embed is not None:
            super()._prepare_pos_embed(state_dict, prefix, *args)

    def _grid(self, images: Tensor) -> tuple[int, int]:
        """Return the patch rows and columns (H, W) of images.

        mmpretrain's projection zero-pads the last row and column if the image
        does not fill them.
        """
        (height, width), (rows, columns) = images.shape[-2:], self.patch_size
        return -(-height // rows), -(-width // columns)

    def _embed(
        self, images: Tensor, visible: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the input tokens of the first layer and the rotary angles.

        The tokens are (B, 1 + R + n, D). The angles of the n patches are
        (1 or B, 1, n, d), or None without rotary positions.
        """
        x = self._embed_patches(images, visible)  # (B, n, D)
        cls = self.cls_token
        if self.pos_embed is not None:
            cls = cls + self.pos_embed[:, :1]
        extra = [cls, self.register_tokens] if self.num_registers else [cls]
        first = torch.cat(extra, dim=1).expand(x.shape[0], -1, -1)
        x = torch.cat((first, x), dim=1)
        x = self.pre_norm(self.drop_after_pos(x))
        if self.rotary_periods is None:
            return x, None
        angles = rotary_angles(self._grid(images), self.rotary_periods)
        angles = angles[None] if visible is None else angles[visible]
        return x, angles[:, None]

    def _embed_patches(self, images: Tensor, visible: Tensor | None) -> Tensor:
        """Project patches and add their positions -> (B, n, D)."""
        grid = self._grid(images)
        positions = None
        if self.pos_embed is not None:
            positions = resize_pos_embed(
                self.pos_embed,
                self.patch_resolution,
                grid,
                mode=self.interpolate_mode,
            )[0, 1:]  # (L, D)
        # The projection is computed as a linear layer on flattened patches:
        # cuDNN's convolution is slow at this shape.
        projection = self.patch_embed.projection
        if self.patch_embed.adaptive_padding is not None:
            images = self.patch_embed.adaptive_padding(images)
        patches = images.unflatten(3, (grid[1], self.patch_size[1])).unflatten(
            2, (grid[0], self.patch_size[0])
        )  # (B, C, rows, p, columns, q)
        patches = patches.permute(0, 2, 4, 1, 3, 5)
        if visible is None:
            patches = patches.flatten(1, 2)  # (B, L, C, p, q)
        else:
            sample = torch.arange(len(images), device=images.device)[:, None]
            rows, columns = visible // grid[1], visible % grid[1]
            patches = patches[sample, rows, columns]  # (B, n, C, p, q)
            positions = None if positions is None else positions[visible]
        tokens = F.linear(
            patches.flatten(2), projection.weight.flatten(1), projection.bias
        )
        return tokens if positions is None else tokens + positions


@MODELS.register_module()
class RegisterViT(MOCAViT):
    """:class:`MOCAViT` with four registers, as in DINOv2 with registers."""

    def __init__(self, *args, num_registers: int = 4, **kwargs) -> None:
        super().__init__(*args, num_registers=num_registers, **kwargs)


@MODELS.register_module()
class DINOv3ViT(RegisterViT):
    """:class:`RegisterViT` with rotary positions, as in DINOv3."""

    def __init__(self, *args, positions: str = 'rope', **kwargs) -> None:
        super().__init__(*args, positions=positions, **kwargs)
