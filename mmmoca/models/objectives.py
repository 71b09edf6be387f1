# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Soft assignments and the losses that predict them, as pure functions.

A softmax over K = 4096 words for every token of a batch is by far the
largest tensor of a MOCA step, so none of these functions ever holds it for
all tokens: they go through the tokens in chunks, and the token loss makes
its gradients in the forward pass.

Losses are in their KL form, which differs from the paper's cross-entropy by
the entropy of the target alone: same gradients, and 0 for a perfect student.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .precision import at_least_fp32, no_autocast, normalize_fp32

__all__ = [
    'assignments',
    'bag_assignment_loss',
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
    features: Sequence[Tensor],
    positions: Sequence[Tensor],
    prototypes: Tensor | None,
    kappa: float,
    tokens: Tensor,
    words: Tensor,
    sharpness: Tensor,
    inner: Tensor,
    chunk_size: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """L_LOC of all masking rounds, and the bags of codes on the way.

    Paper, equations 2 to 4. Assigns each teacher token once, for the bags
    and for whichever rounds predict it, and makes the gradients at the same
    time: memory is O(chunk_size * L * K) instead of O(N * L * K).

    Args:
        features (Sequence[Tensor]): Decoder outputs of each round,
            (N, n, d); empty if there is no decoder.
        positions (Sequence[Tensor]): Patch index of each of them, (N, n).
        prototypes (Tensor | None): W^d of unit rows, (K, d).
        kappa (float): Inverse temperature of the prediction.
        tokens (Tensor): Teacher tokens of the same views, (N, L, D).
        words (Tensor): Codebook C of unit rows, (K, D).
        sharpness (Tensor): Inverse temperature of the targets, a scalar.
        inner (Tensor): Indices of the patches that count for the bags,
            (n_inner, ).
        chunk_size (int | None): Images at a time. Defaults to None, by the
            device.

    Returns:
        tuple[Tensor, Tensor, Tensor]: The KL divergence, a mean over the
        tokens of a round and over rounds, a scalar; the bag of codes y_T of
        each image, the mean assignment of its inner patches, (N, K); and
        the mean over its L tokens of the largest minus the mean similarity
        (MSD), (N, ). The last two in float32, without gradient.
    """
    if chunk_size is None:
        # Assignments of 8 MiB on a CPU, 256 MiB elsewhere.
        numbers = 2**21 if tokens.device.type == 'cpu' else 2**26
        chunk_size = max(1, numbers // (tokens.shape[1] * len(words)))
    return _TokenAssignmentLoss.apply(
        kappa,
        chunk_size,
        tuple(positions),
        tokens,
        words,
        sharpness,
        inner,
        prototypes,
        *features,
    )


class _TokenAssignmentLoss(torch.autograd.Function):
    """Chunked KL divergence that computes its gradients on the way."""

    @staticmethod
    def forward(
        ctx,
        kappa: float,
        chunk_size: int,
        positions: tuple[Tensor, ...],
        tokens: Tensor,
        words: Tensor,
        sharpness: Tensor,
        inner: Tensor,
        prototypes: Tensor | None,
        *features: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype = words.dtype
        loss = words.new_zeros(())
        bags = words.new_empty(len(tokens), len(words))
        spreads = words.new_empty(len(tokens))
        grads = [torch.empty_like(x, dtype=dtype) for x in features]
        if features:
            # The same prototypes serve both matrix products, kappa included.
            scaled = kappa * at_least_fp32(prototypes)  # (K, d)
            grads.append(torch.zeros_like(scaled))
        with no_autocast(tokens):
            for start in range(0, len(tokens), chunk_size):
                part = slice(start, start + chunk_size)
                similarity = normalize_fp32(tokens[part]) @ words.T
                spread = similarity.amax(dim=2) - similarity.mean(dim=2)
                spreads[part] = spread.mean(dim=1)
                log_q = similarity.mul_(sharpness).log_softmax(dim=2)
                del similarity
                bags[part] = log_q[:, inner].exp_().mean(dim=1)
                image = torch.arange(len(log_q), device=tokens.device)
                for x, position, grad in zip(features, positions, grads):
                    weight = 1 / (len(features) * position.numel())
                    x = at_least_fp32(x[part]).flatten(0, 1)  # -> (n, d)
                    log_p = (x @ scaled.T).log_softmax(dim=1)
                    target = log_q[image[:, None], position[part]]
                    target = target.flatten(0, 1)  # -> (n, K)
                    q = target.exp()
                    divergence = torch.dot(
                        q.flatten(), target.sub_(log_p).flatten()
                    )
                    # In place, torch.compile would lose the gradients.
                    loss = loss + weight * divergence
                    grad_logits = log_p.exp_().sub_(q).mul_(weight)
                    torch.mm(grad_logits, scaled, out=grad[part].view(x.shape))
                    grads[-1].addmm_(grad_logits.T, x, alpha=kappa)
        ctx.save_for_backward(*grads)
        ctx.dtypes = [x.dtype for x in features]
        if features:
            ctx.dtypes.append(prototypes.dtype)
        ctx.mark_non_differentiable(bags, spreads)
        return loss, bags, spreads

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_loss: Tensor, *_: Tensor) -> tuple:
        # Scaled before the cast: fp16 would lose unscaled gradients.
        *grads, grad_prototypes = [
            (grad * grad_loss).to(dtype)
            for grad, dtype in zip(ctx.saved_tensors, ctx.dtypes)
        ] or [None]
        return (*[None] * 7, grad_prototypes, *grads)
