"""The files that a run writes: each carries a checksum, and a damaged one is refused with its name and a way out.

Runs of older versions have no checksums; of their files, only names, types and ranges are checked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from certus.certainty.metrics import METRICS, UNDRAWN
from certus.errors import CertusError
from certus.text import brief

CHECK = "check"  # the key of the checksum
LARGEST = 2**53  # of a whole number

# What a record must hold. A type, a list of one form, names with their forms ("?": may be missing, "*": any name), or
# a tuple of forms of which one fits.
NUMBER = (int, float)
MAYBE = (int, float, None)
RESULT = {
    "method": str,
    "seed": int,
    "steps": int,
    "test_error": MAYBE,
    "test_errors": {"*": NUMBER},
    "validation_error": MAYBE,
    "seconds": NUMBER,
    "bytes?": int,
    "class_errors?": {"*": NUMBER},
}
SPLIT = {
    "fingerprint": str,
    "labelled": [int],
    "identity?": {"settings": {"options": {}}, "split": str, "model": str},
}
MODEL = {
    "classes": [str],
    "shape": [int],
    "mean": [NUMBER],
    "std": [NUMBER],
    "features?": int,
    "network?": {
        **dict.fromkeys(("package", "architecture"), str),
        "arguments": {},
        "centre": [NUMBER],
        "spread": [NUMBER],
        **dict.fromkeys(("size", "patch"), int),
    },
}
ENVIRONMENT = {"certus": str}
LEVEL = {"threshold": MAYBE, "answered": int, "wrong": int, "bound": NUMBER}
CALIBRATION = {
    **dict.fromkeys(("weights", "data", "metric"), str),
    **dict.fromkeys(("labels", "draws"), int),
    **dict.fromkeys(("temperature", "error", "confidence"), NUMBER),
    "log_loss": [NUMBER],
    "chosen": LEVEL,
    "levels": [LEVEL],
}
SPREAD = ({"mean": MAYBE, "quantiles": ([NUMBER], None)}, None)
EPOCH = {
    "epoch": int,
    "step": int,
    "losses": {"*": NUMBER},
    "validation_error?": MAYBE,
    "batch?": int,
    "now?": {"*": {"*": NUMBER}},
    "time?": {"*": NUMBER},
    "targets?": {
        "*": {
            "kept": {"*": MAYBE},
            "accuracy?": {"*": MAYBE},
            "classes": [int],
            "uncertainty?": {"*": SPREAD},
        }
    },
}


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with its checksum. A number that is not finite, which JSON does not have, becomes null."""
    plain = json.loads(json.dumps(record), parse_constant=lambda _: None)
    return {**plain, CHECK: checksum(plain)}


def checksum(record: Mapping[str, Any]) -> str:
    return sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]


def opened(text: str | bytes, form: Mapping[str, Any]) -> dict[str, Any]:
    """The record in this text, without its checksum; ValueError with the reason if it is damaged."""
    if not text.strip():
        raise ValueError("it is empty")
    try:
        record = json.loads(text, parse_constant=finite, parse_float=finite, parse_int=whole)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if isinstance(record, dict) and CHECK in record and record.pop(CHECK) != checksum(record):
        raise ValueError("it is not what was written: its checksum is another")
    if reason := misfit(record, form):
        raise ValueError(reason)
    return record


def finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"it holds {brief(text, 20)}, which is not finite")
    return value


def whole(text: str) -> int:
    if len(text) > 17 or abs(value := int(text)) > LARGEST:
        raise ValueError(f"it holds the number {brief(text, 20)}, which is too large")
    return value


def misfit(value: Any, form: Any, name: str = "") -> str:
    """Why a value does not have this form; empty if it does."""
    here = f"`{name}`" if name else "it"
    if isinstance(form, tuple):
        reasons = [misfit(value, each, name) for each in form]
        return reasons[0] if all(reasons) else ""
    if isinstance(form, list):
        if not isinstance(value, list):
            return f"{here} is no list"
        return next((r for i, v in enumerate(value) if (r := misfit(v, form[0], f"{name}[{i}]"))), "")
    if isinstance(form, Mapping):
        if not isinstance(value, dict):
            return f"{here} is no record"
        for key, inner in form.items():
            plain = key.rstrip("?")
            if key == "*":
                if found := next((r for k, v in value.items() if (r := misfit(v, inner, f"{name}.{k}"))), ""):
                    return found
            elif plain not in value and plain == key:
                return f"{here} has no `{plain}`"
            elif plain in value and (found := misfit(value[plain], inner, f"{name}.{plain}" if name else plain)):
                return found
        return ""
    fits = value is None if form is None else type(value) is form
    return "" if fits else f"{here} is {brief(value, 30)}"


def read_record(path: Path, form: Mapping[str, Any], remedy: str) -> dict[str, Any]:
    """The record in a file; `remedy` says what to do if it is damaged."""
    try:
        return opened(path.read_bytes(), form)
    except OSError as e:
        raise CertusError(f"{path} cannot be read ({e.strerror or e}): {remedy}.") from None
    except ValueError as e:
        raise CertusError(f"{path} is damaged ({e}): {remedy}.") from None


def tensor_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as a safetensors file, with their checksum."""
    return save({name: t.contiguous() for name, t in tensors.items()}, {CHECK: tensor_checksum(tensors)})


def tensor_checksum(tensors: Mapping[str, Tensor]) -> str:
    digest = sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].contiguous().numpy().data)
    return digest.hexdigest()[:16]


def read_answers(path: Path, remedy: str) -> dict[str, Tensor]:
    """`probabilities` (n, N, C) of each network, `labels` (N,), and every uncertainty (N,) that was computed."""
    return read_tensors(path, remedy, misfit_answers)


def read_tensors(path: Path, remedy: str, misfit: Callable[[Mapping[str, Tensor]], str]) -> dict[str, Tensor]:
    """The tensors of a file; `misfit` says why they are not what they should be."""
    try:
        with safe_open(path, "pt") as file:
            check = (file.metadata() or {}).get(CHECK)
            found = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except (SafetensorError, OSError, ValueError, RuntimeError) as e:
        raise CertusError(f"{path} cannot be read ({e}): {remedy}.") from None
    reason = misfit(found)
    if check is not None and check != tensor_checksum(found):
        reason = "it is not what was written: its checksum is another"
    if reason:
        raise CertusError(f"{path} is damaged ({reason}): {remedy}.")
    return found


def misfit_answers(found: Mapping[str, Tensor]) -> str:
    """Why these are no answers; empty if they are."""
    probabilities, labels = found.get("probabilities"), found.get("labels")
    if probabilities is None or labels is None:
        return "it has no probabilities or no labels"
    if probabilities.dim() != 3 or not probabilities.is_floating_point() or not probabilities.numel():
        return "its probabilities are not those of networks, images and classes"
    _, images, classes = probabilities.shape
    if labels.dtype != torch.int64 or labels.shape != (images,) or not 0 <= labels.min() <= labels.max() < classes:
        return "its labels do not fit its probabilities"
    drawn = [found[name] for name in (*METRICS, *UNDRAWN) if name in found]
    if any(values.shape != (images,) or not values.is_floating_point() for values in drawn):
        return "its uncertainties do not fit its probabilities"
    if not all(bool(values.isfinite().all()) for values in (probabilities, *drawn)):
        return "it holds values that are not finite"
    return ""
