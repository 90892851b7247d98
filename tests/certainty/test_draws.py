"""Plans for draws: their text, what they run, what they cost, and what the leaves of a tree share."""

import math
from collections import Counter
from itertools import pairwise

import pytest
import torch
from builders import Stack, step_of
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from certus.certainty.draws import Independent, Tree, children, parse, suitable
from certus.certainty.metrics import METRICS, rank
from certus.certainty.streaming import Moments
from certus.errors import UsageError
from certus.networks import network
from certus.networks.modes import dropout_only
from certus.networks.stages import stages
from certus.randomness import seed_global
from certus.views import weak

numbers = st.lists(st.integers(1, 12), min_size=2, max_size=4).map(lambda n: tuple(sorted(n)))
trees = numbers.filter(lambda n: n[-1] > 1).map(Tree)
plans = trees | st.integers(2, 50).map(Independent)


class Blank(nn.Module):
    """Dropout that passes everything: a site to branch at."""

    def __init__(self, log):
        super().__init__()
        self.log = log

    def forward(self, x):
        self.log.append(self)
        return x + 0


@given(plans)
def test_a_plan_is_what_it_prints(plan):
    assert parse(repr(plan)) == plan


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a plan"),
        ("independent", "not a plan"),
        ("independent:x", "not a plan"),
        ("independent:2x3", "not a plan"),
        ("independent:-3", "not a plan"),
        ("forest:1x2", "not a plan"),
        ("tree:1xx2", "not a plan"),
        ("tree:1x2.5", "not a plan"),
        ("tree:²x3", "not a plan"),
        ("independent:1", "at least 2"),
        ("independent:0", "at least 2"),
        ("tree:10", "no level to branch at"),
        ("tree:4x1x10", "must not decrease"),
        ("tree:0x4", "from 1"),
        ("tree:1x1", "at least 2"),
    ],
)
def test_a_wrong_plan_is_refused_in_one_sentence_that_repeats_it(text, why):
    with pytest.raises(UsageError, match=why) as refused:
        parse(text)
    assert text in str(refused.value)
    assert str(refused.value).count(". ") == 0


@given(st.integers(1, 9), st.integers(0, 30))
def test_children_are_spread_evenly_and_each_has_one_parent(nodes, more):
    below = nodes + more
    shares = [children(node, nodes, below) for node in range(nodes)]
    assert [child for share in shares for child in share] == list(range(below))
    assert {len(share) for share in shares} <= {below // nodes, -(-below // nodes)}


@given(trees, st.integers(1, 6))
def test_a_tree_runs_each_stage_as_often_as_its_level_says_and_only_on_what_its_parent_made(tree, sites):
    log, names, views, out = [], [], [], Stack()
    parts = [Blank(log) for _ in range(sites + 1)]
    branching = len(tree.levels) - 1
    make = lambda v: views.append(v) or torch.full((1, 2), float(v))  # noqa: E731
    if branching > sites:
        with pytest.raises(UsageError, match=f"cut at {sites}: give at most {sites + 1} numbers"):
            tree.run(parts, make, names.append, out)
        assert not log
        return
    tree.run(parts, make, names.append, out)
    expected = [tree.levels[0]] * (sites + 1 - branching) + list(tree.levels[1:])
    assert [Counter(log)[part] for part in parts] == expected == tree.counts(parts)
    assert views == list(range(tree.levels[0]))
    assert len(out.kept) == tree.levels[-1]
    assert len(set(names)) == len(names) == sum(expected[1:])


def test_a_network_that_cannot_be_cut_takes_independent_draws_only():
    with pytest.raises(UsageError, match="cut at 0: use independent draws"):
        Tree((1, 4)).counts([nn.Linear(2, 2)])


def test_only_one_activation_per_level_is_in_memory():
    alive, most = Counter(), Counter()

    class Watch(nn.Module):
        def __init__(self, level):
            super().__init__()
            self.level = level

        def forward(self, x):
            y = x + 1
            alive[self.level] += 1
            most[self.level] = max(most[self.level], alive[self.level])
            y.watch = Gone(self.level)
            return y

    class Gone:
        def __init__(self, level):
            self.level = level

        def __del__(self):
            alive[self.level] -= 1

    Tree((2, 6, 30)).run([Watch(0), Watch(1), Watch(2)], lambda _: torch.zeros(1, 2), lambda _: None, Stack())
    assert most == {0: 1, 1: 1, 2: 1}


def step_on(images):
    return step_of(images, number=3, seed=7, views={"weak": weak(translate=1, noise=0.1)})


def run(plan, net, step, out):
    """Like a source: views and seeds by name."""
    plan.run(
        stages(net),
        lambda v: step.views["weak"](step.batch.images, step.generator(f"view b draw {v}")),
        lambda name: step.seed_dropout(f"b {name}"),
        out,
    )
    return out


def plain_draws(step, net, name, passes):
    """T passes of the network itself, one after the other: (T, B, C)."""
    drawn = []
    with torch.no_grad(), dropout_only(net):
        for t in range(passes):
            x = step.views["weak"](step.batch.images, step.generator(f"view {name} draw {t}"))
            step.seed_dropout(f"{name} draw {t}")
            drawn.append(net(x).softmax(1))
    return torch.stack(drawn)


@pytest.mark.parametrize(("name", "shape"), [("cnn13-small", (1, 8, 8)), ("wrn-28", (1, 8, 8))])
def test_the_fused_copy_has_the_same_draws_and_ranks_within_rounding(name, shape):
    torch.manual_seed(0)
    net = network(name, shape, 3, 4, 0.5).to(memory_format=torch.channels_last).eval()
    images, stack = torch.randn(9, *shape), Stack()
    step_on(images).draw(net, "b", Independent(6), stack)
    expected = plain_draws(step_on(images), net, "b", 6)
    assert torch.allclose(stack.draws, expected, atol=1e-4)
    assert spearman(METRICS["pv"](stack.draws), METRICS["pv"](expected)) > 0.99


def spearman(a, b):
    return float(torch.corrcoef(torch.stack([rank(a), rank(b)]).double())[0, 1])


@pytest.mark.parametrize(("name", "shape"), [("cnn13-small", (1, 8, 8)), ("wrn-28", (1, 8, 8))])
def test_independent_draws_are_those_of_the_step_bit_for_bit(name, shape):
    torch.manual_seed(0)
    net = network(name, shape, 3, 4, 0.5)
    modes = [m.training for m in net.modules()]
    images = torch.randn(5, *shape)
    expected = plain_draws(step_on(images), net, "b", 4)
    assert torch.equal(run(Independent(4), net, step_on(images), Stack()).draws, expected)
    assert [m.training for m in net.modules()] == modes


def test_a_network_in_one_piece_draws_like_the_plain_loop():
    torch.manual_seed(0)

    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network("cnn13-small", (1, 8, 8), 3, 4, 0.5)

        def forward(self, x):
            return self.net(x) * 2

    net, images = Around(), torch.randn(5, 1, 8, 8)
    assert len(stages(net)) == 1
    expected = plain_draws(step_on(images), net, "b", 3)
    assert torch.equal(run(Independent(3), net, step_on(images), Stack()).draws, expected)


def test_a_trees_leaves_all_differ_and_are_a_function_of_the_step():
    torch.manual_seed(0)
    net, images = network("cnn13-small", (1, 8, 8), 3, 4, 0.5), torch.randn(5, 1, 8, 8)
    drawn = run(Tree((1, 2, 5)), net, step_on(images), Stack()).draws
    assert torch.equal(drawn, run(Tree((1, 2, 5)), net, step_on(images), Stack()).draws)
    assert all((a != b).any(1).all() for i, a in enumerate(drawn) for b in drawn[:i])


def test_leaves_share_what_their_parent_drew():
    # Each leaf shows the first site's mask, because the second site passes everything.
    parts = [nn.Sequential(), nn.Sequential(nn.Dropout(0.5)), nn.Sequential(nn.Dropout(1e-9))]
    out = Stack()
    seed = lambda name: seed_global(0, name)  # noqa: E731
    Tree((1, 3, 7)).run(parts, lambda _: torch.ones(1, 64), seed, out)
    families = [[str(out.kept[leaf].tolist()) for leaf in children(node, 3, 7)] for node in range(3)]
    assert all(len(set(family)) == 1 for family in families)
    assert len({family[0] for family in families}) == 3


def test_dropout_in_place_at_a_site_is_refused_not_silently_shared():
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5, inplace=True), nn.Linear(4, 2))
    with pytest.raises(UsageError, match="in place"):
        Tree((1, 3)).run(stages(net), lambda _: torch.randn(2, 4), lambda _: None, Stack())


def test_draws_carry_no_gradient():
    net, out = network("mlp", (4,), 3, 4, 0.5), Stack()
    Tree((1, 2, 4)).run(stages(net), lambda _: torch.randn(2, 4), lambda _: None, out)
    assert not out.draws.requires_grad


def test_cost_counts_multiply_adds_by_hand():
    net = network("mlp", (6,), 3, 4, 0.5)  # 6·4, then 4·4, then 4·3 multiply-adds
    parts = stages(net)
    assert Independent(10).cost(parts, (6,)) == pytest.approx(10)
    assert Tree((1, 4, 10)).cost(parts, (6,)) == pytest.approx((24 + 4 * 16 + 10 * 12) / 52)
    assert Tree((2, 8)).cost(parts, (6,)) == pytest.approx((2 * 24 + 2 * 16 + 8 * 12) / 52)
    assert net.training


def test_cost_of_the_papers_network():
    convolutions = [(3, 1, 32, 3), (1, 1, 32, 3), (1, 1, 32, 3), (1, 2, 16, 3), (2, 2, 16, 3), (2, 2, 16, 3)]
    convolutions += [(2, 4, 6, 3), (4, 2, 6, 1), (2, 1, 6, 1)]
    w = 16
    work = [(i if i == 3 else i * w) * o * w * side**2 * k**2 for i, o, side, k in convolutions]
    first, second, third = sum(work[:3]), sum(work[3:6]), sum(work[6:]) + w * 10
    net = network("cnn13", (3, 32, 32), 10, w, 0.5)
    expected = (first + 4 * second + 10 * third) / (first + second + third)
    assert Tree((1, 4, 10)).cost(stages(net), (3, 32, 32)) == pytest.approx(expected)
    assert 3 < expected < 5


@given(st.integers(2, 9))
def test_a_tree_without_sharing_costs_what_independent_draws_cost(t):
    parts = stages(network("mlp", (6,), 3, 4, 0.5))
    assert Tree((t, t, t)).cost(parts, (6,)) == pytest.approx(t)


# The theory, on many equal images: each is a separate experiment.
TRIALS = 8000
VIEW_NOISE = 1.0


def tiny():
    torch.manual_seed(0)
    net = network("mlp", (4,), 3, 8, 0.1)
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(4)  # so that the view and both dropouts have a similar effect
    return net


def experiments(plan, seed):
    """Draws (T, trials, C) of one input under noisy views and dropout."""
    torch.manual_seed(seed)
    out = Stack()
    x = torch.tensor([1.0, -1.0, 0.5, 2.0]).repeat(TRIALS, 1)
    plan.run(stages(tiny()), lambda v: view(x, v, seed), lambda name: seed_global(seed, name), out)
    return out.draws.double()


def view(x, v, seed):
    return x + VIEW_NOISE * torch.randn(x.shape, generator=torch.Generator().manual_seed(1000 * seed + v))


def apart(one, other):
    """By how many standard errors the means of two sets of experiments differ."""
    error = math.sqrt(one.var().item() / len(one) + other.var().item() / len(other))
    return abs(one.mean().item() - other.mean().item()) / error


def entropy(draws):
    return torch.special.entr(draws).sum(-1).mean(0)


@pytest.mark.parametrize("tree", ["tree:1x4x10", "tree:2x3x7", "tree:1x1x6", "tree:2x8"])
def test_the_means_over_leaves_are_unbiased(tree):
    branched, single = experiments(parse(tree), 1), experiments(Independent(10), 2)
    for c in range(3):
        assert apart(branched.mean(0)[:, c], single.mean(0)[:, c]) < 4.5
    assert apart(entropy(branched), entropy(single)) < 4.5


def test_a_tree_without_sharing_has_the_distribution_of_independent_draws():
    branched, single = experiments(Tree((6, 6, 6)), 1), experiments(Independent(6), 2)
    for metric in METRICS.values():
        assert apart(metric(branched), metric(single)) < 4.5


def variances():
    """V_0, V_1, V_2 by nested sampling: the covariance of leaves with a view, and with a first dropout, in common."""
    pairs = {depth: experiments(Tree(levels), 3) for depth, levels in ((0, (1, 2, 2)), (1, (1, 1, 2)))}
    total = experiments(Independent(2), 4).flatten(0, 1)
    mean, power = total.mean(0), total.var(0).sum().item()
    shared = [((p[0] - mean) * (p[1] - mean)).sum(-1).mean().item() for p in (pairs[0], pairs[1])]
    return shared[0], shared[1] - shared[0], power - shared[1]


@pytest.mark.parametrize("levels", [(1, 4, 10), (2, 3, 7), (1, 1, 6), (5, 5, 5)])
def test_pv_of_a_tree_is_too_small_by_the_shared_part_and_nothing_else(levels):
    parts, t = variances(), levels[-1]
    assert min(parts) > 0.05  # each source of randomness matters here
    shares = []  # Σ_j w_lj²
    for level in range(3):
        weight = [1.0] * t
        for upper, lower in reversed(list(pairwise(levels[level:]))):
            weight = [sum(weight[child] for child in children(node, upper, lower)) for node in range(upper)]
        shares.append(sum((w / t) ** 2 for w in weight))
    expected = sum((1 - share) * v for share, v in zip(shares, parts, strict=True))
    pv = METRICS["pv"](experiments(Tree(levels), 5)).mean().item()
    assert pv == pytest.approx(expected, abs=0.01)
    assert pv <= (1 - 1 / t) * sum(parts) + 0.01


def test_moments_collect_the_draws_of_a_plan():
    torch.manual_seed(0)
    net, images = network("cnn13-small", (1, 8, 8), 3, 4, 0.5), torch.randn(5, 1, 8, 8)
    moments, all_draws = Moments(5, 3), Stack()
    for out in (moments, all_draws):
        run(Tree((1, 2, 6)), net, step_on(images), out)
    for name, metric in METRICS.items():
        assert torch.allclose(getattr(moments, name), metric(all_draws.draws), atol=1e-6)


@pytest.mark.parametrize(
    ("net", "expected"),
    [
        (network("cnn13", (3, 32, 32), 10, 4, 0.5), "tree:1x1x4"),
        (network("wrn-28", (3, 32, 32), 10, 4, 0.5), "tree:1x1x4"),
        (network("mlp", (5,), 3, 8, 0.5), "tree:1x1x4"),
        (nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5), nn.Linear(4, 2)), "tree:1x4"),
        (nn.Dropout(0.5), "independent:4"),
    ],
    ids=["cnn13", "wrn", "mlp", "one dropout", "one piece"],
)
def test_the_suitable_plan_fits_every_network(net, expected):
    plan = suitable(stages(net))
    assert repr(plan) == expected
    assert plan.counts(stages(net))
