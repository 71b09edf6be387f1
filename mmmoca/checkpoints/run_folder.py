# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Locks the work dir of a run, and finds the checkpoints in it."""

import errno
import fcntl
import os
import re
import socket
import threading
from collections.abc import Container, Mapping
from pathlib import Path
from typing import IO, ClassVar

import torch
from torch import Tensor

from mmmoca.messages import printable

from .errors import CheckpointError
from .read import read_checkpoint

# A run writes this file if it is stopped between two regular checkpoints.
INTERRUPTED = 'interrupted.pth'


class FolderLock:
    """Lets one run at a time write to a folder.

    The lock ends with its process, so a killed process leaves no lock behind.
    If an exception leaves a lock in place, the next lock of the same thread on
    this folder takes it over.

    Args:
        folder (str | os.PathLike): The folder. It is made if it is missing.
        argument (str): Name of the argument that chooses the folder, for the
            error message. Defaults to '--work-dir'.

    Raises:
        RuntimeError: If another process or thread has the lock. The message
            says which.
    """

    # POSIX releases a lock as soon as its process closes the file, even if the
    # process has the file open a second time. So a process opens the file of a
    # folder once, and a new lock takes over the open file.
    _held: ClassVar[dict[Path, 'FolderLock']] = {}
    _file: IO | None = None

    def __init__(
        self, folder: str | os.PathLike, argument: str = '--work-dir'
    ) -> None:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder.resolve()
        self._thread = threading.current_thread()
        if earlier := self._held.get(self._folder):
            thread = earlier._thread
            if thread is not self._thread and thread.is_alive():
                raise _taken(folder, 'in this process', argument)
            self._file, earlier._file = earlier._file, None
            self._held[self._folder] = self
            return
        file = (folder / '.lock').open('a+', encoding='utf-8')
        try:
            # The workers of a data loader may outlive a killed run. They do
            # not inherit a POSIX lock. They would inherit flock locks, such
            # as those of the package filelock before version 4.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                return  # a file system without locks
            file.seek(0)
            owner = file.read().strip()
            file.close()
            raise _taken(folder, owner, argument) from error
        self._file = file
        self._held[self._folder] = self
        file.truncate(0)
        file.write(f'process {os.getpid()} on {socket.gethostname()}')
        file.flush()

    @classmethod
    def is_held(cls, folder: str | os.PathLike) -> bool:
        """Return whether this process has the lock of a folder."""
        return Path(folder).resolve() in cls._held

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        if self._file is not None:
            file = self._folder / '.lock'
            if [*self._folder.glob('*')] == [file]:  # nothing was written
                file.unlink()
            self._file.close()
            self._file = None
            del self._held[self._folder]


def _taken(folder: Path, owner: str, argument: str) -> RuntimeError:
    return RuntimeError(
        f'another run writes to {folder} ({owner}): choose another {argument}'
    )


def find_checkpoints(folder: str | os.PathLike, template: str) -> list[Path]:
    """Return the checkpoints of a run in a folder, the newest first.

    Args:
        folder (str | os.PathLike): The folder.
        template (str): Pattern of their names, with ``{}`` for the number of
            epochs or iterations, such as 'epoch_{}.pth'.

    Returns:
        list[Path]: The checkpoints, the one with the largest number first.
    """
    before, after = map(re.escape, re.split(r'{.*?}', template))
    pattern = re.compile(rf'{before}(\d+){after}')
    numbered = [
        (int(match[1]), path)
        for path in Path(folder).glob('*')
        if (match := pattern.fullmatch(path.name)) and path.is_file()
    ]
    return [path for _, path in sorted(numbered, reverse=True)]


def left_checkpoints(folder: str | os.PathLike) -> list[Path]:
    """Return all checkpoints in a work dir, including the best ones.

    Args:
        folder (str | os.PathLike): The folder, which need not exist.

    Returns:
        list[Path]: The checkpoints, in no particular order.
    """
    folder = Path(folder)
    return [*folder.glob('*[0-9].pth'), *folder.glob(INTERRUPTED)]


def refuse_used(folder: str | os.PathLike, *found: Path | str) -> None:
    """Refuse a work dir that contains checkpoints of an earlier run.

    Args:
        folder (str | os.PathLike): The folder, which need not exist.
        *found (Path | str): Checkpoints in it that are already known.

    Raises:
        CheckpointError: If there is any. The message names one.
    """
    if left := [*found, *left_checkpoints(folder)]:
        raise CheckpointError(
            f'{folder} contains checkpoints, such as {left[0]}: add --resume '
            '(resume=True) to continue their run, or choose another work dir '
            '(--work-dir, out=)'
        )


def not_finite(state_dict: Mapping[str, object]) -> list[str]:
    """Return the names of the tensors that contain NaN or infinity.

    Args:
        state_dict (Mapping[str, object]): Tensors of any shape and device,
            by name. Values that are not tensors are skipped.

    Returns:
        list[str]: The names, in the order of ``state_dict``.
    """
    tensors = {
        name: value
        for name, value in state_dict.items()
        if isinstance(value, Tensor) and value.is_floating_point()
    }
    if not tensors:
        return []
    # One transfer from the device for all tensors.
    finite = torch.stack([t.isfinite().all() for t in tensors.values()])
    return [name for name, good in zip(tensors, finite.tolist()) if not good]


def newest_checkpoint(
    folder: str | os.PathLike, template: str, passed: Container[Path] = ()
) -> tuple[Path | None, list[str]]:
    """Return the newest checkpoint of a run that is intact and finite.

    Args:
        folder (str | os.PathLike): The work dir of the run.
        template (str): See :func:`find_checkpoints`.
        passed (Container[Path]): Files to skip without a report.

    Returns:
        tuple[Path | None, list[str]]: The file, or None; and for each newer
        file a sentence that says why it was skipped.
    """
    folder, problems = Path(folder), []
    candidates = find_checkpoints(folder, template)
    # A run deletes INTERRUPTED when it writes its next checkpoint. So if
    # INTERRUPTED exists, it is the newest.
    if (folder / INTERRUPTED).is_file():
        candidates.insert(0, folder / INTERRUPTED)
    for path in candidates:
        if path in passed:
            continue
        try:
            problem = _problem(read_checkpoint(path, lazy=True))
        # A damaged file may raise any exception, even a MemoryError.
        except Exception as error:
            problem = str(error) or type(error).__name__
        if problem is None:
            return path, problems
        problems.append(printable(f'{path} is skipped: {problem}'))
    return None, problems


def _problem(checkpoint: dict) -> str | None:
    """Return why a run cannot resume from a checkpoint, or None."""
    if 'state_dict' not in checkpoint:
        return 'it has no state_dict'
    for key in ('meta', 'optimizer', 'message_hub'):
        if not isinstance(checkpoint.get(key, {}), dict):
            return f'its {key} is not a dict'
    if not isinstance(checkpoint.get('param_schedulers', []), list):
        return 'its param_schedulers is not a list'
    meta = checkpoint.get('meta', {})
    done = [meta.get(key, 0) for key in ('epoch', 'iter')]
    if not all(type(n) is int and 0 <= n < 2**63 for n in done):
        return 'its meta has no valid epoch or iteration number'
    state = checkpoint['state_dict']
    for name, value in state.items():
        if not isinstance(value, Tensor) and 'extra_state' not in str(name):
            return f'{name} in it is not a tensor'
    names = not_finite(state)
    return f'it has numbers that are not finite: {names[0]}' if names else None
