# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The k-NN functions equal scikit-learn and plain computations."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from mmmoca.evaluation import knn_search, knn_vote

from ..helpers.judges import knn_judge


def _features(n, dim, seed):
    generator = torch.Generator().manual_seed(seed)
    feats = torch.randn(n, dim, generator=generator, dtype=torch.double)
    return F.normalize(feats + 0.5, dim=1)


@pytest.mark.parametrize(
    'k, temperature, chunk_size', [(1, 0.03, 7), (5, 0.07, 8192), (20, 0.5, 7)]
)
def test_scores_equal_sklearn(k, temperature, chunk_size):
    bank, query = _features(157, 12, 0), _features(61, 12, 1)
    labels = torch.from_numpy(np.random.RandomState(2).randint(0, 9, 157))
    judge = knn_judge(bank.numpy(), labels.numpy(), k, temperature)
    expected = torch.from_numpy(judge.predict_proba(query.numpy()))

    def scores(query, bank):
        sims, rows = knn_search(query, bank, k, chunk_size)
        return knn_vote(sims, labels[rows], 9, temperature)

    torch.testing.assert_close(scores(query, bank), expected)
    single = scores(query.float(), bank.float())
    assert single.dtype == torch.float32
    predicted = torch.from_numpy(judge.predict(query.numpy()))
    assert torch.equal(single.argmax(1), predicted)


@given(
    sizes=st.tuples(*[st.integers(1, n) for n in (9, 40, 3)]),
    k=st.integers(1, 50),
    chunk_size=st.integers(1, 50),
    seed=st.integers(0, 99),
)
def test_search_is_a_sort(sizes, k, chunk_size, seed):
    """Among equal rows of a bank, the first ones come first."""
    (queries, rows, dim), rng = sizes, np.random.default_rng(seed)
    # Products of small integers are exact in any order of summation.
    query, bank = (
        torch.from_numpy(rng.integers(-2, 3, (n, dim))).float()
        for n in (queries, rows)
    )
    full = (query @ bank.T).sort(dim=1, descending=True, stable=True)
    sims, found = knn_search(query, bank, k, chunk_size)
    assert torch.equal(sims, full.values[:, :k])
    assert torch.equal(found, full.indices[:, :k])


def test_search_never_holds_the_similarity_matrix(monkeypatch):
    sizes = []
    matmul = torch.Tensor.__matmul__

    def spy(left, right):
        out = matmul(left, right)
        sizes.append(out.numel())
        return out

    monkeypatch.setattr(torch.Tensor, '__matmul__', spy)
    knn_search(_features(40, 4, 7), _features(90, 4, 8), 3, 16)
    assert max(sizes) == 16 * 16
    assert sum(sizes) == 40 * 90
