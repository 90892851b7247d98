"""SNTG: images of the same class, by the teacher, have similar features; those of different classes keep a margin.

It is an extra term beside the consistency term of Π, temporal ensembling or Mean Teacher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from certus.core.build_context import BuildContext
from certus.core.method import Method
from certus.core.schedules import RampUp, Schedule
from certus.core.step import Step
from certus.core.student import SingleViewRead
from certus.core.terms import Consistency, Source, Term
from certus.methods import circle, mean_teacher, pi, temporal_ensembling
from certus.methods.options import at_least, option
from certus.methods.recipe import Recipe
from certus.networks.roles import feature_size, role


def neighbour_loss(left: Tensor, right: Tensor, same: Tensor, margin: float = 1.0) -> Tensor:
    """(P,) d² for a pair of the same class, else max(0, m − d)²; d² is the mean over the features' dimensions."""
    d2 = (left - right).square().mean(1)
    return torch.where(same, d2, (margin - (d2 + 1e-12).sqrt()).clamp(min=0).square())


@dataclass(frozen=True, eq=False)
class Neighbours:
    """λ · mean of the neighbour loss over |B|/2 random pairs; every image is in one pair. Labels are used if known."""

    student: nn.Module
    view: str
    source: Source
    margin: float
    weight: Schedule

    def __call__(self, step: Step) -> Tensor:
        features, target = step.features(self.student, self.view), self.source(step)
        known = step.batch.labels >= 0
        classes = torch.where(known, step.batch.labels, target.logits.argmax(1))
        trusted = torch.where(known, 1.0, (target.weight > 0).float())  # an ensemble may not know an image yet
        order = torch.randperm(len(classes), generator=step.generator(f"pairs {self.view}"), device=step.device)
        half = len(order) // 2
        i, j = order[:half], order[half : 2 * half]
        loss = neighbour_loss(features[i], features[j], classes[i] == classes[j], self.margin)
        return self.weight(step.clock) * (trusted[i] * trusted[j] * loss).mean()

    def __repr__(self) -> str:
        return f"{self.weight} · neighbours(features of {role(self.student)}({self.view}), {self.source})"


@dataclass(frozen=True)
class Graph:
    """The options of the neighbour term."""

    graph: float = option(1.0, "k, weight of the neighbour term relative to the consistency term", at_least(0))
    margin: float = option(1.0, "m, distance up to which different classes are pushed apart", at_least(0))


@dataclass(frozen=True)
class OnPi(Graph, pi.Options):
    """The options of Π and of the neighbour term."""


@dataclass(frozen=True)
class OnEnsemble(Graph, temporal_ensembling.Options):
    """The options of temporal ensembling and of the neighbour term."""


@dataclass(frozen=True)
class OnMeanTeacher(Graph, circle.Options):
    """The options of Mean Teacher and of the neighbour term."""


def with_neighbours(base: Callable[[BuildContext, Any], Method]) -> Callable[[BuildContext, Any], Method]:
    """Add a neighbour term to each consistency term of a method: w(MSE + k·L_G), w for the mean over the classes."""

    def build(context: BuildContext, options: Any) -> Method:
        method = base(context, options)
        weight = RampUp(options.graph * options.weight * context.classes, options.ramp)
        terms: dict[str, Term] = dict(method.terms)
        for name, term in method.terms.items():
            if isinstance(term, Consistency) and isinstance(term.read, SingleViewRead):
                feature_size(term.student)  # refuses a network without features
                neighbours = Neighbours(term.student, term.read.view, term.source, options.margin, weight)
                terms[name.replace("consistency", "neighbours")] = neighbours
        return replace(method, name=f"{method.name}-sntg", terms=terms)

    return build


RECIPES = tuple(
    Recipe(
        f"{name}-sntg",
        f"{name}, and images of the same class have similar features",
        "Luo, Zhu, Li, Ren & Zhang 2018, Smooth Neighbors on Teacher Graphs for Semi-supervised Learning",
        options,
        with_neighbours(base),
    )
    for name, options, base in (
        ("pi", OnPi, pi.pi),
        ("temporal-ensembling", OnEnsemble, temporal_ensembling.temporal_ensembling),
        ("mean-teacher", OnMeanTeacher, mean_teacher.mean_teacher),
    )
)
