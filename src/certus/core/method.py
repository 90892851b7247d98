"""A method is a named sum of terms over students, with followers that are updated after each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor, nn

from certus.core.step import Step
from certus.core.terms import CrossEntropy, Term
from certus.data.batches import Sees
from certus.networks.roles import role


class Follower(Protocol):
    """A module that is updated after every step, from what the step has computed."""

    def follow(self, step: Step) -> None: ...


@dataclass(frozen=True, eq=False)
class Method:
    """The students, the terms of their loss, the followers, and the networks that answer after training."""

    name: str
    students: tuple[nn.Module, ...]
    terms: Mapping[str, Term]
    answers: tuple[nn.Module, ...]
    followers: tuple[Follower, ...] = ()
    sees: Sees = "both"
    witnesses: tuple[nn.Module, ...] = ()  # of each answering network, what it was when it knew labels alone
    pace: Callable[[float], float] | None = None  # fraction of the run done -> factor of the rate; None: the run's

    def losses(self, step: Step) -> dict[str, Tensor]:
        """By term; while a run warms up, those of the labels alone."""
        warming = step.clock.warming
        return {n: term(step) for n, term in self.terms.items() if not warming or isinstance(term, CrossEntropy)}

    def follow(self, step: Step) -> None:
        for follower in self.followers:
            follower.follow(step)

    @cached_property
    def state(self) -> nn.ModuleDict:
        """All tensors that training changes: this state dict is the method's complete checkpoint."""
        parts = {"students": self.students, "followers": self.followers}
        return nn.ModuleDict({name: nn.ModuleList(part) for name, part in parts.items()})  # type: ignore[arg-type]

    def __repr__(self) -> str:
        terms = [f"  {name} = {term}" for name, term in self.terms.items()]
        follow = [f"  {f}" for f in self.followers]
        answer = ", ".join(role(net) for net in self.answers)
        return "\n".join([self.name, *terms, *follow, f"  answer: {answer}"])


def numbered(word: str, i: int, n: int) -> str:
    """`student` if there is one, `student 2` if there are several."""
    return word if n == 1 else f"{word} {i + 1}"


def total(losses: Mapping[str, Tensor]) -> Tensor:
    return torch.stack(list(losses.values())).sum()
