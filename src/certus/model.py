"""A trained run as something that answers: labels, probabilities, and how certain it is of each.

It needs the run's folder alone, not the data that it was trained on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from certus.certainty.metrics import rank, unconfidence
from certus.core.build_context import BuildContext
from certus.errors import CertusError, UsageError
from certus.networks.modes import has_dropout
from certus.randomness import untouched_generator
from certus.training import checkpoint
from certus.training.build import make_method, make_networks
from certus.training.evaluation import probabilities, uncertainties
from certus.training.run_folder import RunFolder


@dataclass(frozen=True, eq=False)
class Prediction:
    """The answers to N images."""

    labels: NDArray[np.int64]  # (N,) the most likely class
    probabilities: NDArray[np.float32]  # (N, C)
    uncertainty: Mapping[
        str, NDArray[np.float32]
    ]  # pv, ev, pe, mi, pr, confidence (1 − max p): (N,), larger = less sure
    classes: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return [self.classes[i] for i in self.labels]

    def rank(self, metric: str = "pe") -> NDArray[np.int64]:
        """1 = the most certain of these images."""
        return rank(torch.from_numpy(self.uncertainty[metric])).numpy()

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Model:
    """The answering networks of a run. Several (a circle's teachers) answer with the mean of their probabilities."""

    nets: tuple[nn.Module, ...]
    classes: tuple[str, ...]
    shape: tuple[int, ...]  # of one input: (C, H, W), or (D,)
    mean: Tensor
    std: Tensor

    def normalised(self, images: Tensor) -> Tensor:
        return (images.float() - self.mean.to(images.device)) / self.std.to(images.device)

    def predict(self, images: Any, draws: int = 10, seed: int = 0) -> Prediction:
        """Of images (N, H, W), (N, H, W, C) or (N, C, H, W), uint8 as in training, or vectors (N, D)."""
        with untouched_generator():
            return self.answer(as_stored(images, self.shape), draws, seed)

    def answer(self, images: Tensor, passes: int, seed: int) -> Prediction:
        said = torch.stack([probabilities(net, self.normalised, images) for net in self.nets]).mean(0)
        uncertainty = {"confidence": unconfidence(said)}
        if passes and has_dropout(self.nets[0]):
            uncertainty |= uncertainties(self.nets, self.normalised, images, passes, seed)
        return Prediction(
            labels=said.argmax(1).numpy(),
            probabilities=said.numpy(),
            uncertainty={name: u.numpy() for name, u in uncertainty.items()},
            classes=self.classes,
        )


def as_stored(images: Any, shape: tuple[int, ...]) -> Tensor:
    """Whatever layout the user has, as (N, *shape)."""
    x = images if isinstance(images, Tensor) else torch.from_numpy(np.require(images, requirements=["C", "W"]))
    if len(shape) == 3:
        if x.dim() == 3:
            x = x[:, None]
        if x.dim() == 4 and tuple(x.shape[1:]) != shape and tuple(x.shape[1:]) == (*shape[1:], shape[0]):
            x = x.permute(0, 3, 1, 2)
    if tuple(x.shape[1:]) != shape:
        wanted = "×".join(map(str, shape))
        raise UsageError(f"Inputs of shape {tuple(x.shape[1:])} do not fit this run, which was trained on {wanted}.")
    return x


def load(folder: str | Path) -> Model:
    """The model of a run, from its newest checkpoint."""
    place = RunFolder(Path(folder))
    config = place.load_config()
    try:
        about = json.loads(place.model.read_text())
    except (OSError, ValueError) as e:
        raise CertusError(f"{place.model} cannot be read: {e}.") from None
    found = checkpoint.read(place.checkpoints)
    if found is None:
        raise CertusError(f"{place.path} has no checkpoint yet: train it with --resume {place.path}.")
    shape = tuple(about["shape"])
    config, classes = replace(config, init=""), len(about["classes"])
    method = make_method(config, BuildContext.bare(make_networks(config, shape, classes), classes))
    if not method.answers:
        raise UsageError(f"{place.path} is a pretraining run, which has no answers: start one from it by --init.")
    names = {id(module): name for name, module in method.state.named_modules()}
    for net in method.answers:
        net.load_state_dict(checkpoint.part(found[0], f"method.{names[id(net)]}."))
    around = (1, -1, *[1] * (len(shape) - 1))
    mean, std = (torch.tensor(about[name]).view(around) for name in ("mean", "std"))
    return Model(method.answers, tuple(about["classes"]), shape, mean, std)
