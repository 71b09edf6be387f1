# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""All that a GPU can show, in minutes: tests, steps, runs.

The parts run one after the other, the most useful first. Each is a command
that can be typed alone. A part that fails is named at the end, and the others
go on; a part is skipped if no time is left. Their output is also written to
``report.txt`` of the ``--out`` folder. Nothing needs a network.

Example:
    python projects/performance/gpu.py
    python projects/performance/gpu.py --parts step reference --minutes 5
    python projects/performance/gpu.py --device cpu --tiny
"""

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parents[2]
MARKED = 'gpu and not processes'
# Arguments at the end of a command, where the last of a kind counts, that
# only show that it runs.
TINY = {
    'step.py': '--arch deit-tiny --batch-size 4 --repeats 1 --dtype fp32',
    'demo.py': '--iters 2',
    'data.py': '--number 8',
    'train.py': 'train_dataloader.batch_size=4 train_cfg.max_epochs=1 '
    'train_dataloader.num_workers=0 '
    'model.backbone.arch=deit-tiny model.backbone.tap_layer=8 '
    'model.codebook.num_words=64',
    'embedding.py': '--arch vit_tiny_patch16_224 --number 4 --batch-size 2 '
    '--workers 0 --repeats 1',
}


def parts(device: str, tiny: bool, out: Path) -> dict[str, str]:
    """The command of each part, tiny ones for a rehearsal."""
    programs = 'projects/performance'
    step = f'{programs}/step.py --device {device} --batch-size 256 --dtype'
    # Compiling takes a minute or two.
    compiled = '' if tiny else ' --compile'
    workers = min(16, os.cpu_count() or 1)
    train = 'tools/train.py configs/moca_vit-b16_200e.py --no-validate'
    options = (
        f'--cfg-options train_dataloader.dataset.data_root={out}/photos '
        'train_dataloader.dataset.data_prefix= '
        f'train_dataloader.num_workers={workers} '
        'train_cfg.max_epochs=10 param_scheduler=None '
        'default_hooks.checkpoint=None default_hooks.logger.interval=8'
    )
    commands = {
        'tests': f'-m pytest -q -p no:cacheprovider -m {MARKED!r} tests',
        'step': f'{step} bf16{compiled}',
        'reference': f'{step} bf16 --reference',
        'eager': f'{step} bf16',
        'float16': f'{step} fp16',
        'large': f'{step} bf16 --arch l --batch-size 128{compiled}',
        'demo': f'tools/demo.py --out {out}/demo --iters 840',
        'photos': f'{programs}/data.py --write {out}/photos --number 2048',
        'runner': f'{train} --work-dir {out}/runner {options}',
        'distributed': '-m torch.distributed.run --nproc-per-node 1 '
        f'{train} --launcher pytorch --work-dir {out}/distributed {options}',
        'embedding': f'{programs}/embedding.py --device {device} --number '
        f'2048 --batch-size 256 --repeats 3 --workers {workers}',
    }
    if tiny:
        for name, command in commands.items():
            for program, arguments in TINY.items():
                if f'/{program} ' in command:
                    commands[name] += f' {arguments}'
    return commands


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts; 1 if one failed, else 0."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [*parts('cuda', False, Path())]
    add = parser.add_argument
    add('--parts', nargs='+', choices=names, default=names, metavar='PART')
    add('--list', action='store_true', help='the parts, and end')
    add('--minutes', type=float, default=9.0, help='in all (9)')
    add('--out', type=Path, default='work_dirs/gpu', metavar='DIR')
    add('--device', choices=['cuda', 'cpu'], default='cuda')
    add('--tiny', action='store_true', help='rehearse with small sizes')
    args = parser.parse_args(argv)
    if args.device == 'cpu' and not args.tiny:
        parser.error('--device cpu is a rehearsal: add --tiny')
    args.out = args.out.absolute()
    commands = parts(args.device, args.tiny, args.out)
    if args.list:
        print('\n'.join(f'{name}: {commands[name]}' for name in args.parts))
        return 0
    import mmmoca  # noqa: F401  checks the installation before all else

    # isort: split
    import torch

    if args.device == 'cuda' and not torch.cuda.is_available():
        parser.error('PyTorch sees no GPU; rehearse by --device cpu --tiny')
    args.out.mkdir(parents=True, exist_ok=True)
    end = time.time() + 60 * args.minutes
    with (args.out / 'report.txt').open('a', buffering=1) as report:
        missed = [
            name
            for name in args.parts
            if not run(name, commands[name], end, report)
        ]
    print(f'{args.out}/report.txt')
    if missed:
        print('Failed, or no time was left: --parts', *missed)
    return int(bool(missed))


def run(name: str, command: str, end: float, report: TextIO) -> bool:
    """Run a part until it ends or the time is over; whether it ended well."""

    def say(line: str) -> None:
        print(line, end='', flush=True)
        report.write(line)

    start = time.time()
    say(f'\n=== {name}: python {command}\n')
    limit = 'timeout', f'{max(1, end - start):.0f}', sys.executable
    paths = f'{ROOT}{os.pathsep}{os.environ.get("PYTHONPATH", "")}'
    process = subprocess.Popen(
        [*limit, *shlex.split(command)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(os.environ, PYTHONPATH=paths),
        text=True,
    )
    for line in process.stdout:
        say(line)
    status = process.wait()
    say(f'=== {name}: status {status}, {time.time() - start:.0f} s\n')
    return status == 0


if __name__ == '__main__':
    sys.exit(main())
