# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Configs of the four families with one mistake each, named and drawn.

A trial loads a small config as the tools do, builds the runner and takes a
step, in a process of its own; it validates, too, where the mistake is about
that. The mistake must be refused before the first step by one error that names
the key or the value and says what is wanted. A run that goes on is lost,
unless :data:`HARMLESS` says why the value is a good one.
"""

import copy
import multiprocessing
import os
import random
import re
import signal
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import inf, nan
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from mmengine.model import BaseModel

from mmmoca.engine.launch import build_runner, check_files, load_config

from .config_families import FAMILIES, write_data
from .config_mistakes import Mistake, drawn, named
from .trials import Outcome

DRAWN = 45  # mistakes of each config
SECONDS = 120


class _Stepped(Exception):
    """The first step is over."""


def trials(folder: Path) -> Iterator[Outcome]:
    """Make each mistake once."""
    write_data(folder)
    context = multiprocessing.get_context('fork')
    with ThreadPoolExecutor(2) as pool:
        jobs = []
        for family, build in FAMILIES.items():
            cfg = build(folder).to_dict()
            mistakes = [*named(family), *drawn(cfg, DRAWN)]
            for number, mistake in enumerate(mistakes):
                file = folder / f'{family} {number}.py'.replace(' ', '_')
                jobs.append(
                    (family, mistake, pool.submit(
                        attempt, context, file, mistake.of(cfg), mistake
                    ))
                )
        for family, mistake, job in jobs:
            phase, said = job.result()
            good, why = judge(mistake, phase, said)
            yield Outcome(f'config of {family}', str(mistake), good, why)


def attempt(context, file: Path, cfg: dict, mistake: Mistake):
    """Run in a process of its own; where it ended, and with which words."""
    text = ''.join(f'{key} = {value!r}\n' for key, value in cfg.items())
    file.write_text(re.sub(r"(?<![\w'])(nan|inf)\b", r"float('\1')", text))
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(file, mistake, send))
    process.start()
    send.close()
    try:
        result = receive.recv()
    except EOFError:
        result = 'killed', f'exit status {process.exitcode}'
    process.join()
    return result


def run(file: Path, mistake: Mistake, send: Connection) -> None:
    """What the child does."""
    signal.alarm(SECONDS)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    phase = 'load'
    step = BaseModel.train_step

    def one_step(*args, **kwargs):
        step(*args, **kwargs)
        raise _Stepped

    try:
        cfg = load_config(file, str(file.with_suffix('')))
        check_files(cfg, 'train', 'val')
        phase = 'build'
        runner = build_runner(cfg)
        phase = 'start'
        if mistake.of_validation:
            runner.train()
        else:
            with mock.patch.object(BaseModel, 'train_step', one_step):
                runner.train()
        result = 'done', ''
    except _Stepped:
        result = 'done', ''
    except BaseException as error:
        frames = {
            frame.name
            for frame in traceback.extract_tb(error.__traceback__)
        }
        if 'train_step' in frames or 'one_step' in frames:
            phase = 'first step'
        elif frames & {'run_iter', 'val_step'} and phase == 'start':
            phase = 'validation'
        result = phase, f'{type(error).__name__}: {error}'
        if os.environ.get('CFG14_TB'): result=(phase, traceback.format_exc())
    send.send(result)
    send.close()
    os._exit(0)


ASKS = re.compile(
    r'must|expected|should|needs?\b|write|did you mean|unexpected keyword|'
    r'missing \d+ required|not in the|takes|has no|there is no|set |choose|keep|make the same',
    re.IGNORECASE,
)


def judge(mistake: Mistake, phase: str, said: str) -> tuple[bool, str]:
    """Whether a trial ended well, and how it ended in one line."""
    line = ' '.join(said.split())
    line = f'{phase}: {line}' if said else phase
    if phase == 'done':
        why = mistake.harmless
        return bool(why), f'goes on: {why or "???"}'
    clear = (
        phase in ('load', 'build', 'start')
        and said.count('\n') < 8
        and ASKS.search(said)
        and any(name in said for name in mistake.names)
    )
    return bool(clear), line[:400]
