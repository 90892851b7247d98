"""Logistic regression beside labels that travel: against loops, at the limits, and what the product answers."""

import pytest
import torch
from builders import normal
from hypothesis import given
from hypothesis import strategies as st

from certus.teachers.regression import FLOOR, STRENGTH, belief, joined, regressed, softened


def two_classes(n=40):
    y = torch.arange(n) % 2
    return normal(n, 6, seed=3) + 1.5 * (2 * y[:, None] - 1), y


def test_the_answers_minimise_the_penalised_loss_of_the_labels():
    x, y = two_classes()
    labels = torch.where(torch.arange(len(y)) < 12, y, -1)
    c = STRENGTH / float(x.square().sum(1).mean())
    w, b = torch.zeros(6, dtype=torch.float64, requires_grad=True), torch.zeros(1, dtype=torch.float64)
    b.requires_grad_()
    slow = torch.optim.LBFGS([w, b], max_iter=2000, line_search_fn="strong_wolfe", tolerance_change=1e-14)

    def loss():
        slow.zero_grad()
        margin = (x[:12].double() @ w + b) * (2 * y[:12] - 1)
        total = c * torch.nn.functional.softplus(-margin).sum() + 0.5 * w.square().sum()
        total.backward()
        return total

    slow.step(loss)
    expected = torch.sigmoid(x.double() @ w + b).detach()
    assert torch.allclose(regressed(x, labels, 2)[:, 1], expected, atol=2e-2)


def test_the_scale_of_the_vectors_does_not_matter():
    x, y = two_classes()
    labels = torch.where(torch.arange(len(y)) < 12, y, -1)
    assert torch.allclose(regressed(x, labels, 2), regressed(20 * x, labels, 2), atol=2e-2)


def test_a_class_without_labels_gets_nothing_and_a_single_one_everything():
    x, y = two_classes()
    q = regressed(x, 2 * y, 3)
    assert torch.equal(q[:, 1], torch.zeros(len(x), dtype=q.dtype))
    assert torch.allclose(q.sum(1), torch.ones(len(x), dtype=q.dtype))
    alone = regressed(x, torch.where(y == 0, 1, -1), 3)
    assert torch.equal(alone, torch.tensor([0.0, 1.0, 0.0], dtype=q.dtype).expand(len(x), 3))


@pytest.mark.parametrize(("labels", "rate", "beta"), [(0, 0.04, 0.0), (25, 0.04, 0.5), (100, 0.04, 0.8), (5, 0.0, 0.0)])
def test_the_regression_is_believed_by_the_labels_per_class(labels, rate, beta):
    y = torch.cat([torch.arange(2).repeat(labels), torch.full((7,), -1)])
    assert belief(y, 2, rate) == pytest.approx(beta)


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(2, 5), st.floats(0, 3))
def test_the_product_is_that_of_each_probability(seed, n, classes, beta):
    random = torch.Generator().manual_seed(seed)
    z, q = (torch.rand(n, classes, generator=random, dtype=torch.float64) + 0.01 for _ in range(2))
    q = q / q.sum(1, keepdim=True)
    for i, row in enumerate(joined(z, q, beta)):
        slow = [(float(z[i, c] / z[i].sum()) * float(q[i, c]) ** beta) for c in range(classes)]
        assert row.tolist() == pytest.approx([s / sum(slow) for s in slow])


def test_no_expert_forbids_a_class_and_where_no_label_arrives_the_regression_answers():
    z = torch.tensor([[1.0, 0.0], [0.0, 0.0], [-1.0, 2.0]], dtype=torch.float64)
    q = torch.tensor([[0.5, 0.5], [0.9, 0.1], [1.0, 0.0]], dtype=torch.float64)
    p = joined(z, q, 1.0)
    assert p[0, 1] == pytest.approx(FLOOR, rel=1e-3)
    assert p[1].tolist() == pytest.approx([0.9, 0.1])
    assert p[2].tolist() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("beta", [0.0, 0.25, 1.0])
def test_hard_labels_and_probabilities_are_mixed_by_their_weights(beta):
    p = torch.tensor([[0.7, 0.3], [0.2, 0.8], [0.6, 0.4]], dtype=torch.float64)
    guess, weight = torch.tensor([0, 1, 0]), torch.tensor([2.0, 0.5, 0.0])
    mixed, total = softened(p, guess, weight, beta)
    for i in range(3):
        slow = [(1 - beta) * float(weight[i]) * (c == guess[i]) + beta * float(p[i, c]) for c in range(2)]
        assert (mixed[i] * total[i]).tolist() == pytest.approx([float(s) for s in slow], abs=1e-6)
        assert float(mixed[i].sum()) == pytest.approx(1)
