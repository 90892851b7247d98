"""Figures of what happened while training, from metrics.jsonl: errors, losses, targets, filters, certainty, time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes

from certus.report.figure import MUTED, SERIES, Drawn, canvas, legend, line, look, slug
from certus.report.numbers import band
from certus.report.runs import Arm, Seen, dig, kind_of

EPOCH = "epoch (passes over the unlabelled images)"
BAND = "Lines are means over seeds, bands ± one standard deviation."
PHASES = ("batch", "views", "losses", "backward", "optimiser", "followers", "observing", "validation", "saving")
NAMES = {"TopK": "hard filter", "Probabilistic": "probabilistic filter", "Threshold": "threshold", "source": "source"}


def rows_of(name: str, curve: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(name, *point) for point in zip(*(curve[k].tolist() for k in ("epoch", "mean", "std", "n")), strict=True)]


def draw_errors(axes: Axes, arms: Sequence[Arm], names: Sequence[str]) -> list[tuple[Any, ...]]:
    rows = []
    for i, (arm, name) in enumerate(zip(arms, names, strict=True)):
        curves = [c for run in arm.runs if (c := run.curve("validation_error"))]
        if curves:
            mean = band(curves)
            line(axes, mean, name, look(i))
            rows += rows_of(arm.name, mean)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("validation error (%)")
    return rows


def learning(arms: Sequence[Arm]) -> Iterable[Drawn]:
    figure, (axes,) = canvas()
    rows = draw_errors(axes, arms, [a.name for a in arms])
    axes.set_xlabel(EPOCH)
    legend(axes)
    if rows:
        yield Drawn(
            "learning-curves",
            "Validation error while training",
            f"Lower is better; a curve that turns up again has begun to overfit. {BAND} Nothing is chosen by it.",
            ("arm", "epoch", "mean", "std", "n"),
            rows,
            figure,
        )


def losses(arms: Sequence[Arm]) -> Iterable[Drawn]:
    """A panel for each kind of term."""
    kinds = list(dict.fromkeys(kind_of(t) for a in arms for r in a.runs for li in r.lines[-1:] for t in li["losses"]))
    if not kinds:
        return
    figure, panels = canvas(1.0 + 1.9 * len(kinds), len(kinds))
    rows: list[tuple[Any, ...]] = []
    for kind, axes in zip(kinds, panels, strict=True):
        for i, arm in enumerate(arms):
            curves = [c for run in arm.runs if (c := loss_curve(run, kind))]
            if curves:
                mean = band(curves)
                line(axes, mean, arm.name, look(i))
                rows += [(kind, *row) for row in rows_of(arm.name, mean)]
        axes.set_title(kind, loc="left")
        axes.set_ylim(bottom=0)
    panels[-1].set_xlabel(EPOCH)
    legend(*panels)
    yield Drawn(
        "losses",
        "Losses by term",
        "Each term as it enters the sum, its weight λ included, so a consistency loss that rises at first is λ's ramp. "
        f"Of several students, their mean. {BAND}",
        ("term", "arm", "epoch", "mean", "std", "n"),
        rows,
        figure,
    )


def loss_curve(run: Seen, kind: str) -> dict[int, float]:
    found = {}
    for li in run.lines:
        if values := [v for name, v in li["losses"].items() if kind_of(name) == kind]:
            found[li["epoch"]] = fmean(values)
    return found


def noise(arms: Sequence[Arm]) -> Iterable[Drawn]:
    """A panel for each share of wrong labels, where runs differ in it."""
    levels = sorted({arm.config.label_noise for arm in arms})
    if len(levels) < 2:
        return
    methods = list(dict.fromkeys(arm.name.replace(f", label noise {a_noise(arm)}", "") for arm in arms))
    figure, panels = canvas(1.0 + 2.1 * len(levels), len(levels))
    rows: list[tuple[Any, ...]] = []
    for level, axes in zip(levels, panels, strict=True):
        for arm in (a for a in arms if a.config.label_noise == level):
            name = arm.name.replace(f", label noise {a_noise(arm)}", "")
            curves = [c for run in arm.runs if (c := run.curve("validation_error"))]
            if curves:
                mean = band(curves)
                line(axes, mean, name, look(methods.index(name)))
                rows += [(level, *row) for row in rows_of(name, mean)]
        axes.set_title(f"{100 * level:g} % of the labels replaced by random ones", loc="left")
        axes.set_ylabel("validation error (%)")
        axes.set_ylim(bottom=0)
    panels[-1].set_xlabel(EPOCH)
    legend(*panels)
    if rows:
        yield Drawn(
            "label-noise",
            "Under wrong labels",
            "A method that learns the wrong labels by heart gets worse again towards the end; one that resists stays "
            f"down. The validation labels are right ones. {BAND}",
            ("label noise", "arm", "epoch", "mean", "std", "n"),
            rows,
            figure,
        )


def a_noise(arm: Arm) -> str:
    return f"{arm.config.label_noise:g}"


def selected(arm: Arm) -> Iterable[Drawn]:
    """The paper's figure: how right the selected targets are, and all targets."""
    for kind in arm.kinds():
        figure, (axes,) = canvas()
        rows: list[tuple[Any, ...]] = []
        chosen = any(share < 1 for run in arm.runs for share in run.of_targets(kind, "kept", "all").values())
        for i, which in enumerate(("selected", "all")):
            curves = [c for run in arm.runs if (c := run.of_targets(kind, "accuracy", which))]
            if curves and (chosen or which == "all"):
                mean = band(curves)
                style = {"color": SERIES[(0, 4)[i]], "linestyle": ("-", "--")[i]}
                line(axes, mean, f"{which} targets", style, 100)
                rows += [(*row[:2], 100 * row[2], 100 * row[3], row[4]) for row in rows_of(which, mean)]
        axes.set_xlabel(EPOCH)
        axes.set_ylabel("accuracy of targets (%)")
        legend(axes)
        if rows:
            yield Drawn(
                f"{slug(arm.name)}-{slug(kind)}-targets",
                f"How right the targets are ({kind})",
                "Of unlabelled images, whose labels only this observer reads. The further the selected targets stand "
                "above all, the better the filter; where the curves meet, nothing is filtered out, or certainty does "
                f"not tell right from wrong. {BAND}" + " Here every target is taught." * (not chosen),
                ("targets", "epoch", "mean", "std", "n"),
                rows,
                figure,
            )


def filters(arm: Arm) -> Iterable[Drawn]:
    """k/|B|, P_max, V_max, and what the filters kept."""
    for kind in arm.kinds():
        wanted: dict[str, list[dict[int, float]]] = {}
        for run in arm.runs:
            k = run.of_schedule(kind, "k")
            batch = {li["epoch"]: li["batch"] for li in run.lines if "batch" in li}
            wanted.setdefault("k/|B|, at most 1", []).append({e: min(1.0, k[e] / batch[e]) for e in k})
            wanted.setdefault("P_max", []).append(run.of_schedule(kind, "p_max"))
            for name in dict.fromkeys(n for li in run.lines for n in kept_names(li, kind)):
                told = "kept in the end" if name == "all" else f"kept by the {NAMES.get(name, name)}"
                wanted.setdefault(told, []).append(run.of_targets(kind, "kept", name))
        shares = {name: band([c for c in cs if c]) for name, cs in wanted.items() if any(cs)}
        shares = {n: c for n, c in shares.items() if not n.startswith("kept by") or (c["mean"] < 1).any()}
        if not any(n.startswith("kept by") for n in shares) and "P_max" not in shares:
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
        axes[-1].set_xlabel(EPOCH)
        yield Drawn(
            f"{slug(arm.name)}-{slug(kind)}-filter",
            f"Filter and temperature over time ({kind})",
            "Dashed: what the schedule says. Solid: which share of the targets that reached a filter it kept, and "
            "which share of the batch was taught in the end. V_max is the heat of the least certain target.",
            ("quantity", "epoch", "mean", "std", "n"),
            rows,
            figure,
        )


def kept_names(li: dict[str, Any], kind: str) -> list[str]:
    return [n for name, t in li.get("targets", {}).items() if kind_of(name) == kind for n in t["kept"]]


def uncertainty(arm: Arm) -> Iterable[Drawn]:
    """Median and spread of the targets' uncertainty, labelled and unlabelled, of the first seed's first such term."""
    for run in arm.runs[:1]:
        for term in run.terms()[:1]:
            points = [(li["epoch"], dig(li, ("targets", term, "uncertainty")) or {}) for li in run.lines]
            rows = [
                (part, epoch, u[part]["mean"], *u[part]["quantiles"])
                for part in ("labelled", "unlabelled")
                for epoch, u in points
                if u.get(part)
            ]
            if not rows:
                return
            figure, (axes,) = canvas()
            for i, part in enumerate(("labelled", "unlabelled")):
                mine = [r for r in rows if r[0] == part]
                x, colour = [r[1] for r in mine], SERIES[(2, 0)[i]]
                axes.plot(x, [r[5] for r in mine], label=f"{part}: median", color=colour, linestyle=("--", "-")[i])
                axes.fill_between(x, [r[4] for r in mine], [r[6] for r in mine], color=colour, alpha=0.18, lw=0)
            axes.set_xlabel(EPOCH)
            axes.set_ylabel("uncertainty")
            axes.set_ylim(bottom=0)
            legend(axes)
            yield Drawn(
                f"{slug(arm.name)}-uncertainty",
                "How sure the teacher is of its targets",
                f"Seed {run.config.seed}, {term}: median, band from the 25 % to the 75 % quantile (the CSV has 5 % and "
                "95 % too). A teacher that knows nothing yet gives every image the same answer; later the labelled "
                "images should fall below the others, and both sink as it learns.",
                ("images", "epoch", "mean", "q05", "q25", "q50", "q75", "q95"),
                rows,
                figure,
            )


def times(arms: Sequence[Arm]) -> Iterable[Drawn]:
    """Milliseconds per step by phase, stacked."""
    spent: dict[str, dict[str, float]] = {}
    for arm in arms:
        steps = sum(run.lines[-1]["step"] for run in arm.runs if run.lines and "time" in run.lines[-1])
        if steps:
            lines = [li["time"] for run in arm.runs for li in run.lines if "time" in li]
            spent[arm.name] = {p: 1000 * sum(li.get(p, 0.0) for li in lines) / steps for p in PHASES}
    if not spent:
        return
    figure, (axes,) = canvas(1.5 + 0.38 * len(spent))
    left = dict.fromkeys(spent, 0.0)
    for i, phase in enumerate(PHASES):
        values = [spent[a][phase] for a in spent]
        colour = MUTED if i == len(SERIES) else SERIES[i]
        axes.barh(list(spent), values, left=list(left.values()), color=colour, label=phase, edgecolor="none")
        left = {a: left[a] + spent[a][phase] for a in spent}
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("milliseconds per training step")
    legend(axes, columns=4)
    yield Drawn(
        "time",
        "Where the time went",
        "Mean over all steps and seeds. The losses hold every forward pass, a teacher's draws included; views are the "
        "augmentations; observing is what the records of this page cost. Runs that were trained side by side share a "
        "machine, so compare lengths with care.",
        ("arm", *PHASES),
        [(a, *(spent[a][p] for p in PHASES)) for a in spent],
        figure,
    )
