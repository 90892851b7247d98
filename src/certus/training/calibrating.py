"""The calibration of a run: the held-out pictures that it is made from, and the file that keeps it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from typing import Any

from torch import nn

from certus.certainty.calibration import Calibration, Level
from certus.certainty.metrics import METRICS, UNDRAWN
from certus.config import Config, split_of
from certus.data import Part, load
from certus.errors import CertusError, UsageError
from certus.training.artefacts import CALIBRATION, read_record, sealed
from certus.training.run_folder import RunFolder
from certus.writing import put_json

notices = logging.getLogger("certus")


def weights_digest(nets: Sequence[nn.Module]) -> str:
    """Of all tensors of these networks, by name."""
    found = sha256()
    for net in nets:
        for name, tensor in net.state_dict().items():
            found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            found.update(tensor.detach().cpu().contiguous().numpy().data)
    return found.hexdigest()[:16]


def validation_part(folder: RunFolder, config: Config) -> Part:
    """The labelled pictures, as they are stored, that the run never learnt from."""
    data = load(config.data, config.data_dir, config.size, config.fit)
    parts, drawn = split_of(config, data), folder.load_split()
    if (drawn["fingerprint"], drawn["labelled"]) != (data.fingerprint, parts.labelled.tolist()):
        raise UsageError(f"{config.data} has changed since the run in {folder.path} began: restore the data.")
    if len(parts.validation):
        return Part(data.train.images[parts.validation], data.train.labels[parts.validation])
    if data.validation and len(data.validation):
        return data.validation
    raise UsageError(
        f"{folder.path} has no validation labels, so nothing can be promised about its answers: train with more "
        "labels, or set `validation` to a number of labels that are held out."
    )


def write_calibration(folder: RunFolder, calibration: Calibration) -> None:
    put_json(folder.calibration, sealed(asdict(calibration)))


def read_calibration(folder: RunFolder, weights: str) -> Calibration | None:
    """The calibration of these weights; None, with a notice, if the run has learnt since."""
    if not folder.calibration.exists():
        return None
    remedy = f"remove it, and calibrate {folder.path} again"
    try:
        found = calibration_of(read_record(folder.calibration, CALIBRATION, remedy))
    except ValueError as e:
        raise CertusError(f"{folder.calibration} is damaged ({e}): {remedy}.") from None
    if found.weights != weights:
        notices.warning(
            "%s is of other weights than the run has now, so it is not used: calibrate again.", folder.calibration
        )
        return None
    return found


def calibration_of(record: Mapping[str, Any]) -> Calibration:
    """From a record of the right form; ValueError if its numbers make no sense."""
    named = {**record, "chosen": Level(**record["chosen"]), "levels": tuple(Level(**v) for v in record["levels"])}
    found = Calibration(**{**named, "log_loss": tuple(record["log_loss"])})
    if found.metric not in (*METRICS, *UNDRAWN):
        raise ValueError(f"there is no metric {found.metric!r}")
    if not found.temperature > 0 or not 0 < found.error < 1 or not 0 < found.confidence < 1 or found.draws < 0:
        raise ValueError("its numbers are out of range")
    return found
