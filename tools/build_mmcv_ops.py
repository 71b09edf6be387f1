# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Give this environment an mmcv with compiled operators, which mmdet needs.

An isolated build of mmcv sees no PyTorch and leaves the operators out without
a word; pip and uv may keep the wheel and hand it out later. Here the installed
version is built in this very environment, once for each machine: the wheel is
kept in ``$XDG_CACHE_HOME/mmmoca`` (``~/.cache/mmmoca``).
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

__all__ = ['cache_folder', 'check_compiler', 'install_ops']

DISTRIBUTIONS = ('onedl-mmcv', 'mmcv')


def installed_mmcv() -> tuple[str, str]:
    """Distribution and version of mmcv in this environment.

    Raises:
        SystemExit: If there is none, or the lite one.
    """
    for name in DISTRIBUTIONS:
        try:
            return name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    sys.exit(
        'mmcv is not installed (mmcv-lite has no operators): pip install '
        'onedl-mmcv'
    )


def with_cuda() -> bool:
    """Whether operators for GPUs can be built here."""
    import torch
    from torch.utils.cpp_extension import CUDA_HOME

    return torch.cuda.is_available() and CUDA_HOME is not None


def cache_folder(name: str, version: str) -> Path:
    """Where wheels for this Python, PyTorch and device are kept.

    Args:
        name (str): Distribution of mmcv.
        version (str): Its version.

    Returns:
        Path: A folder, which need not exist.
    """
    import torch

    cache = os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache'
    python = f'{sys.implementation.cache_tag}-{sys.platform}'
    device = 'gpu' if with_cuda() else 'cpu'
    return (
        Path(cache)
        / 'mmmoca'
        / f'{name}-{version}-{python}-torch{torch.__version__}-{device}'
    )


def check_compiler() -> None:
    """Check for what PyTorch's extensions are built by.

    Raises:
        SystemExit: If there is no C++ compiler or no header of Python.
    """
    otherwise = 'and repeat, or do without detection: make test OPS=0'
    compiler = os.environ.get('CXX', 'c++')
    if shutil.which(compiler) is None:
        sys.exit(
            f'no C++ compiler ({compiler}) is on PATH, which the operators of '
            f'mmcv are built by. Install one (Debian: apt install g++) '
            f'{otherwise}'
        )
    header = Path(sysconfig.get_path('include'), 'Python.h')
    if not header.is_file():
        sys.exit(
            f'{header} is missing, which the operators of mmcv are built '
            f'with. Install it (Debian: apt install python3-dev) {otherwise}'
        )


def ops_work() -> bool:
    """Whether a fresh process can import the operators."""
    command = [sys.executable, '-c', 'import torch, mmcv._ext']
    return subprocess.run(command, capture_output=True).returncode == 0


def install(wheel: Path) -> None:
    """Install a wheel over the mmcv of this environment."""
    if find_spec('uv'):
        command = ['-m', 'uv', 'pip', 'install', '--python', sys.executable]
    else:
        command = ['-m', 'pip', 'install', '--disable-pip-version-check']
    options = ['-q', '--force-reinstall', '--no-deps', str(wheel)]
    subprocess.run([sys.executable, *command, *options], check=True)


def build(name: str, version: str, folder: Path) -> Path:
    """Build the wheel with operators.

    Args:
        name (str): Distribution of mmcv.
        version (str): Its version.
        folder (Path): Where to put the wheel.

    Returns:
        Path: The wheel.

    Raises:
        SystemExit: If something is missing, or the build failed, or left the
            operators out.
    """
    import torch

    check_compiler()
    if find_spec('pip') is None or find_spec('setuptools') is None:
        sys.exit('the build needs pip and setuptools: install pip first')
    if int(metadata.version('setuptools').partition('.')[0]) >= 82:
        sys.exit("mmcv is built by setuptools<82: pip install 'setuptools<82'")
    environment = dict(os.environ, MMCV_WITH_OPS='1')
    environment.setdefault('CFLAGS', '-O1 -g0 -w')
    environment.setdefault('MAX_JOBS', str(os.cpu_count()))
    # mmcv's build script asks for ninja, which may be in the environment only.
    programs = Path(sys.executable).parent
    environment['PATH'] = f'{programs}{os.pathsep}{environment["PATH"]}'
    if torch.cuda.is_available() and not with_cuda():
        print('No CUDA toolkit (nvcc) found: operators for the CPU only.')
        environment['CUDA_VISIBLE_DEVICES'] = ''
    print(
        f'Building {name} {version} with its operators: 5 to 15 minutes '
        'without a GPU, once for this machine ...',
        flush=True,
    )
    options = ['--no-build-isolation', '--no-deps', '--no-cache-dir']
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix='.building-', dir=folder.parent
    ) as temporary:
        log = Path(temporary) / 'log'
        with open(log, 'w') as output:
            failed = subprocess.run(
                [sys.executable, '-m', 'pip', 'wheel', '-v', *options]
                + ['--no-binary', name, '-w', temporary, f'{name}=={version}'],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            ).returncode
        wheels = list(Path(temporary).glob('*.whl'))
        if failed or not wheels or not has_ops(wheels[0]):
            print(log.read_text(errors='replace')[-4000:], file=sys.stderr)
            sys.exit(f'{name} {version} could not be built with operators')
        folder.mkdir(exist_ok=True)
        wheel = folder / wheels[0].name
        os.replace(wheels[0], wheel)
    return wheel


def has_ops(wheel: Path) -> bool:
    """Whether a wheel holds compiled operators."""
    with zipfile.ZipFile(wheel) as archive:
        return any('/_ext.' in name for name in archive.namelist())


def install_ops() -> None:
    """Install mmcv with operators, from the cache or built anew.

    Raises:
        SystemExit: If it cannot be done; says what to do.
    """
    name, version = installed_mmcv()
    if ops_work():
        print(f'{name} {version} has its operators.')
        return
    folder = cache_folder(name, version)
    for wheel in folder.glob('*.whl'):
        if zipfile.is_zipfile(wheel) and has_ops(wheel):
            install(wheel)
            if ops_work():
                print(f'Installed {wheel}')
                return
        print(f'{wheel} does not work here: removed.')
        wheel.unlink()
    wheel = build(name, version, folder)
    install(wheel)
    if not ops_work():
        wheel.unlink()
        sys.exit(
            f'{name} {version} was built, but its operators cannot be '
            f'imported: {sys.executable} -c "import torch, mmcv._ext"'
        )
    print(f'Installed {wheel}')


def main() -> None:
    """Install the operators."""
    argparse.ArgumentParser(
        description=__doc__.partition('\n')[0]
    ).parse_args()
    install_ops()


if __name__ == '__main__':
    main()
