"""The picture of a comparison: errors by seed, learning curves, error by certainty, certain and uncertain images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from certus.data import Dataset
from certus.report.answers import draw_coverage
from certus.report.curves import draw_learning
from certus.report.figure import GRID, INK, MUTED, SERIES, STYLE, look, put_picture
from certus.report.pixels import as_rgb
from certus.report.runs import Arm, RunRecord
from certus.report.statistics import Comparison
from certus.report.text_table import spread_text
from certus.report.thumbnails import test_images
from certus.text import printable

RIGHT, WRONG = SERIES[2], SERIES[1]
TITLE: Any = {"fontsize": 12}
IMAGES = 20  # in a row


def draw_comparison(comparison: Comparison, arms: Sequence[Arm], path: Path) -> None:
    """Write the picture as PNG; `arms` are the runs of the rows that have results, in the same order."""
    shown = [arm for arm in arms if arm.answering]
    best = next((arm for arm in reversed(shown) if arm.name != comparison.reference), shown[0] if shown else None)
    data = test_images(best.answering[0]) if best else "No run has answered test images."
    with rc_context(STYLE):
        pictures = isinstance(data, Dataset)
        figure = Figure(figsize=(13, 7.0 if pictures else 4.4), layout="constrained")
        grid = figure.add_gridspec(3 if pictures else 1, 3, height_ratios=[4.4, 1, 1] if pictures else [1])
        errors, learning, coverage = (figure.add_subplot(grid[0, i]) for i in range(3))
        draw_errors(errors, comparison)
        errors.set_title(f"{comparison.measure.capitalize()}: each seed, mean ± std", **TITLE)
        if draw_learning(learning, arms):
            learning.legend()
        learning.set_title("While training: mean, band ± std over seeds", **TITLE)
        draw_coverage(coverage, arms)
        coverage.set_title("Error among the most certain answers", **TITLE)
        if best and isinstance(data, Dataset):
            draw_images(figure, grid, data, best.answering[0], best.name)
        n = max(row.n for row in comparison.rows)
        labels = f"{comparison.labels or 'all'} labels"
        title = f"{comparison.data}: {labels}, {n} seed{'s' * (n != 1)}"
        figure.suptitle(title, fontsize=13, weight="bold")
        put_picture(path, figure)


def draw_errors(axes: Axes, comparison: Comparison) -> None:
    """Each row's seeds, mean and std. A thin line joins the errors of one seed: the comparison is paired."""
    rows = [row for row in comparison.rows if row.errors]
    for seed in sorted({seed for row in rows for seed in row.errors}):
        values = [row.errors.get(seed, float("nan")) for row in rows]
        axes.plot(range(len(rows)), values, color=MUTED, alpha=0.35, linewidth=1, zorder=1)
    for x, row in enumerate(rows):
        colour = look(x)["color"]
        axes.scatter([x] * row.n, list(row.errors.values()), s=18, color=colour, alpha=0.6, zorder=2)
        axes.errorbar(x + 0.12, row.mean or 0.0, row.std or 0.0, fmt="o", color=colour, capsize=4, zorder=3)
        text = spread_text(row.mean, None, 1)
        axes.annotate(text, (x + 0.12, row.mean or 0.0), (8, 0), textcoords="offset points", va="center")
    axes.set_xticks(range(len(rows)), [row.name for row in rows])
    if len(rows) > 3:
        axes.tick_params(axis="x", labelrotation=20)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
    axes.grid(axis="x", visible=False)
    axes.set_xlim(-0.4, len(rows) - 0.4)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"{comparison.measure} (%)")


def draw_images(figure: Figure, grid: Any, data: Dataset, run: RunRecord, name: str) -> None:
    """The test images that a run is most and least certain of, with its answers: green if right, red if wrong."""
    answers = run.answers["probabilities"].argmax(1)
    order = run.answers[run.metric].argsort(stable=True)
    rows = ((1, order[:IMAGES], "most certain"), (2, order.flip(0)[:IMAGES], "least certain"))
    for row, indices, title in rows:
        area = grid[row, :].subgridspec(1, len(indices))
        for column, index in enumerate(indices.tolist()):
            axes = figure.add_subplot(area[0, column])
            axes.imshow(as_rgb(data.test.images[index].permute(1, 2, 0).numpy()))
            colour = RIGHT if answers[index] == run.answers["labels"][index] else WRONG
            axes.set_title(printable(data.classes[answers[index]]), fontsize=11, color=colour, weight="bold", pad=3)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(True)
            axes.spines[:].set_color(GRID)
            if column == 0:
                axes.set_ylabel(f"{name}\n{title}", fontsize=9, rotation=0, ha="right", va="center", color=INK)
