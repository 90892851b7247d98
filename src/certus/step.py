"""One training step: the batch, the clock, and every (network, perturbation) forward run at most once.

A perturbation η is known by its name and holds both of the paper's kinds of noise: the view of the images and the
dropout of the network that looks at them. The same name is the same noise; another name is fresh noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from certus.models.modes import dropout_only, evaluating, frozen_statistics
from certus.randomness import generator, seed_global
from certus.schedules import Clock
from certus.views import Views


@dataclass(frozen=True, eq=False)
class Batch:
    """Images of one step, the labelled ones first. An unlabelled image has label −1: its own is not here to leak."""

    images: Tensor  # (B, C, H, W) or (B, D), normalised
    labels: Tensor  # (B,)  −1 = unlabelled
    index: Tensor  # (B,)  place in the training set, for sources that remember images

    def __len__(self) -> int:
        return len(self.labels)


class Step:
    """What methods see of one training step."""

    def __init__(self, batch: Batch, clock: Clock, views: Views, seed: int) -> None:
        self.batch, self.clock, self.views, self.seed = batch, clock, views, seed
        self.device = batch.images.device
        self._views: dict[tuple[str, str], Tensor] = {}
        self._answers: dict[tuple[int, str, str, str], Tensor] = {}

    def generator(self, name: str) -> torch.Generator:
        """Random numbers for this purpose at this step."""
        return generator(self.seed, self.clock.step, name, device=self.device)

    def view(self, name: str, kind: str = "weak") -> Tensor:
        """The batch under the augmentation of this kind that belongs to perturbation `name`."""
        if (name, kind) not in self._views:
            self._views[name, kind] = self.views[kind](self.batch.images, self.generator(f"view {name}"))
        return self._views[name, kind]

    def learn(self, net: nn.Module, name: str, kind: str = "weak") -> Tensor:
        """A student's answer with gradient: dropout on, batch statistics of its own, which it remembers."""
        return self._once("learn", net, name, kind, lambda x: net(x))

    def answer(self, net: nn.Module, name: str, kind: str = "weak") -> Tensor:
        """A teacher's answer: no gradient, no dropout, running statistics that stay as they are."""

        def forward(x: Tensor) -> Tensor:
            with torch.no_grad(), evaluating(net):
                return net(x)

        return self._once("answer", net, name, kind, forward)

    def twin(self, net: nn.Module, name: str, kind: str = "weak") -> Tensor:
        """A student as its own teacher: dropout and batch statistics on, no gradient, nothing remembered."""

        def forward(x: Tensor) -> Tensor:
            with torch.no_grad(), frozen_statistics(net):
                return net(x)

        return self._once("twin", net, name, kind, forward)

    def draw(self, net: nn.Module, name: str, passes: int) -> Tensor:
        """T stochastic answers (T, B, C) as probabilities: a fresh view and fresh dropout each, no gradient."""
        drawn = []
        with torch.no_grad(), dropout_only(net):
            for t in range(passes):
                x = self.views["weak"](self.batch.images, self.generator(f"view {name} draw {t}"))
                self.seed_dropout(f"{name} draw {t}")
                drawn.append(net(x).softmax(1))
        return torch.stack(drawn)

    def seed_dropout(self, name: str) -> None:
        """The next forward has the dropout of perturbation `name`."""
        seed_global(self.seed, self.clock.step, f"dropout {name}", device=self.device)

    def _once(self, how: str, net: nn.Module, name: str, kind: str, forward: Callable[[Tensor], Tensor]) -> Tensor:
        key = (id(net), name, kind, how)
        if key not in self._answers:
            x = self.view(name, kind)
            self.seed_dropout(name)
            self._answers[key] = forward(x)
        return self._answers[key]
