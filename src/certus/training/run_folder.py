"""A run is a folder.

config.toml               every setting: `certus train --config` runs it again
split.json                which images were labelled, and which were for validation
model.json                classes, input shape and scale: what a model needs to answer
environment.json          versions and machine
metrics.jsonl             one line per epoch
checkpoints/              the newest state
predictions.safetensors   the answers to the test images
unlabelled.safetensors    the answers to the run's unlabelled images, written by `answer_unlabelled`
result.json               the test error, read once, at the end
"""

from __future__ import annotations

import json
import logging
import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from certus import __version__
from certus.config import Config, resolve
from certus.errors import CertusError, UsageError
from certus.methods import PRETRAINING
from certus.text import printable
from certus.training import artefacts
from certus.training.artefacts import opened, read_record, sealed
from certus.training.run import Run

notices = logging.getLogger("certus")
LOST = "restore it from a copy, or train the run again in another folder"


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def model(self) -> Path:
        return self.path / "model.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def predictions(self) -> Path:
        return self.path / "predictions.safetensors"

    @property
    def unlabelled(self) -> Path:
        return self.path / "unlabelled.safetensors"

    @property
    def split(self) -> Path:
        return self.path / "split.json"

    @property
    def environment(self) -> Path:
        return self.path / "environment.json"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @classmethod
    def new(cls, out: str | Path | None, config: Config) -> RunFolder:
        """The folder `out`, if it holds no run yet; without `out`, the first free name under runs/."""
        if out is not None:
            folder = cls(Path(out))
            if folder.exists():
                raise UsageError(f"{out} already holds a run: continue it with `resume` {out}, or give another `out`.")
            if folder.path.exists() and not folder.path.is_dir():
                raise UsageError(f"{out} is a file, not a folder: give another `out`.")
            return folder
        labels = "" if config.method in PRETRAINING or not config.labels else f"-{config.labels}"
        name = f"{Path(config.data).name}-{config.method}{labels}-seed{config.seed}"
        number = 1
        while (folder := cls(Path("runs") / (name if number == 1 else f"{name}-{number}"))).exists():
            number += 1
        return folder

    def exists(self) -> bool:
        return self.config.is_file()

    def finished(self) -> bool:
        return self.result.exists()

    def saved_step(self) -> int:
        """The steps that the newest checkpoint has done, by its name."""
        names = [path.name.removeprefix("step-") for path in self.checkpoints.glob("step-*")]
        return max((int(name) for name in names if name.isdecimal() and len(name) < 10), default=0)

    def create(self, run: Run) -> None:
        """Write what a run starts from. The config comes last: a folder that has one is complete."""
        config, split, data = run.config, run.split, run.data
        self.path.mkdir(parents=True, exist_ok=True)
        seen = run.labels[split.labelled.to(run.labels.device)].cpu()
        noisy = seen != data.train.labels[split.labelled]
        put_json(
            self.split,
            sealed(
                {
                    "data": config.data,
                    "fingerprint": data.fingerprint,
                    "seed": config.seed,
                    "balanced": config.balanced,
                    "labelled": split.labelled.tolist(),
                    "validation": split.validation.tolist(),
                    "unlabelled": len(split.unlabelled),
                    "validation from": "extra labels"
                    if len(split.validation)
                    else "its own part" * (data.validation is not None),
                    "wrong labels": {
                        str(i): int(c) for i, c in zip(split.labelled[noisy].tolist(), seen[noisy], strict=True)
                    },
                }
            ),
        )
        mean, std = (s.flatten().tolist() for s in data.scale)
        put_json(self.model, sealed({"classes": data.classes, "shape": data.shape, "mean": mean, "std": std}))
        put_json(self.environment, sealed(environment()))
        put(self.config, config.text())

    def check_data(self, run: Run) -> None:
        """Refuse data that have changed since the run began."""
        drawn = read_record(self.split, artefacts.SPLIT, LOST)
        if (drawn["fingerprint"], drawn["labelled"]) != (run.data.fingerprint, run.split.labelled.tolist()):
            raise UsageError(
                f"{run.config.data} has changed since the run in {self.path} began: restore the data as they were, or "
                "start a new run."
            )

    def load_config(self) -> Config:
        if not self.exists():
            raise UsageError(f"{self.path} holds no run: it has no {self.config.name}.")
        return resolve(Config.read(self.config))

    def load_result(self) -> dict[str, Any]:
        again = f"remove it and continue the run with `resume` {self.path}, which writes it again"
        return read_record(self.result, artefacts.RESULT, again)

    def load_model(self) -> dict[str, Any]:
        """Classes, shape, mean and std: what a model needs to answer."""
        about = read_record(self.model, artefacts.MODEL, LOST)
        shape, channels = about["shape"], {len(about["mean"]), len(about["std"])}
        if len(shape) not in (1, 3) or min(shape) < 1 or channels != {shape[0]} or not min(about["std"]) > 0:
            raise CertusError(f"{self.model} is damaged (its shape and its scale do not fit): {LOST}.")
        return about

    def load_metrics(self) -> list[dict[str, Any]]:
        """One record per epoch, in order. A last line that is still being written is left out."""
        records: list[dict[str, Any]] = []
        for number, line in enumerate(self.metrics_lines()[:-1], 1):
            try:
                records.append(opened(line, artefacts.EPOCH))
                if len(records) > 1 and records[-1]["step"] <= records[-2]["step"]:
                    raise ValueError("it is not in order")
            except ValueError as e:
                raise CertusError(
                    f"{self.metrics} is damaged in line {number} ({e}): remove that line, or restore the file from a "
                    "copy."
                ) from None
        return records

    def metrics_lines(self) -> list[bytes]:
        """What stands between the line ends of metrics.jsonl: the last is empty, or a line that was cut short."""
        if not self.metrics.exists():
            return [b""]
        try:
            return self.metrics.read_bytes().split(b"\n")
        except OSError as e:
            raise CertusError(f"{self.metrics} cannot be read ({e.strerror or e}): remove it.") from None

    def keep_metrics(self, step: int, epochs: int = 0) -> None:
        """Drop the lines of epochs after `step`, which a resumed run writes again, and damaged lines. Notices count
        them, and the lines that are missing of the `epochs` that end before `step`."""
        *lines, cut = self.metrics_lines()
        kept, later, damaged = [], 0, int(cut != b"")
        for line in lines:
            try:
                done = opened(line, artefacts.EPOCH)["step"]
            except ValueError:
                damaged += 1
                continue
            later += done > step
            if done <= step:
                kept.append(line + b"\n")
        dropped = {"of epochs after the checkpoint, which are trained again": later, "that were damaged": damaged}
        for which, count in dropped.items():
            if count:
                notices.warning("%s: dropped %d line%s %s.", self.metrics, count, "s" * (count > 1), which)
        if len(kept) < epochs:
            notices.warning("%s: %d of the %d epochs so far are missing.", self.metrics, epochs - len(kept), epochs)
        if self.metrics.exists():
            put(self.metrics, b"".join(kept))

    def append_metrics(self, record: dict[str, Any]) -> None:
        with self.metrics.open("a", encoding="utf-8") as f:
            f.write(json.dumps(sealed(record)) + "\n")


def put(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_bytes(printable(content).encode() if isinstance(content, str) else content)
    fresh.replace(path)


def put_json(path: Path, value: Any) -> None:
    put(path, json.dumps(value, indent=1) + "\n")


def environment() -> dict[str, Any]:
    names = ("torch", "numpy", "scikit-learn", "safetensors")
    return {
        "certus": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        **{name: version(name) for name in names},
    }
