"""The decoupled circle: n students, each with an EMA teacher that teaches the next student.

teacher_i = EMA(student_i) teaches student_{i+1}, and the last teaches the first. Each student has its own
initialisation, views and dropout. A circle of one is the ordinary student and its own teacher.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn

from certus.core.build_context import BuildContext
from certus.core.method import Method, numbered
from certus.core.schedules import RampUp
from certus.core.student import Adversarial, See
from certus.core.terms import Consistency, CrossEntropy, Read, Refine, Source, Term
from certus.methods.recipe import at_least, between, one_of, option
from certus.networks.roles import call
from certus.teachers import EMA, Visits

PAPER = "Liu & Tan 2021"


@dataclass(frozen=True)
class Options:
    teachers: int = option(1, "n of the decoupled circle of students and teachers", at_least(1), source=PAPER)
    weight: float = option(
        10.0,
        "λ_max, the weight of the consistency term",
        at_least(0),
        source="Tarvainen & Valpola 2017: 100 on the mean over ten classes, 10 on their sum",
    )
    ramp: float = option(80.0, "210ths of the run over which λ rises to its maximum", at_least(0), source=PAPER)
    decay: float = option(0.99, "α of the teacher's moving average", between(0, 1), source=PAPER)
    student_view: str = option(
        "weak",
        "what the student looks at: weak, strong (RandAugment) or adversarial (VAT); the teacher's stays weak",
        one_of("weak", "strong", "adversarial"),
        source="ours, after Liu & Tan 2021, future work",
    )
    epsilon: float = option(
        1.0,
        "ε of the adversarial view (length over all pixels)",
        at_least(0),
        lambda o: None if o.student_view == "adversarial" else "--student-view is not adversarial",
        source="ours",
    )


def circle(
    name: str,
    context: BuildContext,
    options: Options,
    source: Callable[[nn.Module, str], Source],
    refine: Callable[[str], Sequence[Refine]] = lambda stream: (),  # noqa: ARG005
) -> Method:
    """n students; student i learns the labels, and looking in its way what `source` makes of teacher i−1, refined."""

    def look(student: nn.Module, view: str) -> Read:
        if options.student_view == "adversarial":
            return Adversarial(student, view, options.epsilon)
        return See(student, view, options.student_view)

    n = options.teachers
    students = tuple(call(context.network(i), numbered("student", i, n)) for i in range(n))
    teachers = tuple(EMA(student, options.decay) for student in students)
    sources = tuple(source(teachers[i - 1].net, numbered("b", i, n)) for i in range(n))
    terms: dict[str, Term] = {}
    for i, student in enumerate(students):
        view = numbered("a", i, n)
        terms[numbered("supervised", i, n)] = CrossEntropy(See(student, view))
        terms[numbered("consistency", i, n)] = Consistency(
            look(student, view),
            sources[i],
            tuple(refine(numbered("drop", i, n))),
            weight=RampUp(options.weight, options.ramp),
        )
    return Method(
        name=name,
        students=students,
        terms=terms,
        followers=(*teachers, *(s for s in sources if isinstance(s, Visits))),
        answers=tuple(teacher.net for teacher in teachers),
    )
