"""The runs of a report, read from their folders: which belong to one arm, and how the arms differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from torch import Tensor

from certus.certainty.metrics import METRICS, UNDRAWN, best, unconfidence
from certus.config import Config, resolve
from certus.errors import CertusError, UsageError
from certus.methods import METHODS, PRETRAINING
from certus.methods.recipe import shown
from certus.text import printable
from certus.training.artefacts import ENVIRONMENT, read_answers, read_record
from certus.training.run_folder import RunFolder

NOT_AN_ARM = ("seed", "data_dir", "threads", "device")  # settings in which runs of one arm may differ
TASK = ("data", "labels", "label_noise")  # results are compared only where these are the same


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One run: its config and the files that it has written so far."""

    folder: RunFolder
    config: Config

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """Of metrics.jsonl, one per epoch."""
        return self.folder.load_metrics()

    @cached_property
    def result(self) -> dict[str, Any] | None:
        return self.folder.load_result() if self.folder.finished() else None

    @cached_property
    def answers(self) -> dict[str, Tensor]:
        """Of its first answering network to the test images: probabilities, labels, and every uncertainty."""
        return answers_in(
            self.folder.predictions, f"remove it and result.json, and continue with `resume` {self.folder.path}"
        )

    @cached_property
    def unlabelled_answers(self) -> dict[str, Tensor]:
        """The same for its unlabelled images, once `answer_unlabelled` has written them."""
        return answers_in(self.folder.unlabelled, "remove it, and make the report with `unlabelled`")

    @cached_property
    def classes(self) -> tuple[str, ...]:
        return tuple(map(printable, self.folder.load_model()["classes"])) if self.folder.model.exists() else ()

    @cached_property
    def version(self) -> str | None:
        """Of certus, that began the run."""
        path = self.folder.environment
        return read_record(path, ENVIRONMENT, "remove it")["certus"] if path.exists() else None

    def read(self) -> list[str]:
        """Read every file, which raises CertusError if one is damaged; sentences on what a run should have and has
        not."""
        folder, result, lines = self.folder, self.result, self.lines
        _ = self.unlabelled_answers, self.version
        steps = [line["step"] for line in lines]
        notes = []
        if [line["epoch"] for line in lines] != list(range(1, len(lines) + 1)):
            notes.append(f"{folder.metrics} lacks epochs, so the curves have gaps.")
        if result is None:
            done = folder.saved_step()
            per_epoch = steps[0] // lines[0]["epoch"] if lines else 0
            if (done and not lines) or (per_epoch and steps[-1] < done - done % per_epoch):
                notes.append(f"{folder.metrics} holds {len(lines) or 'no'} epochs, and the run is at step {done}.")
            if done and done >= self.config.steps:
                notes.append(f"{folder.result} is missing: continue the run, which writes it again.")
            return notes
        if (result["method"], result["seed"]) != (self.config.method, self.config.seed):
            raise CertusError(f"{folder.result} is the result of another run than {folder.config}: restore either.")
        if not steps or steps[-1] < result["steps"]:
            notes.append(f"{folder.metrics} ends before the run, so the curves do, too.")
        expected = {folder.model: self.classes, folder.predictions: self.answers or result["test_error"] is None}
        return notes + [
            f"{path} is missing, so figures lack what it held." for path, found in expected.items() if not found
        ]

    def class_names(self, count: int) -> list[str]:
        return list(self.classes) if len(self.classes) == count else [str(c) for c in range(count)]

    @property
    def error(self) -> float | None:
        """On the test images; without any, on the validation images."""
        return error_of(self.result) if self.result else None

    @property
    def metric(self) -> str:
        """The uncertainty that its answers are ranked by."""
        return best(self.answers)

    def curve(self, key: str) -> dict[int, float]:
        return {line["epoch"]: line[key] for line in self.lines if line.get(key) is not None}

    def terms(self) -> list[str]:
        """Its consistency terms that were recorded."""
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
    def results(self) -> dict[int, dict[str, Any]]:
        """Of its finished runs, by seed."""
        return {r.config.seed: r.result for r in self.runs if r.result}

    @property
    def answering(self) -> list[RunRecord]:
        return [r for r in self.runs if r.answers]

    def kinds(self) -> list[str]:
        """Its kinds of consistency terms; the terms of several students are one kind."""
        return list(dict.fromkeys(kind_of(name) for run in self.runs for name in run.terms()))


def error_of(result: Mapping[str, Any]) -> float | None:
    """On the test images; without any, on the validation images."""
    return result["test_error"] if result["test_error"] is not None else result["validation_error"]


def answers_in(path: Path, remedy: str) -> dict[str, Tensor]:
    """The first answering network's probabilities, labels and every uncertainty; empty without a file."""
    if not path.exists():
        return {}
    found = read_answers(path, remedy)
    probabilities = found["probabilities"][0]
    kept = {name: found[name] for name in (*METRICS, *UNDRAWN) if name in found}
    return {
        "probabilities": probabilities,
        "labels": found["labels"],
        "confidence": unconfidence(probabilities),
        **kept,
    }


def dig(record: Any, keys: Sequence[str | int]) -> Any:
    """The value at these keys, where a number is an index into a list; None if there is none."""
    for key in keys:
        if isinstance(key, int):
            record = record[key] if isinstance(record, list) else None
        else:
            record = record.get(key) if isinstance(record, dict) else None
    return record


def kind_of(term: str) -> str:
    """`consistency 2` is a consistency."""
    return term.rstrip("0123456789 ")


def find(paths: Sequence[Path]) -> list[RunFolder]:
    """The runs in these folders: each is a run, or a folder of runs."""
    found: dict[Path, RunFolder] = {}
    for path in paths:
        if not path.is_dir():
            raise UsageError(f"There is no folder {path}.")
        inside = [RunFolder(path)] if RunFolder(path).exists() else list(runs_in(path))
        if not inside:
            raise UsageError(f"{path} holds no run, and none of its folders does: no config.toml was found.")
        for folder in inside:
            found.setdefault(folder.path.resolve(), folder)
    return list(found.values())


def readable(folders: Sequence[RunFolder]) -> tuple[list[RunRecord], list[str], dict[Path, CertusError]]:
    """The runs whose files are whole, sentences on what is missing, and by folder why the others cannot be read."""
    runs, notes, failures = [], [], {}
    for folder in folders:
        try:
            run = RunRecord(folder, folder.load_config())
            notes += run.read()
            runs.append(run)
        except CertusError as e:
            failures[folder.path] = e
    return runs, notes, failures


def runs_in(path: Path) -> Iterator[RunFolder]:
    for inner in sorted(p for p in path.iterdir() if p.is_dir()):
        if RunFolder(inner).exists():
            yield RunFolder(inner)


def flat(config: Config) -> dict[str, Any]:
    """Every setting and option by name, except those in which runs of one arm may differ."""
    values = asdict(config)
    options = values.pop("options")
    return {k: v for k, v in (values | options).items() if k not in NOT_AN_ARM}


def arms(runs: Sequence[RunRecord]) -> tuple[list[Arm], list[str]]:
    """Runs grouped into arms, each named by its method and how it differs from the others; and notes on what was left
    out. A seed that an arm has twice counts once."""
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

    def order_of(arm: Arm) -> tuple[Any, ...]:
        """By task and method; a method with its defaults comes before its variants."""
        return tuple(map(str, arm.task)), order.index(arm.config.method), arm.name.count(", ")

    return sorted(named, key=order_of), notes


def name_of(config: dict[str, Any], others: Sequence[dict[str, Any]]) -> str:
    """Its method, and the settings in which it differs both from the method's defaults and from another arm of the
    method; its task too, if the arms have several."""
    alike = [o for o in others if o["method"] == config["method"]]
    usual = flat(resolve({"data": config["data"], "method": config["method"]}))
    apart = [
        key
        for key, value in config.items()
        if (key in TASK or value != usual[key]) and any(o[key] != value for o in (others if key in TASK else alike))
    ]
    return ", ".join([config["method"], *(f"{key.replace('_', ' ')} {value_text(config[key])}" for key in apart)])


def value_text(value: Any) -> str:
    """The value of a setting for people; a path is shortened to its last part."""
    return printable(Path(value).name if isinstance(value, str) and "/" in value else shown(value))
