# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import pytest
import torch

from mmmoca.models import MaskingPlan
from mmmoca.models.masking import Mask
from mmmoca.registry import TASK_UTILS

from ..helpers.builders import build_moca, random_views

CPU = torch.device('cpu')


def test_complementary_rounds_of_the_paper():
    """Table 11a: 55 % and 75 % of 196 masked, 20 % predicted in each round."""
    plan = MaskingPlan(196)
    assert plan.counts == [(88, 39), (49, 39)]
    # The counts are int(L * (1 - ratio)), with its floating-point error.
    assert MaskingPlan(100, [0.55], [0.35]).counts == [(44, 21)]
    assert MaskingPlan(100, 0.55, 0.35).counts == [(44, 21)]
    first, second = plan.draw(5, CPU)
    assert torch.equal(first.predicted, second.predicted)
    for one, two in zip(first.visible.tolist(), second.visible.tolist()):
        assert not set(one) & set(two)
    for mask, count in ((first, 88), (second, 49)):
        assert mask.visible.shape == (5, count)
        for ids in mask.decoded.tolist():
            assert len(set(ids)) == len(ids) == count + 39
            assert set(ids) <= set(range(196))
    # Every sample has its own permutation.
    assert not torch.equal(first.visible[0], first.visible[1])


def test_independent_rounds_and_full_decoding():
    masks = MaskingPlan(36, [0.65] * 3, [0.0] * 3).draw(4, CPU)
    assert len(masks) == 3
    for mask in masks:
        decoded = mask.decoded.sort(dim=1).values
        assert decoded.tolist() == [list(range(36))] * 4
    assert not torch.equal(masks[0].visible, masks[1].visible)


def test_masks_of_another_class():
    """A user's mask class shows the upper half and predicts the lower one."""

    class UpperHalf:
        def __init__(self, num_patches):
            self.patches = torch.arange(num_patches)

        def draw(self, num_samples, device):
            halves = self.patches.to(device).expand(num_samples, -1)
            return [Mask(*halves.chunk(2, dim=1))]

    TASK_UTILS.register_module(module=UpperHalf, force=True)
    model = build_moca(masking=dict(type='mmmoca.UpperHalf'))
    views = torch.cat(random_views())

    def embed():
        masks = model.masking.draw(len(views), CPU)
        return model.encode_student(views, masks)[0][0]

    whole = embed()
    views[..., 16:, :] = 1.0  # the lower half of each view
    assert torch.equal(embed(), whole)
    views[..., :16, :] = 1.0
    assert not torch.equal(embed(), whole)
    assert model(random_views(), mode='loss')['loss_loc'] > 0


INDICES = torch.zeros(4, 2, dtype=torch.int64)
NONE = INDICES[:, :0]


@pytest.mark.parametrize(
    'masks',
    [
        Mask(INDICES, INDICES),  # not a list
        [],
        [(INDICES, INDICES)],
        [Mask(INDICES[0], INDICES[0])],  # equal for all
        [Mask(INDICES[:2], INDICES[:2])],  # for one view only
        [Mask(INDICES, INDICES.bool())],
        [Mask(NONE, INDICES)],
        [Mask(INDICES, INDICES + 99)],
        [Mask(INDICES - 1, INDICES)],
    ],
)
def test_masks_of_another_class_that_do_not_fit(masks):
    model = build_moca()
    model.masking.draw = lambda *_: masks
    with pytest.raises(ValueError, match='MaskingPlan.draw'):
        model.loss(random_views(2))


def test_a_round_without_predictions():
    model = build_moca()
    model.masking.draw = lambda *_: [Mask(INDICES[:, :1], NONE)]
    assert model.loss(random_views(2))['loss_loc'] > 0
