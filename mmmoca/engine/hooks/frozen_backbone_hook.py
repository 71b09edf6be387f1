# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmmoca.engine.steps import unwrap_model
from mmmoca.registry import HOOKS

__all__ = ['FrozenBackboneHook']


@HOOKS.register_module()
class FrozenBackboneHook(Hook):
    """Keeps a frozen backbone frozen, for linear probing.

    ``frozen_stages`` of mmpretrain's backbones stops their gradients, but
    the training loop puts the model into train mode as a whole, which wakes
    the dropout and drop path of frozen layers, and the running statistics of
    their norms. Here the backbone computes in eval mode in every step.

    Raises:
        ValueError: Before training, if the backbone has parameters that
            would be trained.
    """

    def before_train(self, runner: Runner) -> None:
        """Check that nothing of the backbone is trained."""
        backbone = unwrap_model(runner.model).backbone
        trained = [
            name
            for name, parameter in backbone.named_parameters()
            if parameter.requires_grad
        ]
        if trained:
            layers = getattr(backbone, 'num_layers', 'its number of layers')
            raise ValueError(
                f'FrozenBackboneHook is to keep the backbone as it is, but '
                f'{len(trained)} of its parameters would be trained '
                f'({", ".join(trained[:3])}, ...): write model.backbone.'
                f'frozen_stages={layers}, or leave the hook out to fine-tune'
            )

    def before_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: dict | None = None
    ) -> None:
        """Undo what the loop's ``model.train()`` did to the backbone."""
        backbone = unwrap_model(runner.model).backbone
        if backbone.training:
            backbone.eval()
