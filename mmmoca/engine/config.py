# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Reads, checks and completes the config of a run."""

import os
from collections.abc import Sequence
from pathlib import Path

from mmengine.config import Config

from mmmoca.config_parts import short_name
from mmmoca.requirements import check_compiled_ops

from .completion import complete, leave_out_hooks
from .config_check import check_config
from .config_files import read_config
from .file_check import check_paths
from .overrides import override
from .processes import check_launcher
from .views import views_loader

_AGREEMENT = 'NeighbourAgreementValLoop'


def read_run(
    file: str | os.PathLike,
    options: dict | Sequence[str] = (),
    *,
    stages: Sequence[str] = (),
    work_dir: str | None = None,
    launcher: str = 'none',
    checkpoint: str | os.PathLike | None = None,
    init: str | os.PathLike | None = None,
    resume: str | os.PathLike | None = None,
    amp: bool = False,
    auto_scale_lr: bool = False,
) -> Config:
    """Read a run's config, write settings into it, and check and complete it.

    Most mistakes in the config, and missing files, are reported before
    PyTorch is loaded.

    Args:
        file (str | os.PathLike): The config file. The modules of its
            ``custom_imports`` are also looked for in the folder of the file
            and in the folders above it.
        options (dict | Sequence[str]): Settings that :mod:`.templates` defines
            for this config, such as ``epochs``, and full keys, such as
            ``train_cfg.max_epochs``. Full keys take precedence over settings.
            Options from a command line are texts, ``KEY=VALUE``.
        stages (Sequence[str]): The stages to run, from 'train', 'val' and
            'test'. The folders of images that they read must exist. A
            training run without 'val', or with ``val_cfg=None``, has no
            validation. Defaults to none, so that no folder of images is looked
            for.
        work_dir (str, optional): Where the run writes. Defaults to the
            config's ``work_dir``, or else ``work_dirs/<name of the file>``.
        launcher (str): What started the processes: 'none', 'pytorch',
            'slurm' or 'mpi'. Defaults to 'none'.
        checkpoint (str | os.PathLike, optional): The checkpoint that a test
            loads.
        init (str | os.PathLike, optional): The checkpoint whose weights
            training starts from, in any known layout.
        resume (str | os.PathLike, optional): The checkpoint of the run to
            resume. 'auto' resumes from the newest checkpoint in the work dir,
            if there is one.
        amp (bool): Whether to train in mixed precision if the config does
            not. See
            :class:`~mmmoca.engine.optimizers.MixedPrecisionOptimWrapper`.
        auto_scale_lr (bool): Whether to scale the learning rate. See
            :func:`~mmmoca.engine.recipe.scale_lr`.

    Returns:
        Config: The config for :func:`.training.run` and
        :func:`.training.build_runner`.

    Raises:
        FileNotFoundError: If the checkpoint or a folder of images is missing.
        MissingOpsError: If the config is for detection, and mmdet or the
            compiled operators are not installed.
        ImportError: If a module of ``custom_imports`` cannot be imported.
        SyntaxError: If a config is not valid Python.
        ValueError: If an option names a key that nothing reads, if the config
            does not define the first of ``stages``, or if two checkpoints to
            start from or two precisions are given. See also
            :func:`check_config`, :func:`check_frozen` and
            :func:`check_segmentation`.
        RuntimeError: See :func:`check_launcher`.
    """
    check_launcher(launcher)
    cfg = read_config(file)
    cfg.launcher = launcher
    default = os.path.join('work_dirs', Path(file).stem)
    folder = work_dir or cfg.get('work_dir') or default
    cfg.work_dir = os.path.expanduser(folder)
    _override(cfg, options, stages)
    check_config(cfg)
    leave_out_hooks(cfg)
    if (cfg.get('val_cfg') or {}).get('data_root') == '':
        _validate_without_labels(cfg)
    if stages and cfg.get(f'{stages[0]}_cfg') is None:
        raise ValueError(f'{file} has no {stages[0]}_cfg')
    if 'train' in stages:
        unwanted = 'val_cfg' in cfg and cfg.val_cfg is None
        if 'val' not in stages or unwanted:
            _leave_out_validation(cfg)
        _choose_start(cfg, init, resume)
        _choose_arithmetic(cfg, amp, auto_scale_lr)
    if checkpoint is not None:
        cfg.load_from, cfg.resume = os.fspath(checkpoint), False
    if cfg.get('default_scope') == 'mmdet':
        check_compiled_ops()
    check_paths(cfg, *stages)
    complete(cfg)
    # These modules import PyTorch.
    from .freezing_check import check_frozen

    check_frozen(cfg.get('model') or {})
    if cfg.get('default_scope') == 'mmseg':
        from .segmentation_check import check_segmentation

        check_segmentation(cfg, stages)
    return cfg


def load_config(
    file: str | os.PathLike,
    work_dir: str | None = None,
    cfg_options: dict | Sequence[str] = (),
    launcher: str = 'none',
) -> Config:
    """Read a config, as :func:`read_run` does. Kept for old scripts."""
    return read_run(file, cfg_options, work_dir=work_dir, launcher=launcher)


def _override(
    cfg: Config, options: dict | Sequence[str], stages: Sequence[str]
) -> None:
    """Write the options into a config.

    For a test, a validation without labels is first removed from the config,
    because settings for k-NN do not fit such a validation.
    """
    kind = short_name(cfg.get('val_cfg') or {'type': ''})
    other = [*stages] == ['test'] and kind == _AGREEMENT
    if other:
        cfg.val_cfg = None
    override(cfg, options)
    if other:
        _leave_out_validation(cfg)


def _validate_without_labels(cfg: Config) -> None:
    """Replace k-NN with the agreement of neighbours, or with no validation."""
    loop = cfg.val_cfg
    if loop.get('agreement') is None:
        _leave_out_validation(cfg)
        return
    options = dict(loop.agreement)
    cfg.val_dataloader = views_loader(
        cfg.train_dataloader, options.pop('num_images', None)
    )
    cfg.val_evaluator = dict(type='mmmoca.NeighbourAgreement')
    shared = 'which', 'fp16', 'baselines'
    options |= {key: loop[key] for key in shared if key in loop}
    cfg.val_cfg = dict(type=f'mmmoca.{_AGREEMENT}', **options)
    hooks = cfg.get('default_hooks') or {}
    checkpoints = hooks.get('checkpoint') or {}
    if 'knn/' in str(checkpoints.get('save_best')):
        # MMEngine's own hook does not know that greater is better.
        checkpoints.update(save_best='agreement/neighbours', rule='greater')


def _leave_out_validation(cfg: Config) -> None:
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None


def _choose_start(
    cfg: Config,
    init: str | os.PathLike | None,
    resume: str | os.PathLike | None,
) -> None:
    """Set the checkpoint that a run starts from or resumes."""
    start = cfg.get('load_from')
    if init is not None:
        if start is not None or resume not in (None, 'auto'):
            raise ValueError(
                f'a run starts from one checkpoint: leave out {init} or '
                f'{start or resume}'
            )
        start = cfg.load_from = f'mmmoca-start://{os.fspath(init)}'
        cfg.resume = False
    if resume is None:
        return
    from mmmoca.checkpoints.run_folder import left_checkpoints

    # A job that was requeued before its first checkpoint starts again from
    # load_from.
    if resume != 'auto' or start is None or left_checkpoints(cfg.work_dir):
        cfg.resume = True
        cfg.load_from = None if resume == 'auto' else os.fspath(resume)


def _choose_arithmetic(cfg: Config, amp: bool, auto_scale_lr: bool) -> None:
    """Set the precision, and whether to scale the learning rate."""
    if auto_scale_lr:
        cfg.merge_from_dict({'auto_scale_lr.enable': True})
    if amp and cfg.optim_wrapper.get('dtype') == 'float32':
        raise ValueError(
            'mixed precision (amp) and optim_wrapper.dtype=float32 '
            'contradict each other: leave out one of the two'
        )
    # All other optimiser wrappers use mixed precision anyway.
    if amp and cfg.optim_wrapper.get('type', 'OptimWrapper') == 'OptimWrapper':
        cfg.optim_wrapper.type = 'mmmoca.MixedPrecisionOptimWrapper'
