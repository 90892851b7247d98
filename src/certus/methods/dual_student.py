"""Dual student: on each image, the more stable of two students teaches the other."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from certus.core.build_context import BuildContext
from certus.core.losses import mse
from certus.core.method import Method, numbered
from certus.core.schedules import RampUp
from certus.core.step import Step
from certus.core.student import See
from certus.core.target import Target
from certus.core.terms import Consistency, CrossEntropy, Term
from certus.methods.options import at_least, between, option
from certus.methods.partners import partner
from certus.methods.recipe import Recipe
from certus.networks.roles import set_role
from certus.teachers import StochasticAnswer

VIEWS = ("a", "b")  # student i learns on VIEWS[i % 2] and answers the other view as well


def stable(one: Tensor, two: Tensor, threshold: float) -> Tensor:
    """(B,) whether both answers (logits) have the same class, and at least one has confidence above the threshold."""
    p, q = one.softmax(1), two.softmax(1)
    return (p.argmax(1) == q.argmax(1)) & ((p.amax(1) > threshold) | (q.amax(1) > threshold))


def other_teaches(stable_self: Tensor, stable_other: Tensor, change_self: Tensor, change_other: Tensor) -> Tensor:
    """(B,) whether the other student teaches this one: the other is stable, and this one is not, or its answer changes
    more between the views."""
    return stable_other & (~stable_self | (change_self > change_other))


@dataclass(frozen=True, eq=False)
class StablePartner:
    """The partner's answer to its own view, for the unlabelled images on which it is the more stable student."""

    students: tuple[nn.Module, ...]
    i: int
    threshold: float

    def __call__(self, step: Step) -> Target:
        def answers(i: int) -> tuple[Tensor, Tensor]:
            own, other = VIEWS[i % 2], VIEWS[1 - i % 2]
            return step.learn(self.students[i], own).detach(), step.stochastic_answer(self.students[i], other)

        mine, others = answers(self.i), answers(partner(step, self.students, self.i))
        one = mine[0].new_ones(len(step.batch))
        mask = other_teaches(
            *(stable(*pair, self.threshold) for pair in (mine, others)),
            *(mse(*pair, one) for pair in (mine, others)),
        )
        return Target.plain(others[0]).kept(mask & (step.batch.labels < 0))

    def __repr__(self) -> str:
        return f"partner, where it is the more stable (confidence > {self.threshold:g})"


CITED = "Ke, Wang, Yan, Ren & Lau 2019"
SCALE = "on the mean over ten classes, with half of the batch labelled"
RAMP = f"{CITED}: 5 of 300 epochs"


@dataclass(frozen=True)
class Options:
    """The options of dual student."""

    students: int = option(2, "number of students; more than two get new partners in every step", at_least(2, 100))
    scale: float = option(1.0, "width of every second student, relative to the first", between(0.05, 20))
    weight: float = option(
        2.0, "λ₁, weight of each student's own consistency", at_least(0), source=f"{CITED}: 10 {SCALE}"
    )
    stabilisation: float = option(
        20.0, "λ₂, weight of the consistency with the more stable partner", at_least(0), source=f"{CITED}: 100 {SCALE}"
    )
    ramp: float = option(
        5.0, "epochs of the `clock` over which both weights rise to their maximum", at_least(0), source=RAMP
    )
    threshold: float = option(0.8, "ξ, lowest confidence of a stable answer", between(0, 1))


def dual_student(context: BuildContext, options: Options) -> Method:
    n = options.students
    students = tuple(
        set_role(context.network(i, options.scale if i % 2 else 1.0), numbered("student", i, n)) for i in range(n)
    )
    terms: dict[str, Term] = {}
    for i, student in enumerate(students):
        see = See(student, VIEWS[i % 2])
        terms[f"supervised {i + 1}"] = CrossEntropy(see, context.smoothing)
        terms[f"consistency {i + 1}"] = Consistency(
            see, StochasticAnswer(student, VIEWS[1 - i % 2]), weight=RampUp(options.weight, options.ramp)
        )
        terms[f"stabilisation {i + 1}"] = Consistency(
            see, StablePartner(students, i, options.threshold), weight=RampUp(options.stabilisation, options.ramp)
        )
    return Method(name="dual-student", students=students, answers=students, terms=terms)


RECIPES = (
    Recipe(
        "dual-student",
        "on each image, the more stable of two students teaches the other",
        "Ke, Wang, Yan, Ren & Lau 2019, Dual Student: Breaking the Limits of the Teacher in Semi-supervised Learning",
        Options,
        dual_student,
    ),
)
