"""Every published number follows from the CSV files in results/: the tables and the prose of README.md, results/ and
docs/, the pages of the experiments, and the settings of every run.

The numbers are computed here from the CSV files by the standard library and scipy, not by the code that printed them.
"""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import minutes_report
import networks
import pictures_report
import pytest
import resumable
import scipy.stats
import selection

from certus.cli.paper import command
from certus.experiments import paper
from certus.experiments.paper import SCALES, Arm, Task, tables
from certus.experiments.paper.records import COLUMNS, Records, config_of
from certus.experiments.paper.scales import OWN

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
OWN_TABLES = ("networks", "pictures", "selection")  # their benchmarks print them, see the end of this file
FOLDERS = sorted(p.parent.name for p in RESULTS.glob("*/runs.csv") if p.parent.name not in OWN_TABLES)
PAGES = [ROOT / "README.md", RESULTS / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DATA_SETS = {"CIFAR-10": "cifar10", "SVHN": "svhn", "CIFAR-100": "cifar100"}
METRICS = ("PV", "EV", "PE", "MI", "PR", "confidence")
SPREAD = r"\d+\.\d+ ± \d+\.\d+"
INTERVAL = r"[-+]?\d+\.\d+(?: points)? \[[-+]?\d+\.\d+, [-+]?\d+\.\d+\]"


@cache
def table(folder: str, name: str) -> list[dict[str, str]]:
    path = RESULTS / folder / f"{name}.csv"
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


AFTER = " after "  # between an arm and its minutes


def arm_of(row: dict[str, str]) -> str:
    """An arm that was run for several lengths of time is several arms."""
    return row["arm"] + (AFTER + row["minutes"] if row.get("minutes") else "")


@cache
def runs(folder: str, task: str, arm: str) -> dict[int, dict[str, str]]:
    """By seed."""
    return {int(r["seed"]): r for r in table(folder, "runs") if (r["task"], arm_of(r)) == (task, arm)}


@cache
def arms(folder: str) -> list[tuple[str, str]]:
    return list(dict.fromkeys((r["task"], arm_of(r)) for r in table(folder, "runs")))


def errors(folder: str, task: str, arm: str) -> dict[int, float]:
    return {seed: float(row["test_error"]) for seed, row in runs(folder, task, arm).items()}


def spread(folder: str, task: str, arm: str) -> str:
    values = list(errors(folder, task, arm).values())
    return f"{statistics.fmean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


@cache
def difference(folder: str, task: str, arm: str, reference: str, other: str = "", comparisons: int = 1) -> str:
    """Of an arm to a reference, which may be in another folder; the interval is one of so many that hold together."""
    mine, theirs = errors(folder, task, arm), errors(other or folder, task, reference)
    seeds = sorted(mine.keys() & theirs.keys())
    if not seeds or (arm == reference and not other):
        return ""
    pair = [mine[s] for s in seeds], [theirs[s] for s in seeds]
    mean = statistics.fmean(a - b for a, b in zip(*pair, strict=True))
    if len(seeds) == 1:
        return f"{mean:+.2f}"
    interval = scipy.stats.ttest_rel(*pair).confidence_interval(1 - 0.05 / comparisons)
    return f"{mean:+.2f} [{interval.low:+.2f}, {interval.high:+.2f}]"


def curve(folder: str, name: str, task: str, arm: str, **wanted: str) -> dict[int, float]:
    """The mean by epoch."""
    rows = [r for r in table(folder, name) if (r["task"], r["arm"]) == (task, arm)]
    return {int(r["epoch"]): float(r["mean"]) for r in rows if all(r[k] == v for k, v in wanted.items())}


def at(values: dict[int, float], epoch: float) -> float | None:
    return values[min(values, key=lambda e: abs(e - epoch))] if values else None


def target(folder: str, task: str, arm: str, column: str, share: float) -> str:
    """A column of a table on targets at a share of the run, as the pages print it."""
    last = max(curve(folder, "targets", task, arm, term="consistency", quantity="all right"), default=0)
    if not last:
        return "–"
    epoch = max(1, round(share * last))
    if column == "consistency loss":
        return f"{at(curve(folder, 'losses', task, arm, term='consistency'), epoch):.3f}"
    quantity = {"kept (%)": "kept", "selected right (%)": "selected right", "all right (%)": "all right"}[column]
    return f"{at(curve(folder, 'targets', task, arm, term='consistency', quantity=quantity), epoch):.1f}"


# --- the pages of the experiments


@dataclass(frozen=True)
class Printed:
    """A table in a Markdown file, with the last command before it."""

    file: Path
    command: str
    heads: list[str]
    rows: list[list[str]]

    def cells(self) -> list[tuple[str, str, str]]:
        """Row, column, text."""
        return [(row[0], head, cell) for row in self.rows for head, cell in zip(self.heads[1:], row[1:], strict=True)]


def plain(text: str) -> str:
    return text.strip().strip("*").replace("−", "-").replace(" (preliminary)", "")


COMMAND = re.compile(r"(?:certus (?:compare|paper|sweep)|make demo|(?:python )?benchmarks/\w+\.py)[^`]*")


def tables_of(file: Path) -> list[Printed]:
    found: list[Printed] = []
    command, rows = "", []
    lines = file.read_text().splitlines()
    for i, line in enumerate([*lines, ""]):
        if line.startswith("|"):
            rows.append([plain(cell) for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
            continue
        if rows:
            found.append(Printed(file, command, rows[0], rows[2:]))
            rows = []
        window = " ".join(lines[i : i + 2]) if line.count("`") % 2 else line  # a command may be broken over two lines
        for part in re.findall(r"`([^`]+)`", window) or ([line] if line.startswith(("certus ", "python ")) else []):
            if COMMAND.match(part):
                command = part
    return found


def test_results_are_published_small_and_without_weights() -> None:
    assert {"demo", "digits", "minutes"} <= set(FOLDERS)
    files = [f for f in RESULTS.rglob("*") if f.is_file()]
    assert {f.suffix for f in files} <= {".md", ".csv", ".png"}
    assert len(files) < 60
    assert sum(f.stat().st_size for f in files) < 4e6


def test_every_figure_is_shown_and_every_link_leads_somewhere() -> None:
    for file in RESULTS.rglob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)", file.read_text()):
            assert (file.parent / link).exists(), f"{file}: {link}"
    page = (RESULTS / "README.md").read_text()
    shown = {(RESULTS / link).resolve() for link in re.findall(r"!\[[^]]+\]\(([^)]+)\)", page)}
    assert shown == set(RESULTS.rglob("*.png"))


EXPERIMENTS_IN = sorted({path.parent.name for path in RESULTS.glob("*/*.md")})  # folders of `certus paper`


def scale_in(folder: str) -> paper.Scale:
    """The scale of a folder, with its minutes."""
    (label,) = {row["scale"] for row in table(folder, "runs")}
    name, _, minutes = label.removesuffix("min").partition("-")
    scale = (SCALES | OWN)[name]
    return replace(scale, minutes=float(minutes)) if minutes else scale


def known_arms(folder: str) -> dict[tuple[str, str], tuple[Task, Arm]]:
    """What `certus paper` would train there."""
    tasks = {Task.named(row["task"]) for row in table(folder, "runs")}
    found = {}
    for experiment in paper.EXPERIMENTS.values():
        cells = paper.chosen(experiment.covering(tasks), scale_in(folder))
        found |= {(task.name, arm.name): (task, arm) for task, arm in cells}
    return found


@pytest.mark.parametrize("folder", EXPERIMENTS_IN)
def test_every_run_can_be_run_again(folder: str) -> None:
    """`certus paper` has the arm of every row, and trains it with the settings of the row, but for the length, which
    may have been timed."""
    for row in table(folder, "runs"):
        task, arm = known_arms(folder)[row["task"], row["arm"]]
        typed = {**row, "seed": int(row["seed"]), "steps": int(row["steps"])}
        found = config_of(typed, task.data, task.labels, task.noise)
        assert (found.method, found.steps) == (arm.method, typed["steps"])
        kept = {name: value for name, value in arm.options.items() if name in found.options}
        assert {name: found.options[name] for name in kept} == kept
        assert 0 < float(row["test_error"]) < 100
        assert float(row["seconds"]) > 0
    keys = [(row["task"], row["arm"], row["seed"]) for row in table(folder, "runs")]
    assert len(set(keys)) == len(keys)


EXPERIMENT_PAGES = sorted(RESULTS.glob("*/*.md"))


@pytest.mark.parametrize("file", EXPERIMENT_PAGES, ids=lambda f: "-".join(f.parts[-2:]))
def test_every_number_of_an_experiment_follows_from_the_csv_files(file: Path) -> None:
    folder = file.parent.name
    found = tables_of(file)
    assert found
    for printed in found:
        (only,) = re.findall(r"--only '?([^']+?)'?(?: --seeds|$)", printed.command)
        (task,) = {part.partition("/")[0] for part in only.split("; ")}
        errors_table = "test error (%)" in printed.heads
        if errors_table:
            experiment = paper.experiment(file.stem)
            cells = paper.chosen(experiment.covering([Task.named(task)]), scale_in(folder))
            expected = [a.name for t, a in cells if t.name == task]
            assert [row[0] for row in printed.rows] == [a for a in expected if (task, a) in arms(folder)]
        check_experiment_table(folder, task, printed)


def check_experiment_table(folder: str, task: str, printed: Printed) -> None:
    names = [row[0] for row in printed.rows]
    references = [head.removeprefix("difference to ") for head in printed.heads if head.startswith("difference to ")]
    pairs = {frozenset((name, reference)) for name in names for reference in references if name != reference}
    for row in printed.rows:
        check_experiment_row(folder, task, dict(zip(printed.heads, row, strict=True)), len(pairs))


def check_experiment_row(folder: str, task: str, values: dict[str, str], comparisons: int) -> None:
    arm = values.get("method", "ft-ccl")
    if "uncertainty" in values:
        images, name = values["images"].split(" (")[0], values["uncertainty"].lower()
        (row,) = [
            r
            for r in table(folder, "certainty")
            if (r["task"], r["arm"], r["images"], r["uncertainty"]) == (task, arm, images, name)
        ]
        assert values["images"] == f"{images} ({int(row['count']):,})"
        for column, key in (("rank correlation with accuracy", "rank_correlation"),):
            assert values[column] == f"{float(row[key]):.3f} ± {float(row[f'{key}_std']):.3f}"
        assert values["AUROC of finding wrong answers"] == f"{float(row['auroc']):.3f} ± {float(row['auroc_std']):.3f}"
        assert values["n"] == row["n"]
        return
    assert values["n"] == str(len(runs(folder, task, arm)))
    if "epoch" in values:
        last = max(curve(folder, "targets", task, arm, term="consistency", quantity="all right"))
        for column in ("kept (%)", "selected right (%)", "all right (%)", "consistency loss"):
            assert values[column] == target(folder, task, arm, column, int(values["epoch"]) / last), (arm, column)
        return
    assert values["test error (%)"] == spread(folder, task, arm)
    for head, cell in values.items():
        if head.startswith("difference to "):
            reference = head.removeprefix("difference to ")
            expected = difference(folder, task, arm, reference, comparisons=comparisons)
            assert cell == expected, f"{arm}, {head}: {cell!r}, but the runs say {expected!r}"


# --- README.md, results/README.md and docs/


def origin(command: str) -> tuple[str, str]:
    """The folder of results/ that a command has made, and its task, if it has one; empty for other commands."""
    if command.startswith("make demo"):
        return "demo", "digits-20"
    if command.startswith("certus compare --methods all --data digits --labels 20"):
        return "digits", "digits-20"
    if "benchmarks/minutes.py" in command and "minutes" in FOLDERS:
        return "minutes", ""  # the head of its tables names the task
    name = re.match(r"certus paper (\w+)", command)
    if not name:
        return "", ""
    scale, minutes = (re.search(rf"--{flag} (\S+)", command) for flag in ("scale", "minutes"))
    label = (scale[1] if scale else "") + (f"-{minutes[1]}min" if minutes else "")
    folder = next((f for f in (name[1], label) if f in FOLDERS), "")  # `ladder`, `map` and `record` have their own
    only = re.search(r"--only '([^']+)'", command)
    tasks = only[1].split("; ") if only else []
    return folder, tasks[0] if folder and len(tasks) == 1 else ""


def expected_cell(folder: str, task: str, arm: str, head: str) -> str | None:
    """What a column of a table must print for an arm; None for a column that has no rule."""
    if head in ("test error (%)", ""):
        return spread(folder, task, arm)
    if head == "validation error (%)":
        return f"{statistics.fmean(float(r['validation_error']) for r in runs(folder, task, arm).values()):.1f}"
    if head == "n":
        return str(len(runs(folder, task, arm)))
    if head.startswith("difference to "):
        return difference(folder, task, arm, head.removeprefix("difference to "))
    if head in ("kept (%)", "selected right (%)", "all right (%)", "consistency loss"):
        return target(folder, task, arm, head, 0.5)
    if head in ("loss on labels at the end", "consistency loss at the end"):
        term = "supervised" if "labels" in head else "consistency"
        values = curve(folder, "losses", task, arm, term=term)
        return f"{values[max(values)]:.2f}" if values else "–"
    if head == "ECE (%)":
        rows = [r for r in table(folder, "reliability") if (r["task"], r["arm"]) == (task, arm)]
        return f"{float(rows[0]['ece']):.1f}" if rows else "–"
    return None


def check_table(printed: Printed) -> int:
    """Compare every cell with the CSV files; the number of cells that hold an error or a difference."""
    folder, only = origin(printed.command)
    if folder == "minutes":
        return check_minutes(printed)
    checked = 0
    for row in printed.rows:
        name = row[0]
        if name in DATA_SETS:  # a row of AUROCs
            for metric in METRICS:
                (found,) = [
                    r
                    for r in table(folder, "certainty")
                    if (r["task"], r["images"], r["uncertainty"])
                    == (f"{DATA_SETS[name]}-1000", "unlabelled", metric.lower())
                ]
                cell = row[printed.heads.index(metric)]
                assert cell == f"{float(found['auroc']):.3f} ± {float(found['auroc_std']):.3f}"
                checked += 1
            continue
        task = only
        for head, cell in zip(printed.heads[1:], row[1:], strict=True):
            data, _, rest = head.partition(": ") if head.split(":")[0] in DATA_SETS else ("", "", head)
            if data:
                task = only or f"{DATA_SETS[data]}-1000"
            assert task, f"{printed.file}: which task is the column {head!r}?"
            if rest in ("time ×", "memory ×"):  # of the machine, not of the runs
                continue
            expected = expected_cell(folder, task, name, rest)
            assert expected is not None, f"{printed.file}: there is no rule for the column {head!r}"
            assert cell == expected, f"{printed.file}: {name}, {head}: {cell!r}, but the runs say {expected!r}"
            checked += bool(re.search(f"{SPREAD}|{INTERVAL}", cell))
    return checked


def check_minutes(printed: Printed) -> int:
    """A table of errors after equal minutes: `svhn, 1000 labels | 1 minute | … | without a limit | n`."""
    known = re.fullmatch(r"(\S+), (\d+) labels", printed.heads[0])
    assert known, f"{printed.file}: which task is the table {printed.heads[0]!r}?"
    task, checked = "-".join(known.groups()), 0
    for name, *cells in printed.rows:
        expected, counts = [], []
        for head in printed.heads[1:-1]:
            minutes = head.removesuffix("s").removesuffix(" minute") if head != "without a limit" else ""
            arm = name + (AFTER + minutes if minutes else "")
            found = runs("minutes", task, arm).values()
            expected.append(spread("minutes", task, arm) if found else "")
            if found and not minutes:
                expected[-1] += f" in {statistics.fmean(float(r['processor_seconds']) for r in found):.0f} s"
            counts += [str(len(found))] if found else []
        assert counts, f"{printed.file}: {name} has no run"
        expected.append(counts[0] if len(set(counts)) == 1 else ", ".join(counts))
        assert cells == expected, f"{printed.file}: {name}: {cells}, but the runs say {expected}"
        checked += len(counts)
    return checked


def has_results(printed: Printed) -> bool:
    text = " ".join(cell for row in printed.rows for cell in row)
    return bool(re.search(f"{SPREAD}|{INTERVAL}", text))


@pytest.mark.parametrize("file", PAGES, ids=lambda f: str(f.relative_to(ROOT)))
def test_every_number_in_the_tables_follows_from_the_csv_files(file: Path) -> None:
    """A table belongs to the last command before it. Those of benchmarks/ and of sweeps have no CSV files,
    except minutes.py's."""
    checked = 0
    for printed in tables_of(file):
        if origin(printed.command)[0]:
            checked += check_table(printed)
        else:
            searched = "benchmarks/" in printed.command or printed.command.startswith("certus sweep")
            assert not has_results(printed) or searched, f"{file}: {printed.heads}"
    least = {
        "README.md": 3,
        "results/README.md": 5,
        "docs/methods.md": 40,
        "docs/digits.md": 5,
        "docs/performance.md": 20,
    }
    assert checked >= least.get(str(file.relative_to(ROOT)), 0)


@cache
def every_spread() -> set[str]:
    found = {spread(folder, task, arm) for folder in FOLDERS for task, arm in arms(folder)}
    for row in (row for folder in FOLDERS for row in table(folder, "certainty")):
        found.add(f"{float(row['auroc']):.3f} ± {float(row['auroc_std']):.3f}")
    return found


@cache
def every_difference() -> set[str]:
    """Of any two arms of a task, and of an arm to the same arm at another scale; signs apart, in either direction."""
    found = set()
    for folder in FOLDERS:
        for task, arm in arms(folder):
            rivals = [other for t, other in arms(folder) if t == task and equal_minutes(arm, other)]
            found |= {difference(folder, task, arm, other) for other in rivals}
            found |= {difference(folder, task, arm, arm, o) for o in FOLDERS if o != folder and (task, arm) in arms(o)}
    for page in EXPERIMENT_PAGES:  # whose intervals are checked above
        found |= set(re.findall(INTERVAL, page.read_text().replace("−", "-")))
    return {unsigned(text) for text in found}


def equal_minutes(arm: str, other: str) -> bool:
    """Not so if the two have different minutes; an arm without minutes is compared with all."""
    return len({arm.partition(AFTER)[2], other.partition(AFTER)[2]} - {""}) < 2


def unsigned(text: str) -> str:
    """`-1.25 [-2.54, +0.04]` and `1.25 [-0.04, 2.54]` are one difference, seen from either side."""
    mean, *interval = [float(v) for v in re.findall(r"[-+]?\d+\.\d+", text)] or [0.0]
    if mean < 0 or (mean == 0 and interval and sum(interval) < 0):
        mean, interval = -mean, sorted(-v for v in interval)
    return f"{abs(mean):.2f} {[f'{v + 0.0:.2f}'.replace('-0.00', '0.00') for v in interval]}"


@pytest.mark.parametrize("file", PAGES, ids=lambda f: str(f.relative_to(ROOT)))
def test_every_result_in_the_prose_follows_from_the_csv_files(file: Path) -> None:
    """Except in paragraphs on benchmarks/, which have no CSV files."""
    for paragraph in file.read_text().split("\n\n"):
        lines = [line for line in paragraph.splitlines() if not line.startswith("|")]
        text = re.sub(r"\s+", " ", " ".join(lines)).replace("−", "-").replace("*", "")
        if "benchmarks/" in text:
            continue
        for found in re.findall(SPREAD, text):
            assert found in every_spread(), found
        for found in re.findall(INTERVAL, text):
            assert unsigned(found) in every_difference(), found


def test_the_findings_come_first_each_with_its_numbers_n_and_command() -> None:
    text = (RESULTS / "README.md").read_text()
    head = text[: text.index("\n## ")]
    bullets = [re.sub(r"\s+", " ", b) for b in re.split(r"\n- ", head)[1:]]
    assert len(bullets) == 5
    for bullet in bullets:
        assert re.search(r"\d\.\d", bullet)
        assert re.search(r"n = \d", bullet)
        assert re.search(r"`(?:certus paper \w+[^`]*|python benchmarks/minutes\.py|make demo)`", bullet)


def test_a_wrong_number_is_found() -> None:
    """The checks above can fail: each catches a number that is changed by one in its last digit."""
    (first, *_) = [t for t in tables_of(RESULTS / "README.md") if t.command.startswith("make demo")]
    for column, wrong in ((1, "10.08 ± 2.74"), (2, "-1.19 [-3.18, +0.81]"), (3, "6")):
        row = list(first.rows[1])
        assert check_table(replace(first, rows=[row])) > 0
        row[column] = wrong
        with pytest.raises(AssertionError, match="but the runs say"):
            check_table(replace(first, rows=[row]))
    assert unsigned("-1.25 [-2.54, +0.04]") == unsigned("1.25 points [-0.04, 2.54]")
    assert unsigned("-1.25 [-2.54, +0.04]") != unsigned("-1.25 [-2.54, +0.05]")
    assert unsigned("1.19 [-0.80, 3.18]") in every_difference()
    assert unsigned("1.19 [-0.80, 3.19]") not in every_difference()


@pytest.fixture
def empty_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A results/ in which `minutes` and `map` are to be folders."""
    monkeypatch.setitem(globals(), "RESULTS", tmp_path)
    monkeypatch.setitem(globals(), "FOLDERS", ["map", "minutes"])
    cached = (table, runs, arms, difference)
    for function in cached:
        function.cache_clear()
    yield tmp_path
    for function in cached:
        function.cache_clear()


def test_a_wrong_number_of_an_experiment_is_found(empty_results: Path) -> None:
    """The page that `certus paper` prints is the one that is expected here, with intervals that hold together."""
    scale, task = OWN["images"], Task("svhn", 100, 0.5, 200_000)
    arms = paper.experiment("map").arms[1:5]
    rows = [
        {
            "task": task.name,
            "arm": arm.name,
            "method": arm.method,
            "seed": seed,
            "steps": 100,
            "seconds": 10.0,
            "settings": " ".join(["network=sprint", *(f"{k}={v}" for k, v in arm.options.items())]),
            "scale": scale.label,
            "version": "0",
            "validation_error": 1.0,
            "test_error": 20 + 3 * i + 0.7 * (seed * (i + 2) % 5),
        }
        for i, arm in enumerate(arms)
        for seed in range(3)
    ]
    Records({name: rows if name == "runs" else [] for name in COLUMNS}).write(empty_results / "map")
    page = empty_results / "map" / "map.md"
    records = Records.read(empty_results / "map")
    page.write_text(tables.markdown(paper.experiment("map"), scale, records, command))
    test_every_run_can_be_run_again("map")
    test_every_number_of_an_experiment_follows_from_the_csv_files(page)
    good = page.read_text()
    assert "corrected for 3 comparisons" in re.sub(r"\s+", " ", good)
    for pattern in (SPREAD, INTERVAL):
        right = re.findall(r"\d+\.\d+", re.findall(pattern, good.replace("−", "-"))[0])[-1]
        page.write_text(good.replace(right, f"{float(right) + 0.01:.2f}"))
        with pytest.raises(AssertionError):
            test_every_number_of_an_experiment_follows_from_the_csv_files(page)


def test_a_wrong_number_after_equal_minutes_is_found(empty_results: Path) -> None:
    """The tables that benchmarks/minutes.py prints are the ones that are expected here, up to the last digit."""
    minutes_folder = empty_results / "minutes"
    for arm, m, seed, error in [
        *(("engine ft-ccl", "1", 0, 20.0), ("engine ft-ccl", "1", 1, 21.0), ("engine ft-ccl", "0.5", 0, 30.0)),
        *(("usb fixmatch", "1", 0, 40.0), ("label spreading", "", 0, 50.0), ("label spreading", "", 1, 51.0)),
    ]:
        row = ["svhn-1000", arm, m, seed, error, error, 9, 12.4, 500, "certus 0", "{}"]
        resumable.append(minutes_folder / "runs.csv", minutes_report.COLUMNS, row)
    (made,) = minutes_report.tables(resumable.read(minutes_folder / "runs.csv"))
    page = minutes_folder / "page.md"
    page.write_text(f"`python benchmarks/minutes.py --data-dir DATA`\n\n{made.markdown()}")
    (printed,) = tables_of(page)
    assert printed.rows[0] == ["engine ft-ccl", "30.00", "20.50 ± 0.71", "", "1, 2"]
    assert printed.rows[2] == ["label spreading", "", "", "50.50 ± 0.71 in 12 s", "2"]
    assert check_table(printed) == 4
    for i, column, wrong in [(0, 2, "20.50 ± 0.72"), (0, 1, ""), (1, 4, "2"), (2, 3, "50.50 ± 0.71 in 13 s")]:
        rows = [list(row) for row in printed.rows]
        rows[i][column] = wrong
        with pytest.raises(AssertionError, match="but the runs say"):
            check_table(replace(printed, rows=rows))
    assert equal_minutes("a after 1", "b after 1")
    assert equal_minutes("a after 1", "b")
    assert not equal_minutes("a after 1", "a after 3")


def test_pages_have_the_tables_of_the_benchmarks(capsys: pytest.CaptureFixture[str]) -> None:
    """As `--report` prints them from the rows."""
    page = (ROOT / "docs" / "performance.md").read_text()
    networks.report(resumable.read(RESULTS / "networks" / "runs.csv"))
    rows = resumable.read(RESULTS / "pictures" / "runs.csv")
    tables = [t.markdown() for measure in pictures_report.MEASURES for t in pictures_report.tables(rows, measure)]
    lines = [line for text in (capsys.readouterr().out, *tables) for line in text.splitlines() if line.strip()]
    assert len(lines) > 20
    for line in lines:
        assert f"\n{line}\n" in page
    chosen = selection.table(resumable.read(RESULTS / "selection" / "runs.csv")).markdown()
    assert chosen in (ROOT / "docs" / "certainty.md").read_text()
