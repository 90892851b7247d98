"""What an experiment found, beside what the paper prints: plain dictionaries for JSON, and their Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from certus.certainty.metrics import METRICS
from certus.certainty.scores import wrong
from certus.experiments.compare import Cell
from certus.experiments.paper.experiments import Arm, Experiment, Task
from certus.experiments.paper.scales import Scale, in_words, task_in_words
from certus.report.runs import RunRecord
from certus.report.statistics import (
    auroc,
    band,
    bin_size,
    compared,
    difference_text,
    mean_std,
    mean_text,
    rank_correlation,
    ranked_bins,
)
from certus.training.run_folder import RunFolder

Results = Mapping[str, Mapping[str, Any]]
MOMENTS = (0.1, 0.25, 0.5, 0.75, 1.0)  # of a run, at which its selection is told


def summarise(
    experiment: Experiment,
    scale: Scale,
    chosen: Sequence[tuple[Task, Arm]],
    cells: Sequence[Cell],
    results: Results,
    command: str,
) -> dict[str, Any]:
    """Everything that results.json holds of it: what a task's table is about stands with that table."""
    summary = {"experiment": experiment.name, "scale": scale.name, "words": in_words(scale, cells[0].config)}
    tasks = {}
    for task in dict.fromkeys(task for task, _ in chosen):
        of_task = [c for c in cells if c.folder.path.parent.name == task.name]
        finished = [c for c in of_task if c.name in results]
        if not finished:
            continue
        arms = [arm for t, arm in chosen if t == task]
        table = task_table(experiment, task, arms, of_task, results)
        if experiment.about == "uncertainty":
            table["uncertainty"] = uncertainty_table([c.folder for c in finished])
        if experiment.about == "selection":
            table["selection"] = selection_table(of_task, results)
        seeds = Counter(c.arm for c in finished).values()
        words = task_in_words(scale, [c.config for c in finished], seeds)
        tasks[task.name] = {"command": command, "words": words, **table}
    return {**summary, "tasks": tasks}


def task_table(experiment: Experiment, task: Task, arms: Sequence[Arm], cells: Sequence[Cell], results: Results) -> Any:
    """Test errors of every arm that has a finished run, paired differences to the references, the paper's figure."""
    errors: dict[str, dict[int, float]] = {}
    seconds: dict[str, list[float]] = {}
    for cell in cells:
        if result := results.get(cell.name):
            errors.setdefault(cell.arm, {})[cell.config.seed] = result["test_error"]
            seconds.setdefault(cell.arm, []).append(result["seconds"])
    found = {}
    for arm in (a for a in arms if a.name in errors):
        mine = errors[arm.name]
        others = [name for name in experiment.references if name != arm.name and name in errors]
        differences = {name: compared(mine, errors[name]) for name in others}
        found[arm.name] = {
            **compared(mine, None),
            "test_error": {str(seed): e for seed, e in sorted(mine.items())},
            "seconds": mean_std(seconds[arm.name])[0],
            "differences": {
                name: {key: row[key] for key in ("difference", "p", "reduction")} for name, row in differences.items()
            },
            "printed": arm.printed(task),
        }
    return {"data": task.data, "labels": task.labels, "label_noise": task.noise, "arms": found}


def uncertainty_table(folders: Sequence[RunFolder]) -> dict[str, Any]:
    """How well each uncertainty finds mistakes: rank correlation of the bins and AUROC, over seeds."""
    found: dict[str, Any] = {}
    for part in ("unlabelled", "test"):
        said = [s for f in folders if (s := spoken(f, part))]
        if not said:
            continue
        size = bin_size(len(said[0]["labels"]))
        found[part] = {"images": len(said[0]["labels"]), "n": len(said), "metrics": {}}
        for name in (*METRICS, "confidence"):
            if not all(name in s for s in said):
                continue
            missed = [wrong(s["probabilities"], s["labels"]) for s in said]
            bins = [ranked_bins(1 - m, s[name], size) for m, s in zip(missed, said, strict=True)]
            found[part]["metrics"][name] = {
                "rank correlation": spread(rank_correlation(b) for b in bins),
                "auroc": spread(auroc(m, s[name]) for m, s in zip(missed, said, strict=True)),
            }
    return found


def spoken(folder: RunFolder, part: str) -> Mapping[str, Tensor]:
    run = RunRecord(folder, folder.load_config())
    return run.said if part == "test" else run.said_unlabelled


def spread(values: Iterable[float | None]) -> dict[str, Any] | None:
    there = [v for v in values if v is not None]
    if not there:
        return None
    mean, std = mean_std(there)
    return {"mean": mean, "std": std}


def selection_table(cells: Sequence[Cell], results: Results) -> dict[str, Any]:
    """By arm, at a few moments of the run: the share of targets kept, how right they and all are, what they teach.

    What they teach is the consistency loss, λ included: a target that the student agrees with already adds nothing.
    """
    found: dict[str, Any] = {}
    for arm in dict.fromkeys(c.arm for c in cells):
        runs = [RunRecord(c.folder, c.config) for c in cells if c.arm == arm and c.name in results]
        curves = {
            name: band([curve for r in runs if (curve := r.of_targets("consistency", *keys))])
            for name, keys in (
                ("kept", ("kept", "all")),
                ("selected", ("accuracy", "selected")),
                ("all", ("accuracy", "all")),
            )
        }
        curves["loss"] = band([r.of_losses("consistency") for r in runs])
        epochs = curves["all"]["epoch"]
        if len(epochs):
            found[arm] = {
                "n": len(runs),
                "moments": [moment(curves, max(1, round(share * epochs[-1]))) for share in MOMENTS],
            }
    return found


def moment(curves: Mapping[str, Mapping[str, Any]], epoch: float) -> dict[str, float | None]:
    """Every curve (shares in %) at its epoch nearest to this one; None for one that has none: a filter kept nothing."""
    row: dict[str, float | None] = {"epoch": epoch}
    for name, curve in curves.items():
        away = [abs(e - epoch) for e in curve["epoch"]]
        unit = 1 if name == "loss" else 100
        row[name] = unit * float(curve["mean"][away.index(min(away))]) if away else None
    return row


def rows_of(table: Mapping[str, Any], references: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Heads and cells of a task's table as text."""
    there = [name for name in references if any(name in v["differences"] for v in table["arms"].values())]
    heads = ["", "test error (%)", "n", *(f"difference to {name}" for name in there), "the paper's"]
    rows = []
    for name, v in table["arms"].items():
        differences = [difference_text(v["differences"].get(r, {}).get("difference")) for r in there]
        mark = " (preliminary)" * v["preliminary"]
        paper = "{:.2f} ± {:.2f}".format(*v["printed"]) if v["printed"] else "–"
        rows.append([name, mean_text(v) + mark, str(v["n"]), *differences, paper])
    return heads, rows


def sections(table: Mapping[str, Any], references: Sequence[str]) -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, heads and rows of each table of a task."""
    found = []
    if table.get("uncertainty"):
        found.append(("what each uncertainty is worth", *uncertainty_rows(table["uncertainty"])))
    if table.get("selection"):
        found.append(("how right the selected targets are", *selection_rows(table["selection"])))
    return [*found, ("test errors", *rows_of(table, references))]


def markdown(experiment: Experiment, summary: Mapping[str, Any]) -> str:
    """The whole summary as a page."""
    text = f"# {experiment.name}: {experiment.summary}\n\n{summary['words']}\n"
    for name, table in summary["tasks"].items():
        text += f"\n## {name}\n\n`{table['command']}`\n\n{table['words']}\n"
        for title, heads, rows in sections(table, experiment.references):
            text += f"\n{title[0].upper()}{title[1:]}:\n\n{markdown_table(heads, rows)}"
    return text


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def uncertainty_rows(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    heads = ["images", "uncertainty", "rank correlation with accuracy", "AUROC of finding mistakes", "n"]
    rows = []
    for part, v in found.items():
        for name, worth in v["metrics"].items():
            told = [
                "–" if w is None else f"{w['mean']:.3f}" + (f" ± {w['std']:.3f}" if w["std"] is not None else "")
                for w in (worth["rank correlation"], worth["auroc"])
            ]
            short = name if name == "confidence" else name.upper()
            rows.append([f"{part} ({v['images']:,})", short, *told, str(v["n"]) + " (preliminary)" * (v["n"] < 3)])
    return heads, rows


def selection_rows(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    heads = ["", "epoch", "kept (%)", "selected right (%)", "all right (%)", "consistency loss", "n"]
    rows = []
    for arm, v in found.items():
        mark = " (preliminary)" * (v["n"] < 3)
        for m in v["moments"]:
            told = ["–" if m[key] is None else f"{m[key]:.1f}" for key in ("kept", "selected", "all")]
            rows.append([arm, f"{m['epoch']:.0f}", *told, f"{m['loss']:.3f}", f"{v['n']}{mark}"])
    return heads, rows
