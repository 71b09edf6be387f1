# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What the parts of gpu.py are given: a device, sizes and time."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / 'configs'
DEMO = CONFIGS / 'demo' / 'moca_vit-tiny_textures.py'


class Network(NamedTuple):
    """A network and its batch.

    Attributes:
        title (str): Its name in tables.
        arch (str | None): See :class:`~training_step.TrainingStep`.
        config (Path): The recipe.
        batch (int): Images a step.
    """

    title: str
    arch: str | None
    config: Path
    batch: int


RECIPE = CONFIGS / 'moca_vit-b16_200e.py'


class Sizes(NamedTuple):
    """How much is measured; the defaults are those of a real GPU."""

    base: Network = Network('ViT-B/16', 'b', RECIPE, 256)
    large: Network = Network('ViT-L/16', 'l', RECIPE, 128)
    compiled: bool | dict = True
    compiled_dtypes: tuple[str, ...] = ('bf16', 'fp16', 'fp32')
    # A cold compiler on 16 cores takes a minute or two: a guess.
    compile_seconds: int = 120
    side: int = 8192  # of large products
    repeats: int = 5
    warm_up: int = 3
    # The search of the largest batch.
    most_images: int = 4096
    resolution: int = 16
    words: int = 4096
    tests: tuple[str, ...] = ()  # by default those marked `gpu`
    # Runs: images that are drawn (for training, for queries), and steps.
    textures: tuple[int, int] = (5000, 1000)
    demo_steps: int = 1400
    large_textures: tuple[int, int, int] = (3840, 960, 224)
    large_config: Path = CONFIGS / 'moca_vit-s16_own-images.py'
    large_epochs: int = 10
    large_batch: int = 128
    few_steps: int = 30
    photos: int = 1024
    batches: int = 40
    workers: int = min(16, os.cpu_count() or 1)


DEMO_NETWORK = Network('demo', None, DEMO, 4)
TINY = Sizes(
    base=DEMO_NETWORK,
    large=DEMO_NETWORK._replace(title='demo again', batch=2),
    compiled=dict(backend='eager'),
    compiled_dtypes=('bf16',),
    compile_seconds=0,
    side=64,
    repeats=1,
    warm_up=1,
    most_images=6,
    resolution=2,
    words=64,
    tests=('--noconftest', 'tests/test_import_graph.py'),
    textures=(24, 12),
    demo_steps=2,
    large_textures=(24, 12, 48),
    large_config=DEMO.with_name('moca_vit-tiny_own-images.py'),
    large_epochs=1,
    large_batch=8,
    few_steps=8,
    photos=8,
    batches=2,
    workers=0,
)


@dataclass(frozen=True)
class Setting:
    """What a part measures, on what, and until when.

    Attributes:
        device (str): 'cuda', or 'cpu' for a rehearsal.
        tiny (bool): Whether sizes are those of a rehearsal.
        out (Path): Where to write.
        until (float): When it must be done, by :func:`time.time`.
    """

    device: str
    tiny: bool
    out: Path
    until: float

    @property
    def sizes(self) -> Sizes:
        """How much is measured."""
        return TINY if self.tiny else Sizes()

    @property
    def on_gpu(self) -> bool:
        """Whether this is no rehearsal."""
        return self.device == 'cuda'

    def left(self) -> float:
        """Seconds until it must be done."""
        return self.until - time.time()

    def step(
        self,
        network: Network,
        dtype: str,
        compiled: bool = False,
        kind: type | None = None,
        **options,
    ) -> Callable:
        """What builds a step of a network; see ``TrainingStep``."""
        from training_step import TrainingStep

        return partial(
            kind or TrainingStep,
            *(network.arch, network.batch, dtype, self.device),
            compiled=self.sizes.compiled if compiled else False,
            config=network.config,
            **options,
        )
