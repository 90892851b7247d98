"""A teacher that propagates the labels over a graph of all images: of their features, rebuilt after every pass, or of
the vectors as they are given."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from certus.certainty.metrics import METRICS, rank
from certus.core.build_context import BuildContext
from certus.core.refinements import IMPOSSIBLE
from certus.core.step import Step, features_and_logits
from certus.core.target import Target
from certus.errors import UsageError
from certus.networks.modes import dropout_only, evaluating, has_dropout
from certus.networks.references import refer
from certus.networks.roles import feature_size, role
from certus.teachers.diffusion import by_share, diffuse, graph, label_matrix, local_graph, pseudo_labels
from certus.teachers.metric import near
from certus.teachers.regression import FLOOR, belief, joined, regressed, softened

ENOUGH = 200  # steps of the conjugate gradient for labels that travel far


class Propagation(nn.Module):
    """Hard labels for the unlabelled images, with weight ω_i ζ_c; none before e = start.

    With `draws`, an unlabelled node passes on only the share c_i = 1 − (R_i − 1)/(N − 1) of its value, where R_i is the
    rank of its Monte-Carlo uncertainty among all images. A labelled node passes on all of it.

    Over `inputs` or their `angles` the graph never changes, so it is built once; and the mass of each class follows
    the labels' shares.

    With `near`, neighbours are found again in the metric in which they are near. With a `regression` ρ > 0, what
    arrives is multiplied by q^β, where q is what logistic regression on the labels answers. The targets are then the
    hard labels with weight (1 − β) ω_i ζ_c and the probabilities with weight β.
    """

    student: nn.Module
    context: BuildContext

    def __init__(
        self,
        student: nn.Module,
        context: BuildContext,
        *,
        start: float = 10,
        neighbours: int = 50,
        gamma: float = 3.0,
        alpha: float = 0.99,
        draws: int = 0,
        over: str = "features",
        near: bool = False,
        regression: float = 0.0,
    ) -> None:
        super().__init__()
        if over == "features":
            feature_size(student)  # refuses a network without features
        if draws and not has_dropout(student):
            raise UsageError(
                "`damp` measures certainty by dropout, but the network has none: set `dropout` above 0, or turn `damp` "
                "off."
            )
        self.start, self.neighbours, self.gamma, self.alpha, self.draws = start, neighbours, gamma, alpha, draws
        self.over, self.near, self.regression = over, near, regression
        n = len(context.labels)
        self.register_buffer("labels", torch.zeros(n, dtype=torch.int64))
        self.register_buffer("weights", torch.zeros(n))
        self.labels: Tensor
        self.weights: Tensor
        if regression:  # the state of runs without it stays as it was
            self.register_buffer("shares", torch.zeros(n, context.classes))
        self.shares: Tensor
        self.register_buffer("built", torch.tensor(False))
        self.built: Tensor
        self.classes = context.classes
        refer(self, student=student, context=context)

    def forward(self, step: Step) -> Target:
        labels, weights = self.labels[step.batch.index], self.weights[step.batch.index]
        if self.regression:
            logits = self.shares[step.batch.index].clamp(min=FLOOR).log()
        else:
            logits = torch.full((len(labels), self.classes), IMPOSSIBLE, device=labels.device)
            logits = logits.scatter(1, labels[:, None], 0.0)
        return Target.plain(logits).kept(weights * (step.batch.labels < 0))

    @torch.no_grad()
    def follow(self, step: Step) -> None:
        stays = self.over != "features" and not self.draws
        if step.clock.epoch >= self.start and (not self.built or (step.clock.ends_pass and not stays)):
            self.rebuild(step)

    def rebuild(self, step: Step) -> None:
        context = self.context
        labels = context.labels[context.pool].cpu()
        y = label_matrix(labels, self.classes)
        damping = self.damping(step, labels) if self.draws else None
        if self.over != "features":
            z = by_share(diffuse(self.graph_of_inputs, y, self.alpha, damping, ENOUGH), labels)
            x = self.inputs
        else:
            x = self.features(step)
            z = diffuse(self.graph_of(x), y, self.alpha, damping)
        found = torch.from_numpy(z)
        if self.regression:
            beta = belief(labels, self.classes, self.regression)
            found = joined(found, regressed(x, labels, self.classes), beta)
        guess, weight, balance = pseudo_labels(found, labels)
        weight = weight * balance[guess]
        if self.regression:
            probabilities, weight = softened(found, guess, weight, beta)
            self.shares[context.pool] = probabilities.to(self.shares)
        self.labels[context.pool] = guess.to(self.labels.device)
        self.weights[context.pool] = weight.float().to(self.weights.device)
        self.built.fill_(True)

    @property
    def inputs(self) -> Tensor:
        """The vectors of the pool as they are given (M, D)."""
        context = self.context
        return context.normalised(context.images[context.pool.to(context.images.device)]).flatten(1)

    @cached_property
    def graph_of_inputs(self) -> sparse.csr_array:
        return self.graph_of(self.inputs)

    def graph_of(self, x: Tensor) -> sparse.csr_array:
        """𝒲 (M, M) of these vectors."""
        w = self.joining(x)
        return self.joining(near(x, w)) if self.near else w

    def joining(self, x: Tensor) -> sparse.csr_array:
        return local_graph(x, self.neighbours) if self.over == "inputs" else graph(x, self.neighbours, self.gamma)

    def views(self, step: Step) -> Iterator[Tensor]:
        """One weak view of the pool, in parts."""
        random = step.generator("views for propagation")
        for indices in self.context.pool.split(512):
            yield self.context.weak_view(indices, random)

    def features(self, step: Step) -> Tensor:
        """Of the pool (M, D), dropout off."""
        with evaluating(self.student):
            read = [step.through(lambda own: features_and_logits(self.student, own)[0], x) for x in self.views(step)]
            return torch.cat(read)

    def damping(self, step: Step, labels: Tensor) -> NDArray[np.float64]:
        """The share of its value that each node of the pool passes on (M,)."""
        uncertainty = []
        with dropout_only(self.student):
            for i, x in enumerate(self.views(step)):
                step.seed_dropout(f"draws for propagation {i}", self.student)
                drawn = torch.stack([step.through(self.student, x).softmax(1) for _ in range(self.draws)])
                uncertainty.append(METRICS["pe"](drawn).cpu())
        share = 1 - (rank(torch.cat(uncertainty)) - 1).double() / max(len(labels) - 1, 1)
        return torch.where(labels >= 0, 1.0, share).numpy()

    def __repr__(self) -> str:
        damped = f", damped by PE of {self.draws} draws" if self.draws else ""
        own = f"{role(self.student)}'s features"
        where = {"features": own, "inputs": "the inputs", "angles": "the inputs, by their angles"}[self.over]
        metric = ", in the metric in which they are near" if self.near else ""
        rho = f"{self.regression:g}"
        times = f", times (answer of logistic regression)^({rho}n/(1 + {rho}n))" if self.regression else ""
        return (
            f"labels propagated over {self.neighbours} neighbours in {where}{metric}, α = {self.alpha:g}{damped}{times}"
        )
