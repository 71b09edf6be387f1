# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What is chosen from the curves of runs, and their tables."""

from collections.abc import Iterator
from statistics import mean
from typing import NamedTuple

from projects import trials
from projects.rivals.feature_curve import FEATURES, MEASURES
from projects.rivals.targets import TARGETS

__all__ = [
    'HEAD',
    'TARGET_HEAD',
    'Run',
    'by_method',
    'choose',
    'table',
    'target_table',
]

HEAD = (
    *('method', 'rate', 'feature', 'steps', 'seconds'),
    *('k-NN avg', 'k-NN cls', 'linear', 'mAP'),
)
TARGET_HEAD = ('method', *TARGETS.values())


class Run(NamedTuple):
    """What is trained once.

    Attributes:
        images (str): Name of a set.
        method (str): See :func:`~projects.rivals.methods.parts_of`.
        rate (float, optional): None for that of the config.
        seed (int): Of the run.
    """

    images: str
    method: str
    rate: float | None
    seed: int

    @property
    def name(self) -> str:
        """str: Of its work dir."""
        rate = '' if self.rate is None else f'_lr_{self.rate:g}'
        return f'{self.images}_{self.method}{rate}_seed_{self.seed}'


def choose(curves: dict[Run, list[dict]]) -> dict[str, tuple[float, str]]:
    """The rate and the feature of each method that are best by k-NN.

    Args:
        curves (dict[Run, list[dict]]): Of one set and seed.

    Returns:
        dict[str, tuple[float, str]]: By method, from the images for
        choosing, at the end.
    """
    found = {}
    for method in dict.fromkeys(run.method for run in curves):
        ends = {
            (run.rate, feature): curve[-1]['choose'][f'knn_{feature}']
            for run, curve in curves.items()
            if run.method == method
            for feature in FEATURES
        }
        found[method] = max(ends, key=ends.get)
    return found


def table(
    curves: dict[Run, list[dict]], feature_of: dict[str, str]
) -> Iterator[tuple[str, ...]]:
    """Rows of one set, a method and a rate each.

    Args:
        curves (dict[Run, list[dict]]): Of one set.
        feature_of (dict[str, str]): The feature of a method, for linear
            probing and retrieval.

    Yields:
        tuple[str, ...]: Method, rate, feature, steps, seconds, k-NN by both
        features, linear probe, mAP; means and deviations over the seeds.
    """
    for (method, rate), seeds in by_method(curves).items():
        ends = [curve[-1] for curve in seeds]
        feature = feature_of[method]
        columns = [f'knn_{name}' for name in FEATURES]
        columns += [f'{name}_{feature}' for name in MEASURES[1:]]
        yield (
            method,
            "the recipe's" if rate is None else f'{rate:g}',
            feature,
            str(ends[0]['step']),
            f'{mean(end["seconds"] for end in ends):.0f}',
            *(
                trials.mean_and_deviation(
                    [end['report'][name] for end in ends]
                )
                for name in columns
            ),
        )


def target_table(curves: dict[Run, list[dict]]) -> list[tuple[str, ...]]:
    """Rows of one set, a method with a codebook each.

    Args:
        curves (dict[Run, list[dict]]): Of one set.

    Returns:
        list[tuple[str, ...]]: Method, and what of :data:`TARGETS` was found
        at the end; means and deviations over the seeds.
    """
    return [
        (
            method,
            *(
                trials.mean_and_deviation(
                    [curve[-1]['targets'][name] for curve in seeds], digits=2
                )
                for name in TARGETS
            ),
        )
        for (method, _), seeds in by_method(curves).items()
        if all('targets' in curve[-1] for curve in seeds)
    ]


def by_method(
    curves: dict[Run, list[dict]],
) -> dict[tuple[str, float | None], list[list[dict]]]:
    """The curves of all seeds of each method and rate.

    Args:
        curves (dict[Run, list[dict]]): Of one set.

    Returns:
        dict[tuple[str, float | None], list[list[dict]]]: By method and rate.
    """
    found = {}
    for run, curve in curves.items():
        found.setdefault((run.method, run.rate), []).append(curve)
    return found
