"""A model as a folder in the way of Hugging Face: model.safetensors and config.json, without what training needs.

config.json has the keys that other programs look for (model_type, id2label, image_size, …) and what builds the
networks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from certus import __version__
from certus.certainty.calibration import Calibration
from certus.config import Config, resolve
from certus.data import DATASETS
from certus.errors import CertusError, UsageError
from certus.training import artefacts
from certus.training.artefacts import read_record, read_tensors, sealed, tensor_bytes
from certus.training.calibrating import calibration_of
from certus.training.identity import settings_of
from certus.training.run_folder import RunFolder, with_newer
from certus.writing import make_folder, put, put_json

CONFIG, WEIGHTS = "config.json", "model.safetensors"
REMEDY = "restore it from a copy, or export the run again"
FORM = {
    "model_type": str,
    "settings": {"options": {}, "method": str},
    "model": artefacts.MODEL,
    "calibration": (artefacts.CALIBRATION, None),
}


class Portable(NamedTuple):
    """What such a folder holds."""

    config: Config
    about: Mapping[str, Any]  # as in model.json
    tensors: Mapping[str, Tensor]
    calibration: Calibration | None


def is_portable(path: Path) -> bool:
    return (path / CONFIG).is_file() and (path / WEIGHTS).is_file() and not RunFolder(path).exists()


def write_portable(
    path: Path, folder: RunFolder, config: Config, tensors: Mapping[str, Tensor], calibration: Calibration | None
) -> int:
    """Write the folder; the bytes of its weights."""
    if path.is_file() or RunFolder(path).exists():
        raise UsageError(f"{path} is a {'file' if path.is_file() else 'run'}: give another folder as `out`.")
    about = folder.load_model()
    classes, shape = about["classes"], about["shape"]
    name = Path(config.data).name
    settings = {**settings_of(config), "data": name if name in DATASETS else f"./{name}", "data_dir": ""}
    record = {
        "model_type": "certus",
        "architectures": ["certus.Model"],
        "certus_version": __version__,
        "id2label": {str(i): c for i, c in enumerate(classes)},
        "label2id": {c: i for i, c in enumerate(classes)},
        **({"image_size": shape[1], "num_channels": shape[0]} if len(shape) == 3 else {"input_size": shape[0]}),
        "settings": settings,
        "model": about,
        "calibration": asdict(calibration) if calibration else None,
    }
    data = tensor_bytes({name: t.detach().cpu() for name, t in tensors.items()})
    make_folder(path)
    put(path / WEIGHTS, data)
    put_json(path / CONFIG, sealed(record))
    return len(data)


def read_portable(path: Path) -> Portable:
    record = read_record(path / CONFIG, FORM, REMEDY)
    if record["model_type"] != "certus":
        raise UsageError(f"{path} is a model of {record['model_type']}, which certus cannot read.")
    try:
        calibration = calibration_of(record["calibration"]) if record["calibration"] else None
    except ValueError as e:
        raise CertusError(f"{path / CONFIG} is damaged ({e}): {REMEDY}.") from None
    tensors = read_tensors(path / WEIGHTS, REMEDY, lambda _: "")
    return Portable(resolve(with_newer(record["settings"])), record["model"], tensors, calibration)
