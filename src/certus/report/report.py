"""The report: tables and figures of runs, read from their folders, on one page without outside resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from matplotlib import rc_context

from certus.errors import CertusError, UsageError
from certus.report import answers, curves, targets
from certus.report.comparisons import compare_tasks
from certus.report.figure import STYLE, ReportFigure, slug
from certus.report.html import COLUMNS, comparison_rows, runs_html, settings_html, table_html
from certus.report.page import csv_link, figures_html, page, section, sentence
from certus.report.runs import Arm, arms, find, readable
from certus.report.text_table import csv_text
from certus.report.thumbnails import thumbnails
from certus.writing import put


@dataclass(frozen=True)
class ReportSummary:
    """The number of runs in a report, how many of them are finished, the names of its figures, and by folder the runs
    that could not be read."""

    runs: int
    finished: int
    figures: tuple[str, ...]
    notes: tuple[str, ...]  # what is missing or shown once
    failures: Mapping[Path, CertusError]


def write_report(paths: Sequence[Path], out: Path, folder: Path | None = None) -> ReportSummary:
    """Read the runs in these folders, write the page to `out`, and every figure into `folder`."""
    if out.is_dir():
        raise UsageError(f"`out` must be a file, but {out} is a folder: give the name of the page.")
    found, missing, failures = readable(find(paths))
    if not found:
        raise next(iter(failures.values()))
    grouped, twice = arms(found)
    unread = [f"{path} is left out: {reason}" for path, reason in failures.items()]
    notes = [*twice, *missing, *unread]
    with rc_context(STYLE):
        html, drawn = compose(grouped, notes)
        out.parent.mkdir(parents=True, exist_ok=True)
        put(out, html)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for d in drawn:
                d.save(folder)
    finished = sum(r.result is not None for r in found)
    return ReportSummary(len(found), finished, tuple(d.name for d in drawn), tuple(missing), failures)


def compose(grouped: Sequence[Arm], notes: Sequence[str]) -> tuple[str, list[ReportFigure]]:
    """The page and its figures: first those of all arms together, then those of each arm."""
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
        parts.append(sentence("These runs have recorded nothing yet: make the report after their first epoch."))
    everything, taken = list(shared), {d.name for d in shared}
    for i, arm in enumerate(grouped):
        images, reasons = thumbnails(arm)
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
        text = f'<p class="muted">{settings_html(arm)}</p>' + "".join(map(sentence, [*missing(arm), *reasons]))
        parts.append(section(arm.name, text + figures_html(own), opened=len(grouped) <= 3 or i == len(grouped) - 1))
    runs = f'<details class="small" open><summary>The runs</summary>{runs_html(grouped)}</details>'
    parts.append(runs.replace(" open", "") if sum(len(a.runs) for a in grouped) > 6 else runs)
    return page(title_of(grouped), "".join(parts)), everything


def unique(drawn: Sequence[ReportFigure], taken: set[str] | None = None) -> list[ReportFigure]:
    """With a number added to a name that is taken: two arms may differ only in characters that a file name has not."""
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
    blocks = compare_tasks(grouped)
    found = []
    for i, comparison in enumerate(blocks):
        title = comparison.title if len(blocks) > 1 else comparison.measure.capitalize()
        name = "comparison" if len(blocks) == 1 else f"comparison-{i + 1}"
        table = comparison.table(details=True)
        link = csv_link(name, csv_text(COLUMNS, comparison_rows(comparison)))
        found.append(
            f'<div class="card"><h3>{escape(title)}</h3>{table_html(table)}'
            f'<p class="muted">{escape(table.caption)} {link}</p></div>'
        )
    return found


def labels_text(arm: Arm) -> str:
    """Their number, and the share of random labels."""
    noise = f", {100 * arm.config.label_noise:g} % of them random" * (arm.config.label_noise > 0)
    return f"{arm.config.labels or 'all'} labels{noise}"


def missing(arm: Arm) -> list[str]:
    """Why figures that a reader may expect are not there."""
    notes = []
    if any(r.lines for r in arm.runs) and not any("targets" in li for r in arm.runs for li in r.lines):
        notes.append("These runs were trained without the observer, so targets, filters and time were not recorded.")
    elif any(r.lines for r in arm.runs) and not arm.kinds():
        notes.append(f"{arm.config.method} has no consistency term, and so no targets.")
    elif arm.kinds() and not any(r.of_targets(k, "accuracy", "all") for r in arm.runs for k in arm.kinds()):
        notes.append("No unlabelled image has a known label, so the accuracy of the targets cannot be computed.")
    if not arm.answering:
        notes.append(without_answers(arm))
    return notes


def without_answers(arm: Arm) -> str:
    results = [r.result for r in arm.runs if r.result]
    if not results:
        return "No run has finished yet: the figures of test images come with the end of a run."
    if any(result["test_error"] is not None for result in results):
        return "The answers of these runs were not kept, only their results: there are no figures of test images."
    return "The data set has no test images, so there are no figures of them."
