# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Soft assignments and the losses that predict them, as pure functions.

A softmax over K = 4096 words for every token of a batch is by far the
largest tensor of a MOCA step, so none of these functions ever holds it for
all tokens: they go through the tokens in chunks, and the token loss makes
its gradients in the forward pass.

Losses are in their KL form, which differs from the paper's cross-entropy by
the entropy of the target alone: same gradients, and 0 for a perfect student.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .precision import at_least_fp32, no_autocast, normalize_fp32

__all__ = [
    'assignments',
    'bag_assignment_loss',
    'summarize_assignments',
    'token_assignment_loss',
]


def assignments(tokens: Tensor, words: Tensor, sharpness: Tensor) -> Tensor:
    """Soft-assign tokens to the codebook, q_T (paper, section 3.1).

    Args:
        tokens (Tensor): Teacher tokens, (..., D), any float dtype.
        words (Tensor): Codebook C of unit rows, (K, D).
        sharpness (Tensor): Inverse temperature of the softmax, a scalar.

    Returns:
        Tensor: Assignment vectors that sum to 1, (..., K), float32.
    """
    with no_autocast(tokens):
        similarity = normalize_fp32(tokens) @ words.T
        return (similarity * sharpness).softmax(dim=-1)


def summarize_assignments(
    tokens: Tensor,
    words: Tensor,
    sharpness: Tensor,
    inner: Tensor,
    chunk_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Bags of codes y_T and the spread of the similarities, per image.

    Args:
        tokens (Tensor): Teacher tokens, (N, L, D).
        words (Tensor): Codebook C of unit rows, (K, D).
        sharpness (Tensor): Inverse temperature of the softmax, a scalar.
        inner (Tensor): Indices of the patches that count for the bag,
            (n_inner, ).
        chunk_size (int, optional): Tokens at a time. Defaults to None, by
            the device.

    Returns:
        Tuple[Tensor, Tensor]: Mean assignment vector of each image's inner
        patches, (N, K), and the mean over its L tokens of the largest minus
        the mean similarity (MSD), (N, ); both float32.
    """
    chunk_size = chunk_size or _chunk_size(tokens, words)
    images_a_chunk = max(1, chunk_size // tokens.shape[1])
    bags, spreads = [], []
    with no_autocast(tokens):
        for chunk in tokens.split(images_a_chunk):
            similarity = normalize_fp32(chunk) @ words.T  # (n, L, K)
            spread = similarity.amax(dim=2) - similarity.mean(dim=2)
            spreads.append(spread.mean(dim=1))
            similarity = similarity[:, inner] * sharpness
            bags.append(similarity.softmax(dim=2).mean(dim=1))
    return torch.cat(bags), torch.cat(spreads)


def bag_assignment_loss(
    embeddings: Tensor, prototypes: Tensor, kappa: float, bags: Tensor
) -> Tensor:
    """L_IMG of one masking round (paper, equations 5 and 6).

    Args:
        embeddings (Tensor): Image embeddings, (N, D), not normalised.
        prototypes (Tensor): W^b of unit rows, (K, D).
        kappa (float): Inverse temperature of the prediction.
        bags (Tensor): Target bag of codes of the opposite view, (N, K).

    Returns:
        Tensor: Mean KL divergence over the N samples, a scalar.
    """
    with no_autocast(embeddings):
        logits = kappa * at_least_fp32(embeddings) @ prototypes.T
        log_prediction = logits.log_softmax(dim=1)
        return F.kl_div(log_prediction, bags, reduction='batchmean')


def token_assignment_loss(
    features: Tensor,
    prototypes: Tensor,
    kappa: float,
    tokens: Tensor,
    words: Tensor,
    sharpness: Tensor,
    chunk_size: int | None = None,
) -> Tensor:
    """L_LOC of one masking round (paper, equations 2 to 4).

    The assignments q_T are recomputed from the teacher's tokens chunk by
    chunk, together with the gradients: memory is O(chunk_size * K) instead
    of O(N * K).

    Args:
        features (Tensor): Decoder outputs, (N, d).
        prototypes (Tensor): W^d of unit rows, (K, d).
        kappa (float): Inverse temperature of the prediction.
        tokens (Tensor): Teacher tokens of the same view and patch, (N, D).
        words (Tensor): Codebook C of unit rows, (K, D).
        sharpness (Tensor): Inverse temperature of the targets, a scalar.
        chunk_size (int, optional): Tokens at a time. Defaults to None, by
            the device.

    Returns:
        Tensor: Mean KL divergence over the N tokens, a scalar.
    """
    chunk_size = chunk_size or _chunk_size(features, words)
    return _TokenAssignmentLoss.apply(
        features, prototypes, kappa, tokens, words, sharpness, chunk_size
    )


class _TokenAssignmentLoss(torch.autograd.Function):
    """Chunked KL divergence that computes its gradients on the way."""

    @staticmethod
    def forward(
        ctx,
        features: Tensor,
        prototypes: Tensor,
        kappa: float,
        tokens: Tensor,
        words: Tensor,
        sharpness: Tensor,
        chunk_size: int,
    ) -> Tensor:
        with no_autocast(features):
            # The same prototypes serve both matrix products with kappa in.
            scaled = kappa * at_least_fp32(prototypes)  # (K, d)
            total = scaled.new_zeros(())
            grad_features = torch.empty_like(features, dtype=scaled.dtype)
            grad_prototypes = torch.zeros_like(scaled)
            for x, t, grad_x in zip(
                features.split(chunk_size),
                tokens.split(chunk_size),
                grad_features.split(chunk_size),
            ):
                x = at_least_fp32(x)
                log_q = (normalize_fp32(t) * sharpness) @ words.T  # (n, K)
                log_q = log_q.log_softmax(dim=1)
                log_p = (x @ scaled.T).log_softmax(dim=1)
                q = log_q.exp()
                total += torch.dot(q.flatten(), log_q.sub_(log_p).flatten())
                grad_logits = log_p.exp_().sub_(q)
                torch.mm(grad_logits, scaled, out=grad_x)
                grad_prototypes.addmm_(grad_logits.T, x, alpha=kappa)
        ctx.save_for_backward(grad_features, grad_prototypes)
        ctx.dtypes = features.dtype, prototypes.dtype
        return total / len(features)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output: Tensor) -> tuple:
        grad_features, grad_prototypes = ctx.saved_tensors
        scale = grad_output / len(grad_features)
        # Scaled before the cast: fp16 would lose unscaled gradients.
        return (
            (grad_features * scale).to(ctx.dtypes[0]),
            (grad_prototypes * scale).to(ctx.dtypes[1]),
            None,
            None,
            None,
            None,
            None,
        )


def _chunk_size(tensor: Tensor, words: Tensor) -> int:
    """Tokens whose assignments take 16 MiB on a CPU, 256 MiB elsewhere."""
    numbers = 2**22 if tensor.device.type == 'cpu' else 2**26
    return max(1, numbers // len(words))
