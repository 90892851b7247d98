"""Start a network from the trunk of a pretraining run: all its weights but the head's."""

from __future__ import annotations

from pathlib import Path

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
        raise UsageError(f"The run in {source} has another network than this one: use its `network` and `width`.")
    net.load_state_dict(weights, strict=False)
