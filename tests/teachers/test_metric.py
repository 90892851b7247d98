"""The metric in which neighbours are near, against loops and on classes that differ in one direction."""

import numpy as np
import torch
from builders import normal
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from certus.teachers.diffusion import graph, matrix
from certus.teachers.metric import near, scatter

SEED = st.integers(0, 2**32)


@given(SEED, st.integers(3, 16), st.integers(1, 5), st.integers(1, 4))
def test_scatter_is_that_of_the_differences_between_neighbours(seed, n, d, k):
    x = normal(n, d, seed=seed)
    k = min(k, n - 1)
    order = normal(n, n, seed=seed + 1).fill_diagonal_(-torch.inf).topk(k).indices
    w = matrix(order, torch.rand(n, k, generator=torch.Generator().manual_seed(seed)) + 0.1)
    w = (w + w.T).toarray()
    degree = w.sum(1)
    slow = np.zeros((d, d))
    for i in range(n):
        for j in range(n):
            u = (x[i] / degree[i] ** 0.5 - x[j] / degree[j] ** 0.5).double().numpy()
            slow += 0.5 * w[i, j] * np.outer(u, u)
    root = 1 / np.sqrt(degree)
    fast = scatter(x, sparse.csr_array(w * root[:, None] * root[None, :]))
    assert np.allclose(fast.numpy(), slow, rtol=1e-3, atol=1e-4)


def stripes(seed):
    """Two classes, 3.4 apart in the first of 8 directions, where they hardly scatter; in the others they do, by 2."""
    y = torch.arange(80) % 2
    x = 2 * normal(80, 8, seed=seed)
    x[:, 0] = 1.7 * (2 * y - 1) + 0.05 * x[:, 0]
    return x, y


def purity(w, y):
    rows, columns = w.nonzero()
    return float((y[rows] == y[columns]).float().mean())


def test_neighbours_in_this_metric_are_more_often_of_one_class():
    gains = []
    for seed in range(6):
        x, y = stripes(seed)
        w = graph(x, 5)
        gains.append(purity(graph(near(x, w), 5), y) - purity(w, y))
    assert np.mean(gains) > 0.03, gains


def test_a_rotation_of_the_vectors_changes_no_angle():
    x, _ = stripes(0)
    turn = torch.linalg.qr(normal(8, 8, seed=1)).Q
    w = graph(x, 5)
    a, b = near(x, w), near(x @ turn, w)
    assert torch.allclose(a @ a.T, b @ b.T, atol=1e-4)


def test_equal_vectors_stay_as_they_are():
    x = torch.zeros(6, 3)
    assert torch.equal(near(x, graph(x, 2)), x)
