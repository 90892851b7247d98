"""What the processes of a team do in these tests. Each function returns plain values."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from builders import plain_config
from torch import Tensor, nn
from torch.nn import functional as F

from certus.cli.main import main
from certus.distributed.batch_norm import batch_norm
from certus.distributed.team import Team
from certus.errors import CertusError, Interrupted, UsageError
from certus.optimisers import state_tensors
from certus.optimisers.muon import orthogonalised
from certus.training.build import build
from certus.training.loop import Tick, train
from certus.training.run_folder import RunFolder

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
    """Of each case (method, options, settings): the losses by step, the size of each tensor, and a digest of all."""
    return [steps_of(team, *case, steps) for case in cases]


def steps_of(team: Team, method: str, options: dict[str, Any], settings: dict[str, Any], steps: int) -> dict[str, Any]:
    run = build(plain_config(method, options, **SMALL | settings), team=team)
    losses = [{name: float(loss) for name, loss in run.advance(number).items()} for number in range(steps)]
    state = run.method.state.state_dict()
    sizes = {name: float(t.double().norm()) for name, t in state.items()}
    return {"losses": losses, "sizes": sizes, "digest": digest({**state, **state_tensors(run.optimiser)})}


def digest(tensors: dict[str, Tensor]) -> str:
    found = sha256()
    for name in sorted(tensors):
        found.update(tensors[name].contiguous().numpy().tobytes())
    return found.hexdigest()


def several(team: Team, names: list[str]) -> list[Any]:
    """What several of the functions here give, by one start of the team."""
    return [globals()[name](team) for name in names]


def agree(team: Team) -> dict[str, Any]:
    """Texts, numbers, flags and tensors that go from process to process."""

    def fail() -> str:
        raise UsageError("a sentence")

    found: dict[str, Any] = {"told": team.told(lambda: "by rank 0"), "agreed": team.agreed(team.rank + 0.1)}
    found["bytes"] = team.told_bytes(lambda: bytes(range(200)) * 50) == bytes(range(200)) * 50
    found["nothing"] = team.told_bytes(lambda: b"") == b""
    try:
        team.told(fail)
    except CertusError as e:
        found["failed"] = [type(e).__name__, str(e), e.exit_code]
    found["any"] = [team.any(team.rank == 1, False), team.any(False, team.rank == 0)]
    found["collected"] = team.collected({"rank": team.rank, "name": "ä" * team.rank})
    items = [torch.full((n, 3), float(n)) for n in (1, 5, 2, 4, 3)]
    doubled = team.each(lambda x: 2 * x.sum(1), items)
    found["each"] = all(torch.equal(a, 2 * b.sum(1)) for a, b in zip(doubled, items, strict=True))
    matrices = [torch.randn(4, n, generator=torch.Generator().manual_seed(n)) for n in (3, 7, 5)]
    shared = team.each(orthogonalised, matrices)
    found["orthogonal"] = all(torch.equal(a, orthogonalised(m)) for a, m in zip(shared, matrices, strict=True))
    tensors = {"b": torch.full((2,), float(team.rank)), "a": torch.eye(3)}
    try:
        team.check_equal(tensors, "now")
    except CertusError as e:
        found["unequal"] = str(e)
    team.same(tensors)
    team.check_equal(tensors, "now")
    found["same"] = tensors["b"].tolist()
    return found


def passes(team: Team) -> dict[str, float]:
    """The largest differences between a pass that is shared and the whole one, in double precision."""
    net = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.4), nn.Flatten(), nn.Linear(48, 4)
    )
    torch.manual_seed(0)
    for p in net.parameters():
        nn.init.normal_(p)
    net.double()
    x = torch.randn(11, 2, 6, 6, dtype=torch.float64)
    other = {name: p.detach() + 0.1 for name, p in net.named_parameters()}

    def parts(call: Callable[..., Tensor]) -> list[Tensor]:
        """Loss, its gradient in the weights, in the images, and in weights that are given to a pass."""
        images, given = x.clone().requires_grad_(), {n: w.clone().requires_grad_() for n, w in other.items()}
        torch.manual_seed(7)
        net.load_state_dict(start)
        loss = call(images, None).square().sum() + call(images, given).sin().sum()
        weights = list(net.parameters())
        found = torch.autograd.grad(loss, [*weights, images, *given.values()])
        return [loss.detach(), *found, *(b.clone().double() for b in net.buffers())]

    start = {name: t.clone() for name, t in net.state_dict().items()}

    def whole(images: Tensor, given: dict[str, Tensor] | None) -> Tensor:
        return net(images) if given is None else torch.func.functional_call(net, given, (images,))

    def shared(images: Tensor, given: dict[str, Tensor] | None) -> Tensor:
        rows = team.rows
        with rows.batch(len(images)):
            part = whole(rows.own(images), None if given is None else dict(rows.weights(given)))
        return rows.joined(part, len(images))

    n = len(list(net.parameters()))
    expected, found = parts(whole), parts(shared)
    for i in range(1, n + 1):  # what DistributedDataParallel does
        torch.distributed.all_reduce(found[i])
        found[i] /= team.size
    names = ["loss", *(f"weight {i}" for i in range(n)), "images", *(f"given {i}" for i in range(n))]
    names += [f"buffer {i}" for i in range(len(found) - len(names))]
    return {name: float((a - b).abs().max()) for name, a, b in zip(names, expected, found, strict=True)}


def oddities(team: Team) -> dict[str, Any]:
    """Batches of fewer rows than processes, a network with other noise, and dropout in both memory formats."""
    few = torch.randn(1, 3, requires_grad=True)
    found: dict[str, Any] = {"few": torch.equal(team.rows.joined(team.rows.own(few), 1), few)}
    try:
        with team.rows.batch(10):
            torch.rand(3)
    except UsageError as e:
        found["refused"] = str(e)
    for name, kind in (("usual", torch.contiguous_format), ("last", torch.channels_last)):
        x = torch.randn(7, 4, 3, 3, generator=torch.Generator().manual_seed(1)).contiguous(memory_format=kind)
        torch.manual_seed(3)
        whole = F.dropout(x, 0.5)
        torch.manual_seed(3)
        with team.rows.batch(7):
            part = F.dropout(team.rows.own(x), 0.5)
        found[name] = torch.equal(team.rows.joined(part, 7), whole)
    with torch.no_grad():
        plain = batch_norm(torch.ones(2, 3), torch.zeros(3), torch.ones(3))
    found["evaluation"] = torch.allclose(plain, F.batch_norm(torch.ones(2, 3), torch.zeros(3), torch.ones(3)))
    return found


def train_until(team: Team, folder: str, settings: dict[str, Any], stop: int = 0) -> str:
    """Train a run in its folder; rank 1 asks all to stop after step `stop`. How it ended."""
    path = RunFolder(Path(folder))
    config = path.load_config() if path.exists() else plain_config("ft-ccl", {"ramp": 0.0}, **SMALL | settings)
    run = build(config, path, team)

    def listen(tick: Tick) -> None:
        if tick.step == stop and team.rank == min(1, team.size - 1):
            os.kill(os.getpid(), 2)

    try:
        train(run, path, listen)
    except Interrupted as e:
        return str(e)
    return "finished"


def command(team: Team, words: list[str]) -> list[Any]:
    """The exit code of a command line, and what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    return [code, out.getvalue(), err.getvalue(), team.rank]
