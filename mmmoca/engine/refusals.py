# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Errors of a config, in one line that names the key."""

import traceback
from collections.abc import Iterator
from typing import Any

from mmengine.config import Config


def refusal(cfg: Config, error: Exception) -> str | None:
    """Say in one line why a run does not start.

    Args:
        cfg (Config): Its config.
        error (Exception): What was raised.

    Returns:
        str | None: The message, after the key of the innermost part that was
        being built, as in ``model.codebook: ...``. None if the run had begun.
    """
    built = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if getattr(frame.f_locals.get('self'), 'begun', False) is True:
            return None
        if frame.f_code.co_name == 'build_from_cfg':  # of MMEngine
            built = frame.f_locals['cfg']
    text = ' '.join(str(error).split())
    if isinstance(error, LookupError | AssertionError) or not text:
        text = repr(error)
    key = _key_of(built, cfg)
    return f'{key}: {text}' if key and key not in text else text


def _key_of(part: dict | None, cfg: Config) -> str | None:
    """Key of the part that a constructor got, perhaps with changes."""
    kind = (part or {}).get('type')
    alike = [(k, p) for k, p in _parts(cfg, '') if p.get('type') == kind]
    if kind is None or not alike:
        return None
    return max(alike, key=lambda a: sum(a[1].get(k) == part[k] for k in part))[
        0
    ]


def _parts(value: Any, path: str) -> Iterator[tuple[str, dict]]:
    """All dicts below a part, by their keys."""
    items = enumerate(value) if isinstance(value, list | tuple) else ()
    if isinstance(value, dict | Config):
        items = value.items()
    for key, inner in items:
        if isinstance(inner, dict):
            yield f'{path}{key}', inner
        yield from _parts(inner, f'{path}{key}.')
