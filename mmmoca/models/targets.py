# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from typing import NamedTuple

from torch import Tensor

from .precision import no_autocast, normalize_fp32


class Targets(NamedTuple):
    """The tensors from which the student's targets are computed.

    Assignments have K numbers for each token and would be by far the largest
    tensor of a step, so losses compute them in chunks. A head with a different
    target also computes it from these tensors.

    Attributes:
        tokens (Tensor): The teacher's patch tokens of both views, (2B, L, D),
            any float dtype. If the codebook has ``centre``, the mean token of
            each position has already been subtracted.
        words (Tensor): Codebook C before the step, unit rows, (K, D).
        sharpness (Tensor): Inverse temperature of the softmax, a scalar.
        inner (Tensor): Indices of the inner patches, over which bags of codes
            average, (n_inner, ).
        images (Tensor, optional): The views, normalised, (2B, C, H, W).
    """

    tokens: Tensor
    words: Tensor
    sharpness: Tensor
    inner: Tensor
    images: Tensor | None = None

    def assignments(self) -> Tensor:
        """Compute the assignment q_T of every patch (paper, section 3.1).

        Meant for custom losses, with a small batch or few words.

        Returns:
            Tensor: (2B, L, K), at least float32.
        """
        with no_autocast(self.tokens):
            similarity = normalize_fp32(self.tokens) @ self.words.T
            return (self.sharpness * similarity).softmax(dim=-1)
