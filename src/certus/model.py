"""A trained model: labels, probabilities, and how certain it is of each answer.

It needs the run's folder alone, not the data that it was trained on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from certus.certainty.calibration import Calibration, tempered
from certus.certainty.metrics import best, rank, unconfidence, witnessed_entropy
from certus.data.arrays import Pixels
from certus.distributed.team import ALONE, Team
from certus.errors import CertusError, UsageError
from certus.networks.foreign import Blueprint
from certus.networks.modes import has_dropout
from certus.randomness import untouched_generator
from certus.training import checkpoint
from certus.training.build import SavedNetworks, read_networks, untrained
from certus.training.calibrating import read_calibration, weights_digest
from certus.training.embedding import Trunk, rooted
from certus.training.evaluation import probabilities, uncertainties
from certus.training.portable import is_portable, read_portable
from certus.training.run_folder import RunFolder
from certus.views.looks import WHOLE, Looks


@dataclass(frozen=True, eq=False)
class Prediction:
    """The answers to N images.

    Attributes
    ----------
    labels : array of shape (N,)
        The index of the most likely class.
    probabilities : array of shape (N, C)
    uncertainty : dict of str to array of shape (N,)
        Larger means less sure. `confidence` is 1 − max p of one clean pass; `pv`, `ev`, `pe`, `mi` and `pr` come from
        Monte-Carlo draws, and are there if the network has dropout and `draws` > 0; `witness` also looks at what the
        network answered before it learnt from unlabelled images, and is there if the run had a warm-up.
    classes : tuple of str
        The names of the classes.
    answered : array of shape (N,) or None
        True where the answer is certain enough for the error that `certus calibrate` was asked for. None for a run
        that is not calibrated, and if the number of draws is another than it was calibrated with.
    """

    labels: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    uncertainty: Mapping[str, NDArray[np.float32]]
    classes: tuple[str, ...]
    answered: NDArray[np.bool_] | None = None

    @property
    def names(self) -> list[str]:
        """The name of the most likely class of each image."""
        return [self.classes[i] for i in self.labels]

    @property
    def metric(self) -> str:
        """The uncertainty that finds wrong answers best, of those that there are."""
        return best(self.uncertainty)

    def rank(self, metric: str = "auto") -> NDArray[np.int64]:
        """(N,) 1 = the image with the most certain answer, by this uncertainty; auto: by `metric`."""
        return rank(torch.from_numpy(self.uncertainty[self.metric if metric == "auto" else metric])).numpy()

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Model:
    """The answering networks of a run. Several networks answer with the mean of their probabilities.

    `certus.train` and `certus.load` make it.

    Attributes
    ----------
    classes : tuple of str
        The names of the classes.
    shape : tuple of int
        The shape of one input: (C, H, W), or (D,) for vectors.
    result : dict or None
        What the run reached: `test_error`, `validation_error` (in percent, or None), `seconds`, `steps`, …
        None for a run that has not finished.
    folder : Path or None
        Where the run is saved.
    looks : Looks
        The copies of each image whose answers are averaged: mirrored, shifted, or the image alone.
    trunk : Module or None
        What makes features of pixels, if the networks see those.
    witnesses : tuple of Module
        What each network was when it knew labels alone; empty for a run without a warm-up.
    pixels : Pixels
        The range of the pixels that it was trained on. Data sets and folders have bytes, 0 to 255.
    calibration : Calibration or None
        Its temperature, which `probabilities` then have, and when it answers. Uncertainties have no temperature.
    team : Team
        The processes that answer together; each of them calls `predict` with the same images.
    """

    nets: tuple[nn.Module, ...]
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    mean: Tensor
    std: Tensor
    result: Mapping[str, Any] | None = None
    folder: Path | None = None
    looks: Looks = WHOLE
    trunk: Trunk | None = None
    witnesses: tuple[nn.Module, ...] = ()
    pixels: Pixels = Pixels()  # noqa: RUF009 (frozen)
    calibration: Calibration | None = None
    team: Team = ALONE

    def normalised(self, images: Tensor) -> Tensor:
        return (images.float() - self.mean.to(images.device)) / self.std.to(images.device)

    def predict(self, images: Any, draws: int = 10, seed: int = 0) -> Prediction:
        """Answer images, and say how certain each answer is.

        Parameters
        ----------
        images : array or tensor
            Images of shape (N, H, W), (N, H, W, C) or (N, C, H, W), or vectors (N, D). A model that was trained on
            bytes multiplies floats from 0 to 1 by 255, with a warning, and the other way round. It refuses pixels
            whose scale cannot be known.
        draws : int
            How many Monte-Carlo draws the uncertainty is computed from; 0 gives `confidence` alone.
        seed : int
            Of the draws.

        Returns
        -------
        Prediction
        """
        with untouched_generator():
            stored = as_stored(images, self.shape)
            return self.answer(self.pixels.rescaled(stored) if len(self.shape) == 3 else stored, draws, seed)

    def answer(self, images: Tensor, passes: int, seed: int) -> Prediction:
        """`predict` for images that are stored as in training."""
        images = rooted(self.trunk(images)) if self.trunk else images
        mean = self.mean_answer(self.nets, images)
        uncertainty = {"confidence": unconfidence(mean)}
        if passes and has_dropout(self.nets[0]):
            uncertainty |= uncertainties(self.nets, self.normalised, images, passes, seed, self.looks, team=self.team)
        if self.witnesses:
            uncertainty["witness"] = witnessed_entropy(
                mean, self.mean_answer(self.witnesses, images, self.looks.unmoved)
            )
        known = self.calibration
        answered = known.answers(uncertainty, passes) if known else None
        return Prediction(
            labels=mean.argmax(1).numpy(),
            probabilities=(tempered(mean, known.temperature) if known else mean).numpy(),
            uncertainty={name: u.numpy() for name, u in uncertainty.items()},
            classes=self.classes,
            answered=None if answered is None else answered.numpy(),
        )

    def mean_answer(self, nets: Sequence[nn.Module], images: Tensor, looks: Looks | None = None) -> Tensor:
        """The mean answer (N, C) of these networks, over the model's looks or others."""
        looks = self.looks if looks is None else looks
        return torch.stack([probabilities(net, self.normalised, images, looks, team=self.team) for net in nets]).mean(0)

    @property
    def modules(self) -> dict[str, nn.Module]:
        """Every network that it answers with, by name."""
        several = {"nets": self.nets, "witnesses": self.witnesses}
        named = {f"{kind}.{i}": net for kind, nets in several.items() for i, net in enumerate(nets)}
        return named | ({"trunk": self.trunk} if self.trunk else {})

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All weights that it answers with, by name."""
        found = {f"{name}.{key}": t for name, net in self.modules.items() for key, t in net.state_dict().items()}
        return {name: t.detach().contiguous() for name, t in found.items()}

    @property
    def digest(self) -> str:
        """Of all weights that it answers with."""
        return weights_digest(list(self.modules.values()))

    def __repr__(self) -> str:
        inputs = "×".join(map(str, self.shape))
        names = ", ".join(self.classes) if len(self.classes) <= 10 else f"{len(self.classes)} classes"
        where = f", {self.folder}" if self.folder else ""
        return f"Model({names}; inputs {inputs}{where})"


def as_stored(images: Any, shape: tuple[int, ...]) -> Tensor:
    """Images in any layout as (N, *shape)."""
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
    """Load the model of a run from its newest checkpoint, or one that was exported as a folder of weights.

    Parameters
    ----------
    folder : str or Path
        The run's folder, or the folder that `certus export` wrote with the format huggingface.

    Returns
    -------
    Model

    Examples
    --------
    >>> import certus
    >>> trained = certus.train("digits", method="supervised", steps=5, out="a-run")
    >>> model = certus.load("a-run")
    >>> model.classes
    ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')
    """
    found = RunFolder(Path(folder))
    if is_portable(found.path):
        return from_portable(found.path)
    model = model_of(read_networks(found))
    calibration = read_calibration(found, model.digest) if found.calibration.exists() else None
    result = found.load_result() if found.finished() else None
    return replace(model, result=result, folder=found.path, calibration=calibration)


def model_of(saved: SavedNetworks) -> Model:
    """What answers with these networks."""
    channels_first = (1, -1, *[1] * (len(saved.inputs) - 1))
    mean, std = (torch.tensor(saved.about[name]).view(channels_first) for name in ("mean", "std"))
    return Model(
        nets=saved.method.answers,
        classes=saved.classes,
        shape=tuple(saved.about["shape"]),
        mean=mean,
        std=std,
        looks=saved.config.looks,
        trunk=saved.trunk,
        witnesses=saved.method.witnesses,
    )


def from_portable(path: Path) -> Model:
    """The model of a folder of weights and a description."""
    config, about, tensors, calibration = read_portable(path)
    blueprint = Blueprint.of(about["network"]) if "network" in about else None
    trunk = Trunk(config.network, tuple(about["shape"]), 1.0, blueprint=blueprint) if "features" in about else None
    model = model_of(untrained(config, about, trunk, blueprint))
    try:
        for name, net in model.modules.items():
            net.load_state_dict(checkpoint.part(tensors, f"{name}."))
    except RuntimeError:
        raise CertusError(f"The weights in {path} do not fit its config.json: restore both.") from None
    return replace(model, folder=path, calibration=calibration)
