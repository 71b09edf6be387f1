# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Places that read a checkpoint, as functions of its path.

What `grep -nE 'torch.load|load_checkpoint|read_checkpoint|pickle|np.load'`
finds in mmmoca and tools, and what of MMEngine and its libraries takes the
path of a checkpoint. The readers alone are in ../test_intruders.py.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import torch
from mmengine.config import Config
from mmpretrain.registry import MODELS

import mmmoca
from mmmoca.checkpoints import check_pretrained_inits
from mmmoca.engine.hooks import WinningHeadHook

from ...helpers.checkpoint_files import mm_config
from ...helpers.cityscapes import small_config, write_tree
from ...helpers.images import CONFIGS, point_to, write_images
from ...helpers.runs import demo_runner
from ...helpers.tools import run_tool

Way = Callable[[Path], object]
COUNT = itertools.count()
DEMO = ('moca', 'linear', 'finetune', 'knn')


def ways_in(folder: Path) -> dict[str, Way]:
    """All ways, by name.

    Args:
        folder (Path): For images, configs and work dirs.

    Returns:
        dict[str, Callable]: What reads a checkpoint, given its path.
    """
    write_images(folder / 'images', train=4, val=1, classes=12)
    return dict([*_runs(folder), *_tools(folder), *_library(folder)])


def _runs(folder: Path) -> Iterator[tuple[str, Way]]:
    """Training, its two ways to resume, and tests.

    Detection, which needs compiled operators, is left out.
    """

    def run(tool: str, config: Path, *arguments: object) -> str:
        name = f'experiment_name=run{next(COUNT)}'
        options = ['--cfg-options', name, 'log_level=ERROR']
        return run_tool(f'tools/{tool}.py', config, *options, *arguments)

    def training(config: Path, key: str) -> Way:
        def load(path: Path) -> str:
            work_dir = folder / f'work{next(COUNT)}'
            arguments = ['--resume', path]
            if key == 'load_from':
                arguments = [f'load_from={path}']
            elif key == '--resume':
                work_dir.mkdir()
                for name in ('iter_9.pth', 'epoch_9.pth'):
                    (work_dir / name).symlink_to(path)
                arguments = ['--resume']
            arguments += ['--work-dir', work_dir]
            return run('train', config, *arguments)

        return load

    def testing(config: Path) -> Way:
        work_dir = folder / f'work{next(COUNT)}'
        return lambda path: run('test', config, path, '--work-dir', work_dir)

    for family, config, trains in _configs(folder):
        for key in ('load_from', '--resume FILE', '--resume') * trains:
            yield f'train.py, {family}, {key}', training(config, key)
        yield f'test.py, {family}', testing(config)


def _configs(folder: Path) -> Iterator[tuple[str, Path, bool]]:
    """Family, file, and whether it trains."""
    images, target = folder / 'images', folder / 'configs'
    target.mkdir()
    for family in DEMO:
        file = CONFIGS / 'demo' / f'{family}_vit-tiny_textures.py'
        cfg = Config.fromfile(file)
        point_to(cfg, images)
        for part in ('train', 'val', 'test'):
            if loader := cfg.get(f'{part}_dataloader'):
                loader.batch_size = 8
        if family in ('linear', 'finetune'):
            cfg.default_hooks.checkpoint_fit.needs_checkpoint = False
        cfg.dump(target / f'{family}.py')
        yield family, target / f'{family}.py', 'train_cfg' in cfg
    write_tree(folder / 'streets', train=2, val=1)
    cfg = small_config(
        'segmenter_moca-vit-b16_linear_cityscapes-768x768.py',
        folder / 'streets',
        folder / 'seg',
    )
    cfg.dump(target / 'segmentation.py')
    yield 'segmentation', target / 'segmentation.py', True


def _tools(folder: Path) -> Iterator[tuple[str, Way]]:
    """The other tools that take a checkpoint, or a file of a run."""
    pth, tensors = folder / 'converted.pth', folder / 'converted.safetensors'
    configs, out = folder / 'configs', ('--out', folder / 'a.png')
    image = next((folder / 'images').rglob('*.jpg'))

    yield (
        'overview.py',
        lambda path: run_tool(
            'tools/visualization/overview.py', configs / 'moca.py', path, *out
        ),
    )
    for name, tool, *arguments in (
        (
            *('compare.py', 'analysis_tools/compare', '--data-root'),
            *(folder / 'images', '--config', configs / 'knn.py'),
            *('--num-workers', 0, '--shots', 1, '--percent', 50),
            *('--epochs', 1, '--out-dir', folder / 'compared'),
        ),
        ('plot_curves.py', 'analysis_tools/plot_curves'),
        ('embed.py', 'embed', image.parent, folder / 'a.npy', '--workers', 0),
        ('export.py', 'export', folder / 'exported', '--to', 'onnx'),
        ('convert.py', 'model_converters/convert', pth),
        ('... --to moca', 'model_converters/convert', pth, '--to', 'moca'),
        ('... --to timm', 'model_converters/convert', tensors, '--to', 'timm'),
    ):
        yield (
            name,
            lambda path, tool=tool, arguments=arguments: run_tool(
                f'tools/{tool}.py', path, *arguments
            ),
        )


def _library(folder: Path) -> Iterator[tuple[str, Way]]:
    """Init configs, schemes, runners and the Python API."""
    init = dict(type='Pretrained', prefix='backbone.')

    def model_of(path: object) -> torch.nn.Module:
        return MODELS.build(
            mm_config(init_cfg=dict(init, checkpoint=str(path)))
        )

    yield 'Pretrained, checked', lambda p: check_pretrained_inits(model_of(p))
    for scheme in ('mmmoca-file', 'mmmoca-teacher'):
        yield (
            f'Pretrained, {scheme}://',
            lambda p, scheme=scheme: model_of(
                f'{scheme}://{p}'
            ).init_weights(),
        )

    for resume in (False, True):
        yield (
            f'Runner.from_cfg, {"resume" if resume else "load_from"}',
            lambda path, resume=resume: demo_runner(
                folder / 'images',
                f'run{next(COUNT)}',
                load_from=str(path),
                resume=resume,
            ).train(),
        )
    yield 'mmmoca.load', mmmoca.load
    yield (
        'mmmoca.pretrain, init',
        lambda path: mmmoca.pretrain(
            *(folder / 'images', folder / f'work{next(COUNT)}'),
            **dict(epochs=1, batch_size=4, init=path, log_level='ERROR'),
        ),
    )
    yield 'WinningHeadHook', _winner


def _winner(path: Path) -> None:
    """The best linear classifier of the run that is resumed."""
    hook = WinningHeadHook(path.stem)
    hook.before_train(mock.Mock(work_dir=str(path.parent), iter=1))
