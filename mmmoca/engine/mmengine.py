# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""An adapter to the private names of MMEngine (0.10).

Private attributes of runners are used only here. Classes that override private
methods of MMEngine do so in their own modules.
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
    """Let modules recompute activations even if their input has no gradient.

    MMEngine's ``activation_checkpointing`` uses PyTorch's older (reentrant)
    checkpointing. With it, a layer after frozen layers gets no gradients.

    Args:
        model (nn.Module): The model without wrappers, to which MMEngine has
            already applied ``activation_checkpointing``.
        names (Sequence[str]): Names of the modules.
    """
    for name in names:
        module = model.get_submodule(name)
        forward = module.forward.__wrapped__  # MMEngine wrapped it
        module.forward = partial(checkpoint, forward, use_reentrant=False)


def is_training(runner: Runner) -> bool:
    """Return whether a runner trains. Call it in or after ``before_run``."""
    return isinstance(runner._train_loop, BaseLoop)


class _Uncopied:
    """Keeps an object in a config from being copied with the config."""

    def __init__(self, held: object) -> None:
        self.held = held

    def __deepcopy__(self, memo: dict) -> object:
        return self.held


def hand_over(runner: Runner, dataset: BaseDataset) -> None:
    """Hand an already built training set to a run before it begins."""
    # With a copy, a list of millions of images would be in memory twice.
    runner._train_dataloader['dataset'] = _Uncopied(dataset)


def resumes(runner: Runner) -> bool:
    """Return whether a run resumes from a checkpoint."""
    return runner._resume


def stop_resuming(runner: Runner) -> None:
    """Let a run begin anew instead of resuming. Call it in ``before_run``.

    MMEngine would resume from the file that ``last_checkpoint`` in the work
    dir names. If the work dir is a copy, that file is in the original folder.
    """
    runner._resume = False


def load_address(runner: Runner) -> str:
    """Return the address of the checkpoint that a run loads, or ''."""
    return runner._load_from or ''


def set_load_address(runner: Runner, address: str | None) -> None:
    """Set the checkpoint to load, or None. Call it in ``before_run``."""
    runner._load_from = address


def has_loaded(runner: Runner) -> bool:
    """Return whether a run has loaded its checkpoint."""
    return runner._has_loaded


def micro_batches(wrapper: OptimWrapper) -> int:
    """Return the number of iterations in an optimiser step."""
    return wrapper._accumulative_counts


def built_loops(runner: Runner) -> list[BaseLoop]:
    """Return the loops that a run has built, and the loops within them.

    Loops that are not built yet are still configs, and are left out.
    """
    loops = [x for x in vars(runner).values() if isinstance(x, BaseLoop)]
    parts = (x for loop in loops for x in vars(loop).values())
    return loops + [x for x in parts if isinstance(x, BaseLoop)]


def loaders_by_role(runner: Runner) -> dict[str, DataLoader]:
    """Return the loaders of built loops by role, such as 'val bank'."""
    found = {}
    for role in ('train', 'val', 'test'):
        loop = vars(runner).get(f'_{role}_loop')  # None after an error
        if isinstance(loop, BaseLoop):
            for name, part in vars(loop).items():
                if isinstance(part, DataLoader):
                    known = name != 'dataloader'
                    found[f'{role} bank' if known else role] = part
                elif isinstance(part, BaseLoop):
                    found[f'{role} {name}'] = part.dataloader
    return found


def stop_workers(runner: Runner) -> None:
    """End the persistent workers of a run's loaders.

    Otherwise PyTorch (2.11) waits five seconds for each worker when a program
    on a GPU ends: more than a minute for 16 workers.

    Args:
        runner (Runner): The runner. Its loaders can be used again.
    """
    for loader in loaders_by_role(runner).values():
        # The private names are those of PyTorch 2.11.
        if (iterator := loader._iterator) is not None:
            iterator._shutdown_workers()
            loader._iterator = None


def forget_name(runner: Runner) -> None:
    """Remove what MMEngine keeps under the name of a run.

    A later run that starts in the same second gets the same name. It would
    then write with the logger and other objects of this run.

    Args:
        runner (Runner): The runner, which may be only partly built.
    """
    for part in ('logger', 'message_hub', 'visualizer'):
        if hasattr(runner, part):
            kept = type(getattr(runner, part))._instance_dict
            kept.pop(runner.experiment_name, None)
