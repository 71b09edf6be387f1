# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What happens to a run that is refused before it has begun."""

import shutil
from pathlib import Path

from mmengine.runner import Runner


def remove_traces(runner: Runner) -> None:
    """Remove what a run has written.

    Args:
        runner (Runner): One that was refused while it was built lacks
            attributes.
    """
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
