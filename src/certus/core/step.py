"""One training step: the batch, the clock, and every (network, perturbation) forward run at most once.

A perturbation η has a name. It contains both kinds of noise of the paper: the view of the images and the dropout of the
network. The same name gives the same noise; another name gives fresh noise.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from certus.certainty.draws import Plan, Tree
from certus.core.schedules import Clock
from certus.distributed.rows import WHOLE, Collector, Rows
from certus.networks.fused import to_channels_last
from certus.networks.inference import quick_stages
from certus.networks.modes import dropout_only, evaluating, frozen_statistics
from certus.networks.roles import role
from certus.randomness import generator, seed_global
from certus.views import Views


@dataclass(frozen=True, eq=False)
class Batch:
    """Images of one step, the labelled ones first. An unlabelled image has label −1: its true label is not here."""

    images: Tensor  # (B, C, H, W) or (B, D), normalised
    labels: Tensor  # (B,)  −1 = unlabelled
    index: Tensor  # (B,)  index in the training set, for sources that remember images
    labelled: int = 0  # how many of them are labelled
    prior: Tensor | None = None  # (C,) log frequency of each class among the labels, if the loss makes up for it

    def __len__(self) -> int:
        return len(self.labels)


class Step:
    """One training step as methods see it."""

    def __init__(self, batch: Batch, clock: Clock, views: Views, seed: int, rows: Rows = WHOLE) -> None:
        self.batch, self.clock, self.views, self.seed, self.rows = batch, clock, views, seed, rows
        self.device = batch.images.device
        self._done: dict[Hashable, Any] = {}

    def generator(self, name: str) -> torch.Generator:
        """The random generator of this purpose at this step."""
        return generator(self.seed, self.clock.step, name, device=self.device)

    def view(self, name: str, kind: str = "weak") -> Tensor:
        """The batch under the augmentation of this kind that belongs to perturbation `name`.

        Kind `mixed` is strong for unlabelled images; labelled ones have the view `labelled`, usually the weak one. A
        strong view has its own random numbers.
        """

        def make() -> Tensor:
            if kind != "mixed":
                noise = f"view {name}" if kind == "weak" else f"{kind} view {name}"
                return to_channels_last(self.views[kind](self.batch.images, self.generator(noise)))
            n = self.batch.labelled
            parts = {"labelled": self.batch.images[:n], "strong": self.batch.images[n:]}
            there = {k: part for k, part in parts.items() if len(part)}  # a warm-up has labelled images alone
            views = [self.views[k](part, self.generator(f"{k} part of view {name}")) for k, part in there.items()]
            return to_channels_last(torch.cat(views))

        return self.once(("view", name, kind), make)

    def learn(self, net: nn.Module, name: str, kind: str = "weak") -> Tensor:
        """A student's answer with gradient: dropout on, batch statistics; weak views update the running statistics."""
        key = ("learn", id(net), name, kind)
        return self.once(key, lambda: self.rows.joined(self._learned(net, name, kind)[1], len(self.batch)))

    def features(self, net: nn.Module, name: str, kind: str = "weak") -> Tensor:
        """The features (B, D) that the head reads in the same forward, with gradient."""
        key = ("features", id(net), name, kind)
        return self.once(key, lambda: self.rows.joined(self._learned(net, name, kind)[0], len(self.batch)))

    def _learned(self, net: nn.Module, name: str, kind: str) -> tuple[Tensor, Tensor]:
        """Features and logits of this process's rows."""

        def forward() -> tuple[Tensor, Tensor]:
            x = self.view(name, kind)
            self.seed_dropout(name, net)
            with frozen_statistics(net) if kind == "strong" else nullcontext(), self.rows.batch(len(x)):
                return features_and_logits(net, self.rows.own(x))

        return self.once(("learned", id(net), name, kind), forward)

    def through(self, net: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        """A network's answers to any images, in the mode that it is in; each process passes its rows of them."""
        with self.rows.batch(len(images)):
            part = net(self.rows.own(images))
        return self.rows.joined(part.float(), len(images))

    def answer(self, net: nn.Module, name: str, kind: str = "weak") -> Tensor:
        """A teacher's answer: no gradient, no dropout, running statistics, which stay as they are."""

        def forward() -> Tensor:
            first, *others = quick_stages(net, self.batch.images)
            with torch.no_grad(), evaluating(nn.ModuleList([first, *others])):
                y = self._trunk(net, first, name, kind)
                for stage in others:
                    y = stage(y)
                return self.rows.joined(y.float(), len(self.batch))

        return self.once(("answer", id(net), name, kind), forward)

    def _trunk(self, net: nn.Module, first: nn.Module, name: str, kind: str = "weak") -> Tensor:
        """The teacher's activations before the first dropout, of this process's rows, shared by its answer and the
        draws of a tree."""
        return self.once(("trunk", id(net), name, kind), lambda: first(self.rows.own(self.view(name, kind))))

    def stochastic_answer(self, net: nn.Module, name: str, kind: str = "weak") -> Tensor:
        """A student as its own teacher: dropout on, batch statistics, no gradient; no statistics are updated."""

        def forward() -> Tensor:
            with torch.no_grad():
                return self.probe(net, self.view(name, kind), name)

        return self.once(("stochastic answer", id(net), name, kind), forward)

    def probe(self, net: nn.Module, images: Tensor, name: str, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """A student's answer to any images or with other weights, with the dropout of `name`; updates no statistics."""
        self.seed_dropout(name, net)
        with frozen_statistics(net):
            if weights is None:
                return self.through(net, images)
            given = dict(self.rows.weights(weights))
            return self.through(lambda own: functional_call(net, given, (own,)), images)

    def draw(self, net: nn.Module, name: str, plan: Plan, moments: Collector) -> None:
        """Add stochastic answers (B, C) to the moments, as probabilities, one by one: noise by the plan, no gradient.

        The first view of a tree is the view of `answer`, and both share the activations before the first dropout.
        """
        first, *others = quick_stages(net, self.batch.images, exact=not isinstance(plan, Tree))
        shared = isinstance(plan, Tree) and bool(others)

        def view(v: int) -> Tensor:
            if shared and v == 0:
                return self._trunk(net, first, name)
            x = self.rows.own(self.views["weak"](self.batch.images, self.generator(f"view {name} draw {v}")))
            return first(x) if shared else x

        n = len(self.batch)
        stages = [self.rows.stage(stage, n) for stage in [nn.Identity() if shared else first, *others]]
        with (
            torch.no_grad(),
            dropout_only(nn.ModuleList([first, *others])),
            self.rows.collecting(moments, n) as collect,
        ):
            plan.run(stages, view, lambda noise: self.seed_dropout(f"{name} {noise}"), collect)

    def seed_dropout(self, name: str, net: nn.Module | None = None) -> None:
        """The next forward has the dropout of perturbation `name`; each of several students has its own."""
        whose = "" if net is None or role(net) == "student" else f" of {role(net)}"
        seed_global(self.seed, self.clock.step, f"dropout {name}{whose}", device=self.device)

    def done(self, key: Hashable) -> bool:
        """Whether `once` has computed this."""
        return key in self._done

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The result of `make`, computed at most once in this step."""
        if key not in self._done:
            self._done[key] = make()
        return self._done[key]


def features_and_logits(net: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """The input (B, D) of the network's `head`, and the logits (B, C). D = 0 for a user's network without a head."""
    features: list[Tensor] = []
    head = getattr(net, "head", None)
    hook = head.register_forward_pre_hook(lambda _, given: features.append(given[0])) if head is not None else None
    try:
        logits = net(images)
    finally:
        if hook is not None:
            hook.remove()
    logits = logits.float()  # losses are computed in fp32
    return features[0].float() if features else logits.new_empty(len(logits), 0), logits
