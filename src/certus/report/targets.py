"""Figures of the targets during training, from metrics.jsonl: accuracy, number, classes and uncertainty."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from certus.report.figure import BAND, INK, SERIES, ReportFigure, by_epoch, canvas, legend, line, look, rows_of, slug
from certus.report.runs import Arm, kind_of
from certus.report.statistics import band
from certus.training.observer import QUANTILES

NAMES = {"TopK": "hard filter", "Probabilistic": "probabilistic filter", "Threshold": "threshold", "source": "source"}
MANY = 10  # with more classes than this, not every class has its own line


def selected(arm: Arm) -> Iterable[ReportFigure]:
    """The paper's figure: the accuracy of the selected targets, and of all targets."""
    for kind in arm.kinds():
        figure, (axes,) = canvas()
        rows: list[tuple[Any, ...]] = []
        chosen = filtered(arm, kind)
        for i, which in enumerate(("selected", "all")):
            curves = [c for run in arm.runs if (c := run.of_targets(kind, "accuracy", which))]
            if curves and (chosen or which == "all"):
                mean = band(curves)
                style = {"color": SERIES[(0, 4)[i]], "linestyle": ("-", "--")[i]}
                line(axes, mean, f"{which} targets", style, 100)
                rows += [(*row[:2], 100 * row[2], 100 * row[3], row[4]) for row in rows_of(which, mean)]
        by_epoch(axes)
        axes.set_ylabel("accuracy of targets (%)")
        legend(axes)
        if rows:
            yield ReportFigure(
                f"{slug(arm.name)}-{slug(kind)}-targets",
                f"Accuracy of the targets ({kind})",
                "On unlabelled images, whose labels are read only for this figure. The higher the selected targets are "
                "above all targets, the better the filter. Where the curves meet, nothing is filtered out, or "
                f"certainty does not separate right from wrong. {BAND}" + " Here every target is used." * (not chosen),
                ("targets", "epoch", "mean", "std", "n"),
                rows,
                figure,
            )


def filtered(arm: Arm, kind: str) -> bool:
    """Whether any target of this kind was left out."""
    return any(share < 1 for run in arm.runs for share in run.of_targets(kind, "kept", "all").values())


def filters(arm: Arm) -> Iterable[ReportFigure]:
    """k/|B|, P_max, V_max, and the shares that the filters kept."""
    for kind in arm.kinds():
        wanted: dict[str, list[dict[int, float]]] = {}
        for run in arm.runs:
            k = run.of_schedule(kind, "k")
            batch = {li["epoch"]: li["batch"] for li in run.lines if "batch" in li}
            wanted.setdefault("k/|B|, at most 1", []).append({e: min(1.0, k[e] / batch[e]) for e in k})
            wanted.setdefault("P_max", []).append(run.of_schedule(kind, "p_max"))
            for name in dict.fromkeys(n for li in run.lines for n in kept_names(li, kind)):
                label = "kept by all filters" if name == "all" else f"kept by the {NAMES.get(name, name)}"
                wanted.setdefault(label, []).append(run.of_targets(kind, "kept", name))
        shares = {name: band([c for c in cs if c]) for name, cs in wanted.items() if any(cs)}
        shares = {n: c for n, c in shares.items() if not n.startswith("kept by the") or (c["mean"] < 1).any()}
        if not any(n.startswith("kept by the") for n in shares) and "P_max" not in shares:
            shares = {}
        heat = [c for run in arm.runs if (c := run.of_schedule(kind, "v_max"))]
        if not shares and not heat:
            continue
        panels = bool(shares) + bool(heat)
        figure, axes = canvas(3.8 if panels == 2 else 3.0, panels, [2, 1] if panels == 2 else None)
        rows: list[tuple[Any, ...]] = []
        for i, (name, curve) in enumerate(shares.items()):
            line(axes[0], curve, name, {"color": SERIES[i % len(SERIES)], "linestyle": "-" if "kept" in name else "--"})
            rows += rows_of(name, curve)
        if shares:
            axes[0].set_ylabel("share")
            axes[0].set_ylim(0, 1.05)
            legend(axes[0], columns=2)
        if heat:
            curve = band(heat)
            line(axes[-1], curve, "V_max", {"color": SERIES[3], "linestyle": "-"})
            axes[-1].set_ylabel("V_max")
            rows += rows_of("V_max", curve)
        by_epoch(*axes)
        yield ReportFigure(
            f"{slug(arm.name)}-{slug(kind)}-filter",
            f"Filter and temperature over time ({kind})",
            "Dashed: the schedules. Solid: the share that each filter kept of the targets that reached it, and the "
            "share of the batch that all filters kept. V_max is the heat of the least certain target.",
            ("quantity", "epoch", "mean", "std", "n"),
            rows,
            figure,
        )


def kept_names(li: dict[str, Any], kind: str) -> list[str]:
    return [n for name, t in li.get("targets", {}).items() if kind_of(name) == kind for n in t["kept"]]


def classes(arm: Arm) -> Iterable[ReportFigure]:
    """The classes of the selected targets; of many classes only the rarest, the median and the most frequent."""
    for kind in arm.kinds():
        runs = [shares for run in arm.runs if (shares := run.class_shares(kind))]
        if not runs:
            continue
        count = len(next(iter(runs[0].values())))
        names = arm.runs[0].class_names(count)
        each = {name: [{e: 100 * s[c] for e, s in run.items()} for run in runs] for c, name in enumerate(names)}
        if count > MANY:
            each = {
                name: [{e: 100 * of(s) for e, s in run.items()} for run in runs]
                for name, of in (("most frequent class", max), ("median class", median), ("rarest class", min))
            }
        curves = {name: band(mine) for name, mine in each.items()}
        figure, (axes,) = canvas(3.6)
        for i, (name, curve) in enumerate(curves.items()):
            style = look(i) if count <= MANY else {"color": SERIES[0], "linestyle": (":", "-", "-.")[i]}
            line(axes, curve, name, style, banded=False)  # bands would hide the lines
        if count > MANY:
            top, _, low = curves.values()
            axes.fill_between(top["epoch"], low["mean"], top["mean"], color=SERIES[0], alpha=0.16, linewidth=0)
        axes.axhline(100 / count, color=INK, linewidth=1, linestyle="--", label="even share")
        by_epoch(axes)
        axes.set_ylabel("share of the selected targets (%)")
        axes.set_ylim(bottom=0)
        legend(axes)
        note = " Each seed has its own rarest and most frequent class at each epoch." * (count > MANY)
        note += " Here every target is used." * (not filtered(arm, kind))
        yield ReportFigure(
            f"{slug(arm.name)}-{slug(kind)}-classes",
            f"Classes of the targets ({kind})",
            "The share of each class among the selected targets of unlabelled images, the mean over seeds. A class "
            "far below the dashed even share is starved, by the filter or by a teacher that rarely predicts it; a "
            "class far above is favoured. If the classes of the data are uneven, right targets are uneven too, and "
            f"the dashed line does not apply.{note}",
            ("class", "epoch", "mean", "std", "n"),
            [row for name, curve in curves.items() for row in rows_of(name, curve)],
            figure,
        )


def uncertainty(arm: Arm) -> Iterable[ReportFigure]:
    """Median and quartiles of the targets' uncertainty, labelled and unlabelled, as means over seeds."""
    for kind in arm.kinds():
        rows: list[tuple[Any, ...]] = []
        figure, (axes,) = canvas()
        for part, colour, dashes in (("labelled", SERIES[2], "--"), ("unlabelled", SERIES[0], "-")):
            quantities = {"mean": ("mean",), **{f"q{100 * q:02.0f}": ("quantiles", i) for i, q in enumerate(QUANTILES)}}
            for name, keys in quantities.items():
                seeds = [c for run in arm.runs if (c := run.of_targets(kind, "uncertainty", part, *keys))]
                if not seeds:
                    continue
                curve = band(seeds)
                rows += [(part, *row) for row in rows_of(name, curve)]
                if name == "q50":
                    line(axes, curve, f"{part}: median", {"color": colour, "linestyle": dashes})
                elif name in ("q25", "q75"):
                    style = {"color": colour, "linestyle": ":", "linewidth": 1.1}
                    line(axes, curve, "", style, banded=False)
        by_epoch(axes)
        axes.set_ylabel("uncertainty")
        axes.set_ylim(bottom=0)
        legend(axes)
        if rows:
            yield ReportFigure(
                f"{slug(arm.name)}-{slug(kind)}-uncertainty",
                f"Uncertainty of the targets ({kind})",
                "Median over the images of an epoch, dotted the quartiles (the CSV also has the mean and the 5 % and "
                "95 % quantiles). As the teacher learns, both medians should fall, that of the labelled images first. "
                f"With several students, their mean. {BAND}",
                ("images", "quantity", "epoch", "mean", "std", "n"),
                rows,
                figure,
            )
