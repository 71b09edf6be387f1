# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
r"""Correlate label-free measures with accuracies, across encoders.

Reads the ``compare.json`` of each run. ``tools/analysis_tools/compare.py``
writes it for the run's checkpoints, which must be given in the order of
training. Prints Spearman's rank correlations of two label-free measures (the
agreement of neighbours and RankMe) with the accuracies of k-NN and of the
linear probe. Each correlation is computed within each run, and across the last
checkpoints of all runs.

Example:
    RUN=work_dirs/rivals/moca
    python tools/analysis_tools/compare.py $(ls -v $RUN/iter_*.pth) \
        --data-root data/textures --protocols knn linear \
        --images data/textures/val --out-dir $RUN/compare
    python projects/rivals/correlations.py \
        work_dirs/rivals/*/compare/compare.json
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from scipy.stats import spearmanr

from mmmoca.evaluation.report import render_table

UNLABELLED = {'agreement': 'agreement', 'RankMe': 'rank_me'}
LABELLED = {'k-NN': ('knn', 'k=20'), 'linear': ('linear', 'top1')}


def correlations(results: Sequence[dict]) -> Iterator[str]:
    """Yield the correlations of each label-free measure, as text.

    Args:
        results (Sequence[dict]): The results in a ``compare.json``.
    """
    for key in UNLABELLED.values():
        numbers = [result[key] for result in results]
        found = (
            spearmanr(numbers, [result[name][part] for result in results])[0]
            for name, part in LABELLED.values()
        )
        yield ' / '.join(f'{value:+.2f}' for value in found)


def main() -> None:
    """Read the files and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    files = 'compare.json files, one per run'
    parser.add_argument('files', type=Path, nargs='+', help=files)
    runs = {
        file.parents[1].name: json.loads(file.read_text())['results']
        for file in parser.parse_args().files
    }
    runs['across'] = [results[-1] for results in runs.values()]
    head = [f'{name} with {" / ".join(LABELLED)}' for name in UNLABELLED]
    rows = [
        [name, *correlations(results)]
        for name, results in runs.items()
        if len(results) > 2
    ]
    print(render_table(['run', *head], rows))


if __name__ == '__main__':
    main()
