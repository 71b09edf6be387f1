# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What happens to a run that is refused before it has begun."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmengine.dist import is_main_process
from mmengine.runner import Runner


@contextmanager
def refusals_leave_nothing(runner: Runner) -> Iterator[None]:
    """Remove what a run has written if it is refused.

    Args:
        runner (Runner): The runner of the run, with an attribute ``begun``.
            Errors get it as ``of_begun_run``: those of a run that has begun
            are worth a traceback.
    """
    try:
        yield
    except Exception as error:
        error.of_begun_run = runner.begun
        if not runner.begun and is_main_process():
            _remove_traces(runner)
        raise


def _remove_traces(runner: Runner) -> None:
    # A runner that was refused while it was built lacks attributes.
    shutil.rmtree(getattr(runner, 'log_dir', ''), ignore_errors=True)
    folder = Path(getattr(runner, 'work_dir', ''))
    if [path.name for path in folder.glob('*')] == ['.lock']:
        (folder / '.lock').unlink()
    # A next run that starts in this second has its name, and would write by
    # what MMEngine (0.10) keeps under it.
    name = getattr(runner, 'experiment_name', None)
    for part in ('logger', 'message_hub', 'visualizer'):
        if hasattr(runner, part):
            type(getattr(runner, part))._instance_dict.pop(name, None)
