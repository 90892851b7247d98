"""The runs that a report is about, as their folders tell: which belong together, and what sets them apart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from certus.certainty.metrics import METRICS, unconfidence
from certus.config import Config, resolve
from certus.errors import CertusError, UsageError
from certus.methods import METHODS, PRETRAINING
from certus.methods.recipe import shown
from certus.training.run_folder import RunFolder

ELSEWHERE = ("seed", "data_dir", "threads", "device")  # do not tell two arms apart
TASK = ("data", "labels", "label_noise")  # results are compared only where these are the same


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One run: its config, what it has written so far."""

    folder: RunFolder
    config: Config

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """One per epoch; a run that is being trained may be writing the last."""
        text = self.folder.metrics.read_text() if self.folder.metrics.is_file() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    @cached_property
    def result(self) -> dict[str, Any] | None:
        return self.folder.load_result() if self.folder.finished() else None

    @cached_property
    def said(self) -> dict[str, Tensor]:
        """What its first answering network said of the test images: probabilities, labels, and every uncertainty."""
        return answers_in(self.folder.predictions)

    @cached_property
    def said_unlabelled(self) -> dict[str, Tensor]:
        """The same of its unlabelled images, where certus.training.unlabelled has asked."""
        return answers_in(self.folder.unlabelled)

    @cached_property
    def classes(self) -> tuple[str, ...]:
        return tuple(json.loads(self.folder.model.read_text())["classes"]) if self.folder.model.is_file() else ()

    def class_names(self, count: int) -> list[str]:
        return list(self.classes) if len(self.classes) == count else [str(c) for c in range(count)]

    @property
    def error(self) -> float | None:
        """On the test images; without any, on the validation images."""
        found = self.result or {}
        return found.get("test_error") if found.get("test_error") is not None else found.get("validation_error")

    @property
    def metric(self) -> str:
        """What its answers are ranked by."""
        return "pe" if "pe" in self.said else "confidence"

    def curve(self, key: str) -> dict[int, float]:
        return {line["epoch"]: line[key] for line in self.lines if line.get(key) is not None}

    def terms(self) -> list[str]:
        """Its consistency terms, as far as they were observed."""
        return list(self.lines[-1].get("targets", {})) if self.lines else []

    def of_targets(self, kind: str, *keys: str | int) -> dict[int, float]:
        """A recorded quantity by epoch, the mean over the students that have terms of this kind."""
        found = {}
        for line in self.lines:
            values = [dig(t, keys) for name, t in line.get("targets", {}).items() if kind_of(name) == kind]
            if there := [v for v in values if v is not None]:
                found[line["epoch"]] = fmean(there)
        return found

    def class_shares(self, kind: str) -> dict[int, list[float]]:
        """By epoch, the share of each class among the selected targets of this kind, all students taken together."""
        found = {}
        for line in self.lines:
            counts = [t["classes"] for name, t in line.get("targets", {}).items() if kind_of(name) == kind]
            each = [sum(c) for c in zip(*counts, strict=True)]
            if total := sum(each):
                found[line["epoch"]] = [n / total for n in each]
        return found

    def of_losses(self, kind: str) -> dict[int, float]:
        """The loss of this kind of term by epoch, its weight included, the sum over students."""
        return {
            line["epoch"]: sum(loss for name, loss in line["losses"].items() if kind_of(name) == kind)
            for line in self.lines
        }

    def of_schedule(self, kind: str, key: str) -> dict[int, float]:
        """λ, k, P_max or V_max by epoch."""
        found = {}
        for line in self.lines:
            now = [n[key] for name, n in line.get("now", {}).items() if kind_of(name) == kind and key in n]
            if now:
                found[line["epoch"]] = now[0]
        return found


@dataclass(frozen=True, eq=False)
class Arm:
    """Runs that differ in their seed alone."""

    name: str
    runs: tuple[RunRecord, ...]

    @property
    def config(self) -> Config:
        return self.runs[0].config

    @property
    def task(self) -> tuple[Any, ...]:
        return tuple(getattr(self.config, key) for key in TASK)

    @property
    def errors(self) -> dict[int, float]:
        return {r.config.seed: r.error for r in self.runs if r.error is not None}

    @property
    def answering(self) -> list[RunRecord]:
        return [r for r in self.runs if r.said]

    def kinds(self) -> list[str]:
        """Its kinds of consistency terms: of several students the same kind counts once."""
        return list(dict.fromkeys(kind_of(name) for run in self.runs for name in run.terms()))


def answers_in(path: Path) -> dict[str, Tensor]:
    """The first answering network's: probabilities, labels, and every uncertainty; nothing where there is no file."""
    if not path.is_file():
        return {}
    try:
        said = load_file(path)
    except (SafetensorError, OSError) as e:
        raise CertusError(f"{path} cannot be read: {e}.") from None
    probabilities = said["probabilities"][0]
    drawn = {name: said[name] for name in METRICS if name in said}
    return {
        "probabilities": probabilities,
        "labels": said["labels"],
        **drawn,
        "confidence": unconfidence(probabilities),
    }


def dig(record: Any, keys: Sequence[str | int]) -> Any:
    """What lies at these keys, a number being a place in a list; None where there is nothing."""
    for key in keys:
        if isinstance(key, int):
            record = record[key] if isinstance(record, list) else None
        else:
            record = record.get(key) if isinstance(record, dict) else None
    return record


def kind_of(term: str) -> str:
    """`consistency 2` is a consistency."""
    return term.rstrip("0123456789 ")


def find(paths: Sequence[Path]) -> list[RunRecord]:
    """The runs in these folders: each is a run, or a folder of runs."""
    found: dict[Path, RunRecord] = {}
    for path in paths:
        if not path.is_dir():
            raise UsageError(f"There is no folder {path}.")
        inside = [RunFolder(path)] if RunFolder(path).exists() else list(runs_in(path))
        if not inside:
            raise UsageError(f"{path} holds no run, and none of its folders does: there is no config.toml.")
        for folder in inside:
            found.setdefault(folder.path.resolve(), RunRecord(folder, folder.load_config()))
    return list(found.values())


def runs_in(path: Path) -> Iterator[RunFolder]:
    for inner in sorted(p for p in path.iterdir() if p.is_dir()):
        if RunFolder(inner).exists():
            yield RunFolder(inner)


def flat(config: Config) -> dict[str, Any]:
    """Every setting and option by name, those apart that do not tell two arms apart."""
    values = asdict(config)
    options = values.pop("options")
    return {k: v for k, v in (values | options).items() if k not in ELSEWHERE}


def arms(runs: Sequence[RunRecord]) -> tuple[list[Arm], list[str]]:
    """Runs by what they share, each arm named by method and what sets it apart; and what was left out, and why.

    A seed that an arm has twice counts once.
    """
    groups: dict[str, list[RunRecord]] = {}
    notes = []
    for run in runs:
        group = groups.setdefault(repr(sorted(flat(run.config).items())), [])
        same = next((r for r in group if r.config.seed == run.config.seed), None)
        if same is None:
            group.append(run)
        else:
            notes.append(f"{run.folder.path} is the same run as {same.folder.path} and is shown once.")
    configs = [flat(group[0].config) for group in groups.values()]
    named = [Arm(name_of(c, configs), tuple(g)) for c, g in zip(configs, groups.values(), strict=True)]
    order = list((METHODS | PRETRAINING).keys())

    def place(arm: Arm) -> tuple[Any, ...]:
        """By task and method; the method as it comes before its variants."""
        return tuple(map(str, arm.task)), order.index(arm.config.method), arm.name.count(", ")

    return sorted(named, key=place), notes


def name_of(config: dict[str, Any], others: Sequence[dict[str, Any]]) -> str:
    """Its method, and what sets it apart from other arms of that method, unless that is as the method comes; and of
    any arm where it is another task."""
    alike = [o for o in others if o["method"] == config["method"]]
    usual = flat(resolve({"data": config["data"], "method": config["method"]}))
    apart = [
        key
        for key, value in config.items()
        if (key in TASK or value != usual[key]) and any(o[key] != value for o in (others if key in TASK else alike))
    ]
    told = [f"{key.replace('_', ' ')} {word(config[key])}" for key in apart]
    return ", ".join([config["method"], *told])


def word(value: Any) -> str:
    """A setting for people: of a folder its name."""
    return Path(value).name if isinstance(value, str) and "/" in value else shown(value)


def reference(block: Sequence[Arm]) -> Arm:
    """What the others of a task are compared with: supervised learning, the longest of several, or else the first."""
    supervised = [arm for arm in block if arm.config.method == "supervised"]
    return max(supervised, key=lambda arm: arm.config.steps, default=block[0])
