# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What the trials of all parts share."""

from pathlib import Path
from typing import NamedTuple

import torch

from mmmoca.checkpoints import read_checkpoint


class Trial(NamedTuple):
    """What came of one trial.

    Attributes:
        kind (str): The row of the table that counts it.
        name (str): What was tried.
        problem (str): What was lost; empty if the run went on as it should,
            or was refused by an error that says what to do.
    """

    kind: str
    name: str
    problem: str = ''


def state_of(checkpoint: Path) -> dict:
    """What a run's later steps depend on; not its log."""
    saved = read_checkpoint(checkpoint)
    return {key: saved[key] for key in ('state_dict', 'optimizer')}


def same(first: object, second: object) -> bool:
    """Whether two nested states are equal bit for bit."""
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(
            same(value, second[key]) for key, value in first.items()
        )
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second
