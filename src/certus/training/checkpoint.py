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

from certus.distributed.team import Team
from certus.errors import CertusError
from certus.writing import sync_folder, write_new

STATE, REST, DIGEST = "state.safetensors", "state.json", "sha256"
Meta = Mapping[str, Any]
Checkpoint = tuple[dict[str, Tensor], dict[str, Any]]


def write(folder: Path, step: int, tensors: Mapping[str, Tensor], meta: Meta) -> None:
    """Write beside, flush to disk, rename into place, then remove the older ones."""
    final, fresh = folder / f"step-{step:08d}", folder / f".step-{step:08d}.{os.getpid()}"
    if not final.exists():  # a run is deterministic: what is there is what would be written
        data = save({name: t.detach().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()})
        text = json.dumps({"step": step, **meta})
        try:
            write_folder(fresh, final, {STATE: data, REST: text, DIGEST: digest(data, text)})
        except OSError as e:
            shutil.rmtree(fresh, ignore_errors=True)
            raise CertusError(
                f"Cannot write a checkpoint to {folder}: {e.strerror or e}. The one before it is kept: make room, then "
                f"continue with `resume` {folder.parent}."
            ) from None
    for other in folder.iterdir():
        if other != final:
            shutil.rmtree(other, ignore_errors=True)


def write_folder(fresh: Path, final: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files into the folder `fresh` and rename it. The folder around it is made, but none above that."""
    if not final.parent.is_dir():
        final.parent.mkdir()
        sync_folder(final.parent.parent)
    shutil.rmtree(fresh, ignore_errors=True)  # of a killed process that had the same number
    fresh.mkdir()
    for name, content in files.items():
        write_new(fresh / name, content)
    sync_folder(fresh)
    fresh.rename(final)
    sync_folder(final.parent)


def read(folder: Path) -> Checkpoint | None:
    """The newest checkpoint, or None if there is none yet. A damaged one is refused."""
    found = sorted(folder.glob("step-*")) if folder.is_dir() else []
    if not found:
        return None
    newest = found[-1]
    try:
        data = (newest / STATE).read_bytes()
        text = (newest / REST).read_text()
        if digest(data, text) != (newest / DIGEST).read_text():
            raise CertusError(f"Checkpoint {newest} is damaged: it is not what was written.")
        return load(data), json.loads(text)
    except (OSError, ValueError, SafetensorError) as e:
        raise CertusError(f"Checkpoint {newest} cannot be read: {e}.") from None


def told(team: Team, folder: Path) -> Checkpoint | None:
    """The newest checkpoint, which rank 0 reads for all: the others may have no such folder."""
    if team.size == 1:
        return read(folder)

    def packed() -> bytes:
        if (found := read(folder)) is None:
            return b""
        text = json.dumps(found[1]).encode()
        return len(text).to_bytes(8, "big") + text + save(found[0])

    if not (data := team.told_bytes(packed)):
        return None
    end = 8 + int.from_bytes(data[:8], "big")
    return load(data[end:]), json.loads(data[8:end])


def recorded(folder: Path) -> dict[str, Any]:
    """What the newest checkpoint holds beside its tensors; empty if it cannot be read."""
    try:
        return (read(folder) or ({}, {}))[1]
    except CertusError:
        return {}


def digest(data: bytes, text: str) -> str:
    return sha256(data + text.encode()).hexdigest()


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names start with the prefix, without it."""
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
