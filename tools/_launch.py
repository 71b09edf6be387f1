# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Run ``torch.distributed.run``, and end with the message of the program.

torchrun ends a failed program with a report of twenty lines, in which the
program's own message is lost.
"""

import logging
import os
import sys
import tempfile
from pathlib import Path

from torch.distributed import run
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from _arguments import LAST_LINE


def main() -> None:
    """Start the processes; exit with the status of the first that failed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, 'line')
        os.environ[LAST_LINE] = str(file)
        logging.disable(logging.ERROR)  # torchrun's reports
        try:
            run.main()
            return
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            status = failure.exitcode
            line = f'rank {rank} ended with status {status}\n'
        except SignalException as error:
            status, line = 128 + error.sigval, ''
        if file.exists():
            number, line = file.read_text().split(' ', 1)
            status = int(number)
    sys.stderr.write(line)
    sys.exit(status)


if __name__ == '__main__':
    main()
