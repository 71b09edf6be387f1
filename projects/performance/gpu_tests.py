# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The part of gpu.py that runs tests."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from gpu_figures import Failure, Outcome, Row
from gpu_setting import ROOT, Setting

MARKED = 'gpu and not processes'


def tests(setting: Setting) -> Iterator[Outcome]:
    """The tests that a GPU changes, and those that need one."""
    report = setting.out / 'tests.xml'
    report.unlink(missing_ok=True)
    # Others need not even import what they need.
    marked = [
        str(path)
        for path in sorted((ROOT / 'tests').rglob('test_*.py'))
        if 'mark.gpu' in path.read_text()
    ]
    # Where pytest ends badly without a report, its output says why.
    done = subprocess.run(
        [
            *(sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider'),
            f'--junitxml={report}',
            *(setting.sizes.tests or ['-m', MARKED, *marked]),
        ],
        cwd=ROOT,
    )
    if not report.exists():
        yield Failure('pytest', f'ended with status {done.returncode}')
        return
    yield from read_tests(report)


def read_tests(report: Path) -> Iterator[Outcome]:
    """A row for each file of a report of pytest, and what failed."""
    counts: dict[str, Counter] = {}
    for case in ElementTree.parse(report).getroot().iter('testcase'):
        file, test = case.get('classname'), case.get('name')
        count = counts.setdefault(file, Counter())
        count['s'] += float(case.get('time', 0))
        # 'skipped', 'failure' or 'error' with a message, if it has not passed.
        end = next(
            (x for x in case if x.tag in ('skipped', 'failure', 'error')), None
        )
        kind = 'passed' if end is None else end.tag
        count[kind] += 1
        if kind in ('failure', 'error'):
            message = end.get('message', '').strip().split('\n')[0]
            yield Failure(f'{file}.{test}', message)
    for file, count in counts.items():
        kinds = 'passed', 'skipped', 'failure', 'error'
        yield Row(
            'Tests',
            {'file': file, **{k: count[k] for k in kinds}, 's': count['s']},
        )
