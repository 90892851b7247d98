"""What only a GPU can show: a training step never makes the CPU wait for it."""

from __future__ import annotations

import pytest
import torch

from certus.config import resolve
from certus.training.build import build
from certus.training.planning import complete

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.mark.parametrize("method", ["supervised", "mean-teacher", "ft-ccl", "fixmatch", "vat"])
def test_no_synchronisation_inside_a_step(method: str) -> None:
    run = build(complete(resolve({"data": "digits", "method": method, "device": "cuda", "steps": 20})))
    for number in range(3):  # twins are made and compared once
        run.advance(number)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for number in range(3, 6):
            run.advance(number)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_loss_that_is_not_finite_moves_no_weight() -> None:
    run = build(complete(resolve({"data": "digits", "method": "supervised", "device": "cuda", "steps": 20})))
    run.method.students[0].head.weight.data[0, 0] = float("nan")
    run.advance(0)
    assert all(torch.isfinite(p).all() for p in run.method.students[0].trunk.parameters())
