# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Which feature each frozen protocol takes of a method's checkpoint."""

from typing import NamedTuple

__all__ = ['FEATURES', 'PRESETS', 'Preset', 'choose_preset', 'preset_line']

FEATURES = ('avg', 'cls', 'cls-avg')


class Preset(NamedTuple):
    """How a method's frozen encoder is evaluated where it was published.

    docs/evaluation.md says where each value is from.

    Attributes:
        knn (str): Feature of k-NN, after the final norm: 'avg' (mean patch
            token), 'cls' or 'cls-avg' (both concatenated).
        linear (str): Feature of linear probing, after the final norm.
        lowshot (str): Feature of low-shot classification, BEFORE it.
        temperature (float): T of k-NN.
        regularization (float): Lambda of low-shot classification.
        which (str): The encoder, where a file has two.
    """

    knn: str
    linear: str
    lowshot: str
    temperature: float = 0.07
    regularization: float = 0.1
    which: str = 'teacher'


PRESETS = dict(
    moca=Preset('avg', 'avg', 'avg', temperature=0.04),
    dino=Preset('cls', 'cls-avg', 'cls'),
    ibot=Preset('cls', 'cls-avg', 'cls'),
    msn=Preset('cls', 'cls', 'cls', regularization=0.0025),
    mocov3=Preset('cls', 'cls', 'cls', which='student'),
    mae=Preset('avg', 'cls', 'avg'),
)


def choose_preset(
    layout: str, feature: str | None = None
) -> tuple[str | None, Preset]:
    """What to take of a checkpoint.

    Args:
        layout (str): The layout of the file, see
            :class:`mmmoca.checkpoints.Backbone`.
        feature (str, optional): What was asked for: a preset, or a feature
            for all protocols (low-shot takes it before the final norm).

    Returns:
        tuple[str | None, Preset]: Name of the method, None if neither the
        file nor the feature tells it, and the settings; those of MOCA where
        the method is not known.

    Raises:
        ValueError: If there is no such feature.
    """
    if feature not in (None, *FEATURES, *PRESETS):
        raise ValueError(
            f'{feature!r} is no feature ({", ".join(FEATURES)}) and no preset '
            f'({", ".join(PRESETS)})'
        )
    # Files of DINO and iBOT look the same, and are evaluated alike.
    of_file = 'moca' if layout == 'mmmoca' else layout
    method = next((m for m in (feature, of_file) if m in PRESETS), None)
    preset = PRESETS[method or 'moca']
    if feature in FEATURES:
        preset = preset._replace(knn=feature, linear=feature, lowshot=feature)
    return method, preset


def preset_line(settings: dict) -> str:
    """Settings in words.

    Args:
        settings (dict): Those of a :class:`Preset`, with the ``which`` that
            was taken and the name of the ``preset``, if any.

    Returns:
        str: One line.
    """
    return (
        '{which} encoder; k-NN {knn} (T = {temperature:g}), linear {linear}, '
        'low-shot {lowshot} before the final norm (lambda = '
        '{regularization:g}); '
    ).format(**settings) + (
        f'preset {settings["preset"]}'
        if settings['preset']
        else 'method unknown, so as for MOCA but for a feature given'
    )
