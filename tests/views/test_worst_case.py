"""Worst-case weights and connections: against random ones, against a dense power iteration, degenerate cases."""

from copy import deepcopy
from itertools import pairwise

import pytest
import torch
from builders import plain_run, small_network, small_step
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from certus.core.losses import kl
from certus.core.student import See
from certus.methods.wcp import WorstCase
from certus.views.adversarial import unit
from certus.views.worst_case import length, weights_of, worst_mask, worst_shift

COUNT, XI = 24, 1e-2  # images of a small step
every_network = pytest.mark.parametrize("name", ["mlp", "cnn13"])
every_seed = pytest.mark.parametrize("seed", range(4))


def directions(shapes, random):
    return {n: torch.randn(t.shape, generator=random, dtype=t.dtype) for n, t in shapes.items()}


class Case:
    """A network, its weights, and the mean KL after a change of the weights or of the images."""

    def __init__(self, name, seed):
        self.net, self.step = small_network(name, seed), small_step(name, seed)
        self.x, self.clean = self.step.view("a"), self.step.learn(self.net, "a").detach()
        self.weights = weights_of(self.net)
        self.random = torch.Generator().manual_seed(seed + 100)
        self.no_shift = torch.zeros_like(self.x)

    def divergence(self, r, weights):
        return kl(self.step.probe(self.net, self.x + r, "a", weights), self.clean, torch.ones(COUNT)).mean()

    def shifted(self, delta):
        """The weights after a shift by a tenth of their norm."""
        radius = 0.1 * length({n: w.detach() for n, w in self.weights.items()})
        return {n: w.detach() + radius * delta[n] for n, w in self.weights.items()}

    def masked(self, masks):
        return {n: self.weights[n].detach() * mask for n, mask in masks.items()}


# --- parts ------------------------------------------------------------------------------------------------------------


def test_the_length_is_that_of_all_numbers_together():
    parts = {"a": torch.tensor([[1.0, 2.0], [0.0, 2.0]]), "b": torch.tensor([4.0])}
    assert length(parts).item() == pytest.approx((1 + 4 + 4 + 16) ** 0.5)
    assert length({"a": torch.zeros(3)}) > 0  # so that it can be a divisor


def test_the_weights_are_those_of_convolutions_and_linear_layers_in_their_order():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 1))
    assert list(weights_of(net)) == ["0.weight", "2.0.weight", "3.weight"]
    assert all(w is dict(net.named_parameters())[n] for n, w in weights_of(net).items())


# --- the shift --------------------------------------------------------------------------------------------------------


@every_network
@every_seed
def test_the_worst_shift_changes_the_answers_more_than_a_random_one_of_its_length(name, seed):
    case = Case(name, seed)
    start = directions({"": case.x, **case.weights}, case.random)
    r, delta = worst_shift(case.divergence, case.weights, case.x, start, XI)
    random = directions({"": case.x, **case.weights}, case.random)
    other = unit(random.pop(""))
    size = length(random)
    chance = {n: t / size for n, t in random.items()}
    with torch.no_grad():
        assert case.divergence(0.5 * r, case.weights) > 2 * case.divergence(0.5 * other, case.weights)
        worst, usual = (case.divergence(case.no_shift, case.shifted(d)) for d in (delta, chance))
    assert worst > 2 * usual


@every_network
@every_seed
def test_directions_have_length_one_per_image_and_over_all_weights_and_carry_no_gradient(name, seed):
    case = Case(name, seed)
    start = directions({"": case.x, **case.weights}, case.random)
    r, delta = worst_shift(case.divergence, case.weights, case.x, start, XI)
    assert torch.allclose(r.flatten(1).norm(dim=1), torch.ones(COUNT), rtol=1e-4)
    total = sum(float(value) ** 2 for t in delta.values() for value in t.flatten().tolist())
    assert total == pytest.approx(1, rel=1e-4)
    assert delta.keys() == case.weights.keys()
    assert not any(t.requires_grad for t in (r, *delta.values()))
    assert all(p.grad is None for p in case.net.parameters())


@given(st.integers(0, 2**32))
def test_on_a_quadratic_it_is_one_product_with_the_hessian_of_images_and_weights_together(seed):
    random = torch.Generator().manual_seed(seed)
    x = torch.zeros(1, 3, dtype=torch.float64)
    weights = {n: torch.randn(s, generator=random, dtype=torch.float64) for n, s in (("a", (2, 2)), ("b", (3,)))}
    half = torch.randn(10, 10, generator=random, dtype=torch.float64)
    hessian = half @ half.T

    def divergence(r, changed):
        v = torch.cat([r.flatten(), *((changed[n] - w).flatten() for n, w in weights.items())])
        return 0.5 * v @ hessian @ v

    start = directions({"": x, **weights}, random)
    r, delta = worst_shift(divergence, weights, x, start, 0.1)
    size = length({n: start[n] for n in weights})
    v = torch.cat([start[""].flatten() / start[""].norm(), *(start[n].flatten() / size for n in weights)])
    product = hessian @ v
    assert torch.allclose(r.flatten(), product[:3] / product[:3].norm(), rtol=0, atol=1e-9)
    got = torch.cat([delta[n].flatten() for n in weights])
    assert torch.allclose(got, product[3:] / product[3:].norm(), rtol=0, atol=1e-9)


# --- the mask ---------------------------------------------------------------------------------------------------------


@every_network
@pytest.mark.parametrize("drop", [0.0, 0.1, 0.2, 0.33, 0.9])
def test_exactly_the_share_is_dropped_in_every_layer(name, drop):
    case = Case(name, 0)
    start = directions(case.weights, case.random) | {"corner": torch.tensor(0.3)}
    masks = worst_mask(case.divergence, case.weights, case.x, start, XI, drop)
    assert masks.keys() == case.weights.keys()
    for n, mask in masks.items():
        assert mask.shape == case.weights[n].shape
        values = mask.flatten().tolist()
        assert set(values) <= {0.0, 1.0}
        assert values.count(0.0) == round(drop * len(values))


@every_network
def test_dropping_these_connections_changes_the_answers_more_than_dropping_random_ones(name):
    """On average over seeds, because it is one iteration of a relaxation."""
    gains = []
    for seed in range(6):
        case = Case(name, seed)
        some = dict(list(case.weights.items())[1:-1:3])
        start = directions(some, case.random) | {"corner": torch.randn((), generator=case.random)}
        masks = worst_mask(case.divergence, some, case.x, start, XI, 0.2)
        with torch.no_grad():
            worst = case.divergence(case.no_shift, case.masked(masks))
            usual = []
            for _ in range(10):
                chance = {}
                for n, mask in masks.items():
                    order = torch.randperm(mask.numel(), generator=case.random)
                    chance[n] = mask.flatten()[order].view_as(mask)
                usual.append(case.divergence(case.no_shift, case.masked(chance)))
        gains.append((worst / torch.stack(usual).mean()).item())
    assert sum(gains) / len(gains) > 1.3
    assert sorted(gains)[1] > 1  # all seeds but one at most


def quadratic_problem(seed):
    """D = ½ mᵀ H m in the dropped shares m = 1 − w'/w of two layers, H positive."""
    random = torch.Generator().manual_seed(seed)
    weights = {n: torch.rand(s, generator=random, dtype=torch.float64) + 0.5 for n, s in (("a", (2, 3)), ("b", (4,)))}
    half = torch.randn(10, 10, generator=random, dtype=torch.float64)
    hessian = half @ half.T

    def divergence(r, changed):
        m = torch.cat([(1 - changed[n] / w).flatten() for n, w in weights.items()])
        return 0.5 * m @ hessian @ m + 0 * r.sum()

    start = directions(weights, random) | {"corner": torch.randn((), generator=random, dtype=torch.float64)}
    return weights, hessian, divergence, start


def naive_mask(weights, hessian, start, drop):
    """One product of [[H, H1], [1ᵀH, 0]] with (s, s₀); the sign is such that its last number is positive."""
    v = torch.cat([*(start[n].flatten() for n in weights), start["corner"][None]])
    one, zero = torch.ones(len(hessian), 1, dtype=v.dtype), torch.zeros(1, 1, dtype=v.dtype)
    bordered = torch.cat([torch.cat([hessian, hessian @ one], 1), torch.cat([one.T @ hessian, zero], 1)])
    product = bordered @ v
    flipped = bool(product[-1] < 0)
    product = -product if flipped else product
    masks = {}
    for (n, w), part in zip(weights.items(), product[:-1].split([w.numel() for w in weights.values()]), strict=True):
        worst = sorted(range(len(part)), key=lambda j: float(part[j]), reverse=True)[: round(drop * len(part))]
        masks[n] = torch.tensor([0.0 if j in worst else 1.0 for j in range(len(part))]).view_as(w)
    return masks, flipped


@pytest.mark.parametrize("drop", [0.2, 0.5])
def test_on_a_quadratic_the_ranking_is_one_iteration_of_the_bordered_matrix(drop):
    flips = set()
    for seed in range(20):
        weights, hessian, divergence, start = quadratic_problem(seed)
        got = worst_mask(divergence, weights, torch.zeros(1, 2, dtype=torch.float64), start, 0.1, drop)
        expected, flipped = naive_mask(weights, hessian, start, drop)
        flips.add(flipped)
        for n in weights:
            assert torch.equal(got[n].float(), expected[n])
    assert flips == {False, True}


def test_the_sign_and_the_length_of_the_start_do_not_matter():
    weights, _, divergence, start = quadratic_problem(3)
    x = torch.zeros(1, 2, dtype=torch.float64)
    first = worst_mask(divergence, weights, x, start, 0.1, 0.5)
    for factor in (-1.0, 7.0):
        again = worst_mask(divergence, weights, x, {n: factor * t for n, t in start.items()}, 0.1, 0.5)
        assert all(torch.equal(first[n], again[n]) for n in first)


# --- the read ---------------------------------------------------------------------------------------------------------


def worst_case(name, epsilon=1.0, shift=0.1, drop=0.2, number=0):
    """Network and step; images, weights and answer of the pass that learns."""
    net, step, passes = small_network(name), small_step(name, number=number), []
    probe = step.probe
    step.probe = lambda *given: (passes.append(given), probe(*given))[1]
    answer = WorstCase(net, "a", epsilon, shift, drop, XI)(step)
    _, images, _, weights = passes[-1]
    return net, step, images.detach(), weights, answer


@every_network
def test_without_any_perturbation_nothing_changes(name):
    net, step, images, weights, answer = worst_case(name, 0.0, 0.0, 0.0)
    assert torch.equal(images, step.view("a"))
    assert all(torch.equal(weights[n], w) for n, w in weights_of(net).items())
    divergence = kl(answer, step.learn(net, "a"), torch.ones(COUNT))
    assert divergence.abs().max() < 1e-6


@every_network
def test_images_and_weights_are_perturbed_by_the_given_sizes(name):
    net, step, images, worst, _ = worst_case(name, epsilon=0.7, shift=0.25, drop=0.0)
    assert torch.allclose((images - step.view("a")).flatten(1).norm(dim=1), torch.full((COUNT,), 0.7), rtol=1e-3)
    own = weights_of(net)
    moves = {n: (worst[n] - w).detach() for n, w in own.items()}
    *_, head = own
    moves[head] = moves[head] / 0.1  # the last layer is perturbed by a tenth
    assert (length(moves) / length({n: w.detach() for n, w in own.items()})).item() == pytest.approx(0.25, rel=1e-3)


@every_network
def test_connections_are_dropped_in_the_middle_layer_of_each_three(name):
    net, _, _, worst, _ = worst_case(name, shift=0.0, drop=0.3)
    own = list(weights_of(net).items())
    dropped = [i for i, (n, _) in enumerate(own) if (worst[n] == 0).any()]
    assert dropped == ([1] if name == "mlp" else [1, 4, 7])
    for i in dropped:
        n, w = own[i]
        assert int((worst[n] == 0).sum()) == round(0.3 * w.numel())
        assert torch.equal(worst[n][worst[n] != 0], w[worst[n] != 0])


@every_network
def test_gradients_reach_the_real_weights_of_the_student(name):
    net, step, _, _, answer = worst_case(name)
    kl(answer, step.learn(net, "a").detach(), torch.ones(COUNT)).mean().backward()
    for n, p in net.named_parameters():
        assert p.grad is not None, n
        assert torch.isfinite(p.grad).all()
    assert all(w.grad.abs().max() > 0 for w in weights_of(net).values())


@every_network
def test_it_is_a_function_of_the_step(name):
    first, again, other = (worst_case(name, number=number)[-1] for number in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@every_network
def test_the_inner_passes_change_no_state(name):
    net, alone = small_network(name), small_network(name)
    before = deepcopy(dict(net.named_parameters()))
    WorstCase(net, "a", 1.0, 0.1, 0.2, XI)(small_step(name))
    See(alone, "a")(small_step(name))
    assert all(torch.equal(a, b) for a, b in zip(net.buffers(), alone.buffers(), strict=True))
    assert all(torch.equal(p, before[n]) for n, p in net.named_parameters())
    assert all(p.grad is None for p in net.parameters())


def wcp(**options):
    sizes = {"labels": 10, "width": 4, "steps": 6, "labelled_batch": 5, "unlabelled_batch": 9}
    return plain_run("wcp", options, data="digits", **sizes)


def test_in_a_run_the_term_is_0_without_perturbations_and_grows_with_each():
    def term(**options):
        training = wcp(**({"epsilon": 0.0, "shift": 0.0, "drop": 0.0} | options))
        return training.method.losses(training.step(2))["worst case"].item()

    assert abs(term()) < 1e-6
    for option, values in {"epsilon": (0.1, 1.0), "shift": (0.01, 0.1), "drop": (0.02, 0.5)}.items():
        costs = [term(), *(term(**{option: value}) for value in values)]
        assert all(more > less for less, more in pairwise(costs)), (option, costs)
    assert term(epsilon=1.0, shift=0.1, drop=0.2) > 0
