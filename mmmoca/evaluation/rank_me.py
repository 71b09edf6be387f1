# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A measure of representations that needs no labels."""

import torch
from torch import Tensor


@torch.no_grad()
def rank_me(embeddings: Tensor) -> float:
    """Compute RankMe, the effective rank of a matrix of embeddings.

    It is exp(H(p)), where p are the singular values divided by their sum, and
    H is the entropy (Garrido et al., "RankMe", ICML 2023, equation 1). It is
    between 1 (a complete collapse) and min(N, D), so only values for the same
    N are comparable.

    Args:
        embeddings (Tensor): (N, D), any floating dtype, not normalised.

    Returns:
        float: The effective rank; NaN if an embedding is not finite.
    """
    embeddings = embeddings.float()
    if not embeddings.isfinite().all():
        return float('nan')
    values = torch.linalg.svdvals(embeddings)
    shares = values / values.sum().clamp(min=torch.finfo(values.dtype).tiny)
    return torch.special.entr(shares).sum().exp().item()
