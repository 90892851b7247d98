"""With any number of processes, every method takes the same steps within rounding, and all have the same weights."""

from __future__ import annotations

from typing import Any

import pytest
from distributed.teams import on_team
from distributed.work import first_steps

from certus.distributed.team import ALONE
from certus.methods import METHODS, PRETRAINING

AT_ONCE = {"ramp": 0.0, "start": 0.0}  # every term counts from the first step on
DRAWS = {"draws": "tree:1x2x3"}


def options(method: str, **more: Any) -> dict[str, Any]:
    known = METHODS[method].defaults() if method in METHODS else {}
    return {name: value for name, value in (AT_ONCE | more).items() if name in known}


PLAIN = [(method, options(method), {"network": "mlp", "width": 16}) for method in (*METHODS, *PRETRAINING)]
# ξ = 1, because a smaller step of the finite difference enlarges the rounding of batch statistics (docs/scaling.md)
NORMED = [
    (method, options(method, **more), {"network": "cnn13-small", "steps": 3, **settings})
    for method, more, settings in (
        ("ft-ccl", DRAWS, {}),
        ("pi-sntg", {}, {}),
        ("vat", {"xi": 1.0}, {}),
        ("wcp", {"xi": 1.0}, {}),
        ("mean-teacher-fastswa", {"turn": 1.0, "cycle": 1.0}, {"unlabelled_batch": 1100}),
        ("label-propagation", {"damp": True}, {}),
        ("co-training", {}, {}),
        ("mean-teacher", {"student_view": "strong"}, {"optimiser": "muon", "network": "sprint"}),
    )
]
DIFFERENCES = ("vat", "wcp")  # finite differences, which enlarge rounding
CASES = [*PLAIN, *NORMED]
Found = dict[int, list[Any]]


@pytest.fixture(scope="module")
def found() -> Found:
    """By number of processes, the answers of all ranks."""
    return {1: [first_steps(ALONE, CASES)], 2: on_team(2, "first_steps", CASES), 4: on_team(4, "first_steps", PLAIN)}


@pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{m} {s['network']}" for m, _, s in CASES])
def test_losses_and_weights_are_those_of_one_process(found: Found, case: int) -> None:
    alone, (method, _, settings) = found[1][0][case], CASES[case]
    close = 1e-5 if settings["network"] == "mlp" and method not in DIFFERENCES else 1e-3
    for team in (team for size, team in found.items() if size > 1 and case < len(team[0])):
        shared = team[0][case]
        for expected, losses in zip(alone["losses"], shared["losses"], strict=True):
            assert losses == pytest.approx(expected, rel=close, abs=1e-6)
        assert shared["sizes"] == pytest.approx(alone["sizes"], rel=close, abs=1e-5)


@pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{m} {s['network']}" for m, _, s in CASES])
def test_all_processes_have_the_same_bits(found: Found, case: int) -> None:
    for team in found.values():
        if case < len(team[0]):
            assert len({answers[case]["digest"] for answers in team}) == 1
