"""What one process of a team computes: the losses of the first steps of every method."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from builders import plain_config

from certus.distributed.team import Team
from certus.optimisers import state_tensors
from certus.training.build import build

SMALL = {
    "data": "digits",
    "labels": 20,
    "labelled_batch": 5,
    "unlabelled_batch": 18,
    "steps": 6,
    "width": 4,
    "learning_rate": 0.02,
}


def first_steps(team: Team, cases: list[tuple[str, dict[str, Any], dict[str, Any]]], steps: int = 3) -> list[Any]:
    """Of each case (method, options, settings): the losses by step, the sum of the weights, and a digest of all."""
    return [one(team, *case, steps) for case in cases]


def one(team: Team, method: str, options: dict[str, Any], settings: dict[str, Any], steps: int) -> dict[str, Any]:
    run = build(plain_config(method, options, **SMALL | settings), team=team)
    losses = [{name: float(loss) for name, loss in run.advance(number).items()} for number in range(steps)]
    tensors = {**run.method.state.state_dict(), **state_tensors(run.optimiser)}
    digest = sha256()
    for tensor in tensors.values():
        digest.update(tensor.contiguous().numpy().tobytes())
    sizes = {name: float(t.double().norm()) for name, t in run.method.state.state_dict().items()}
    return {"losses": losses, "sizes": sizes, "digest": digest.hexdigest()}
