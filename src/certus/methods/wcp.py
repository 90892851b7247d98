"""WCP: the answer stays the same when image, weights and connections are perturbed in the worst way."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from certus.core.build_context import BuildContext
from certus.core.losses import kl
from certus.core.method import Method
from certus.core.schedules import RampUp
from certus.core.step import Step
from certus.core.student import See
from certus.core.terms import Consistency, CrossEntropy, Entropy
from certus.methods.options import at_least, between, option
from certus.methods.recipe import Recipe
from certus.methods.vat import XI
from certus.networks.roles import role
from certus.teachers import Own
from certus.views.worst_case import Weights, length, weights_of, worst_mask, worst_shift


@dataclass(frozen=True, eq=False)
class WorstCase:
    """The student's answer to perturbed images, with perturbed weights and some connections dropped."""

    student: nn.Module
    view: str
    epsilon: float
    shift: float
    drop: float
    xi: float

    def __call__(self, step: Step) -> Tensor:
        x, clean = step.view(self.view), step.learn(self.student, self.view).detach()
        one, weights = clean.new_ones(len(clean)), weights_of(self.student)

        def divergence(r: Tensor, changed: Weights) -> Tensor:
            return kl(step.probe(self.student, x + r, self.view, changed), clean, one).mean()

        def start(purpose: str, shapes: Weights) -> dict[str, Tensor]:
            random = step.generator(f"{purpose} {self.view}")
            return {n: torch.randn(t.shape, generator=random, device=t.device) for n, t in shapes.items()}

        r, delta = worst_shift(divergence, weights, x, start("shift", {"": x, **weights}), self.xi)
        some = dict(list(weights.items())[1:-1:3])  # the middle one of every three layers, as the authors do
        corner = {"corner": one[0]}
        masks = worst_mask(divergence, some, x, start("structure", some | corner), self.xi, self.drop) if some else {}
        radius = self.shift * length({n: w.detach() for n, w in weights.items()})
        *_, last = weights
        worst = {n: w + radius * delta[n] * (0.1 if n == last else 1.0) for n, w in weights.items()}
        worst |= {n: worst[n] * mask for n, mask in masks.items()}
        return step.probe(self.student, x + self.epsilon * r, self.view, worst)

    def __repr__(self) -> str:
        return (
            f"{role(self.student)}({self.view} + {self.epsilon:g}·worst direction; weights + {self.shift:g}·their "
            f"norm in the worst direction, the worst {self.drop:.0%} of some layers dropped)"
        )


@dataclass(frozen=True)
class Options:
    """The options of WCP."""

    weight: float = option(1.0, "weight of the divergence and of the entropy", at_least(0))
    ramp: float = option(0.0, "epochs of the `clock` over which the weight rises to its maximum", at_least(0))
    epsilon: float = option(8.0, "ε, size of the image perturbation (Euclidean norm over all pixels)", at_least(0))
    shift: float = option(
        0.125, "size of the weight perturbation, relative to the norm of the weights", at_least(0), source="ours"
    )
    drop: float = option(0.2, "share of connections dropped in every third layer", between(0, 0.9))
    xi: float = option(1e-2, "ξ, step of the finite differences", at_least(1e-12), source=XI)


def wcp(context: BuildContext, options: Options) -> Method:
    student, weight = context.network(0), RampUp(options.weight, options.ramp)
    worst = WorstCase(student, "a", options.epsilon, options.shift, options.drop, options.xi)
    return Method(
        name="wcp",
        students=(student,),
        answers=(student,),
        terms={
            "supervised": CrossEntropy(See(student, "a"), context.smoothing),
            "worst case": Consistency(worst, Own(student, "a"), distance=kl, weight=weight),
            "entropy": Entropy(See(student, "a"), weight),
        },
    )


RECIPES = (
    Recipe(
        "wcp",
        "the answer stays the same when image, weights and connections are perturbed in the worst way",
        "Zhang & Qi 2020, WCP: Worst-Case Perturbations for Semi-Supervised Deep Learning",
        Options,
        wcp,
    ),
)
