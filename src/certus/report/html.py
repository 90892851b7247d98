"""Tables of the report as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from certus.networks import architecture
from certus.report.runs import Arm, value_text
from certus.report.statistics import Comparison
from certus.report.text_table import TextTable

MARK = " (preliminary)"
COLUMNS = ("data", "labels", "label noise", "arm", "measure", "mean", "std", "n", "reference", "difference", "low",
           "high", "p", "error reduction (%)")  # fmt: skip


def table_html(table: TextTable) -> str:
    """Columns after the first are numbers; a preliminary result is marked."""
    side = ["", *[' class="number"'] * (len(table.heads) - 1)]
    heads = [escape(head) for head in table.heads]
    head = "".join(f"<th{s}>{h}</th>" for h, s in zip(heads, side, strict=True))
    body = ""
    for row in table.rows:
        cells = [escape(cell).replace(MARK, ' <span class="mark">preliminary</span>') for cell in row]
        joined = "".join(f'<td{s} data-head="{h}">{c}</td>' for c, h, s in zip(cells, heads, side, strict=True))
        body += f"<tr>{joined}</tr>"
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def comparison_rows(comparison: Comparison) -> list[tuple[Any, ...]]:
    """The numbers of a comparison for its CSV, by `COLUMNS`."""
    task = (comparison.data, comparison.labels, comparison.label_noise)
    found = []
    for row in comparison.rows:
        d = comparison.difference(row.name)
        against = (d.mean, d.low, d.high, d.p, d.reduction) if d else (None,) * 5
        result = (row.name, comparison.measure, row.mean, row.std, row.n, comparison.reference)
        found.append((*task, *result, *against))
    return found


def runs_html(arms: Sequence[Arm]) -> str:
    """Every run: its state, its error and its folder."""
    rows = []
    for arm in arms:
        for run in arm.runs:
            done = run.lines[-1]["step"] if run.lines else 0
            state = "finished" if run.result else f"{done} of {run.config.steps} steps"
            error = "" if run.error is None else f"{run.error:.2f}"
            rows.append((arm.name, str(run.config.seed), state, error, str(run.folder.path)))
    return table_html(TextTable(("method", "seed", "state", "error (%)", "folder"), tuple(rows)))


def settings_html(arm: Arm) -> str:
    """The main settings of an arm, and the options of its method."""
    config = arm.config
    width = "" if architecture(config.network).fixed else f"width {config.width}"
    settings: dict[str, Any] = {
        "data": config.data,
        "labels": config.labels or "all",
        "network": ", ".join(filter(None, (config.network, width, f"dropout {config.dropout:g}"))),
        "batch": f"{config.labelled_batch} + {config.unlabelled_batch}",
        "steps": config.steps,
        "optimiser": f"{config.optimiser}, learning rate {config.learning_rate:g}, {config.precision}",
        **({"learns": f"{config.depth} of the network"} if config.depth != "all" else {}),
        **({"warm-up": f"{100 * config.warm_up:.0f} % of the steps"} if config.warm_up else {}),
        **({"answers": str(config.looks)} if str(config.looks) else {}),
        **({"label noise": f"{config.label_noise:g}"} if config.label_noise else {}),
    }
    options = {name.replace("_", " "): value_text(value) for name, value in config.options.items()}
    return " · ".join(f"{escape(str(k))} <b>{escape(str(v))}</b>" for k, v in (settings | options).items())
