"""What is published says what its runs say: no figure in results/ without a run behind it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from certus.config import Config, resolve
from certus.report.statistics import compared

RESULTS = Path(__file__).parents[1] / "results"
TABLES = sorted(RESULTS.glob("*/*/results.json"))


def test_something_is_published() -> None:
    assert TABLES


@pytest.mark.parametrize("file", TABLES, ids=lambda f: "-".join(f.parts[-3:-1]))
def test_every_figure_is_that_of_the_runs(file: Path) -> None:
    runs = file.parents[1] / "runs"
    for task, table in json.loads(file.read_text())["tasks"].items():
        for arm, row in table["arms"].items():
            folder = arm.replace(", ", "-").replace(" ", "-")
            found = {
                seed: json.loads((runs / task / f"{folder}-seed{seed}" / "result.json").read_text())["test_error"]
                for seed in map(int, row["test_error"])
            }
            assert {int(s): e for s, e in row["test_error"].items()} == found
            assert {k: row[k] for k in ("mean", "std", "n", "preliminary")} == compared(found, None)
            mark = " (preliminary)" * (row["n"] < 3)
            mean = f"{row['mean']:.2f}" + (f" ± {row['std']:.2f}" if row["std"] is not None else "")
            assert f"| {arm} | {mean}{mark} | {row['n']} |" in file.with_suffix(".md").read_text()


@pytest.mark.parametrize("file", sorted(RESULTS.rglob("config.toml")), ids=lambda f: "/".join(f.parts[-3:-1]))
def test_every_run_can_be_run_again(file: Path) -> None:
    config = resolve(Config.read(file))
    assert config.data_dir == ""
    assert f"-seed{config.seed}" in file.parent.name


def test_nothing_large_and_no_weights() -> None:
    files = [f for f in RESULTS.rglob("*") if f.is_file()]
    assert {f.suffix for f in files} <= {".md", ".json", ".jsonl", ".toml", ".csv", ".png"}
    assert sum(f.stat().st_size for f in files) < 20e6


FIGURE = re.compile(r"\d+\.\d+ ± \d+\.\d+|[-+]\d+\.\d+ \[[-+]\d+\.\d+, [-+]\d+\.\d+\]")


def told(file: Path, section: str = "") -> list[tuple[str, str]]:
    """Every mean ± std and every difference with its interval in a page's tables, with the first word of its row."""
    text = file.read_text().replace("−", "-")
    part = text[text.index(section) :].split("\n## ", 1)[0] if section else text
    rows = [line for line in part.splitlines() if line.startswith("|")]
    return [(row.split("|")[1].strip(), figure) for row in rows for figure in FIGURE.findall(row)]


@pytest.mark.parametrize(
    ("page", "section"), [(RESULTS / "README.md", ""), (RESULTS.parent / "README.md", "## What the evidence says")]
)
def test_what_the_pages_tell_stands_in_the_tables(page: Path, section: str) -> None:
    found = told(page, section)
    assert len(found) > 10
    lines = [line for file in TABLES for line in file.with_suffix(".md").read_text().splitlines()]
    for name, figure in found:
        of_arm = [line for line in lines if line.startswith(f"| {name} |")] or lines
        assert any(figure in line for line in of_arm), f"{name}: {figure}"
