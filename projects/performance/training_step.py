# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""One training step from the real config, and what it takes."""

import contextlib
import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmpretrain.models import VisionTransformer
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

import mmmoca  # noqa: F401  registers the model
from measure import peak_bytes, seconds_of, timer
from mmmoca.engine.hooks.teacher_ema_hook import update_teacher

CONFIGS = Path(__file__).parents[2] / 'configs' / '_base_'
DTYPES = dict(fp32='float32', bf16='bfloat16', fp16='float16')
MOMENTUM = 0.99


class TrainingStep:
    """The paper's step on synthetic views, as the Runner and hooks do it.

    Args:
        arch (str): Architecture of mmpretrain's VisionTransformer.
        batch_size (int): B, images of two views each.
        dtype (str): 'fp32', 'bf16' or 'fp16'.
        device (str): 'cpu' or 'cuda'.
        compiled (bool): Whether the forward pass is compiled.
        masking (dict, optional): Arguments of MaskingPlan. Defaults to None,
            the config's.
        decoder_depth (int): Blocks of the decoder. Defaults to 2.
        lean_mlp (bool): See :class:`MOCAViT`. Defaults to True.
    """

    def __init__(
        self,
        arch: str,
        batch_size: int,
        dtype: str,
        device: str,
        compiled: bool = False,
        masking: dict | None = None,
        decoder_depth: int = 2,
        lean_mlp: bool = True,
    ) -> None:
        torch.manual_seed(0)
        self.device = torch.device(device)
        self.batch_size = batch_size
        init_default_scope('mmpretrain')
        cfg = Config.fromfile(CONFIGS / 'models' / 'moca_vit-b16.py').model
        layers = VisionTransformer.arch_zoo[arch]['num_layers']
        cfg.backbone.update(
            arch=arch, tap_layer=layers * 2 // 3, lean_mlp=lean_mlp
        )
        cfg.neck.update(depth=decoder_depth, lean_mlp=lean_mlp)
        cfg.masking = masking or cfg.get('masking')
        self.model = MODELS.build(cfg)
        # Without the log of each parameter's initialisation and group.
        MMLogger.get_current_instance().setLevel('ERROR')
        self.model.init_weights()
        self.model.to(self.device).train()
        schedule = CONFIGS / 'schedules' / 'moca_adamw_200e.py'
        self.wrapper_cfg = Config.fromfile(schedule).optim_wrapper
        self.wrapper_cfg.dtype = DTYPES[dtype]
        self.dtype = getattr(torch, DTYPES[dtype])
        self.wrapper = build_optim_wrapper(self.model, self.wrapper_cfg)
        shape = batch_size, 3, *self.model.backbone.img_size
        views = torch.randint(
            256, (2, *shape), dtype=torch.uint8, device=self.device
        )
        self.batch = dict(inputs=list(views), data_samples=None)
        self.generator = torch.Generator().manual_seed(0)
        if compiled:
            self.model.forward = torch.compile(self.model.forward)
        self._watch_sections(compiled)
        on_cpu = self.device.type == 'cpu'
        self._floor = peak_bytes(self.device) if on_cpu else 0

    def run(self) -> None:
        """Do one whole step."""
        with self._section('step'):
            outputs = self.model.train_step(self.batch, self.wrapper)
            with self._section('EMA'):
                teacher, student = self.model.teacher, self.model.backbone
                update_teacher(teacher, student, MOMENTUM)
            with self._section('codebook commit'):
                update = outputs['codebook_update']
                self.move_codebook(update.candidates, update.msd)

    def move_codebook(self, candidates: Tensor, msd: Tensor) -> None:
        """Take the new words and mu, as CodebookHook does."""
        codebook = self.model.codebook
        codebook.update_msd(msd)
        words = codebook.word_sampler.pick(
            [candidates],
            [self.batch_size],
            codebook.num_new_words,
            self.generator,
        )
        codebook.enqueue(words)

    def forward(self) -> dict:
        """What the model's ``loss`` returns, in the step's precision."""
        with self.wrapper.optim_context(self.model):
            data = self.model.data_preprocessor(self.batch, True)
            return self.model.loss(data['inputs'])

    def time(self, repeats: int) -> float:
        """Median seconds of a step without stops at section borders."""
        return statistics.median(seconds_of(self.run) for _ in range(repeats))

    def sections(self, repeats: int) -> dict[str, float]:
        """Median seconds of each section, 'step' being the whole."""
        self._times.clear()
        self._timing = True
        for _ in range(repeats):
            self.run()
        self._timing = False
        return {k: statistics.median(v) for k, v in self._times.items()}

    def flops(self) -> int:
        """Operations of a step's matrix products, forward and backward."""
        # Kernels that fuse attention would hide its products.
        with (
            sdpa_kernel(SDPBackend.MATH),
            FlopCounterMode(display=False) as counter,
        ):
            loss, _ = self.model.parse_losses(self.forward())
            loss.backward()
        self.wrapper.zero_grad()
        return counter.get_total_flops()

    def peak_mebibytes(self) -> float:
        """Most memory so far: of the GPU, or above the built model's."""
        return (peak_bytes(self.device) - self._floor) / 2**20

    def own_mebibytes(self) -> float:
        """Most memory that one step takes besides what outlives it.

        Parameters, the optimiser's state and the codebook stay; activations,
        gradients and everything that is passing count.
        """
        if self.device.type == 'cuda':
            torch.cuda.reset_peak_memory_stats(self.device)
            before = torch.cuda.memory_allocated(self.device)
            self.run()
            return (peak_bytes(self.device) - before) / 2**20
        with profile(
            activities=[ProfilerActivity.CPU], profile_memory=True
        ) as recorded:
            self.run()
        changes = [
            (event.start_ns(), event.nbytes())
            for event in recorded.profiler.kineto_results.events()
            if event.name() == '[memory]'
        ]
        held = itertools.accumulate(size for _, size in sorted(changes))
        return max(held) / 2**20

    @contextlib.contextmanager
    def _section(self, name: str) -> Iterator[None]:
        """Time the block if sections are timed, nested ones in both."""
        start = timer() if self._timing else 0
        yield
        if self._timing:
            self._times[name].append(timer() - start)

    def _watch_sections(self, compiled: bool) -> None:
        self._timing = False
        self._times = defaultdict(list)
        model, wrapper = self.model, self.wrapper
        self._watch(model.data_preprocessor, 'forward', 'preprocessing')
        if compiled:
            self._watch(model, 'forward', 'forward, compiled')
        else:
            rounds = range(1, len(model.masking.counts) + 1)
            encoded = [f'student forward, round {i}' for i in rounds]
            decoded = [f'decoder, round {i}' for i in rounds]
            self._watch(model, 'encode_teacher', 'teacher forward')
            self._watch(model.backbone, 'encode', *encoded)
            self._watch(model.neck, 'forward', *decoded)
            self._watch(model.head, 'loss', 'objective')
            for name in ('img_generator', 'loc_generator'):
                generator = getattr(model.head, name)
                self._watch(generator, 'forward', f'objective, of it {name}')
        self._watch(wrapper, 'backward', 'backward')
        self._watch(wrapper, '_clip_grad', 'clip')
        self._watch(wrapper.optimizer, 'step', 'optimiser')

    def _watch(self, owner: object, method: str, *names: str) -> None:
        """Time every call of a method; several names go round in turns."""
        function = getattr(owner, method)
        calls = itertools.cycle(names)

        def timed(*args, **kwargs):
            with self._section(next(calls)):
                return function(*args, **kwargs)

        setattr(owner, method, timed)
