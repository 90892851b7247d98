"""certus methods and certus data."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from torch import nn

from certus.cli.train import Given
from certus.config.presets import PRESETS
from certus.core.build_context import BuildContext
from certus.data import DATASETS, OFFICIAL, data_folder, fetch, load
from certus.errors import CertusError, UsageError
from certus.methods import METHODS
from certus.methods.recipe import flag, shown
from certus.networks.mlp import MLP


def methods_command(args: Any, given: Given) -> int:  # noqa: ARG001
    listed = []
    for known in METHODS.values():
        method = known.build(BuildContext.bare(placeholder, 2), known.options())
        listed.append(
            {
                "name": known.name,
                "summary": known.summary,
                "reference": known.reference,
                "recipe": repr(method),
                "options": {
                    f.name: {
                        "default": f.default,
                        "help": f.metadata["help"],
                        "source": f.metadata["source"] or known.cited,
                    }
                    for f in fields(known.options)
                },
            }
        )
    if args.json:
        print(json.dumps(listed, ensure_ascii=False))
        return 0
    out = Console(highlight=False, soft_wrap=True)
    for entry in listed:
        out.print(f"[bold]{entry['name']}[/bold]: {entry['summary']}")
        out.print(f"  from {entry['reference']}")
        for line in str(entry["recipe"]).splitlines()[1:]:
            out.print(f"  {line}", markup=False)
        constants = entry["options"].items()  # type: ignore[attr-defined]
        room = max((len(f"{flag(o)} {shown(v['default'])}") for o, v in constants), default=0)
        for option, v in constants:
            told = f"{flag(option)} {shown(v['default'])}"
            out.print(f"    {told:{room}}  {v['help']} ({v['source']})", markup=False)
        print()
    return 0


def placeholder(i: int, scale: float = 1.0) -> nn.Module:  # noqa: ARG001
    """A network to show a recipe with."""
    return MLP(inputs=1, classes=2, width=1)


def data_command(args: Any, given: Given) -> int:
    if args.action:
        if args.action[0] != "fetch" or len(args.action) != 2:
            raise UsageError("certus data lists the data sets; certus data fetch NAME downloads one.")
        return fetch_command(args.action[1], args, given)
    listed = [about(name, args.data_dir) for name in DATASETS]
    if args.json:
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
    Console().print(table)
    print(f"Data folder: {data_folder(Path(args.data_dir) if args.data_dir else None)}")
    print("—: not here yet; certus data fetch NAME downloads it.")
    return 0


def about(name: str, root: str) -> dict[str, Any]:
    """What is known of a data set; of one whose files are not here, only what it is."""
    told: dict[str, Any] = {"name": name, "about": DATASETS[name].about, "preset": PRESETS.get(name, {}), "here": True}
    try:
        data = load(name, root)
    except CertusError as e:
        return told | {"here": False, "why": str(e)}
    return told | {
        "classes": list(data.classes),
        "train": len(data.train),
        "test": len(data.test),
        "shape": list(data.shape),
    }


def fetch_command(name: str, args: Any, given: Given) -> int:
    if name in DATASETS and name not in OFFICIAL:
        raise UsageError(f"{name} needs no download: it comes with scikit-learn.")
    root = data_folder(Path(args.data_dir) if "data_dir" in given else None)
    files = fetch(name, root)
    data = load(name, str(root))
    print(f"{name}: {len(data.train):,} training and {len(data.test):,} test images in {root}")
    for file in files:
        print(f"  {file}")
    return 0
