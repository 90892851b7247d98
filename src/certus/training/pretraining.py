"""Start a network from another one's trunk: the weights of a pretraining run, without its head."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from certus.errors import UsageError
from certus.training import checkpoint


def load_trunk(folder: Path) -> dict[str, Tensor]:
    """The weights of the first student of a run, its head left out."""
    found = checkpoint.read(folder / "checkpoints")
    if found is None:
        raise UsageError(f"{folder} holds no checkpoint to start from: make one with certus pretrain --out {folder}.")
    inside = checkpoint.part(found[0], "method.students.0.")
    return {name: t for name, t in inside.items() if not name.startswith("head.")}


def set_trunk(net: nn.Module, weights: dict[str, Tensor], source: str) -> None:
    """Put a trunk into a network, whose head keeps its own initialisation."""
    own = {name: t.shape for name, t in net.state_dict().items() if not name.startswith("head.")}
    if own != {name: t.shape for name, t in weights.items()}:
        raise UsageError(
            f"The run in {source} has another network than this one: give the --network and --width that it has."
        )
    net.load_state_dict(weights, strict=False)
