# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Give this environment an mmcv with compiled operators, which mmdet needs.

An isolated build of mmcv does not find PyTorch and silently leaves out the
operators. pip and uv may cache that wheel and install it again. Here the
installed version is built in this very environment, once for each machine: the
wheel is kept in ``$XDG_CACHE_HOME/mmmoca`` (``~/.cache/mmmoca``).
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path


def installed_mmcv() -> tuple[str, str]:
    """Distribution and version of mmcv in this environment.

    Raises:
        SystemExit: If there is none, or the lite one.
    """
    for name in ('onedl-mmcv', 'mmcv'):
        try:
            return name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    sys.exit(
        'mmcv is not installed (mmcv-lite has no operators): pip install '
        'onedl-mmcv'
    )


def with_cuda() -> bool:
    """Whether to build operators for GPUs.

    There must be a CUDA toolkit, and a GPU; or the environment names the
    toolkit, as where a container's image is built without a GPU.
    """
    import torch
    from torch.utils.cpp_extension import CUDA_HOME

    asked = {'CUDA_HOME', 'FORCE_CUDA'} & os.environ.keys()
    return CUDA_HOME is not None and bool(asked or torch.cuda.is_available())


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
    build = f'{name}-{version}-{python}-torch{torch.__version__}-{device}'
    return Path(cache) / 'mmmoca' / build


def check_compiler() -> None:
    """Check for what builds PyTorch's extensions.

    Raises:
        SystemExit: If there is no C++ compiler or no header of Python.
    """
    header = Path(sysconfig.get_path('include'), 'Python.h')
    compiler = os.environ.get('CXX', 'c++')
    if shutil.which(compiler) is None or not header.is_file():
        sys.exit(
            f'the operators of mmcv are built by a C++ compiler ({compiler}) '
            f'with {header}. Install both (Debian: apt install g++ '
            'python3-dev) and repeat, or do without detection: make test '
            'OPS=0'
        )


def ops_work() -> bool:
    """Whether a fresh process can import the operators that belong here."""
    code = (
        'import torch, mmcv._ext; from mmcv.ops import '
        'get_compiling_cuda_version as version; print(version())'
    )
    found = run_python('-c', code, capture_output=True, text=True)
    on_cpu = 'not available' in (found.stdout or '')
    return found.returncode == 0 and not (on_cpu and with_cuda())


def install(wheel: Path) -> bool:
    """Install a wheel over mmcv; whether its operators work."""
    options = '-q', '--force-reinstall', '--no-deps'
    return run_pip('install', *options, wheel).returncode == 0 and ops_work()


def run_pip(*arguments: object, **options) -> subprocess.CompletedProcess:
    """Run pip in this environment."""
    return run_python('-m', 'pip', *map(str, arguments), **options)


def run_python(*arguments: str, **options) -> subprocess.CompletedProcess:
    """Run the Python of this environment."""
    return subprocess.run([sys.executable, *arguments], **options)


def build(name: str, version: str, folder: Path) -> str:
    """Build the wheel with operators.

    Args:
        name (str): Distribution of mmcv.
        version (str): Its version.
        folder (Path): Where to keep the wheel.

    Returns:
        str: What pip said.

    Raises:
        SystemExit: If something is missing.
    """
    check_compiler()
    if int(metadata.version('setuptools').partition('.')[0]) >= 82:
        sys.exit("mmcv is built by setuptools<82: pip install 'setuptools<82'")
    environment = dict(os.environ, MMCV_WITH_OPS='1')
    environment.setdefault('CFLAGS', '-O1 -g0 -w')
    environment.setdefault('MAX_JOBS', str(os.cpu_count()))
    # mmcv's build script asks for ninja, which may be in the environment only.
    programs = Path(sys.executable).parent
    environment['PATH'] = f'{programs}{os.pathsep}{environment["PATH"]}'
    cuda = with_cuda()
    environment['FORCE_CUDA'] = str(int(cuda))
    if not cuda:
        environment['CUDA_VISIBLE_DEVICES'] = ''
    print(
        f'Building {name} {version} with its operators: 5 to 15 minutes '
        'without a GPU, once for this machine ...',
        flush=True,
    )
    folder.mkdir(parents=True, exist_ok=True)
    here = '--no-build-isolation', '--no-deps', '--no-cache-dir'
    wheel = f'--no-binary={name}', '-w', folder, f'{name}=={version}'
    output = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return run_pip(
        'wheel', '-v', *here, *wheel, env=environment, **output
    ).stdout


def install_ops() -> None:
    """Install mmcv with operators, from the cache or built anew.

    Raises:
        SystemExit: If it cannot be done; says what to do.
    """
    import torch

    name, version = installed_mmcv()
    device = 'the GPU' if with_cuda() else 'the CPU'
    has = f'{name} {version} has its operators for {device}.'
    if torch.cuda.is_available() and not with_cuda():
        has += (
            ' For the GPU, install the CUDA toolkit (nvcc) of PyTorch '
            f'({torch.version.cuda}) and repeat.'
        )
    if ops_work():
        print(has)
        return
    # First: once pip is looked for, setuptools can no longer be imported.
    folder = cache_folder(name, version)
    if find_spec('pip') is None:
        sys.exit('the build needs pip: install it first')
    if not any(map(install, folder.glob('*.whl'))):
        shutil.rmtree(folder, ignore_errors=True)
        log = build(name, version, folder)
        if not any(map(install, folder.glob('*.whl'))):
            shutil.rmtree(folder)
            print(log[-4000:], file=sys.stderr)
            sys.exit(f'{name} {version} could not be built with operators')
    print(has)


if __name__ == '__main__':
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    install_ops()
