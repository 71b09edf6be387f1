# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""An adapter to what MMEngine (0.10) has no public name for.

Methods of theirs that a class of ours overrides are there; all else is asked
here alone.
"""

from collections.abc import Sequence
from functools import partial

from mmengine.dataset import BaseDataset
from mmengine.optim import OptimWrapper
from mmengine.runner import BaseLoop, Runner
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader


def checkpoint_any_input(model: nn.Module, names: Sequence[str]) -> None:
    """Let modules recompute activations where their input has no gradient.

    MMEngine's ``activation_checkpointing`` takes PyTorch's older form, which
    gives a layer behind frozen ones no gradients.

    Args:
        model (nn.Module): Without a wrapper, after MMEngine has changed it.
        names (Sequence[str]): Names of the modules.
    """
    for name in names:
        module = model.get_submodule(name)
        forward = module.forward.__wrapped__  # by MMEngine
        module.forward = partial(checkpoint, forward, use_reentrant=False)


def is_training(runner: Runner) -> bool:
    """Return whether a runner trains, from its ``before_run`` on."""
    return isinstance(runner._train_loop, BaseLoop)


class _Uncopied:
    """Stands for an object where MMEngine copies the config that holds it."""

    def __init__(self, held: object) -> None:
        self.held = held

    def __deepcopy__(self, memo: dict) -> object:
        return self.held


def hand_over(runner: Runner, dataset: BaseDataset) -> None:
    """Let a run that has not begun read a training set that is built."""
    # A copy would hold the list of millions of images twice.
    runner._train_dataloader['dataset'] = _Uncopied(dataset)


def resumes(runner: Runner) -> bool:
    """Return whether a run goes on from a checkpoint."""
    return runner._resume


def stop_resuming(runner: Runner) -> None:
    """Let a run begin anew, in ``before_run``.

    MMEngine would go on from the file that ``last_checkpoint`` of the work
    dir names, which may be in the folder that this one is a copy of.
    """
    runner._resume = False


def load_address(runner: Runner) -> str:
    """Return the address that a run loads, or an empty text."""
    return runner._load_from or ''


def set_load_address(runner: Runner, address: str | None) -> None:
    """Let a run load something else, or nothing, in ``before_run``."""
    runner._load_from = address


def has_loaded(runner: Runner) -> bool:
    """Return whether a run has loaded its checkpoint."""
    return runner._has_loaded


def micro_batches(wrapper: OptimWrapper) -> int:
    """Count the iterations of an optimiser step."""
    return wrapper._accumulative_counts


def built_loops(runner: Runner) -> list[BaseLoop]:
    """Return the loops that a run has built, and those within them.

    Others are still configs.
    """
    loops = [x for x in vars(runner).values() if isinstance(x, BaseLoop)]
    parts = (x for loop in loops for x in vars(loop).values())
    return loops + [x for x in parts if isinstance(x, BaseLoop)]


def loaders_by_role(runner: Runner) -> dict[str, DataLoader]:
    """Return the loaders of these loops by what they are for: 'val bank'."""
    found = {}
    for role in ('train', 'val', 'test'):
        loop = vars(runner).get(f'_{role}_loop')  # not yet, after an error
        if isinstance(loop, BaseLoop):
            for name, part in vars(loop).items():
                if isinstance(part, DataLoader):
                    known = name != 'dataloader'
                    found[f'{role} bank' if known else role] = part
                elif isinstance(part, BaseLoop):
                    found[f'{role} {name}'] = part.dataloader
    return found


def stop_workers(runner: Runner) -> None:
    """End the processes of loaders whose workers are persistent.

    Left alone, PyTorch (2.11) waits five seconds for each of them when a
    program on a GPU ends: more than a minute for 16.

    Args:
        runner (Runner): Its loops hold the loaders. They can be used again.
    """
    for loader in loaders_by_role(runner).values():
        # PyTorch 2.11 calls it so.
        if (iterator := loader._iterator) is not None:
            iterator._shutdown_workers()
            loader._iterator = None


def forget_name(runner: Runner) -> None:
    """Let a next run have the name of this one, which may be half built.

    It may start in the same second, and would write by what MMEngine keeps
    under the name.
    """
    for part in ('logger', 'message_hub', 'visualizer'):
        if hasattr(runner, part):
            kept = type(getattr(runner, part))._instance_dict
            kept.pop(runner.experiment_name, None)
