"""MA-DNN: a memory of each class's features and answers classifies every image beside the network."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.special import entr

from certus.core.build_context import BuildContext
from certus.core.method import Method
from certus.core.schedules import RampUp, Schedule
from certus.core.step import Step
from certus.core.student import See
from certus.core.terms import CrossEntropy
from certus.methods.options import at_least, between, option
from certus.methods.recipe import Recipe
from certus.teachers import EMA, ClassMemory


def memory_loss(logits: Tensor, remembered: Tensor) -> Tensor:
    """(B,) H(p̂) + max_c p̂_c · KL(p ‖ p̂): the memory's entropy, and its weighted divergence from the network."""
    log_p = logits.log_softmax(1)
    remembered = remembered.clamp(min=1e-8)
    divergence = (log_p.exp() * (log_p - remembered.log())).sum(1)
    return entr(remembered).sum(1) + remembered.amax(1) * divergence


@dataclass(frozen=True, eq=False)
class MemoryTerm:
    """λ · mean memory loss over the batch. The memory answers from the features, so they receive its gradient too."""

    student: nn.Module
    view: str
    memory: ClassMemory
    weight: Schedule

    def __call__(self, step: Step) -> Tensor:
        logits, remembered = step.learn(self.student, self.view), self.memory(step)
        return self.weight(step.clock) * memory_loss(logits, remembered).mean()

    def __repr__(self) -> str:
        return f"{self.weight} · mean(H(p̂) + max p̂ · KL(p ‖ p̂)), p̂ from {self.memory}"


MEAN = "the authors' code, where α is at most s/(s + 9) at step s = 1, 2, …"


@dataclass(frozen=True)
class Options:
    """The options of MA-DNN."""

    weight: float = option(1.0, "weight of the memory loss", at_least(0))
    ramp: float = option(0.0, "epochs of the `clock` over which the weight rises to its maximum", at_least(0))
    rate: float = option(0.5, "η, update rate of keys and values", between(0, 1))
    decay: float = option(0.9999, "α of the averaged weights, which answer", between(0, 1), source=MEAN)


def ma_dnn(context: BuildContext, options: Options) -> Method:
    student = context.network(0)
    memory = ClassMemory(student, "a", context.classes, options.rate)
    average = EMA(student, options.decay, begin=9.0)
    return Method(
        name="ma-dnn",
        students=(student,),
        answers=(average.net,),
        followers=(memory, average),
        terms={
            "supervised": CrossEntropy(See(student, "a"), context.smoothing),
            "memory": MemoryTerm(student, "a", memory, RampUp(options.weight, options.ramp)),
        },
    )


RECIPES = (
    Recipe(
        "ma-dnn",
        "a memory of each class's features and answers classifies every image beside the network",
        "Chen, Zhu & Gong 2018, Semi-Supervised Deep Learning with Memory",
        Options,
        ma_dnn,
    ),
)
