"""Records a run while it trains: its targets, filters, certainty and time.

The observer reads the targets that a step has made, without an extra forward. It alone has the hidden labels, and
measures how many targets of unlabelled images are right. A run without it has the same weights to the bit. During an
epoch it keeps only sums, so that a run stopped in mid-epoch continues with them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from certus.core.method import Method
from certus.core.schedules import Clock
from certus.core.step import Step
from certus.core.target import Target
from certus.core.terms import Consistency
from certus.views import Augmentation

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
SMALLEST, DECADES, PER_DECADE = 1e-10, 11, 200  # an uncertainty from 1e-10 to 10 is known to within 0.6 %
BINS = 1 + DECADES * PER_DECADE  # the first one holds all that is smaller, and counts as 0

Sums = dict[str, Tensor]  # by name, float64: added up over the steps of an epoch


def bin_of(uncertainty: Tensor) -> Tensor:
    """(B,) index of the bin on a logarithmic scale, in steps of 1.16 %."""
    index = (uncertainty.double() / SMALLEST).log10().mul(PER_DECADE).floor() + 1
    return index.nan_to_num(nan=0.0, neginf=0.0).clamp(0, BINS - 1).long()


def quantiles(counts: Sequence[float]) -> list[float] | None:
    """Of the values counted in these bins, each taken as the middle of its bin."""
    total = sum(counts)
    if not total:
        return None
    found, below, index = [], 0.0, -1
    for q in QUANTILES:
        while below < max(q * total, 1):
            index += 1
            below += counts[index]
        found.append(SMALLEST * 10 ** ((index - 0.5) / PER_DECADE) if index else 0.0)
    return found


def batch_sums(stages: Sequence[Target], labels: Tensor, truth: Tensor) -> Sums:
    """The sums of one batch, of its targets as the source made them and after each refinement.

    `labels` are those that the run may see (−1: unlabelled), `truth` all that are known (−1: unknown).
    """
    last = stages[-1]
    answer, kept, unlabelled = last.logits.argmax(1), last.weight > 0, labels < 0
    asked = unlabelled & (truth >= 0)
    right = asked & (answer == truth)
    seen = {
        "kept": torch.stack([torch.ones_like(kept), *(stage.weight > 0 for stage in stages)]).sum(1),  # (1 + stages,)
        "asked": torch.stack([asked, right, asked & kept, right & kept]).sum(1),  # all, right; selected, right
        "classes": labels.new_zeros(last.logits.shape[1]).index_add_(0, answer, (unlabelled & kept).to(labels.dtype)),
    }
    if (uncertainty := last.measured) is not None:
        part = unlabelled.long()
        bins = bin_of(uncertainty) + BINS * part
        seen["bins"] = labels.new_zeros(2 * BINS).index_add_(0, bins, torch.ones_like(bins))
        total = torch.zeros(2, dtype=torch.float64, device=part.device)
        seen["uncertainty"] = total.index_add_(0, part, uncertainty.double())
    return {name: t.double() for name, t in seen.items()}


def summarised(sums: Mapping[str, Sequence[float]], names: Sequence[str]) -> dict[str, Any]:
    """The record of one term's targets from an epoch's sums; `names` are its refinements'."""
    kept, (asked, right, selected, right_selected) = sums["kept"], sums["asked"]
    shares = [after / before if before else None for before, after in pairwise(kept)]
    record: dict[str, Any] = {
        "kept": {**dict(zip(("source", *names), shares, strict=True)), "all": kept[-1] / kept[0]},
        "accuracy": {
            "selected": right_selected / selected if selected else None,
            "all": right / asked if asked else None,
        },
        "classes": [int(n) for n in sums["classes"]],
    }
    if "bins" in sums:
        record["uncertainty"] = {
            part: spread(sums["bins"][i * BINS : (i + 1) * BINS], sums["uncertainty"][i])
            for i, part in enumerate(("labelled", "unlabelled"))
        }
    return record


def spread(counts: Sequence[float], total: float) -> dict[str, Any] | None:
    """Mean and quantiles; None without images."""
    n = sum(counts)
    return {"mean": total / n, "quantiles": quantiles(counts)} if n else None


def now(term: Any, clock: Clock) -> dict[str, float]:
    """Every scheduled quantity of a term: λ, and by name those of its refinements (k, p_max, v_max)."""
    found = {"lambda": float(term.weight(clock))} if callable(getattr(term, "weight", None)) else {}
    for refine in getattr(term, "refine", ()):
        if is_dataclass(refine):
            scheduled = {f.name: getattr(refine, f.name) for f in fields(refine)}
            found |= {name: float(schedule(clock)) for name, schedule in scheduled.items() if callable(schedule)}
    return found


class Stopwatch:
    """Seconds by phase. The time of a phase inside another counts only for the inner one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._open: list[str] = []
        self._since = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._lap()
        self._open.append(name)
        try:
            yield
        finally:
            self._lap()
            self._open.pop()

    def _lap(self) -> None:
        at = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] = self.seconds.get(self._open[-1], 0.0) + at - self._since
        self._since = at


class Observer:
    """Sums up an epoch of a method step by step, and records it at the end."""

    def __init__(self, method: Method, truth: Tensor) -> None:
        self.method, self.truth = method, truth
        self.watch = Stopwatch()
        self.images = 0
        self.sums: dict[str, Sums] = {}

    def timed(self, step: Step) -> Step:
        """The same step, with the time of its views measured apart from that of its forwards."""
        step.views = {kind: self._timed_view(view) for kind, view in step.views.items()}
        return step

    def _timed_view(self, view: Augmentation) -> Augmentation:
        def timed(images: Tensor, random: torch.Generator) -> Tensor:
            with self.watch.phase("views"):
                return view(images, random)

        return timed

    @torch.no_grad()
    def see(self, step: Step) -> None:
        """Add a step to the epoch: nothing leaves the device."""
        self.images += len(step.batch)
        if step.clock.warming:
            return
        truth = self.truth[step.batch.index]
        for name, term in self.method.terms.items():
            if isinstance(term, Consistency):
                seen = batch_sums(term.targets(step), step.batch.labels, truth)
                sums = self.sums.setdefault(name, {})
                for key, value in seen.items():
                    sums[key] = sums[key] + value if key in sums else value

    def state(self) -> dict[str, Any]:
        """The epoch so far, as JSON."""
        sums = {name: {key: t.tolist() for key, t in sums.items()} for name, sums in self.sums.items()}
        return {"images": self.images, "seconds": self.watch.seconds, "sums": sums}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.images, self.watch.seconds = state["images"], dict(state["seconds"])
        device = self.truth.device
        self.sums = {
            name: {key: torch.tensor(values, dtype=torch.float64, device=device) for key, values in sums.items()}
            for name, sums in state["sums"].items()
        }

    def close(self, clock: Clock) -> dict[str, Any]:
        """The epoch's record, and a fresh start."""
        seconds = self.watch.seconds
        training = sum(t for phase, t in seconds.items() if phase not in ("validation", "saving"))
        targets = {}
        for name, sums in self.sums.items():
            term = self.method.terms[name]
            assert isinstance(term, Consistency)
            targets[name] = summarised({key: t.tolist() for key, t in sums.items()}, refinements(term))
        record = {
            "now": {name: now(term, clock) for name, term in self.method.terms.items()},
            "batch": clock.batch,
            "targets": targets,
            "images_per_second": self.images / training if training else None,
            "time": {phase: round(t, 6) for phase, t in seconds.items()},
        }
        self.images, self.sums, self.watch.seconds = 0, {}, {}
        return record


def refinements(term: Consistency) -> list[str]:
    """Their names in order, numbered where one stands twice."""
    kinds = [type(refine).__name__ for refine in term.refine]
    return [kind if kinds.count(kind) == 1 else f"{kind} {i + 1}" for i, kind in enumerate(kinds)]
