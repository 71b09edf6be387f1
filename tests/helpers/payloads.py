# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checkpoints that make a folder, the marker, if their code is run."""

import os
import pickle
from _codecs import encode

import torch
from mmengine.logging import HistoryBuffer

FORMS = ('archive', 'legacy', 'pickle', 'lookup')


class Call:
    """A call that a pickle asks for."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def by_lookup(marker):
    """Build the payload from names that MMEngine's own checkpoints pickle.

    The payload gets from ``getattr`` on MMEngine's log history to ``exec``
    through functions that rebuild tensors.
    """

    def call(function, kind, *arguments):
        rebuild = torch._tensor._rebuild_from_type_v2
        return Call(rebuild, function, kind, arguments, None)

    def of_history(name):
        return Call(getattr, HistoryBuffer, name)

    lookup, kind = of_history('__getattribute__'), of_history('__class__')
    function = call(lookup, kind, encode, '__class__')
    builtins = call(
        lookup,
        call(lookup, kind, {}, '__class__'),
        of_history('min'),
        '__builtins__',
    )
    execute = call(call(lookup, function, builtins, 'get'), function, 'exec')
    return call(execute, kind, f'import os; os.mkdir({str(marker)!r})')


def write_payload(path, marker, form='archive', beside=None):
    """Write a checkpoint in one of the :data:`FORMS`.

    Args:
        path (Path): The file.
        marker (Path): The folder that its payload makes.
        form (str): How the file is packed, or the kind of payload.
        beside (dict, optional): The usual content of such a checkpoint.
    """
    payload = Call(os.mkdir, str(marker))
    if form == 'lookup':
        payload = by_lookup(marker)
    content = dict(beside or dict(state_dict={}), payload=payload)
    if form == 'pickle':
        path.write_bytes(pickle.dumps(content, 2))
        return
    archive = form != 'legacy'
    torch.save(content, path, _use_new_zipfile_serialization=archive)
