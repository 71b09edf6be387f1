# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The folder of a run: who writes to it, and what can be resumed in it."""

import errno
import fcntl
import os
import re
import socket
from pathlib import Path

from .reading import CheckpointError, check_intact

__all__ = ['FolderLock', 'find_checkpoints', 'newest_checkpoint']


class FolderLock:
    """Lets one process at a time write to a folder.

    The lock goes with its process: one that was killed leaves none behind.

    Args:
        folder (str | os.PathLike): The folder, made if need be.
        argument (str): What names it, for the error. Defaults to
            '--work-dir'.

    Raises:
        RuntimeError: If another process has it. Says which and where.
    """

    def __init__(
        self, folder: str | os.PathLike, argument: str = '--work-dir'
    ) -> None:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / '.lock').open('a+', encoding='utf-8')
        try:
            # POSIX's lock, which the workers of a loader do not inherit.
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                return  # a file system without locks
            self._file.seek(0)
            holder = self._file.read().strip()
            self._file.close()
            raise RuntimeError(
                f'another run writes to {folder} ({holder}): give this one '
                f'another {argument}, or stop that one'
            ) from error
        self._file.truncate(0)
        self._file.write(f'process {os.getpid()} on {socket.gethostname()}')
        self._file.flush()

    def release(self) -> None:
        """Let others have it."""
        self._file.close()


def find_checkpoints(folder: str | os.PathLike, template: str) -> list[Path]:
    """Checkpoints that a run has written to a folder, the newest first.

    Args:
        folder (str | os.PathLike): The folder.
        template (str): Their names, ``{}`` for the number, which is their
            age: 'epoch_{}.pth' say.

    Returns:
        list[Path]: Those of the largest number first.
    """
    before, after = map(re.escape, template.split('{}'))
    pattern = re.compile(rf'{before}(\d+){after}')
    numbered = [
        (int(match[1]), path)
        for path in Path(folder).glob('*')
        if (match := pattern.fullmatch(path.name)) and path.is_file()
    ]
    return [path for _, path in sorted(numbered, reverse=True)]


def newest_checkpoint(
    folder: str | os.PathLike,
    template: str,
    kept_in: str | os.PathLike | None = None,
) -> tuple[Path | None, list[str]]:
    """The newest checkpoint of a run that can be read.

    MMEngine's ``last_checkpoint`` is taken as the name of a file in this
    folder, which may have been moved, and as a path where there is none.

    Args:
        folder (str | os.PathLike): The work dir of the run.
        template (str): See :func:`find_checkpoints`.
        kept_in (str | os.PathLike, optional): The folder of the checkpoints;
            by default the work dir.

    Returns:
        tuple[Path | None, list[str]]: The file, None if there is none; and
        why newer ones are passed over.
    """
    folder, problems = Path(folder), []
    candidates = find_checkpoints(kept_in or folder, template)
    pointer = folder / 'last_checkpoint'
    if pointer.is_file():
        named = Path(pointer.read_text(errors='replace').strip())
        here = folder / named.name
        # Path.is_file raises an error for a name that is too long.
        found = [path for path in (here, named) if os.path.isfile(path)]
        if not found:
            problems.append(f'{pointer} names {here}, which is no file'[:999])
        elif found[0] not in candidates:
            candidates.insert(0, found[0])
    for path in candidates:
        try:
            check_intact(path)
        except CheckpointError as error:
            problems.append(str(error))
        else:
            return path, problems
    return None, problems
