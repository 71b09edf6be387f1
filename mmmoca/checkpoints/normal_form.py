# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Converts encoders of all libraries to the form of mmpretrain's ViT.

All functions expect mmpretrain's names. Only :func:`split_qkv` changes its
arguments.
"""

import math
import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, zeros_like

from mmmoca.messages import listed

from .errors import CheckpointError
from .names import PROJECTION

# The LayerScale of a residual branch, and the last linear layer of the branch.
LAYER_SCALE = {
    'attn.gamma1.weight': 'attn.proj',
    'ffn.gamma2.weight': 'ffn.layers.1',
}
# Parts that mmmoca.models.MOCAViT may have and mmpretrain's ViT lacks.
TOKEN_PARTS = {'register_tokens', 'rotary_periods'}
_LAYER = re.compile(r'layers\.(\d+)\.')
_QKV = re.compile(r'(.+\.attn\.)(qkv|[qkv])(\.weight|\.bias)')


def arch_of(state_dict: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the sizes of a ViT, with the names of mmpretrain's ``arch``.

    Args:
        state_dict (Mapping[str, Tensor]): State dict of a ViT.

    Returns:
        dict[str, int]: ``embed_dims``, ``num_layers`` and
        ``feedforward_channels``. The number of heads is not included, because
        the shape of no other tensor than ``rotary_periods`` depends on it.
    """
    layers = [n.split('.')[1] for n in state_dict if n.startswith('layers.')]
    return dict(
        embed_dims=len(state_dict[PROJECTION]),
        num_layers=1 + max(map(int, layers)),
        feedforward_channels=len(state_dict['layers.0.ffn.layers.0.0.weight']),
    )


def token_parts(state_dict: Mapping[str, Tensor]) -> tuple[int, str]:
    """Return the number of registers of a ViT and its kind of positions.

    Args:
        state_dict (Mapping[str, Tensor]): State dict of a ViT.

    Returns:
        tuple[int, str]: The arguments ``num_registers`` and ``positions`` of
        :class:`~mmmoca.models.MOCAViT`. Without rotary positions, the latter
        is 'sincos'.
    """
    registers = state_dict.get('register_tokens', torch.empty(1, 0))
    positions = 'rope' if 'rotary_periods' in state_dict else 'sincos'
    return registers.shape[1], positions


def check_floating(state_dict: Mapping[str, object], source: str) -> None:
    """Refuse weights that are not floating-point tensors of 16 bits or more.

    Args:
        state_dict (Mapping[str, object]): The weights by name, and nothing
            else.
        source (str): Name of the weights in errors.

    Raises:
        CheckpointError: If any of them is not such a tensor.
    """
    wrong = [
        name
        for name, value in state_dict.items()
        if not isinstance(value, Tensor)
        or not value.is_floating_point()
        or value.element_size() == 1
    ]
    if wrong:
        raise CheckpointError(
            f'{source}: {listed(wrong)} are not floating-point tensors of 16 '
            'bits or more'
        )


def check_shapes(state_dict: Mapping[str, Tensor], source: str) -> None:
    """Refuse an encoder whose tensors do not fit each other.

    Args:
        state_dict (Mapping[str, Tensor]): State dict of a ViT before
            :func:`normalise`: queries, keys and values may be separate, and
            there may be LayerScale.
        source (str): Name of the file in errors.

    Raises:
        CheckpointError: If a layer is missing between others, or a tensor
            does not have the shape that the patch projection and the first
            MLP imply. The message names the tensor.
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
        if name == 'register_tokens':  # the number may be 0
            shape = (1, value.shape[1] if value.ndim == 3 else None, dims)
        if value.ndim != len(shape) or not all(
            found > 0 if side is None else found == side
            for found, side in zip(value.shape, shape)
        ):
            needed = str(shape).replace('None', 'any')
            raise CheckpointError(
                f'the encoder in {source} is damaged: {name} is '
                f'{tuple(value.shape)}, where {dims} channels need {needed}'
            )
    if layers != {*map(str, range(len(layers)))}:
        raise CheckpointError(
            f'the encoder in {source} lacks some of its layers: it has '
            f'{listed(sorted(layers))}'
        )


def normalise(
    state_dict: Mapping[str, Tensor], record: Mapping, naming: str, source: str
) -> tuple[dict[str, Tensor], list[str]]:
    """Convert an encoder to the form of mmpretrain's ViT.

    The encoder's output stays the same.

    Args:
        state_dict (Mapping[str, Tensor]): State dict of a ViT that
            :func:`check_shapes` has accepted. Not changed.
        record (Mapping): What the file records about the encoder. ``grid``
            and ``num_heads`` are used, see :func:`run_record`.
        naming (str): The library that named the tensors in the file, see
            :class:`Place`.
        source (str): Name of the file in errors.

    Returns:
        tuple[dict[str, Tensor], list[str]]: The new tensors, and sentences
        for a log that say what was changed.

    Raises:
        CheckpointError: If queries, keys or values are missing, or there are
            both rotary and absolute positions.
    """
    changes = []
    scaled = any(name.endswith(tuple(LAYER_SCALE)) for name in state_dict)
    grid, heads = record.get('grid'), record.get('num_heads')
    state = _without_masks(_with_joint_qkv(state_dict, source))
    if _is_rotary(state, is_ours=grid is not None):
        state = _with_rotary_parts(state, heads, source)
        changes.append('its positions are rotary, as in DINOv3')
    if scaled:
        state = _with_scaled_projections(state)
        changes.append('its LayerScale is multiplied into the projections')
    if naming == 'timm' and 'pos_embed' in state:
        state = _without_register_positions(state, grid)
        state = _with_class_position(state, grid)
    return state, changes


def _with_joint_qkv(
    state_dict: Mapping[str, Tensor], source: str
) -> dict[str, Tensor]:
    """Join queries, keys and values that are separate in a file."""
    state = dict(state_dict)
    for name in state_dict:
        match = _QKV.fullmatch(name)
        if match is None or match[2] == 'qkv' or name not in state:
            continue
        names = [f'{match[1]}{part}{match[3]}' for part in 'qkv']
        queries, keys, _ = names
        if match[3] == '.bias' and queries in state:
            # Keys of DINOv3 and EVA have no bias.
            state.setdefault(keys, zeros_like(state[queries]))
        if not state.keys() >= set(names):
            raise CheckpointError(
                f'the encoder in {source} needs all three of {listed(names)}'
            )
        joint = torch.cat([state.pop(part) for part in names])
        state[f'{match[1]}qkv{match[3]}'] = joint
    return state


def _without_masks(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Apply the masks with which DINOv3 sets the biases of keys to 0."""
    state = dict(state_dict)
    for name in state_dict:
        bias = name.removesuffix('_mask')
        if bias != name:
            mask = state.pop(name)
            if bias in state:
                state[bias] = state[bias].masked_fill(mask == 0, 0)
    return state


def _is_rotary(state_dict: Mapping[str, Tensor], is_ours: bool) -> bool:
    """Return whether an encoder has rotary positions.

    Some files contain the periods of these positions, but timm and
    transformers do not save them. So an encoder without absolute positions
    also counts as rotary if it has registers and LayerScale, as DINOv3's
    encoders do, or if this package wrote the file.
    """
    scaled = {'register_tokens', 'layers.0.attn.gamma1.weight'}
    dinov3 = is_ours or state_dict.keys() >= scaled
    without = dinov3 and 'pos_embed' not in state_dict
    return without or 'rotary_periods' in state_dict


def _with_rotary_parts(
    state_dict: Mapping[str, Tensor], num_heads: int | None, source: str
) -> dict[str, Tensor]:
    """Add the tensors that define rotary positions.

    If the number of heads is not recorded, heads of 64 channels are assumed.
    """
    state = dict(state_dict)
    dims = len(state[PROJECTION])
    # Older files of this package contain the periods, and also a pos_embed
    # that is all zeros.
    if state.pop('pos_embed', torch.zeros(1)).any():
        raise CheckpointError(
            f'the encoder in {source} has both rotary and absolute positions'
        )
    count = max(1, (dims // num_heads if num_heads else 64) // 4)
    periods = 100 ** (torch.arange(count, dtype=torch.float32) / count)
    # Periods in bfloat16 would change the angles.
    state['rotary_periods'] = state.get('rotary_periods', periods).float()
    if not state.get('register_tokens', torch.ones(1)).numel():
        del state['register_tokens']  # transformers saves an empty one
    for name in state_dict:
        if name.endswith('.qkv.weight'):
            # timm does not save biases that are always 0.
            zeros = torch.zeros(len(state[name]))
            state.setdefault(name.replace('weight', 'bias'), zeros)
    return state


def _with_scaled_projections(
    state_dict: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Multiply the factors of LayerScale into the layers that they scale.

    The factors multiply the output of the linear layer that ends a branch, so
    they can be multiplied into its rows and its bias. The encoder's output
    stays the same, but further training differs.
    """
    state = dict(state_dict)
    for name in [n for n in state if n.endswith(tuple(LAYER_SCALE))]:
        factors = state.pop(name).float()
        layer, number, part = name.split('.', 2)
        linear = f'{layer}.{number}.{LAYER_SCALE[part]}'
        for kind, by in (('weight', factors[:, None]), ('bias', factors)):
            if f'{linear}.{kind}' in state:
                value = state[f'{linear}.{kind}'].float()
                state[f'{linear}.{kind}'] = value * by
    return state


def _without_register_positions(
    state_dict: Mapping[str, Tensor], recorded: Sequence[int] | None
) -> Mapping[str, Tensor]:
    """Add the position embeddings of registers to the registers themselves.

    In timm's ViTs with registers, pos_embed by default contains rows for the
    registers, after the row of [CLS]. In timm's DINOv2 it contains none.
    """
    positions = state_dict['pos_embed']
    registers = state_dict.get('register_tokens')
    if registers is None:
        return state_dict
    first = 1 + registers.shape[1]
    fits = [n for n in (1, 0, first) if position_grid(recorded, positions, n)]
    if fits[:1] != [first]:
        return state_dict
    patches = torch.cat((positions[:, :1], positions[:, first:]), dim=1)
    registers = registers + positions[:, 1:first]
    return dict(state_dict, pos_embed=patches, register_tokens=registers)


def _with_class_position(
    state_dict: Mapping[str, Tensor], recorded: Sequence[int] | None
) -> dict[str, Tensor]:
    """Give [CLS] a position embedding of zeros if it has none.

    In timm's DINOv2 with registers, the position embedding of [CLS] is already
    added to the token. In DeiT III and FlexiViT, [CLS] has none.
    """
    positions = state_dict['pos_embed']
    number = positions.shape[1]
    patches = None if recorded is None else math.prod(recorded)
    if patches != number - 1 and position_grid(recorded, positions, extra=0):
        zeros = torch.zeros_like(positions[:, :1])
        positions = torch.cat((zeros, positions), dim=1)
    return dict(state_dict, pos_embed=positions)


def split_qkv(state_dict: dict[str, Tensor]) -> None:
    """Split the joint tensors of queries, keys and values.

    Args:
        state_dict (dict[str, Tensor]): State dict of a ViT. Changed in place.
    """
    for name in list(state_dict):
        match = _QKV.fullmatch(name)
        if match is not None:
            for part, value in zip('qkv', state_dict.pop(name).chunk(3)):
                state_dict[f'{match[1]}{part}{match[3]}'] = value


def grid_of(
    state_dict: Mapping[str, Tensor], recorded: Sequence[int] | None
) -> tuple[int, int] | None:
    """Return the patch grid that an encoder is for.

    Args:
        state_dict (Mapping[str, Tensor]): State dict of a ViT, see
            :func:`normalise`.
        recorded (Sequence[int], optional): Rows and columns that the file
            records, if any.

    Returns:
        tuple[int, int] | None: Rows and columns of patches, see
        :func:`position_grid`. For rotary positions: the recorded grid, or, if
        none is recorded, the grid for images of 224 x 224 pixels.
    """
    if 'pos_embed' in state_dict:
        return position_grid(recorded, state_dict['pos_embed'])
    height, width = state_dict[PROJECTION].shape[2:]
    rows, columns = recorded or (224 // height, 224 // width)
    return max(rows, 1), max(columns, 1)


def position_grid(
    recorded: Sequence[int] | None, pos_embed: Tensor, extra: int = 1
) -> tuple[int, int] | None:
    """Return the patch grid of a position embedding.

    Args:
        recorded (Sequence[int], optional): Rows and columns that the file
            records, if any.
        pos_embed (Tensor): (1, extra + L, D), for L patches.
        extra (int): Number of tokens that are not patches. Defaults to 1,
            for [CLS].

    Returns:
        tuple[int, int] | None: The recorded grid if it has L patches.
        Otherwise a square grid of L patches, as in every public checkpoint.
        None if L is not a square number.
    """
    patches = pos_embed.shape[1] - extra
    if recorded is not None and math.prod(recorded) == patches:
        return tuple(recorded)
    side = math.isqrt(max(patches, 0))
    return (side, side) if side and side**2 == patches else None


def adapt_in_channels(projection: Tensor, channels: int) -> Tensor:
    """Adapt a patch projection to another number of input channels.

    For one channel, the weights of all old channels are summed, so that a grey
    image gives the same tokens as an image that repeats it in every channel.
    For N channels, the weights of the C old channels are repeated in turn and
    multiplied by C / N, so that activations keep their scale. timm's
    ``adapt_input_conv`` does the same.

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
