"""certus train and certus pretrain."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from certus.cli.progress import console, decoding_progress, run_progress
from certus.config import Config, resolve
from certus.data import is_folder, pictures
from certus.errors import UsageError
from certus.methods import PRETRAINING
from certus.methods.recipe import flag
from certus.training.build import build
from certus.training.loop import train
from certus.training.planning import complete
from certus.training.run import Run
from certus.training.run_folder import RunFolder, put

Given = frozenset[str]


def train_command(args: Any, given: Given) -> int:
    if "resume" in given:
        if extra := given - {"resume", "json", "save_seconds"}:
            raise UsageError(
                f"--resume goes on with a run as it was started: leave out {', '.join(sorted(map(flag, extra)))}."
            )
        folder = RunFolder(args.resume)
        config = folder.load_config()
        if folder.finished():
            console.print(f"The run in {folder.path} is finished; there is nothing to go on with.", soft_wrap=True)
            return show_result(folder.load_result(), folder, args.json)
    else:
        config = new_run(args, given)
        folder = new_folder(args.out if "out" in given else None, config)
    return train_in(config, folder, args)


def pretrain_command(args: Any, given: Given) -> int:
    """RotNet: the same loop on all images without labels."""
    config = new_run(args, given, {"method": "rotation", "validation": 0})
    folder = new_folder(args.out if "out" in given else None, config)
    code = train_in(config, folder, args)
    if not args.json:
        print(f"Start from it with: certus train --data {config.data} --init {folder.path}")
    return code


def new_run(args: Any, given: Given, fixed: Mapping[str, Any] | None = None) -> Config:
    """The config of a new run; one's own pictures are opened and summed up first."""
    config, epochs, minutes = new_config(args, given, fixed or {})
    if is_folder(config.data):
        with decoding_progress() as listen:
            found = pictures(config.data, config.size, listen)
        for line in found.summary():
            console.print(line, soft_wrap=True, markup=False)
    return complete(config, epochs, minutes)


def train_in(config: Config, folder: RunFolder, args: Any) -> int:
    run = build(config)
    console.print(title(run), soft_wrap=True)
    if is_folder(config.data) and (skipped := pictures(config.data, config.size).skipped):
        folder.path.mkdir(parents=True, exist_ok=True)
        put(folder.path / "skipped.txt", "".join(f"{file}\t{why}\n" for file, why in skipped))
    with run_progress(f"{config.method} seed {config.seed}") as listen:
        result = train(run, folder, listen, args.save_seconds)
    return show_result(result, folder, args.json)


def title(run: Run) -> str:
    """What will be trained, on what, and for how long."""
    config = run.config
    labels = f"{len(run.split.labelled):,} labels" if config.method not in PRETRAINING else "no labels"
    validation = f", {len(run.validation):,} more for validation" if len(run.validation) else ""
    epochs = config.steps / run.batches.per_epoch
    return (
        f"{config.method} on {config.data}: {labels}{validation}, {len(run.split.unlabelled):,} unlabelled; "
        f"{config.network} of width {config.width}, {config.steps:,} steps ({epochs:.3g} epochs), seed {config.seed}"
    )


def new_config(args: Any, given: Given, fixed: Mapping[str, Any]) -> tuple[Config, float | None, float | None]:
    """The settings that were typed, over those of --config; and how long to train."""
    if len(chosen := given & {"epochs", "minutes", "steps"}) > 1:
        raise UsageError(f"Give only one of {', '.join(sorted(map(flag, chosen)))}.")
    for name in given & {"epochs", "minutes", "steps"}:
        value = args.settings.steps if name == "steps" else getattr(args, name)
        if not value > 0:
            raise UsageError(f"{flag(name)} must be more than 0, but is {value:g}.")
    base = Config.read(args.config) if "config" in given else {}
    if chosen:
        base.pop("steps", None)
    typed = typed_settings(args.settings, given)
    typed |= fixed
    options = typed_settings(args.options, given) if hasattr(args, "options") else {}
    inherited = base.pop("options", {})
    if "method" in typed and typed["method"] != base.get("method"):
        inherited = {}
    return (
        resolve(base | typed | {"options": inherited | options}),
        args.epochs if "epochs" in given else None,
        args.minutes if "minutes" in given else None,
    )


def typed_settings(settings: Any, given: Given) -> dict[str, Any]:
    return {f.name: getattr(settings, f.name) for f in fields(settings) if f.name in given}


def new_folder(out: Path | None, config: Config) -> RunFolder:
    """The folder that was asked for, if it holds no run yet; otherwise the first free name under runs/."""
    if out is not None:
        folder = RunFolder(out)
        if folder.exists():
            raise UsageError(f"{out} already holds a run: go on with it by --resume {out}, or give another --out.")
        if out.exists() and not out.is_dir():
            raise UsageError(f"{out} is a file, not a folder: give another --out.")
        return folder
    labels = "" if config.method in PRETRAINING or not config.labels else f"-{config.labels}"
    name = f"{Path(config.data).name}-{config.method}{labels}-seed{config.seed}"
    taken = 1
    while (folder := RunFolder(Path("runs") / (name if taken == 1 else f"{name}-{taken}"))).exists():
        taken += 1
    return folder


def show_result(result: Mapping[str, Any], folder: RunFolder, as_json: bool) -> int:
    if as_json:
        print(json.dumps({**result, "folder": str(folder.path)}))
        return 0
    each = result["test_errors"]
    detail = "  (" + ", ".join(f"{name} {e:.2f} %" for name, e in each.items()) + ")" if len(each) > 1 else ""
    if result["test_error"] is not None:
        print(f"Test error {result['test_error']:.2f} %{detail}")
    elif result["validation_error"] is not None:
        print(f"Validation error {result['validation_error']:.2f} % (there are no test images)")
    print(f"Run: {folder.path}")
    return 0
