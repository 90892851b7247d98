"""Sources of targets, Step -> Target, that keep no state."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from certus.certainty.draws import Independent, Plan
from certus.certainty.metrics import unconfidence
from certus.certainty.streaming import Moments
from certus.core.step import Step
from certus.core.target import Lazy, Target
from certus.errors import UsageError
from certus.networks.modes import has_dropout
from certus.networks.roles import role


@dataclass(frozen=True, eq=False)
class Clean:
    """The teacher's answer to one view, dropout off."""

    net: nn.Module
    view: str

    def __call__(self, step: Step) -> Target:
        return Target.plain(step.answer(self.net, self.view))

    def __repr__(self) -> str:
        return f"{role(self.net)}({self.view})"


@dataclass(frozen=True, eq=False)
class StochasticAnswer:
    """The student itself under another perturbation, without gradient."""

    net: nn.Module
    view: str

    def __call__(self, step: Step) -> Target:
        return Target.plain(step.stochastic_answer(self.net, self.view))

    def __repr__(self) -> str:
        return f"{role(self.net)}({self.view})"


@dataclass(frozen=True, eq=False)
class Own:
    """The student's own answer, from the same forward that learns, as a constant."""

    net: nn.Module
    view: str

    def __call__(self, step: Step) -> Target:
        return Target.plain(step.learn(self.net, self.view))

    def __repr__(self) -> str:
        return f"its own answer to {self.view}"


@dataclass(frozen=True, eq=False)
class MonteCarlo:
    """The teacher's clean answer, with its uncertainty over T draws under dropout and fresh views."""

    net: nn.Module
    view: str
    draws: Plan = Independent(10)  # noqa: RUF009 (frozen)
    metric: str = "pv"

    def __post_init__(self) -> None:
        if not has_dropout(self.net):
            raise UsageError(
                "Monte-Carlo certainty needs dropout, but the network has none, so all draws would be equal: set "
                "`dropout` above 0 (a network of your own needs dropout layers), or use `metric` confidence."
            )

    def __call__(self, step: Step) -> Target:
        logits = step.answer(self.net, self.view)
        return Target.plain(logits, Lazy(lambda: getattr(self.moments(step), self.metric)))

    def moments(self, step: Step) -> Moments:
        """The moments of this step's draws."""

        def draw() -> Moments:
            moments = Moments(len(step.batch), step.answer(self.net, self.view).shape[1], step.device)
            step.draw(self.net, self.view, self.draws, moments)
            return moments

        return step.once(("moments", id(self)), draw)

    def __repr__(self) -> str:
        return f"{role(self.net)}({self.view}), uncertainty = {self.metric.upper()} of {self.draws}"


@dataclass(frozen=True, eq=False)
class Confidence:
    """The teacher's clean answer with uncertainty 1 − max p: no draws. Reversed, it is a control."""

    net: nn.Module
    view: str
    reverse: bool = False  # uncertainty max p: the least confident image has rank 1

    def __call__(self, step: Step) -> Target:
        logits = step.answer(self.net, self.view)
        uncertainty = unconfidence(logits.softmax(1))
        return Target.plain(logits, 1.0 - uncertainty if self.reverse else uncertainty)

    def __repr__(self) -> str:
        return f"{role(self.net)}({self.view}), uncertainty = {'max p' if self.reverse else '1 − max p'}"


@dataclass(frozen=True, eq=False)
class RandomRanks:
    """The teacher's clean answer, ranked at random: the control that certainty must beat."""

    net: nn.Module
    view: str

    def __call__(self, step: Step) -> Target:
        uncertainty = torch.rand(len(step.batch), generator=step.generator(f"ranks {self.view}"), device=step.device)
        return Target.plain(step.answer(self.net, self.view), uncertainty)

    def __repr__(self) -> str:
        return f"{role(self.net)}({self.view}), uncertainty at random"
