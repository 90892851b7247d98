"""The one idea that holds the code together: what the student should answer, and how far to believe it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from certus.certainty.metrics import rank


class Later:
    """A tensor that is made when somebody first asks for it."""

    def __init__(self, make: Callable[[], Tensor]) -> None:
        self._make = make
        self.value: Tensor | None = None

    def __call__(self) -> Tensor:
        if self.value is None:
            self.value = self._make()
        return self.value


Uncertainty = Tensor | Later


@dataclass(frozen=True, eq=False)
class Target:
    """What the student should answer for each image, and how far to believe it."""

    logits: Tensor  # (B, C), no gradient
    weight: Tensor  # (B,)  0 = filtered out
    temperature: Tensor  # (B,)  V_i, applied to student and teacher alike
    uncertainty: Uncertainty | None = None  # (B,)  larger = less sure; measured when somebody asks for the rank

    @classmethod
    def plain(cls, logits: Tensor, uncertainty: Uncertainty | None = None) -> Target:
        """Believed in full: weight 1, temperature 1."""
        logits = logits.detach()
        one = logits.new_ones(len(logits))
        return cls(logits, one, one, uncertainty)

    @cached_property
    def rank(self) -> Tensor:
        """R_i, 1 = most certain, over the whole batch; filters do not change it."""
        if self.uncertainty is None:
            raise ValueError("this target has no uncertainty to rank by: take a source that measures certainty")
        return rank(self.uncertainty() if isinstance(self.uncertainty, Later) else self.uncertainty)

    @property
    def measured(self) -> Tensor | None:
        """The uncertainty, if it has been measured."""
        return self.uncertainty.value if isinstance(self.uncertainty, Later) else self.uncertainty

    def kept(self, mask: Tensor) -> Target:
        """The same targets, those outside `mask` at weight 0."""
        return replace(self, weight=self.weight * mask)
