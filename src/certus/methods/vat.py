"""Virtual adversarial training: the answer stays the same when the image is perturbed in the worst direction."""

from __future__ import annotations

from dataclasses import dataclass

from certus.core.build_context import BuildContext
from certus.core.losses import kl
from certus.core.method import Method
from certus.core.schedules import RampUp
from certus.core.student import Adversarial, See
from certus.core.terms import Consistency, CrossEntropy, Entropy, Term
from certus.methods.options import at_least, option
from certus.methods.recipe import Recipe
from certus.teachers import Own

XI = "ours: the authors' 1e-6 is lost in the rounding of float32"


@dataclass(frozen=True)
class Options:
    """The options of VAT."""

    weight: float = option(1.0, "weight of the divergence", at_least(0))
    ramp: float = option(0.0, "epochs of the `clock` over which the weight rises to its maximum", at_least(0))
    epsilon: float = option(8.0, "ε, size of the perturbation (Euclidean norm over all pixels)", at_least(0))
    xi: float = option(1e-2, "ξ, step of the power iteration's finite difference", at_least(1e-12), source=XI)
    iterations: int = option(1, "power iterations", at_least(1, 1000))
    ent: bool = option(False, "also minimise the entropy of the clean answers, with the same weight")


def vat(context: BuildContext, options: Options) -> Method:
    student, weight = context.network(0), RampUp(options.weight, options.ramp)
    clean = See(student, "a")
    terms: dict[str, Term] = {
        "supervised": CrossEntropy(clean, context.smoothing),
        "adversarial": Consistency(
            Adversarial(student, "a", options.epsilon, options.xi, options.iterations),
            Own(student, "a"),
            distance=kl,
            weight=weight,
        ),
    }
    if options.ent:
        terms["entropy"] = Entropy(clean, weight)
    return Method(name="vat", students=(student,), answers=(student,), terms=terms)


RECIPES = (
    Recipe(
        "vat",
        "the answer stays the same when the image is perturbed in the worst direction",
        "Miyato, Maeda, Koyama & Ishii 2018, Virtual Adversarial Training",
        Options,
        vat,
    ),
)
