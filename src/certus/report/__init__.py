"""Evidence: the paper's tables and figures, from run folders alone, on one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from matplotlib import rc_context

from certus.errors import UsageError
from certus.report import answers, curves, targets
from certus.report.figure import STYLE, ReportFigure, slug
from certus.report.page import csv_link, figures_html, page, section, sentence
from certus.report.runs import Arm, arms, find
from certus.report.table import (
    COLUMNS,
    Rows,
    comparison_html,
    comparisons,
    numbers_of,
    runs_html,
    settings_html,
)
from certus.report.thumbnails import thumbnails
from certus.training.run_folder import put


@dataclass(frozen=True, eq=False)
class Written:
    """What a report was made of."""

    runs: int
    finished: int
    figures: tuple[str, ...]


def write(paths: Sequence[Path], out: Path, folder: Path | None = None) -> Written:
    """Read the runs in these folders, write the page to `out`, and every figure into `folder`."""
    if out.is_dir():
        raise UsageError(f"{out} is a folder: give --out the name of a file.")
    found = find(paths)
    grouped, notes = arms(found)
    with rc_context(STYLE):
        html, drawn = compose(grouped, notes)
        out.parent.mkdir(parents=True, exist_ok=True)
        put(out, html)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for d in drawn:
                d.save(folder)
    return Written(len(found), sum(r.result is not None for r in found), tuple(d.name for d in drawn))


def compose(grouped: Sequence[Arm], notes: Sequence[str]) -> tuple[str, list[ReportFigure]]:
    """The page and its figures: first what all have in common, then arm by arm."""
    shared = unique(
        [
            *curves.learning(grouped),
            *answers.coverage(grouped),
            *answers.calibration(grouped),
            *curves.noise(grouped),
            *curves.losses(grouped),
            *curves.times(grouped),
        ]
    )
    parts = [head(grouped), *map(sentence, notes), *tables(grouped), figures_html(shared)]
    if not shared:
        parts.append(sentence("Nothing has been written by these runs yet: come back after their first epoch."))
    everything, taken = list(shared), {d.name for d in shared}
    for i, arm in enumerate(grouped):
        images, why = thumbnails(arm)
        own = unique(
            [
                *targets.selected(arm),
                *targets.filters(arm),
                *targets.classes(arm),
                *targets.uncertainty(arm),
                *answers.bins(arm),
                *answers.class_certainty(arm),
                *answers.confusions(arm),
                *images,
            ],
            taken,
        )
        taken |= {d.name for d in own}
        everything += own
        told = f'<p class="muted">{settings_html(arm)}</p>' + "".join(map(sentence, [*missing(arm), *why]))
        parts.append(section(arm.name, told + figures_html(own), opened=len(grouped) <= 3 or i == len(grouped) - 1))
    runs = f'<details class="small" open><summary>The runs</summary>{runs_html(grouped)}</details>'
    parts.append(runs.replace(" open", "") if sum(len(a.runs) for a in grouped) > 6 else runs)
    return page(title_of(grouped), "".join(parts)), everything


def unique(drawn: Sequence[ReportFigure], taken: set[str] | None = None) -> list[ReportFigure]:
    """No two figures have the same name, even where two arms' names differ in signs alone."""
    used, found = set(taken or ()), []
    for d in drawn:
        name, n = d.name, 2
        while name in used:
            name, n = f"{d.name}-{n}", n + 1
        used.add(name)
        found.append(ReportFigure(name, d.title, d.caption, d.columns, d.rows, d.picture, d.html))
    return found


def title_of(grouped: Sequence[Arm]) -> str:
    data = ", ".join(dict.fromkeys(Path(a.config.data).name for a in grouped))
    methods = list(dict.fromkeys(a.config.method for a in grouped))
    return f"{data}: {', '.join(methods) if len(methods) <= 4 else f'{len(methods)} methods'}"


def head(grouped: Sequence[Arm]) -> str:
    runs = [r for a in grouped for r in a.runs]
    done = sum(r.result is not None for r in runs)
    labels = "; ".join(dict.fromkeys(labels_text(a) for a in grouped))
    state = f"{len(runs)} run{'s' * (len(runs) != 1)}, " + ("all finished" if done == len(runs) else f"{done} finished")
    links = "".join(f'<a href="#{slug(a.name)}">{escape(a.name)}</a>' for a in grouped)
    return f'<h1>{escape(title_of(grouped))}</h1><p class="muted">{escape(labels)} · {state}</p>' + (
        f"<nav>{links}</nav>" if len(grouped) > 1 else ""
    )


def tables(grouped: Sequence[Arm]) -> list[str]:
    """The comparison of each task."""
    blocks = comparisons(grouped)
    found = []
    for i, rows in enumerate(blocks):
        several = f" ({task_text(rows[0]['arm'])})" if len(blocks) > 1 else ""
        title = f"{rows[0]['measure'].capitalize()}{several}"
        name = "comparison" if len(blocks) == 1 else f"comparison-{i + 1}"
        found.append(
            f'<div class="card"><h3>{escape(title)}</h3>{comparison_html(rows)}'
            f'<p class="muted">{escape(table_caption(rows))} {csv_link(name, csv_of(rows))}</p></div>'
        )
    return found


def task_text(arm: Arm) -> str:
    return f"{Path(arm.config.data).name}, {labels_text(arm)}"


def labels_text(arm: Arm) -> str:
    """How many, and how many of them were spoilt."""
    noise = f", {100 * arm.config.label_noise:g} % of them random" * (arm.config.label_noise > 0)
    return f"{arm.config.labels or 'all'} labels{noise}"


def table_caption(rows: Rows) -> str:
    said = "Mean ± standard deviation over seeds, each with its own labels; of several teachers, the mean of theirs."
    if len(rows) > 1:
        said += (
            f" Differences to {rows[0]['reference']} are paired by seed (same labels), with a 95 % interval and the p "
            "of the paired t-test; error reduction is the share of its errors that are gone."
        )
    if any(row["preliminary"] for row in rows):
        said += " Preliminary: fewer than three seeds, which say little."
    return said


def csv_of(rows: Rows) -> str:
    from matplotlib.figure import Figure

    return ReportFigure("comparison", "", "", COLUMNS, numbers_of(rows), Figure()).csv()


def missing(arm: Arm) -> list[str]:
    """What a reader may look for in vain, and why."""
    said = []
    if any(r.lines for r in arm.runs) and not any("targets" in li for r in arm.runs for li in r.lines):
        said.append("These runs were trained without the observer: there is nothing on targets, filters and time.")
    elif any(r.lines for r in arm.runs) and not arm.kinds():
        said.append(f"{arm.config.method} has no consistency term, and so no targets to watch.")
    elif arm.kinds() and not any(r.of_targets(k, "accuracy", "all") for r in arm.runs for k in arm.kinds()):
        said.append("Nobody knows the labels of the unlabelled images, so how right the targets are cannot be told.")
    if not arm.answering:
        said.append(without_answers(arm))
    return said


def without_answers(arm: Arm) -> str:
    done = [r.result for r in arm.runs if r.result]
    if not done:
        return "No run has finished yet: what is read from test images comes then."
    if any(result["test_error"] is not None for result in done):
        return "Of these runs only the results were kept, not their answers: there is nothing on single test images."
    return "There are no test images, and so nothing on single answers."


__all__ = ["Written", "write"]
