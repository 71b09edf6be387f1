# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Names the config key that makes building a part fail."""

import difflib
import inspect
import re
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from traceback import walk_tb

from mmengine import registry
from mmengine.registry import Registry

from mmmoca.config_parts import is_plain
from mmmoca.messages import listed

from .options import entries, keys_named

# OpenMMLab's MMEngine writes the class and its file before this text. Its
# fork, onedl-mmengine, does not.
_UNKNOWN_ARGUMENT = re.compile(
    r"(\w+)(?:\.__init__)?\(\) got an unexpected keyword argument '(\w+)'"
)
_NO_TYPE = 'must contain the key "type"'
_UNKNOWN_CLASS = re.compile(r'([\w.]+) is not in the \S+::(.+) registry')


@contextmanager
def explained(cfg: dict) -> Iterator[None]:
    """Replace an error of a registry with one that names the config key.

    Args:
        cfg (dict): The config whose parts are built.

    Raises:
        TypeError: For an argument that a class does not have, or a part
            without a type.
        ValueError: For a class that is not registered.
    """
    try:
        yield
    except (TypeError, KeyError, IndexError) as error:
        text = str(error)
        if found := _UNKNOWN_ARGUMENT.search(text):
            raise TypeError(
                _of_argument(cfg, error, *found.groups())
            ) from error
        if _NO_TYPE in text:
            raise TypeError(_without_type(cfg, error)) from error
        if found := _UNKNOWN_CLASS.search(text):
            raise ValueError(unknown_class(cfg, *found.groups())) from error
        call = _innermost_call(error)
        if call and not isinstance(error, KeyError):
            raise type(error)(f'{call}: {text}') from error
        raise


def _innermost_call(error: Exception) -> str:
    """Return the call that failed: a class with its plain arguments."""
    call = ''
    for frame, _ in walk_tb(error.__traceback__):
        code, held = frame.f_code, frame.f_locals
        if code.co_name == '__init__' and 'self' in held:
            number = code.co_argcount + code.co_kwonlyargcount
            arguments = ', '.join(
                f'{name}={reprlib.repr(held[name])}'
                for name in code.co_varnames[1:number]
                if isinstance(held.get(name), Real | str | list | tuple)
                and is_plain(held[name])
            )
            call = f'{type(held["self"]).__name__}({arguments})'
    return call


def _without_type(cfg: dict, error: Exception) -> str:
    part = {}
    for frame, _ in walk_tb(error.__traceback__):
        if frame.f_code.co_name == 'build_from_cfg':
            part = frame.f_locals['cfg']
    # A class may have added arguments to `part` that the config lacks.
    keys = [
        key
        for key, value in entries(cfg)
        if isinstance(value, dict)
        and value
        and 'type' not in value
        and all(part.get(name) == v for name, v in value.items())
    ]
    return (
        f'{listed(keys) or part} has no type: write one. If `_delete_=True` '
        'has removed it, you may leave out `_delete_=True` instead'
    )


def _of_argument(cfg: dict, error: Exception, owner: str, name: str) -> str:
    kind = None
    for frame, _ in walk_tb(error.__traceback__):
        kind = frame.f_locals.get('obj_cls', kind)
    place = listed(keys_named(cfg, name)) or name
    parents = getattr(kind, '__mro__', (kind,))
    if owner not in [getattr(p, '__name__', None) for p in parents]:
        # The class builds a part, and this part refuses the argument.
        return f'{place}: {error}'
    known = []
    for parent in parents:  # each hands its **kwargs to the next
        parameters = inspect.signature(parent).parameters.values()
        known += [
            p.name
            for p in parameters
            if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        ]
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    known = [*dict.fromkeys(known)]
    problem = f'{place}: {owner} has no such argument. '
    if near := _near(name, known):
        return f'{problem}Did you mean {listed(near)}?'
    return (
        f'{problem}It has {listed(known, 30)}. If you have changed the type '
        'of an inherited part, add `_delete_=True` to drop its arguments'
    )


def unknown_class(cfg: dict, name: str, kind: str) -> str:
    """Compose the error message for a class that is not registered.

    Args:
        cfg (dict): The config that names the class.
        name (str): Name of the class.
        kind (str): The name of its registry, such as 'model'.

    Returns:
        str: The message. It lists the config's keys that have this name as
        their value, and the registered classes with similar names.
    """
    keys = [key for key, value in entries(cfg) if value == name]
    known = {
        full.split('.')[-1]: full
        for root in vars(registry).values()
        if isinstance(root, Registry) and root.name == kind
        for full in _registered(root)
    }
    near = [known[n] for n in _near(name.split('.')[-1], [*known])]
    return (
        f'{listed(keys) or "type"}: there is no {kind} {name}. '
        + (f'Did you mean {listed(near)}? ' if near else '')
        + 'To register a class of your own, add its module to custom_imports'
    )


def _registered(root: Registry) -> Iterator[str]:
    """Yield the names in a registry and its children, with their scopes."""
    for name in root.module_dict:
        yield name if root.parent is None else f'{root.scope}.{name}'
    for child in root.children.values():
        yield from _registered(child)


def _near(name: str, known: list[str]) -> list[str]:
    folded = {one.casefold(): one for one in known}
    near = difflib.get_close_matches(name.casefold(), folded, 3)
    return [folded[one] for one in near]
