"""Worst-case weights and connections: against random ones, against a dense power iteration, degenerate cases."""

from copy import deepcopy
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from certus.config import Config
from certus.core.losses import kl
from certus.core.schedules import Clock
from certus.core.step import Batch, Step
from certus.core.student import See
from certus.methods import METHODS
from certus.methods.wcp import Worst
from certus.networks.cnn13 import CNN13
from certus.networks.mlp import MLP
from certus.training.build import build
from certus.training.planning import complete
from certus.views import weak
from certus.views.adversarial import unit
from certus.views.worst_case import length, weights_of, worst_kept, worst_shift

SETTINGS = {  # not those of the presets, which are tuned anew now and then
    "digits": {"dropout": 0.2, "translate": 0, "noise": 0.5, "learning_rate": 0.2},
}
COUNT, XI = 24, 1e-2
every_network = pytest.mark.parametrize("name", ["mlp", "cnn13"])
every_seed = pytest.mark.parametrize("seed", range(4))


def network(name, seed=0):
    torch.manual_seed(seed)
    return {"mlp": lambda: MLP(16, 3, width=32, dropout=0.2), "cnn13": lambda: CNN13(1, 3, width=4, small=True)}[name]()


def step_of(name, seed=0, number=0):
    shape = {"mlp": (16,), "cnn13": (1, 8, 8)}[name]
    images = torch.randn(COUNT, *shape, generator=torch.Generator().manual_seed(seed))
    batch = Batch(images, torch.full((COUNT,), -1), torch.arange(COUNT))
    return Step(batch, Clock(number, 100, COUNT), {"weak": weak(noise=0.1)}, seed)


def directions(shapes, random):
    return {n: torch.randn(t.shape, generator=random, dtype=t.dtype) for n, t in shapes.items()}


class Case:
    """A network, its weights, and the mean KL that a change of them or of the images makes."""

    def __init__(self, name, seed):
        self.net, self.step = network(name, seed), step_of(name, seed)
        self.x, self.clean = self.step.view("a"), self.step.learn(self.net, "a").detach()
        self.weights = weights_of(self.net)
        self.random = torch.Generator().manual_seed(seed + 100)
        self.still = torch.zeros_like(self.x)

    def divergence(self, r, weights):
        return kl(self.step.probe(self.net, self.x + r, "a", weights), self.clean, torch.ones(COUNT)).mean()

    def shifted(self, delta):
        """Weights that have moved by a tenth of their length."""
        radius = 0.1 * length({n: w.detach() for n, w in self.weights.items()})
        return {n: w.detach() + radius * delta[n] for n, w in self.weights.items()}

    def masked(self, kept):
        return {n: self.weights[n].detach() * mask for n, mask in kept.items()}


# --- parts ------------------------------------------------------------------------------------------------------------


def test_the_length_is_that_of_all_numbers_together():
    parts = {"a": torch.tensor([[1.0, 2.0], [0.0, 2.0]]), "b": torch.tensor([4.0])}
    assert length(parts).item() == pytest.approx((1 + 4 + 4 + 16) ** 0.5)
    assert length({"a": torch.zeros(3)}) > 0  # so that it can be divided by


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
        worst, usual = (case.divergence(case.still, case.shifted(d)) for d in (delta, chance))
    assert worst > 2 * usual


@every_network
@every_seed
def test_directions_have_length_one_per_image_and_one_over_all_weights_and_are_constants(name, seed):
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


# --- what is kept -----------------------------------------------------------------------------------------------------


@every_network
@pytest.mark.parametrize("drop", [0.0, 0.1, 0.2, 0.33, 0.9])
def test_exactly_the_share_is_dropped_in_every_layer(name, drop):
    case = Case(name, 0)
    start = directions(case.weights, case.random) | {"corner": torch.tensor(0.3)}
    kept = worst_kept(case.divergence, case.weights, case.x, start, XI, drop)
    assert kept.keys() == case.weights.keys()
    for n, mask in kept.items():
        assert mask.shape == case.weights[n].shape
        values = mask.flatten().tolist()
        assert set(values) <= {0.0, 1.0}
        assert values.count(0.0) == round(drop * len(values))


@every_network
def test_what_it_drops_changes_the_answers_more_than_random_connections_would(name):
    """On average over seeds: it is one iteration of a relaxation."""
    gains = []
    for seed in range(6):
        case = Case(name, seed)
        some = dict(list(case.weights.items())[1:-1:3])
        start = directions(some, case.random) | {"corner": torch.randn((), generator=case.random)}
        kept = worst_kept(case.divergence, some, case.x, start, XI, 0.2)
        with torch.no_grad():
            worst = case.divergence(case.still, case.masked(kept))
            usual = []
            for _ in range(10):
                chance = {}
                for n, mask in kept.items():
                    order = torch.randperm(mask.numel(), generator=case.random)
                    chance[n] = mask.flatten()[order].view_as(mask)
                usual.append(case.divergence(case.still, case.masked(chance)))
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


def naive_kept(weights, hessian, start, drop):
    """One product of [[H, H1], [1ᵀH, 0]] with (s, s₀); the sign is such that its last number is positive."""
    v = torch.cat([*(start[n].flatten() for n in weights), start["corner"][None]])
    one, zero = torch.ones(len(hessian), 1, dtype=v.dtype), torch.zeros(1, 1, dtype=v.dtype)
    bordered = torch.cat([torch.cat([hessian, hessian @ one], 1), torch.cat([one.T @ hessian, zero], 1)])
    product = bordered @ v
    flipped = bool(product[-1] < 0)
    product = -product if flipped else product
    kept = {}
    for (n, w), part in zip(weights.items(), product[:-1].split([w.numel() for w in weights.values()]), strict=True):
        worst = sorted(range(len(part)), key=lambda j: float(part[j]), reverse=True)[: round(drop * len(part))]
        kept[n] = torch.tensor([0.0 if j in worst else 1.0 for j in range(len(part))]).view_as(w)
    return kept, flipped


@pytest.mark.parametrize("drop", [0.2, 0.5])
def test_on_a_quadratic_the_ranking_is_one_iteration_of_the_bordered_matrix(drop):
    flips = set()
    for seed in range(20):
        weights, hessian, divergence, start = quadratic_problem(seed)
        got = worst_kept(divergence, weights, torch.zeros(1, 2, dtype=torch.float64), start, 0.1, drop)
        expected, flipped = naive_kept(weights, hessian, start, drop)
        flips.add(flipped)
        for n in weights:
            assert torch.equal(got[n].float(), expected[n])
    assert flips == {False, True}


def test_the_sign_and_the_length_of_the_start_do_not_matter():
    weights, _, divergence, start = quadratic_problem(3)
    still = torch.zeros(1, 2, dtype=torch.float64)
    first = worst_kept(divergence, weights, still, start, 0.1, 0.5)
    for factor in (-1.0, 7.0):
        again = worst_kept(divergence, weights, still, {n: factor * t for n, t in start.items()}, 0.1, 0.5)
        assert all(torch.equal(first[n], again[n]) for n in first)


# --- the read ---------------------------------------------------------------------------------------------------------


def looked(name, epsilon=1.0, shift=0.1, drop=0.2, number=0):
    """The images and the weights of the pass that learns, and its answer, beside the clean one."""
    net, step, passes = network(name), step_of(name, number=number), []
    plain = step.probe
    step.probe = lambda *given: (passes.append(given), plain(*given))[1]
    answer = Worst(net, "a", epsilon, shift, drop, XI)(step)
    _, images, _, weights = passes[-1]
    return net, step, images.detach(), weights, answer


@every_network
def test_without_any_perturbation_nothing_changes(name):
    net, step, images, weights, answer = looked(name, 0.0, 0.0, 0.0)
    assert torch.equal(images, step.view("a"))
    assert all(torch.equal(weights[n], w) for n, w in weights_of(net).items())
    divergence = kl(answer, step.learn(net, "a"), torch.ones(COUNT))
    assert divergence.abs().max() < 1e-6


@every_network
def test_images_and_weights_move_by_what_was_asked(name):
    net, step, images, worst, _ = looked(name, epsilon=0.7, shift=0.25, drop=0.0)
    assert torch.allclose((images - step.view("a")).flatten(1).norm(dim=1), torch.full((COUNT,), 0.7), rtol=1e-3)
    own = weights_of(net)
    moves = {n: (worst[n] - w).detach() for n, w in own.items()}
    *_, head = own
    moves[head] = moves[head] / 0.1  # the last layer moves a tenth
    assert (length(moves) / length({n: w.detach() for n, w in own.items()})).item() == pytest.approx(0.25, rel=1e-3)


@every_network
def test_connections_are_dropped_in_the_middle_layer_of_each_three(name):
    net, _, _, worst, _ = looked(name, shift=0.0, drop=0.3)
    own = list(weights_of(net).items())
    dropped = [i for i, (n, _) in enumerate(own) if (worst[n] == 0).any()]
    assert dropped == ([1] if name == "mlp" else [1, 4, 7])
    for i in dropped:
        n, w = own[i]
        assert int((worst[n] == 0).sum()) == round(0.3 * w.numel())
        assert torch.equal(worst[n][worst[n] != 0], w[worst[n] != 0])


@every_network
def test_gradients_reach_the_real_weights_of_the_student(name):
    net, step, _, _, answer = looked(name)
    kl(answer, step.learn(net, "a").detach(), torch.ones(COUNT)).mean().backward()
    for n, p in net.named_parameters():
        assert p.grad is not None, n
        assert torch.isfinite(p.grad).all()
    assert all(w.grad.abs().max() > 0 for w in weights_of(net).values())


@every_network
def test_it_is_a_function_of_the_step(name):
    first, again, other = (looked(name, number=number)[-1] for number in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@every_network
def test_the_inner_passes_leave_no_trace(name):
    net, alone = network(name), network(name)
    before = deepcopy(dict(net.named_parameters()))
    Worst(net, "a", 1.0, 0.1, 0.2, XI)(step_of(name))
    See(alone, "a")(step_of(name))
    assert all(torch.equal(a, b) for a, b in zip(net.buffers(), alone.buffers(), strict=True))
    assert all(torch.equal(p, before[n]) for n, p in net.named_parameters())
    assert all(p.grad is None for p in net.parameters())


def plain(given):
    """The method's own defaults where nothing is given."""
    options = METHODS[given["method"]].defaults() | dict(given.get("options", {}))
    return Config(**SETTINGS[given["data"]] | dict(given) | {"options": options})


def wcp(**options):
    given = {"data": "digits", "method": "wcp", "labels": 10, "validation": 0, "width": 4, "steps": 6, "threads": 1}
    given |= {"labelled_batch": 5, "unlabelled_batch": 9, "options": options}
    return build(complete(plain(given)))


def test_in_a_run_the_worst_case_is_free_without_perturbations_and_dearer_with_each():
    def term(**options):
        training = wcp(**({"epsilon": 0.0, "shift": 0.0, "drop": 0.0} | options))
        return training.method.losses(training.step(2))["worst case"].item()

    assert abs(term()) < 1e-6
    for option, values in {"epsilon": (0.1, 1.0), "shift": (0.01, 0.1), "drop": (0.02, 0.5)}.items():
        costs = [term(), *(term(**{option: value}) for value in values)]
        assert all(more > less for less, more in pairwise(costs)), (option, costs)
    assert term(epsilon=1.0, shift=0.1, drop=0.2) > 0
