# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What the classes that a config names say of their arguments.

Annotations, defaults and docstrings tell which kinds of values an argument
takes. They are incomplete, and in OpenMMLab's packages not always right, so
that a value counts as wrong only if all that is said excludes it, and what
only a docstring says is believed in this package alone.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from mmengine import registry as registries
from mmengine.registry import Registry
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader

__all__ = ['Arguments', 'arguments_of', 'takes']

# The kinds of values that each argument takes; None is not known.
Arguments = dict[str, frozenset[str] | None]

_REGISTRIES = [
    entry for entry in vars(registries).values() if isinstance(entry, Registry)
]
_ANY = 'anything'
_NUMBER, _TEXT, _FLAG, _LIST, _DICT = (
    'a number',
    'a string',
    'True or False',
    'a list or tuple',
    'a dict',
)
# Words of a type. A config has no tensors; any other word means that the
# argument takes what is not known here.
_WORDS = {
    **dict.fromkeys(('int', 'float', 'number', 'Real', 'Integral'), _NUMBER),
    **dict.fromkeys(('bool', 'boolean'), _FLAG),
    **dict.fromkeys(('str', 'string', 'Path', 'PathLike'), _TEXT),
    **dict.fromkeys(('list', 'tuple', 'Sequence', 'Iterable'), _LIST),
    **dict.fromkeys(('dict', 'ConfigDict', 'Mapping'), _DICT),
    **dict.fromkeys(('None', 'optional', 'NoneType'), 'None'),
    **dict.fromkeys(('List', 'Tuple'), _LIST),
    **dict.fromkeys(('Dict', 'ConfigType'), _DICT),
    'Optional': 'None',
    **dict.fromkeys(
        ('Union', 'or', 'and', 'of', 'typing', 'collections', 'abc', 'os')
        + ('Tensor', 'torch', 'ndarray', 'np', 'numpy'),
        None,
    ),
}
_DOCUMENTED = re.compile(r'^\s*\*{0,2}(\w+)\s*\((.+?)\)\s*:', re.MULTILINE)


def arguments_of(
    name: str, part: dict, scope: str | None
) -> list[tuple[Arguments, bool]]:
    """Arguments of whatever a dict of a config is built into.

    Args:
        name (str): The key of the dict.
        part (dict): The dict.
        scope (str, optional): Where names without a prefix are looked up.

    Returns:
        list[tuple[Arguments, bool]]: The arguments of each class or function
        that the dict may mean, and whether it is one of this package's. Empty
        if there is none.
    """
    kind = part.get('type')
    if isinstance(kind, str):
        found = _registered(kind, scope)
    elif callable(kind):
        found = (kind,)
    elif kind is not None:
        found = ()
    elif name == 'clip_grad':
        found = (clip_grad_norm_,)
    elif name.endswith('dataloader'):
        found = (DataLoader,)
    else:
        found = ()
    return [known for known in map(_arguments, found) if known[0]]


def takes(kinds: frozenset[str], value: Any, strict: bool) -> bool:
    """Whether an argument of these kinds takes a value.

    Args:
        kinds (frozenset[str]): See :data:`Arguments`.
        value (Any): The value.
        strict (bool): Whether the kinds are exact. OpenMMLab's docstrings
            often leave out that an argument takes lists of what they name, or
            what a dict may be replaced by.

    Returns:
        bool: False if the value, or one inside of it, is of another kind.
    """
    if isinstance(value, (list, tuple)):
        if not strict:
            kinds = kinds | {_LIST}
        return _LIST in kinds and (
            kinds <= {_LIST, 'None'}
            or all(takes(kinds, inner, strict) for inner in value)
        )
    kind = _kind_of(value)
    # A dict stands for an object, which a name may stand for, too.
    if kind == _TEXT and not strict and _DICT in kinds:
        return True
    # Flags are often written as 0 and 1, or left open.
    if _FLAG in kinds and value in (0, 1, None):
        return True
    return kind in kinds or kind == _ANY


@functools.cache
def _registered(name: str, scope: str | None) -> tuple[Callable, ...]:
    """Whatever has this name in the registries of a scope."""
    names = [name]
    if '.' not in name:
        # A bare name that nothing is registered by is one of a module to
        # import, for MMEngine; it may be a word of other meaning here.
        names = [f'{place}.{name}' for place in (scope, 'mmengine') if place]
    found = []
    for registry in _REGISTRIES:
        entry = next(filter(None, map(registry.get, names)), None)
        if callable(entry) and entry not in found:
            found.append(entry)
    return tuple(found)


@functools.cache
def _arguments(function: Callable) -> tuple[Arguments, bool]:
    """Arguments of a function, or of a class and its bases."""
    own = function.__module__.startswith('mmmoca.')
    owners = [function]
    if inspect.isclass(function):
        owners = [kind for kind in function.__mro__ if kind is not object]
    known = {}
    for owner in owners:
        try:
            parameters = inspect.signature(owner).parameters
        except (TypeError, ValueError):  # of a compiled module
            return {}, False
        documented = dict(_documented(owner))
        for name, parameter in parameters.items():
            if parameter.kind not in (
                parameter.VAR_KEYWORD,
                parameter.VAR_POSITIONAL,
            ):
                known.setdefault(
                    name, _kinds(parameter, documented.get(name), own)
                )
        kinds = {parameter.kind for parameter in parameters.values()}
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            return known, own
    # It may do anything with further ones.
    return known | {'**': None}, own


def _documented(owner: Callable) -> Iterator[tuple[str, str]]:
    """Types of arguments, as docstrings in Google's style have them."""
    for place in (owner, getattr(owner, '__init__', None)):
        yield from _DOCUMENTED.findall(getattr(place, '__doc__', None) or '')


def _kinds(
    parameter: inspect.Parameter, documented: str | None, own: bool
) -> frozenset[str] | None:
    """Kinds of values that all that is said of a parameter admits."""
    kinds, sources = set(), [documented] if documented else []
    if parameter.annotation is not parameter.empty:
        sources.insert(0, inspect.formatannotation(parameter.annotation))
        own = True
    for source in sources:
        kinds |= {
            _WORDS.get(w, _ANY) for w in re.findall(r'[^\W\d]\w*', source)
        }
    default = parameter.default
    if default is not parameter.empty:
        kinds |= _kinds_inside(default)
        own |= default is not None
    kinds.discard(None)
    if _ANY in kinds or kinds <= {'None'} or not own or not sources:
        return None
    return frozenset(kinds)


def _kinds_inside(value: Any) -> set[str]:
    if isinstance(value, (list, tuple)):
        return {_LIST}.union(*map(_kinds_inside, value))
    return {_kind_of(value)}


def _kind_of(value: Any) -> str:
    for kind, classes in (
        ('None', type(None)),
        (_FLAG, bool),
        (_NUMBER, (int, float)),
        (_TEXT, str),
        (_DICT, dict),
    ):
        if isinstance(value, classes):
            return kind
    return _ANY
