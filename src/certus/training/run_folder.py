"""A run is a folder.

config.toml               every setting: `certus train --config` runs it again
split.json                which images were labelled, which were for validation, and what the run began as
model.json                classes, input shape and scale, and what builds a network of another package
environment.json          versions and machine
metrics.jsonl             one line per epoch
checkpoints/              the newest state
predictions.safetensors   the answers to the test images
trunk.safetensors         with `depth` head, the part of the network that does not learn
unlabelled.safetensors    the answers to the run's unlabelled images, written by `answer_unlabelled`
calibration.json          when the run answers, written by `certus calibrate`
model-card.json, .md      what the model is, for those who use it (`certus card`)
result.json               the test error, read once, at the end
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields
from itertools import count
from pathlib import Path
from typing import Any

from certus.config import Config, resolve
from certus.config.run_file import seal_in
from certus.config.settings import Altered, from_toml_file
from certus.errors import CertusError, UsageError
from certus.methods import PRETRAINING, recipe
from certus.networks.foreign import Blueprint
from certus.networks.outside import blueprint_of
from certus.training import artefacts
from certus.training.artefacts import opened, read_record, sealed, tensor_bytes
from certus.training.checkpoint import recorded
from certus.training.embedding import Trunk, saved_trunk, trunk_of
from certus.training.environment import environment
from certus.training.identity import differences, identity, settings_of
from certus.training.lock import Busy, locked
from certus.training.run import Run
from certus.writing import append, make_folder, put, put_json

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
    def trunk(self) -> Path:
        return self.path / "trunk.safetensors"

    @property
    def split(self) -> Path:
        return self.path / "split.json"

    @property
    def environment(self) -> Path:
        return self.path / "environment.json"

    @property
    def calibration(self) -> Path:
        return self.path / "calibration.json"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @classmethod
    @contextmanager
    def new(cls, out: str | Path | None, config: Config) -> Iterator[RunFolder]:
        """The folder `out`, if it holds no run yet; without `out`, the first free name under runs/. It is locked."""
        with ExitStack() as held:
            if out is not None:
                held.enter_context(locked(Path(out)))
                folder = cls(Path(out))
                if folder.exists():
                    raise UsageError(
                        f"{out} already holds a run: continue it with `resume` {out}, or give another `out`."
                    )
            else:
                folder = next(folder for folder in cls.candidates(config) if held.enter_context(folder.free()))
            yield folder

    @contextmanager
    def held(self) -> Iterator[RunFolder]:
        """Lock a folder that holds a run."""
        if not self.path.is_dir():
            raise UsageError(f"{self.path} holds no run: there is no such folder.")
        with locked(self.path):
            yield self

    @classmethod
    def candidates(cls, config: Config) -> Iterator[RunFolder]:
        """Names of a run of this config under runs/, without end."""
        labels = "" if config.method in PRETRAINING or not config.labels else f"-{config.labels}"
        name = f"{Path(config.data).name}-{config.method}{labels}-seed{config.seed}"
        for number in count(1):
            yield cls(Path("runs") / (name if number == 1 else f"{name}-{number}"))

    @contextmanager
    def free(self) -> Iterator[bool]:
        """Whether this folder holds no run and nobody makes one in it; if so, it is locked."""
        with ExitStack() as held:
            try:
                if not self.exists():
                    held.enter_context(locked(self.path))
            except Busy:
                yield False
                return
            yield not self.exists()

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
        make_folder(self.path)
        seen = run.labels[split.labelled.to(run.labels.device)].cpu()
        noisy = seen != data.train.labels[split.labelled]
        put_json(
            self.split,
            sealed(
                {
                    "data": config.data,
                    "fingerprint": data.fingerprint,
                    "pixels": data.pixels,
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
                    "identity": identity(run),
                }
            ),
        )
        mean, std = (s.flatten().tolist() for s in run.inputs.scale)
        about: dict[str, Any] = {"classes": data.classes, "shape": data.shape, "mean": mean, "std": std}
        trunk = trunk_of(config, data) if config.depth == "head" else None
        if blueprint := blueprint_of(trunk or run.method.state):
            about["network"] = blueprint.plain()
        if trunk:
            about["features"] = trunk.width
            put(self.trunk, tensor_bytes(trunk.state_dict()))
        put_json(self.model, sealed(about))
        put_json(self.environment, sealed(environment()))
        put(self.config, config.text())
        self.check_saved(config)

    def check_saved(self, config: Config) -> None:
        """Read a new run file back: a run that could not be opened again is not begun."""
        try:
            found = differences(settings_of(config), settings_of(self.load_config()))
        except CertusError as e:
            found = str(e)
        if found:
            self.config.unlink()
            raise CertusError(f"These settings cannot be saved: when they are read back, {found}.")

    def check_config(self, config: Config) -> None:
        """Refuse to continue the run with other settings than its own."""
        if found := differences(settings_of(self.load_config()), settings_of(config)):
            raise UsageError(f"{self.path} already holds a run with other settings: {found}. Give another `out`.")

    def check_data(self, run: Run) -> None:
        """Refuse data that have changed since the run began."""
        drawn = self.load_split()
        if (drawn["fingerprint"], drawn["labelled"]) != (run.data.fingerprint, run.split.labelled.tolist()):
            raise UsageError(
                f"{run.config.data} has changed since the run in {self.path} began: restore the data as they were, or "
                "start a new run."
            )

    def load_config(self) -> Config:
        if not self.exists():
            raise UsageError(f"{self.path} holds no run: it has no {self.config.name}.")
        try:
            given = Config.read_whole(self.config)
        except Altered as e:
            found = differences(self.settings_at_start(), from_toml_file(self.config)[1])
            named = f"{str(e).partition(': ')[0]}: {found}." if found else str(e)
            raise CertusError(f"{named} Restore it, or start a new run with `config` {self.config}.") from None
        return resolve(with_newer(given))

    def load_trunk(self, config: Config, shape: tuple[int, ...]) -> Trunk:
        """The part of the network that did not learn, for pictures of this shape."""
        return saved_trunk(self.trunk, config.network, shape, LOST, self.load_blueprint())

    def load_split(self) -> dict[str, Any]:
        return read_record(self.split, artefacts.SPLIT, LOST)

    def settings_at_start(self) -> dict[str, Any]:
        """As the newest checkpoint or split.json has them; empty if neither can be read."""
        kept = recorded(self.checkpoints)
        if "identity" not in kept:
            with suppress(CertusError):
                kept = self.load_split()
        return kept.get("identity", {}).get("settings", {})

    def is_old(self) -> bool:
        """Whether certus 0.1.0 began it, whose run files have no seal and which kept the settings nowhere else."""
        return self.exists() and seal_in(from_toml_file(self.config)[0]) is None and not self.settings_at_start()

    def load_result(self) -> dict[str, Any]:
        again = f"remove it and continue the run with `resume` {self.path}, which writes it again"
        return read_record(self.result, artefacts.RESULT, again)

    def load_model(self) -> dict[str, Any]:
        """Classes, shape, mean and std: what a model needs to answer."""
        about = read_record(self.model, artefacts.MODEL, LOST)
        shape, channels = about["shape"], {len(about["mean"]), len(about["std"])}
        wanted = about.get("features", shape[0] if shape else 0)
        if len(shape) not in (1, 3) or min(shape) < 1 or channels != {wanted} or not min(about["std"]) > 0:
            raise CertusError(f"{self.model} is damaged (its shape and its scale do not fit): {LOST}.")
        return about

    def load_blueprint(self) -> Blueprint | None:
        """Of a network of another package; None for other networks, and before the run begins."""
        kept = self.load_model().get("network") if self.exists() else None
        return Blueprint.of(kept) if kept else None

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
        for which, number in dropped.items():
            if number:
                notices.warning("%s: dropped %d line%s %s.", self.metrics, number, "s" * (number > 1), which)
        if len(kept) < epochs:
            notices.warning("%s: %d of the %d epochs so far are missing.", self.metrics, epochs - len(kept), epochs)
        if self.metrics.exists():
            put(self.metrics, b"".join(kept))

    def append_metrics(self, record: dict[str, Any]) -> None:
        append(self.metrics, json.dumps(sealed(record)) + "\n")


def with_newer(given: Mapping[str, Any]) -> dict[str, Any]:
    """With the settings that came after a run file was written: their defaults are what certus did before."""
    usual = {f.name: f.default for f in fields(Config) if f.name != "options"}
    return {**usual, **given, "options": {**recipe(given["method"]).defaults(), **given["options"]}}
