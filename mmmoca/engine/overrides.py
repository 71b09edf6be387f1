# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Writes settings and full keys into a config that was read from a file.

``epochs`` is a setting, and ``train_cfg.max_epochs`` is a full key.
"""

import copy
import difflib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from mmengine.config import Config

from mmmoca.config_parts import is_plain, member_configs, stage_loaders
from mmmoca.messages import listed

from .config_check import RUN_KEYS, run_keys
from .config_files import ConfigFile, config_files
from .copies import follow_datasets
from .options import entries, keys_named, place, read_option, write_options
from .settings import (
    is_setting,
    read_setting,
    settings_of,
    write_settings,
)
from .templates import REPLACED_BY
from .written_values import written_values


def override(cfg: Config, options: dict | Sequence[str]) -> None:
    """Write settings, then full keys, which override what settings write.

    Settings and keys in a file override those in the files that it inherits,
    and options override all files.

    Args:
        cfg (Config): A config as it was read from a file. Changed in place.
        options (dict | Sequence[str]): Values by dotted key, or ``KEY=VALUE``.

    Raises:
        ValueError: If an option changes nothing, or a value makes no sense.
    """
    kinds, files = settings_of(cfg), config_files(cfg)
    inherited = {
        key: cfg.pop(key) for key in kinds if is_setting(cfg.get(key))
    }
    given, whole = _read(cfg, options, kinds, files)
    # Full keys are written here, because what a setting writes may depend on
    # them, and again below, because they override settings.
    write_options(cfg, whole)
    roots = _roots(cfg)
    if inherited or given:
        # What a file writes under full keys overrides its own settings and
        # inherited ones, but not settings given as options.
        kept = _kept(cfg, inherited, given, whole, files) if inherited else {}
        write_settings(cfg, inherited | given)
        write_options(
            cfg, {k: v for k, v in kept.items() if _held(cfg, k) is not None}
        )
        write_options(cfg, whole)
    _check_roots(roots, _roots(cfg))
    follow_datasets(cfg, [place(cfg, key)[0] for key in whole])


def _read(
    cfg: Config,
    options: dict | Sequence[str],
    kinds: dict[str, Any],
    files: list[ConfigFile],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options that are settings, and those that are full keys."""
    given, whole = {}, {}
    as_text = not isinstance(options, dict)
    if as_text:
        for text in options:
            if '=' not in text:
                raise ValueError(f'{text}: write KEY=VALUE')
        options = dict(text.split('=', 1) for text in options)
    for key, value in options.items():
        # A config can hold Python's numbers, but not those of NumPy.
        value = value.tolist() if hasattr(value, 'tolist') else value
        if key in kinds:
            kind = kinds[key]
            given[key] = read_setting(key, kind, value) if as_text else value
        else:
            _check_key(cfg, key, kinds, files)
            whole[key] = read_option(cfg, key, value) if as_text else value
    return given, whole


def _kept(
    cfg: Config,
    inherited: dict,
    given: dict,
    whole: dict,
    files: list[ConfigFile],
) -> dict[str, Any]:
    """Return the values of config files that settings must not overwrite.

    What a file writes under full keys overrides its own settings and inherited
    ones. If such a value replaces a setting altogether (see ``REPLACED_BY``),
    the setting is removed from ``inherited``.
    """
    before, written = cfg.to_dict(), written_values(files)
    own = {
        key: value
        for key in set().union(*written.values())
        if is_plain(value := _held(before, key))
    }
    nearest = _last_files(files, written)
    # Key -> the files whose settings change its value, None for an option.
    changes: dict[str, set] = defaultdict(set)
    for name, value in (inherited | given).items():
        file = None if name in given else nearest.get(name)
        if file:
            heirs = [f.name for f in files if file.name in f.inherited]
            nearer = set(whole).union(*(written[heir] for heir in heirs))
            if REPLACED_BY.get(name) in nearer:
                del inherited[name]
                continue
        changed = copy.deepcopy(cfg)
        write_settings(changed, {name: value})
        for key in own:
            if _held(changed, key) != own[key]:
                changes[key].add(file and file.name)
    return {
        key: own[key]
        for key, origins in changes.items()
        for file in files
        if key in written[file.name] and origins <= file.inherited
    }


def _last_files(
    files: list[ConfigFile], written: dict[str, dict[str, Any]]
) -> dict[str, ConfigFile]:
    """Return, for each variable, the last file that sets it."""
    found = {}
    for file in files:
        # In a file without bases all variables count, because it is not known
        # which branches (if, try, loops) were executed.
        run = {key.partition('.')[0] for key in written[file.name]}
        names = file.variables & run if file.bases else file.variables
        found |= dict.fromkeys(names, file)
    return found


def _held(cfg: Any, key: str) -> Any:
    """Return the value at a key that one of the files wrote, or None."""
    try:
        return place(cfg, key)[1]
    except ValueError:  # another file has replaced a dict with a list
        return None


def _roots(cfg: Config) -> dict[str, list[str]]:
    """Return, for each loader, the folders that its data set reads."""
    found = {}
    for stage in ('train', 'val', 'test'):
        for name, loader in stage_loaders(cfg, stage).items():
            parts = member_configs(loader.get('dataset') or {})
            roots = [part.get('data_root') for part in parts]
            known = (f'{root}' for root in roots if root is not None)
            found[name] = [*dict.fromkeys(known)]
    return found


def _check_roots(
    before: dict[str, list[str]], after: dict[str, list[str]]
) -> None:
    """Refuse one folder for a data set whose parts had several."""
    for name, roots in before.items():
        if len(roots) > 1 and len(after[name]) == 1:
            raise ValueError(
                'the setting data_root is a single folder, but the parts of '
                f'the {name} data set have several ({listed(roots)}): leave '
                'the setting out and write the parts as a list of dicts, each '
                'with its own data_root'
            )


def _check_key(
    cfg: Config, key: str, settings: Iterable[str], files: list[ConfigFile]
) -> None:
    """Refuse a key that changes nothing."""
    name, known = key.split('.')[0], run_keys(cfg)
    if name in known:
        return
    value = cfg.get(name)
    if isinstance(value, dict | list):
        read = any(name in file.read for file in files)
        same = [k for k, v in entries(cfg) if '.' in k and v == value]
        if name in RUN_KEYS:  # the key in `model` is read instead
            same = [f'model.{name}']
        elif not (read and same and value):
            return  # the user's own code may read it
        raise ValueError(
            f'{key} changes nothing, as a run does not read {name}: '
            f'write {listed(same, 2)}'
        )
    near = keys_named(cfg, name) or difflib.get_close_matches(
        name, [*settings, *known], 1
    )
    hint = f'did you mean {listed(near)}? ' if near else ''
    short = f'one of the settings {", ".join(settings)}, or ' * bool(settings)
    raise ValueError(
        f'there is no setting {key}: {hint}Write {short}a full key, such as '
        'optim_wrapper.optimizer.lr'
    )
