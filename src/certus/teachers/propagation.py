"""A teacher that propagates the labels over a graph of all images' features, rebuilt after every pass."""

from __future__ import annotations

import torch
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
from certus.teachers.diffusion import diffuse, graph, label_matrix, pseudo_labels


class Propagation(nn.Module):
    """Hard labels for the unlabelled images, with weight ω_i ζ_c; none before e = start.

    With `draws`, an unlabelled node passes on only the share c_i = 1 − (R_i − 1)/(N − 1) of its value, where R_i is the
    rank of its Monte-Carlo uncertainty among all images. A labelled node passes on all of it.
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
    ) -> None:
        super().__init__()
        feature_size(student)  # refuses a network without features
        if draws and not has_dropout(student):
            raise UsageError(
                "`damp` measures certainty by dropout, but the network has none: set `dropout` above 0, or turn `damp` "
                "off."
            )
        self.start, self.neighbours, self.gamma, self.alpha, self.draws = start, neighbours, gamma, alpha, draws
        n = len(context.labels)
        self.register_buffer("labels", torch.zeros(n, dtype=torch.int64))
        self.register_buffer("weights", torch.zeros(n))
        self.labels: Tensor
        self.weights: Tensor
        self.register_buffer("built", torch.tensor(False))
        self.built: Tensor
        self.classes = context.classes
        refer(self, student=student, context=context)

    def forward(self, step: Step) -> Target:
        labels, weights = self.labels[step.batch.index], self.weights[step.batch.index]
        logits = torch.full((len(labels), self.classes), IMPOSSIBLE, device=labels.device)
        unlabelled = step.batch.labels < 0
        return Target.plain(logits.scatter(1, labels[:, None], 0.0)).kept(weights * unlabelled)

    @torch.no_grad()
    def follow(self, step: Step) -> None:
        if step.clock.epoch >= self.start and (step.clock.ends_pass or not self.built):
            self.rebuild(step)

    def rebuild(self, step: Step) -> None:
        context = self.context
        features, uncertainty = self.features_and_uncertainty(step)
        labels = context.labels[context.pool].cpu()
        damping = None
        if uncertainty is not None:
            share = 1 - (rank(uncertainty) - 1).double() / max(len(labels) - 1, 1)
            damping = torch.where(labels >= 0, 1.0, share).numpy()
        w, y = graph(features, self.neighbours, self.gamma), label_matrix(labels, self.classes)
        z = diffuse(w, y, self.alpha, damping)
        guess, weight, balance = pseudo_labels(torch.from_numpy(z), labels)
        self.labels[context.pool] = guess.to(self.labels.device)
        self.weights[context.pool] = (weight * balance[guess]).float().to(self.weights.device)
        self.built.fill_(True)

    def features_and_uncertainty(self, step: Step) -> tuple[Tensor, Tensor | None]:
        """Features of the pool (M, D), dropout off, one weak view; and with `draws` its uncertainty (M,)."""
        student, context = self.student, self.context
        random = step.generator("views for propagation")
        features, uncertainty = [], []
        for i, indices in enumerate(context.pool.split(512)):
            x = context.weak_view(indices, random)
            with evaluating(student):
                features.append(features_and_logits(student, x)[0])
            if self.draws:
                with dropout_only(student):
                    step.seed_dropout(f"draws for propagation {i}", student)
                    drawn = torch.stack([student(x).softmax(1) for _ in range(self.draws)])
                uncertainty.append(METRICS["pe"](drawn).cpu())
        return torch.cat(features), torch.cat(uncertainty) if self.draws else None

    def __repr__(self) -> str:
        damped = f", damped by PE of {self.draws} draws" if self.draws else ""
        student = role(self.student)
        return (
            f"labels propagated over {self.neighbours} neighbours in {student}'s features, α = {self.alpha:g}{damped}"
        )
