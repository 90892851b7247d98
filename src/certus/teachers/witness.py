"""The witness: what a run would have answered before it learnt from its own targets."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import torch
from torch import nn

from certus.core.method import Method
from certus.core.step import Step
from certus.networks.references import refer
from certus.networks.roles import role, set_role


class Witness(nn.Module):
    """A copy of an answering network that follows it through the warm-up and then stays as it is.

    A network that has learnt its own answers no longer doubts them, the wrong ones neither. The witness knows labels
    alone: where the two differ, the answer is not certain.
    """

    source: nn.Module

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.net = deepcopy(source).eval().requires_grad_(False)
        set_role(self.net, f"{role(source)} at the end of the warm-up")
        refer(self, source=source)

    @torch.no_grad()
    def follow(self, step: Step) -> None:
        if step.clock.warming:
            pairs = zip(self.net.state_dict().values(), self.source.state_dict().values(), strict=True)
            for own, current in pairs:
                own.copy_(current)

    def __repr__(self) -> str:
        return f"witness = {role(self.net)}"


def witnessed(method: Method) -> Method:
    """The method with a witness of each answering network."""
    witnesses = tuple(Witness(net) for net in method.answers)
    return replace(
        method,
        followers=(*method.followers, *witnesses),
        witnesses=tuple(witness.net for witness in witnesses),
    )
