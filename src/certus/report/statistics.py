"""Comparing arms over seeds. Every comparison that certus prints, writes or draws is a `Comparison`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import sqrt
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t
from scipy.stats import ttest_rel

from certus.report.text_table import TextTable, number_text, signed, spread_text

PRELIMINARY = 3  # results of fewer seeds are marked
Array = NDArray[Any]


def mean_std(values: Sequence[float]) -> tuple[float, float | None]:
    """The sample standard deviation (1/(n − 1)); None for one value."""
    return fmean(values), stdev(values) if len(values) > 1 else None


@dataclass(frozen=True)
class Difference:
    """Errors minus those of the reference, paired by seed: both have trained on the same labels.

    Attributes:
        n: the number of seeds that both have
        mean, low, high: the mean difference and Student's 95 % interval, wider for one of several comparisons; None
            where n is too small
        p: of the paired t-test; None for fewer than two seeds and for differences that are all the same
        reduction: percent of the reference's errors that are gone; negative if there are more
    """

    n: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    reduction: float | None = None

    def __str__(self) -> str:
        """`−1.25 [−2.54, +0.04]`; empty without a common seed."""
        if self.mean is None:
            return ""
        interval = f" [{self.low:+.2f}, {self.high:+.2f}]" if self.low is not None else ""
        return signed(f"{self.mean:+.2f}{interval}")


def paired(errors: Mapping[int, float], reference: Mapping[int, float], comparisons: int = 1) -> Difference:
    """The difference over the seeds that both have. The interval of one of several comparisons is wider, so that all of
    them together hold with 95 % (Bonferroni)."""
    seeds = sorted(errors.keys() & reference.keys())
    if not seeds:
        return Difference(0)
    mine, theirs = [errors[s] for s in seeds], [reference[s] for s in seeds]
    reduction = 100.0 * (sum(theirs) - sum(mine)) / sum(theirs) if sum(theirs) else None
    mean, std = mean_std([a - b for a, b in zip(mine, theirs, strict=True)])
    if std is None:
        return Difference(1, mean, reduction=reduction)
    half = float(student_t.ppf(1 - 0.025 / comparisons, len(seeds) - 1)) * std / sqrt(len(seeds))
    return Difference(len(seeds), mean, mean - half, mean + half, paired_p(mine, theirs), reduction)


def paired_p(mine: Sequence[float], theirs: Sequence[float]) -> float | None:
    differences = np.subtract(mine, theirs)
    if len(differences) < 2 or np.ptp(differences) <= 1e-12 * np.abs(differences).max():
        return None
    return float(ttest_rel(mine, theirs).pvalue)


@dataclass(frozen=True)
class Row:
    """One arm of a comparison: a method with certain options, and its error (%) at each seed."""

    name: str
    errors: Mapping[int, float]
    method: str = ""
    steps: int = 0
    seconds: float | None = None  # of training, the mean over seeds
    bytes: int | None = None  # memory of a training step, the most over seeds
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n(self) -> int:
        return len(self.errors)

    @property
    def mean(self) -> float | None:
        return mean_std(list(self.errors.values()))[0] if self.errors else None

    @property
    def std(self) -> float | None:
        return mean_std(list(self.errors.values()))[1] if self.errors else None

    @property
    def preliminary(self) -> bool:
        return self.n < PRELIMINARY

    @property
    def seconds_per_step(self) -> float | None:
        return self.seconds / self.steps if self.seconds is not None and self.steps else None

    def as_dict(self, measure: str = "test error") -> dict[str, Any]:
        return {
            measure.replace(" ", "_"): {str(seed): self.errors[seed] for seed in sorted(self.errors)},
            "mean": self.mean,
            "std": self.std,
            "n": self.n,
            "preliminary": self.preliminary,
            "seconds": self.seconds,
            "steps": self.steps or None,
            "seconds_per_step": self.seconds_per_step,
            "bytes": self.bytes,
            "options": dict(self.options),
        }


@dataclass(frozen=True)
class Comparison:
    """The errors of several arms on one task: the same data, labels and label noise.

    `str()` is its table in Markdown, `as_dict()` what results.json holds.

    Attributes
    ----------
    rows : tuple of Row
        An arm each: `name`, `errors` by seed, `mean`, `std`, `n`. `comparison[name]` is the row of an arm.
    data, labels, label_noise, validation
        The task, and the number of validation images.
    measure : str
        `test error`; `validation error` if the data set has no test images.
    comparisons : int
        The number of differences whose intervals hold together.

    Examples
    --------
    >>> rows = Row("supervised", {0: 20.0, 1: 24.0}, "supervised"), Row("pi", {0: 16.0, 1: 17.0}, "pi")
    >>> comparison = Comparison(rows)
    >>> comparison.reference, comparison["pi"].mean, comparison.difference("pi").mean
    ('supervised', 16.5, -5.5)
    """

    rows: tuple[Row, ...]
    data: str = ""
    labels: int = 0
    label_noise: float = 0.0
    validation: int = 0
    measure: str = "test error"
    comparisons: int = 1

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def __str__(self) -> str:
        return self.table().markdown()

    @property
    def reference(self) -> str:
        """What the others are compared with: supervised learning, the longest if there are several, else the first
        row. Rows without a result are skipped."""
        rows = [row for row in self.rows if row.errors] or list(self.rows)
        supervised = [row for row in rows if row.method == "supervised"]
        return max(supervised, key=lambda row: row.steps, default=rows[0]).name

    @property
    def cost_reference(self) -> str:
        """What time and memory are relative to."""
        return next((row.name for row in self.rows if row.name == "mean-teacher" and row.errors), self.reference)

    def difference(self, name: str, reference: str = "") -> Difference | None:
        """To the reference, or to another row; None for the reference itself."""
        reference = reference or self.reference
        if name == reference:
            return None
        return paired(self[name].errors, self[reference].errors, self.comparisons)

    def table(self, references: Sequence[str] = (), details: bool = False, cost: bool = False) -> TextTable:
        """Mean ± std, n, and the difference to the reference, or to each of `references`; `details` adds p and error
        reduction, `cost` time and memory of a training step."""
        known = [row.name for row in self.rows] if len(self.rows) > 1 else []
        references = [name for name in references or (self.reference,) if name in known]
        heads = ["method", f"{self.measure} (%)", "n", *(f"difference to {name}" for name in references)]
        heads += ["p", "error reduction"] * (details and len(references) == 1) + ["time ×", "memory ×"] * cost
        rows = []
        for row in self.rows:
            differences = [self.difference(row.name, reference) for reference in references]
            cells = [row.name, spread_text(row.mean, row.std), n_text(row.n)]
            cells += ["" if d is None else str(d) for d in differences]
            if details and len(references) == 1:
                (d,) = differences
                cells += [p_text(d.p) if d else "", percent_text(d.reduction) if d else ""]
            rows.append((*cells, *(self.cost(row) if cost else ())))
        return TextTable(tuple(heads), tuple(rows), self.title, self.caption(references, details))

    def cost(self, row: Row) -> tuple[str, str]:
        """Time and memory of a training step relative to the cost reference."""
        unit = self[self.cost_reference]
        time = row.seconds_per_step / unit.seconds_per_step if row.seconds_per_step and unit.seconds_per_step else None
        memory = row.bytes / unit.bytes if row.bytes and unit.bytes else None
        return number_text(time), number_text(memory)

    @property
    def title(self) -> str:
        noise = f", {100 * self.label_noise:g} % of them random" * (self.label_noise > 0)
        return f"{self.data}, {self.labels or 'all'} labels{noise}: {self.measure} (%)"

    def caption(self, references: Sequence[str], details: bool = False) -> str:
        text = "Mean ± standard deviation over n seeds."
        text += " With several teachers, the mean of their errors." * details
        if references:
            text += " Differences are paired by seed (same labels), with a 95 % confidence interval"
            text += f", corrected for {self.comparisons} comparisons" * (self.comparisons > 1)
            text += " and the p of the paired t-test." if details else "."
            text += " Error reduction is the share of the reference's errors that are gone." * details
        if any(row.errors and row.preliminary for row in self.rows):
            text += f" Preliminary: fewer than {PRELIMINARY} seeds."
        return text

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON: every row by name, with its difference to the reference."""
        methods = {}
        for row in self.rows:
            difference = self.difference(row.name)
            methods[row.name] = {**row.as_dict(self.measure), "difference": asdict(difference) if difference else None}
        return {
            "data": self.data,
            "labels": self.labels,
            "label_noise": self.label_noise,
            "validation": self.validation,
            "measure": self.measure,
            "reference": self.reference,
            "cost_reference": self.cost_reference,
            "methods": methods,
        }


def n_text(n: int) -> str:
    return f"{n}{' (preliminary)' * (0 < n < PRELIMINARY)}"


def p_text(p: float | None) -> str:
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def percent_text(value: float | None) -> str:
    return "" if value is None else signed(f"{value:.1f} %")


def band(curves: Sequence[Mapping[int, float]]) -> dict[str, Array]:
    """Curves by epoch, over seeds: at each epoch mean, std and the number of seeds that have reached it."""
    epochs = sorted({e for curve in curves for e in curve})
    values = [[c[e] for c in curves if e in c] for e in epochs]
    return {
        "epoch": np.array(epochs),
        "mean": np.array([np.mean(v) for v in values]),
        "std": np.array([np.std(v, ddof=1) if len(v) > 1 else 0.0 for v in values]),
        "n": np.array([len(v) for v in values]),
    }
