# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Run all tests and measurements that need a GPU, in minutes.

The parts run one after the other. Those that have been measured the fewest
times come first. Each is a command that can be typed alone. What they compile
stays in ``work_dirs/inductor`` (``--cache``), so that a second call need not
compile it again. When a part ends, its rows of the table are printed. Its own
output is in ``report.txt`` in the ``--out`` folder; if the part failed, the
end of this output follows its row. A part that fails or takes too long costs
only its own time. Nothing needs a network.

Example:
    python projects/performance/gpu.py
    python projects/performance/gpu.py --parts eager passes --minutes 5
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
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEEDED = 'matplotlib', 'mmmoca', 'pytest', 'rich', 'sklearn', 'timm', 'torch'
# The test files with the mark `gpu`. Other test files import packages that a
# bare machine lacks.
TESTS = (
    'tests/test_models/test_devices.py',
    'projects/gpu_views/tests/test_preprocessor.py',
    'tests/test_engine/test_precision.py',
    'tests/test_engine/test_loss_scaling.py',
)
BATCH, TINY_BATCH = 256, 4
SECONDS = 180  # time limit of a part on a GPU
COLUMNS = 'images/s', 'TFLOP/s', '% of a product', 'GiB', 'data s', 'ms'
# Program -> arguments for a rehearsal, which only shows that the program runs.
# The arguments are put at the end of a command, where they override earlier
# ones.
TINY = {
    'matrix.py': '--size 64',
    'attention.py': '--views 2 --repeats 1',
    'kernels.py': f'--arch deit-tiny --repeats 1 --batch-size {TINY_BATCH} '
    '--compile no',
    'step.py': '--arch deit-tiny --repeats 1 --dtype fp32 --forms ours '
    f'--batch-size {TINY_BATCH}',
    'banks.py': '--patches 2048 --images 1 --bank 1000 --queries 10',
    'demo.py': '--iters 2',
    'data.py': '--number 8',
    'train.py': f'train_dataloader.batch_size={TINY_BATCH} '
    'train_cfg.max_epochs=1 default_hooks.logger.interval=1 '
    'train_dataloader.num_workers=0 '
    'train_dataloader.persistent_workers=False '
    'model.backbone.arch=deit-tiny model.backbone.tap_layer=8 '
    'model.codebook.num_words=64 compile=False',
    'embedding.py': '--arch vit_tiny_patch16_224 --number 4 --batch-size 2 '
    '--workers 0 --repeats 1 --threads 1',
}


def parts(device: str, tiny: bool, out: Path) -> dict[str, str]:
    """Return the command of each part; if ``tiny``, with small sizes."""
    programs = 'projects/performance'
    step = f'{programs}/step.py --batch-size {BATCH} --dtype'
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

    one_rank = '-m torch.distributed.run --standalone --nproc-per-node 1'
    ddp = train(recipe, 'distributed', '--launcher pytorch')
    side_by_side = '-n 4' if find_spec('xdist') else ''
    own = '--forms ours'
    commands = {
        'matrix': f'{programs}/matrix.py --device {device}',
        'eager': f'{step} bf16 {own} reference products',
        'photos': f'{programs}/data.py --write {out}/photos --number 8192',
        'distributed': f'{one_rank} {ddp} compile=blocks',
        'demo': f'tools/demo.py --out {out}/shown --iters 840',
        'views-on-gpu': train(views, 'views-on-gpu'),
        'passes': f'{step} bf16 --compile passes {own}',
        'lean': f'{step} bf16 --compile passes --memory-budget .9 {own} '
        'half_residuals',
        'blocks': f'{step} bf16 --compile blocks {own}',
        'large': f'{step} bf16 --compile blocks --arch l --batch-size 128 '
        f'{own}',
        'batch-512': f'{step} bf16 --compile blocks --memory-budget .9 {own} '
        '--batch-size 512',
        'small': f'{step} bf16 --compile blocks --arch deit-small '
        f'--batch-size 512 {own}',
        'tests': f'-m pytest -v -p no:cacheprovider {side_by_side} -m '
        f'"gpu and not processes" {" ".join(TESTS)}',
        'float16': f'{step} fp16 --forms ours reference',
        'banks': f'{programs}/banks.py --device {device}',
        'profile': f'{programs}/kernels.py --compile no blocks passes '
        '--longest 40',
        'attention': f'{programs}/attention.py --device {device}',
        'recipe-passes': train(recipe, 'recipe-passes') + ' compile=True',
        'recipe-eager': train(recipe, 'recipe-eager'),
        'embedding': f'{programs}/embedding.py --device {device} --number '
        f'2048 --batch-size 256 --repeats 3 --workers {workers}',
    }
    for name, command in commands.items():
        if tiny:
            for program, arguments in TINY.items():
                if f'/{program} ' in command:
                    commands[name] += f' {arguments}'
        if f'{programs}/' in command and 'data.py' not in command:
            commands[name] += f' --json {out}/{name}.json'
    return commands


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts; return 1 if one failed, else 0."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [*parts('cuda', False, Path())]
    add = parser.add_argument
    add('--parts', nargs='+', choices=names, default=names, metavar='PART')
    add('--list', action='store_true', help='only list the parts')
    add(
        '--minutes',
        type=float,
        default=9.0,
        help='time limit of all parts together (9)',
    )
    add('--out', type=Path, default='work_dirs/gpu', metavar='DIR')
    cache = Path('work_dirs/inductor')
    code = 'folder of compiled code'
    add('--cache', type=Path, default=cache, metavar='DIR', help=code)
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
    # This import also loads all packages of OpenMMLab that the programs need,
    # so a missing one is reported before any part runs.
    import mmmoca.models  # noqa: F401

    # isort: split
    import torch

    if args.device == 'cuda' and not torch.cuda.is_available():
        parser.error('PyTorch sees no GPU; rehearse with --device cpu --tiny')
    args.out.mkdir(parents=True, exist_ok=True)
    os.environ['TORCHINDUCTOR_CACHE_DIR'] = str(args.cache.absolute())
    end = time.time() + 60 * args.minutes
    missed, table = [], Table(args.out, TINY_BATCH if args.tiny else BATCH)
    for name in args.parts:
        limit = end - time.time()
        if not args.tiny:
            limit = min(limit, SECONDS)
        if limit < 1 or not run(name, commands[name], limit, table):
            missed.append(name)
    table.say(f'{args.out}/report.txt\n')
    if missed:
        table.say(f'Failed, or no time was left: --parts {" ".join(missed)}\n')
    return int(bool(missed))


class Table:
    """A table whose rows go to the screen and to ``report.txt``.

    Args:
        out (Path): Folder of the report, and of what the parts write.
        batch (int): Images of a step.
    """

    def __init__(self, out: Path, batch: int) -> None:
        self.out, self.batch = out, batch
        self.report = (out / 'report.txt').open('a', buffering=1)
        self.product = self.of_an_image = None
        self.row('', {name: name for name in COLUMNS}, 's')

    def say(self, text: str) -> None:
        """Print a text, and write it to the report."""
        print(text, end='', flush=True)
        self.report.write(text)

    def row(self, name: str, figures: dict, seconds: object) -> None:
        """Print a row, and write it to the report."""
        cells = [
            f'{value:.4g}' if isinstance(value, float) else f'{value}'
            for value in (*(figures.get(c) or '' for c in COLUMNS), seconds)
        ]
        line = ''.join(f'{cell:>15}' for cell in cells)
        self.say(f'{name:36}{line}\n')

    def add(self, name: str, seconds: float, status: int) -> None:
        """Add the rows of what a part has measured."""
        found = [*self.figures(name)] if status == 0 else []
        for figures in found or [{}]:
            rate, images = figures.get('TFLOP/s'), figures.get('images/s')
            if name == 'matrix':
                self.product = rate
            elif rate and self.product:
                figures['% of a product'] = 100 * rate / self.product
            if name == 'eager' and images:
                self.of_an_image = rate / images
            title = f'{name} {figures.get("part", "")}'
            if status:
                title += f'FAILED ({status})'
            self.row(title, figures, round(seconds))

    def figures(self, name: str) -> Iterator[dict]:
        """Yield a part's rows: from its JSON file, and its training log."""
        file = self.out / f'{name}.json'
        if file.is_file():
            yield from json.loads(file.read_text())
        for log in self.out.glob(f'{name}/*/vis_data/scalars.json'):
            lines = [json.loads(line) for line in log.open()]
            # The first lines include the start-up of loaders and compilers.
            lines = lines[len(lines) // 2 :]
            step, data = (
                statistics.median(line[key] for line in lines)
                for key in ('time', 'data_time')
            )
            images = self.batch / step
            known = self.of_an_image
            yield {
                'images/s': images,
                'TFLOP/s': known and images * known,
                'GiB': lines[-1].get('memory', 0) / 1024,
                'data s': data,
            }


def run(name: str, command: str, limit: float, table: Table) -> bool:
    """Run a part until it ends or times out; return whether it succeeded."""
    start = time.time()
    table.report.write(f'\n=== {name}: python {command}\n')
    written = table.report.tell()
    paths = f'{ROOT}{os.pathsep}{os.environ.get("PYTHONPATH", "")}'
    timeout = 'timeout', '-k', '5', f'{limit:.0f}', sys.executable
    status = subprocess.run(
        [*timeout, *shlex.split(command)],
        cwd=ROOT,
        stdout=table.report,
        stderr=subprocess.STDOUT,
        env=dict(os.environ, PYTHONPATH=paths),
    ).returncode
    table.report.write(f'=== {name}: status {status}\n')
    table.add(name, time.time() - start, status)
    if status:
        output = (table.out / 'report.txt').read_bytes()[written:]
        print(output[-2000:].decode(errors='replace'), flush=True)
    return status == 0


if __name__ == '__main__':
    sys.exit(main())
