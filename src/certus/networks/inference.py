"""The quick twin of a network that only answers, kept beside it and renewed by itself when the network has moved."""

from __future__ import annotations

import logging
from itertools import chain

from torch import Tensor, nn

from certus.networks.dropout import QuickDropout
from certus.networks.fused import Fused, obstacle
from certus.networks.stages import stages

TOLERANCE = 1e-4  # of probabilities
notices = logging.getLogger("certus")


def quick_stages(net: nn.Module, images: Tensor, exact: bool = True) -> list[nn.Module]:
    """The stages of the network's twin with its present weights, or of the network itself where it cannot have one.

    `exact`: its dropout draws the masks that the network itself would draw; else others in less time.
    The first time, twin and network are compared on these images. A twin that differs is not used; a notice says so.
    """
    kept: Kept | None = net.__dict__.get("_kept_twin")
    if kept is None:
        kept = net.__dict__["_kept_twin"] = Kept(net, images)
    kept.renew()
    for module in kept.quick:
        module.exact = exact
    return kept.stages


class Kept:
    """A network's twin, cut into stages, and the state of the network that it was made from."""

    def __init__(self, net: nn.Module, images: Tensor) -> None:
        self.net, self.twin = net, None
        reason = obstacle(net)
        if not reason:
            twin = Fused(net, quick=True)
            difference = twin.difference(images[:64])
            if difference <= TOLERANCE:
                self.twin = twin
            else:
                reason = f"its twin's probabilities differ by {difference:.1g}"
        if reason:
            notices.warning("The network answers without its quick twin: %s.", reason)
        self.stages = stages(net if self.twin is None else self.twin.net)
        if self.twin is not None:
            self.stages[0] = nn.Sequential(self.twin.enter, self.stages[0])
        self.quick = [m for stage in self.stages for m in stage.modules() if isinstance(m, QuickDropout)]
        self.seen = self.versions()

    def renew(self) -> None:
        if self.twin is not None and (now := self.versions()) != self.seen:
            self.twin.refresh()
            self.seen = now

    def versions(self) -> list[tuple[int, int]]:
        """Where each tensor lies and how often it was written."""
        return [(t.data_ptr(), t._version) for t in chain(self.net.parameters(), self.net.buffers())]

    def __deepcopy__(self, memo: dict[int, object]) -> None:
        """A copy of the network makes a twin of its own."""
