# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import logging

from mmengine.runner import Runner

from mmmoca.registry import RUNNERS

__all__ = ['ConsoleRunner', 'QuietRunner']

# How messages begin that tell of MMEngine and the machine, not of the run.
_DUMPS = (
    *('\n------', 'Config:', 'Hooks will be executed', 'Exp name:'),
    *('Distributed training is not used', '"FileClient"', '"HardDiskBackend"'),
)


@RUNNERS.register_module()
class ConsoleRunner(Runner):
    """Keeps environment, config, hooks and the like off the terminal.

    The log file has them.
    """

    @staticmethod
    def shown(record: logging.LogRecord) -> bool:
        """Whether a record goes to the terminal."""
        message = record.getMessage()
        if message.startswith('Epoch(test)'):
            # KNNTestLoop shows them as a table.
            return 'knn/' not in message
        return not message.startswith(_DUMPS)

    def build_logger(self, *args, **kwargs) -> logging.Logger:
        """Build the logger; let through to the terminal what is of use."""
        logger = super().build_logger(*args, **kwargs)
        for handler in logger.handlers:
            if not isinstance(handler, logging.FileHandler):
                handler.addFilter(self.shown)
        return logger


@RUNNERS.register_module()
class QuietRunner(ConsoleRunner):
    """Shows warnings, errors and what came out alone on the terminal."""

    @staticmethod
    def shown(record: logging.LogRecord) -> bool:
        """Whether a record goes to the terminal."""
        told = record.levelno >= logging.WARNING or hasattr(record, 'result')
        return told and ConsoleRunner.shown(record)
