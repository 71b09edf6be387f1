# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Measurements in processes of their own."""

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from unittest import mock

_held: object


@contextlib.contextmanager
def own_process(
    build: Callable,
    *args,
    environment: dict[str, str] | None = None,
    **kwargs,
) -> Iterator[Callable]:
    """Build something in a new process and call its methods there.

    What the C library keeps of freed memory, and the peak of the memory, then
    belong to that thing alone. Several processes can take turns.

    Args:
        build (Callable): A function or class of a module, picklable.
        *args: Its arguments.
        environment (dict[str, str], optional): More variables to start with.
        **kwargs: Its arguments by name.

    Yields:
        Callable: Takes a method's name and arguments; what it returns or
        raises there, it does here.
    """
    with ProcessPoolExecutor(1, get_context('spawn')) as pool:
        # The first call starts the process.
        with mock.patch.dict(os.environ, environment or {}):
            pool.submit(_hold, build, args, kwargs).result()
        yield lambda *call: pool.submit(_call, *call).result()


def _hold(build: Callable, args: tuple, kwargs: dict) -> None:
    global _held
    _held = build(*args, **kwargs)


def _call(method: str, *args) -> object:
    return getattr(_held, method)(*args)
