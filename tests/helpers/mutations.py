# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Damages the content of a file, in the same way for the same seed."""

import copy

import torch

JUNK = (
    *(None, True, -1, 35.5, 2**70, 'text', b'text', (1, 2), [], {}),
    torch.zeros(3, 5),
    torch.tensor(float('nan')),
    torch.tensor([1, 2]),
)


def mutate(content, rng):
    """Copy nested dicts and lists; replace or remove one value.

    Within each dict or list, at any depth, all parts are equally likely.

    Args:
        content (dict): The original, which is not changed.
        rng (random.Random): Chooses the place and its new value.

    Returns:
        tuple[dict, str]: The copy, and a description of the change.
    """
    content = copy.deepcopy(content)
    holder, place = content, []
    while True:
        keys = holder if isinstance(holder, dict) else range(len(holder))
        key = rng.choice([*keys])
        place.append(key)
        inner = holder[key]
        if (
            not (isinstance(inner, dict | list) and inner)
            or rng.random() < 0.1
        ):
            break
        holder = inner
    if rng.random() < 0.3:
        del holder[key]
        return content, f'{place} removed'
    value = rng.choice(JUNK)
    if isinstance(inner, torch.Tensor) and rng.random() < 0.5:
        value = rng.choice(
            [inner.flatten(), inner[:0], inner.unsqueeze(0), inner.double()]
            if inner.ndim
            else [inner.reshape(1, 1), inner.double()]
        )
    holder[key] = value
    return content, f'{place} is {value!r:.60}'
