# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Reads checkpoint files without running code that they contain."""

import errno
import json
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pickle import UnpicklingError
from urllib.parse import unquote, urlsplit

import torch
from mmengine import fileio
from mmengine.dist import barrier, is_main_process
from mmengine.runner.checkpoint import (
    get_deprecated_model_names,
    get_external_models,
    get_mmcls_models,
    get_torchvision_models,
)
from torch import hub

from mmmoca.messages import listed

from .errors import CheckpointError
from .plain import MOST_PACKED, check_content
from .unpickle import check_tuples, safe_unpickling

# The part of PyTorch's message that names a refused class.
_REFUSED = re.compile(r'(?:GLOBAL|class|function) ([\w.]+\.\w+)')


def check_intact(path: str | os.PathLike) -> bool:
    """Check a checkpoint file against the checksums that it contains.

    PyTorch writes these checksums, but does not check them when it reads.

    Args:
        path (str | os.PathLike): A file that ``torch.save`` wrote in its
            present format, a zip archive.

    Returns:
        bool: True if nothing in the file is compressed, so that it can be
        mapped into memory.

    Raises:
        CheckpointError: If the file is not such an archive, if any part of it
            differs from what was written, or if its content is many times as
            large as the file.
    """
    damaged = None
    try:
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
            unpacked = sum(part.file_size for part in parts)
            bomb = unpacked > MOST_PACKED * os.path.getsize(path)
            if not bomb:
                damaged = archive.testzip()
    # zipfile raises a dozen kinds of errors for headers that make no sense.
    except Exception as error:
        raise _unreadable(path) from error
    if bomb:
        raise CheckpointError(
            f'{path} is refused: it would unpack to {unpacked} bytes, more '
            f'than {MOST_PACKED} times its size'
        )
    if damaged is not None:
        raise CheckpointError(
            f'{path} is damaged: {damaged!r} in it has a wrong checksum'
        )
    if not any(part.filename.endswith('/data.pkl') for part in parts):
        raise _unreadable(path)  # an archive of something else
    return all(part.compress_type == zipfile.ZIP_STORED for part in parts)


def read_checkpoint(path: str | os.PathLike, lazy: bool = False) -> dict:
    """Read a checkpoint file, with its tensors on the CPU.

    Code in the file is not run. Only tensors, plain Python values and the
    classes that :func:`safe_unpickling` lists are accepted.

    Args:
        path (str | os.PathLike): A file of ``torch.save`` in any format, or
            of safetensors. The format is detected from the content.
        lazy (bool): Map the file into memory if possible, so that tensors
            that nobody uses, such as the optimiser's, take no memory. The
            file must not be overwritten in place while its tensors are in
            use. Defaults to False.

    Returns:
        dict: The content of the file. For a safetensors file it has the keys
        ``state_dict`` and ``meta``, the metadata.

    Raises:
        CheckpointError: If there is no such file, if it is truncated,
            damaged or not a checkpoint, if it pickles a class that is not
            accepted, or if :func:`check_content` refuses its content.
    """
    path = os.path.expanduser(os.fspath(path))
    _check_file(path)
    reader = _read_safetensors if _is_safetensors(path) else _read_pickled
    checkpoint = reader(path, lazy)
    if not isinstance(checkpoint, dict):
        raise CheckpointError(
            f'{path} contains a {type(checkpoint).__name__}, but a checkpoint '
            'is a dict: save model.state_dict() instead'
        )
    check_content(checkpoint, path)
    return checkpoint


def _check_file(path: str) -> None:
    """Refuse a path that is not a file, or that has only part of a model."""
    if os.path.isdir(path):
        kinds = '.pth', '.pt', '.bin', '.safetensors'
        names = [name for name in os.listdir(path) if name.endswith(kinds)]
        raise CheckpointError(
            f'{path} is a folder: name a file of weights in it, such as '
            + (listed(sorted(names), 3) or 'model.safetensors')
        )
    if not os.path.isfile(path):
        hint = ': download it first' if '://' in path else ''
        raise CheckpointError(f'there is no file {path}{hint}')
    if re.search(r'(\.index\.json|-\d{5}-of-\d{5}\.\w+)$', path):
        raise CheckpointError(
            f'{path} belongs to a model in several files: load it '
            'with transformers and save model.state_dict() in one file'
        )


def _read_pickled(path: str, lazy: bool) -> object:
    # Older formats cannot be mapped into memory, and PyTorch 2.15 does not map
    # an archive that is named .safetensors.
    is_archive = zipfile.is_zipfile(path)
    mappable = is_archive and check_intact(path)
    mapped = lazy and mappable and not path.endswith('.safetensors')
    try:
        _check_pickles(path, is_archive)
        with safe_unpickling(), open(path, 'rb') as file:
            where = path if mapped else file
            return torch.load(where, map_location='cpu', mmap=mapped)
    except (OSError, MemoryError) as error:
        # EINVAL: in a truncated file, PyTorch seeks to a negative position.
        if getattr(error, 'errno', None) != errno.EINVAL:
            raise
        raise _unreadable(path) from error
    except UnpicklingError as error:
        kind = _REFUSED.search(str(error))
        if kind is None:
            # PyTorch's own error hides that of `safe_unpickling`.
            raise _unreadable(path, error.__context__ or error) from error
        raise CheckpointError(
            f'{path} is refused: it pickles {kind[1]}, which can run any '
            'code. Save only its state dict, or, if you trust the file, set '
            'the environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1'
        ) from error
    # A damaged file may call the allowed functions with any arguments, so they
    # may raise anything.
    except Exception as error:
        raise _unreadable(path) from error


def _check_pickles(path: str, is_archive: bool) -> None:
    """Check all pickles in a file with :func:`check_tuples`."""
    if is_archive:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith('/data.pkl'):
                    check_tuples(archive.read(name))
        return
    # Older formats are several pickles, followed by the tensors.
    with open(path, 'rb') as file, suppress(ValueError, LookupError):
        while True:
            check_tuples(file)


def _is_safetensors(path: str) -> bool:
    """Return whether a file begins with the length of a JSON header."""
    with open(path, 'rb') as file:
        length, brace = file.read(8), file.read(1)
    size = os.path.getsize(path)
    return brace == b'{' and int.from_bytes(length, 'little') < size


def _read_safetensors(path: str, lazy: bool) -> dict:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework='pt') as file:
            meta = dict(file.metadata() or {})
            state_dict = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError) as error:
        raise _unreadable(path) from error
    if 'mmmoca' in meta:  # all metadata are strings
        try:
            meta['mmmoca'] = json.loads(meta['mmmoca'])
        except (ValueError, RecursionError) as error:
            raise _unreadable(path, "its 'mmmoca' is not JSON") from error
    return dict(state_dict=state_dict, meta=meta)


def _unreadable(
    path: str | os.PathLike, reason: object = None
) -> CheckpointError:
    why = '' if reason is None else f' ({str(reason).splitlines()[0]})'
    return CheckpointError(
        f'{path} is truncated or not a checkpoint, or contains more than '
        f'tensors, numbers and text{why}: copy or download it again, or '
        'save only its state dict'
    )


@contextmanager
def local_file(source: str) -> Iterator[str]:
    """Provide a checkpoint as a file on this machine while it is read.

    All processes of a run must call this together.

    Args:
        source (str): A path; a URL, which is downloaded once; an address of
            a file backend of MMEngine, such as s3://; or a name from a model
            zoo that MMEngine knows, such as torchvision://resnet50.

    Yields:
        str: Path of the file. Downloaded files are kept in the folder of
        torch.hub.

    Raises:
        CheckpointError: If the file cannot be downloaded or fetched, for
            instance because the scheme is unknown; or if a model zoo has no
            such model.
    """
    # Look for a local file first: s3://x may be a file in a folder named s3:.
    if os.path.isfile(os.path.expanduser(source)) or '://' not in source:
        yield source
        return
    source = _zoo_url(source)
    if source.startswith('file://'):
        yield unquote(urlsplit(source).path)
        return
    if source.startswith(('http://', 'https://')):
        yield _download(source)
        return
    with ExitStack() as stack:
        try:
            path = stack.enter_context(fileio.get_local_path(source))
        except Exception as error:  # each backend has errors of its own
            raise CheckpointError(
                f'{source} is not a file, and cannot be fetched ({error!r}): '
                'give a path, a URL, or an address of a file backend'
            ) from error
        yield str(path)


def _zoo_url(source: str) -> str:
    """Replace a name in a model zoo with its URL; keep other addresses."""
    scheme, _, name = source.partition('://')
    if scheme in ('torchvision', 'modelzoo'):
        zoo = get_torchvision_models()
    elif scheme in ('open-mmlab', 'openmmlab'):
        zoo, newer = get_external_models(), get_deprecated_model_names()
        name = newer.get(name, name)
    elif scheme == 'mmcls':
        zoo = get_mmcls_models()
    else:
        return source
    if name not in zoo:
        raise CheckpointError(f'{source}: MMEngine knows no such model')
    return zoo[name]


def _download(source: str) -> str:
    """Download a URL once, on the main process, and return the path."""
    url = urlsplit(source)
    name = os.path.basename(url.path)
    # Many files of the Hugging Face Hub have the same name.
    folder = f'{url.netloc}{os.path.dirname(url.path)}'.replace('/', '_')
    path = os.path.join(hub.get_dir(), 'checkpoints', folder, name)
    if not is_main_process():
        barrier()
    try:
        if not os.path.isfile(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            digits = hub.HASH_REGEX.search(name)
            hub.download_url_to_file(source, path, digits and digits[1])
    # RuntimeError: the download does not match the hash in its name.
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f'{source} cannot be downloaded ({error}): without a network, '
            f'copy the file to {path}'
        ) from error
    finally:
        if is_main_process():
            barrier()
    return path
