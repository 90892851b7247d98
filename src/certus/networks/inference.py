"""The fused copy of a network that only answers: kept beside the network, and refreshed when its weights change."""

from __future__ import annotations

import logging
from itertools import chain

from torch import Tensor, nn

from certus.networks.dropout import QuickDropout
from certus.networks.fused import Fused, is_foreign, obstacle
from certus.networks.stages import stages

TOLERANCE = 1e-4  # largest accepted difference of probabilities
notices = logging.getLogger("certus")


def quick_stages(net: nn.Module, images: Tensor, exact: bool = True) -> list[nn.Module]:
    """The stages of the network's fused copy, with the current weights; of the network itself if it has no such copy.

    `exact`: dropout draws the same masks as the network would; else other masks in less time.
    The first call compares copy and network on these images. A copy that differs is not used, and a notice says so.
    """
    attached: AttachedCopy | None = net.__dict__.get("_fused_copy")
    if attached is None:
        attached = net.__dict__["_fused_copy"] = AttachedCopy(net, images)
    attached.refresh()
    for dropout in attached.quick_dropouts:
        dropout.exact = exact
    return attached.stages


class AttachedCopy:
    """A network's fused copy, cut into stages, and the version of the weights that it was made from."""

    def __init__(self, net: nn.Module, images: Tensor) -> None:
        self.net, self.fused = net, None
        foreign = is_foreign(net)
        reason = None if foreign else obstacle(net)
        if not reason and not foreign:
            fused = Fused(net, quick=True)
            difference = fused.difference(images[:64])
            if difference <= TOLERANCE:
                self.fused = fused
            else:
                reason = f"the copy's probabilities differ by {difference:.1g}"
        if reason:
            notices.warning("The network answers without a fused copy, which is slower: %s.", reason)
        self.stages = stages(net if self.fused is None else self.fused.net)
        if self.fused is not None:
            self.stages[0] = nn.Sequential(self.fused.enter, self.stages[0])
        self.quick_dropouts = [m for stage in self.stages for m in stage.modules() if isinstance(m, QuickDropout)]
        self.version = self.current_version()

    def refresh(self) -> None:
        if self.fused is not None and (current := self.current_version()) != self.version:
            self.fused.refresh()
            self.version = current

    def current_version(self) -> list[tuple[int, int]]:
        """The address of each tensor, and how often it was written."""
        return [(t.data_ptr(), t._version) for t in chain(self.net.parameters(), self.net.buffers())]

    def __deepcopy__(self, memo: dict[int, object]) -> None:
        """A copy of the network makes its own fused copy."""
