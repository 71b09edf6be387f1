# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The losses of predicted soft assignments, as pure functions.

A softmax over K = 4096 words for every token of a batch would be by far the
largest tensor of a MOCA step. These functions compute it in chunks of tokens,
and the token loss computes its gradients in the forward pass.

Losses are KL divergences. They differ from the paper's cross-entropies by the
entropy of the target: the gradients are the same, and a perfect student has a
loss of 0.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .precision import (
    add_product,
    at_least_fp32,
    no_autocast,
    normalize_fp32,
    product,
)
from .targets import Targets


def bag_assignment_loss(
    embeddings: Tensor, prototypes: Tensor, kappa: float, bags: Tensor
) -> Tensor:
    """Compute L_IMG of one masking round (paper, equations 5 and 6).

    Args:
        embeddings (Tensor): Image embeddings, (N, D), not normalised.
        prototypes (Tensor): W^b, whose rows have unit norm, (K, D).
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
    allow_tf32: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute L_LOC of all masking rounds, and the bags of codes.

    Paper, equations 2 to 4. Each teacher token is assigned once, for the bags
    and for all rounds that predict it, and the gradients are computed at the
    same time. Memory is O(chunk_size * L * K) instead of O(N * L * K).

    Args:
        features (Sequence[Tensor]): Decoder outputs of each round,
            (N, n, d).
        positions (Sequence[Tensor]): Patch index of each decoder output,
            (N, n).
        prototypes (Tensor): W^d, whose rows have unit norm, (K, d).
        kappa (float): Inverse temperature of the prediction.
        targets (Targets): Targets of the same N views, with L tokens each.
        chunk_size (int | None): Number of views at a time. Defaults to None:
            as many as suit the device.
        allow_tf32 (bool): Whether a GPU may use TF32. See
            :func:`~mmmoca.models.precision.product`. Defaults to True.

    Returns:
        tuple[Tensor, Tensor, Tensor]: The KL divergence, a scalar averaged
        over the tokens of each round and over the rounds, followed by the two
        results of :func:`bags_of_codes`.
    """
    if chunk_size is None:
        # A chunk's assignments take 8 MiB on a CPU, where smaller products are
        # slow and larger ones do not fit into the cache. On other devices they
        # take 256 MiB.
        tokens, words = targets.tokens, targets.words
        numbers = 2**21 if tokens.device.type == 'cpu' else 2**26
        chunk_size = max(1, numbers // (tokens.shape[1] * len(words)))
    return _TokenAssignmentLoss.apply(
        kappa,
        chunk_size,
        allow_tf32 and targets.tokens.device.type == 'cuda',
        tuple(positions),
        tuple(targets[:4]),
        prototypes,
        *features,
    )


def bags_of_codes(
    targets: Targets, chunk_size: int | None = None, allow_tf32: bool = True
) -> tuple[Tensor, Tensor]:
    """Compute bags of codes and MSD, without L_LOC (paper, section 3.2).

    Args:
        targets (Targets): Targets of N views with L tokens each.
        chunk_size (int | None): See :func:`token_assignment_loss`.
        allow_tf32 (bool): See :func:`token_assignment_loss`.

    Returns:
        tuple[Tensor, Tensor]: Two float32 tensors without gradient. The bag of
        codes y_T, (N, K), is the mean assignment of a view's inner patches.
        The mean similarity difference (MSD), (N, ), is a token's largest
        similarity minus its mean similarity to the words, averaged over a
        view's L tokens.
    """
    return token_assignment_loss(
        (), (), None, 1.0, targets, chunk_size, allow_tf32
    )[1:]


class _TokenAssignmentLoss(torch.autograd.Function):
    """KL divergence, computed in chunks together with its gradients."""

    @staticmethod
    def forward(
        ctx,
        kappa: float,
        chunk_size: int,
        tf32: bool,
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
            # All rounds side by side. `grads` holds the features until the
            # loop overwrites them with their gradients.
            grads = torch.cat([at_least_fp32(x) for x in features], dim=1)
            position = torch.cat(positions, dim=1)  # (N, n)
            weight = torch.cat(
                [words.new_full((n,), 1 / (num * n)) for n in counts]
            ) / len(counts)
            scaled = kappa * at_least_fp32(prototypes)  # (K, d)
            grad_prototypes = torch.zeros_like(scaled)
        # On a CPU all chunks share the same buffers, since the system clears
        # blocks of this size at each allocation. Other devices and the
        # compiler manage memory themselves.
        rows = chunk_size * max(length, sum(counts))
        scratch: Sequence[Tensor | None] = (None,) * 3
        if words.device.type == 'cpu' and not torch.compiler.is_compiling():
            scratch = [words.new_empty(rows, num_words) for _ in range(3)]
        with no_autocast(tokens):
            for start in range(0, num, chunk_size):
                part = slice(start, start + chunk_size)
                # Factors are applied to tokens, features and gradients,
                # because tensors with K columns are larger.
                sharp = normalize_fp32(tokens[part]).flatten(0, 1) * sharpness
                buffers = _rows(scratch, len(sharp))
                similarity = product(sharp, words.T, tf32, buffers[0])
                codes, negentropy, largest = _assign(similarity, *buffers[1:])
                spread = (largest - sharp @ mean_word) / sharpness  # (m, )
                msd[part] = spread.view(-1, length).mean(dim=1)
                bags[part] = average @ codes.unflatten(0, (-1, length))
                del similarity
                if not features:
                    continue
                first_row = torch.arange(
                    0, len(sharp), length, device=tokens.device
                )
                index = (position[part] + first_row[:, None]).flatten()
                buffers = _rows(scratch, len(index))
                x = grads[part].flatten(0, 1)  # (m, d)
                logits = product(x, scaled.T, tf32, buffers[0])
                divergence, grad_logits = _compare(
                    logits, codes, negentropy, index, *buffers[1:]
                )
                del logits, codes
                row_weight = weight.repeat(len(first_row))
                # torch.compile would lose the gradients of `loss +=`.
                loss = loss + divergence @ row_weight
                row_weight = kappa * row_weight[:, None]
                add_product(
                    grad_prototypes, grad_logits.T, x * row_weight, tf32
                )
                grad_x = product(grad_logits, at_least_fp32(prototypes), tf32)
                x.copy_(grad_x * row_weight)
                del grad_logits
        if features:
            ctx.save_for_backward(grad_prototypes, *grads.split(counts, dim=1))
            ctx.dtypes = [x.dtype for x in (prototypes, *features)]
        ctx.mark_non_differentiable(bags, msd)
        return loss, bags, msd

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_loss: Tensor, *_: Tensor) -> tuple:
        # Scaled before the cast: fp16 would lose small gradients.
        grads = [
            (grad * grad_loss).to(dtype)
            for grad, dtype in zip(ctx.saved_tensors, ctx.dtypes)
        ]
        return *[None] * 5, *(grads or [None])


def _assign(
    similarity: Tensor,
    first: Tensor | None = None,
    second: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute each row's softmax, its negative entropy, and the row maximum.

    Args:
        similarity (Tensor): Similarities times the sharpness, (m, K).
        first (Tensor, optional): Memory for the softmax, (m, K).
        second (Tensor, optional): Temporary memory, (m, K).

    Returns:
        tuple[Tensor, Tensor, Tensor]: The softmax, (m, K), the negative
        entropy, (m, ), and the maximum, (m, ).
    """
    codes = torch.softmax(similarity, dim=1, out=first)
    largest = similarity.amax(dim=1)
    mean = torch.mul(codes, similarity, out=second).sum(dim=1)
    return codes, mean - _log_sum_exp(largest, codes), largest


def _compare(
    logits: Tensor,
    codes: Tensor,
    negentropy: Tensor,
    index: Tensor,
    first: Tensor | None = None,
    second: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute KL(target || prediction) of each row, and its gradient.

    Args:
        logits (Tensor): Logits of the predictions, (m, K).
        codes (Tensor): Assignments of a chunk's tokens, (M, K). They are
            overwritten if ``first`` is their memory.
        negentropy (Tensor): Negative entropy of the assignments, (M, ).
        index (Tensor): For each prediction, the row of its target in
            ``codes``, (m, ).
        first (Tensor, optional): Memory for the gradient, (m, K).
        second (Tensor, optional): Temporary memory, (m, K).

    Returns:
        tuple[Tensor, Tensor]: The divergence, (m, ), and its gradient with
        respect to the logits, (m, K).
    """
    target = torch.index_select(codes, 0, index, out=second)
    mean = torch.mul(target, logits, out=first).sum(dim=1)
    prediction = torch.softmax(logits, dim=1, out=first)
    log_sum_exp = _log_sum_exp(logits.amax(dim=1), prediction)
    divergence = negentropy[index] - mean + log_sum_exp
    return divergence, prediction.sub_(target)


def _log_sum_exp(largest: Tensor, softmax: Tensor) -> Tensor:
    """Return log-sum-exp, (m, ), from the maximum and softmax, (m, K)."""
    return largest - softmax.amax(dim=1).log()


def _rows(scratch: Sequence[Tensor | None], count: int) -> list[Tensor | None]:
    """Take the first rows of each buffer.

    A missing buffer stays None, so that PyTorch allocates new memory.
    """
    return [part if part is None else part[:count] for part in scratch]
