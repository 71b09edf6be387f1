# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Stop runs of the quick start at random moments, and see what is lost.

Each trial starts a run and stops it several times, by signals and at times
that are drawn; each time it is started again with ``--resume``.
In the end weights and optimiser must be those of a run that nobody
stopped, bit for bit. A checkpoint is written in every second step, so that
many signals meet one that is being written. Linux.

    python tests/robustness/campaign.py --stops 50 --processes 1 2
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
SIGNALS = ('SIGKILL', 'SIGKILL', 'SIGTERM', 'SIGINT', 'SIGUSR1')
ITERATIONS = 30
OPTIONS = {
    'train_cfg.max_iters': ITERATIONS,
    'default_hooks.checkpoint.interval': 2,
    'default_hooks.checkpoint.max_keep_ckpts': 2,
    'train_dataloader.num_workers': 1,
    **{f'val_{part}': None for part in ('cfg', 'dataloader', 'evaluator')},
}


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument(
        '--stops', type=int, default=50, help='for each number of processes'
    )
    parser.add_argument('--processes', type=int, nargs='+', default=[1, 2])
    parser.add_argument('--seed', type=int, default=0)
    return parser.parse_args()


def start(folder: Path, name: str, processes: int) -> subprocess.Popen:
    """Start, or resume, a run on so many processes."""
    options = OPTIONS | {
        'train_dataloader.dataset.data_root': folder,
        'train_dataloader.batch_size': 8 // processes,
    }
    config = ROOT / 'configs' / 'demo' / 'moca_vit-tiny_textures.py'
    command = [sys.executable, ROOT / 'tools' / 'train.py', config]
    if processes > 1:
        command = [ROOT / 'tools' / 'dist_train.sh', config, processes]
    command += ['--work-dir', folder / name, '--resume', '--cfg-options']
    command += [f'{key}={value}' for key, value in options.items()]
    environment = os.environ | dict(
        PATH=f'{Path(sys.executable).parent}:{os.environ["PATH"]}',
        PORT=str(random.randrange(20000, 30000)),
        OMP_NUM_THREADS='1',
    )
    log = (folder / f'{name}.log').open('a')
    return subprocess.Popen(
        list(map(str, command)),
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    found = subprocess.run(
        ['pgrep', '-P', str(pid)], capture_output=True, text=True
    )
    return [int(child) for child in found.stdout.split()]


def stop(run: subprocess.Popen, name: str, processes: int) -> bool:
    """Send a signal to the run, or to one of its processes."""
    targets = [run.pid]
    if processes > 1:  # the shell's torchrun's
        targets = [pid for runs in children(run.pid) for pid in children(runs)]
    if run.poll() is not None or not targets:
        return False
    os.kill(random.choice(targets), getattr(signal, name))
    return True


def final_state(work_dir: Path) -> dict:
    """What the last checkpoint of a run says of it, but for its log."""
    from mmmoca.checkpoints import read_checkpoint

    saved = read_checkpoint(work_dir / f'iter_{ITERATIONS}.pth')
    return {k: saved[k] for k in ('state_dict', 'optimizer')}


def same(first: object, second: object) -> bool:
    """Whether two nested states are equal bit for bit."""
    import torch

    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(
            same(value, second[key]) for key, value in first.items()
        )
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second


def trial(
    folder: Path, name: str, processes: int, seconds: float, stops: int
) -> list[str]:
    """Stop a run so many times; the signals that met it."""
    met = []
    while True:
        run = start(folder, name, processes)
        stopped = False
        if len(met) < stops:
            time.sleep(random.uniform(0.4, 1.0) * seconds)
            kind = random.choice(SIGNALS)
            stopped = stop(run, kind, processes)
        if stopped:
            met.append(kind)
        if run.wait() == 0:
            return met
        if not stopped:
            raise RuntimeError((folder / f'{name}.log').read_text()[-3000:])


def main() -> None:
    """Run the trials and print the table."""
    args = parse_args()
    from rich.console import Console
    from rich.table import Table

    from tests.images import write_images

    random.seed(args.seed)
    table = Table(title=f'Runs of {ITERATIONS} steps, stopped and resumed')
    for column in ('processes', 'signal', 'tried', 'survived', 'lost'):
        table.add_column(column, justify='right')
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_images(folder, train=8, val=1)
        for processes in args.processes:
            begin = time.time()
            code = start(folder, f'whole_{processes}', processes).wait()
            assert code == 0, (folder / f'whole_{processes}.log').read_text()
            seconds = time.time() - begin
            expected = final_state(folder / f'whole_{processes}')
            tried, lost = Counter(), Counter()
            number = 0
            while sum(tried.values()) < args.stops:
                name = f'run_{processes}_{number}'
                met = trial(folder, name, processes, seconds, 3)
                good = same(final_state(folder / name), expected)
                tried.update(met)
                lost.update([] if good else met)
                number += 1
                print(
                    f'{name}: {", ".join(met)}: {"same" if good else "LOST"}'
                )
            for kind in sorted(tried):
                row = processes, kind, tried[kind], tried[kind] - lost[kind]
                table.add_row(*map(str, row), str(lost[kind]))
    Console().print(table)


if __name__ == '__main__':
    main()
