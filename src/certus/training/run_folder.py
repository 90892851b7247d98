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
import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from certus import __version__
from certus.config import Config, resolve
from certus.errors import UsageError
from certus.methods import PRETRAINING
from certus.training.run import Run
from certus.writing import append, make_folder, put, put_json


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
        return self.result.is_file()

    def create(self, run: Run) -> None:
        """Write what a run starts from. The config comes last: a folder that has one is complete."""
        config, split, data = run.config, run.split, run.data
        make_folder(self.path)
        seen = run.labels[split.labelled.to(run.labels.device)].cpu()
        noisy = seen != data.train.labels[split.labelled]
        put_json(
            self.split,
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
            },
        )
        mean, std = (s.flatten().tolist() for s in data.scale)
        put_json(self.model, {"classes": data.classes, "shape": data.shape, "mean": mean, "std": std})
        put_json(self.path / "environment.json", environment())
        put(self.config, config.text())

    def check_data(self, run: Run) -> None:
        """Refuse data that have changed since the run began."""
        drawn = json.loads(self.split.read_text())
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
        return json.loads(self.result.read_text())

    def load_metrics(self) -> list[dict[str, Any]]:
        if not self.metrics.is_file():
            return []
        return [json.loads(line) for line in self.metrics.read_text().splitlines()]

    def keep_metrics(self, step: int) -> None:
        """Drop the lines of epochs after `step`, which a resumed run writes again, and a line that a kill cut short."""
        if not self.metrics.is_file():
            return
        kept = []
        for line in self.metrics.read_text().splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except ValueError:
                break
        put(self.metrics, "".join(kept))

    def append_metrics(self, record: dict[str, Any]) -> None:
        append(self.metrics, json.dumps(record) + "\n")


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
