# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What the demo adds to MMEngine's training, and its reading of images."""

import logging
import os
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path

import cv2
import torch
from mmengine.hooks import Hook
from mmengine.logging import MMLogger
from mmengine.runner import Runner
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

# On import the stack tells of parts that are not installed, which puzzles
# whoever has just installed it and needs none of them.
MMLogger.get_instance('import', log_level='ERROR')
with warnings.catch_warnings(), redirect_stdout(None):
    warnings.simplefilter('ignore')
    import mmpretrain.models  # noqa: F401

    from mmmoca.datasets import ImageFolder, LoadImage
    from mmmoca.datasets.functional import resize

__all__ = ['ProgressHook', 'QuietRunner', 'shrink_images']

MIN_IMAGES, MAX_IMAGES = 100, 5000
# The smallest crop, 0.3 of the area at a ratio of 3 / 4, has 48 pixels then.
SHORT_SIDE = 104


class QuietRunner(Runner):
    """Keeps what MMEngine logs in its file, off the terminal."""

    def build_logger(self, *args, **kwargs) -> logging.Logger:
        """Build the logger; let only errors through to the terminal."""
        logger = super().build_logger(*args, **kwargs)
        for handler in logger.handlers:
            if not isinstance(handler, logging.FileHandler):
                handler.setLevel(logging.ERROR)
        return logger


class ProgressHook(Hook):
    """A progress bar, or lines where the output is no terminal.

    Args:
        console (Console): Where to show it.
        interval (int): Steps from one line to the next, a multiple of the
            LoggerHook's.
    """

    priority = 'LOWEST'

    def __init__(self, console: Console, interval: int) -> None:
        self.interval = interval
        self.lines = not console.is_terminal
        self.bar = Progress(
            TextColumn('  step'),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn('{task.description}'),
            TimeRemainingColumn(),
            console=console,
            disable=self.lines,
        )

    def before_train(self, runner: Runner) -> None:
        """Start the clock."""
        self.start = time.time()
        self.task = self.bar.add_task('', total=runner.max_iters)
        self.bar.start()

    def after_train_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: dict | None = None,
        outputs: dict | None = None,
    ) -> None:
        """Advance."""
        done, total = runner.iter + 1, runner.max_iters
        self.bar.update(self.task, completed=done)
        if self.lines and done % self.interval == 0:
            left = (time.time() - self.start) / done * (total - done)
            loss = runner.message_hub.get_scalar('train/loss').current()
            print(
                f'  step {done:4d}/{total}  loss {loss:.2f}  '
                f'eta {left // 60:.0f}:{left % 60:02.0f}',
                flush=True,
            )

    def after_val_epoch(
        self, runner: Runner, metrics: dict[str, float] | None = None
    ) -> None:
        """Show the accuracy."""
        accuracy = next(iter(metrics.values()))
        self.bar.update(self.task, description=f'k-NN {accuracy:.1f} %')
        if self.lines:
            print(
                f'  step {runner.iter:4d}: k-NN {accuracy:.1f} %', flush=True
            )

    def after_train(self, runner: Runner) -> None:
        """Leave the bar as it is."""
        self.bar.stop()


def shrink_images(source: str, target: Path, seed: int) -> Path:
    """Copy images at the size that the training needs.

    Photos of many megapixels would take longer to decode than a step takes.

    Args:
        source (str): Folder of images, at any depth.
        target (Path): Folder for up to ``MAX_IMAGES`` of them, drawn by
            chance.
        seed (int): Seed of the draw.

    Returns:
        Path: ``target``.

    Raises:
        OSError: If there is no such folder or no readable image.
        ValueError: If fewer than ``MIN_IMAGES`` are readable.
    """
    found = ImageFolder(source, with_label=False, pipeline=[])
    order = torch.randperm(
        len(found), generator=torch.Generator().manual_seed(seed)
    )
    paths = [
        found.get_data_info(index)['img_path']
        for index in order[:MAX_IMAGES].tolist()
    ]
    loader = LoadImage(reduce_to=SHORT_SIDE)

    def shrink(item: tuple[int, str]) -> str | None:
        number, path = item
        try:
            image = loader.read(path)
        except OSError as error:
            return str(error)
        scale = min(1, SHORT_SIDE / min(image.shape[:2]))
        size = [max(1, round(side * scale)) for side in image.shape[:2]]
        copy = resize(image, size)
        cv2.imwrite(str(target / f'{number:04d}.png'), copy)
        return None

    # OpenCV and PyTorch let other threads run meanwhile.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = [e for e in pool.map(shrink, enumerate(paths)) if e]
    readable = len(paths) - len(errors)
    print(f'  {readable} images of {len(found)} in {source}')
    if errors:
        print(f'  {len(errors)} left out, the first: {errors[0]}')
    if readable < MIN_IMAGES:
        raise ValueError(
            f'{source} has {readable} readable images, too few to learn '
            f'from: give a folder with at least {MIN_IMAGES}'
        )
    return target
