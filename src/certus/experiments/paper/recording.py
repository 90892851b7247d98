"""The records of finished runs, from their folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from certus import __version__
from certus.experiments.cells import Cell, Results
from certus.experiments.compare import finished_arms
from certus.experiments.paper.records import COLUMNS, Records, Row, settings_text
from certus.report.answers import coverage_rows, rankings, reliability_rows
from certus.report.curves import learning_curve, loss_curve, loss_kinds
from certus.report.figure import rows_of
from certus.report.runs import Arm, RunRecord, kind_of
from certus.report.statistics import band, mean_std


def records_of(scale: str, cells: Sequence[Cell], results: Results) -> Records:
    """Of the finished cells."""
    tables: dict[str, list[Row]] = {name: [] for name in COLUMNS}
    for task in dict.fromkeys(cell.folder.path.parent.name for cell in cells):
        for arm in finished_arms([c for c in cells if c.folder.path.parent.name == task], results):
            for name, columns in COLUMNS.items():
                rows = runs(arm, scale) if name == "runs" else CURVES[name](arm)
                tables[name] += [
                    {"task": task, "arm": arm.name, **dict(zip(columns, row, strict=True))} for row in rows
                ]
    return Records(tables)


def runs(arm: Arm, scale: str) -> Iterable[Sequence[Any]]:
    for run in sorted(arm.runs, key=lambda run: run.config.seed):
        result, config = run.result or {}, run.config
        yield (
            *(config.method, config.seed, config.steps, settings_text(config)),
            *(result["test_error"], result["validation_error"], result["seconds"], scale, run.version or __version__),
        )


def losses(arm: Arm) -> Iterable[Sequence[Any]]:
    for kind in loss_kinds([arm]):
        yield from rows_of(kind, loss_curve(arm, kind))


def targets(arm: Arm) -> Iterable[Sequence[Any]]:
    """How many targets are kept, and how many of the kept and of all targets of unlabelled images are right."""
    for kind in arm.kinds():
        quantities = {
            "kept": [run.of_targets(kind, "kept", "all") for run in arm.runs],
            "kept of the unlabelled": [kept_unlabelled(run, kind) for run in arm.runs],
            "selected right": [run.of_targets(kind, "accuracy", "selected") for run in arm.runs],
            "all right": [run.of_targets(kind, "accuracy", "all") for run in arm.runs],
        }
        for quantity, curves in quantities.items():
            percent = [{epoch: 100 * value for epoch, value in curve.items()} for curve in curves]
            yield from ((kind, *row) for row in rows_of(quantity, band(percent)))


def kept_unlabelled(run: RunRecord, kind: str) -> dict[int, float]:
    """By epoch, the share of the targets of unlabelled images that was kept."""
    found, before = {}, 0
    for line in run.lines:
        counts = [t["classes"] for name, t in line.get("targets", {}).items() if kind_of(name) == kind]
        images = (line["step"] - before) * run.config.unlabelled_batch * len(counts)
        before = line["step"]
        if images:
            found[line["epoch"]] = sum(map(sum, counts)) / images
    return found


def target_classes(arm: Arm) -> Iterable[Sequence[Any]]:
    for kind in arm.kinds():
        shares = [run.class_shares(kind) for run in arm.runs]
        count = max((len(s) for run in shares for s in run.values()), default=0)
        for c, name in enumerate(arm.runs[0].class_names(count)):
            curves = [{epoch: 100 * s[c] for epoch, s in run.items()} for run in shares]
            yield from ((kind, *row) for row in rows_of(name, band(curves)))


def certainty(arm: Arm) -> Iterable[Sequence[Any]]:
    """How well each uncertainty finds wrong answers: rank correlation of its bins, and AUROC, over seeds."""
    for images, runs in answers_of(arm):
        for name, ranking in rankings(runs).items():
            correlation, area = (mean_std(v) if v else (None, None) for v in (ranking.correlations, ranking.areas))
            yield images, len(runs[0]["labels"]), name, *correlation, *area, len(runs)


def ranked_bins(arm: Arm) -> Iterable[Sequence[Any]]:
    for images, runs in answers_of(arm):
        for name, ranking in rankings(runs).items():
            yield from ((images, name, i + 1, accuracy) for i, accuracy in enumerate(ranking.accuracy))


def answers_of(arm: Arm) -> Iterable[tuple[str, list[dict[str, Any]]]]:
    """The answers to the unlabelled and to the test images, of arms that have answered their unlabelled images."""
    unlabelled = [run.unlabelled_answers for run in arm.runs if run.unlabelled_answers]
    if unlabelled:
        yield "unlabelled", unlabelled
        yield "test", [run.answers for run in arm.answering]


CURVES: dict[str, Callable[[Arm], Iterable[Sequence[Any]]]] = {
    "learning-curves": lambda arm: (row[1:] for row in rows_of("", learning_curve(arm))),
    "losses": losses,
    "targets": targets,
    "target-classes": target_classes,
    "risk-coverage": coverage_rows,
    "reliability": reliability_rows,
    "certainty": certainty,
    "ranked-bins": ranked_bins,
}
