# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Properties of names, the normal form, records and position grids."""

import copy
import math
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmmoca.checkpoints import read_checkpoint, write_checkpoint
from mmmoca.checkpoints.backbone import Backbone, find_backbone
from mmmoca.checkpoints.names import DINOV2, DINOV3, HUGGINGFACE, TIMM, VIT
from mmmoca.checkpoints.normal_form import (
    check_shapes,
    normalise,
    position_grid,
    split_qkv,
)
from mmmoca.checkpoints.record import TRANSFORMS
from mmmoca.models import MOCAViT

from ..helpers.runs import assert_same

DIMS = 8
WHOLE = ['cls_token', 'pos_embed', 'register_tokens', 'mask_token']
LINEAR = [
    'patch_embed.projection',
    'ln1',
    *(f'layers.#.{part}' for part in ('ln1', 'ln2', 'attn.proj')),
    *(f'layers.#.ffn.layers.{part}' for part in ('0.0', '1')),
]
APART = [f'layers.#.attn.{part}' for part in 'qkv']
SCALE = ['layers.#.attn.gamma1.weight', 'layers.#.ffn.gamma2.weight']
KINDS = st.sampled_from(['weight', 'bias'])
NUMBERS = st.integers(0, 99).map(str)


@st.composite
def names(draw, parts):
    """Draw the name of a tensor in mmpretrain's ViT."""
    name = draw(st.sampled_from([*WHOLE, *SCALE, *parts]))
    if name in parts:
        name = f'{name}.{draw(KINDS)}'
    return name.replace('#', draw(NUMBERS))


@given(names([*LINEAR, 'layers.#.attn.qkv', 'ln2']))
def test_names_of_timm_and_back(name):
    assert TIMM.to_mmpretrain(TIMM.from_mmpretrain(name)) == name


@given(names([*LINEAR, *APART]), st.sampled_from([VIT, DINOV2, DINOV3]))
def test_names_of_transformers_and_back(name, column):
    written = HUGGINGFACE.from_mmpretrain(name, column)
    assert HUGGINGFACE.to_mmpretrain(written) == name
    # Layers have these names in DINOv3's files, and in memory with version 5.
    for old in ('layer.', 'layers.'):
        other = written.replace('encoder.layer.', old)
        assert HUGGINGFACE.to_mmpretrain(other) == name


@given(st.text('abn.#019_', max_size=20), st.sampled_from([TIMM, HUGGINGFACE]))
def test_other_names_stay(name, table):
    """Names that begin like known ones, but not up to a dot, stay, too."""
    for other in (f'neck.{name}', f'ln1x{name}', f'normx{name}'):
        assert table.to_mmpretrain(other) == other
        assert table.from_mmpretrain(other) == other


@st.composite
def encoders(draw):
    """Draw the tensors of a small ViT in one of the forms found in files."""
    registers, rotary = draw(st.integers(0, 3)), draw(st.booleans())
    grid = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    vit = MOCAViT(
        dict(
            embed_dims=DIMS,
            num_layers=draw(st.integers(1, 2)),
            num_heads=2,
            feedforward_channels=12,
        ),
        img_size=(2 * grid[0], 2 * grid[1]),
        patch_size=2,
        num_registers=registers,
        positions='rope' if rotary else 'sincos',
        layer_scale_init_value=0.5 if draw(st.booleans()) else 0.0,
    )
    torch.manual_seed(draw(st.integers(0, 9)))
    state = {
        name: value if 'periods' in name else torch.randn_like(value)
        for name, value in vit.state_dict().items()
    }
    if draw(st.booleans()):
        for name in [n for n in state if n.endswith('qkv.bias')]:
            state[f'{name}_mask'] = torch.ones(3 * DIMS)
            state[f'{name}_mask'][DIMS : 2 * DIMS] = 0
    elif draw(st.booleans()):
        split_qkv(state)
        if draw(st.booleans()):
            for name in [n for n in state if n.endswith('.k.bias')]:
                del state[name]
    naming = draw(st.sampled_from(['timm', 'mmpretrain', 'huggingface']))
    # Some of timm's ViTs have no position for [CLS].
    if naming == 'timm' and not rotary and draw(st.booleans()):
        state['pos_embed'] = state['pos_embed'][:, 1:]
    return state, dict(grid=grid, num_heads=2), naming


@given(encoders())
def test_the_normal_form_is_pure_and_final(encoder):
    state, record, naming = encoder
    check_shapes(state, 'a')
    before = copy.deepcopy((state, record))
    normal, _ = normalise(state, record, naming, 'a')
    assert_same(state, before[0])
    assert record == before[1]
    again, changes = normalise(normal, record, 'mmpretrain', 'a')
    assert_same(again, normal)
    check_shapes(normal, 'a')
    # Queries, keys and values are joined, and nothing is scaled or masked.
    assert not [n for n in normal if 'gamma' in n or 'mask' in n]
    assert not [n for n in normal if '.q.' in n or '.k.' in n]
    found = find_backbone(dict(state_dict=normal, meta=dict(mmmoca=record)))
    assert_same(found.state_dict, normal)
    assert found.grid == record['grid']


SIZE = st.integers(1, 999)
SHARES = st.floats(0.01, 255, allow_nan=False)
STEPS = st.fixed_dictionaries(
    dict(type=st.sampled_from([*TRANSFORMS])),
    optional=dict(
        channels=SIZE,
        scale=SIZE | st.tuples(SIZE, SIZE),
        crop_size=SIZE,
        background=SIZE | st.tuples(SIZE, SIZE, SIZE),
        interpolation=st.sampled_from(['bicubic', 'area']),
        to_float32=st.booleans(),
        nodata=st.floats(-9e9, 9e9, allow_nan=False),
        fill=st.text(max_size=3),
    ),
)
RECORDS = st.fixed_dictionaries(
    {},
    optional=dict(
        layout=st.text(max_size=5),
        num_heads=st.integers(1, 64),
        grid=st.tuples(st.integers(1, 999), st.integers(1, 999)),
        feature=st.sampled_from(['avg', 'cls', None]),
        preprocessing=st.fixed_dictionaries(
            {},
            optional=dict(
                pipeline=st.lists(STEPS, max_size=3),
                mean=st.lists(st.floats(-9, 9), max_size=4),
                std=st.lists(SHARES, max_size=4),
                channel_order=st.sampled_from(['rgb', 'bgr', 'bands']),
                resize=SIZE,
            ),
        ),
    ),
)


def listed(value):
    """Turn tuples into lists, as JSON does."""
    if isinstance(value, dict):
        return {key: listed(part) for key, part in value.items()}
    several = isinstance(value, list | tuple)
    return [listed(part) for part in value] if several else value


@given(RECORDS)
def test_records_are_read_as_they_were_written(record):
    content = dict(state_dict=dict(a=torch.eye(3)), meta=dict(mmmoca=record))
    with tempfile.TemporaryDirectory() as folder:
        for name in ('a.pth', 'a.safetensors'):
            path = Path(folder, name)
            write_checkpoint(content, path)
            read = read_checkpoint(path)
            assert_same(read['state_dict'], content['state_dict'])
            assert listed(read['meta']['mmmoca']) == listed(record)


GRIDS = st.tuples(st.integers(1, 40), st.integers(1, 40))
SMALL = st.tuples(st.integers(1, 9), st.integers(1, 9))


@given(GRIDS, st.none() | GRIDS, st.integers(0, 2))
def test_grids_of_positions(grid, recorded, extra):
    """The grid is the recorded one if it fits, otherwise a square."""
    patches = math.prod(grid)
    positions = torch.empty(1, extra + patches, 1, device='meta')
    found = position_grid(recorded, positions, extra)
    assert position_grid(grid, positions, extra) == grid
    if recorded and math.prod(recorded) == patches:
        assert found == recorded
    elif found is not None:
        assert found[0] == found[1] and math.prod(found) == patches
    else:
        assert all(n * n != patches for n in range(41))


@pytest.mark.parametrize('mode', ['bicubic', 'bilinear'])
@given(SMALL, SMALL)
def test_resized_positions(mode, grid, other):
    """[CLS] keeps its position, and so do all tokens on the same grid."""
    positions = torch.randn(1, 1 + math.prod(grid), 3)
    state = {
        'pos_embed': positions,
        'patch_embed.projection.weight': torch.ones(3, 1, 2, 2),
    }
    backbone = Backbone(state, 'timm', 'only', [], grid)
    same = backbone.resized(grid, mode).state_dict['pos_embed']
    assert torch.equal(same, positions)
    resized = backbone.resized(other, mode)
    found = resized.state_dict['pos_embed']
    assert found.shape == (1, 1 + math.prod(other), 3)
    assert torch.equal(found[:, 0], positions[:, 0])
    assert resized.grid == other
    assert resized.img_size == (2 * other[0], 2 * other[1])
    positions[:, 1:] = positions[:, 1:2]
    flat = backbone.resized(other, mode).state_dict['pos_embed']
    expected = positions[:, 1:2].expand_as(flat[:, 1:])
    torch.testing.assert_close(flat[:, 1:], expected, atol=1e-5, rtol=1e-5)
