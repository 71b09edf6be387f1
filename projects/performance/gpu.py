# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""All that a GPU can show, in minutes: tests, steps, runs; tables for docs.

One part runs after the other, each in a process of its own, most worth
first. A part that fails is reported, and the others go on; one for which too
little time is left is left out. Nothing needs a network. Figures
(figures.jsonl), tables (report.md), what the parts print (log.txt) and a
profile (trace.json.gz) are in the ``--out`` folder as soon as they are known.
Parts that run again take the place of what they found before, the others'
figures stay: run what was left out by ``--parts``.

Example:
    python projects/performance/gpu.py
    python projects/performance/gpu.py --parts step reference --minutes 5
    python projects/performance/gpu.py --device cpu --tiny
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gpu_figures import Failure, Figures
from gpu_parts import PARTS
from gpu_report import number, write_report
from gpu_setting import ROOT

# A part may take so many times what it is expected to.
PATIENCE = 2.5


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('--parts', nargs='+', choices=PARTS, default=[*PARTS], metavar='PART')
    add('--list', action='store_true', help='the parts, and end')
    add('--minutes', type=float, default=9.0, help='in all (9)')
    add(
        '--out',
        type=Path,
        metavar='DIR',
        help='work_dirs/gpu, or work_dirs/gpu_rehearsal',
    )
    add('--device', choices=['cuda', 'cpu'], default='cuda')
    add('--tiny', action='store_true', help='rehearse with small sizes')
    args = parser.parse_args(argv)
    if args.device == 'cpu' and not args.tiny:
        parser.error('--device cpu is a rehearsal: add --tiny')
    default = 'work_dirs/gpu' + '_rehearsal' * args.tiny
    args.out = Path(args.out or default).absolute()
    return args


def environment() -> dict[str, str]:
    """Of the parts: they find the package where it is not installed."""
    paths = [str(ROOT), *filter(None, [os.environ.get('PYTHONPATH')])]
    return {
        **os.environ,
        'PYTHONPATH': os.pathsep.join(paths),
        'PYTHONUNBUFFERED': '1',
    }


def start(name: str, out: Path) -> subprocess.Popen:
    """Start the process of a part, which waits when it has its imports."""
    script = Path(__file__).with_name('gpu_parts.py')
    with (out / 'log.txt').open('a') as log:
        return subprocess.Popen(
            [sys.executable, str(script), name],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment(),
            text=True,
            start_new_session=True,
        )


def stop(process: subprocess.Popen) -> bool:
    """Stop a part and what it has started; whether it still ran."""
    running = process.poll() is None
    if running:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return running


def run(
    name: str,
    process: subprocess.Popen,
    setting: dict[str, object],
    figures: Figures,
) -> bool:
    """Let a part run, and print what it finds.

    Args:
        name (str): Of the part.
        process (subprocess.Popen): Of :func:`start`.
        setting (dict): Arguments of :class:`~gpu_setting.Setting`.
        figures (Figures): Where the part adds what it finds.

    Returns:
        bool: Whether all of it ran.
    """
    began, printed = time.time(), 0
    figures.start(name)
    # Whoever ended during the imports reads nothing.
    with suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(json.dumps(setting) + '\n')
    try:
        while process.poll() is None and time.time() < setting['until']:
            time.sleep(0.2)
            printed = show(figures.of(name), printed)
    finally:
        stopped = stop(process)
    title, spent = PARTS[name].title, time.time() - began
    if stopped:
        figures.add(name, Failure(title, f'stopped after {spent:.0f} s'))
    elif process.returncode:
        status = f'ended with status {process.returncode}'
        figures.add(name, Failure(title, status))
    else:
        figures.end(name, spent)
    records = figures.of(name)
    show(records, printed)
    return not any('error' in record for record in records)


def show(records: list[dict], printed: int) -> int:
    """Print a part's lines after the first ones; how many there are."""
    for record in records[printed:]:
        if 'values' in record:
            pairs = record['values'].items()
            text = ', '.join(f'{k} {number(v)}' for k, v in pairs)
            print(f'  {record["table"]}: {text}', flush=True)
        elif 'note' in record:
            print(f'  {record["note"]}', flush=True)
        elif 'error' in record:
            print(f'  FAILED {record["what"]}: {record["error"]}', flush=True)
    return len(records)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts; 1 if anything failed, else 0."""
    args = parse_args(argv)
    if args.list:
        for name, part in PARTS.items():
            print(f'{name:14} {part.seconds:4} s  {part.title}')
        return 0
    import mmmoca  # noqa: F401  checks the installation before all else

    # isort: split
    import torch

    if args.device == 'cuda' and not torch.cuda.is_available():
        sys.exit(
            'gpu.py: error: PyTorch sees no GPU here; --device cpu --tiny '
            'rehearses without one'
        )
    args.out.mkdir(parents=True, exist_ok=True)
    figures = Figures(args.out / 'figures.jsonl')
    words = sys.argv[1:] if argv is None else argv
    command = shlex.join(['python', 'projects/performance/gpu.py', *words])
    began = time.time()
    left_out, failed = run_all(args, figures, command, began)
    print(f'\n{write_report(figures, command)}')
    print(f'{time.time() - began:.0f} s; {args.out}/report.md')
    if left_out:
        print('Left out for want of time: --parts', *left_out)
    if failed:
        print('Failed:', *failed, f'(see {args.out}/log.txt)')
    return int(bool(failed))


def run_all(
    args: argparse.Namespace, figures: Figures, command: str, began: float
) -> tuple[list[str], list[str]]:
    """Run the parts for which there is time; write the report after each.

    Returns:
        tuple[list[str], list[str]]: Parts left out, and parts that failed.
    """
    end = began + 60 * args.minutes
    left_out, failed = [], []
    waiting = start(args.parts[0], args.out)
    for name, following in zip(args.parts, [*args.parts[1:], None]):
        process = waiting
        waiting = following and start(following, args.out)
        needed = figures.seconds(name) or PARTS[name].seconds
        if args.tiny:  # little more than the imports
            needed = 20.0
        clock = f'[{time.time() - began:4.0f} s] {name}:'
        if end - time.time() < needed:
            print(clock, f'left out, takes {needed:.0f} s', flush=True)
            left_out.append(name)
            stop(process)
            continue
        print(clock, PARTS[name].title, flush=True)
        until = min(end, time.time() + max(120.0, PATIENCE * needed))
        setting = dict(device=args.device, tiny=args.tiny, out=str(args.out))
        try:
            if not run(name, process, setting | {'until': until}, figures):
                failed.append(name)
        except BaseException:  # a key that was pressed
            if waiting:
                stop(waiting)
            raise
        (args.out / 'report.md').write_text(write_report(figures, command))
    return left_out, failed


if __name__ == '__main__':
    sys.exit(main())
