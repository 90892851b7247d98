"""The grammar of what is searched, against naive readings."""

from __future__ import annotations

from contextlib import suppress
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certus.errors import UsageError
from certus.experiments.sweep_space import Axis, Space, parse_axes, parse_axis

KINDS: dict[str, type] = {"weight": float, "width": int, "flip": bool, "pace": str}
numbers = st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-6)


@given(st.tuples(numbers, numbers).filter(lambda pair: pair[0] < pair[1]), st.booleans())
def test_a_range_of_numbers_is_read_as_it_is_written(ends: tuple[float, float], log: bool) -> None:
    low, high = ends
    text = f"weight={low!r}..{high!r}{':log' * log}"
    if log and low <= 0:
        with pytest.raises(UsageError, match="must begin above 0"):
            parse_axis(text, KINDS)
        return
    axis = parse_axis(text, KINDS)
    assert axis == Axis("weight", float, (), low, high, log)
    assert parse_axis(axis.text, KINDS) == axis
    assert axis.holds(low)
    assert axis.holds(high)
    assert not axis.holds(high + abs(high) + 1)
    assert (axis.position(low), axis.position(high)) == (0, 1)


@given(st.lists(st.integers(-10_000, 10_000), min_size=1, max_size=6, unique=True))
def test_values_are_read_in_their_order(values: list[int]) -> None:
    axis = parse_axis("width=" + ", ".join(map(str, values)), KINDS)
    assert list(axis.choices) == values
    assert parse_axis(axis.text, KINDS) == axis
    if len(values) > 1:
        for value in values:
            at_an_end = value in (min(values), max(values))
            outside = axis.beyond(value)
            assert (outside is not None) == at_an_end
            assert outside is None or not min(values) <= outside <= max(values)
            assert outside is None or isinstance(outside, int)
        with pytest.raises(UsageError, match="twice"):
            parse_axis(f"{axis.text},{values[0]}", KINDS)


@given(st.text(max_size=12), st.sampled_from([*KINDS, "labels", "wight", ""]))
def test_any_text_is_read_or_refused_in_a_sentence(values: str, name: str) -> None:
    with suppress(UsageError):  # nothing else may be raised
        axis = parse_axis(f"{name}={values}", KINDS)
        assert axis.name in KINDS
        assert all(type(value) is KINDS[axis.name] for value in axis.extremes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("weight", "`set` takes NAME=LOW..HIGH"),
        ("weight=", "`set` takes NAME=LOW..HIGH"),
        ("=1,2", "`set` takes NAME=LOW..HIGH"),
        ("wieght=1,2", "There is no setting or option of these methods 'wieght'. Did you mean 'weight'?"),
        ("weight=30..1", "an empty range: 30.0 is not less than 1.0"),
        ("weight=3..3", "an empty range"),
        ("weight=0..3:log", "must begin above 0, but begins at 0.0"),
        ("weight=1..x", "needs a number for weight, but has 'x'"),
        ("weight=1,,2", "needs a number for weight, but has ''"),
        ("weight=1..inf", "needs a number for weight, but has 'inf'"),
        ("width=1.5,2", "needs a whole number for width, but has '1.5'"),
        ("width=9" + "9" * 5000, "needs a whole number for width"),
        ("flip=maybe", "needs on or off for flip, but has 'maybe'"),
        ("flip=on..off", "cannot search a range of flip"),
        ("seed=1,2", "cannot search seed: all trials are measured on the same labels"),
        ("method=pi", "cannot search method: name several in `methods`"),
    ],
)
def test_what_cannot_be_searched_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_axis(text, KINDS)
    assert message in str(refused.value)


def test_flags_and_python_names_and_switches() -> None:
    axes = parse_axes(["learning-rate=0.1,1", "flip=on,off", "pace=linear,cosine", "weight=1..30:log"], ["pi"])
    assert [axis.name for axis in axes] == ["learning_rate", "flip", "pace", "weight"]
    assert axes[1].choices == (True, False)
    assert axes[2].choices == ("linear", "cosine")
    with pytest.raises(UsageError, match="`set` names weight twice"):
        parse_axes(["weight=1,2", "weight=3"], ["pi"])
    with pytest.raises(UsageError, match="'heat'"):
        parse_axes(["heat=1,2"], ["pi"])  # it has none


def test_the_edge_of_a_range_is_a_twentieth_of_its_scale() -> None:
    log, plain = Axis("weight", float, (), 1.0, 10_000.0, True), Axis("weight", float, (), 0.0, 100.0)
    assert [log.beyond(x) is None for x in (1.0, 1.5, 1.7, 100.0, 6000.0, 7000.0)] == [False] * 2 + [True] * 3 + [False]
    assert [plain.beyond(x) is None for x in (0, 4.9, 5.1, 94.9, 95.1)] == [False, False, True, True, False]
    assert log.beyond(1.0) < 1 < 10_000 < log.beyond(9999.0)
    assert plain.beyond(1.0) < 0
    assert Axis("pace", str, ("linear", "cosine")).beyond("linear") is None
    assert Axis("weight", float, (3.0,)).beyond(3.0) is None


def test_corners_hold_every_pair_and_a_grid_every_point() -> None:
    axes = (Axis("a", int, (1, 2, 3)), Axis("b", float, (), 0.1, 0.5), Axis("c", bool, (True, False)))
    corners = Space(axes).corners()
    for one, other in combinations(axes, 2):
        for pair in product(one.extremes, other.extremes):
            assert any((corner[one.name], corner[other.name]) == pair for corner in corners)
    assert Space(axes).size == float("inf")
    grid = Space((axes[0], axes[2]))
    points: list[dict[str, Any]] = [grid.point(i) for i in range(int(grid.size))]
    assert points == [{"a": a, "c": c} for a in (1, 2, 3) for c in (True, False)]
    assert Space(()).size == 1
    assert Space(()).point(0) == {}
