# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""One training step gives the numbers of the authors' released code."""

import pytest
import torch
from mmengine.optim import build_optim_wrapper

from mmmoca.checkpoints.release import convert_release_name

from ..helpers.builders import codes_of
from ..helpers.golden import CASES, Case, build


@pytest.fixture(params=CASES)
def case(request):
    return Case(request.param)


@pytest.fixture
def model(case):
    return build(case)


@pytest.fixture
def step(case, model):
    """Run a forward pass with the case's masks; record the intermediates."""
    record = dict(decoded=[])
    masks = model.masking.split(case['ids_shuffle/0'])
    model.masking.draw = lambda *_: masks
    encode, neck = model.backbone.encode_rounds, model.neck.forward

    def keep(tensor):
        tensor.retain_grad()
        return tensor

    def record_student(*args):
        record['students'] = encode(*args)
        return record['students']

    def record_decoded(*args):
        keep(args[1])
        record['decoded'].append(keep(neck(*args)))
        return record['decoded'][-1]

    def record_embedding(encoded):
        embedding = type(model).embed_image(model, encoded)
        record.setdefault('embeddings', []).append(embedding)
        return embedding

    def record_losses(*args):
        result = type(model.head).loss(model.head, *args)
        record['bags'] = result.bags
        return result

    model.head.loss = record_losses
    model.backbone.encode_rounds = record_student
    model.neck.forward = record_decoded
    model.embed_image = record_embedding
    record['masks'] = masks
    losses = model.loss([case['x1'], case['x2']])
    record['loss'], record['logs'] = model.parse_losses(losses)
    return record


def close(actual, expected, rtol=1e-4, atol=0.0):
    """Compare; fp32 rounding scales with the largest entry, even near 0."""
    rounding = 2e-6 * expected.abs().max().item()
    torch.testing.assert_close(
        actual, expected.to(actual.dtype), rtol=rtol, atol=atol + rounding
    )


def test_teacher_after_ema(case, model):
    teacher = model.teacher.state_dict()
    expected = case.group('teacher_after_ema')
    assert len(expected) == len(teacher)
    for name, value in expected.items():
        name = convert_release_name(f'encoder_teacher.{name}')
        close(teacher[name.removeprefix('teacher.')], value)


def test_teacher_targets(case, model):
    with torch.no_grad():
        encoded = model.teacher.encode(torch.cat((case['x1'], case['x2'])))
    expected = torch.cat(case.rounds('teacher_features'))
    close(torch.cat((encoded.cls[:, None], encoded.patches), 1), expected)
    close(model.codebook.words, case['dictionary_used'])
    codes = codes_of(model.codebook.assign(encoded.patches))
    close(codes, torch.cat(case.rounds('codes')))
    close(codes, case['same_view_codes'])
    close(
        codes[:, model.codebook.inner].mean(1), torch.cat(case.rounds('bow'))
    )


def test_masks(case, step):
    for index, mask in enumerate(step['masks']):
        order = case[f'ids_shuffle/{index}']
        assert torch.equal(
            mask.visible, order[:, : int(case[f'len_keep/{index}'])]
        )
        assert torch.equal(mask.decoded, case[f'ids_pred/{index}'])


def test_student_and_decoder(case, step, model):
    img_prototypes, loc_prototypes = (
        generator(model.codebook.words)
        for generator in (model.head.img_generator, model.head.loc_generator)
    )
    close(img_prototypes, case['wgen_img_weight'])
    close(loc_prototypes, case['wgen_loc_weight'])
    kappa = model.head.kappa
    for index, (student, embedding, decoded) in enumerate(
        zip(step['students'], step['embeddings'], step['decoded'])
    ):
        close(
            torch.cat((student.cls[:, None], student.patches), 1),
            case[f'x_last/{index}'],
        )
        close(student.tap, case[f'x_intermediate/{index}'][:, 1:])
        close(embedding, case[f'x_cls/{index}'])
        decoded = decoded.flatten(0, 1)
        close(decoded, case[f'dec_features/{index}'])
        close(
            kappa * embedding @ img_prototypes.T, case[f'logits_img/{index}']
        )
        close(kappa * decoded @ loc_prototypes.T, case[f'logits_loc/{index}'])


def test_losses(case, step):
    weight = case.meta['img_weight']
    close(step['loss'], case['loss'])
    close(step['logs']['loss_img'], weight * case['loss_img'])
    close(step['logs']['loss_loc'], (1 - weight) * case['loss_loc'])


def test_gradients(case, step, model):
    close(step['bags'], torch.cat(case.rounds('bow')))
    step['loss'].backward()
    for index, (embedding, decoded) in enumerate(
        zip(step['embeddings'], step['decoded'])
    ):
        close(embedding.grad, case[f'grad_x_cls/{index}'], rtol=1e-3)
        close(
            decoded.grad.flatten(0, 1),
            case[f'grad_dec_features/{index}'],
            rtol=1e-3,
        )
    expected = {
        convert_release_name(name): value
        for name, value in case.group('grads').items()
    }
    expected.pop(None, None)
    trained = {k: p for k, p in model.named_parameters() if p.requires_grad}
    assert set(expected) == set(trained)
    for name, parameter in trained.items():
        close(parameter.grad, expected[name], rtol=1e-3)
    norm = torch.stack([p.grad.norm() for p in trained.values()]).norm()
    close(norm, case['grad_norm'])


@pytest.mark.parametrize('fused', [False, True])
def test_parameters_after_adamw(case, step, model, fused):
    optim = case.meta['optim']
    wrapper = build_optim_wrapper(
        model,
        dict(
            constructor='mmmoca.MOCAOptimWrapperConstructor',
            optimizer=dict(
                type='AdamW',
                lr=optim['lr'],
                betas=tuple(optim['betas']),
                eps=optim['eps'],
                weight_decay=optim['wd'],
                fused=fused,
            ),
            clip_grad=dict(max_norm=optim['clip']),
            paramwise_cfg=dict(
                prototype_lr=optim['lr_wgen'],
                prototype_weight_decay=optim['wd'],
            ),
        ),
    )
    names = {id(p): name for name, p in model.named_parameters()}
    for ours, theirs in zip(
        wrapper.param_groups,
        ('decay', 'no_decay', 'wgen_decay', 'wgen_no_decay'),
    ):
        expected = {
            convert_release_name(name) for name in optim['group_names'][theirs]
        }
        assert {names[id(p)] for p in ours['params']} == expected
    wrapper.update_params(step['loss'])
    parameters = dict(model.named_parameters())
    for release_name, grad in case.group('grads').items():
        if name := convert_release_name(release_name):
            expected = case[f'params_after_step/{release_name}']
            # Where a gradient is only rounding error, Adam's first update is a
            # random sign. Biases of attention's keys are an example.
            sure = grad.abs() > max(1e-5, 1e-3 * grad.abs().max().item())
            torch.testing.assert_close(
                parameters[name][sure], expected[sure], rtol=1e-6, atol=1e-7
            )


def test_codebook_after_step(case, step, model):
    codebook = model.codebook
    codebook.msd.copy_(case['dist_norm_before'][0])
    msd = step['logs']['codebook_update'].msd
    none = codebook.words[:0]
    codebook.update(none, msd[:1])
    close(codebook.msd, case['dist_norm_seq/0'][0])
    codebook.update(none, msd[1:])
    close(codebook.msd, case['dist_norm_after'][0])

    tokens = case[f'teacher_features/{int(case["codebook_view"]) - 1}']
    words = tokens[case['upd_batch_idx'], case['upd_token_idx_with_cls']]
    words = torch.nn.functional.normalize(words, dim=1)
    close(words, case['upd_new_words'])
    close(codebook.words, case['codebook_before'])
    codebook.update(words, msd[:0])
    close(codebook.words, case['codebook_after'])
    assert int(codebook.pointer) == int(case['embedding_ptr_after'])
