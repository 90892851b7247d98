"""What a run takes over from the run that it goes on from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from certus.data import is_folder, load
from certus.data.continued import continued
from certus.errors import UsageError
from certus.training.run_folder import RunFolder

ITS_OWN = ("from_", "init", "label_noise")  # what is not taken over: it has had its effect


def inherited(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the run that `from_` names, for a new run; `given` are those that the user gave."""
    folder = RunFolder(Path(given["from_"]))
    config = folder.load_config()
    if not folder.finished():
        raise UsageError(f"{folder.path} is not finished: train it to the end with `resume` {folder.path}.")
    record = folder.load_split()
    data = str(given.get("data") or config.data)
    if is_folder(data) != is_folder(config.data) or (data != config.data and not is_folder(data)):
        raise UsageError(f"The run in {folder.path} was trained on {config.data}, so it cannot go on with {data}.")
    settings = {name: value for name, value in asdict(config).items() if name not in ITS_OWN}
    if is_folder(data):
        own = len(record["validation"])
        return settings | {"data": data, "labels": 0, "validation": own or -1}
    parts = continued(folder.path, load(data, str(given.get("data_dir", config.data_dir))), True)
    assert parts is not None
    return settings | {"labels": len(parts.labelled)}
