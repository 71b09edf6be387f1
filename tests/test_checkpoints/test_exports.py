# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Exports, loaded again by the libraries that they are for."""

import pytest
import torch
from mmpretrain.registry import MODELS

from mmmoca.checkpoints import build_vit, read_backbone

from ..tools import run_tool
from .files import checkpoint, mm_config, tokens

FORMATS = ('timm', 'transformers', 'onnx', 'torch-export', 'safetensors')
TRAINED, OTHER = (32, 48), (48, 80)


def pictures(size, channels=3, batch=3):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(batch, channels, *size, generator=generator)


@pytest.fixture
def export(tmp_path):
    """Run the tool on what a file holds; gives the folder that it made."""

    def run(content, to, *options, code=0):
        source, folder = tmp_path / 'in.pth', tmp_path / to
        if content is not None:
            torch.save(content, source)
        output = run_tool(
            'tools/export.py', source, folder, '--to', to, *options, code=code
        )
        return output if code else folder

    return run


def of_timm(folder):
    import timm

    model = timm.create_model(f'local-dir:{folder}', pretrained=True).eval()
    assert isinstance(model.head, torch.nn.Identity)
    return lambda images: split(model.forward_features(images))


def of_transformers(folder):
    from transformers import AutoModel, ViTModel

    model, report = ViTModel.from_pretrained(
        folder, add_pooling_layer=False, output_loading_info=True
    )
    assert not any(report.values()), report
    auto = AutoModel.from_pretrained(folder, add_pooling_layer=False)
    assert type(auto) is ViTModel
    return lambda images: split(model(images).last_hidden_state)


def of_onnx(folder):
    import onnxruntime

    session = onnxruntime.InferenceSession(f'{folder}/model.onnx')
    assert [o.name for o in session.get_outputs()] == ['cls', 'avg', 'patches']
    return lambda images: map(
        torch.from_numpy, session.run(None, dict(images=images.numpy()))
    )


def of_torch_export(folder):
    return torch.export.load(f'{folder}/model.pt2').module()


def of_safetensors(folder):
    """As the backbone of any config, and by our own reader."""
    path = folder / 'model.safetensors'
    built = build_vit(read_backbone(path))
    model = MODELS.build(
        mm_config(
            img_size=built.img_size,
            init_cfg=dict(
                type='Pretrained',
                checkpoint=f'mmmoca-teacher://{path}',
                prefix='backbone.',
            ),
        )
    )
    model.init_weights()
    for name, value in model.state_dict().items():
        assert torch.equal(value, built.state_dict()[name]), name
    model.eval()
    return lambda images: split(model(images)[0])


READERS = (of_timm, of_transformers, of_onnx, of_torch_export, of_safetensors)


def split(encoded):
    """[CLS], [AVG] and the patches of all tokens."""
    patches = encoded[:, 1:]
    return encoded[:, 0], patches.mean(dim=1), patches


def assert_same_features(actual, encoded, places=1e-4):
    for a, e in zip(actual, split(encoded), strict=True):
        torch.testing.assert_close(a, e, atol=places, rtol=places)


@pytest.mark.parametrize('size', [TRAINED, OTHER])
@pytest.mark.parametrize(('to', 'reader'), zip(FORMATS, READERS))
def test_features_in_other_libraries(export, to, reader, size):
    """Those of the ViT that was trained, which resizes its positions."""
    content, teacher, _ = checkpoint('mmmoca', TRAINED)
    options = [] if size == TRAINED else ['--img-size', *size]
    features = reader(export(content, to, *options))
    for batch in (1, 3):
        images = pictures(size, batch=batch)
        with torch.no_grad():
            actual = features(images)
        assert_same_features(actual, tokens(teacher, images))
