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
from pathlib import Path

from gpu_figures import Failure, Figures
from gpu_parts import PARTS
from gpu_report import number, write_report
from gpu_setting import ROOT

# A part may take that many times what it is expected to.
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
    add('--out', type=Path, default=Path('work_dirs/gpu'), metavar='DIR')
    add('--device', choices=['cuda', 'cpu'], default='cuda')
    add('--tiny', action='store_true', help='a rehearsal: small sizes')
    args = parser.parse_args(argv)
    if args.device == 'cpu' and not args.tiny:
        parser.error('--device cpu is a rehearsal: add --tiny')
    args.out = args.out.absolute()
    return args


def environment() -> dict[str, str]:
    """Of the parts: they find the package where it is not installed."""
    paths = [str(ROOT), *filter(None, [os.environ.get('PYTHONPATH')])]
    return {
        **os.environ,
        'PYTHONPATH': os.pathsep.join(paths),
        'PYTHONUNBUFFERED': '1',
    }


def run(
    name: str, args: argparse.Namespace, figures: Figures, until: float
) -> bool:
    """Run a part, and print what it finds.

    Args:
        name (str): Of the part.
        args (argparse.Namespace): The arguments.
        figures (Figures): Where the part adds what it finds.
        until (float): When it is stopped, by :func:`time.time`.

    Returns:
        bool: Whether all of it ran.
    """
    setting = dict(device=args.device, tiny=args.tiny, out=str(args.out))
    setting['until'] = until
    script = Path(__file__).with_name('gpu_parts.py')
    command = [sys.executable, str(script), name, json.dumps(setting)]
    start, printed = time.time(), 0
    figures.start(name)
    with (args.out / 'log.txt').open('a') as log:
        log.write(f'\n=== {name}\n')
        log.flush()
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,
        )
        try:
            while process.poll() is None and time.time() < until:
                time.sleep(0.2)
                printed = show(figures.of(name), printed)
        finally:
            stopped = process.poll() is None
            # With the processes that it has started.
            if stopped:
                os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
    title, spent = PARTS[name].title, time.time() - start
    if stopped:
        figures.add(name, Failure(title, f'stopped after {spent:.0f} s'))
    elif status:
        figures.add(name, Failure(title, f'ended with status {status}'))
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
    args.out.mkdir(parents=True, exist_ok=True)
    figures = Figures(args.out / 'figures.jsonl')
    words = sys.argv[1:] if argv is None else argv
    command = shlex.join(['python', 'projects/performance/gpu.py', *words])
    start = time.time()
    end = start + 60 * args.minutes
    failed, left_out = [], []
    for name in args.parts:
        # Small sizes take no longer than the imports.
        needed = figures.seconds(name) or PARTS[name].seconds
        needed = min(needed, 20) if args.tiny else needed
        left = end - time.time()
        clock = f'[{time.time() - start:4.0f} s]'
        if left < needed:
            print(
                f'{clock} {name}: left out, takes {needed:.0f} s', flush=True
            )
            left_out.append(name)
            continue
        print(f'{clock} {name}: {PARTS[name].title}', flush=True)
        patience = max(120.0, PATIENCE * needed)
        until = min(end, time.time() + patience)
        if not run(name, args, figures, until):
            failed.append(name)
        report = write_report(figures, command)
        (args.out / 'report.md').write_text(report)
    print(f'\n{write_report(figures, command)}')
    print(f'{time.time() - start:.0f} s; {args.out}/report.md')
    if left_out:
        print('Left out for want of time: --parts', *left_out)
    if failed:
        print('Failed:', *failed, f'(see {args.out}/log.txt)')
    return int(bool(failed))


if __name__ == '__main__':
    sys.exit(main())
