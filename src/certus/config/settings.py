"""A run's settings in full: one frozen dataclass for the command line, Python and the saved run file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from certus.errors import UsageError, unknown
from certus.methods.options import at_least, between


def setting(default: Any, help: str, check: Any = None) -> Any:
    return field(default=default, metadata={"help": help, "check": check})


@dataclass(frozen=True)
class Config:
    """Everything that decides a run's result."""

    data: str = setting("digits", "the data set by name (`certus data` lists them), or a folder of pictures")
    data_dir: str = setting("", "where the files of the data sets lie; nothing: $CERTUS_DATA or the user's cache")
    size: int = setting(0, "pixels to which one's own pictures are resized; 0: chosen from them", at_least(0))
    method: str = setting("ft-ccl", "the method; `certus methods` lists them")
    labels: int = setting(20, "how many labels may be seen; 0: all that there are", at_least(0))
    seed: int = setting(0, "of the split, the initialisation and every random draw", at_least(0))
    validation: int = setting(
        200,
        "extra labelled images, never trained on, for the validation error; −1: a fifth of the labels",
        at_least(-1),
    )
    unlabelled: int = setting(0, "how many of the other images are used, without labels; 0: all of them", at_least(0))
    balanced: bool = setting(True, "the same number of labels for every class; off: drawn purely at random")
    label_noise: float = setting(0.0, "this fraction of the labels is replaced by random ones", between(0, 1))

    network: str = setting("auto", "the network; auto takes the one that fits the images")
    width: int = setting(0, "channels of its first layers; 0: what suits the network and the machine", at_least(0))
    dropout: float = setting(0.5, "probability of its dropout", between(0, 0.95))
    init: str = setting("", "start from this run of `certus pretrain`; several with commas, one per student")

    translate: int = setting(2, "views: shift by up to this many pixels", at_least(0))
    flip: bool = setting(False, "views: mirror left to right by chance")
    noise: float = setting(0.0, "views: add Gaussian noise of this size", at_least(0))

    labelled_batch: int = setting(128, "labelled images per step", at_least(1))
    unlabelled_batch: int = setting(384, "unlabelled images per step", at_least(1))
    steps: int = setting(0, "training steps; 0: as many as the epochs need", at_least(0))
    learning_rate: float = setting(0.1, "of SGD with Nesterov momentum, cosine decay to 0", at_least(0))
    momentum: float = setting(0.9, "of SGD", between(0, 0.999))
    weight_decay: float = setting(2e-4, "of SGD", at_least(0))

    device: str = setting("auto", "cpu or cuda; auto takes a GPU when there is one")
    threads: int = setting(0, "CPU threads; 0: one per core", at_least(0))

    options: Mapping[str, Any] = field(default_factory=dict)  # of the method, in full

    def text(self) -> str:
        """As a run file."""
        return to_toml(asdict(self))

    @staticmethod
    def read(path: Path) -> dict[str, Any]:
        """What a run file gives, with the same checks as the command line."""
        try:
            given = tomllib.loads(path.read_text())
        except OSError as e:
            raise UsageError(f"Cannot read {path}: {e.strerror or e}.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
            raise UsageError(f"{path} is not a run file: {e}.") from None
        return checked_types(given, f" in {path}")


def checked_types(given: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Settings with a known name and the right type; whole numbers serve as floats, numpy's numbers as Python's."""
    kinds = {name: kind for name, kind in get_type_hints(Config).items() if name != "options"}
    checked = {}
    for name, value in given.items():
        if name == "options":
            checked[name] = value
            continue
        if name not in kinds:
            raise unknown(f"setting{where}", name, kinds)
        value = value.item() if isinstance(value, np.generic) else value
        if kinds[name] is float and type(value) is int:
            checked[name] = float(value)
        elif type(value) is not kinds[name]:
            raise UsageError(f"`{name}`{where} must be of type {kinds[name].__name__}, but is {value!r}.")
        else:
            checked[name] = value
    return checked


def to_toml(values: Mapping[str, Any]) -> str:
    """Flat settings, then one table for the options; JSON's strings, numbers and booleans are TOML's too."""
    lines = [f"{k} = {json.dumps(v)}" for k, v in values.items() if not isinstance(v, Mapping)]
    for name, table in values.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{name}]", *(f"{k} = {json.dumps(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"
