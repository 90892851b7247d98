"""Gradients that are means over the processes: torch's DistributedDataParallel around a method's losses.

Its module is not a network but the whole sum of terms. So one forward contains all passes of all students, also those
inside which a method differentiates (VAT, WCP), and one backward reduces each gradient once, while the rest is still
being computed.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from certus.core.method import Method
from certus.core.step import Step
from certus.distributed.team import Team
from certus.networks.references import refer

Losses = Callable[[Step], dict[str, Tensor]]


class Terms(nn.Module):
    """A method's losses, as a module that has its students' weights."""

    method: Method

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.students = nn.ModuleList(method.students)
        refer(self, method=method)

    def forward(self, step: Step) -> dict[str, Tensor]:
        return self.method.losses(step)


def losses_of(method: Method, team: Team) -> Losses:
    """The method's losses; their backward leaves the mean gradient of all processes in the weights.

    Batch-norm statistics are the same everywhere already (`distributed/batch_norm.py`). `find_unused_parameters`:
    weights that take no part in a step keep no gradient, as with one process; and buckets keep their order, so that
    sums are rounded in the same way before and after a resume.
    """
    if team.size == 1:
        return method.losses
    return DistributedDataParallel(Terms(method), forward_sync_buffers=False, find_unused_parameters=True)
