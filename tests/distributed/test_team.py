"""What processes tell each other, and a shared pass compared with the whole one in double precision."""

from __future__ import annotations

from typing import Any

import pytest
from distributed.teams import on_team

from certus.distributed.collectives import bounds
from certus.distributed.team import ALONE, is_loss, shared_out


@pytest.fixture(scope="module", params=[2, 3])
def said(request: pytest.FixtureRequest) -> list[Any]:
    return on_team(request.param, "several", ["agree", "passes", "oddities"])


def test_rank_0_tells_the_others(said: list[Any]) -> None:
    for rank, (found, _, _) in enumerate(said):
        assert (found["told"], found["agreed"], found["bytes"], found["nothing"]) == ("by rank 0", 0.1, True, True)
        assert found["failed"] == (["Told", "", 2] if rank else ["UsageError", "a sentence", 2])
        assert found["any"] == [[True, False], [False, True]]
        assert found["collected"] == [{"rank": r, "name": "ä" * r} for r in range(len(said))]


def test_work_is_shared_and_tensors_are_compared(said: list[Any]) -> None:
    for found, _, _ in said:
        assert found["each"]
        assert found["orthogonal"]
        assert "`b` of process 1 is not that of process 0" in found["unequal"]
        assert found["same"] == [0.0, 0.0]


def test_a_shared_pass_has_the_gradients_of_the_whole_one(said: list[Any]) -> None:
    """Of the weights, of the images (VAT) and of weights that are given to the pass (WCP), through batch norm."""
    for _, differences, _ in said:
        assert max(differences.values()) < 1e-10, differences


def test_noise_is_that_of_the_whole_batch(said: list[Any]) -> None:
    for _, _, found in said:
        assert found["usual"]
        assert found["last"]
        assert found["few"]
        assert found["evaluation"]
        assert "draws random numbers by rand" in found["refused"]


def test_rows_are_shared_out_evenly() -> None:
    for rows in range(20):
        parts = [bounds(rows, rank, 3) for rank in range(3)]
        assert [stop for _, stop in parts[:-1]] == [start for start, _ in parts[1:]]
        assert {stop - start for start, stop in parts} <= {rows // 3, -(-rows // 3)}


def test_the_largest_work_is_given_first() -> None:
    assert shared_out([1, 9, 3, 3, 2], 2) == [[1], [2, 3, 4, 0]]
    assert shared_out([1], 3) == [[0], [], []]


def test_alone_nothing_is_sent() -> None:
    assert ALONE.told(lambda: "text") == "text"
    assert ALONE.any(True, False) == (True, False)
    assert ALONE.collected(3) == [3]


def test_a_lost_process_is_told_from_other_errors() -> None:
    assert is_loss(RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1"))
    assert not is_loss(RuntimeError("shapes do not match"))
