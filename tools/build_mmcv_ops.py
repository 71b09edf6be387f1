# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Install mmcv with compiled operators, which mmdet needs.

An isolated build of mmcv does not find PyTorch and silently leaves out the
operators. pip and uv may cache the resulting wheel and install it again. This
program builds the installed version of mmcv in this very environment, once for
each combination of mmcv, Python, PyTorch and device: it keeps the wheel in
``$XDG_CACHE_HOME/mmmoca`` (``~/.cache/mmmoca``).
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib import metadata
from pathlib import Path


def installed_mmcv() -> tuple[str, str]:
    """Return the distribution and version of mmcv in this environment.

    Raises:
        SystemExit: If there is no mmcv, or only mmcv-lite.
    """
    for name in ('onedl-mmcv', 'mmcv'):
        try:
            return name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    sys.exit('there is no mmcv, or only mmcv-lite: pip install onedl-mmcv')


def with_cuda() -> bool:
    """Return whether to build operators for GPUs.

    There must be a CUDA toolkit, and either a GPU or the environment variable
    CUDA_HOME or FORCE_CUDA. To build a container image on a machine without a
    GPU, set one of these variables.
    """
    import torch
    from torch.utils.cpp_extension import CUDA_HOME

    asked = {'CUDA_HOME', 'FORCE_CUDA'} & os.environ.keys()
    return CUDA_HOME is not None and bool(asked or torch.cuda.is_available())


def run_python(*arguments: object, **options) -> subprocess.CompletedProcess:
    """Run the Python of this environment with some arguments."""
    return subprocess.run([sys.executable, *map(str, arguments)], **options)


def ops_work() -> bool:
    """Return whether a new process can import operators for this machine."""
    code = (
        'import torch, mmcv._ext; from mmcv.ops import '
        'get_compiling_cuda_version as version; print(version())'
    )
    found = run_python('-c', code, capture_output=True, text=True)
    on_cpu = 'not available' in (found.stdout or '')
    return found.returncode == 0 and not (on_cpu and with_cuda())


def check_compiler() -> None:
    """Check that extensions of PyTorch can be built.

    Raises:
        SystemExit: If there is no C++ compiler or no ``Python.h``.
    """
    header = Path(sysconfig.get_path('include'), 'Python.h')
    compiler = os.environ.get('CXX', 'c++')
    if shutil.which(compiler) is None or not header.is_file():
        sys.exit(
            f"mmcv's operators need a C++ compiler ({compiler}) and {header}, "
            'and one of them is missing. Install both (Debian: apt install '
            'g++ python3-dev), or do without detection: make test OPS=0'
        )


def build(requirement: str, folder: Path) -> None:
    """Build the wheel with operators.

    Args:
        requirement (str): Name and version of mmcv, such as 'mmcv==2.1.0'.
        folder (Path): Where to keep the wheel.

    Raises:
        SystemExit: If the compiler or Python's header is missing, or
            setuptools is too new.
    """
    check_compiler()
    if int(metadata.version('setuptools').partition('.')[0]) >= 82:
        sys.exit("setuptools is too new: pip install 'setuptools<82'")
    print(
        f'Building {requirement} with its operators: 2 to 5 minutes without '
        'a GPU, once for this Python and PyTorch ...',
        flush=True,
    )
    environment = dict(CFLAGS='-O1 -g0 -w', MAX_JOBS=str(os.cpu_count()))
    environment |= os.environ
    with tempfile.TemporaryDirectory() as headers:
        environment['CFLAGS'] = precompiled(headers, environment['CFLAGS'])
        build_wheel(requirement, folder, environment)


def precompiled(folder: str, flags: str) -> str:
    """Compile PyTorch's headers once instead of once for each file.

    GCC spends three quarters of its time on them. With another compiler
    nothing is done.

    Args:
        folder (str): Where to keep the compiled headers during the build.
        flags (str): Flags of the compiler.

    Returns:
        str: Flags to use instead, which include the compiled headers. If the
        build adds flags that do not fit, GCC reads the original headers.
    """
    from torch.utils.cpp_extension import include_paths

    compiler = os.environ.get('CXX', 'c++')
    asked = compiler, '--version'
    found = subprocess.run(asked, capture_output=True, text=True)
    if 'Free Software Foundation' not in found.stdout:
        return flags
    header = Path(folder, 'pytorch.h')
    header.write_text('#include <torch/types.h>\n')
    flags = f'{flags} -fPIC -std=c++17'
    paths = *include_paths(), sysconfig.get_path('include')
    options = *shlex.split(flags), *(f'-I{path}' for path in paths)
    output = '-x', 'c++-header', header, '-o', f'{header}.gch'
    subprocess.run([compiler, *options, *output])
    return f'{flags} -include {header}'


def build_wheel(requirement: str, folder: Path, environment: dict) -> None:
    """Build the wheel in this environment."""
    environment |= dict(
        MMCV_WITH_OPS='1',
        FORCE_CUDA=str(int(with_cuda())),
        # mmcv's build calls ninja, which may exist only in this environment.
        PATH=f'{Path(sys.executable).parent}{os.pathsep}{os.environ["PATH"]}',
    )
    if not with_cuda():
        environment['CUDA_VISIBLE_DEVICES'] = ''
    here = '--no-build-isolation', '--no-deps', '--no-cache-dir'
    name, _, _ = requirement.partition('==')
    wheel = f'--no-binary={name}', '-w', folder, requirement
    run_python('-m', 'pip', 'wheel', '-q', *here, *wheel, env=environment)


def install(folder: Path) -> bool:
    """Install the wheel from a folder; return whether its operators work."""
    wheels = [*folder.glob('*.whl')]
    options = '-q', '--force-reinstall', '--no-deps'
    for wheel in wheels:
        run_python('-m', 'pip', 'install', *options, wheel)
    return bool(wheels) and ops_work()


def install_ops(version: str | None = None) -> None:
    """Install mmcv with operators, from the cache or built anew.

    Args:
        version (str, optional): Version of OpenMMLab's own mmcv to build.
            Defaults to None, the mmcv that is installed (OpenMMLab's own or
            onedl-mmcv) in its version.

    Raises:
        SystemExit: If this fails. Most messages say what to do.
    """
    import torch

    ready = not version and ops_work()
    name, version = ('mmcv', version) if version else installed_mmcv()
    device = 'gpu' if with_cuda() else 'cpu'
    cache = os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache'
    python = f'{sys.implementation.cache_tag}-{sys.platform}'
    key = f'{name}-{version}-{python}-torch{torch.__version__}-{device}'
    folder = Path(cache) / 'mmmoca' / key
    if not ready and not install(folder):
        # The wheel in the cache, if there is one, does not work.
        shutil.rmtree(folder, ignore_errors=True)
        build(f'{name}=={version}', folder)
        if not install(folder):
            shutil.rmtree(folder, ignore_errors=True)
            sys.exit(f'{name} {version} could not be built with operators')
    print(f'{name} {version} has its operators for the {device.upper()}.')
    if torch.cuda.is_available() and device == 'cpu':
        print(
            f'For the GPU, install CUDA toolkit {torch.version.cuda} (nvcc), '
            'the version that PyTorch was built with, and repeat.'
        )


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    own = "build OpenMMLab's own mmcv of this version, not the installed one"
    parser.add_argument('--own', metavar='VERSION', help=own)
    install_ops(parser.parse_args().own)
