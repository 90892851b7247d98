"""Checkpoints: tensors in safetensors, the rest in JSON; written whole or not at all.

checkpoints/step-00000440/state.safetensors
checkpoints/step-00000440/state.json          step, epoch sums
checkpoints/step-00000440/sha256              of both
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from certus.errors import CertusError

Meta = Mapping[str, Any]
Checkpoint = tuple[dict[str, Tensor], dict[str, Any]]


def write(folder: Path, step: int, tensors: Mapping[str, Tensor], meta: Meta) -> None:
    """Write beside, flush to disk, rename into place, then remove the older ones."""
    final, fresh = folder / f"step-{step:08d}", folder / f".step-{step:08d}.{os.getpid()}"
    if final.exists():  # a run is deterministic: what is there is what would be written
        return
    data = save({name: t.detach().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()})
    text = json.dumps({"step": step, **meta})
    try:
        fresh.mkdir(parents=True, exist_ok=True)
        flush(fresh / "state.safetensors", data)
        flush(fresh / "state.json", text.encode())
        flush(fresh / "sha256", digest(data, text).encode())
        fresh.rename(final)
        sync_folder(folder)
    except OSError as e:
        shutil.rmtree(fresh, ignore_errors=True)
        raise CertusError(
            f"Cannot write a checkpoint to {folder}: {e.strerror or e}. The one before it is kept: make room, then "
            f"continue with `resume` {folder.parent}."
        ) from None
    for other in folder.iterdir():
        if other != final:
            shutil.rmtree(other, ignore_errors=True)


def read(folder: Path) -> Checkpoint | None:
    """The newest checkpoint, or None if there is none yet. A damaged one is refused."""
    found = sorted(folder.glob("step-*")) if folder.is_dir() else []
    if not found:
        return None
    newest = found[-1]
    try:
        data = (newest / "state.safetensors").read_bytes()
        text = (newest / "state.json").read_text()
        if digest(data, text) != (newest / "sha256").read_text():
            raise CertusError(f"Checkpoint {newest} is damaged: it is not what was written.")
        return load(data), json.loads(text)
    except (OSError, ValueError, SafetensorError) as e:
        raise CertusError(f"Checkpoint {newest} cannot be read: {e}.") from None


def digest(data: bytes, text: str) -> str:
    return sha256(data + text.encode()).hexdigest()


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names start with the prefix, without it."""
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def flush(path: Path, data: bytes) -> None:
    with path.open("wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
