"""Pictures of what came out, drawn from run folders alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from safetensors.torch import load_file

from certus.certainty.metrics import unconfidence
from certus.certainty.scores import risk_coverage
from certus.data import Dataset
from certus.training.run_folder import RunFolder

COLOURS = ("#7f7f7f", "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b")
RIGHT, WRONG = "#2ca02c", "#d62728"


def comparison(summary: Mapping[str, Any], runs: Mapping[str, Sequence[RunFolder]], data: Dataset, path: Path) -> None:
    """Errors by seed, validation error over training, error among the most certain answers; sure and unsure images."""
    best = min(
        (m for m in runs if runs[m] and runs[m][0].predictions.is_file()),
        key=lambda m: (m == summary["reference"], list(runs).index(m) * -1),
        default=None,
    )
    pictures = best is not None and len(data.shape) == 3
    figure = Figure(figsize=(13, 7.2 if pictures else 4.4), layout="constrained")
    grid = figure.add_gridspec(3 if pictures else 1, 3, height_ratios=[4.4, 1, 1] if pictures else [1])
    colours = {m: COLOURS[i % len(COLOURS)] for i, m in enumerate(runs)}
    draw_errors(figure.add_subplot(grid[0, 0]), summary, colours)
    draw_curves(figure.add_subplot(grid[0, 1]), runs, colours)
    draw_coverage(figure.add_subplot(grid[0, 2]), runs, colours)
    if pictures and best is not None:
        draw_images(figure, grid, data, runs[best][0], best)
    n = max(v["n"] for v in summary["methods"].values())
    figure.suptitle(
        f"{summary['data']}: {summary['labels']} labels, {n} seed{'s' * (n != 1)}", fontsize=13, weight="bold"
    )
    figure.savefig(path, dpi=110)


def draw_errors(axes: Axes, summary: Mapping[str, Any], colours: Mapping[str, str]) -> None:
    """Every seed a thin line across the methods: the comparison is paired."""
    names = [m for m, v in summary["methods"].items() if v["n"]]
    seeds = sorted({s for m in names for s in summary["methods"][m]["test_error"]}, key=int)
    for seed in seeds:
        values = [summary["methods"][m]["test_error"].get(seed, np.nan) for m in names]
        axes.plot(range(len(names)), values, "-", color="#cccccc", linewidth=1, zorder=1)
    for i, m in enumerate(names):
        v = summary["methods"][m]
        axes.scatter([i] * v["n"], v["test_error"].values(), s=18, color=colours[m], alpha=0.6, zorder=2)
        axes.errorbar(i + 0.12, v["mean"], v["std"] or 0, fmt="o", color=colours[m], capsize=4, zorder=3)
        axes.annotate(f"{v['mean']:.1f}", (i + 0.12, v["mean"]), (8, 0), textcoords="offset points", va="center")
    axes.set_xticks(range(len(names)), names, rotation=20 if len(names) > 3 else 0)
    axes.set_xlim(-0.4, len(names) - 0.4)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("test error (%)")
    axes.set_title("Test error: each seed, mean ± std")
    tidy(axes)


def draw_curves(axes: Axes, runs: Mapping[str, Sequence[RunFolder]], colours: Mapping[str, str]) -> None:
    for method, folders in runs.items():
        curves = [
            [(r["epoch"], r["validation_error"]) for r in f.load_metrics() if r["validation_error"] is not None]
            for f in folders
        ]
        curves = [c for c in curves if c]
        if not curves:
            continue
        length = min(map(len, curves))
        epochs = [e for e, _ in curves[0][:length]]
        values = np.array([[v for _, v in c[:length]] for c in curves])
        mean, std = values.mean(0), values.std(0)
        axes.plot(epochs, mean, color=colours[method], label=method)
        axes.fill_between(epochs, mean - std, mean + std, color=colours[method], alpha=0.15, linewidth=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("epoch (passes over the unlabelled images)")
    axes.set_ylabel("validation error (%)")
    axes.set_title("While training: mean, band ± std over seeds")
    if axes.lines:
        axes.legend(frameon=False)
    tidy(axes)


def draw_coverage(axes: Axes, runs: Mapping[str, Sequence[RunFolder]], colours: Mapping[str, str]) -> None:
    """The error among the most certain x % of the test images, ranked by predictive entropy of ten draws."""
    share = np.linspace(0.02, 1, 50)
    for method, folders in runs.items():
        curves = []
        for folder in folders:
            if not folder.predictions.is_file():
                continue
            said = load_file(folder.predictions)
            if "pe" in said:
                curves.append(risk_coverage(said["probabilities"][0], said["labels"], said["pe"], share.tolist()))
        if curves:
            axes.plot(100 * share, np.mean(curves, 0), color=colours[method], label=method)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("answered, most certain first (% of test images)")
    axes.set_ylabel("error among the answered (%)")
    axes.set_title("What certainty is worth")
    if axes.lines:
        axes.legend(frameon=False)
    tidy(axes)


def draw_images(figure: Figure, grid: Any, data: Dataset, folder: RunFolder, method: str) -> None:
    """The test images that a run is most and least sure of, with its answers, in green where right."""
    said = load_file(folder.predictions)
    answers = said["probabilities"][0].argmax(1)
    uncertainty = said["pe"] if "pe" in said else unconfidence(said["probabilities"][0])
    order = uncertainty.argsort(stable=True)
    rows = ((1, order[:20], "most certain"), (2, order.flip(0)[:20], "least certain"))
    for row, places, title in rows:
        area = grid[row, :].subgridspec(1, len(places))
        for column, place in enumerate(places.tolist()):
            axes = figure.add_subplot(area[0, column])
            image = data.test.images[place].permute(1, 2, 0).numpy()
            axes.imshow(image.squeeze(), cmap="gray_r" if image.shape[2] == 1 else None)
            right = answers[place] == said["labels"][place]
            axes.set_title(
                data.classes[answers[place]],
                fontsize=11,
                color=RIGHT if right else WRONG,
                weight="bold",
                pad=3,
            )
            axes.set_xticks([])
            axes.set_yticks([])
            if column == 0:
                axes.set_ylabel(f"{method}\n{title}", fontsize=9, rotation=0, ha="right", va="center")


def tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#eeeeee")
    axes.set_axisbelow(True)
