"""Dual student: which student is stable and which one teaches, against loops; partners among more than two."""

import pytest
import torch
from builders import normal, plain_run, step_of
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from certus.methods.dual_student import StablePartner, other_teaches, stable
from certus.methods.partners import partner

SMALL = {"labels": 6, "width": 8, "labelled_batch": 6, "unlabelled_batch": 40}
CONSTANT = {"weight": 1.0, "stabilisation": 1.0, "ramp": 0.0}


def run(**options):
    return plain_run("dual-student", CONSTANT | options, steps=12, **SMALL)


def logits(seed, count, classes=3):
    return 2 * normal(count, classes, seed=seed, dtype=torch.float64)


def naive_stable(one, two, threshold):
    p, q = one.softmax(0).tolist(), two.softmax(0).tolist()
    return p.index(max(p)) == q.index(max(q)) and (max(p) > threshold or max(q) > threshold)


def naive_change(one, two):
    p, q = one.softmax(0).tolist(), two.softmax(0).tolist()
    return sum((a - b) ** 2 for a, b in zip(p, q, strict=True))


# --- the definition ---------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.integers(0, 8), st.floats(0, 1))
def test_stable_is_the_definition(seed, count, threshold):
    one, two = logits(seed, count), logits(seed + 1, count)
    two = torch.where(torch.arange(count)[:, None] % 2 == 0, one + 0.1 * two, two)  # half of them agree
    got = stable(one, two, threshold)
    assert got.tolist() == [naive_stable(one[i], two[i], threshold) for i in range(count)]


def test_confidence_must_be_above_the_threshold_in_one_view_at_least():
    def sure(p):
        return torch.tensor([[p, 1 - p]], dtype=torch.float64).log()

    assert stable(sure(0.9), sure(0.6), 0.8).item()
    assert stable(sure(0.6), sure(0.9), 0.8).item()
    assert not stable(sure(0.7), sure(0.6), 0.8).item()
    assert not stable(sure(0.9), sure(0.1), 0.5).item()  # confident, but of another class
    half = torch.zeros(1, 2, dtype=torch.float64)
    assert not stable(half, half, 0.5).item()  # not above
    assert stable(half, half, 0.49).item()


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 2), st.integers(0, 2)), max_size=10))
def test_other_teaches_is_the_definition_and_never_holds_in_both_directions(cases):
    flags = [torch.tensor([case[i] for case in cases], dtype=torch.bool) for i in (0, 1)]
    changes = [torch.tensor([case[i] for case in cases], dtype=torch.float64) for i in (2, 3)]
    mine, others = other_teaches(*flags, *changes), other_teaches(*flags[::-1], *changes[::-1])
    for i, (own, other, here, there) in enumerate(cases):
        assert mine[i].item() == (other and (not own or here > there))
        assert not (mine[i] and others[i])
        if own != other:
            assert mine[i].item() == other  # the stable one teaches
        if not own and not other:
            assert not mine[i]
            assert not others[i]


# --- as a source ------------------------------------------------------------------------------------------------------


def expected_target(step, students, i, j, threshold):
    """Image by image, from the answers of both in this step."""
    views = ("a", "b")

    def answers(k):
        return step.learn(students[k], views[k % 2]).detach(), step.stochastic_answer(students[k], views[1 - k % 2])

    (mine, mine_again), (other, other_again) = answers(i), answers(j)
    weight = []
    for n, label in enumerate(step.batch.labels.tolist()):
        here, there = naive_change(mine[n], mine_again[n]), naive_change(other[n], other_again[n])
        steady = naive_stable(mine[n], mine_again[n], threshold), naive_stable(other[n], other_again[n], threshold)
        weight.append(float(label < 0 and steady[1] and (not steady[0] or here > there)))
    return other, weight


@pytest.mark.parametrize("threshold", [0.0, 0.55])
@pytest.mark.parametrize("scale", [1.0, 0.5, 3.0])
def test_the_target_is_the_partners_detached_answer_where_it_is_the_more_stable(threshold, scale):
    training = run(threshold=threshold, scale=scale)
    for number in range(4):
        training.advance(number)
    step, students = training.step(4), training.method.students
    weights = []
    for i in (0, 1):
        target = training.method.terms[f"stabilisation {i + 1}"].source(step)
        other, weight = expected_target(step, students, i, 1 - i, threshold)
        assert torch.equal(target.logits, other)
        assert not target.logits.requires_grad
        assert target.weight.tolist() == weight
        weights.append(target.weight)
    assert all(weight[step.batch.labels < 0].any() for weight in weights)
    assert not (weights[0] * weights[1]).any()
    assert not any(weight[step.batch.labels >= 0].any() for weight in weights)


def test_the_terms_are_means_over_the_whole_batch():
    training = run(weight=0.7, stabilisation=3.0, threshold=0.0)
    for number in range(4):
        training.advance(number)
    step, students = training.step(4), training.method.students
    losses = training.method.losses(step)
    for i, view, again in ((0, "a", "b"), (1, "b", "a")):
        mine = step.learn(students[i], view).detach()
        mine_again = step.stochastic_answer(students[i], again)
        other, weight = expected_target(step, students, i, 1 - i, 0.0)
        count = len(step.batch)
        own = sum(naive_change(mine[n], mine_again[n]) for n in range(count)) / count
        learned = sum(weight[n] * naive_change(mine[n], other[n]) for n in range(count)) / count
        assert losses[f"consistency {i + 1}"].item() == pytest.approx(0.7 * own, rel=1e-4)
        assert losses[f"stabilisation {i + 1}"].item() == pytest.approx(3.0 * learned, rel=1e-4)


def test_two_equal_students_without_noise_teach_each_other_nothing():
    """Neither changes less than the other: a tie."""
    torch.manual_seed(0)
    net = nn.Linear(2, 3)
    step = step_of(torch.randn(8, 2))
    for i in (0, 1):
        assert not StablePartner((net, net), i, 0.0)(step).weight.any()


def test_no_answer_is_stable_at_a_threshold_of_one():
    training = run(threshold=1.0)
    losses = training.advance(0)
    assert losses["stabilisation 1"] == losses["stabilisation 2"] == 0
    assert losses["consistency 1"] > 0


def test_every_second_student_has_the_scaled_width():
    training = run(students=4, scale=0.5)
    assert [net.head.in_features for net in training.method.students] == [8, 4, 8, 4]
    for number in range(2):
        assert all(torch.isfinite(loss) for loss in training.advance(number).values())
    alike = run(students=4)
    assert [net.head.in_features for net in alike.method.students] == [8, 8, 8, 8]


def test_students_start_differently_and_learn_from_different_views():
    training = run()
    one, two = training.method.students
    assert not torch.equal(one.head.weight, two.head.weight)
    assert training.method.terms["supervised 1"].read.view == "a"
    assert training.method.terms["supervised 2"].read.view == "b"


# --- partners ---------------------------------------------------------------------------------------------------------


@given(st.integers(0, 99), st.integers(0, 2**32))
def test_two_students_are_partners_of_each_other(number, seed):
    step, students = step_of(torch.zeros(1, 1), number=number, seed=seed), (nn.Identity(), nn.Identity())
    assert [partner(step, students, i) for i in (0, 1)] == [1, 0]


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_more_students_form_one_circle_that_changes_from_step_to_step(n):
    students = tuple(nn.Identity() for _ in range(n))
    seen = set()
    for number in range(60):
        step = step_of(torch.zeros(1, 1), number=number)
        partners = [partner(step, students, i) for i in range(n)]
        assert sorted(partners) == list(range(n))
        assert all(partners[i] != i for i in range(n))
        again = step_of(torch.zeros(1, 1), number=number)
        assert partners == [partner(again, students, i) for i in reversed(range(n))][::-1]
        at, met = 0, 1
        while (at := partners[at]) != 0:
            met += 1
        assert met == n  # one circle through all
        seen.add(tuple(partners))
    assert len(seen) >= min(2 * (n - 2), 10)
    assert {partners[0] for partners in seen} == set(range(1, n))
