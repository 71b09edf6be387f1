# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import copy

import pytest
import torch
from torch import nn
from torch.distributions import Categorical

from mmmoca.models import AssignmentHead

from ..helpers.builders import build_moca, codes_of, random_views
from ..helpers.runs import assert_same


def test_teacher_starts_as_the_student(tmp_path):
    """The teacher may also come from the file that ``init_cfg`` names."""
    model = build_moca()
    assert_same(model.teacher.state_dict(), model.backbone.state_dict())
    assert not any(p.requires_grad for p in model.teacher.parameters())
    assert model.backbone.training and not model.teacher.training
    state = model.state_dict()
    state['backbone.cls_token'].fill_(1)
    state['teacher.cls_token'].fill_(2)
    init = dict(type='Pretrained', checkpoint=str(tmp_path / 'whole.pth'))
    for teacher in (2, 1):
        torch.save(state, init['checkpoint'])
        model = build_moca(init_cfg=init)
        assert (model.backbone.cls_token == 1).all()
        assert (model.teacher.cls_token == teacher).all()
        state = {k: v for k, v in state.items() if 'teacher.' not in k}


def test_loss_has_no_side_effects():
    model = build_moca()
    before = copy.deepcopy(model.state_dict())
    losses = []
    for _ in range(2):
        torch.manual_seed(3)
        losses.append(model.parse_losses(model.loss(random_views()))[0])
        losses[-1].backward()
        assert_same(model.state_dict(), before)
    assert torch.equal(*losses)


class BrightnessHead(AssignmentHead):
    """Predicts the mean of a view from image embeddings."""

    def build_img(self):
        self.predictor = nn.Linear(self.embed_dims, 1)

    def loss_img(self, embeddings, bags, targets):
        means = targets.images.mean(dim=(1, 2, 3))
        parts = [self.predictor(x)[:, 0] - means for x in embeddings]
        return torch.stack(parts).square().mean()


THREE_ROUNDS = dict(mask_ratios=[0.65] * 3, decoder_mask_ratios=[0.0] * 3)


@pytest.mark.parametrize(
    'changes',
    [
        dict(image_embedding='cls'),
        dict(backbone__num_registers=2, backbone__positions='rope'),
        dict(neck__condenser=False, backbone__tap_layer=None),
        dict(head__lambda_img=1.0, neck=None),
        dict(head__lambda_img=0.0, masking=THREE_ROUNDS),
        dict(head__type=BrightnessHead),
    ],
)
def test_every_trained_parameter_gets_a_gradient(changes):
    """DDP requires a gradient in all variants that the paper measures."""
    model = build_moca(**changes)
    loss, logs = model.parse_losses(model.loss(random_views()))
    loss.backward()
    assert torch.isfinite(loss) and loss > 0
    parts = [logs[k] for k in ('loss_img', 'loss_loc') if k in logs]
    torch.testing.assert_close(loss, sum(parts))
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name


def test_logged_state_of_the_codebook():
    """The log has the words' entropy, and how much of it an image explains."""
    model = build_moca()
    views = random_views()
    _, logs = model.parse_losses(model.loss(views))
    codes = model.codebook.assign(model.encode_teacher(torch.cat(views)))
    bags = codes_of(codes)[:, model.codebook.inner].mean(dim=1)
    used, *each = (Categorical(p).entropy() for p in (bags.mean(dim=0), *bags))
    information = used - torch.stack(each).mean()
    torch.testing.assert_close(logs['codebook_perplexity'], used.exp())
    torch.testing.assert_close(
        logs['image_information'], information, rtol=1e-3, atol=1e-5
    )
    assert information > 0


def test_features_are_the_image_embedding():
    """Features equal mmpretrain's forward pass, even at another size."""
    model = build_moca(image_embedding='cls').eval()
    torch.nn.init.normal_(model.backbone.cls_token)
    encoders = dict(teacher=model.teacher, student=model.backbone)
    for images in (random_views()[0], torch.randn(2, 2, 64, 40)):
        for which, encoder in encoders.items():
            encoder.out_type = 'raw'
            features = model.extract_feat(images, which)
            expected = encoder(images)[-1][:, 0]
            torch.testing.assert_close(features, expected)
            # The teacher's features are the default.
            same = torch.equal(model(images), features)
            assert same == (which == 'teacher')
