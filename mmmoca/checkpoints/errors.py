# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmmoca.messages import printable


class CheckpointError(ValueError):
    """A checkpoint file cannot be used; the message says what to do.

    Args:
        message (str): The message. Its control characters are escaped.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))
