"""certus data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from certus.cli.flags import argument, flag
from certus.cli.screen import screen
from certus.config.presets import DATA
from certus.data import DATASETS, OFFICIAL, data_folder, fetch, load
from certus.errors import CertusError, UsageError


@dataclass(frozen=True)
class Options:
    """List the data sets, or download one.

    certus data fetch NAME downloads a data set and checks its files.
    """

    action: tuple[str, ...] = argument("[fetch NAME]", "download this data set; without it: list all", ())
    data_dir: str = flag("folder of the data sets' files", "", "$CERTUS_DATA or the user's cache")
    json: bool = flag("print the list as JSON", False)


def run(options: Options) -> int:
    if options.action:
        if options.action[0] != "fetch" or len(options.action) != 2:
            raise UsageError("certus data lists the data sets; certus data fetch NAME downloads one.")
        return download(options.action[1], options.data_dir)
    listed = [about(name, options.data_dir) for name in DATASETS]
    if options.json:
        print(json.dumps(listed, ensure_ascii=False))
        return 0
    table = Table()
    for column in ("data set", "what it is", "classes", "train", "test", "size"):
        table.add_column(column, justify="left" if column in ("data set", "what it is") else "right")
    for d in listed:
        if d["here"]:
            size = "×".join(map(str, d["shape"][1:] if len(d["shape"]) == 3 else d["shape"]))
            table.add_row(d["name"], d["about"], str(len(d["classes"])), f"{d['train']:,}", f"{d['test']:,}", size)
        else:
            table.add_row(d["name"], d["about"], *["—"] * 4)
    screen().print(table)
    print(f"Data folder: {data_folder(Path(options.data_dir) if options.data_dir else None)}")
    print("—: not downloaded; certus data fetch NAME downloads it.")
    return 0


def about(name: str, root: str) -> dict[str, Any]:
    """A data set's description, and its size if its files are here."""
    described: dict[str, Any] = {
        "name": name,
        "about": DATASETS[name].about,
        "preset": DATA.get(name, {}),
        "here": True,
    }
    try:
        data = load(name, root)
    except CertusError as e:
        return described | {"here": False, "why": str(e)}
    return described | {
        "classes": list(data.classes),
        "train": len(data.train),
        "test": len(data.test),
        "shape": list(data.shape),
    }


def download(name: str, data_dir: str) -> int:
    if name in DATASETS and name not in OFFICIAL:
        raise UsageError(f"{name} needs no download: it comes with scikit-learn.")
    root = data_folder(Path(data_dir) if data_dir else None)
    files = fetch(name, root)
    data = load(name, str(root))
    print(f"{name}: {len(data.train):,} training and {len(data.test):,} test images in {root}")
    for file in files:
        print(f"  {file}")
    return 0
