"""Start a network from another run: from a pretraining run all weights but the head's, from any other all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from certus.errors import UsageError
from certus.training import checkpoint


def load_trunk(folder: Path) -> dict[str, Tensor]:
    """The weights of a run's first student, without its head."""
    found = checkpoint.read(folder / "checkpoints")
    if found is None:
        raise UsageError(f"{folder} holds no checkpoint to start from: make one with `certus pretrain`.")
    inside = checkpoint.part(found[0], "method.students.0.")
    return {name: t for name, t in inside.items() if not name.startswith("head.")}


def set_trunk(net: nn.Module, weights: dict[str, Tensor], source: str) -> None:
    """Put a trunk into a network. The head keeps its own initialisation."""
    own = {name: t.shape for name, t in net.state_dict().items() if not name.startswith("head.")}
    if own != {name: t.shape for name, t in weights.items()}:
        raise other_network(source)
    net.load_state_dict(weights, strict=False)


@torch.no_grad()
def go_on(
    net: nn.Module, weights: Mapping[str, Tensor], before: Sequence[str], classes: Sequence[str], source: str
) -> None:
    """Put all weights of a network into another, which may have other classes: the head's rows follow their names, and
    a new class keeps its own initialisation."""
    own = dict(net.state_dict())
    rows = [(classes.index(name), before.index(name)) for name in classes if name in before]
    for name, tensor in weights.items():
        if name not in own:
            raise other_network(source)
        if name.startswith("head.") and tensor.shape[:1] == (len(before),):
            new = own[name].clone()
            if new.shape[1:] != tensor.shape[1:] or len(new) != len(classes):
                raise other_network(source)
            for to, at in rows:
                new[to] = tensor[at]
            own[name] = new
        elif tensor.shape == own[name].shape:
            own[name] = tensor
        else:
            raise other_network(source)
    net.load_state_dict(own)


def other_network(source: str) -> UsageError:
    return UsageError(f"The run in {source} has another network than this one: use its `network` and `width`.")
