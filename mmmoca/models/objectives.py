# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The losses that predict soft assignments, as pure functions.

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
from .targets import Targets

__all__ = ['bag_assignment_loss', 'bags_of_codes', 'token_assignment_loss']


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
    prototypes: Tensor,
    kappa: float,
    targets: Targets,
    chunk_size: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """L_LOC of all masking rounds, and the bags of codes on the way.

    Paper, equations 2 to 4. Assigns each teacher token once, for the bags
    and for whichever rounds predict it, and makes the gradients at the same
    time: memory is O(chunk_size * L * K) instead of O(N * L * K).

    Args:
        features (Sequence[Tensor]): Decoder outputs of each round,
            (N, n, d).
        positions (Sequence[Tensor]): Patch index of each of them, (N, n).
        prototypes (Tensor): W^d of unit rows, (K, d).
        kappa (float): Inverse temperature of the prediction.
        targets (Targets): Of the same views, N images of L tokens.
        chunk_size (int | None): Images at a time. Defaults to None, by the
            device.

    Returns:
        tuple[Tensor, Tensor, Tensor]: The KL divergence, a mean over the
        tokens of a round and over rounds, a scalar, and what
        :func:`bags_of_codes` returns.
    """
    if chunk_size is None:
        # Assignments of 8 MiB on a CPU, where smaller chunks make slower
        # products and larger ones leave the cache, and 256 MiB elsewhere.
        tokens, words = targets.tokens, targets.words
        numbers = 2**21 if tokens.device.type == 'cpu' else 2**26
        chunk_size = max(1, numbers // (tokens.shape[1] * len(words)))
    return _TokenAssignmentLoss.apply(
        kappa,
        chunk_size,
        tuple(positions),
        tuple(targets[:4]),
        prototypes,
        *features,
    )


def bags_of_codes(
    targets: Targets, chunk_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """The targets of L_IMG (paper, section 3.2), without those of L_LOC.

    Args:
        targets (Targets): Of N images with L tokens.
        chunk_size (int | None): See :func:`token_assignment_loss`.

    Returns:
        tuple[Tensor, Tensor]: The bag of codes y_T of each image, the mean
        assignment of its inner patches, (N, K); and the mean over its L
        tokens of the largest minus the mean similarity (MSD), (N, ). In
        float32, without gradient.
    """
    return token_assignment_loss((), (), None, 1.0, targets, chunk_size)[1:]


class _TokenAssignmentLoss(torch.autograd.Function):
    """Chunked KL divergence that computes its gradients on the way."""

    @staticmethod
    def forward(
        ctx,
        kappa: float,
        chunk_size: int,
        positions: tuple[Tensor, ...],
        targets: tuple[Tensor, ...],
        prototypes: Tensor | None,
        *features: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        tokens, words, sharpness, inner = targets
        (num, length), num_words = tokens.shape[:2], len(words)
        chunk_size = min(chunk_size, num)
        loss = words.new_zeros(())
        bags = words.new_empty(num, num_words)
        msd = words.new_empty(num)
        mean_word = words.mean(dim=0)
        average = words.new_zeros(length)
        average[inner] = 1 / len(inner)
        counts = [position.shape[1] for position in positions]
        if features:
            # All rounds side by side; gradients will overwrite the features.
            grads = torch.cat([at_least_fp32(x) for x in features], dim=1)
            position = torch.cat(positions, dim=1)  # (N, n)
            weight = torch.cat(
                [words.new_full((n,), 1 / (num * n)) for n in counts]
            ) / len(counts)
            scaled = at_least_fp32(prototypes)  # (K, d)
            grad_prototypes = torch.zeros_like(scaled)
        # All chunks share it: blocks of this size that are freed go back to
        # the system, which clears them before it gives them out again. A
        # compiler plans memory itself.
        rows = chunk_size * max(length, sum(counts))
        scratch = (None,) * 3
        if not torch.compiler.is_compiling():
            scratch = [words.new_empty(rows, num_words) for _ in range(3)]
        with no_autocast(tokens):
            for start in range(0, num, chunk_size):
                part = slice(start, start + chunk_size)
                unit = normalize_fp32(tokens[part]).flatten(0, 1)  # -> (m, D)
                first, second, third = _rows(scratch, len(unit))
                similarity = torch.mm(unit, words.T, out=first)
                spread = similarity.amax(dim=1) - unit @ mean_word
                msd[part] = spread.view(-1, length).mean(dim=1)
                similarity.mul_(sharpness)
                log_q = torch.log_softmax(similarity, dim=1, out=second)
                codes = torch.exp(log_q, out=third)
                bags[part] = average @ codes.unflatten(0, (-1, length))
                if not features:
                    continue
                negentropy = log_q.mul_(codes).sum(dim=1)
                first_row = torch.arange(
                    0, len(unit), length, device=tokens.device
                )
                index = (position[part] + first_row[:, None]).flatten()
                first, second, third = _rows(scratch, len(index))
                x = grads[part].flatten(0, 1).mul_(kappa)  # (m, d)
                logits = torch.mm(x, scaled.T, out=first)
                log_p = torch.log_softmax(logits, dim=1, out=second)
                q = torch.index_select(codes, 0, index, out=first)
                cross_entropy = -torch.mul(q, log_p, out=third).sum(dim=1)
                divergence = negentropy[index] + cross_entropy
                row_weight = weight.repeat(len(first_row))
                # In place, torch.compile would lose the gradients.
                loss = loss + divergence @ row_weight
                grad_logits = log_p.exp_().sub_(q).mul_(row_weight[:, None])
                grad_prototypes.addmm_(grad_logits.T, x)
                torch.mm(grad_logits, scaled, out=x).mul_(kappa)
        if features:
            ctx.save_for_backward(grad_prototypes, *grads.split(counts, dim=1))
            ctx.dtypes = [x.dtype for x in (prototypes, *features)]
        ctx.mark_non_differentiable(bags, msd)
        return loss, bags, msd

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_loss: Tensor, *_: Tensor) -> tuple:
        # Scaled before the cast: fp16 would lose unscaled gradients.
        grads = [
            (grad * grad_loss).to(dtype)
            for grad, dtype in zip(ctx.saved_tensors, ctx.dtypes)
        ]
        return *[None] * 4, *(grads or [None])


def _rows(scratch: Sequence[Tensor | None], count: int) -> list[Tensor | None]:
    """The first rows of each, or None for new memory."""
    return [part if part is None else part[:count] for part in scratch]
