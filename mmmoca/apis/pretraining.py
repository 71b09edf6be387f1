# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pretraining in one call."""

import hashlib
import os
import re
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmengine.hooks import CheckpointHook

from mmmoca.checkpoints import CheckpointError
from mmmoca.checkpoints.run_folder import newest_checkpoint
from mmmoca.datasets import ImageFolder
from mmmoca.datasets.file_extensions import EXTENSIONS
from mmmoca.datasets.hf_images import is_opened
from mmmoca.datasets.image_places import image_set_of
from mmmoca.engine.config import read_run
from mmmoca.engine.hooks.preemption_hook import StoppedRun
from mmmoca.engine.training import run
from mmmoca.files import atomic_write, write_text
from mmmoca.progress import in_notebook
from mmmoca.shipped import find_config

from .opening import items_of
from .random_numbers import callers_numbers

if TYPE_CHECKING:
    from datasets import Dataset


@callers_numbers()
def pretrain(
    data: 'str | os.PathLike | Iterable | Dataset',
    out: str | os.PathLike,
    epochs: int | None = None,
    batch_size: int | None = None,
    knn: str | os.PathLike | None = None,
    config: str | os.PathLike = 'moca_vit-s16_own-images',
    init: str | os.PathLike | None = None,
    resume: bool | str | os.PathLike = False,
    amp: bool = False,
    progress: bool | None = None,
    **overrides: Any,
) -> Path:
    """Pretrain on your own images, as ``tools/train.py`` does.

    The run uses a config of mmmoca with the settings below. It writes the
    config to ``out``, from where all tools can read it.

    Args:
        data (str | os.PathLike | Iterable | Dataset): The images, without
            labels: a folder of images at any depth, a folder of shards, a
            Hugging Face data set (on disk or opened), or a list or an array of
            image files and folders of images. A list or an opened data set
            is saved in ``out``.
        out (str | os.PathLike): Folder for checkpoints, log and config.
        epochs (int, optional): Passes over the images. Defaults to the
            config's number.
        batch_size (int, optional): Images in a batch. Defaults to the
            config's number.
        knn (str | os.PathLike, optional): Folder of labelled images in
            ``train/<class>/`` and ``val/<class>/``. Their k-NN accuracy is
            measured during the run and chooses the best checkpoint. Without
            them, the agreement of neighbours chooses it.
        config (str | os.PathLike): Name or path of a config for your own
            images.
        init (str | os.PathLike, optional): Checkpoint to start from, of any
            known layout.
        resume (bool | str | os.PathLike): Checkpoint to resume from. True
            stands for the latest one in ``out``, if there is one.
        amp (bool): Train in mixed precision. The configs of the paper do so
            in any case.
        progress (bool, optional): Show a progress bar instead of the log. The
            log is always written to its file. Defaults to True in a notebook
            and False elsewhere.
        **overrides: Further settings of the config, by their names or by
            dotted keys: ``**{'optim_wrapper.optimizer.lr': 1e-4}``.

    Returns:
        Path: The last checkpoint, for :func:`mmmoca.load` and all tools.

    Raises:
        CheckpointError: If ``out`` has the checkpoints of another run, or the
            run leaves no checkpoint that can be read.
        FileNotFoundError: If there is no such config, checkpoint or folder, or
            no image in it.
        OSError: If none of up to 20 images, evenly spaced in ``data``, can be
            read.
        TypeError: If an item of ``data`` is not a path.
        RuntimeError: If another run writes to ``out``; or, as a
            :class:`~mmmoca.engine.steps.DivergedError`, if training diverges.
        KeyboardInterrupt: After Ctrl-C or the stop button of a notebook, when
            the run has written a checkpoint. ``resume=True`` resumes from it.
        SystemExit: After SIGTERM or SIGUSR1, when the run has written a
            checkpoint. The exit status is 75.
        ValueError: If a setting is out of range or its key is not in the
            config, if the config is not for your own images, or if ``data``
            cannot be used.
    """
    file = find_config(config)
    out = os.path.expanduser(out)
    if os.path.isfile(out):
        raise ValueError(f'out={out} is a file: choose a folder')
    cfg = read_run(file)
    settings = dict(
        data_root=data,
        epochs=epochs,
        batch_size=batch_size,
        knn_root=knn and _existing('knn', knn),
    )
    settings = {key: v for key, v in settings.items() if v is not None}
    if cfg.get('settings') != 'own_images':
        raise ValueError(
            f'{file.name} does not pretrain on images of your own: choose a '
            'config that does, such as moca_vit-s16_own-images'
        )
    extensions = cfg.train_dataloader.dataset.get('extensions', EXTENSIONS)
    root, source = _stored(data, out, extensions)
    settings['data_root'] = root
    kind = image_set_of(root)
    source['train_dataloader.dataset.type'] = f'mmmoca.{kind.__name__}'
    cfg = read_run(
        file,
        source | settings | overrides,
        stages=['train', 'val'],
        work_dir=out,
        init=init,
        resume='auto' if resume is True else resume or None,
        amp=amp,
    )
    try:
        runner = run(cfg, in_notebook() if progress is None else progress)
    except StoppedRun as stop:
        if stop.number != signal.SIGINT:
            raise
        raise KeyboardInterrupt(
            f'{out} has interrupted.pth: resume=True continues from it'
        ) from None
    (hook,) = [h for h in runner.hooks if isinstance(h, CheckpointHook)]
    last, problems = newest_checkpoint(out, hook.filename_tmpl)
    if last is None:
        raise CheckpointError(
            f'the run has left no checkpoint in {out}: {"; ".join(problems)}'
        )
    return last


def _existing(argument: str, place: str | os.PathLike) -> str:
    """Return the absolute path of a place; refuse one that does not exist."""
    path = os.path.abspath(os.path.expanduser(place))
    if not (os.path.exists(path) or '{' in path):
        raise FileNotFoundError(f'{argument}: there is no {path}')
    return path


def _stored(
    data: Any, out: str, extensions: Sequence[str]
) -> tuple[str, dict]:
    """Return ``data_root`` of a run and its other settings for the images.

    Lists and opened data sets are saved in ``out``. The names of the files
    depend on the content, so that no call changes the images of another call.
    """
    if is_opened(data) and len(data):  # an empty one is refused below
        # Data sets have no public identifier of their content.
        root = os.path.abspath(f'{out}/images-{data._fingerprint}')
        if not os.path.exists(root):
            with atomic_write(root) as folder:
                # A function that transforms rows cannot be saved.
                data.with_format(None).save_to_disk(folder)
        return root, {}
    if isinstance(data, (str, os.PathLike)):
        return _existing('data', data), {}
    files = []
    for place in items_of(data):
        if not isinstance(place, (str, os.PathLike)):
            raise TypeError(
                'pretrain accepts folders, image files or a Hugging Face '
                f'data set, but got {type(place).__name__}: save it first'
            )
        place = os.path.abspath(os.path.expanduser(place))
        if image_set_of(place) is not ImageFolder:
            raise ValueError(
                f'{place} holds shards or a Hugging Face data set, '
                'which cannot be in a list: pass it on its own'
            )
        if os.path.isfile(place):
            files.append(place)
        else:
            images = ImageFolder(
                place, with_label=False, extensions=extensions
            )
            files += [image['img_path'] for image in images.data_list]
    text = '\n'.join(files)
    odd = re.search('[\r\ud800-\udfff]', text)
    if not files or odd or text.split('\n') != files:
        raise ValueError(
            'the list is empty, or a name in it has line breaks or is not '
            'valid Unicode: pass a folder instead'
        )
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = os.path.abspath(f'{out}/images-{name}.txt')
    write_text(path, text)
    return '/', {'train_dataloader.dataset.ann_file': path}
