"""The paper's decoupled circle of n students and n EMA teachers; Mean Teacher and CCL are built on it.

teacher_i = EMA(student_i) makes the targets of student_{i+1}, and the last teacher those of the first student. Each
student has its own initialisation, views and dropout. For n = 1 the student learns from its own teacher.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn

from certus.core.build_context import BuildContext
from certus.core.losses import cross_entropy, mse
from certus.core.method import Method, numbered
from certus.core.refinements import Harden, Sharpen
from certus.core.schedules import RampUp
from certus.core.student import Adversarial, See
from certus.core.terms import Consistency, CrossEntropy, Read, Refine, Source, Term
from certus.methods.options import at_least, between, one_of, option
from certus.networks.roles import set_role
from certus.teachers import EMA, Visits

PAPER = "Liu & Tan 2021"


@dataclass(frozen=True)
class Options:
    """The options of every method that is built on the circle."""

    teachers: int = option(1, "n, the number of students and teachers in the circle", at_least(1, 100), source=PAPER)
    weight: float = option(
        10.0,
        "λ_max, the weight of the consistency term",
        at_least(0),
        source="Tarvainen & Valpola 2017: 100 on the mean over ten classes, 10 on their sum",
    )
    ramp: float = option(80.0, "epochs of the `clock` over which λ rises to its maximum", at_least(0), source=PAPER)
    decay: float = option(
        0.99,
        "α of the teacher's moving average",
        between(0, 1),
        lambda o: "`horizon` replaces it" if o.horizon else None,
        source=PAPER,
    )
    horizon: float = option(
        0.0, "share of the steps so far that the average looks back over; 0: by `decay`", between(0, 1), source="ours"
    )
    distance: str = option(
        "mse", "between student and target: mse or cross-entropy", one_of("mse", "cross-entropy"), source=PAPER
    )
    sharpen: float = option(
        1.0,
        "T of the targets, softmax(z/T): below 1 they are sharper, 0: hard labels",
        between(0, 1),
        source=PAPER,
    )
    student_view: str = option(
        "weak",
        "view of unlabelled images for the student: weak, strong or adversarial (VAT); the teacher's view is weak",
        one_of("weak", "strong", "adversarial"),
        source="ours, after Liu & Tan 2021, future work",
    )
    epsilon: float = option(
        1.0,
        "ε, the size of the adversarial perturbation (Euclidean norm over all pixels)",
        at_least(0),
        lambda o: None if o.student_view == "adversarial" else "`student_view` is not adversarial",
        source="ours",
    )


def sharper(temperature: float) -> Refine:
    return Sharpen(temperature) if temperature else Harden()


def circle(
    name: str,
    context: BuildContext,
    options: Options,
    source: Callable[[nn.Module, str], Source],
    refine: Callable[[str], Sequence[Refine]] = lambda stream: (),  # noqa: ARG005
) -> Method:
    """n students; student i learns from the labels and from the targets of teacher i−1.

    `source(teacher, view)` makes the targets, and `refine(stream)` gives their refinements; `stream` names the random
    numbers of this student's filter.
    """

    def read(student: nn.Module, view: str) -> Read:
        if options.student_view == "adversarial":
            return Adversarial(student, view, options.epsilon)
        return See(student, view, kind)

    kind = "mixed" if options.student_view == "strong" else "weak"
    sharpened: tuple[Refine, ...] = () if options.sharpen == 1 else (sharper(options.sharpen),)
    distance = mse if options.distance == "mse" else cross_entropy
    n = options.teachers
    students = tuple(set_role(context.network(i), numbered("student", i, n)) for i in range(n))
    teachers = tuple(EMA(student, options.decay, options.horizon) for student in students)
    sources = tuple(source(teachers[i - 1].net, numbered("b", i, n)) for i in range(n))
    terms: dict[str, Term] = {}
    for i, student in enumerate(students):
        view = numbered("a", i, n)
        terms[numbered("supervised", i, n)] = CrossEntropy(See(student, view, kind), context.smoothing)
        terms[numbered("consistency", i, n)] = Consistency(
            read(student, view),
            sources[i],
            (*refine(numbered("drop", i, n)), *sharpened),
            distance=distance,
            weight=RampUp(options.weight, options.ramp),
        )
    return Method(
        name=name,
        students=students,
        terms=terms,
        followers=(*teachers, *(s for s in sources if isinstance(s, Visits))),
        answers=tuple(teacher.net for teacher in teachers),
    )
