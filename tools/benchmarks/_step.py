# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""One training step from the real config, and clocks for its sections."""

import contextlib
import itertools
import resource
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmpretrain.models import VisionTransformer
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

import mmmoca  # noqa: F401  registers the model
from mmmoca.engine.hooks.codebook_hook import pick_new_words
from mmmoca.engine.hooks.teacher_ema_hook import update_teacher

__all__ = ['Clock', 'TrainingStep', 'alternate']

CONFIGS = Path(__file__).parents[2] / 'configs' / '_base_'
DTYPES = dict(fp32='float32', bf16='bfloat16', fp16='float16')


class Clock:
    """Seconds of named sections, nested ones counted in both.

    Args:
        device (torch.device): Waited for at the borders of each section.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.on = False
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def wait(self) -> None:
        """Wait until the device has nothing left to do."""
        if self.device.type == 'cuda':
            torch.cuda.synchronize(self.device)

    @contextlib.contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Time the block, if the clock is on."""
        if not self.on:
            yield
            return
        self.wait()
        start = time.perf_counter()
        yield
        self.wait()
        self.seconds[name].append(time.perf_counter() - start)

    def watch(self, owner: object, method: str, *names: str) -> None:
        """Time every call of a method; several names go round in turns."""
        function = getattr(owner, method)
        calls = 0

        def timed(*args, **kwargs):
            nonlocal calls
            calls += self.on
            with self.section(names[(calls - 1) % len(names)]):
                return function(*args, **kwargs)

        setattr(owner, method, timed)


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
    ) -> None:
        torch.manual_seed(0)
        self.device = torch.device(device)
        self.batch_size = batch_size
        init_default_scope('mmpretrain')
        cfg = Config.fromfile(CONFIGS / 'models' / 'moca_vit-b16.py').model
        zoo = VisionTransformer.arch_zoo
        cfg.backbone.arch = arch
        cfg.backbone.tap_layer = zoo[arch]['num_layers'] * 2 // 3
        cfg.neck.depth = decoder_depth
        if masking is not None:
            cfg.masking = masking
        self.model = MODELS.build(cfg)
        # Without the log of each parameter's initialisation and group.
        MMLogger.get_current_instance().setLevel('ERROR')
        self.model.init_weights()
        self.model.to(self.device).train()
        schedule = CONFIGS / 'schedules' / 'moca_adamw_200e.py'
        self.wrapper_cfg = Config.fromfile(schedule).optim_wrapper
        self.dtype = getattr(torch, DTYPES[dtype])
        self.wrapper_cfg.dtype = DTYPES[dtype]
        self.wrapper = build_optim_wrapper(self.model, self.wrapper_cfg)
        side = self.model.backbone.img_size[0]
        self.batch = dict(
            inputs=[
                torch.randint(
                    256,
                    (batch_size, 3, side, side),
                    dtype=torch.uint8,
                    device=self.device,
                )
                for _ in range(2)
            ],
            data_samples=None,
        )
        self.generator = torch.Generator().manual_seed(0)
        self.clock = Clock(self.device)
        if compiled:
            self.model.forward = torch.compile(self.model.forward)
        self._watch(compiled)

    def _watch(self, compiled: bool) -> None:
        model, wrapper, watch = self.model, self.wrapper, self.clock.watch
        watch(model.data_preprocessor, 'forward', 'preprocessing')
        if compiled:
            watch(model, 'forward', 'forward, compiled')
        else:
            rounds = range(1, len(model.masking.counts) + 1)
            watch(model, 'encode_teacher', 'teacher forward')
            watch(model.head, 'generate_prototypes', 'prototypes')
            watch(
                model.backbone,
                'encode',
                *(f'student forward, round {i}' for i in rounds),
            )
            watch(
                model.neck, 'forward', *(f'decoder, round {i}' for i in rounds)
            )
            watch(model.head, 'loss', 'objective')
        watch(wrapper, 'backward', 'backward')
        watch(wrapper, '_clip_grad', 'clip')
        watch(wrapper.optimizer, 'step', 'optimiser')

    def run(self) -> None:
        """Do one whole step."""
        model, section = self.model, self.clock.section
        with section('step'):
            outputs = model.train_step(self.batch, self.wrapper)
            update = outputs['codebook_update']
            with section('EMA'):
                update_teacher(model.teacher, model.backbone, 0.99)
            with section('codebook commit'):
                codebook = model.codebook
                codebook.update_msd(update['msd'])
                codebook.enqueue(
                    pick_new_words(
                        [update['candidates']],
                        [update['batch_size']],
                        codebook.num_new_words,
                        self.generator,
                    )
                )

    def time(self, repeats: int) -> float:
        """Median seconds of a step without stops at section borders."""
        seconds = []
        for _ in range(repeats):
            self.clock.wait()
            start = time.perf_counter()
            self.run()
            self.clock.wait()
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)

    def sections(self, repeats: int) -> dict[str, float]:
        """Median seconds of each section, 'step' being the whole."""
        self.clock.seconds.clear()
        self.clock.on = True
        for _ in range(repeats):
            self.run()
        self.clock.on = False
        return {
            name: statistics.median(values)
            for name, values in self.clock.seconds.items()
        }

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

    def forward(self) -> dict:
        """What the model's ``loss`` returns, in the step's precision."""
        with self.wrapper.optim_context(self.model):
            data = self.model.data_preprocessor(self.batch, True)
            return self.model.loss(data['inputs'])

    def own_mebibytes(self) -> float:
        """Most memory that one step takes besides what outlives it.

        Parameters, the optimiser's state and the codebook stay; activations,
        gradients and everything that is passing count.
        """
        if self.device.type == 'cuda':
            torch.cuda.reset_peak_memory_stats(self.device)
            floor = torch.cuda.memory_allocated(self.device)
            self.run()
            return self.peak_mebibytes() - floor / 2**20
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

    def peak_mebibytes(self) -> float:
        """Most memory so far: of the process, or allocated on the GPU."""
        if self.device.type == 'cuda':
            return torch.cuda.max_memory_allocated(self.device) / 2**20
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def alternate(
    forms: dict[str, Callable[[], object]], clock: Clock, repeats: int
) -> dict[str, float]:
    """Median seconds of several forms of a thing, measured in turns.

    Args:
        forms (dict[str, Callable]): What to call, by name.
        clock (Clock): Waits for the device.
        repeats (int): Turns; one more goes before them to warm up.

    Returns:
        dict[str, float]: Seconds by name.
    """
    seconds = {name: [] for name in forms}
    for _ in range(repeats + 1):
        for name, function in forms.items():
            clock.wait()
            start = time.perf_counter()
            function()
            clock.wait()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(s[1:]) for name, s in seconds.items()}
