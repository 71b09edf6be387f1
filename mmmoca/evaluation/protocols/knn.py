# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Weighted k-NN classification on L2-normalised features."""

from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor

from mmmoca.messages import listed

from ..bank import ShardedBank
from ..features import FeatureShard

ONE_CLASS = (
    'k-NN needs labelled images of at least two classes: put each class '
    'into its own folder, <data_root>/{train,val}/<class>/<image>'
)


def knn_settings(
    k: int | Sequence[int], temperature: float | Sequence[float]
) -> list[tuple[str, int, float]]:
    """Return each pair of k and temperature, with the name of its metrics.

    Args:
        k (int or Sequence[int]): One or several numbers of neighbours.
        temperature (float or Sequence[float]): One or several values of T.

    Returns:
        list[tuple[str, int, float]]: Name ('k20', or 'k20_t0.07' if several
        T are tried), k and T.

    Raises:
        ValueError: If a k or T is out of range, or if there is none.
    """
    ks, ts = np.atleast_1d(k), np.atleast_1d(temperature).astype(float)
    whole = ks.dtype.kind == 'i'
    if not (ks.size and ts.size and whole and ks.min() > 0 and ts.min() > 0):
        raise ValueError(
            'each k must be an integer of at least 1, and each temperature a '
            'number above 0, such as k=(10, 20), temperature=0.07, but got '
            f'k={k!r}, temperature={temperature!r}'
        )
    return [
        (f'k{n}_t{t:g}' if len(ts) > 1 else f'k{n}', n, t)
        for n in ks.tolist()
        for t in ts.tolist()
    ]


def small_bank(
    settings: Sequence[tuple[str, int, float]], size: int
) -> str | None:
    """Return a sentence if a bank has fewer images than the k of a setting.

    Args:
        settings (Sequence[tuple[str, int, float]]): See :func:`knn_settings`.
        size (int): Number of images in the bank.

    Returns:
        str: A sentence; None if the bank has enough images.
    """
    large = sorted({k for _, k, _ in settings if k > size})
    if not large:
        return None
    return (
        f'k = {listed(large)} is more than the {size} images of the bank, so '
        'all of them vote'
    )


def knn_vote(
    sims: Tensor, labels: Tensor, num_classes: int, temperature: float
) -> Tensor:
    """Let neighbours vote for their classes with weight exp(sim / T).

    The weights of a query are divided by their sum. This changes no decision,
    and avoids an overflow at a low temperature.

    Args:
        sims (Tensor): Similarities of the neighbours, (Q, k).
        labels (Tensor): Their labels in [0, num_classes), int64, (Q, k).
        num_classes (int): Number of classes C.
        temperature (float): T, above 0.

    Returns:
        Tensor: Share of the votes per class, (Q, C); each row sums to 1.
    """
    weights = (sims / temperature).softmax(1)
    votes = sims.new_zeros(len(sims), num_classes)
    return votes.scatter_add_(1, labels.to(sims.device), weights)


def knn_predictions(
    bank: FeatureShard,
    queries: FeatureShard,
    settings: Sequence[tuple[str, int, float]],
    num_classes: int = 0,
) -> Iterator[list[dict]]:
    """Classify images by a vote of the most similar images in a bank.

    All ranks call this together, each with its part of the bank and of the
    queries. The result does not depend on the number of ranks.

    Args:
        bank (FeatureShard): Labelled images; rows L2-normalised. If there are
            fewer than k, all of them vote.
        queries (FeatureShard): Images to classify; rows L2-normalised.
        settings (Sequence[tuple[str, int, float]]): See :func:`knn_settings`.
        num_classes (int): C, the number of classes. If the bank has a label
            of C or more, C becomes the largest label + 1. Defaults to 0.

    Yields:
        list[dict]: Batches of queries, with a dict for each query:
        ``sample_idx``, ``num_classes``, ``gt_label``, ``knn_pred`` (setting ->
        the labels that got votes, at most five, best first), ``pred_score``,
        (C,), and ``pred_label``, (1,). The last two come from the first
        setting.

    Raises:
        ValueError: If the bank has only one class, or images without a class,
            or if features of the bank and of the queries differ in length.
    """
    length, other = bank.feats.shape[-1], queries.feats.shape[-1]
    if len(bank.feats) and len(queries.feats) and length != other:
        raise ValueError(
            f'features of the bank have {length} dimensions, and those of the '
            f'images to classify {other}: resize and crop both sets alike'
        )
    shared = ShardedBank(bank)
    known = shared.class_labels
    if len(known) < 2 or known[0] < 0:
        raise ValueError(ONE_CLASS)
    num_classes = max(num_classes, int(known[-1]) + 1)
    max_k = max(k for _, k, _ in settings)
    for ids, feats, truth in zip(*(part.split(256) for part in queries)):
        sims, _, labels = shared.search(feats, max_k)
        samples: list[dict] = [
            dict(
                sample_idx=index,
                num_classes=num_classes,
                gt_label=label,
                knn_pred={},
            )
            for index, label in zip(ids.tolist(), truth.unsqueeze(1))
        ]
        for name, k, t in settings:
            shares = knn_vote(sims[:, :k], labels[:, :k], num_classes, t).cpu()
            best = shares.topk(min(5, num_classes))
            for sample, share, votes, classes in zip(samples, shares, *best):
                sample['knn_pred'][name] = classes[votes > 0].tolist()
                sample.setdefault('pred_score', share)
                sample.setdefault('pred_label', classes[:1])
        yield samples
    shared.serve(max_k)
