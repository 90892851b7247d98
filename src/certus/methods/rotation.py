"""RotNet: learn features by predicting how images were rotated. It needs no labels; students can start from it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.core.build_context import BuildContext
from certus.core.method import Method
from certus.core.step import Step
from certus.methods.recipe import Recipe
from certus.networks.roles import role

TURNS = 4  # 0°, 90°, 180°, 270°


@dataclass(frozen=True)
class Options:
    """RotNet has no options."""


@dataclass(frozen=True, eq=False)
class PredictRotation:
    """Mean cross-entropy of predicting by how many quarter turns an image was rotated; all four for every image."""

    student: nn.Module
    view: str

    def __call__(self, step: Step) -> Tensor:
        upright = step.view(self.view)
        rotated = torch.cat([upright.rot90(k, (2, 3)) for k in range(TURNS)])
        turns = torch.arange(TURNS, device=step.device).repeat_interleave(len(upright))
        step.seed_dropout(self.view)
        return F.cross_entropy(step.through(self.student, rotated), turns)

    def __repr__(self) -> str:
        return f"cross-entropy({role(self.student)}(rotated {self.view}), rotation)"


def rotation(context: BuildContext, options: Options) -> Method:  # noqa: ARG001 (every method has one signature)
    student = context.network(0)
    return Method(
        name="rotation",
        students=(student,),
        answers=(),
        terms={"rotation": PredictRotation(student, "a")},
        sees="everything",
    )


RECIPES = (
    Recipe(
        "rotation",
        "pretraining: predict by how many quarter turns an image was rotated",
        "Gidaris, Singh & Komodakis 2018, Unsupervised Representation Learning by Predicting Image Rotations",
        Options,
        rotation,
        classes=TURNS,
    ),
)
