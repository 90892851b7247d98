"""Looks: the copies of an image whose answers are averaged after training."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Looks:
    """Each image as it is; with `mirror` also from left to right; with `nudge` also moved by so many pixels.

    A shifted copy is moved down and to the right, another one up and to the left; the border is reflected.
    """

    mirror: bool = False
    nudge: int = 0

    def sides(self, x: Tensor) -> tuple[Tensor, ...]:
        """The images (N, C, H, W), and their mirror images."""
        return (x, x.flip(-1)) if self.mirror else (x,)

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        """The sides, and then their shifted copies."""
        sides = self.sides(x)
        return (*sides, *(moved(side, by) for by in (self.nudge, -self.nudge) if by for side in sides))

    @property
    def unmoved(self) -> Looks:
        """Without the shifted copies: enough for a second opinion."""
        return replace(self, nudge=0)

    def __str__(self) -> str:
        """What an answer is; empty if it is that to the image alone."""
        mirrored, shifted = "its mirror image", "shifted copies"
        if self.mirror and self.nudge:
            return f"mean over each image, {mirrored} and {shifted}"
        return f"mean over each image and {mirrored if self.mirror else shifted}" if self.mirror or self.nudge else ""


WHOLE = Looks()


def moved(x: Tensor, by: int) -> Tensor:
    """Down and to the right by so many pixels, or up and to the left if it is negative."""
    side, (height, width) = abs(by), x.shape[-2:]
    start = side - by
    return F.pad(x, (side,) * 4, mode="reflect")[..., start : start + height, start : start + width]
