"""Target, the central idea of the code: what the student should answer, and how much to trust it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from certus.certainty.metrics import rank


class Lazy:
    """A tensor that is computed when it is first used."""

    def __init__(self, make: Callable[[], Tensor]) -> None:
        self._make = make
        self.value: Tensor | None = None

    def __call__(self) -> Tensor:
        if self.value is None:
            self.value = self._make()
        return self.value


Uncertainty = Tensor | Lazy


@dataclass(frozen=True, eq=False)
class Target:
    """What the student should answer for each image, and how much to trust it."""

    logits: Tensor  # (B, C), no gradient
    weight: Tensor  # (B,)  0 = filtered out
    temperature: Tensor  # (B,)  V_i, applied to student and teacher alike
    uncertainty: Uncertainty | None = None  # (B,)  larger = less certain; computed when the rank is first used

    @classmethod
    def plain(cls, logits: Tensor, uncertainty: Uncertainty | None = None) -> Target:
        """Full trust: weight 1, temperature 1."""
        logits = logits.detach()
        one = logits.new_ones(len(logits))
        return cls(logits, one, one, uncertainty)

    @cached_property
    def rank(self) -> Tensor:
        """R_i, 1 = most certain, over the whole batch; filters do not change it."""
        if self.uncertainty is None:
            raise ValueError("This target has no uncertainty to rank by: use a source that measures certainty.")
        return rank(self.uncertainty() if isinstance(self.uncertainty, Lazy) else self.uncertainty)

    @property
    def measured(self) -> Tensor | None:
        """The uncertainty, if it has been computed."""
        return self.uncertainty.value if isinstance(self.uncertainty, Lazy) else self.uncertainty

    def kept(self, mask: Tensor) -> Target:
        """The same targets with their weights multiplied by `mask`; 0 filters a target out."""
        return replace(self, weight=self.weight * mask)
