"""Comparisons against scipy and the standard library: means, intervals, p, the reference, and their three forms."""

from __future__ import annotations

import json
import statistics

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from certus.report.html import COLUMNS, comparison_rows, table_html
from certus.report.statistics import Comparison, Difference, Row, band, mean_std, paired

errors = st.floats(0.1, 100)
by_seed = st.dictionaries(st.integers(0, 9), errors, max_size=8)


@given(st.lists(st.tuples(errors, errors), min_size=2, max_size=8))
def test_a_paired_difference_is_scipys(pairs: list[tuple[float, float]]) -> None:
    mine, theirs = ({seed: pair[side] for seed, pair in enumerate(pairs)} for side in (0, 1))
    found = paired(mine, theirs)
    differences = [a - b for a, b in pairs]
    assert found.n == len(pairs)
    assert found.mean == pytest.approx(statistics.fmean(differences), abs=1e-9)
    before, after = sum(theirs.values()), sum(mine.values())
    assert found.reduction == pytest.approx(100 * (before - after) / before)
    if statistics.stdev(differences) > 1e-6:
        test = scipy.stats.ttest_rel(*zip(*pairs, strict=True))
        interval = test.confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-6)
        assert found.p == pytest.approx(test.pvalue)


@pytest.mark.parametrize("comparisons", [1, 2, 30])
def test_intervals_of_several_comparisons_hold_together(comparisons: int) -> None:
    """Bonferroni: each leaves out its part of the 5 %."""
    mine, theirs = {0: 3.0, 1: 4.5, 2: 4.0}, {0: 5.0, 1: 5.5, 2: 7.0}
    rows = (Row("a", mine), Row("b", theirs))
    comparison = Comparison(rows, comparisons=comparisons)
    test = scipy.stats.ttest_rel(list(mine.values()), list(theirs.values()))
    interval = test.confidence_interval(1 - 0.05 / comparisons)
    found = comparison.difference("a", "b")
    assert found
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert (f"corrected for {comparisons} comparisons" in comparison.table().caption) == (comparisons > 1)


@given(by_seed, by_seed)
def test_only_seeds_that_both_have_are_paired(mine: dict[int, float], theirs: dict[int, float]) -> None:
    common = mine.keys() & theirs.keys()
    found = paired(mine, theirs)
    assert found == paired({s: mine[s] for s in common}, {s: theirs[s] for s in common})
    assert found.n == len(common)
    assert (found.mean is None) == (not common)
    assert (found.low is None) == (len(common) < 2)


def test_a_difference_of_few_or_equal_values() -> None:
    assert paired({0: 5.0}, {0: 4.0}) == Difference(1, 1.0, reduction=-25.0)
    assert paired({0: 5.0}, {1: 4.0}) == Difference(0)
    same = paired({0: 1.0, 1: 2.0}, {0: 3.0, 1: 4.0})
    assert (same.mean, same.low, same.high, same.p) == (-2.0, -2.0, -2.0, None)
    assert paired({0: 1.0, 1: 2.0}, {0: 0.0, 1: 0.0}).reduction is None
    assert [str(d) for d in (Difference(0), Difference(1, -1.0), Difference(2, 0.5, -0.25, 1.25))] == [
        *("", "−1.00", "+0.50 [−0.25, +1.25]")
    ]


@given(st.dictionaries(st.text("abc", min_size=1), by_seed, min_size=1, max_size=4))
def test_a_row_is_the_standard_librarys_mean_and_std(found: dict[str, dict[int, float]]) -> None:
    comparison = Comparison(tuple(Row(name, values) for name, values in found.items()))
    for name, values in found.items():
        row = comparison[name]
        assert row.n == len(values)
        assert row.preliminary == (len(values) < 3)
        assert row.mean == (pytest.approx(statistics.fmean(values.values())) if values else None)
        assert row.std == (pytest.approx(statistics.stdev(values.values())) if len(values) > 1 else None)
    assert mean_std([4.0]) == (4.0, None)


@pytest.mark.parametrize(
    ("rows", "reference"),
    [
        ([("ft-ccl", 9, 1), ("supervised", 5, 1), ("supervised, longer", 7, 1)], "supervised, longer"),
        ([("supervised, longer", 7, 1), ("ft-ccl", 9, 1), ("supervised", 5, 1)], "supervised, longer"),
        ([("ft-ccl", 9, 1), ("supervised, longer", 7, 0), ("supervised", 5, 1)], "supervised"),
        ([("mean-teacher", 9, 1), ("ft-ccl", 9, 1)], "mean-teacher"),
        ([("mean-teacher", 9, 0), ("ft-ccl", 9, 1)], "ft-ccl"),
        ([("mean-teacher", 9, 0), ("ft-ccl", 9, 0)], "mean-teacher"),
    ],
)
def test_the_reference_is_the_longest_supervised_row_with_a_result_or_else_the_first(
    rows: list[tuple[str, int, int]], reference: str
) -> None:
    made = tuple(
        Row(name, {0: 10.0} if finished else {}, method=name.split(",")[0], steps=steps)
        for name, steps, finished in rows
    )
    assert Comparison(made).reference == reference
    assert Comparison(made).difference(reference) is None


THREE = Comparison(
    (
        Row("supervised", {0: 20.0, 1: 24.0, 2: 22.0}, "supervised", 100, 5.0, 1000),
        Row("mean-teacher", {0: 16.0, 1: 15.0, 2: 14.0}, "mean-teacher", 100, 10.0, 4000, {"decay": 0.99}),
        Row("ft-ccl", {0: 19.0, 1: 17.0}, "ft-ccl", 100, 20.0, 5000),
        Row("pi", {}, "pi", 100),
    ),
    data="digits",
    labels=20,
    validation=200,
)


def test_str_is_a_markdown_table() -> None:
    interval = scipy.stats.ttest_rel([16, 15, 14], [20, 24, 22]).confidence_interval()
    low, high = (f"{v:+.2f}".replace("-", "−") for v in (interval.low, interval.high))
    assert str(THREE).splitlines() == [
        "| method | test error (%) | n | difference to supervised |",
        "| --- | --- | --- | --- |",
        "| supervised | 22.00 ± 2.00 | 3 |  |",
        f"| mean-teacher | 15.00 ± 1.00 | 3 | −7.00 [{low}, {high}] |",
        "| ft-ccl | 18.00 ± 1.41 | 2 (preliminary) | −4.00 [−42.12, +34.12] |",
        "| pi | – | 0 |  |",
    ]
    several = THREE.table(["mean-teacher", "unknown", "supervised"], cost=True)
    assert several.heads[3:] == ("difference to mean-teacher", "difference to supervised", "time ×", "memory ×")
    assert several.rows[0][-2:] == ("0.50", "0.25")
    assert several.rows[3][-2:] == ("–", "–")
    assert "Preliminary: fewer than 3 seeds" in several.caption
    with pytest.raises(KeyError, match="unknown"):
        THREE["unknown"]
    alone = Comparison(THREE.rows[:1]).table()
    assert alone.heads == ("method", "test error (%)", "n")
    assert "paired" not in alone.caption


def test_html_has_the_cells_of_the_text_with_p_and_error_reduction() -> None:
    table = THREE.table(details=True)
    assert table.heads[-2:] == ("p", "error reduction")
    page = table_html(table)
    p = scipy.stats.ttest_rel([16, 15, 14], [20, 24, 22]).pvalue
    for text in (
        "15.00 ± 1.00",
        f"{p:.3f}",
        f"{100 * (66 - 45) / 66:.1f} %",
        '2 <span class="mark">preliminary</span>',
    ):
        assert f">{text}</td>" in page
    assert "&lt;" in table_html(Comparison((Row("<b>", {0: 1.0}),)).table())
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in comparison_rows(THREE)]
    assert rows[1]["difference"] == -7
    assert rows[0]["difference"] is None
    assert {row["reference"] for row in rows} == {"supervised"}


def test_json_has_the_keys_that_users_read() -> None:
    found = json.loads(json.dumps(THREE.as_dict()))
    assert {"data", "labels", "validation", "reference", "cost_reference", "methods"} <= found.keys()
    assert (found["reference"], found["cost_reference"]) == ("supervised", "mean-teacher")
    teacher = found["methods"]["mean-teacher"]
    assert teacher["test_error"] == {"0": 16.0, "1": 15.0, "2": 14.0}
    assert {"mean", "std", "n", "seconds", "steps", "seconds_per_step", "bytes", "options"} <= teacher.keys()
    assert teacher["seconds_per_step"] == 0.1
    assert {"n", "mean", "low", "high", "p", "reduction"} == teacher["difference"].keys()
    assert found["methods"]["supervised"]["difference"] is None
    untested = Comparison((Row("pi", {0: 3.0}),), measure="validation error")
    assert untested.as_dict()["methods"]["pi"]["validation_error"] == {"0": 3.0}
    assert "validation error (%)" in str(untested)


def test_a_band_is_the_mean_of_the_seeds_that_have_come_so_far() -> None:
    found = band([{1: 2.0, 2: 4.0}, {1: 4.0}])
    assert found["mean"].tolist() == [3.0, 4.0]
    assert found["std"].tolist() == pytest.approx([2**0.5, 0.0])
    assert found["n"].tolist() == [2, 1]
