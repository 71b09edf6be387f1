# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Stand-ins for the classes that MMEngine's checkpoints pickle.

``torch.load(weights_only=True)`` calls every function on its list with
arguments from the file, and hands them the state in the file: ``getattr``
leads from any class to ``exec``, and ``numpy.dtype`` marks numbers as
pointers. These stand-ins take numbers and names only, and a file can call
nothing of what they return.
"""

import argparse
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pickle import UnpicklingError
from pickletools import genops, markobject
from typing import IO, Any

import numpy as np
import torch
from mmengine.logging import HistoryBuffer

MOST_PARTS = 2**20


class _History(HistoryBuffer):
    """A log history, without the statistics that the file names."""

    def __setstate__(self, state: dict) -> None:
        values, counts = state['_log_history'], state['_count_history']
        if not type(values) is type(counts) is _Array:
            raise UnpicklingError('A log history is no array of numbers.')
        self.__init__(values, counts, state['max_length'])
        # So it is saved again as one.
        self.__class__ = HistoryBuffer


def _method_name(owner: object, name: str) -> str:
    """Stand in for ``getattr``, which looks up a history's statistics."""
    if owner is not _History:
        raise UnpicklingError(
            f'A checkpoint may look up methods of HistoryBuffer only, but '
            f'this one asks for {name!r} of {owner!r}.'
        )
    return name


class _DType:
    """A type of numbers; a real one would let the file change it."""

    def __init__(self, code: str, *_: object) -> None:
        self.value = np.dtype(code) if isinstance(code, str) else None
        if self.value is None or self.value.kind not in 'biuf':
            raise UnpicklingError(
                f"NumPy's type {code!r} is not read: text, dates, objects"
            )

    def __setstate__(self, state: tuple) -> None:
        self.value = self.value.newbyteorder(state[1])


class _Array(np.ndarray):
    """An array that is created empty and filled once."""

    def __new__(cls, *_: object) -> '_Array':
        return super().__new__(cls, 0)

    def __setstate__(self, state: tuple) -> None:
        # PyTorch may share the memory that a second state would free.
        if self.size:
            raise UnpicklingError('An array of the checkpoint is set twice.')
        _, shape, dtype, fortran, content = state
        values = _numbers(dtype, content)
        values = values.reshape(shape, order='F' if fortran else 'C')
        super().__setstate__(
            (1, values.shape, values.dtype, False, values.tobytes())
        )

    def __reduce__(self) -> tuple:
        return np.array(self).__reduce__()


def _scalar(dtype: _DType, content: bytes) -> Any:
    return _numbers(dtype, content)[0]


def _numbers(dtype: _DType, content: bytes) -> np.ndarray:
    if not isinstance(dtype, _DType):
        raise UnpicklingError('An array of the checkpoint has no type.')
    return np.frombuffer(content, dtype.value)


def check_tuples(pickled: bytes | IO[bytes]) -> None:
    """Refuse a pickle with a tuple of more parts than anyone can visit.

    As a key of a dict it is hashed while it is unpickled, part by part. One
    that holds another one twice, forty times over, takes some bytes and would
    keep a reader busy for ever.

    Args:
        pickled (bytes | IO[bytes]): The pickle, which is not run.

    Raises:
        UnpicklingError: If there is one.
        ValueError: If it is no pickle.
    """
    stack: list[int | None] = []  # parts of each object; None for a mark
    memo: dict[int, int] = {}
    for op, number, _ in genops(pickled):
        if op.name.endswith('GET'):
            stack.append(memo.get(number, 1))
        elif op.name.endswith('PUT') or op.name == 'MEMOIZE':
            memo[len(memo) if number is None else number] = stack[-1] or 1
        else:
            parts, before = [], op.stack_before
            if markobject in before:
                before = before[: before.index(markobject)]
                while (part := stack.pop()) is not None:
                    parts.append(part)
            parts += [stack.pop() or 1 for _ in before]
            total = 1 + sum(parts) if op.name.startswith('TUPLE') else 1
            if total > MOST_PARTS:
                raise UnpicklingError('It has a tuple of endless parts.')
            stack += [
                None if x is markobject else total for x in op.stack_after
            ]


# With the names that files have for them. A module was renamed in NumPy 2;
# files of both are around. The authors' files and DINO's carry a Namespace.
_STAND_INS = [
    (argparse.Namespace, 'argparse.Namespace'),
    (_History, 'mmengine.logging.history_buffer.HistoryBuffer'),
    (_method_name, 'builtins.getattr'),
    (_DType, 'numpy.dtype'),
    (_Array, 'numpy.ndarray'),
    *(
        (stand_in, f'numpy.{core}.multiarray.{name}')
        for core in ('core', '_core')
        for name, stand_in in (('_reconstruct', _Array), ('scalar', _scalar))
    ),
]


# PyTorch's list is the process's: threads read one after the other.
_LOCK = threading.RLock()


@contextmanager
def safe_unpickling() -> Iterator[None]:
    """Let ``torch.load`` accept what MMEngine's files hold, as a context.

    Besides tensors and plain values these are log histories, numbers and
    arrays of NumPy, and ``argparse.Namespace``. What others of the process
    added by ``torch.serialization.add_safe_globals`` does not count:
    MMEngine adds ``getattr`` itself. Afterwards the list is as it was before;
    PyTorch's own context would shorten it.
    """
    with _LOCK:
        before = torch.serialization.get_safe_globals()
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(_STAND_INS)
        try:
            yield
        finally:
            torch.serialization.clear_safe_globals()
            torch.serialization.add_safe_globals(before)
