# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""One training step of the recipe, and the number of its operations."""

import mmmoca.import_mmpretrain  # noqa: F401  # isort: skip

from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmpretrain.models import VisionTransformer
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mmmoca.engine.compile import compile_forward
from mmmoca.engine.hooks.teacher_ema_hook import update_teacher

RECIPE = Path(__file__).parents[2] / 'configs' / 'moca_vit-b16_200e.py'
DTYPES = dict(fp32='float32', bf16='bfloat16', fp16='float16')
MOMENTUM = 0.99


class TrainingStep:
    """A recipe's step on synthetic views, as the Runner and hooks do it.

    Optimiser, compiler and cuDNN are set up as in a run of the config.

    Args:
        arch (str | None): Architecture of mmpretrain's VisionTransformer, or
            None for that of the config.
        batch_size (int): B, number of images with two views each, at least
            K_new (``num_new_words``).
        dtype (str): 'fp32', 'bf16' or 'fp16'.
        device (str): 'cpu' or 'cuda'.
        compiled (bool | str | dict | None): Value of ``compile`` in a config.
        options (dict, optional): Settings that override those of the recipe,
            with dotted keys.
        config (Path | str): The recipe. Defaults to the paper's.
    """

    def __init__(
        self,
        arch: str | None,
        batch_size: int,
        dtype: str,
        device: str,
        compiled: bool | str | dict | None = None,
        options: dict | None = None,
        config: Path | str = RECIPE,
    ) -> None:
        torch.manual_seed(0)
        init_default_scope('mmpretrain')
        cfg = Config.fromfile(config)
        if arch is not None:
            layers = VisionTransformer.arch_zoo[arch]['num_layers']
            cfg.model.backbone.update(arch=arch, tap_layer=layers * 2 // 3)
        cfg.merge_from_dict({'optim_wrapper.dtype': DTYPES[dtype]})
        cfg.merge_from_dict(options or {})
        # As Runner.setup_env does.
        if cfg.env_cfg.get('cudnn_benchmark'):
            torch.backends.cudnn.benchmark = True
        self.model = MODELS.build(cfg.model)
        # Suppress the log of each parameter's initialisation and group.
        MMLogger.get_current_instance().setLevel('ERROR')
        self.model.init_weights()
        self.model.to(device).train()
        self.wrapper = build_optim_wrapper(self.model, cfg.optim_wrapper)
        self.batch_size = batch_size
        shape = 2, batch_size, 3, *self.model.backbone.img_size
        views = torch.randint(256, shape, dtype=torch.uint8, device=device)
        self.batch = dict(inputs=list(views), data_samples=None)
        self.generator = torch.Generator().manual_seed(0)
        compile_forward(self.model, compiled)

    def __call__(self) -> None:
        """Do one whole step."""
        outputs = self.model.train_step(self.batch, self.wrapper)
        self.move_teacher()
        # Update the words and mu, the running mean similarity difference, as
        # CodebookHook does.
        update, codebook = outputs['codebook_update'], self.model.codebook
        words = codebook.word_sampler.pick(
            [update.candidates],
            [self.batch_size],
            codebook.num_new_words,
            self.generator,
        )
        codebook.update(words, update.msd)

    def move_teacher(self) -> None:
        """Update the teacher as TeacherEMAHook does."""
        update_teacher(self.model.teacher, self.model.backbone, MOMENTUM)

    def forward(self) -> dict:
        """Compute the model's losses in the step's precision."""
        with self.wrapper.optim_context(self.model):
            data = self.model.data_preprocessor(self.batch, True)
            return self.model.loss(data['inputs'])


def count_flops(
    arch: str | None, batch_size: int, config: Path | str = RECIPE
) -> int:
    """Count a step's operations in matrix products, forward and backward.

    The operations are counted in real passes of 4 and of 8 images; each
    further image adds the same number. Fake tensors cannot be used: after
    their backward pass Python crashes (PyTorch 2.11).

    Args:
        arch (str | None): See :class:`TrainingStep`.
        batch_size (int): B, number of images with two views each.
        config (Path | str): See :class:`TrainingStep`.
    """

    def count(images: int) -> int:
        step = TrainingStep(arch, images, 'fp32', 'cpu', config=config)
        # Kernels that fuse attention would hide its products.
        with (
            sdpa_kernel(SDPBackend.MATH),
            FlopCounterMode(display=False) as counter,
        ):
            loss, _ = step.model.parse_losses(step.forward())
            loss.backward()
        return counter.get_total_flops()

    four, eight = count(4), count(8)
    return four + (batch_size - 4) * (eight - four) // 4
