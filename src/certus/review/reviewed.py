"""A run under review: its model, its pictures, and the labels that it knows; hidden labels stay hidden."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from certus.config import Config, split_of, visible_labels
from certus.data import Dataset, is_folder, pictures
from certus.data import load as load_data
from certus.data.dataset import brightest
from certus.data.descriptors import CELLS, ORIENTATIONS, describe
from certus.errors import UsageError
from certus.model import Model, Prediction, load
from certus.networks.modes import evaluating
from certus.networks.weights import available
from certus.randomness import untouched_generator
from certus.review.suspecting import scaled
from certus.training.embedding import Trunk, comparable, remembered_by, rooted, trunk_of
from certus.training.memory import freed_memory_kept
from certus.training.run_folder import RunFolder
from certus.training.threads import threads

BATCH = 2048
EDGES = ORIENTATIONS * CELLS**2  # of the descriptors, the first numbers are gradients
KNOWN_TRUNK = "efficientnet-lite0"  # looks at pictures whose run began without ImageNet weights
MOST_EMBEDDED, SMALLEST = 5_000, 24  # pictures that it is asked for, about 20 ms each, and the pixels that they need
Listen = Callable[[int, int], None]  # (pictures done, pictures to do)


@dataclass(frozen=True, eq=False)
class Reviewed:
    """Pictures are numbered as in the run's training images."""

    config: Config
    model: Model
    data: Dataset
    classes: tuple[str, ...]  # the model's, then those that came into the folder since
    pictures: tuple[str, ...]  # names
    labels: NDArray[np.int64]  # −1: none
    draws: int = 10
    listen: Listen = lambda *_: None

    @cached_property
    def free(self) -> NDArray[np.int64]:
        """The pictures without a label."""
        return np.flatnonzero(self.labels < 0)

    @cached_property
    def answers(self) -> Prediction:
        """The model's answers to them, in that order; draws are made only if they rank better than what is there."""
        return self.asked[0]

    @property
    def opinions(self) -> NDArray[np.float32]:
        """(n, C) the mean of these answers and of the witness's, if there is one: where they differ, it is in doubt."""
        return self.asked[1]

    @cached_property
    def asked(self) -> tuple[Prediction, NDArray[np.float32]]:
        unmoved = self.model.looks.unmoved  # of so many pictures, a third of the time matters more
        model, total = replace(self.model, trunk=None, looks=unmoved), len(self.free)
        draws = 0 if model.witnesses else self.draws
        answers, opinions = [], []
        with threads(self.config.threads), untouched_generator():
            for done in range(0, total, BATCH):
                x = self.inputs(self.free[done : done + BATCH])
                answers.append(model.answer(x, draws, self.config.seed))
                opinion = answers[-1].probabilities
                if model.witnesses:
                    opinion = (opinion + model.mean_answer(model.witnesses, x, unmoved).numpy()) / 2
                opinions.append(opinion)
                self.listen(min(done + BATCH, total), total)
        return joined(answers), np.concatenate(opinions)

    def inputs(self, rows: NDArray[np.int64]) -> Tensor:
        """What the networks see of these pictures: pixels, or features that are embedded once."""
        index = torch.from_numpy(rows)
        if self.model.trunk is None:
            return self.data.train.images[index]
        assert isinstance(self.model.trunk, Trunk)
        return rooted(self.embed(self.model.trunk, self.config, index))

    def embed(self, trunk: Trunk, config: Config, index: Tensor) -> Tensor:
        with freed_memory_kept():
            return remembered_by(trunk, config)(self.data.train.images, index, trunk)

    @torch.no_grad()
    def learnt_features(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """(n, D) what the first answering network sees in these pictures, as vectors of length 1."""
        net, parts = self.model.nets[0], []
        with threads(self.config.threads), untouched_generator(), evaluating(net):
            for start in range(0, len(rows), 256):
                x = self.model.normalised(self.inputs(rows[start : start + 256]))
                parts.append(net.features(x).flatten(1))  # type: ignore[operator]
        return comparable(torch.cat(parts)).numpy() if parts else np.empty((0, 1), np.float32)

    def unlearnt_features(self, rows: NDArray[np.int64]) -> list[NDArray[np.float32]]:
        """Several kinds (n, D) of these pictures, by something that has not learnt their labels.

        A network that has learnt wrong labels finds them right. So: the vectors as they are; or gradients, gradients
        and colours, and where there are ImageNet weights their features, alone and beside gradients.
        """
        index, images = torch.from_numpy(rows), self.data.train.images
        if len(self.data.shape) == 1:
            return [images[index].float().numpy()]
        with threads(self.config.threads):
            described, trunk = describe(images, index).numpy(), self.unlearnt_trunk(len(rows))
            edges, colours = scaled(described[:, :EDGES]), scaled(described[:, EDGES:])
            kinds = [edges, np.concatenate([edges, colours], 1)]
            if trunk:
                objects = scaled(comparable(self.embed(*trunk, index)).numpy())
                kinds += [objects, np.concatenate([edges, objects], 1)]
        return kinds

    def unlearnt_trunk(self, count: int) -> tuple[Trunk, Config] | None:
        """Of ImageNet weights: the run's own, or others if they are at hand and the pictures are not too many."""
        if isinstance(self.model.trunk, Trunk):
            return self.model.trunk, self.config
        if available(self.config.network) and self.config.weights == "imagenet":
            return trunk_of(self.config, self.data), self.config
        shape = self.data.shape
        if count > MOST_EMBEDDED or not available(KNOWN_TRUNK) or shape[0] not in (1, 3) or min(shape[1:]) < SMALLEST:
            return None
        config = replace(self.config, network=KNOWN_TRUNK, weights="imagenet")
        return Trunk(KNOWN_TRUNK, shape, brightest(self.data.train.images), "imagenet"), config


def joined(parts: Sequence[Prediction]) -> Prediction:
    """The answers to several batches as one."""
    names = parts[0].uncertainty
    return Prediction(
        labels=np.concatenate([part.labels for part in parts]),
        probabilities=np.concatenate([part.probabilities for part in parts]),
        uncertainty={name: np.concatenate([part.uncertainty[name] for part in parts]) for name in names},
        classes=parts[0].classes,
    )


def review(run: str | Path, draws: int = 10, listen: Listen = lambda *_: None) -> Reviewed:
    """Open a trained run and its data set as that is now, with labels that came since."""
    folder = RunFolder(Path(run))
    config, model = folder.load_config(), load(folder.path)
    data = load_data(config.data, config.data_dir, config.size, config.fit)
    if data.shape != model.shape:
        shapes = ["×".join(map(str, shape)) for shape in (data.shape, model.shape)]
        raise UsageError(f"{config.data} now has pictures of {shapes[0]}, but the run in {run} knows {shapes[1]}.")
    names = [str(i) for i in range(len(data.train))]
    if is_folder(config.data):
        names = [file.as_posix() for file in pictures(config.data, config.size, config.fit).files["train"]]
    classes = (*model.classes, *(c for c in data.classes if c not in model.classes))
    number = np.array([*(classes.index(c) for c in data.classes), -1])  # the last is what −1 becomes
    labels = number[known_labels(folder, config, data).numpy()]
    return Reviewed(config, model, data, classes, tuple(names), labels, draws, listen)


def known_labels(folder: RunFolder, config: Config, data: Dataset) -> Tensor:
    """(N,) the labels that the run was given, for training or validation; of a folder also those that came since."""
    same = folder.load_split()["fingerprint"] == data.fingerprint
    if not same and config.labels == 0 and is_folder(config.data):
        return data.train.labels
    if not same:
        raise UsageError(
            f"{config.data} has changed since the run in {folder.path} began, which knew only some of its labels: "
            "restore the data as they were, or train again."
        )
    parts = split_of(config, data)
    labels = visible_labels(config, data, parts)
    labels[parts.validation] = data.train.labels[parts.validation]
    return labels
