"""The look of every figure that certus draws, and one figure of the report: picture, caption and numbers."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from certus.report.statistics import Array
from certus.report.text_table import csv_text
from certus.writing import put

INK, MUTED, GRID = "#1c2127", "#5d646d", "#e2e5e9"
SERIES = ("#1f6fd1", "#c8362e", "#1a8246", "#8449bf", "#b36100", "#0b7f90", "#a34f80", "#666c75")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":")  # for more lines than colours
STYLE: Any = {
    "text.parse_math": False,  # a name may hold a dollar sign
    "svg.fonttype": "none",
    "svg.hashsalt": "certus",  # else every process has its own ids
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "axes.axisbelow": True,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.fontsize": 9,
}
BAND = "Lines are means over seeds, bands ± one standard deviation."
WIDTH = 5.0  # inches: legible on a telephone, and two figures fit side by side on a desktop screen


@dataclass(frozen=True, eq=False)
class ReportFigure:
    name: str  # of its files
    title: str
    caption: str  # what to look for
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    picture: Figure
    html: str = ""  # shown on the page instead of the picture

    def csv(self) -> str:
        return csv_text(self.columns, self.rows)

    def svg(self) -> str:
        """For the page: colours as CSS variables (light and dark have their own), and unique ids."""
        text = io.StringIO()
        self.picture.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        svg = re.sub(r"<metadata>.*?</metadata>", "", text.getvalue(), flags=re.DOTALL)
        svg = re.sub(r"<style[^>]*>.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL)  # the page has its own
        names = {INK: "ink", MUTED: "muted", GRID: "grid"} | {c: f"s{i}" for i, c in enumerate(SERIES)}
        for colour, name in names.items():
            svg = svg.replace(colour, f"var(--{name})")
        svg = re.sub(r'(\bid="|url\(#|href="#)', lambda m: f"{m[1]}{self.name}-", svg)
        svg = re.sub(r' xmlns(:xlink)?="[^"]*"| version="[^"]*"', "", svg).replace("xlink:href", "href")
        return re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1))

    def save(self, folder: Path) -> None:
        """PNG, SVG and CSV."""
        put_picture(folder / f"{self.name}.png", self.picture, dpi=160)
        put_picture(folder / f"{self.name}.svg", self.picture)
        put(folder / f"{self.name}.csv", self.csv())


def put_picture(path: Path, picture: Figure, dpi: int = 110) -> None:
    """Write a picture as PNG or SVG; the same picture gives the same bytes."""
    kind = path.suffix[1:]
    drawn = io.BytesIO()
    about = {"Date": None} if kind == "svg" else None
    picture.savefig(drawn, format=kind, dpi=dpi, facecolor="white", metadata=about)
    put(path, drawn.getvalue())


def canvas(height: float = 3.3, rows: int = 1, ratios: Sequence[float] | None = None) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    grid = figure.add_gridspec(rows, 1, height_ratios=ratios)
    return figure, [figure.add_subplot(grid[i]) for i in range(rows)]


def look(i: int) -> dict[str, Any]:
    """Colour and dashes of the i-th line."""
    return {"color": SERIES[i % len(SERIES)], "linestyle": DASHES[i // len(SERIES) % len(DASHES)]}


def line(
    axes: Axes,
    curve: Mapping[str, Array],
    label: str,
    style: Mapping[str, Any],
    scale: float = 1.0,
    banded: bool = True,
) -> None:
    """A mean over seeds with its band of ± std; a curve of one epoch is a point."""
    x, mean, std = curve["epoch"], scale * curve["mean"], scale * curve["std"]
    axes.plot(x, mean, label=label, marker="o" if len(x) == 1 else None, **style)
    if banded and (std > 0).any():
        axes.fill_between(x, mean - std, mean + std, color=style["color"], alpha=0.16, linewidth=0)


def by_epoch(*panels: Axes) -> None:
    """The x axis of figures of training."""
    panels[-1].set_xlabel("epoch (passes over the unlabelled images)")
    for axes in panels:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def rows_of(name: str, curve: Mapping[str, Array]) -> list[tuple[Any, ...]]:
    """A band for the CSV: name, epoch, mean, std, n."""
    return [(name, *point) for point in zip(*(curve[k].tolist() for k in ("epoch", "mean", "std", "n")), strict=True)]


def legend(*panels: Axes, columns: int = 0) -> None:
    """Below the figure, which grows by the height of the legend."""
    pairs = [pair for axes in panels for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    found = {label: handle for handle, label in pairs}
    if labels := list(found):
        longest = max(map(len, labels))
        fit = columns or (1 if longest > 30 else 2 if longest > 16 else 3)
        figure = panels[0].get_figure()
        assert isinstance(figure, Figure)
        figure.set_figheight(figure.get_figheight() + 0.19 * (-(-len(labels) // fit) - 1))
        figure.legend(list(found.values()), labels, loc="outside lower center", ncols=min(fit, len(labels)))


def slug(text: str) -> str:
    """A name for files and anchors."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def name_points(axes: Axes, points: Sequence[tuple[str, float, float]]) -> None:
    """Write each point's name beside it, on the first of four sides where it covers no other name."""
    axes.autoscale_view()  # sets the limits, which the texts are placed by
    taken: list[Any] = []
    for name, x, y in points:
        for dx, dy, side in ((5, 4, "left"), (5, -11, "left"), (-5, 4, "right"), (-5, -11, "right")):
            text = axes.annotate(name, (x, y), (dx, dy), textcoords="offset points", fontsize=9, ha=side)
            box = text.get_window_extent()
            if not any(box.overlaps(other) for other in taken) or (side == "right" and dy < 0):
                break
            text.remove()
        taken.append(box)
