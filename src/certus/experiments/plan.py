"""How many steps an arm has where its runs are limited by minutes: timed once, kept in OUT/plan.json, and the same for
every seed. So a run that was stopped goes on as it began, and a busy machine changes no run that is planned."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from certus.config import Config
from certus.errors import UsageError
from certus.training.planning import complete, timed_within
from certus.writing import put_json

PLANNING = 7200  # seconds to wait for another process that times the same arms
PLANNED = ("steps", "warm_up", "width", "labelled_batch", "unlabelled_batch")


class Untimed(UsageError):
    """An arm that was never trained here, and is not to be timed now."""


def ignore(name: str) -> None:
    """A listener that does nothing."""


@dataclass
class Plan:
    """The plan of one folder of runs.

    Attributes:
        out: the folder of the runs
        label: of the scale, or the minutes of each run; a folder holds one
        timing: whether an arm that is not planned yet is timed, or refused
        listen: called with the name of each arm that is timed
    """

    out: Path
    label: str
    timing: bool = True
    listen: Callable[[str], None] = ignore
    arms: dict[str, dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.arms = {}
        if not self.path.exists():
            return
        try:
            found = json.loads(self.path.read_text())
            label = str(found["scale"])
            self.arms = {name: {key: values[key] for key in PLANNED} for name, values in found["arms"].items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            raise UsageError(f"{self.path} is not as certus wrote it: restore it, or give another `out`.") from None
        if label != self.label:
            raise UsageError(f"{self.out} holds runs of {label}, not of {self.label}: give another `out`.")

    @property
    def path(self) -> Path:
        return self.out / "plan.json"

    def complete(self, name: str, config: Config, minutes: Callable[[], float]) -> Config:
        """The config with nothing left to decide. One that has its steps needs no plan."""
        if config.steps:
            return config
        if name not in self.arms:
            if not self.timing:
                raise Untimed(f"{name} was never trained in {self.out}.")
            self.listen(name)
            timed = timed_within(replace(config, seed=0, init=""), minutes())  # what it starts from is not there yet
            self.arms[name] = {key: getattr(timed, key) for key in PLANNED}
            self.out.mkdir(parents=True, exist_ok=True)
            put_json(self.path, {"scale": self.label, "arms": self.arms})
        return complete(replace(config, **self.arms[name]))
