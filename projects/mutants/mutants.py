# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Measure which small faults in the package the tests notice.

Each fault replaces a piece of code that occurs once in the package. The tests
that run its line come first, the quick ones before the slow ones. If they
pass, all quick tests follow, then all tests with several processes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coverage import CoverageData

ROOT = Path(__file__).resolve().parents[2]
QUICK = 'not (slow or ops or processes or release)'
MOST_TESTS = 60
# A piece of code in the package, and its replacement. Half of the lines were
# drawn at random; the rest are those where a reader would fear a fault.
MUTANTS = [
    # models
    ('torch.cat(bags.chunk(2)[::-1])', 'torch.cat(bags.chunk(2))'),
    ("'loss_img'] = 2 * self.lambda_img", "'loss_img'] = self.lambda_img"),
    ('self.inv_delta / self.msd', 'self.inv_delta * self.msd'),
    ('border : width - border]', 'border:width]'),
    ('(value, 1 - self.msd_momentum)', '(value, self.msd_momentum)'),
    ('(second, shared, rest, first)', '(shared, second, rest, first)'),
    ('= int(num_patches * (1 - mask', '= round(num_patches * (1 - mask'),
    ('positions = self.positions[mask.decoded]', 'positions = self.positions'),
    ('normalize_fp32(prototypes, self.eps)', 'prototypes.float()'),
    ('self.teacher.eval()', 'pass'),
    ('msd.unflatten(0, (2, -1)).mean(dim=1)', 'msd.view(-1, 2).mean(dim=0)'),
    # engine
    ("    all_reduce(mean, op='mean')\n", ''),
    ('runner.seed, optimizer_steps(runner, runner.iter + 1)', 'runner.seed'),
    ('            accepted = accepted & (skip == 0)\n', '            pass\n'),
    ('math.cos(math.pi * step / total', '-math.cos(math.pi * step / total'),
    ('        if source.requires_grad\n', ''),
    ('self.period * self.end - warmup', 'self.end - warmup'),
    ('parameter.ndim < 2, key', 'parameter.ndim < 3, key'),
    ('runner.seed, get_rank(), runner.iter', 'runner.seed, runner.iter'),
    ('np.random.seed(seed % 2**32)', 'pass'),
    # datasets
    ('self.rank + skip * step', 'self.rank'),
    ('manual_seed(self.seed + epoch)', 'manual_seed(self.seed)'),
    ('mode=interpolation, antialias=True', 'mode=interpolation'),
    ('variance = sigma**2 / 3', 'variance = sigma**2'),
    ('1 - factor, -0.499', '1 - factor, 0'),
    ('+ std * brightness)', '+ brightness)'),
    (
        'self.max_unreadable, self._read\n',
        'self.max_unreadable, 2 * self._read\n',
    ),
    # checkpoints
    ("'encoder_teacher.': 'teacher.'", "'encoder_teacher.': 'backbone.'"),
    ('side**2 == patches else None', 'side**2 <= patches else None'),
    ('return repeated * (old / channels)', 'return repeated'),
    (", ('bias', factors)", ','),
    ('sorted(numbered, reverse=True)', 'sorted(numbered)'),
    ('unpacked > MOST_PACKED * os', 'unpacked > 10**9 * os'),
    # evaluation
    ('(sims / temperature).softmax(1)', '(sims * temperature).softmax(1)'),
    ('scatter_add_(1, labels', 'scatter_(1, labels'),
    ('new_rows + start', 'new_rows'),
    ('start = sum(len(shard) for shard in shards[: get_rank()])', 'start = 0'),
    ('tol=tol / len(labels)', 'tol=tol'),
    ('feats - feats.mean(dim=1', 'feats - feats.mean(dim=0'),
    ('for row in order[:count]', 'for row in range(count)'),
    # visualization and apis
    ('i * stride[0] + stride[0] // 2', 'i * stride[0]'),
    ('picture[..., ::-1] if bgr else picture', 'picture'),
    ('patches.mT.unflatten(2, grid)', 'patches.mT.unflatten(2, grid[::-1])'),
    ('return turn if turned else 1', 'return 1'),
    ('start + np.array(good)', 'start + np.arange(len(good))'),
    # decoding of images, and the look at a data set
    ('1 in kinds or 2 in kinds', '1 in kinds'),
    ('fileType, 0) & 5 for', 'fileType, 0) & 4 for'),
    ('> image.fp.tell()', '> 0'),
    ('{6: 8, 8: 6}.get(turn, turn)', 'turn'),
    ("return ~img if img.dtype.kind in 'biu' else -img", 'return -img'),
    ('(clear and shown) or', '(clear and background is not None) or'),
    (
        'self.size[::-1] if self.orientation >',
        'self.size if self.orientation >',
    ),
    ("if role not in ('val', 'test'):", "if role != 'test':"),
    ('old + start: known[old]', 'old: known[old]'),
    ('width * height < SMALL', 'width + height < SMALL'),
    # fitting a checkpoint, and what it records
    ('channels if len(numbers) == 1 else', 'channels if None else'),
    ('step = -1 if images', 'step = 1 if images'),
    ("round(resize['scale'] * height / side)", "resize['scale']"),
    ('(name, ones_like(value))', '(name, value)'),
    ('{dims // (4 * len(periods))}', '{dims // (2 * len(periods))}'),
    # settings and the config of a run
    ('round(img_size / patch / 7)', 'round(img_size / patch / 6)'),
    ('(layer + 1) * depth // last - 1', 'layer * depth // last'),
    ("value.get('num_workers', 0) > 0", "value.get('num_workers', 0) >= 0"),
    ('or start is None or left_checkpoints', 'or left_checkpoints'),
    ('raise ValueError(listed(look.wrong, 2))', 'pass'),
]


def find(old: str) -> tuple[Path, int] | None:
    """Return the file and first line of a piece of code that occurs once."""
    texts = {
        path: path.read_text() for path in (ROOT / 'mmmoca').rglob('*.py')
    }
    holding = [path for path, text in texts.items() if old in text]
    if len(holding) != 1 or texts[holding[0]].count(old) != 1:
        return None
    before = texts[holding[0]].partition(old)[0]
    # If the code begins with a line break, its first line is the next one.
    return holding[0], before.count('\n') + 1 + old.startswith('\n')


def covering(data: CoverageData, path: Path, line: int) -> list[str]:
    """Return the tests that run a line, those of its subpackage first."""
    lines = data.contexts_by_lineno(str(path))
    near = min(lines, key=lambda other: abs(other - line), default=line)
    tests = {c.partition('|')[0] for c in lines.get(near, ()) if '::' in c}
    own = f'tests/test_{path.relative_to(ROOT).parts[1].removesuffix(".py")}'
    return sorted(
        tests,
        key=lambda t: (not t.startswith(own), not t.startswith('tests/'), t),
    )


def caught(copy: Path, *arguments: str) -> bool:
    """Return whether tests fail in a copy of the project."""
    done = subprocess.run(
        [sys.executable, '-m', 'pytest', '-q', '-x', '-p', 'no:cacheprovider']
        + list(arguments),
        cwd=copy,
        env=os.environ | dict(PYTHONPATH=str(copy)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    # If -x ends a run, pytest-xdist calls the run interrupted.
    failed = done.returncode in (1, 2) and ' failed' in done.stdout
    failed |= done.returncode == 1 and ' error' in done.stdout  # a fixture
    if not (failed or done.returncode in (0, 5)):  # 5: no tests ran
        raise RuntimeError(done.stdout[-2000:])
    return failed


def measure(
    number: int,
    copy: Path,
    data: CoverageData | None,
    given: tuple[str, ...] = (),
) -> str:
    """Put one fault into the copy, run tests, and remove the fault again."""
    old, new = MUTANTS[number]
    place = find(old)
    if place is None:
        return 'gone: the code does not occur exactly once'
    path, line = place
    name = path.relative_to(ROOT)
    tests = [*given] if data is None else covering(data, path, line)
    source = path.read_text()
    (copy / name).write_text(source.replace(old, new))
    own = tests[:MOST_TESTS]
    # Quick tests come first.
    stages = [(QUICK, *own), (f'not ({QUICK})', *own)] if own else []
    if data is not None:
        # The coverage data lack the lines that run in other processes.
        stages += [(QUICK, '-n', 'auto'), ('processes', '-n', 'auto')]
    notice = (stage[0] for stage in stages if caught(copy, '-m', *stage))
    found = next(notice, None)
    (copy / name).write_text(source)
    result = f'caught by -m {found!r}' if found else 'SURVIVES'
    return f'{result} ({name}:{line}, {len(tests)} tests run it)'


def main() -> None:
    """Measure the requested faults, and count those that are caught."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument(
        'numbers', type=int, nargs='*', help='faults to try (by default all)'
    )
    parser.add_argument('--coverage', type=Path, default=ROOT / '.coverage')
    parser.add_argument(
        '--tests', nargs='+', default=(), help='run only these tests'
    )
    args = parser.parse_args()
    data = None if args.tests else measure_coverage(args.coverage)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / 'project'
        ignored = shutil.ignore_patterns('.git', '.venv', 'work_dirs', 'data')
        shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)
        # Copy the golden cases: the pattern above omits every folder named
        # data.
        shutil.copytree(ROOT / 'tests' / 'data', copy / 'tests' / 'data')
        for number in args.numbers or range(len(MUTANTS)):
            results.append(measure(number, copy, data, tuple(args.tests)))
            print(f'{number}: {results[-1]}', flush=True)
    good = sum(result.startswith('caught') for result in results)
    print(f'{good} of {len(results)} caught')


def measure_coverage(file: Path) -> CoverageData:
    """Read which tests run each line; if unknown, run all tests first."""
    from coverage import CoverageData

    if not file.is_file():
        command = '--cov=mmmoca --cov-context=test --cov-report='
        subprocess.run(
            [sys.executable, '-m', 'pytest', '-q', '-n', 'auto']
            + ['--dist', 'loadfile', *command.split()],
            cwd=ROOT,
            env=os.environ | dict(COVERAGE_FILE=str(file)),
        )
    data = CoverageData(str(file))
    data.read()
    return data


if __name__ == '__main__':
    main()
