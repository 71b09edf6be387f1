# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Logistic regression on frozen features, for the low-shot protocol.

The regression is the one of MSN and of the authors' code. The caller chooses
the feature: [CLS] in MSN and the mean patch token in MOCA, both before the
final norm.
"""

import time
import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.dist import all_reduce, get_rank, get_world_size
from mmengine.logging import print_log
from torch import Tensor

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression


def low_shot_features(feats: Tensor) -> Tensor:
    """Subtract its mean from each row, then L2-normalise it.

    Args:
        feats (Tensor): (N, D).

    Returns:
        Tensor: (N, D).
    """
    return F.normalize(feats - feats.mean(dim=1, keepdim=True), dim=1)


def fit_low_shot(
    feats: np.ndarray,
    labels: np.ndarray,
    regularization: float = 0.1,
    max_iter: int = 300,
    tol: float = 1e-4,
) -> tuple['LogisticRegression', bool]:
    """Multinomial logistic regression without intercept.

    Minimises the sum of the samples' cross-entropies plus lambda / 2 times
    the squared norm of the weights. (Cyanure, which the paper and MSN use,
    takes the mean: its lambda is this one divided by the number of samples.)

    Args:
        feats (np.ndarray): :func:`low_shot_features` of the training images,
            (n, D).
        labels (np.ndarray): Their labels, (n,).
        regularization (float): Lambda. Defaults to 0.1.
        max_iter (int): Iterations of L-BFGS. Defaults to 300.
        tol (float): L-BFGS stops when no entry of the gradient of that sum
            is larger, whatever n. Defaults to 1e-4.

    Returns:
        tuple[LogisticRegression, bool]: Fitted, and whether it converged.
    """
    # Not needed for pretraining, so not for the import of the loops either.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    c = 1 / regularization
    if len(np.unique(labels)) == 2:
        # Here scikit-learn fits one weight vector, the difference of the
        # softmax's two, with twice the squared norm of both together.
        c *= 2
    # scikit-learn 1.4 and later minimise the mean over the n samples, so tol
    # is divided by n. In float32 the gradient stalls above that: float64.
    classifier = LogisticRegression(
        C=c, fit_intercept=False, max_iter=max_iter, tol=tol / len(labels)
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        classifier.fit(feats.astype(np.float64), labels)
    converged = not any(w.category is ConvergenceWarning for w in caught)
    return classifier, converged


def low_shot_predictions(
    feats: Tensor,
    labels: Tensor,
    query: Tensor,
    subsets: dict[str, list[list[int]]],
    **fit,
) -> tuple[Tensor, list[str]]:
    """Classify by one regression for each set of each subset.

    They are shared out over the ranks. Called by all ranks together.

    Args:
        feats (Tensor): :func:`low_shot_features` of all training images,
            (n, D), on every rank.
        labels (Tensor): Their labels, (n,).
        query (Tensor): The same of the images to classify, (N, D).
        subsets (dict[str, list[list[int]]]): Name -> rows of each set.
        **fit: Arguments of :func:`fit_low_shot`.

    Returns:
        tuple[Tensor, list[str]]: Predicted labels by each regression in
        order, int64, (N, fits); and which of them have not converged.
    """
    fits = [
        (f'{name}, set {number}', rows)
        for name, sets in subsets.items()
        for number, rows in enumerate(sets)
    ]
    predictions = torch.zeros(len(query), len(fits), dtype=torch.int64)
    converged = torch.zeros(len(fits), dtype=torch.int64)
    known, truth = feats.numpy(), labels.numpy()
    for index in range(get_rank(), len(fits), get_world_size()):
        name, rows = fits[index]
        start = time.time()
        classifier, converged[index] = fit_low_shot(
            known[rows], truth[rows], **fit
        )
        predicted = classifier.predict(query.numpy())
        predictions[:, index] = torch.from_numpy(predicted)
        print_log(
            f'low-shot {name}: {len(rows)} images of '
            f'{len(classifier.classes_)} classes, '
            f'{classifier.n_iter_[0]} iterations, {time.time() - start:.1f} s',
            logger='current',
        )
    all_reduce(predictions)
    all_reduce(converged)
    failed = [name for (name, _), good in zip(fits, converged) if not good]
    return predictions, failed


def low_shot_results(
    subsets: dict[str, list[list[int]]], accuracies: list[float]
) -> list[dict]:
    """Accuracies of all sets, with mean and deviation of each subset.

    Args:
        subsets (dict[str, list[list[int]]]): Name -> images of each set.
        accuracies (list[float]): One for each set of each subset, in order.

    Returns:
        list[dict]: ``subset``, the numbers of ``images``, ``top1`` of each
        set, and their ``mean`` and ``std`` (of the sets as the whole
        population).
    """
    ends = np.cumsum([len(sets) for sets in subsets.values()])
    return [
        dict(
            subset=name,
            images=[len(rows) for rows in sets],
            top1=top1.tolist(),
            mean=float(top1.mean()),
            std=float(top1.std()),
        )
        for (name, sets), top1 in zip(
            subsets.items(), np.split(np.array(accuracies), ends)
        )
    ]
