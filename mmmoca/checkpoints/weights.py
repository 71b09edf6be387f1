# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Changing the tensors of a ViT: layout of its parts, grids and channels.

State dicts have mmpretrain's names here.
"""

import math
import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, zeros_like

from mmmoca.messages import listed

from .errors import CheckpointError

# Maps patches to tokens: (D, C, height, width).
PROJECTION = 'patch_embed.projection.weight'
# What LayerScale multiplies a branch by, and what the branch ends in.
LAYER_SCALE = {
    'attn.gamma1.weight': 'attn.proj',
    'ffn.gamma2.weight': 'ffn.layers.1',
}
# What a plain ViT does not have, but :class:`~mmmoca.models.MOCAViT` has.
TOKEN_PARTS = {'register_tokens', 'rotary_periods'}
_LAYER = re.compile(r'layers\.(\d+)\.')
_QKV = re.compile(r'(.+\.attn\.)(qkv|[qkv])(\.weight|\.bias)')


def arch_of(state_dict: Mapping[str, Tensor]) -> dict[str, int]:
    """The sizes of a ViT, as mmpretrain's ``arch`` calls them.

    Args:
        state_dict (Mapping[str, Tensor]): Of a ViT.

    Returns:
        dict[str, int]: ``embed_dims``, ``num_layers`` and
        ``feedforward_channels``. Tensors do not tell the number of heads.
    """
    layers = [n.split('.')[1] for n in state_dict if n.startswith('layers.')]
    return dict(
        embed_dims=len(state_dict[PROJECTION]),
        num_layers=1 + max(map(int, layers)),
        feedforward_channels=len(state_dict['layers.0.ffn.layers.0.0.weight']),
    )


def token_parts(state_dict: Mapping[str, Tensor]) -> tuple[int, str]:
    """What a ViT has that a plain one does not have.

    Args:
        state_dict (Mapping[str, Tensor]): Of a ViT.

    Returns:
        tuple[int, str]: ``num_registers`` and ``positions``, as
        :class:`~mmmoca.models.MOCAViT` calls them.
    """
    registers = state_dict.get('register_tokens', torch.empty(1, 0))
    positions = 'rope' if 'rotary_periods' in state_dict else 'sincos'
    return registers.shape[1], positions


def check_real(state_dict: Mapping[str, object], source: str) -> None:
    """Refuse integer, boolean and complex weights, and what is no tensor.

    Args:
        state_dict (Mapping[str, object]): Weights alone.
        source (str): What to call them in errors.

    Raises:
        CheckpointError: If some are no floating point numbers.
    """
    wrong = [
        name
        for name, value in state_dict.items()
        if not (isinstance(value, Tensor) and value.is_floating_point())
    ]
    if wrong:
        raise CheckpointError(
            f'{source} has {listed(wrong)}, no floating point numbers'
        )


def check_shapes(state_dict: Mapping[str, Tensor], source: str) -> None:
    """Refuse an encoder whose tensors do not fit each other.

    Args:
        state_dict (Mapping[str, Tensor]): Of a ViT, as a file has it: queries,
            keys and values may be apart, and layers may be scaled.
        source (str): What to call it in errors.

    Raises:
        CheckpointError: If a layer is missing between others, or a tensor
            has another shape than the patch projection and the first MLP
            imply. It names the tensor.
    """
    dims = len(state_dict[PROJECTION])
    hidden = len(state_dict.get('layers.0.ffn.layers.0.0.weight', ()))
    # None stands for any number above 0.
    shapes = {
        'cls_token': (1, 1, dims),
        'pos_embed': (1, None, dims),
        'rotary_periods': (None,),
        PROJECTION: (dims, None, None, None),
        'attn.qkv.weight': (3 * dims, dims),
        'attn.qkv.bias': (3 * dims,),
        'attn.qkv.bias_mask': (3 * dims,),
        'ffn.layers.0.0.weight': (hidden, dims),
        'ffn.layers.0.0.bias': (hidden,),
        'ffn.layers.1.weight': (dims, hidden),
        **{f'attn.{part}.weight': (dims, dims) for part in (*'qkv', 'proj')},
    }
    layers = set()
    for name, value in state_dict.items():
        layer = _LAYER.match(name)
        if layer is not None:
            layers.add(layer[1])
        part = name[layer.end() :] if layer else name
        shape = shapes.get(part, (dims,))
        if name == 'register_tokens':  # of which there may be none
            shape = (1, value.shape[1] if value.ndim == 3 else None, dims)
        if value.ndim != len(shape) or any(
            found != side and (side or not found)
            for found, side in zip(value.shape, shape)
        ):
            raise CheckpointError(
                f'the encoder in {source} is damaged: {name} is '
                f'{tuple(value.shape)}, where {dims} channels need '
                f'{shape}'.replace('None', 'any')
            )
    if layers != {*map(str, range(len(layers)))}:
        raise CheckpointError(
            f'the encoder in {source} lacks some of its layers: it has '
            f'{listed(sorted(layers))}'
        )


def join_qkv(state_dict: dict[str, Tensor], source: str) -> None:
    """Join queries, keys and values that a file keeps apart, in place.

    Args:
        state_dict (dict[str, Tensor]): Of a ViT.
        source (str): What to call it in errors.

    Raises:
        CheckpointError: If one of the three is missing.
    """
    for name in list(state_dict):
        match = _QKV.fullmatch(name)
        if match is None or match[2] == 'qkv' or name not in state_dict:
            continue
        names = [f'{match[1]}{part}{match[3]}' for part in 'qkv']
        queries, keys, _ = names
        if match[3] == '.bias' and queries in state_dict:
            # Those of DINOv3 and EVA have none: it would change no score.
            state_dict.setdefault(keys, zeros_like(state_dict[queries]))
        if not state_dict.keys() >= set(names):
            raise CheckpointError(
                f'the encoder in {source} needs all three of {listed(names)}'
            )
        joint = torch.cat([state_dict.pop(part) for part in names])
        state_dict[f'{match[1]}qkv{match[3]}'] = joint


def mask_biases(state_dict: dict[str, Tensor]) -> None:
    """Apply the masks of DINOv3's biases, which switch those of keys off.

    Args:
        state_dict (dict[str, Tensor]): Of a ViT, changed in place.
    """
    for name in [n for n in state_dict if n.endswith('.bias_mask')]:
        bias, mask = name.removesuffix('_mask'), state_dict.pop(name)
        state_dict[bias] = state_dict[bias].masked_fill(mask == 0, 0)


def add_rotary_periods(
    state_dict: dict[str, Tensor],
    recorded: Sequence[int] | None,
    num_heads: int | None = None,
) -> bool:
    """Give rotary positions the tensors that tell them, in place.

    timm and transformers do not save the periods. An encoder with registers
    and LayerScale, or one of ours, without added positions is DINOv3's. Its
    heads have 64 channels unless their number is recorded. Added positions
    become zeros, of its 224 x 224 pixels unless a grid is recorded.

    Args:
        state_dict (dict[str, Tensor]): Of a ViT, before its LayerScale is
            folded.
        recorded (Sequence[int], optional): See :func:`position_grid`.
        num_heads (int, optional): Attention heads that the file records.

    Returns:
        bool: Whether its positions are rotary.
    """
    scaled = {'register_tokens', 'layers.0.attn.gamma1.weight'}
    dinov3 = num_heads or state_dict.keys() >= scaled
    if dinov3 and 'pos_embed' not in state_dict:
        head = len(state_dict[PROJECTION]) // num_heads if num_heads else 64
        count = max(1, head // 4)
        periods = 100 ** (torch.arange(count, dtype=torch.float32) / count)
        state_dict.setdefault('rotary_periods', periods)
    if 'rotary_periods' not in state_dict:
        return False
    if not state_dict.get('register_tokens', torch.ones(1)).numel():
        del state_dict['register_tokens']  # as transformers has them
    # As saved in bfloat16 they would turn by other angles.
    state_dict['rotary_periods'] = state_dict['rotary_periods'].float()
    for name in [n for n in state_dict if n.endswith('.qkv.weight')]:
        # timm leaves them out where they are 0.
        zeros = torch.zeros(len(state_dict[name]))
        state_dict.setdefault(name.replace('weight', 'bias'), zeros)
    dims, _, height, width = state_dict[PROJECTION].shape
    patches = math.prod(recorded or (224 // height, 224 // width))
    state_dict.setdefault('pos_embed', torch.zeros(1, 1 + patches, dims))
    return True


def split_qkv(state_dict: dict[str, Tensor]) -> None:
    """Split queries, keys and values, in place; see :func:`join_qkv`.

    Args:
        state_dict (dict[str, Tensor]): Of a ViT.
    """
    for name in list(state_dict):
        match = _QKV.fullmatch(name)
        if match is not None:
            for part, value in zip('qkv', state_dict.pop(name).chunk(3)):
                state_dict[f'{match[1]}{part}{match[3]}'] = value


def fold_layer_scale(state_dict: dict[str, Tensor]) -> bool:
    """Multiply the factors of LayerScale into what they scale, in place.

    A branch ends in a linear layer, whose output the factors multiply: its
    rows and its bias take them over. The encoder computes the same
    afterwards, but trains differently.

    Args:
        state_dict (dict[str, Tensor]): Of a ViT.

    Returns:
        bool: Whether it had any.
    """
    scales = [n for n in state_dict if n.endswith(tuple(LAYER_SCALE))]
    for name in scales:
        factors = state_dict.pop(name).float()
        layer, number, part = name.split('.', 2)
        linear = f'{layer}.{number}.{LAYER_SCALE[part]}'
        for kind, by in (('weight', factors[:, None]), ('bias', factors)):
            if f'{linear}.{kind}' in state_dict:
                value = state_dict[f'{linear}.{kind}'].float()
                state_dict[f'{linear}.{kind}'] = value * by
    return bool(scales)


def prepend_class_position(
    state_dict: dict[str, Tensor], recorded: Sequence[int] | None
) -> None:
    """Give [CLS] a position of zeros where it has none, in place.

    timm's DeiT III and DINOv2 with registers add its position to the [CLS]
    token itself.

    Args:
        state_dict (dict[str, Tensor]): Of a ViT.
        recorded (Sequence[int], optional): See :func:`position_grid`.
    """
    positions = state_dict['pos_embed']
    if position_grid(recorded, positions, extra=0):
        zeros = torch.zeros_like(positions[:, :1])
        state_dict['pos_embed'] = torch.cat((zeros, positions), dim=1)


def position_grid(
    recorded: Sequence[int] | None, pos_embed: Tensor, extra: int = 1
) -> tuple[int, int] | None:
    """The patch grid of a position embedding.

    Args:
        recorded (Sequence[int], optional): Rows and columns that the file
            records, if it does.
        pos_embed (Tensor): (1, extra + L, D).
        extra (int): Tokens that are no patches. Defaults to 1, [CLS].

    Returns:
        tuple[int, int], optional: The recorded grid if it has L patches.
        Else L is taken for a square, as in every public checkpoint; None if
        it is not a square.
    """
    patches = pos_embed.shape[1] - extra
    if recorded is not None and math.prod(recorded) == patches:
        return tuple(recorded)
    side = math.isqrt(max(patches, 0))
    return (side, side) if side**2 == patches > 0 else None


def adapt_in_channels(projection: Tensor, channels: int) -> Tensor:
    """Adapt a patch projection to another number of input channels.

    To one channel: the sum over the old ones, so that a grey image gives
    what its three equal channels gave. To N: the old channels in turn until
    there are N, times C / N, so that activations keep their scale. This is
    the rule of timm's ``adapt_input_conv``.

    Args:
        projection (Tensor): Weight of the patch projection, (D, C, P, Q).
        channels (int): N, 1 or more.

    Returns:
        Tensor: (D, N, P, Q).
    """
    old = projection.shape[1]
    if channels == 1:
        return projection.sum(dim=1, keepdim=True)
    repeated = projection.repeat(1, -(-channels // old), 1, 1)[:, :channels]
    return repeated * (old / channels)
