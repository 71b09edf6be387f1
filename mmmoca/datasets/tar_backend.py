# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A file inside a tar file has a URL that every loader reads."""

import os
import re
from functools import lru_cache

from mmengine.fileio import BaseStorageBackend, register_backend

__all__ = ['TarBackend', 'tar_url']

# More shards than most sets have, below the 1024 files that a process may
# have open as a rule.
MAX_OPEN = 256
URL = re.compile(r'tar://(.+?)#(\d+)\+(\d+)/.*', re.DOTALL)


class TarBackend(BaseStorageBackend):
    """Reads ``tar://SHARD#OFFSET+SIZE/NAME``, bytes of a file on a disk.

    Each process keeps the tar files open that it has used last. They have no
    position that threads or forked processes could share.
    """

    def get(self, filepath: str) -> bytes:
        """The bytes of one member.

        Args:
            filepath: See :func:`tar_url`.

        Returns:
            Its content.

        Raises:
            OSError: If the file cannot be read, or ends before the member.
            ValueError: If the URL is none of a member.
        """
        match = URL.fullmatch(str(filepath))
        if not match:
            raise ValueError(
                f'{filepath} is not of the form tar://SHARD#OFFSET+SIZE/NAME'
            )
        shard, offset, size = match[1], int(match[2]), int(match[3])
        content = os.pread(_open(shard).descriptor, size, offset)
        if len(content) < size:
            raise OSError(
                f'{shard} has {len(content)} of its {size} bytes. The file '
                'was cut off or changed'
            )
        return content

    def get_text(self, filepath: str, encoding: str = 'utf-8') -> str:
        """The text of one member, see :meth:`get`."""
        return self.get(filepath).decode(encoding)


register_backend('tar', TarBackend, prefixes='tar')


def tar_url(shard: str, offset: int, size: int, name: str) -> str:
    """The URL of a member.

    Args:
        shard: Path of the tar file.
        offset: Where the member's bytes begin in it.
        size: How many they are.
        name: Name of the member, for messages.

    Returns:
        What :class:`TarBackend` reads.
    """
    # MMEngine splits a URL at each ://.
    name = name.replace('://', ':/')
    return f'tar://{shard}#{offset}+{size}/{name}'


class _Descriptor:
    """An open file; closed once nobody holds it."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        if hasattr(self, 'descriptor'):
            os.close(self.descriptor)


_open = lru_cache(MAX_OPEN)(_Descriptor)
