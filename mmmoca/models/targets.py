# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from typing import NamedTuple

from torch import Tensor

from .precision import no_autocast, normalize_fp32

__all__ = ['Targets']


class Targets(NamedTuple):
    """What the student of a step is to predict: the teacher's assignments.

    They are K numbers a token, by far the largest tensor of a step, and stay
    what they are made of until they are compared, a part of them at a time.
    A head that predicts something else finds here what to make it of.

    Attributes:
        tokens (Tensor): The teacher's patch tokens of both views, (2B, L, D),
            any float dtype.
        words (Tensor): Codebook C as it stood before the step, unit rows,
            (K, D).
        sharpness (Tensor): Inverse temperature of the softmax, a scalar.
        inner (Tensor): Indices of the patches that count for the bags of
            codes, (n_inner, ).
        images (Tensor, optional): The views, normalised, (2B, C, H, W).
    """

    tokens: Tensor
    words: Tensor
    sharpness: Tensor
    inner: Tensor
    images: Tensor | None = None

    def codes(self) -> Tensor:
        """The assignment vectors q_T (paper, section 3.1), all at once.

        Returns:
            Tensor: They sum to 1, (2B, L, K), float32.
        """
        with no_autocast(self.tokens):
            similarity = normalize_fp32(self.tokens) @ self.words.T
            return (similarity * self.sharpness).softmax(dim=-1)
