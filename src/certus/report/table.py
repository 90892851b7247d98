"""The report's tables: what the methods reach, and which runs were read."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Any

from certus.report.runs import Arm, reference, word
from certus.report.statistics import compared, difference_text, mean_text

Rows = list[dict[str, Any]]
COLUMNS = ("data", "labels", "label noise", "arm", "measure", "mean", "std", "n", "reference", "difference", "low",
           "high", "p", "error reduction (%)")  # fmt: skip


def comparisons(arms: Sequence[Arm]) -> list[Rows]:
    """For each task (data, labels, label noise) a row for each arm that has finished a run."""
    blocks = []
    for _, group in groupby(arms, key=lambda a: tuple(map(str, a.task))):
        block = [arm for arm in group if arm.errors]
        if not block:
            continue
        measure = reference(block)
        tested = all((r.result or {}).get("test_error") is not None for a in block for r in a.runs if r.result)
        blocks.append(
            [
                {
                    "arm": arm,
                    "reference": measure.name,
                    "measure": "test error" if tested else "validation error",
                    **compared(arm.errors, None if arm is measure else measure.errors),
                }
                for arm in block
            ]
        )
    return blocks


def numbers_of(rows: Rows) -> list[tuple[Any, ...]]:
    """For the CSV."""
    found = []
    for row in rows:
        d = row.get("difference") or {}
        found.append(
            (
                *row["arm"].task,
                *(row["arm"].name, row["measure"], row["mean"], row["std"], row["n"], row["reference"]),
                *(d.get("mean"), d.get("low"), d.get("high"), row.get("p"), row.get("reduction")),
            )
        )
    return found


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Cells are HTML already; those after the first `left` columns are numbers."""
    side = ["" if i < left else ' class="number"' for i in range(len(heads))]
    head = "".join(f"<th{s}>{h}</th>" for h, s in zip(heads, side, strict=True))
    cells = [[f'<td{s} data-head="{h}">{c}</td>' for c, h, s in zip(r, heads, side, strict=True)] for r in rows]
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def comparison_html(rows: Rows) -> str:
    """Mean ± std, n, and what the difference to the reference is worth."""
    heads = [f"{rows[0]['measure']} (%)", "n"]
    several = len(rows) > 1
    if several:
        heads += ["difference [95 %]", "p", "error reduction"]
    cells = []
    for row in rows:
        mark = ' <span class="mark">preliminary</span>' if row["preliminary"] else ""
        line = [escape(row["arm"].name) + mark, mean_text(row), str(row["n"])]
        if several:
            reduction = row.get("reduction")
            line += [
                difference_text(row.get("difference")).replace("-", "−"),
                p_text(row.get("p")),
                "" if reduction is None else f"{reduction:.1f} %".replace("-", "−"),
            ]
        cells.append(line)
    return html_table(["", *heads], cells)


def p_text(p: float | None) -> str:
    return "" if p is None else "&lt; 0.001" if p < 0.001 else f"{p:.3f}"


def runs_html(arms: Sequence[Arm]) -> str:
    """Every run: how far it is and where it lies."""
    rows = []
    for arm in arms:
        for run in arm.runs:
            done = run.lines[-1]["step"] if run.lines else 0
            state = "finished" if run.result else f"{done} of {run.config.steps} steps"
            error = "" if run.error is None else f"{run.error:.2f}"
            rows.append(
                [escape(arm.name), str(run.config.seed), state, error, f"<code>{escape(str(run.folder.path))}</code>"]
            )
    return html_table(["", "seed", "state", "error (%)", "folder"], rows, left=1)


def settings_html(arm: Arm) -> str:
    """The constants of an arm's method, and the settings around it."""
    config = arm.config
    around: dict[str, Any] = {
        "data": config.data,
        "labels": config.labels or "all",
        "network": f"{config.network}, width {config.width}, dropout {config.dropout:g}",
        "batch": f"{config.labelled_batch} + {config.unlabelled_batch}",
        "steps": config.steps,
        "learning rate": f"{config.learning_rate:g}",
        **({"label noise": f"{config.label_noise:g}"} if config.label_noise else {}),
    }
    options = {name.replace("_", " "): word(value) for name, value in config.options.items()}
    return " · ".join(f"{escape(str(k))} <b>{escape(str(v))}</b>" for k, v in (around | options).items())
