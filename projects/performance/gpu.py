# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""All that a GPU can show, in minutes: tests, steps, runs.

The parts run one after the other, what is least known first. Each is a command
that can be typed alone. As it ends its last lines are printed, of a training
its rate; all that it printed is in ``PART.txt`` of the ``--out`` folder. One
that fails or takes too long costs its own time only. Nothing needs a network.

Example:
    python projects/performance/gpu.py
    python projects/performance/gpu.py --parts eager compiled --minutes 5
    python projects/performance/gpu.py --device cpu --tiny
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEEDED = 'matplotlib', 'mmmoca', 'pytest', 'rich', 'sklearn', 'timm', 'torch'
# The files of the mark: others import what a bare machine lacks.
TESTS = (
    'tests/test_models/test_devices.py',
    'projects/gpu_views/tests/test_preprocessor.py',
    'tests/test_engine/test_precision.py',
    'tests/test_engine/test_loss_scaling.py',
)
BATCH, TINY_BATCH = 256, 4
SECONDS = dict(tests=60)  # at most, on a GPU; and of each other part:
OTHERS = 180
LINES = 12  # of a part that are printed
# Arguments at the end of a command, where the last of a kind counts, that
# only show that it runs.
TINY = {
    'matrix.py': '--size 64',
    'step.py': '--arch deit-tiny --repeats 1 --dtype fp32 --forms ours '
    f'--batch-size {TINY_BATCH}',
    'demo.py': '--iters 2',
    'data.py': '--number 8',
    'train.py': f'train_dataloader.batch_size={TINY_BATCH} '
    'train_cfg.max_epochs=1 default_hooks.logger.interval=1 '
    'train_dataloader.num_workers=0 '
    'train_dataloader.persistent_workers=False '
    'model.backbone.arch=deit-tiny model.backbone.tap_layer=8 '
    'model.codebook.num_words=64',
    'embedding.py': '--arch vit_tiny_patch16_224 --number 4 --batch-size 2 '
    '--workers 0 --repeats 1',
}


def parts(device: str, tiny: bool, out: Path) -> dict[str, str]:
    """The command of each part, tiny ones for a rehearsal."""
    programs = 'projects/performance'
    step = f'{programs}/step.py --device {device} --batch-size {BATCH} --dtype'
    workers = min(16, os.cpu_count() or 1)
    options = (
        f'--cfg-options train_dataloader.dataset.data_root={out}/photos '
        'train_dataloader.dataset.data_prefix= '
        f'train_dataloader.num_workers={workers} '
        f'train_dataloader.batch_size={BATCH} '
        'train_cfg.max_epochs=3 param_scheduler=None '
        'optim_wrapper.dtype=bfloat16 '
        'default_hooks.checkpoint=None default_hooks.logger.interval=8'
    )
    recipe = 'configs/moca_vit-b16_200e.py'
    views = 'projects/gpu_views/configs/moca_vit-b16_200e_gpu-views.py'

    def train(config: str, name: str, more: str = '') -> str:
        return (
            f'tools/train.py {config} --no-validate {more} --work-dir '
            f'{out}/{name} {options}'
        )

    one_rank = '-m torch.distributed.run --nproc-per-node 1'
    ddp = train(recipe, 'distributed', '--launcher pytorch')
    side_by_side = '-n 4' if find_spec('xdist') else ''
    commands = {
        'matrix': f'{programs}/matrix.py --device {device}',
        'tests': f'-m pytest -v -p no:cacheprovider {side_by_side} -m '
        f'"gpu and not processes" {" ".join(TESTS)}',
        'eager': f'{step} bf16 --forms ours reference',
        'photos': f'{programs}/data.py --write {out}/photos --number 8192',
        'views-on-cpu': train(recipe, 'views-on-cpu'),
        'views-on-gpu': train(views, 'views-on-gpu'),
        'blocks': f'{step} bf16 --compile blocks',
        'recipe-blocks': train(recipe, 'recipe-blocks') + ' compile=blocks',
        'compiled': f'{step} bf16 --compile whole',
        'embedding': f'{programs}/embedding.py --device {device} --number '
        f'2048 --batch-size 256 --repeats 3 --workers {workers}',
        'large': f'{step} bf16 --arch l --batch-size 128 --forms ours '
        'reference',
        'demo': f'tools/demo.py --out {out}/shown --iters 840',
        'distributed': f'{one_rank} {ddp}',
        'float16': f'{step} fp16 --forms ours reference',
    }
    for name, command in commands.items():
        if tiny:
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
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        parser.error(
            f'{sys.executable} lacks {", ".join(missing)}. Without a network, '
            'see `make wheels`'
        )
    import mmmoca.models  # noqa: F401  and all of OpenMMLab that it needs

    # isort: split
    import torch

    if args.device == 'cuda' and not torch.cuda.is_available():
        parser.error('PyTorch sees no GPU; rehearse by --device cpu --tiny')
    args.out.mkdir(parents=True, exist_ok=True)
    end = time.time() + 60 * args.minutes
    missed, batch = [], TINY_BATCH if args.tiny else BATCH
    for name in args.parts:
        limit = end - time.time()
        if not args.tiny:
            limit = min(limit, SECONDS.get(name, OTHERS))
        if not run(name, commands[name], limit, args.out):
            missed.append(name)
        logs = sorted(args.out.glob(f'{name}/*/vis_data/scalars.json'))
        if logs:
            print(rate_of(logs[-1], batch))
    if missed:
        print(f'Failed, or no time was left: --parts {" ".join(missed)}')
    return int(bool(missed))


def run(name: str, command: str, limit: float, out: Path) -> bool:
    """Run a part until it ends or its time is over; whether it ended well."""
    start = time.time()
    paths = f'{ROOT}{os.pathsep}{os.environ.get("PYTHONPATH", "")}'
    timeout = 'timeout', '-k', '5', f'{max(1, limit):.0f}', sys.executable
    file = out / f'{name}.txt'
    with file.open('w') as log:
        status = subprocess.run(
            [*timeout, *shlex.split(command)],
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(os.environ, PYTHONPATH=paths),
        ).returncode
    print(*file.read_text(errors='replace').splitlines()[-LINES:], sep='\n')
    end = f'FAILED ({status})' if status else 'done'
    print(f'=== {name}: {end}, {time.time() - start:.0f} s', flush=True)
    return status == 0


def rate_of(log: Path, batch: int) -> str:
    """The rate of a training, by its log.

    Args:
        log (Path): Its scalars.
        batch (int): Images of a step.
    """
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    # The first ones have the start of loaders and compilers in them.
    lines = lines[len(lines) // 2 :]
    step, data = (
        statistics.median(line[key] for line in lines)
        for key in ('time', 'data_time')
    )
    memory = lines[-1].get('memory', 0) / 1024
    return (
        f'{batch / step:.4g} images/s, a step waits {data:.4g} s for data, '
        f'{memory:.4g} GiB at most'
    )


if __name__ == '__main__':
    sys.exit(main())
