# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""MMEngine and mmpretrain find our configs and models by name."""

import importlib
import re
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import mmengine.hub
import pytest
import torch
import yaml
from mmengine.config import Config
from mmpretrain import FeatureExtractor, get_model, list_models
from mmpretrain.apis.model import ModelHub

import mmmoca.hub
from mmmoca.checkpoints import FILE_SCHEME, local_file
from mmmoca.checkpoints.release import convert_release

from .helpers.encoders import ARCH, write_run
from .helpers.golden import Case, released, settings
from .helpers.images import CONFIGS
from .helpers.runs import assert_same
from .helpers.tools import ROOT, install_configs

NAME = 'moca_vit-b16_200e'
V1 = f'{NAME}_v1.0'
FOLDERS = ('', 'classification', 'segmentation', 'detection', 'demo')


def metafile(folder):
    return yaml.safe_load((CONFIGS / folder / 'metafile.yml').read_text())


def models(*folders):
    return [m for folder in folders for m in metafile(folder)['Models']]


def unmarked(value):
    """Return a part of a config without the scope that MMEngine adds."""
    if isinstance(value, dict):
        items = value.items()
        return {k: unmarked(v) for k, v in items if k != '_scope_'}
    return value


def test_configs_by_name(monkeypatch, tmp_path):
    """Configs come with their published weights."""
    install_configs(monkeypatch, tmp_path)
    get_config = mmengine.hub.get_config
    for path in (f'moca/{NAME}.py', 'demo/moca_vit-tiny_textures.py'):
        name = f'mmmoca::{path}'
        (tmp_path / 'child.py').write_text(f'_base_ = {name!r}\na = 1\n')
        wanted = Config.fromfile(CONFIGS / path)
        child = Config.fromfile(tmp_path / 'child.py')
        assert child.a == 1 and unmarked(child.model) == wanted.model.to_dict()
        assert get_config(name).to_dict() == wanted.to_dict()
    for name, file in ((NAME, 'mom99_wd05_v0p9'), (V1, 'mom994.*v1p0')):
        cfg = get_config(f'mmmoca::moca/{name}.py', pretrained=True)
        assert re.search(f'/v1.0.0/moca_vitb16_.*{file}.pth', cfg.model_path)


def test_every_config_is_in_the_metafile_of_its_folder():
    index = yaml.safe_load((ROOT / 'model-index.yml').read_text())['Import']
    files = [CONFIGS / folder / 'metafile.yml' for folder in FOLDERS]
    assert [ROOT / name for name in index] == files
    assert sorted(CONFIGS.rglob('metafile.yml')) == sorted(files)
    for folder in FOLDERS:
        listed = [model['Config'] for model in models(folder)]
        shipped = (CONFIGS / (folder or 'moca')).glob('*.py')
        assert sorted(ROOT / name for name in listed) == sorted(shipped)
        (collection,) = metafile(folder)['Collections']
        readme = Path('configs', folder, 'README.md')
        assert Path(collection['README']) == readme
        for model in models(folder):
            assert Path(model['Config']).stem == model['Name']
            assert model['In Collection'] == collection['Name']
            for part in model.get('Downstream', ()):
                assert (CONFIGS / 'classification' / f'{part}.py').is_file()


@pytest.mark.parametrize('folder', FOLDERS)
def test_readmes_have_every_config(folder):
    text = (CONFIGS / folder / 'README.md').read_text()
    for model in models(folder):
        assert f'({model["Name"]}.py)' in text
        assert model.get('Weights', '') in text


def test_figures_and_weights_say_where_they_are_from():
    for model in models(*FOLDERS):
        about = model.get('Metadata', {})
        assert ('Weights' in model) == ('Licence of Weights' in about)
        if any('Metrics' in part for part in model.get('Results') or ()):
            assert 'Source of Results' in about


@pytest.mark.slow
def test_models_that_mmpretrain_lists():
    wanted = models('', 'classification', 'demo')
    assert set(list_models()) >= {model['Name'] for model in wanted}
    assert list_models('*moca*') == sorted(
        model['Name'] for model in wanted if 'moca' in model['Name']
    )
    assert len(list_models('mae_vit*')) > 5  # mmpretrain's own


def test_models_of_others_stay_as_they_are(monkeypatch):
    """A model of another package stays unchanged, whatever its name."""
    other = SimpleNamespace(name='moca_other', weights='https://a/b.pth')
    monkeypatch.setattr(ModelHub, '_models_dict', {'moca_other': other})
    importlib.reload(mmmoca.hub)
    assert other.weights == 'https://a/b.pth'
    assert ModelHub._models_dict[NAME].weights.startswith(FILE_SCHEME)


@pytest.mark.parametrize('name, by_path', [(NAME, False), (V1, True)])
@pytest.mark.slow
def test_weights_of_the_release(monkeypatch, tmp_path, name, by_path):
    """The download of the authors' file is only simulated."""
    case = Case('two_rounds')
    (url,) = [m['Weights'] for m in models('') if m['Name'] == name]
    monkeypatch.setenv('TORCH_HOME', str(tmp_path))
    with (
        mock.patch('torch.hub.download_url_to_file') as download,
        local_file(url) as place,
    ):
        file = Path(place)
    download.assert_called_once_with(url, str(file), None)
    torch.save(released(case), file)
    parts = settings(case)
    parts['backbone']['arch']['_delete_'] = True
    address = f'{FILE_SCHEME}{file}' if by_path else True
    model = get_model(name, pretrained=address, **parts)
    expected, _ = convert_release(released(case), file)
    assert_same(model.state_dict(), expected['state_dict'])


def test_features_of_an_image(root, tmp_path):
    """An image has the features of mmmoca.load, which test_encoder tests."""
    path, image = str(tmp_path / 'run.pth'), str(root / 'val/class_0/0.jpg')
    pretraining, _ = write_run(path)
    knn = Config.fromfile(CONFIGS / 'demo/knn_vit-tiny_textures.py')
    knn.model.backbone.arch = ARCH
    extract = FeatureExtractor(pretraining, path)
    # mmpretrain's classifiers have several stages.
    ((frozen,),) = FeatureExtractor(knn, f'mmmoca-student://{path}')(image)
    for feature, which in (
        (extract(image)[0], 'teacher'),
        (extract(image, which='student')[0], 'student'),
        (frozen, 'student'),
    ):
        expected = mmmoca.load(path, which, 'cpu').embed(image).avg[0]
        torch.testing.assert_close(feature, expected, atol=1e-5, rtol=1e-4)
