# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The built wheel, and what mim does with it in a new environment."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from .helpers.runs import SMALL
from .helpers.tools import PROJECT
from .helpers.tools import ROOT as REPO

MIM_CONTENTS = ('configs', 'tools', 'model-index.yml')
SOURCES = (*MIM_CONTENTS, 'mmmoca', 'pyproject.toml', 'setup.py')
SOURCES += 'MANIFEST.in', 'LICENSE', 'README.md'
IGNORED = {'__pycache__', '.mim', '.ruff_cache'}
CONFIG = 'moca_vit-b16_200e.py'


def _files(*roots):
    """Return the relative paths of files that belong in a package."""
    paths = [p for r in roots for p in (REPO / r, *(REPO / r).rglob('*'))]
    files = {p.relative_to(REPO) for p in paths if p.is_file()}
    return {f.as_posix() for f in files if not IGNORED & set(f.parts)}


def _run(*command, cwd=None):
    """Run a command as on a machine that knows nothing of this checkout."""
    alien = {'PYTHONPATH', 'PYTHONDONTWRITEBYTECODE', 'VIRTUAL_ENV'}
    run = subprocess.run(
        command,
        cwd=cwd,
        env={k: v for k, v in os.environ.items() if k not in alien},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert run.returncode == 0, f'{command}\n{run.stdout[-5000:]}'
    return run.stdout


def _is_stub(path):
    """Return whether a config only inherits a config of the same name."""
    return path.parent.name == 'configs' and path.suffix == '.py'


@pytest.fixture(scope='module')
def uv():
    folder = str(Path(sys.executable).parent)
    found = shutil.which('uv', path=folder) or shutil.which('uv')
    assert found, 'uv is missing: see `make test`'
    return found


@pytest.fixture(scope='module')
def sources(tmp_path_factory):
    """Return a copy of the checkout to build in."""
    folder = tmp_path_factory.mktemp('sources')
    for name in _files(*SOURCES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPO / name, folder / name)
    return folder


@pytest.fixture(scope='module')
def built(uv, sources, tmp_path_factory):
    """Return the paths of the sdist and of the wheel built from it."""
    folder = tmp_path_factory.mktemp('dist')
    command = [uv, 'build', '--no-build-isolation', '--python', sys.executable]
    _run(*command, '--out-dir', folder, sources)
    (sdist,) = folder.glob('*.tar.gz')
    (wheel,) = folder.glob('*.whl')
    return sdist, wheel


@pytest.mark.release
def test_sdist_and_wheel_hold_all_files(built):
    sdist, wheel = built
    root = sdist.name.removesuffix('.tar.gz')
    with tarfile.open(sdist) as archive:
        names = {m.name for m in archive.getmembers() if m.isfile()}
    assert {f'{root}/{name}' for name in _files(*SOURCES)} <= names

    expected = _files('mmmoca') | {
        f'mmmoca/.mim/{name}'
        for name in _files(*MIM_CONTENTS)
        if not _is_stub(Path(name))
    }
    assert 'mmmoca/.mim/configs/_base_/moca_runtime.py' in expected
    with zipfile.ZipFile(wheel) as archive:
        infos = {info.filename: info for info in archive.infolist()}
        (license_name,) = [name for name in infos if name.endswith('/LICENSE')]
        license_text = archive.read(license_name)
    assert {name for name in infos if '.dist-info/' not in name} == expected
    script = infos['mmmoca/.mim/tools/dist_train.sh']
    assert script.external_attr >> 16 & 0o111
    assert license_text == (REPO / 'LICENSE').read_bytes()


@pytest.mark.release
def test_rebuilding_leaves_no_stale_config(sources, tmp_path):
    for name in ('demo/gone.py', 'demo/kept.py'):
        (sources / 'configs' / name).write_text('a = 1\n')
        command = [sys.executable, 'setup.py', '-q', 'build_py']
        _run(*command, '--build-lib', str(tmp_path), cwd=sources)
        (sources / 'configs' / name).unlink()
    configs = tmp_path / 'mmmoca' / '.mim' / 'configs' / 'demo'
    assert not (configs / 'gone.py').exists()
    assert (configs / 'kept.py').exists()


def test_the_name_of_a_config_is_enough():
    # mim searches the package for the bare name; two matches are an error.
    files = [Path(name) for name in _files('mmmoca', 'configs', 'tools')]
    files = [path for path in files if not _is_stub(path)]
    names = [path.name for path in files]
    for path in files:
        if path.parts[0] == 'configs' and '_base_' not in path.parts:
            assert names.count(path.name) == 1 or path.suffix != '.py', path


def test_pins_cover_the_extras():
    lines = (REPO / 'requirements.txt').read_text().splitlines()
    assert not [line for line in lines if '://' in line or '--' in line]
    pins = {}
    for line in lines:
        if line.strip() and not line.lstrip().startswith('#'):
            requirement = Requirement(line)
            (specifier,) = requirement.specifier
            assert specifier.operator == '==', line
            if requirement.marker is None or requirement.marker.evaluate():
                pins[requirement.name] = specifier.version
    extras = PROJECT['optional-dependencies']
    wanted = [*PROJECT['dependencies']]
    for name in extras.keys() - {'openmmlab'}:
        wanted += extras[name]
    for text in wanted:
        requirement = Requirement(text)
        if requirement.name != 'mmmoca':
            assert requirement.specifier.contains(pins[requirement.name]), text


def _take_over_bytecode(environment):
    """Link to the bytecode of this environment instead of compiling anew.

    uv installs both environments from one cache, so the sizes and times of the
    source files are equal.
    """
    site = Path(sysconfig.get_path('purelib'))
    (target,) = environment.glob('lib/python*/site-packages')
    for package in target.iterdir():
        for folder in (site / package.name).rglob('__pycache__'):
            copy = target / folder.relative_to(site)
            if copy.parent.is_dir() and not copy.exists():
                copy.symlink_to(folder)


@pytest.fixture(scope='module')
def install(uv, tmp_path_factory):
    """Return a function that installs into the new environment.

    The function returns the folder of the environment's programs.
    """
    folder = tmp_path_factory.mktemp('environment')
    python = folder / 'bin' / 'python'
    _run(uv, 'venv', '-q', '--clear', '--python', sys.executable, folder)
    pip = [uv, 'pip', 'install', '-q', '--python', python]

    def install(*requirement, cwd=None):
        _run(*pip, '-c', REPO / 'requirements.txt', *requirement, cwd=cwd)
        _take_over_bytecode(folder)
        return python.parent

    yield install
    shutil.rmtree(folder)


INSTALL = (REPO / 'docs' / 'get_started' / 'install.md').read_text()


@pytest.fixture(scope='module')
def editable(install, sources):
    """Make the editable install of the docs; return the programs' folder."""
    assert "pip install -e '.[onedl,mim]'" in INSTALL
    return install('-e', '.[onedl,mim]', cwd=sources)


@pytest.fixture(scope='module')
def trained(editable, sources, workspace, tmp_path_factory):
    """Train with the docs' command (editable install); return the work dir."""
    line = re.search(r'^mim (train mmmoca .*) --gpus 8$', INSTALL, re.M)[1]
    work_dir = tmp_path_factory.mktemp('trained')
    train = [editable / 'mim', *line.split(), '--gpus', '1']
    options = ['--work-dir', work_dir, '--cfg-options', *SMALL]
    log = _run(*train, *options, 'train_cfg.max_epochs=1', cwd=workspace)
    assert f'will use {sources}/configs/moca/{CONFIG} instead' in log
    return work_dir


@pytest.fixture(scope='module')
def installed(install, trained, built):
    """Install the wheel instead; return the folder of the programs."""
    return install(f'mmmoca[onedl,mim] @ {built[1].as_uri()}')


@pytest.mark.release
def test_an_editable_install_has_the_configs_themselves(editable, sources):
    assert (sources / 'mmmoca/.mim/configs/moca').is_symlink()


@pytest.mark.release
def test_mim_trains(trained):
    assert (trained / 'epoch_1.pth').is_file()


@pytest.mark.release
def test_mim_tests(installed, trained, workspace, tmp_path):
    metrics = tmp_path / 'metrics.json'
    test = [installed / 'mim', 'test', 'mmmoca', CONFIG]
    test += ['--checkpoint', trained / 'epoch_1.pth', '--work-dir', tmp_path]
    test += ['--out', metrics, '--out-item', 'metrics']
    log = _run(*test, '--cfg-options', *SMALL, cwd=workspace)
    assert 'find the config file in codebase mmmoca' in log
    # With 4 images, the accuracy is a multiple of 25 %.
    assert json.loads(metrics.read_text())['knn/top1_k4'] % 25 == 0


@pytest.mark.release
def test_the_command_helps_at_once(installed):
    command = [installed / 'python', '-X', 'importtime', installed / 'mmmoca']
    for name in ('train', 'curves', 'overview'):
        log = _run(*command, name, '--help')
        assert f'usage: mmmoca {name} ' in log
        assert not re.search(r'\| +torch$', log, re.M)


@pytest.mark.release
def test_the_wheel_does_without_a_checkout(installed, tmp_path):
    script = shutil.copy(
        REPO / 'tests' / 'helpers' / 'fresh_environment.py', tmp_path
    )
    log = _run(installed / 'python', script, cwd=tmp_path)
    assert 'Failed to search registry' not in log
    # A run prints only useful lines before its first step.
    _, _, run = log.partition('command: pretrain\n')
    before, first, _ = run.partition('Epoch(train)')
    assert first and before.count('\n') <= 8, before
