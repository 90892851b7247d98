"""Comparisons of runs: from the results of each arm to its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from certus.config import Config
from certus.report.runs import Arm, error_of
from certus.report.statistics import Comparison, Row
from certus.text import printable

Results = Mapping[int, Mapping[str, Any]]  # what result.json holds, by seed


def compare_tasks(arms: Sequence[Arm]) -> list[Comparison]:
    """For each task a comparison of the arms that have a finished run."""
    finished = [arm for arm in arms if arm.results]
    tasks = groupby(finished, key=lambda arm: tuple(map(str, arm.task)))
    return [compare_results({arm.name: (arm.config, arm.results) for arm in group}) for _, group in tasks]


def compare_results(arms: Mapping[str, tuple[Config, Results]]) -> Comparison:
    """The arms of one task by name, each with its config and its results, which may be none.

    Errors are those on the test images, or on the validation images if the data set has no test images.
    """
    first, _ = next(iter(arms.values()))
    tested = all(result["test_error"] is not None for _, results in arms.values() for result in results.values())
    return Comparison(
        tuple(row_of(name, config, results) for name, (config, results) in arms.items()),
        data=printable(Path(first.data).name),
        labels=first.labels,
        label_noise=first.label_noise,
        validation=first.validation,
        measure="test error" if tested else "validation error",
    )


def row_of(name: str, config: Config, results: Results) -> Row:
    errors = {seed: error_of(result) for seed, result in results.items()}
    return Row(
        name,
        {seed: error for seed, error in errors.items() if error is not None},
        method=config.method,
        steps=config.steps,
        seconds=fmean(result["seconds"] for result in results.values()) if results else None,
        bytes=max((result.get("bytes", 0) for result in results.values()), default=None),
        options=config.options,
    )
