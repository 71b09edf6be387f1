# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Configs of the four families with one mistake each, named and drawn.

A trial loads a small config as the tools do, builds the runner and takes a
step, in a process of its own; where the mistake is about validation, it
validates instead. It must be refused before the first step by one error that
names the key or the value and says what is wanted. A run that goes on is lost,
unless ``HARMLESS`` says why the config is a good one.
"""

import multiprocessing
import os
import re
import signal
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from unittest import mock

from mmengine.model import BaseModel

from mmmoca.engine.launch import build_runner, check_files, load_config

from .config_families import FAMILIES, write_data
from .config_mistakes import Mistake, drawn, named
from .trials import Outcome

DRAWN = 45  # mistakes of each config
SECONDS = 120
TRAIN_STEP = BaseModel.train_step
ASKS = re.compile(
    r'must|expected|should|needs?\b|write|did you mean|unexpected keyword|'
    r'missing \d+ required|not in the|takes|has no|there is no|set |choose|'
    r'keep|make the same|specify',
    re.IGNORECASE,
)


class _Stepped(Exception):
    """The first step is over."""


def trials(folder: Path) -> Iterator[Outcome]:
    """Make each mistake once."""
    write_data(folder)
    with ThreadPoolExecutor(2) as pool:
        jobs = []
        for family, build in FAMILIES.items():
            cfg = build(folder).to_dict()
            for mistake in (*named(family), *drawn(cfg, DRAWN)):
                file = folder / f'config_{len(jobs)}.py'
                write_config(file, mistake.make(cfg))
                jobs.append((family, mistake, pool.submit(run, file, mistake)))
        for family, mistake, job in jobs:
            place, said = job.result()
            good = is_refused(mistake, place, said)
            if place == 'goes on':
                said = mistake.harmless
                good = bool(said)
            said = f'{place}: {" ".join(said.split())[:300]}'
            yield Outcome(f'config, {family}', str(mistake), good, said)


def write_config(file: Path, cfg: dict) -> None:
    """Write a config that has no parents."""
    text = ''.join(f'{key} = {value!r}\n' for key, value in cfg.items())
    file.write_text(re.sub(r"(?<![\w'])(nan|inf)\b", r"float('\1')", text))


def is_refused(mistake: Mistake, place: str, said: str) -> bool:
    """Whether an error came in time, and says what to do."""
    return (
        place == 'before the first step'
        and said.count('\n') < 8  # no traceback of another process
        and ASKS.search(said) is not None
        and any(name in said for name in mistake.names)
    )


def run(file: Path, mistake: Mistake) -> tuple[str, str]:
    """Run a config in a process of its own; where it ends, and its words."""
    context = multiprocessing.get_context('fork')
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(file, mistake, send))
    process.start()
    send.close()
    try:
        return receive.recv()
    except EOFError:
        return 'killed', 'it hung, or took the process with it'
    finally:
        process.join()


def _run(file: Path, mistake: Mistake, send: Connection) -> None:
    signal.alarm(SECONDS)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    try:
        cfg = load_config(file, str(file.with_suffix('')))
        check_files(cfg, 'train', 'val')
        runner = build_runner(cfg)
        if mistake.of_validation:
            runner.train()
        else:
            with mock.patch.object(BaseModel, 'train_step', _one_step):
                runner.train()
        send.send(('goes on', ''))
    except _Stepped:
        send.send(('goes on', ''))
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        begun = {frame.name for frame in frames} & {'train_step', 'val_step'}
        place = 'in a step' if begun else 'before the first step'
        send.send((place, f'{type(error).__name__}: {error}'))
    send.close()
    os._exit(0)


def _one_step(*args, **kwargs) -> None:
    TRAIN_STEP(*args, **kwargs)
    raise _Stepped
