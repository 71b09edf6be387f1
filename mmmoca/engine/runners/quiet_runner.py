# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import logging

from mmengine.runner import Runner

from mmmoca.registry import RUNNERS

__all__ = ['QuietRunner']


@RUNNERS.register_module()
class QuietRunner(Runner):
    """Keeps what MMEngine logs in its file, off the terminal."""

    def build_logger(self, *args, **kwargs) -> logging.Logger:
        """Build the logger; let only errors through to the terminal."""
        logger = super().build_logger(*args, **kwargs)
        for handler in logger.handlers:
            if not isinstance(handler, logging.FileHandler):
                handler.setLevel(logging.ERROR)
        return logger
