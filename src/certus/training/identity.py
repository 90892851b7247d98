"""What a run is: its settings, split and model. split.json and checkpoints keep it, and only the same may continue."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from certus.config import Config
from certus.config.run_file import UNSEALED
from certus.errors import CertusError
from certus.methods.recipe import shown
from certus.training.run import Run

MOVABLE = ("data", "data_dir")  # where the data are; the split's digest tells whether they are the same
MOST = 5  # differences that are named


def identity(run: Run) -> dict[str, Any]:
    """To be kept: the settings themselves, so that a difference can be named, and digests of the rest."""
    return {"settings": settings_of(run.config), "split": split_digest(run), "model": model_digest(run)}


def settings_of(config: Config) -> dict[str, Any]:
    """As JSON gives them back."""
    return json.loads(json.dumps(asdict(config), default=str))


def split_digest(run: Run) -> str:
    """Of the images, which of them are labelled, unlabelled and for validation, and the labels as the run sees them."""
    digest = sha256(run.data.fingerprint.encode())
    for part in (run.split.labelled, run.split.unlabelled, run.split.validation, run.labels):
        digest.update(f"{len(part)} ".encode() + part.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def model_digest(run: Run) -> str:
    """Of the names, shapes and types of its tensors."""
    state = run.method.state.state_dict()
    return sha256(repr([(name, tuple(t.shape), str(t.dtype)) for name, t in state.items()]).encode()).hexdigest()


def check_identity(meta: Mapping[str, Any], run: Run, folder: Path) -> None:
    """Refuse other settings, another split or another model than a run's; those of certus 0.1.0 have no identity."""
    if (trained := meta.get("identity")) is None:
        return
    check_settings(meta, run.config, folder, MOVABLE)
    if trained["split"] != split_digest(run):
        raise CertusError(
            f"The images or labels are not those that the run in {folder} was trained on: restore the data as they "
            "were, or start a new run."
        )
    if trained["model"] != model_digest(run):
        raise CertusError(
            f"The run in {folder} is of another model: its tensors have other names or shapes. Continue the run "
            "with the version of certus that began it."
        )


def check_settings(meta: Mapping[str, Any], config: Config, folder: Path, except_for: Sequence[str] = UNSEALED) -> None:
    """Refuse settings other than those that a checkpoint was trained with."""
    if (trained := meta.get("identity")) is None:
        return
    now = settings_of(config)
    if found := differences(trained["settings"], now, except_for):
        raise CertusError(
            f"{folder / 'config.toml'} does not have the settings that the run was trained with: {found}. Restore "
            "them, or start a new run."
        )


def differences(old: Mapping[str, Any], new: Mapping[str, Any], except_for: Sequence[str] = ()) -> str:
    """`learning_rate` is 0.2, but was 0.1; … A setting that the old ones do not have is a newer one, and is no
    difference."""
    before, after = ({**s, **s.get("options", {})} for s in (old, new))
    unlike = [
        f"`{name}` is {shown(after[name])}, but was {shown(value)}" if name in after else f"`{name}` is missing"
        for name, value in before.items()
        if name not in ("options", *except_for) and (name not in after or after[name] != value)
    ]
    more = f"; and {len(unlike) - MOST} more" if len(unlike) > MOST else ""
    return "; ".join(unlike[:MOST]) + more
