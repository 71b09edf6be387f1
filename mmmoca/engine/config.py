# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Reads, checks and completes the config of a run."""

import copy
import difflib
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from mmengine.config import Config, ConfigDict
from mmengine.config.utils import MODULE2PACKAGE
from mmengine.utils import import_modules_from_strings

from mmmoca.config_parts import member_configs, stage_loaders
from mmmoca.messages import listed
from mmmoca.requirements import check_compiled_ops, import_quietly

from .config_check import RUN_KEYS, check_config
from .config_files import ConfigFile, config_files
from .copies import follow_datasets
from .file_check import check_paths
from .options import entries, keys_named, place, read_option, write_options
from .processes import check_launcher
from .settings import read_setting, settings_of, write_settings
from .views import views_loader

_MMENGINE_HOOKS = (
    'runtime_info',
    'timer',
    'sampler_seed',
    'logger',
    'param_scheduler',
    'checkpoint',
)
# Folders of configs, and what was imported from there.
_BESIDE: dict[str, dict[str, ModuleType]] = {}


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
    """Read the config of a run, write settings into it, check and complete it.

    Mistakes in the config and missing files are reported before PyTorch is
    loaded.

    Args:
        file (str | os.PathLike): The config file. Its ``custom_imports`` are
            looked for in its folder and in those above, too.
        options (dict | Sequence[str]): Settings of its template and whole
            keys, which win; or the texts ``KEY=VALUE`` of a command line.
        stages (Sequence[str]): What will be run, of 'train', 'val' and
            'test': its files are looked for. A training without 'val' has no
            validation. Without stages the config is only read.
        work_dir (str, optional): Where the run writes. Defaults to the
            config's, or else ``work_dirs/<name of the file>``.
        launcher (str): What started the processes: 'none', 'pytorch',
            'slurm' or 'mpi'. Defaults to 'none'.
        checkpoint (str | os.PathLike, optional): What a test loads.
        init (str | os.PathLike, optional): The weights that a training
            starts from, of any layout known.
        resume (str | os.PathLike, optional): The checkpoint that it goes on
            from. 'auto' takes the latest one in the work dir, if there is
            one.
        amp (bool): Train in mixed precision if the config does not. See
            :class:`~mmmoca.engine.optimizers.MixedPrecisionOptimWrapper`.
        auto_scale_lr (bool): Scale the learning rate. See
            :func:`~mmmoca.engine.recipe.scale_lr`.

    Returns:
        Config: For :func:`.training.run` and :func:`.training.build_runner`.

    Raises:
        FileNotFoundError: If the checkpoint or a folder of images is missing.
        MissingOpsError: If a config of detection lacks mmdet or compiled
            operators.
        ImportError: If ``custom_imports`` names no module.
        SyntaxError: If a config is not valid Python.
        ValueError: If an option names a key that nothing reads, the config
            has no such stage, or there are two checkpoints to start from or
            two precisions. See also :func:`check_config` and
            :func:`check_segmentation`.
        RuntimeError: See :func:`check_launcher`.
    """
    check_launcher(launcher)
    try:
        with _bases_are_found():
            cfg = Config.fromfile(file, import_custom_modules=False)
    except SyntaxError as error:  # MMEngine's names no file
        raise SyntaxError(
            f'{file}, or a config that it inherits from: {error.msg} in line '
            f'{error.lineno}: {(error.text or "").strip()}'
        ) from error
    cfg.launcher = launcher
    default = os.path.join('work_dirs', Path(file).stem)
    folder = work_dir or cfg.get('work_dir') or default
    cfg.work_dir = os.path.expanduser(folder)
    _write_options(cfg, options)
    check_config(cfg)
    leave_out_hooks(cfg)
    if (cfg.get('val_cfg') or {}).get('data_root') == '':
        _validate_without_labels(cfg)
    if stages and cfg.get(f'{stages[0]}_cfg') is None:
        raise ValueError(f'{file} has no {stages[0]}_cfg')
    if 'train' in stages:
        if 'val' not in stages:
            _leave_out_validation(cfg)
        _choose_start(cfg, init, resume)
        _choose_arithmetic(cfg, amp, auto_scale_lr)
    if checkpoint is not None:
        cfg.load_from, cfg.resume = os.fspath(checkpoint), False
    if cfg.get('default_scope') == 'mmdet':
        check_compiled_ops()
    check_paths(cfg, *stages)
    _complete(cfg)
    if cfg.get('default_scope') == 'mmseg':
        # Importing the data sets imports PyTorch.
        from .segmentation_check import check_segmentation

        check_segmentation(cfg, stages)
    return cfg


@contextmanager
def _bases_are_found() -> Iterator[None]:
    """Let ``_base_`` find the fork of mmsegmentation, or say what is wrong.

    MMEngine looks for the distribution, and the fork's has another name.
    """
    name = MODULE2PACKAGE['mmseg']
    try:
        distribution(name)
    except PackageNotFoundError:
        MODULE2PACKAGE['mmseg'] = 'mmseg'
    try:
        yield
    except FileNotFoundError as error:
        index = Path(f'{error.filename}')
        if index.parts[-2:] != ('.mim', 'model-index.yml'):
            raise
        checkout = index.parents[2]
        raise FileNotFoundError(
            '_base_ = "PACKAGE::..." finds configs of installed '
            f'packages alone: run `pip install --no-deps -e {checkout}`, or '
            f'write a path of {checkout}/configs'
        ) from error
    finally:
        MODULE2PACKAGE['mmseg'] = name


def load_config(
    file: str | os.PathLike,
    work_dir: str | None = None,
    cfg_options: dict | Sequence[str] = (),
    launcher: str = 'none',
) -> Config:
    """Read a config, an older name of :func:`read_run` that scripts use."""
    return read_run(file, cfg_options, work_dir=work_dir, launcher=launcher)


def _write_options(cfg: Config, options: dict | Sequence[str]) -> None:
    """Write settings, then whole keys, which win over what follows.

    Those of a file win over what it inherits, and options over all files.
    """
    kinds, files = settings_of(cfg), config_files(cfg)
    inherited = {
        key: cfg.pop(key) for key in kinds if _is_setting(cfg.get(key))
    }
    given, whole = {}, {}
    as_text = not isinstance(options, dict)
    if as_text:
        options = dict(text.split('=', 1) for text in options)
    for key, value in options.items():
        if key in kinds:
            kind = kinds[key]
            given[key] = read_setting(key, kind, value) if as_text else value
        else:
            _check_key(cfg, key, kinds, files)
            whole[key] = read_option(cfg, key, value) if as_text else value
    # What follows from settings may depend on whole keys, too.
    write_options(cfg, whole)
    roots = _roots(cfg)
    if inherited or given:
        # Only settings of files give way to a file's own values.
        kept = _kept(cfg, inherited, given, files) if inherited else {}
        write_settings(cfg, inherited | given)
        cfg.merge_from_dict(
            {k: v for k, v in kept.items() if _held(cfg, k) is not None}
        )
        write_options(cfg, whole)
    for name, before in roots.items():
        if len(before) > 1 and len(_roots(cfg)[name]) == 1:
            raise ValueError(
                f'data_root is one folder, and the parts of the {name} data '
                f'set have several, {listed(before)}: write each as data_root '
                'of its part, in a list of dicts, and leave the setting out'
            )
    follow_datasets(cfg, [place(cfg, key)[0] for key in whole])


def _kept(
    cfg: Config, inherited: dict, given: dict, files: list[ConfigFile]
) -> dict[str, Any]:
    """Return the values that settings must leave as files have them.

    A file's own values win over settings of files that it inherits.
    """
    before = cfg.to_dict()
    own = {
        key: value
        for key in set().union(*(file.keys for file in files))
        if _is_plain(value := _held(before, key))
    }
    nearest = {name: file for file in files for name in file.variables}
    # The files that each change of a value comes from, None for an option.
    changes: dict[str, set] = defaultdict(set)
    for name, value in (inherited | given).items():
        file = None if name in given else nearest.get(name)
        changed = copy.deepcopy(cfg)
        write_settings(changed, {name: value})
        for key in own:
            if _held(changed, key) != own[key]:
                changes[key].add(file and file.name)
    return {
        key: own[key]
        for key, origins in changes.items()
        for file in files
        if key in file.keys and origins <= file.inherited
    }


def _held(cfg: Any, key: str) -> Any:
    """Return what a config holds at a key of one of its files, or None."""
    try:
        return place(cfg, key)[1]
    except ValueError:  # another file has replaced a dict by a list
        return None


def _roots(cfg: Config) -> dict[str, list[str]]:
    """Return the folders of the parts of each data set."""
    found = {}
    for stage in ('train', 'val', 'test'):
        for name, loader in stage_loaders(cfg, stage).items():
            parts = member_configs(loader.get('dataset') or {})
            roots = dict.fromkeys(part.get('data_root') for part in parts)
            found[name] = [root for root in roots if root is not None]
    return found


def _is_plain(value: Any) -> bool:
    """Tell values, and lists of them, from parts that settings go into."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return not isinstance(value, dict | None)


def _check_key(
    cfg: Config, key: str, settings: Iterable[str], files: list[ConfigFile]
) -> None:
    """Refuse a key that changes nothing."""
    name = key.split('.')[0]
    if name in RUN_KEYS:
        return
    value = cfg.get(name)
    if isinstance(value, dict | list):
        read = any(name in file.read for file in files)
        same = [k for k, v in entries(cfg) if '.' in k and v == value]
        if not (read and same and value):
            return  # of the user's own code
        raise ValueError(
            f'{key} changes nothing, as the config has read {name} already: '
            f'write {listed(same, 2)}'
        )
    near = keys_named(cfg, key) or difflib.get_close_matches(
        name, [*settings, *RUN_KEYS], 1
    )
    hint = f'did you mean {listed(near)}? ' if near else ''
    short = f', or {", ".join(settings)}' if settings else ''
    raise ValueError(
        f'there is no setting {key}: {hint}Write whole keys, such as '
        f'optim_wrapper.optimizer.lr{short}'
    )


def _is_setting(value: Any) -> bool:
    """Tell a setting from a part of a config: dict(type='RandomFlip')."""
    is_part = isinstance(value, dict) and 'type' in value
    return value is not None and not is_part


def _validate_without_labels(cfg: Config) -> None:
    """Leave out k-NN, but measure the agreement of neighbours."""
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
    cfg.val_cfg = dict(type='mmmoca.NeighbourAgreementValLoop', **options)
    hooks = cfg.get('default_hooks') or {}
    checkpoints = hooks.get('checkpoint') or {}
    if 'knn/' in str(checkpoints.get('save_best')):
        checkpoints.save_best = 'agreement/neighbours'


def _leave_out_validation(cfg: Config) -> None:
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None


def _choose_start(
    cfg: Config,
    init: str | os.PathLike | None,
    resume: str | os.PathLike | None,
) -> None:
    """Write what a training starts from, or goes on from."""
    start = cfg.get('load_from')
    if init is not None:
        if start is not None or resume not in (None, 'auto'):
            raise ValueError(
                f'one start is enough: leave out {init}, or {start or resume}'
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
    """Write the precision of a training, and whether its rate is scaled."""
    if auto_scale_lr:
        cfg.merge_from_dict({'auto_scale_lr.enable': True})
    if amp and cfg.optim_wrapper.get('dtype') == 'float32':
        raise ValueError(
            'dtype=float32 is not mixed precision: leave out one of the two'
        )
    # All other wrappers use mixed precision anyway.
    if amp and cfg.optim_wrapper.get('type', 'OptimWrapper') == 'OptimWrapper':
        cfg.optim_wrapper.type = 'mmmoca.MixedPrecisionOptimWrapper'


def _complete(cfg: Config) -> None:
    """Import what a config names, and complete its data loaders."""
    import mmmoca.import_mmpretrain  # noqa: F401

    if own := cfg.get('custom_imports'):
        # The run writes its config into a folder that lacks the modules.
        home = _home_of(own, cfg.filename, cfg.get('imports_from'))
        cfg.imports_from = home
        _import_own(own, home)
    scope = cfg.get('default_scope')
    if scope and find_spec(scope) and find_spec(f'{scope}.datasets'):
        import_quietly(f'{scope}.datasets')
    # Segmentation and detection need MMEngine's default collate_fn: their
    # images differ in size.
    _complete_dataloaders(cfg, scope not in ('mmseg', 'mmdet'))


def _home_of(own: dict, file: str, earlier: str | None) -> str:
    """Return the folder that has the modules of a config.

    It is that of the config, one above, or that of an earlier run.
    """
    folder, *above = Path(file).absolute().parents
    above += [Path(earlier)] if earlier else []
    names = own.get('imports') or ['']
    first = str(names if isinstance(names, str) else names[0]).split('.')[0]
    for home in (folder, *above):
        if (home / first).is_dir() or (home / f'{first}.py').is_file():
            return str(home)
    return str(folder)


def _import_own(own: dict, folder: str) -> None:
    """Import modules; a config's own win over those of earlier configs.

    Two configs may each have a ``hooks.py``, so the folder of the earlier one
    and what was imported from it are removed first.
    """
    for earlier, modules in _BESIDE.items():
        if earlier != folder and earlier in sys.path:
            sys.path.remove(earlier)
            for name in modules:
                sys.modules.pop(name, None)
    if folder not in sys.path:
        sys.path.append(folder)
        sys.modules.update(_BESIDE.setdefault(folder, {}))
    before = {*sys.modules}
    try:
        import_modules_from_strings(**own)
    except ImportError as error:
        text = f'custom_imports: {error}: {error.__context__}'
        raise ImportError(text) from error
    for name in sys.modules.keys() - before:
        file = getattr(sys.modules[name], '__file__', None) or ''
        if folder in _BESIDE and file.startswith(os.path.join(folder, '')):
            _BESIDE[folder][name] = sys.modules[name]


def leave_out_hooks(cfg: Config) -> None:
    """Remove the default hooks that are None.

    MMEngine accepts None for its own hooks only.

    Args:
        cfg (Config): The config, changed in place.
    """
    hooks = cfg.get('default_hooks') or {}
    for name, hook in list(hooks.items()):
        if hook is None and name not in _MMENGINE_HOOKS:
            del hooks[name]


def _complete_dataloaders(cfg: ConfigDict | Config, equal: bool) -> None:
    import torch

    # mmpretrain's base configs rely on these defaults of its tools.
    for key, value in cfg.items():
        if not isinstance(value, ConfigDict):
            continue
        if key.endswith('dataloader'):
            if equal:
                value.setdefault('collate_fn', dict(type='default_collate'))
            collate = value.get('collate_fn')
            if isinstance(collate, dict):
                # Inheritance (`mmmoca::...`) adds _scope_ to dicts with a
                # type, and MMEngine passes it to the function.
                collate.pop('_scope_', None)
            sampler = value.get('sampler') or {}
            if sampler.get('type') == 'mmmoca.SeededSampler':
                # The iterations of an epoch do not depend on the processes.
                sampler.setdefault('drop_last', value.get('drop_last', False))
            value.setdefault('pin_memory', True)
            value.setdefault('persistent_workers', True)
            # PyTorch warns of pin_memory without a GPU, and refuses
            # persistent_workers with num_workers=0.
            value.pin_memory &= torch.cuda.is_available()
            value.persistent_workers &= value.get('num_workers', 0) > 0
        _complete_dataloaders(value, equal)
