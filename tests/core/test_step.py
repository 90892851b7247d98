"""One step: every forward at most once, noise by name, statistics that only learning changes."""

from copy import deepcopy

import pytest
import torch
from builders import Stack, normal, small_cnn, step_of
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from certus.certainty.draws import Independent
from certus.core.step import Step
from certus.teachers import EMA
from certus.views import Chain, Noise, weak

VIEWS = {"weak": weak(translate=1, noise=0.1), "strong": Noise(1.0)}


def step_at(number=0, seed=0, views=VIEWS):
    """A step of six images, the same at every number, so that only the noise differs."""
    labels = torch.tensor([0, 1, -1, -1, -1, -1])
    return step_of(normal(6, 1, 8, 8), labels, number=number, seed=seed, views=views)


@pytest.fixture
def student():
    return small_cnn()


@pytest.fixture
def teacher(student):
    return EMA(student).net


def statistics(net):
    return deepcopy(dict(net.named_buffers()))


def unchanged(net, before):
    return all(torch.equal(before[name], buffer) for name, buffer in net.named_buffers())


def drawn_by(step, net, name, draws):
    """(T, B, C)"""
    stack = Stack()
    step.draw(net, name, Independent(draws), stack)
    return stack.draws


HOW = {"learn": Step.learn, "answer": Step.answer, "stochastic answer": Step.stochastic_answer}


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from(list(HOW)), st.sampled_from("ab"), st.sampled_from(list(VIEWS))),
        min_size=1,
        max_size=12,
    )
)
def test_each_forward_runs_at_most_once(calls):
    nets, step, ran = [nn.Linear(8, 2), nn.Linear(8, 2)], step_at(), []
    for i, net in enumerate(nets):
        net.register_forward_hook(lambda *_, i=i: ran.append(i))
    answers = {}
    for i, how, name, kind in calls:
        answer = HOW[how](step, nets[i], name, kind)
        assert answers.setdefault((i, how, name, kind), answer) is answer
    assert len(ran) == len(answers)
    assert [ran.count(i) for i in (0, 1)] == [sum(key[0] == i for key in answers) for i in (0, 1)]


def test_each_view_is_made_once_and_shared():
    made = []

    def count(images, generator):
        made.append(generator)
        return images + 1

    step = step_at(views={"weak": count})
    net = nn.Flatten()
    assert step.view("a") is step.view("a")
    step.learn(net, "a")
    step.answer(net, "a")
    assert len(made) == 1
    step.view("b")
    assert len(made) == 2


def test_a_view_is_a_function_of_seed_step_name_and_kind():
    view = step_at().view("a")
    assert torch.equal(view, step_at().view("a", "weak"))
    for other in (step_at().view("b"), step_at().view("a", "strong"), step_at(seed=1).view("a"), step_at(1).view("a")):
        assert not torch.equal(view, other)


def test_random_numbers_are_a_function_of_seed_step_and_purpose():
    def numbers(number=0, seed=0, purpose="drop"):
        return torch.rand(4, generator=step_at(number, seed).generator(purpose)).tolist()

    assert numbers() == numbers()
    assert numbers() != numbers(number=1)
    assert numbers() != numbers(seed=1)
    assert numbers() != numbers(purpose="drop 2")


@pytest.mark.parametrize("how", ["learn", "stochastic answer"])
def test_the_same_name_is_the_same_noise_and_another_name_is_another(how, student):
    def run(name):
        return HOW[how](step_at(), deepcopy(student), name)

    assert torch.equal(run("a"), run("a"))
    assert not torch.equal(run("a"), run("b"))


@pytest.mark.parametrize("how", ["learn", "stochastic answer"])
def test_dropout_alone_follows_the_name_and_the_step(how, student):
    def run(number, name):
        return HOW[how](step_at(number, views={"weak": Chain()}), student, name)

    assert torch.equal(run(0, "a"), run(0, "a"))
    assert not torch.equal(run(0, "a"), run(0, "b"))
    assert not torch.equal(run(0, "a"), run(1, "a"))


def test_the_order_of_calls_changes_no_answer(student, teacher):
    def ask(*calls):
        step, net = step_at(), deepcopy(student)
        answers = {(how, name): HOW[how](step, teacher if how == "answer" else net, name) for how, name in calls}
        return [answers[key].tolist() for key in sorted(answers)]

    calls = [("learn", "a"), ("stochastic answer", "a"), ("learn", "b"), ("answer", "b"), ("stochastic answer", "b")]
    assert ask(*calls) == ask(*reversed(calls))


def test_a_stochastic_answer_under_the_same_name_is_the_students_answer(student):
    step = step_at()
    assert torch.equal(step.stochastic_answer(student, "a"), step.learn(student, "a"))


def test_answer_is_the_teacher_in_evaluation(teacher):
    step = step_at()
    assert torch.allclose(step.answer(teacher, "b"), teacher(step.view("b")), atol=1e-5)  # by its fused copy


def test_only_learning_carries_a_gradient(student):
    step = step_at()
    assert step.learn(student, "a").requires_grad
    assert not step.answer(deepcopy(student).eval(), "b").requires_grad
    assert not step.stochastic_answer(student, "b").requires_grad
    assert not drawn_by(step, student, "b", 2).requires_grad


def test_learning_changes_batch_norm_statistics(student):
    before = statistics(student)
    step_at().learn(student, "a")
    assert all(not torch.equal(before[name], buffer) for name, buffer in student.named_buffers())


def test_an_answer_changes_no_statistics(teacher):
    before = statistics(teacher)
    step_at().answer(teacher, "b")
    assert unchanged(teacher, before)


def test_a_stochastic_answer_changes_no_statistics_and_no_mode(student):
    before = statistics(student)
    step_at().stochastic_answer(student, "b")
    assert unchanged(student, before)
    assert all(m.training for m in student.modules())


def test_draws_change_no_statistics_and_restore_every_mode(student, teacher):
    for net in (student, teacher):
        before, modes = statistics(net), [m.training for m in net.modules()]
        drawn_by(step_at(), net, "b", 3)
        assert unchanged(net, before)
        assert [m.training for m in net.modules()] == modes


def test_draws_are_probabilities_that_all_differ(teacher):
    drawn = drawn_by(step_at(), teacher, "b", 5)
    assert drawn.shape == (5, 6, 3)
    assert torch.allclose(drawn.sum(-1), torch.ones(5, 6))
    assert all((drawn[s] != drawn[t]).any(1).all() for s in range(5) for t in range(s))


@pytest.mark.parametrize(("dropout", "views"), [(0.5, {"weak": Chain()}), (0.0, VIEWS)], ids=["dropout", "view"])
def test_each_source_of_noise_alone_makes_draws_differ_and_follows_name_step_and_seed(dropout, views):
    net = EMA(small_cnn(dropout)).net

    def drawn(number=0, seed=0, name="b"):
        return drawn_by(step_at(number, seed, views), net, name, 2)

    assert torch.equal(drawn(), drawn())
    answers = [*drawn(), *drawn(name="c"), *drawn(number=1), *drawn(seed=1)]
    assert all(not torch.equal(one, other) for i, one in enumerate(answers) for other in answers[:i])


def test_draws_without_any_noise_are_the_clean_answer():
    teacher, step = EMA(small_cnn(dropout=0.0)).net, step_at(views={"weak": Chain()})
    drawn, clean = drawn_by(step, teacher, "b", 2), step.answer(teacher, "b").softmax(1)
    assert torch.equal(drawn, clean.expand(2, -1, -1))


def test_more_draws_only_add_to_the_first_ones(teacher):
    assert torch.equal(drawn_by(step_at(), teacher, "b", 5)[:2], drawn_by(step_at(), teacher, "b", 2))


@pytest.mark.parametrize("how", ["learn", "stochastic answer"])
def test_the_number_of_draws_does_not_change_the_students_forward_bit_for_bit(how, student, teacher):
    def run(draws):
        step, net = step_at(), deepcopy(student)
        if draws:
            drawn_by(step, teacher, "b", draws)
        out = HOW[how](step, net, "a")
        return out.tolist(), [b.tolist() for b in net.buffers()]

    assert run(0) == run(2) == run(10)


def test_a_batch_is_as_long_as_its_labels():
    assert len(step_at().batch) == 6


def test_an_answer_changes_nothing_in_a_network_that_is_training(student):
    before = statistics(student)
    answer = step_at().answer(student, "a")
    assert unchanged(student, before)
    assert student.training
    assert torch.equal(answer, step_at().answer(student, "a"))
    assert not torch.equal(answer, step_at().stochastic_answer(student, "a"))
