"""What answers pictures: a run, by torch, or an exported model, by onnxruntime.

An answer does not depend on the pictures that are answered beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from certus.certainty.calibration import Calibration
from certus.certainty.metrics import best
from certus.data.decode import WORKERS, as_channels
from certus.errors import UsageError
from certus.model import Model, load
from certus.networks.inference import quick_stages
from certus.onnx import OnnxModel
from certus.training.calibrating import calibration_of
from certus.training.embedding import rooted
from certus.training.run_folder import RunFolder

Pictures = NDArray[np.uint8]  # (N, 3, size, size)
DRAWS = 10
ENTROPIES = frozenset({"pe", "mi", "witness"})  # at most log C; the others are at most 1


@dataclass(frozen=True, eq=False)
class Answers:
    """To N pictures."""

    probabilities: NDArray[np.float32]  # (N, C)
    uncertainty: Mapping[str, NDArray[np.float32]]  # by metric, (N,)
    answered: NDArray[np.bool_] | None = None  # (N,) whether the model is sure enough; None: it was not calibrated


@dataclass(frozen=True)
class About:
    """What a service says of its model."""

    name: str
    classes: tuple[str, ...]
    size: int  # pixels to which pictures are brought
    fit: str  # how they become squares
    metric: str  # the uncertainty that decides whether a picture is answered
    limit: float | None = None  # of that uncertainty, from which on it is not answered; None: there is no limit
    promise: str = ""  # what holds for the pictures that are answered; empty: it was not calibrated


class Answerer(Protocol):
    about: About
    threads: int  # of the processor

    def answer(self, pictures: Pictures) -> Answers: ...


def certainty(metric: str, uncertainty: float, classes: int) -> float:
    """From 0 to 1, and larger where the answer is more certain: 1 − u / log C for entropies, 1 − u for the others."""
    largest = math.log(max(classes, 2)) if metric in ENTROPIES else 1.0
    return min(1.0, max(0.0, 1.0 - uncertainty / largest))


def promise(calibration: Calibration) -> str:
    return (
        f"At most {100 * calibration.chosen.bound:.2f} % of its answers are wrong, for pictures from the same source "
        f"({calibration.labels:,} labels, {100 * calibration.confidence:g} % confidence)."
    )


def open_answerer(path: Path, draws: int | None = None, threads: int = 0) -> Answerer:
    """Of a run's folder, or of a file that `certus export` wrote; `threads` 0: as many as are usual for it."""
    return OnnxAnswerer(path, draws, threads) if path.suffix == ".onnx" else RunAnswerer(path, draws, threads)


class RunAnswerer:
    """A run's answers; `draws` 0 leaves Monte-Carlo draws out, which is quicker; None: what it was calibrated with."""

    def __init__(self, folder: Path, draws: int | None = None, threads: int = 0) -> None:
        config, self.model = RunFolder(folder).load_config(), load(folder)
        known = self.model.calibration
        self.draws = draws if draws is not None else (known.draws if known else 0) or DRAWS
        self.seed, self.threads = config.seed, threads or config.threads
        if known and known.draws not in (0, self.draws):
            raise UsageError(
                f"{folder} was calibrated with {known.draws} draws, so with {draws} it is not known which pictures are "
                "answered: leave `draws` out, or calibrate it again."
            )
        if len(self.model.shape) != 3:
            raise UsageError(f"{folder} was trained on vectors: it cannot label pictures.")
        size = self.model.shape[1]
        share_masks(self.model, torch.zeros(1, *self.model.shape, dtype=torch.uint8))
        first = self.answer(np.zeros((1, 3, size, size), np.uint8))  # also does what is slow the first time
        self.about = About(
            name=folder.resolve().name,
            classes=self.model.classes,
            size=size,
            fit=config.fit,
            metric=known.metric if known else best(first.uncertainty),
            limit=known.chosen.threshold if known else None,
            promise=promise(known) if known else "",
        )

    def answer(self, pictures: Pictures) -> Answers:
        images = np.stack([as_channels(picture, self.model.shape[0]) for picture in pictures])
        found = self.model.predict(images, self.draws, self.seed)
        return Answers(found.probabilities, found.uncertainty, found.answered)


def share_masks(model: Model, images: Tensor) -> None:
    """From now on, one dropout mask serves all pictures of a batch, in this model's fused copies.

    Otherwise the uncertainty of a picture would depend on its place in the batch, and so on who else asks. The mask of
    each draw has the same distribution as before.
    """
    seen = model.normalised(rooted(model.trunk(images)) if model.trunk else images)
    for net in model.nets:
        for stage in quick_stages(net, seen):
            for module in stage.modules():
                if isinstance(module, (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)):
                    module.forward = SharedMask(module)  # type: ignore[assignment, method-assign]


class SharedMask:
    """Dropout with one mask for all images: x · mask, mask = the module's answer to ones of shape (1, …)."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, x: Tensor) -> Tensor:
        return x * type(self.module).forward(self.module, torch.ones_like(x[:1])) if self.module.training else x


class OnnxAnswerer:
    """An exported model's answers. Its number of draws is part of the file."""

    def __init__(self, path: Path, draws: int | None = None, threads: int = 0) -> None:
        if not path.is_file():
            raise UsageError(f"There is no file {path}.")
        self.threads = threads or WORKERS
        self.model = OnnxModel(path, self.threads)
        inside, shape = self.model.about["draws"], self.model.about["inputs"]
        if len(shape) != 3:
            raise UsageError(f"{path} was trained on vectors: it cannot label pictures.")
        if draws not in (None, inside):
            raise UsageError(f"{path} was exported with {inside} draws: leave `draws` out, or export it with {draws}.")
        kept = self.model.about["calibration"]
        known = calibration_of(kept) if kept else None
        self.about = About(
            name=path.stem,
            classes=self.model.classes,
            size=shape[1],
            fit=self.model.about["fit"],
            metric=known.metric if known else best(self.model.columns),
            limit=known.chosen.threshold if known else None,
            promise=promise(known) if known else "",
        )
        self.answer(np.zeros((1, 3, shape[1], shape[1]), np.uint8))  # does what is slow the first time

    def answer(self, pictures: Pictures) -> Answers:
        found = self.model.predict(np.ascontiguousarray(pictures.transpose(0, 2, 3, 1)))
        uncertainty = {name: found["uncertainty"][:, k] for k, name in enumerate(self.model.columns)}
        return Answers(found["probabilities"], uncertainty, found.get("answered"))
