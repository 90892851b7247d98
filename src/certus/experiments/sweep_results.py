"""What a sweep has found: the best settings as a run file, a table, the importance of each setting, a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from certus.config.run_file import to_toml
from certus.experiments.sweep_plan import Search, Sweep
from certus.experiments.sweep_study import Study, Tried
from certus.methods.recipe import shown
from certus.report.statistics import mean_std, paired
from certus.report.sweeps import SearchPicture, draw_sweep
from certus.report.text_table import TextTable, spread_text
from certus.writing import put, put_json

STATES = ("finished", "pruned", "failed")


@dataclass(frozen=True, eq=False)
class Found:
    """Of one method."""

    search: Search
    tried: Sequence[Tried]
    importance: Mapping[str, float]
    best: Tried | None
    run_file: Path | None

    @property
    def counts(self) -> str:
        """`40 trials: 25 finished, 15 pruned`"""
        each = {state: sum(t.state == state for t in self.tried) for state in STATES}
        named = ", ".join(f"{n} {state}" for state, n in each.items() if n)
        return f"{len(self.tried)} trial{'s' * (len(self.tried) != 1)}" + (f": {named}" if named else "")

    def edges(self) -> list[str]:
        """Sentences on values of the best trial that are at the edge of what was searched, where there is more."""
        if self.best is None:
            return []
        found = []
        for axis in self.search.space.axes:
            value = self.best.values[axis.name]
            outside = axis.beyond(value)
            if outside is not None and self.search.accepts({**self.best.values, axis.name: outside}):
                end = "low" if outside < value else "high"
                found.append(
                    f"{self.search.method}: the best {axis.name}, {shown(value)}, is at the {end} end of {axis.text}. "
                    "Search further there."
                )
        return found

    def table(self, most: int | None = None) -> TextTable:
        """The finished trials, best first; with several seeds also the difference to the first one, paired by seed."""
        finished = ranked(self.tried)
        names = [axis.name for axis in self.search.space.axes]
        first = min(finished, key=lambda t: t.number, default=None)
        several = bool(first and len(first.errors) > 1)
        rows = []
        for t in finished[:most]:
            mean, std = mean_std(list(t.errors.values()))
            row = [str(t.number), *(shown(t.values[name]) for name in names), spread_text(mean, std)]
            if several and first:
                row.append("" if t is first else str(paired(t.errors, first.errors)))
            rows.append(tuple(row))
        heads = ("trial", *(name.replace("_", " ") for name in names), "validation error (%)")
        if several and first:
            heads += (f"difference to trial {first.number}",)
        hidden = len(finished) - len(rows)
        caption = f"{self.counts}{f'; {hidden} finished ones are not shown' if hidden else ''}"
        return TextTable(heads, tuple(rows), self.search.method, caption)

    def as_dict(self) -> dict[str, Any]:
        return {
            "best": None if self.best is None else {"trial": self.best.number, "values": dict(self.best.values)},
            "run_file": self.run_file.name if self.run_file else None,
            "importance": dict(self.importance),
            "warnings": self.edges(),
            "trials": [{**asdict(t), "error": t.error} for t in self.tried],
        }

    def picture(self) -> SearchPicture:
        axes = [axis for axis in self.search.space.axes if len(axis.extremes) > 1]
        return SearchPicture(
            name=f"{self.search.method} on {self.search.data.name}",
            errors={t.number: t.error for t in self.tried if t.error is not None},
            pruned={t.number: t.last for t in self.tried if t.error is None and t.last is not None},
            values={a.name: {t.number: t.values[a.name] for t in self.tried if a.name in t.values} for a in axes},
            choices={axis.name: axis.choices for axis in axes if axis.choices},
            log=[axis.name for axis in axes if axis.log],
            best=self.best.number if self.best else None,
        )


def ranked(tried: Sequence[Tried]) -> list[Tried]:
    """The finished ones, best first; of two with the same error, the earlier one."""
    return sorted((t for t in tried if t.errors), key=lambda t: (t.error, t.number))


def write_sweep(sweep: Sweep, studies: Sequence[Study], command: str = "") -> list[Found]:
    """Write results.json, results.md (with the command that made them), sweep.png and best-METHOD.toml."""
    found = []
    for search, study in zip(sweep.searches, studies, strict=True):
        tried = study.tried()
        best = next(iter(ranked(tried)), None)
        run_file = None
        if best is not None:
            run_file = sweep.out / f"best-{search.method}.toml"
            head = f"# Trial {best.number} of a sweep: validation error {best.error:.2f} %, n = {len(best.errors)}\n"
            put(run_file, head + to_toml(asdict(search.config(best.values, sweep.seeds[0]))))
        found.append(Found(search, tried, study.importance(), best, run_file))
    put_json(sweep.out / "results.json", {each.search.method: each.as_dict() for each in found})
    put(sweep.out / "results.md", page(found, command))
    if any(each.best for each in found):
        draw_sweep([each.picture() for each in found], sweep.out / "sweep.png")
    return found


def page(found: Sequence[Found], command: str) -> str:
    """As Markdown."""
    parts = [f"`{command}`"] if command else []
    for each in found:
        parts += [f"## {each.search.method}", f"{each.counts}."]
        if each.best is not None:
            parts.append(each.table().markdown().rstrip())
        if each.importance:
            parts.append(f"Importance: {importance_text(each.importance)}.")
        parts += each.edges()
    if remark := unequal(found):
        parts.append(remark)
    return "\n\n".join(parts) + "\n"


def importance_text(importance: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in importance.items())


def unequal(found: Sequence[Found]) -> str:
    """A sentence if methods that could have had the same number of trials have not."""
    counts = {each.search.method: len(each.tried) for each in found}
    most = max(counts.values())
    behind = [each for each in found if len(each.tried) < min(most, each.search.space.size)]
    if not behind:
        return ""
    listed = ", ".join(f"{method} {n}" for method, n in counts.items())
    return f"The methods have had different numbers of trials ({listed}): the best of more trials is lower by chance."
