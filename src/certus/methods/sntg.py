"""SNTG: images of one class, as the teacher sees it, lie close together in feature space; others keep a margin.

It is an extra term on top of any method with a consistency term: Π, temporal ensembling, mean teacher.
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
from certus.core.student import Looking
from certus.core.terms import Consistency, Source, Term
from certus.methods import circle, mean_teacher, pi, temporal_ensembling
from certus.methods.recipe import Recipe, at_least, option
from certus.networks.roles import feature_size, role


def neighbour_loss(left: Tensor, right: Tensor, same: Tensor, margin: float = 1.0) -> Tensor:
    """(P,) d² of a pair of one class, max(0, m − d)² of another pair; d² is the mean over the features' dimensions."""
    d2 = (left - right).square().mean(1)
    return torch.where(same, d2, (margin - (d2 + 1e-12).sqrt()).clamp(min=0).square())


@dataclass(frozen=True, eq=False)
class Neighbours:
    """λ · mean of the neighbour loss over |B|/2 random pairs, every image in one. A labelled image has its label."""

    student: nn.Module
    view: str
    source: Source
    margin: float
    weight: Schedule

    def __call__(self, step: Step) -> Tensor:
        features, target = step.features(self.student, self.view), self.source(step)
        known = step.batch.labels >= 0
        classes = torch.where(known, step.batch.labels, target.logits.argmax(1))
        believed = torch.where(known, 1.0, (target.weight > 0).float())  # an ensemble may not know an image yet
        order = torch.randperm(len(classes), generator=step.generator(f"pairs {self.view}"), device=step.device)
        half = len(order) // 2
        i, j = order[:half], order[half : 2 * half]
        loss = neighbour_loss(features[i], features[j], classes[i] == classes[j], self.margin)
        return self.weight(step.clock) * (believed[i] * believed[j] * loss).mean()

    def __repr__(self) -> str:
        return f"{self.weight} · neighbours(features of {role(self.student)}({self.view}), {self.source})"


@dataclass(frozen=True)
class Graph:
    graph: float = option(1.0, "k, weight of the neighbours relative to the consistency term's", at_least(0))
    margin: float = option(1.0, "m, how far apart images of different classes are pushed", at_least(0))


@dataclass(frozen=True)
class OnPi(Graph, pi.Options):
    """Those of Π and the graph's."""


@dataclass(frozen=True)
class OnEnsemble(Graph, temporal_ensembling.Options):
    """Those of temporal ensembling and the graph's."""


@dataclass(frozen=True)
class OnMeanTeacher(Graph, circle.Options):
    """Those of mean teacher and the graph's."""


def on(base: Callable[[BuildContext, Any], Method]) -> Callable[[BuildContext, Any], Method]:
    """The base with a neighbour term beside each consistency term: w(MSE + k·L_G), w on the mean over the classes."""

    def build(context: BuildContext, options: Any) -> Method:
        method = base(context, options)
        weight = RampUp(options.graph * options.weight * context.classes, options.ramp)
        terms: dict[str, Term] = dict(method.terms)
        for name, term in method.terms.items():
            if isinstance(term, Consistency) and isinstance(term.read, Looking):
                feature_size(term.student)  # refuses a network without features
                neighbours = Neighbours(term.student, term.read.view, term.source, options.margin, weight)
                terms[name.replace("consistency", "neighbours")] = neighbours
        return replace(method, name=f"{method.name}-sntg", terms=terms)

    return build


RECIPES = tuple(
    Recipe(
        f"{name}-sntg",
        f"{name}, and images of one class lie close together in feature space",
        "Luo, Zhu, Li, Ren & Zhang 2018, Smooth Neighbors on Teacher Graphs for Semi-supervised Learning",
        options,
        on(base),
    )
    for name, options, base in (
        ("pi", OnPi, pi.pi),
        ("temporal-ensembling", OnEnsemble, temporal_ensembling.temporal_ensembling),
        ("mean-teacher", OnMeanTeacher, mean_teacher.mean_teacher),
    )
)
