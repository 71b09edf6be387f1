# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmmoca.messages import printable


class CheckpointError(ValueError):
    """A checkpoint file that cannot be used, and what to do about it.

    Args:
        message (str): Control characters in it become visible.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))
