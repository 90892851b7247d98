"""Figures over all tasks of an experiment: errors against images seen, the map of certainty, and records.

Like the others they are drawn from records alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from certus.experiments.paper.experiments import MEAN_TEACHER as STRONG_TEACHER
from certus.experiments.paper.experiments import PRINTED_CCL, PRINTED_TEACHER, STRONG_CCL
from certus.experiments.paper.printed import TABLE1
from certus.experiments.paper.records import Records
from certus.experiments.paper.scales import Scale
from certus.experiments.paper.tables import comparison_of
from certus.experiments.paper.tasks import Arm, Task
from certus.report.curves import scale_errors
from certus.report.figure import MUTED, look
from certus.report.statistics import mean_std

Tasks = Mapping[Task, Sequence[Arm]]
TITLES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "svhn": "SVHN"}
MARKERS = ("o", "^")


def title_of(task: Task) -> str:
    noise = f", {100 * task.noise:g} % of them random" * (task.noise > 0)
    images = f", {task.millions} M images seen" * (task.images > 0)
    return f"{TITLES.get(task.data, task.data)}, {task.labels:,} labels{noise}{images}"


def panels(figure: Figure, count: int) -> Any:
    """A row of axes."""
    figure.set_size_inches(1.6 + 4.6 * count, 4.4)
    return figure.subplots(1, count, squeeze=False)[0]


def draw_ladder(figure: Figure, tasks: Tasks, records: Records, _: Scale) -> None:
    """For each data set and number of labels: test error against images seen, mean ± std over seeds."""
    rungs: dict[Task, list[Task]] = {}
    for task in tasks:
        rungs.setdefault(Task(task.data, task.labels, task.noise), []).append(task)
    names = list(dict.fromkeys(arm.name for arms in tasks.values() for arm in arms))
    for axes, (plain, lengths) in zip(panels(figure, len(rungs)), rungs.items(), strict=True):
        for i, name in enumerate(names):
            rows = [(t.images, errors_of(records, t, name)) for t in lengths]
            rows = [(images, errors) for images, errors in rows if errors]
            if rows:
                spreads = [mean_std(list(errors.values())) for _, errors in rows]
                x, y, spread = [n for n, _ in rows], [m for m, _ in spreads], [s or 0.0 for _, s in spreads]
                axes.errorbar(x, y, spread, label=name, marker="o", ms=4, capsize=3, **look(i))
        axes.set_xscale("log")
        axes.set_xticks([t.images for t in lengths], [f"{t.millions} M" for t in lengths], minor=False)
        axes.minorticks_off()
        axes.set_title(title_of(plain))
        axes.set_xlabel("unlabelled images seen")
        axes.set_ylabel("test error (%)")


def errors_of(records: Records, task: Task, arm: str) -> dict[int, float]:
    return {row["seed"]: row["test_error"] for row in records.select("runs", task.name, arm)}


def draw_map(figure: Figure, tasks: Tasks, records: Records, _: Scale) -> None:
    """For every task and kind of ranks: the gain over random ranks, and over Mean Teacher, against the share of right
    targets. Bars are ± one standard deviation over seeds. A gain is positive where certainty has the lower error."""
    axes_of = dict(zip(("random ranks", "Mean Teacher"), panels(figure, 2), strict=True))
    kinds: dict[str, int] = {}
    for task in tasks:
        for family, marker in zip(FAMILIES, MARKERS, strict=True):
            share = right_share(records, task, family.random)
            for arm, kind in family.ranked.items():
                mine = errors_of(records, task, arm)
                for name, rival in (("random ranks", family.random), ("Mean Teacher", family.teacher)):
                    gains = differences(errors_of(records, task, rival), mine)
                    if share is not None and gains:
                        mean, std = mean_std(gains)
                        style = look(kinds.setdefault(kind, len(kinds)))
                        axes_of[name].errorbar(
                            share,
                            mean,
                            std or 0.0,
                            label=f"{kind} ranks, {family.name}",
                            marker=marker,
                            ms=5,
                            capsize=2,
                            alpha=0.8,
                            color=style["color"],
                        )
    for name, axes in axes_of.items():
        axes.axhline(0, color=MUTED, linewidth=1)
        axes.set_title(f"gain over {name}")
        axes.set_xlabel("targets that are right with random ranks, before filters (%)")
        axes.set_ylabel("points of test error")


def differences(errors: Mapping[int, float], others: Mapping[int, float]) -> list[float]:
    """By seed, of the seeds that both have."""
    return [errors[seed] - others[seed] for seed in sorted(errors.keys() & others.keys())]


def right_share(records: Records, task: Task, arm: str) -> float | None:
    """The percentage of all targets that are right, the mean over the run."""
    rows = records.select("targets", task.name, arm)
    found = [r["mean"] for r in rows if (r["term"], r["quantity"]) == ("consistency", "all right")]
    return fmean(found) if found else None


class Family:
    """FT-CCL in one form: its arms by kind of ranks, its random control and its Mean Teacher."""

    def __init__(self, name: str, arms: Sequence[Arm], teacher: Arm) -> None:
        self.name, self.teacher = name, teacher.name
        self.random = next(arm.name for arm in arms if "random ranks" in arm.name)
        kinds = {arm.name: arm.options.get("metric", "PV") for arm in arms}
        self.ranked = {arm: "PE" if kind == "pe" else kind for arm, kind in kinds.items() if arm != self.random}


FAMILIES = (
    Family("as printed", PRINTED_CCL, PRINTED_TEACHER),
    Family("strong views", STRONG_CCL, STRONG_TEACHER),
)


def draw_record(figure: Figure, tasks: Tasks, records: Records, scale: Scale) -> None:
    """The validation error against minutes, the test errors at the end, the paper's best and its Mean Teacher."""
    for axes, (task, arms) in zip(panels(figure, len(tasks)), tasks.items(), strict=True):
        values = []
        for i, arm in enumerate(arms):
            rows = records.select("learning-curves", task.name, arm.name)
            x = [scale.minutes * row["epoch"] / max(r["epoch"] for r in rows) for row in rows]
            axes.plot(x, [row["mean"] for row in rows], label="validation error", **look(i))
            errors = comparison_of(task, arms, records)[arm.name].errors.values()
            axes.scatter([scale.minutes] * len(errors), list(errors), marker="*", s=70, label="test error", zorder=3)
            values += [row["mean"] for row in rows] + list(errors)
        printed = TABLE1[task.data, task.labels]
        for (name, label), dash in zip(LINES.items(), ("--", ":"), strict=True):
            axes.axhline(printed[name][0], color=MUTED, linestyle=dash, label=label)
            values.append(printed[name][0])
        scale_errors(axes, values)
        axes.set_title(title_of(task))
        axes.set_xlim(left=0)
        axes.set_xlabel("minutes of two cores, by the share of the steps")
        axes.set_ylabel("error (%)")


LINES = {"ft-ccl, 3 teachers": "the paper's best, FT-CCL with 3 teachers", "mean-teacher": "Mean Teacher in the paper"}

OVERVIEWS: dict[str, Callable[[Figure, Tasks, Records, Scale], None]] = {
    "ladder": draw_ladder,
    "map": draw_map,
    "record": draw_record,
}
