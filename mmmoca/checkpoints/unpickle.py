# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Stand-ins for the classes that MMEngine's checkpoints pickle.

``torch.load(weights_only=True)`` has a list of allowed functions and classes.
A file can call them with any arguments, and set the state of the objects that
they return. MMEngine's files need two unsafe ones: ``getattr`` leads from
any class to ``exec``, and ``numpy.dtype`` can turn numbers into pointers. The
stand-ins accept only numbers and names. A file cannot call what they return.
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
    """A log history that ignores the list of statistics in the file."""

    def __setstate__(self, state: dict) -> None:
        values, counts = state['_log_history'], state['_count_history']
        if not type(values) is type(counts) is _Array:
            raise UnpicklingError('A log history is not an array of numbers.')
        self.__init__(values, counts, state['max_length'])
        # The history must be pickled under its original name if it is saved
        # again.
        self.__class__ = HistoryBuffer


def _method_name(owner: object, name: str) -> str:
    """Replace ``getattr``, with which files look up a history's methods."""
    if owner is not _History:
        raise UnpicklingError(
            f'A checkpoint may look up methods of HistoryBuffer only, but '
            f'this one asks for {name!r} of {owner!r}.'
        )
    return name


class _DType:
    """Stands in for a NumPy dtype, because a file could alter a real one."""

    def __init__(self, code: str, *_: object) -> None:
        self.value = np.dtype(code) if isinstance(code, str) else None
        if self.value is None or self.value.kind not in 'biuf':
            raise UnpicklingError(
                f"NumPy's type {code!r} is not accepted, only numbers are"
            )

    def __setstate__(self, state: tuple) -> None:
        self.value = self.value.newbyteorder(state[1])


class _Array(np.ndarray):
    """An array that is created empty and filled once."""

    def __new__(cls, *_: object) -> '_Array':
        return super().__new__(cls, 0)

    def __setstate__(self, state: tuple) -> None:
        # A second state would free memory that a tensor may share.
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
    """Refuse a pickle with a tuple of too many nested parts.

    If a tuple is the key of a dict, unpickling hashes it part by part. Forty
    nested tuples, each of which contains the next one twice, take only a few
    bytes in a file, but hashing them would never end.

    Args:
        pickled (bytes | IO[bytes]): The pickle, which is not run.

    Raises:
        UnpicklingError: If there is such a tuple.
        ValueError: If this is not a pickle.
    """
    # The number of parts of each object, and None for each of pickle's marks.
    stack: list[int | None] = []
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
                raise UnpicklingError(
                    'It has a tuple of too many nested parts.'
                )
            stack += [
                None if x is markobject else total for x in op.stack_after
            ]


# The allowed functions and classes, each with its name in files. NumPy 2
# renamed the module `core`, and files with either name exist. Files of the
# authors and of DINO contain a Namespace.
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


# PyTorch has one list for the whole process, so threads must take turns.
_LOCK = threading.RLock()


@contextmanager
def safe_unpickling() -> Iterator[None]:
    """Let ``torch.load`` accept the content of MMEngine's files.

    In this context it accepts tensors, plain values, log histories, NumPy's
    numbers and arrays, and ``argparse.Namespace``. It ignores what other code
    in the process added with ``torch.serialization.add_safe_globals``, such as
    the real ``getattr``, which MMEngine adds. Afterwards, PyTorch's list is
    as before. PyTorch's own context, ``safe_globals``, is not used, because it
    would also remove entries that other code had added before.
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
