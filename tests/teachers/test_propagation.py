"""Label propagation against dense matrices and loops, against scikit-learn, and inside a run."""

from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from builders import HeadOnly, normal, plain_run, same_state, step_of
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.semi_supervised import LabelSpreading

from certus.core.build_context import BuildContext
from certus.errors import UsageError
from certus.networks.references import refer
from certus.teachers import Propagation
from certus.teachers.diffusion import by_share, diffuse, graph, label_matrix, local_graph, pseudo_labels, shares
from certus.teachers.metric import near
from certus.teachers.regression import belief, joined, regressed
from certus.views import Chain

SEED = st.integers(0, 2**32)


def features_of(seed, n, size=3):
    return normal(n, size, seed=seed)


def dense_affinity(features, k, gamma):
    """A + Aᵀ, row by row."""
    v = features.double().numpy()
    n = len(v)
    a = np.zeros((n, n))
    for i in range(n):
        cosine = {j: v[i] @ v[j] / np.linalg.norm(v[i]) / np.linalg.norm(v[j]) for j in range(n) if j != i}
        for j in sorted(cosine, key=cosine.get, reverse=True)[:k]:
            a[i, j] = max(cosine[j], 0.0) ** gamma
    return a + a.T


def normalised(w):
    degree = w.sum(1)
    root = np.sqrt(np.where(degree > 0, degree, 1.0))
    return w / root[:, None] / root[None, :]


# --- the graph --------------------------------------------------------------------------------------------------------


@given(SEED, st.integers(2, 24), st.integers(1, 30), st.sampled_from([1.0, 3.0, 0.5]))
def test_graph_is_the_dense_construction(seed, n, k, gamma):
    features = features_of(seed, n)
    got = graph(features, k, gamma).toarray()
    assert np.allclose(got, normalised(dense_affinity(features, k, gamma)), rtol=0, atol=1e-4)
    assert np.allclose(got, got.T, rtol=0, atol=1e-12)
    assert (np.diag(got) == 0).all()
    assert (got >= 0).all()
    assert np.abs(np.linalg.eigvalsh(got)).max() <= 1 + 1e-9


def test_rows_in_several_chunks_are_the_rows_of_one(monkeypatch):
    features = features_of(0, 23)
    whole = graph(features, 4)
    monkeypatch.setattr("certus.teachers.diffusion.CHUNK", 5)
    assert np.allclose(graph(features, 4).toarray(), whole.toarray(), rtol=0, atol=1e-6)


def test_an_image_without_similar_neighbours_has_no_edge():
    features = torch.tensor([[1.0, 0.0], [0.9, 0.1], [-1.0, -0.05], [0.0, 0.0]])
    w = graph(features, 2).toarray()
    assert np.isfinite(w).all()
    assert (w[2] == 0).all()
    assert (w[3] == 0).all()
    assert w[0, 1] == pytest.approx(1)


def test_the_length_of_features_does_not_matter():
    features = features_of(0, 12)
    longer = features * torch.linspace(0.1, 10, 12)[:, None]
    assert np.allclose(graph(features, 4).toarray(), graph(longer, 4).toarray(), rtol=0, atol=1e-5)


# --- diffusion --------------------------------------------------------------------------------------------------------


def problem(seed, n=16, classes=3):
    random = np.random.default_rng(seed)
    labels = np.full(n, -1)
    labels[:classes] = np.arange(classes)
    y = label_matrix(torch.from_numpy(labels), classes)
    return graph(features_of(seed, n), 5), y, random.uniform(0, 1, n), labels


@given(SEED, st.sampled_from([0.0, 0.5, 0.9]))
def test_diffusion_is_the_dense_solution(seed, alpha):
    w, y, _, _ = problem(seed)
    expected = np.linalg.solve(np.eye(len(y)) - alpha * w.toarray(), y)
    assert np.allclose(diffuse(w, y, alpha), expected, rtol=0, atol=1e-5)


@given(SEED, st.sampled_from([0.5, 0.9]))
def test_damped_diffusion_is_the_dense_solution(seed, alpha):
    w, y, damping, _ = problem(seed)
    expected = np.linalg.solve(np.eye(len(y)) - alpha * w.toarray() @ np.diag(damping), y)
    assert np.allclose(diffuse(w, y, alpha, damping), expected, rtol=0, atol=1e-5)


@given(SEED)
def test_damping_of_ones_is_none_and_of_zeros_one_step_from_the_labels(seed):
    w, y, _, _ = problem(seed)
    assert np.allclose(diffuse(w, y, 0.9, np.ones(len(y))), diffuse(w, y, 0.9), rtol=0, atol=1e-9)
    assert np.allclose(diffuse(w, y, 0.9, np.zeros(len(y))), y, rtol=0, atol=1e-12)


@given(SEED, st.integers(3, 15))
def test_a_node_damped_to_zero_passes_nothing_on(seed, silent):
    """The others have the values that they would have without its edges, and it still receives theirs."""
    w, y, _, _ = problem(seed)
    damping = np.ones(len(y))
    damping[silent] = 0
    got, cut = diffuse(w, y, 0.9, damping), w.toarray()
    cut[:, silent] = 0
    cut[silent, :] = 0
    others = np.arange(len(y)) != silent
    without = np.linalg.solve(np.eye(len(y)) - 0.9 * cut, y)
    assert np.allclose(got[others], without[others], rtol=0, atol=1e-5)
    assert np.allclose(got[silent], 0.9 * (w.toarray()[silent] @ got), rtol=0, atol=1e-5)


def test_on_a_chain_nothing_passes_a_node_damped_to_zero():
    chain = np.diag(np.ones(4), 1) + np.diag(np.ones(4), -1)
    y = np.zeros((5, 1))
    y[0] = 1
    reached = diffuse(sparse.csr_array(normalised(chain)), y, 0.9, np.array([1.0, 1.0, 0.0, 1.0, 1.0])).ravel()
    assert (reached[:3] > 0).all()
    assert np.allclose(reached[3:], 0, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("alpha", [0.3, 0.9])
def test_scikit_learn_spreads_the_same(seed, alpha):
    """One label per class, so that both start from the same Y; it scales by 1 − α and then normalises rows."""
    features, (_, y, _, labels) = features_of(seed, 16), problem(seed)
    affinity = dense_affinity(features, 5, 3.0)
    theirs = LabelSpreading(kernel=lambda a, b: affinity, alpha=alpha, max_iter=2000, tol=1e-12)  # noqa: ARG005
    z = diffuse(graph(features, 5), y, alpha)
    reached = z.sum(1) > 1e-3  # smaller values show the tolerance of the conjugate gradient
    assert reached.sum() >= 12
    theirs.fit(features.numpy().astype(np.float64), labels)
    assert np.allclose((z / z.sum(1, keepdims=True))[reached], theirs.label_distributions_[reached], rtol=0, atol=1e-4)


# --- labels in and out ------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-1, 3), min_size=1, max_size=12))
def test_each_class_shares_1_among_its_labelled_images(labels):
    got = label_matrix(torch.tensor(labels), 4)
    for i, label in enumerate(labels):
        for c in range(4):
            assert got[i, c] == pytest.approx(1 / labels.count(c) if label == c else 0)


@given(st.lists(st.integers(-1, 2), min_size=1, max_size=12), SEED)
def test_pseudo_labels_are_loops_over_images_and_classes(labels, seed):
    n, classes = len(labels), 3
    z = normal(n, classes, seed=seed, dtype=torch.float64)
    guess, weight, balance = pseudo_labels(z, torch.tensor(labels))
    expected, sure = [], []
    for i in range(n):
        row = [max(float(z[i, c]), 0.0) for c in range(classes)]
        share = [value / sum(row) for value in row] if sum(row) > 0 else [0.0] * classes
        entropy = -sum(p * log(p) for p in share if p > 0)
        expected.append(labels[i] if labels[i] >= 0 else share.index(max(share)))
        sure.append(1 - entropy / log(classes) if sum(row) > 0 else 0.0)
    highest = max(sure)
    assert guess.tolist() == expected
    for i in range(n):
        omega = 1.0 if labels[i] >= 0 else sure[i] / highest if highest > 0 else 0.0
        assert weight[i].item() == pytest.approx(omega, abs=1e-6)
    for c in range(classes):
        assert balance[c].item() == pytest.approx(n / classes / max(expected.count(c), 1))


def test_an_image_that_no_label_reaches_has_weight_0_and_labels_are_kept():
    z = torch.tensor([[0.0, 0.0], [0.2, 0.8], [-0.1, 0.0], [0.5, 0.5]], dtype=torch.float64)
    guess, weight, _ = pseudo_labels(z, torch.tensor([-1, 0, -1, -1]))
    assert weight.tolist() == pytest.approx([0, 1, 0, 0], abs=1e-6)
    assert guess[1] == 0  # although the other class arrived


def test_every_class_has_the_same_total_weight():
    _, z = torch.manual_seed(0), torch.rand(50, 3, dtype=torch.float64) * torch.tensor([3.0, 1.0, 1.0])
    guess, _, balance = pseudo_labels(z, torch.full((50,), -1))
    total = [sum(balance[c].item() for label in guess.tolist() if label == c) for c in range(3)]
    assert total == pytest.approx([50 / 3] * 3)


# --- as a teacher -----------------------------------------------------------------------------------------------------


def clusters(seed, n=60):
    """Two clusters at a right angle, one label each, and the truth."""
    truth = torch.arange(n) % 2
    images = torch.eye(2)[truth] + 0.15 * normal(n, 2, seed=seed)
    labels = torch.full((n,), -1)
    labels[:2] = truth[:2]
    return images, labels, truth


def context_of(images, labels, pool=None):
    everything = torch.arange(len(labels))
    return BuildContext(
        network=None,
        classes=2,
        images=images,
        labels=labels,
        pool=everything if pool is None else pool,
        normalised=lambda images: images,
        weak=Chain(),
    )


def step_at(number, context, per_epoch=1):
    """A step of 300 on all images."""
    return step_of(context.images, context.labels, number=number, steps=300, per_epoch=per_epoch)


@pytest.mark.parametrize("draws", [0, 5])
@pytest.mark.parametrize("seed", range(5))
def test_two_clusters_get_the_right_labels(seed, draws):
    images, labels, truth = clusters(seed)
    context = context_of(images, labels)
    torch.manual_seed(seed)
    source = Propagation(HeadOnly(2, 2, 0.3), context, start=0, neighbours=10, draws=draws)
    step = step_at(0, context)
    source.follow(step)
    target = source(step)
    assert torch.equal(target.logits.argmax(1), truth)
    assert (target.weight[labels >= 0] == 0).all()
    assert (target.weight[2:] > 0).float().mean() > (0.9 if draws else 0.99)
    assert (target.logits.softmax(1).amax(1) == 1).all()


def test_there_is_no_graph_before_the_start_and_a_new_one_after_every_pass():
    images, labels, _ = clusters(0)
    context = context_of(images, labels)
    source, rebuilt = Propagation(HeadOnly(2, 2), context, start=10, neighbours=10), []
    rebuild = source.rebuild
    source.rebuild = lambda step: (rebuilt.append(step.clock.step), rebuild(step))
    for number in range(20):  # e = number + 1, a pass is four steps
        step = step_at(number, context, per_epoch=4)
        if number < 10:
            assert (source(step).weight == 0).all()
        source.follow(step)
    assert rebuilt == [9, 11, 15, 19]
    assert (source(step).weight > 0).any()


def test_images_outside_the_pool_take_no_part():
    images, labels, _ = clusters(0)
    pool = torch.arange(50)
    one, other = images.clone(), images.clone()
    other[50:] = torch.nan
    sources = []
    for pictures in (one, other):
        context = context_of(pictures, labels, pool)
        source = Propagation(HeadOnly(2, 2), context, start=0, neighbours=10)
        torch.manual_seed(0)
        source.follow(step_at(0, context))
        sources.append(source)
    assert torch.equal(sources[0].weights, sources[1].weights)
    assert torch.equal(sources[0].labels, sources[1].labels)
    assert (sources[0].weights[50:] == 0).all()
    assert (sources[0].weights[:50] > 0).any()


def test_weights_are_those_of_the_functions_on_the_students_features():
    images, labels, _ = clusters(3)
    context = context_of(images, labels)
    source = Propagation(HeadOnly(2, 2, 0.5), context, start=0, neighbours=7, gamma=2.0, alpha=0.8)
    source.follow(step_at(0, context))
    z = diffuse(graph(images, 7, 2.0), label_matrix(labels, 2), 0.8)  # features without dropout
    guess, weight, balance = pseudo_labels(torch.from_numpy(z), labels)
    assert torch.equal(source.labels, guess)
    assert torch.allclose(source.weights, (weight * balance[guess]).float())


@given(SEED, st.integers(2, 24), st.integers(1, 30))
def test_the_local_graph_is_the_dense_construction(seed, n, k):
    x = features_of(seed, n).double().numpy()
    k = min(k, n - 1)
    distance = np.linalg.norm(x[:, None] - x[None], axis=2)
    nearest = [[j for j in distance[i].argsort(kind="stable") if j != i][:k] for i in range(n)]
    sigma = [distance[i, nearest[i][-1]] for i in range(n)]
    w = np.zeros((n, n))
    for i in range(n):
        for j in nearest[i]:
            w[i, j] = w[j, i] = np.exp(-(distance[i, j] ** 2) / (sigma[i] * sigma[j]))
    assert np.allclose(local_graph(torch.from_numpy(x), k).toarray(), normalised(w), rtol=0, atol=1e-6)


def test_the_local_graph_bears_equal_vectors():
    assert np.isfinite(local_graph(torch.zeros(5, 2), 3).toarray()).all()


def test_the_mass_of_a_class_is_that_of_its_labels():
    z = by_share(np.array([[1.0, 0.0], [3.0, 1.0], [2.0, 5.0]]), torch.tensor([0, 0, -1]))
    assert np.allclose(z.sum(0), [2, 0])
    z = by_share(np.array([[1.0, 0.0], [3.0, 1.0], [2.0, 5.0]]), torch.tensor([0, 0, 1]))
    assert np.allclose(z.sum(0), [2, 1])


@pytest.mark.parametrize(("over", "graph_of"), [("inputs", local_graph), ("angles", graph)])
def test_over_the_inputs_the_labels_are_propagated_once_and_need_no_features(over, graph_of):
    images, labels, _ = clusters(3)
    context = context_of(images, labels)
    source = Propagation(torch.nn.Sequential(torch.nn.Linear(2, 2)), context, start=0, neighbours=7, over=over)
    source.follow(step_at(0, context))
    z = by_share(diffuse(graph_of(images, 7), label_matrix(labels, 2), 0.99, iterations=200), labels)
    guess, weight, balance = pseudo_labels(torch.from_numpy(z), labels)
    assert torch.equal(source.labels, guess)
    assert torch.allclose(source.weights, (weight * balance[guess]).float())
    before = source.weights.clone()
    source.rebuild = None  # is not called again
    source.follow(step_at(1, context))
    assert torch.equal(source.weights, before)


@pytest.mark.parametrize(("over", "graph_of"), [("inputs", local_graph), ("angles", graph)])
def test_near_and_regression_give_the_labels_of_their_equations(over, graph_of):
    images, labels, _ = clusters(3)
    context = context_of(images, labels)
    student = torch.nn.Sequential(torch.nn.Linear(2, 2))
    source = Propagation(student, context, start=0, neighbours=7, over=over, near=True, regression=0.5)
    source.follow(step_at(0, context))
    w = graph_of(near(images, graph_of(images, 7)), 7)
    z = torch.from_numpy(by_share(diffuse(w, label_matrix(labels, 2), 0.99, iterations=200), labels))
    beta = belief(labels, 2, 0.5)
    z = joined(z, regressed(images, labels, 2), beta)
    guess, weight, balance = pseudo_labels(z, labels)
    assert torch.equal(source.labels, guess)
    hard = torch.nn.functional.one_hot(guess, 2) * (weight * balance[guess])[:, None]
    expected = (1 - beta) * hard + beta * z
    step = step_at(1, context)
    target = source(step)
    got = target.logits.softmax(1) * source.weights[step.batch.index][:, None]
    assert torch.allclose(got, expected[step.batch.index].float(), atol=1e-5)
    assert torch.equal(target.weight, source.weights[step.batch.index] * (step.batch.labels < 0))


def test_where_nothing_arrives_every_class_is_alike():
    assert shares(torch.tensor([[0.0, 0.0], [-1.0, 0.0], [1.0, 3.0]])).tolist() == [
        [0.5, 0.5],
        [0.5, 0.5],
        [0.25, 0.75],
    ]


def test_damping_needs_dropout():
    images, labels, _ = clusters(0)
    with pytest.raises(UsageError, match="dropout"):
        Propagation(HeadOnly(2, 2), context_of(images, labels), draws=5)


# --- in a run ---------------------------------------------------------------------------------------------------------

SMALL = {"labels": 6, "validation": 20, "width": 8, "labelled_batch": 6, "unlabelled_batch": 200}


def run(method="label-propagation", **options):
    return plain_run(method, options, steps=12, **SMALL)


@pytest.mark.parametrize("method", ["label-propagation", "mean-teacher-label-propagation"])
@pytest.mark.parametrize("damp", [False, True])
def test_in_a_run_the_term_is_active_after_the_start_for_unlabelled_images(method, damp):
    training = run(method, start=140.0, neighbours=10, damp=damp)
    source = training.method.followers[-1]
    for number in range(10):  # step 5 is the first with e = 25 (step + 1) ≥ 140; its graph is first used in step 6
        step = training.step(number)
        target, loss = source(step), training.advance(number)["propagated"]
        assert (target.weight.max() > 0) == (loss > 0) == (number > 5)
        assert (target.weight[step.batch.labels >= 0] == 0).all()


def test_validation_images_are_never_part_of_the_graph():
    honest, blind = run(start=20.0, neighbours=10), run(start=20.0, neighbours=10)
    parts, (source,) = blind.split, blind.method.followers
    assert len(parts.validation) == 20
    images = source.context.images.clone()
    images[parts.validation] = torch.nan
    refer(source, context=replace(source.context, images=images))
    for number in range(8):
        honest.advance(number)
        blind.advance(number)
    assert source.built
    assert (source.weights[parts.validation] == 0).all()
    assert (source.weights[parts.unlabelled] > 0).any()
    assert same_state(honest.method.state, blind.method.state)
