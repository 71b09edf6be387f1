# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Logistic regression on frozen features, for the low-shot protocol.

MSN and the code of MOCA's authors use this regression, too. The caller chooses
the feature: [CLS] in MSN and the mean patch token in MOCA, both before the
final norm.
"""

import logging
import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.dist import all_reduce, get_rank, get_world_size
from mmengine.logging import print_log
from torch import Tensor

from mmmoca.progress import progress_bar

from ..features import FeatureShard
from ..gather import gather_samples

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression


def low_shot_features(feats: Tensor) -> Tensor:
    """Subtract each row's mean from the row, then L2-normalise it.

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
    """Fit a multinomial logistic regression without intercept.

    It minimises the sum of the samples' cross-entropies plus lambda / 2 times
    the squared norm of the weights. (Cyanure, which the paper and MSN use,
    takes the mean instead of the sum: its lambda is the lambda here divided by
    the number of samples.)

    Args:
        feats (np.ndarray): :func:`low_shot_features` of the training images,
            (n, D).
        labels (np.ndarray): Their labels, (n,).
        regularization (float): Lambda. Defaults to 0.1.
        max_iter (int): Iterations of L-BFGS. Defaults to 300.
        tol (float): L-BFGS stops when no entry of the gradient of the
            minimised sum exceeds ``tol``, whatever n is. Defaults to 1e-4.

    Returns:
        tuple[LogisticRegression, bool]: The fitted classifier, and whether it
        converged.
    """
    # Imported here because pretraining and the other protocols work without
    # scikit-learn.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    c = 1 / regularization
    if len(np.unique(labels)) == 2:
        # For two classes, scikit-learn fits a single weight vector: the
        # difference 2 w between a softmax's two vectors, w and -w. It
        # penalises 4 |w|^2, twice the softmax's |w|^2 + |-w|^2. Doubling C
        # makes up for this.
        c *= 2
    # scikit-learn 1.4 and later minimise the mean over the n samples, so tol
    # is divided by n. The features are float64, because in float32 the
    # gradient would stall above that tolerance.
    classifier = LogisticRegression(
        C=c, fit_intercept=False, max_iter=max_iter, tol=tol / len(labels)
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        classifier.fit(feats.astype(np.float64), labels)
    converged = not any(w.category is ConvergenceWarning for w in caught)
    return classifier, converged


def low_shot_predictions(
    train: FeatureShard,
    test: FeatureShard,
    subsets: dict[str, list[list[int]]],
    **fit,
) -> list[dict]:
    """Classify images with one regression for each training set.

    A subset, such as '5shot', has one or several sets, each of which is one
    draw of training images.

    All ranks call this together, each with its part of the training images and
    of the images to classify. Each rank fits some of the regressions. The
    result does not depend on the number of ranks. A warning names the
    regressions that do not converge.

    Args:
        train (FeatureShard): Training images; ``feats`` are their
            :func:`low_shot_features`.
        test (FeatureShard): The same for the images to classify.
        subsets (dict[str, list[list[int]]]): Name -> for each set, the
            positions of its images in the list of all training images, which
            is sorted by id.
        **fit: Arguments of :func:`fit_low_shot`.

    Returns:
        list[dict]: ``sample_idx``, ``gt_label`` and ``lowshot_pred`` (name ->
        the label that each set's classifier predicts) for each image of this
        rank's share. All shares have the same length, as MMEngine requires:
        some may repeat the first images.
    """
    train, test = (
        FeatureShard(*gather_samples(ids, feats.cpu(), labels))
        for ids, feats, labels in (train, test)
    )
    fits = [
        (f'{name}, set {number}', rows)
        for name, sets in subsets.items()
        for number, rows in enumerate(sets)
    ]
    count, rank, ranks = len(test.ids), get_rank(), get_world_size()
    predictions = torch.zeros(count, len(fits), dtype=torch.int64)
    converged = torch.zeros(len(fits), dtype=torch.int64)
    known, truth = train.feats.numpy(), train.labels.numpy()
    with progress_bar('regressions', len(fits), show=rank == 0) as update:
        for index in range(rank, len(fits), ranks):
            _, rows = fits[index]
            classifier, converged[index] = fit_low_shot(
                known[rows], truth[rows], **fit
            )
            predicted = classifier.predict(test.feats.numpy())
            predictions[:, index] = torch.from_numpy(predicted)
            update(min(index + ranks, len(fits)))
    all_reduce(predictions)
    all_reduce(converged)
    failed = [name for (name, _), good in zip(fits, converged) if not good]
    if failed:
        print_log(
            f'{len(failed)} of {len(fits)} low-shot regressions have not '
            f'converged ({"; ".join(failed)}): in a config, raise '
            'test_cfg.max_iter',
            logger='current',
            level=logging.WARNING,
        )
    by_set = predictions.split([*map(len, subsets.values())], dim=1)
    own = [i % count for i in range(rank, count + -count % ranks, ranks)]
    return [
        dict(
            sample_idx=int(test.ids[row]),
            gt_label=test.labels[row],
            lowshot_pred={k: v[row].tolist() for k, v in zip(subsets, by_set)},
        )
        for row in own
    ]
