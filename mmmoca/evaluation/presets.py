# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Which feature of a checkpoint each protocol for frozen encoders uses."""

from typing import NamedTuple

FEATURES = ('avg', 'cls', 'cls-avg')


class Preset(NamedTuple):
    """The published evaluation of a method's frozen encoder.

    docs/guides/evaluate.md says where each value comes from.

    Attributes:
        method (str, optional): Name of the method; None if it is not known.
        knn (str): Feature of k-NN, after the final norm: 'avg' (mean patch
            token), 'cls' or 'cls-avg' (both concatenated).
        linear (str): Feature of linear probing, after the final norm.
        lowshot (str): Feature of low-shot classification, BEFORE the final
            norm.
        temperature (float): T of k-NN.
        regularization (float): Lambda of low-shot classification.
        which (str): Encoder to use if a file has two: 'teacher' or 'student'.
    """

    method: str | None
    knn: str
    linear: str
    lowshot: str
    temperature: float = 0.07
    regularization: float = 0.1
    which: str = 'teacher'


_PRESETS = (
    Preset('moca', 'avg', 'avg', 'avg', temperature=0.04),
    Preset('dino', 'cls', 'cls-avg', 'cls'),
    Preset('ibot', 'cls', 'cls-avg', 'cls'),
    Preset('dinov2', 'cls', 'cls-avg', 'cls'),
    Preset('dinov3', 'cls', 'cls', 'cls'),
    Preset('msn', 'cls', 'cls', 'cls', regularization=0.0025),
    Preset('mocov3', 'cls', 'cls', 'cls', which='student'),
    Preset('mae', 'avg', 'cls', 'avg'),
)
PRESETS = {preset.method: preset for preset in _PRESETS}


def choose_preset(layout: str, feature: str | None = None) -> Preset:
    """Return the preset for a checkpoint.

    Args:
        layout (str): The layout of the file, see
            :class:`mmmoca.checkpoints.Backbone`.
        feature (str, optional): What the user asks for: the name of a preset,
            or a feature for all protocols (low-shot uses it before the final
            norm).

    Returns:
        Preset: The preset of the method. If neither ``layout`` nor ``feature``
        names the method, MOCA's preset with ``method=None``.

    Raises:
        ValueError: If there is no such preset or feature.
    """
    if feature not in (None, *FEATURES, *PRESETS):
        raise ValueError(
            f'{feature!r} is neither a feature ({", ".join(FEATURES)}) nor a '
            f'preset ({", ".join(PRESETS)})'
        )
    method = 'moca' if layout == 'mmmoca' else layout
    if feature in PRESETS:
        method = feature
    # The layout 'dino' is also that of iBOT, which is evaluated alike.
    preset = PRESETS.get(method, PRESETS['moca']._replace(method=None))
    if feature in FEATURES:
        preset = preset._replace(knn=feature, linear=feature, lowshot=feature)
    return preset
