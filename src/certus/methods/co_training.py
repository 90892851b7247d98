"""Deep co-training: the networks agree on unlabelled images, and each is robust to the other's adversarial examples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.core.build_context import BuildContext
from certus.core.losses import cross_entropy, js
from certus.core.method import Method, numbered
from certus.core.refinements import Unlabelled
from certus.core.schedules import RampUp
from certus.core.step import Step
from certus.core.student import See
from certus.core.target import Target
from certus.core.terms import Consistency, CrossEntropy, Term
from certus.methods.options import at_least, option
from certus.methods.partners import partner
from certus.methods.recipe import Recipe
from certus.networks.modes import evaluating
from certus.networks.roles import role, set_role
from certus.views.adversarial import worst_sign

VIEW = "a"  # all networks have the same view; each has its own weights and dropout


def adversarial_examples(step: Step, net: nn.Module, epsilon: float) -> Tensor:
    """x + ε sign ∇_x CE(net(x), y), y the label, or the network's answer if the image is unlabelled."""

    def make() -> Tensor:
        x = step.view(VIEW)
        with evaluating(net), torch.enable_grad():
            with torch.no_grad():
                answers = step.through(net, x).argmax(1)
            labels = torch.where(step.batch.labels >= 0, step.batch.labels, answers)

            def loss(images: Tensor) -> Tensor:
                return F.cross_entropy(step.through(net, images), labels, reduction="none")

            return x + epsilon * worst_sign(loss, x)

    return step.once(("adversarial examples", id(net), epsilon), make)


@dataclass(frozen=True, eq=False)
class PartnerAnswer:
    """The answer of this step's partner to the view."""

    students: tuple[nn.Module, ...]
    i: int

    def __call__(self, step: Step) -> Target:
        return Target.plain(step.learn(self.students[partner(step, self.students, self.i)], VIEW))

    def __repr__(self) -> str:
        return f"partner({VIEW})"


@dataclass(frozen=True, eq=False)
class PartnerAdversarial:
    """The student's answer to the adversarial examples of its partner."""

    students: tuple[nn.Module, ...]
    i: int
    epsilon: float

    @property
    def student(self) -> nn.Module:
        return self.students[self.i]

    def __call__(self, step: Step) -> Tensor:
        other = self.students[partner(step, self.students, self.i)]
        return step.probe(self.student, adversarial_examples(step, other, self.epsilon), VIEW)

    def __repr__(self) -> str:
        return f"{role(self.student)}({VIEW} + {self.epsilon:g}·sign against the partner)"


RAMP = "Qiao, Shen, Zhang, Wang & Yuille 2018: 80 of 600 epochs"


@dataclass(frozen=True)
class Options:
    """The options of co-training."""

    students: int = option(2, "number of networks that are trained together", at_least(2, 100))
    agreement: float = option(10.0, "λ_cot, weight of the agreement", at_least(0))
    difference: float = option(
        0.5, "λ_diff, weight of the robustness to the partner's adversarial examples", at_least(0)
    )
    ramp: float = option(
        40.0, "epochs of the `clock` over which both weights rise to their maximum", at_least(0), source=RAMP
    )
    epsilon: float = option(
        0.08, "size of the adversarial step, in standard deviations of the data (0.02 of the range 0–1)", at_least(0)
    )


def co_training(context: BuildContext, options: Options) -> Method:
    n = options.students
    students = tuple(set_role(context.network(i), numbered("student", i, n)) for i in range(n))
    terms: dict[str, Term] = {}
    for i, student in enumerate(students):
        see, other = See(student, VIEW), PartnerAnswer(students, i)
        terms[f"supervised {i + 1}"] = CrossEntropy(see, context.smoothing)
        terms[f"agreement {i + 1}"] = Consistency(
            see, other, (Unlabelled(),), distance=js, weight=RampUp(options.agreement, options.ramp)
        )
        terms[f"difference {i + 1}"] = Consistency(
            PartnerAdversarial(students, i, options.epsilon),
            other,
            distance=cross_entropy,
            weight=RampUp(options.difference, options.ramp),
        )
    return Method(name="co-training", students=students, answers=students, terms=terms)


RECIPES = (
    Recipe(
        "co-training",
        "the networks agree on unlabelled images, and each is robust to the other's adversarial examples",
        "Qiao, Shen, Zhang, Wang & Yuille 2018, Deep Co-Training for Semi-Supervised Image Recognition",
        Options,
        co_training,
    ),
)
