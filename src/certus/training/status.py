"""How a run is doing, read from its folder alone: of this machine or of another that shares the disk.

Nothing is written and no lock is taken. The lock file names the process that trains the run. On this machine that
process is asked for; on another one, a run counts as running while something in its folder is new.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from certus.config import Config
from certus.errors import CertusError, UsageError
from certus.training.lock import NAME, named
from certus.training.run_folder import RunFolder
from certus.writing import is_running

SILENCE = 600.0  # seconds without a new file after which a run of another machine counts as stopped
EPOCHS = 3  # the same, if its epochs are long


@dataclass(frozen=True)
class Status:
    state: str  # running, stopped, finished or damaged
    method: str = ""
    step: int = 0
    steps: int = 0
    losses: Mapping[str, float] = field(default_factory=dict)  # means over the last epoch
    validation_error: float | None = None
    left: float | None = None  # seconds, if it is running
    host: str = ""  # the other machine that trains it
    reason: str = ""  # why it is damaged

    def called(self, state: str) -> Status:
        return replace(self, state=state)


def runs_under(paths: Sequence[Path]) -> list[RunFolder]:
    """The runs in these folders and in the folders below them; refuses a folder that has none."""
    found: dict[Path, RunFolder] = {}
    for path in paths:
        if not path.is_dir():
            raise UsageError(f"There is no folder {path}.")
        inside = []
        for root, folders, files in os.walk(path):
            folders.sort()
            if "config.toml" in files:
                inside.append(RunFolder(Path(root)))
                folders.clear()
        if not inside:
            raise UsageError(f"{path} holds no run, and none of its folders does: no config.toml was found.")
        found |= {folder.path.resolve(): folder for folder in inside}
    return list(found.values())


def read_status(folder: RunFolder, now: float) -> Status:
    """`now`: seconds since 1970."""
    config: Config | None = None
    try:
        config = config_of(folder.config, stamp(folder.config))
        records = records_of(folder.metrics, stamp(folder.metrics))
        result = result_of(folder.result, stamp(folder.result)) if folder.finished() else None
    except CertusError as e:
        return Status("damaged", config.method if config else "", reason=str(e))
    last = records[-1] if records else {}
    status = Status(
        state="finished" if result else "stopped",
        method=config.method,
        step=config.steps if result else max(last.get("step", 0), folder.saved_step()),
        steps=config.steps,
        losses=last.get("losses", {}),
        validation_error=result["validation_error"] if result else last.get("validation_error"),
    )
    holder = holder_of(folder)
    if result or holder is None:
        return status
    process, machine = holder
    elsewhere = machine != platform.node()
    quiet = max(0.0, now - newest(folder))
    if quiet > patience(records) if elsewhere else not is_running(process):
        return status
    return replace(
        status, state="running", host=machine if elsewhere else "", left=time_left(status, last, folder, now)
    )


def holder_of(folder: RunFolder) -> tuple[int, str] | None:
    """The process and the machine that train in it, as its lock file says."""
    return named(folder.path / NAME)


def newest(folder: RunFolder) -> float:
    """When something was last written there."""
    files = (folder.path / NAME, folder.config, folder.metrics, folder.checkpoints)
    return max(stamp(path)[0] / 1e9 for path in files)


def patience(records: list[dict[str, Any]]) -> float:
    """Seconds of silence after which a run of another machine is taken for stopped."""
    each = records[-1].get("seconds", 0.0) / len(records) if records else 0.0
    return max(SILENCE, EPOCHS * each)


def time_left(status: Status, last: Mapping[str, Any], folder: RunFolder, now: float) -> float | None:
    """From the seconds per step so far, minus what has passed since the last epoch."""
    if not last.get("step") or not last.get("seconds"):
        return None
    passed = max(0.0, now - stamp(folder.metrics)[0] / 1e9)
    return max(0.0, last["seconds"] / last["step"] * (status.steps - last["step"]) - passed)


Stamp = tuple[int, int]  # when a file was written, in nanoseconds, and its size


def stamp(path: Path) -> Stamp:
    with suppress(OSError):
        found = path.stat()
        return found.st_mtime_ns, found.st_size
    return 0, 0


@lru_cache(4096)
def config_of(path: Path, _: Stamp) -> Config:
    return RunFolder(path.parent).load_config()


@lru_cache(4096)
def result_of(path: Path, _: Stamp) -> dict[str, Any]:
    return RunFolder(path.parent).load_result()


@lru_cache(4096)
def records_of(path: Path, _: Stamp) -> list[dict[str, Any]]:
    """Of metrics.jsonl. A last line that is only half written is normal, and left out."""
    return RunFolder(path.parent).load_metrics()
