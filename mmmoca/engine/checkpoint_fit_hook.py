# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Collection

from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmmoca.registry import HOOKS

from .steps import unwrap_model

__all__ = ['CheckpointFitHook']


@HOOKS.register_module()
class CheckpointFitHook(Hook):
    """Refuses a checkpoint that does not fit the config's model.

    MMEngine loads whatever matches and only logs the rest, so that a foreign
    checkpoint leaves the model untrained without a word. Parameters of other
    shapes, or none that match, are an error here; to resume, all must match.
    A partial match is logged with its count.

    Raises:
        ValueError: Names examples of what does not fit.
    """

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Compare the checkpoint's parameters with the model's."""
        saved = {
            name.removeprefix('module.'): value
            for name, value in checkpoint.get('state_dict', checkpoint).items()
        }
        model = unwrap_model(runner.model).state_dict()
        shared = saved.keys() & model.keys()
        # Position embeddings are resized while they are loaded.
        misshapen = {
            name
            for name in shared
            if saved[name].shape != model[name].shape
            and not name.endswith('pos_embed')
        }
        missing, unexpected = model.keys() - shared, saved.keys() - shared
        report = (
            f'{len(shared) - len(misshapen)} of the {len(model)} parameters '
            'and buffers of the model are in the checkpoint'
        )
        for title, names in (
            ('of another shape', misshapen),
            ('missing', missing),
            ('unexpected', unexpected),
        ):
            if names:
                report += f'; {len(names)} {title} ({_examples(names)})'
        if (
            misshapen
            or not shared
            or (runner._resume and (missing or unexpected))
        ):
            raise ValueError(
                f'{report}. Use the config that the checkpoint was trained '
                'with, or the checkpoint of this config'
            )
        if missing or unexpected:
            runner.logger.warning(report)


def _examples(names: Collection[str]) -> str:
    listed = sorted(names)[:3]
    return ', '.join(listed + ['...'] * (len(names) > len(listed)))
