# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Outlines (corners, 2) of figures in the unit circle."""

import math

import numpy as np


def rotation(angle: float) -> np.ndarray:
    """The matrix (2, 2) that turns row vectors by an angle in radians."""
    cos, sin = math.cos(angle), math.sin(angle)
    return np.array([(cos, sin), (-sin, cos)])


def regular(corners: int) -> np.ndarray:
    """A regular polygon; of many corners, a disc."""
    angle = np.arange(corners) * 2 * math.pi / corners
    return np.stack([np.cos(angle), np.sin(angle)], 1)


def cross(arm: float) -> np.ndarray:
    """A cross whose arms are ``2 * arm`` wide; their ends are at 1."""
    corners = np.array([(1, -arm), (1, arm), (arm, arm)])
    turns = [rotation(quarter * math.pi / 2) for quarter in range(4)]
    return np.concatenate([corners @ turn for turn in turns])
