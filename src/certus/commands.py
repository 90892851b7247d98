"""What each command does: the shell between the command line and the library."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from torch import nn

from certus import checkpoint, compare, figures
from certus.config import Config, resolve
from certus.data import DATASETS, load
from certus.errors import CertusError, UsageError
from certus.evaluate import errors
from certus.folder import Folder, put_json
from certus.methods import METHODS, recipe
from certus.methods.recipe import flag
from certus.models.roles import role
from certus.presets import PRESETS
from certus.progress import console, many_progress, run_progress
from certus.run import build, complete
from certus.stopping import Interrupted
from certus.train import restore, train

Given = frozenset[str]


def train_command(args: Any, given: Given) -> int:
    if "resume" in given:
        if extra := given - {"resume", "json", "save_seconds"}:
            raise UsageError(
                f"--resume goes on with a run as it was started: leave out {', '.join(sorted(map(flag, extra)))}."
            )
        folder = Folder(args.resume)
        config = folder.load_config()
        if folder.finished():
            console.print(f"The run in {folder.path} is finished; there is nothing to go on with.")
            return show_result(folder.load_result(), folder, args.json)
    else:
        config = complete(*new_config(args, given))
        folder = new_folder(args.out if "out" in given else None, config)
    console.print(title(config), soft_wrap=True)
    with run_progress(f"{config.method} seed {config.seed}") as listen:
        result = train(config, folder, listen, args.save_seconds)
    return show_result(result, folder, args.json)


def title(config: Config) -> str:
    validation = f", {config.validation} more for validation" if config.validation else ""
    return (
        f"{config.method} on {config.data}: {config.labels} labels{validation}; {config.network} of width "
        f"{config.width}, {config.steps} steps, seed {config.seed}"
    )


def new_config(args: Any, given: Given) -> tuple[Config, float | None, float | None]:
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
    options = typed_settings(args.options, given)
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


def new_folder(out: Path | None, config: Config) -> Folder:
    """The folder that was asked for, if it holds no run yet; otherwise the first free name under runs/."""
    if out is not None:
        folder = Folder(out)
        if folder.exists():
            raise UsageError(f"{out} already holds a run: go on with it by --resume {out}, or give another --out.")
        if out.exists() and not out.is_dir():
            raise UsageError(f"{out} is a file, not a folder: give another --out.")
        return folder
    name = f"{config.data}-{config.method}-{config.labels}-seed{config.seed}"
    taken = 1
    while (folder := Folder(Path("runs") / (name if taken == 1 else f"{name}-{taken}"))).exists():
        taken += 1
    return folder


def show_result(result: Mapping[str, Any], folder: Folder, as_json: bool) -> int:
    if as_json:
        print(json.dumps({**result, "folder": str(folder.path)}))
        return 0
    each = result["test_errors"]
    detail = "  (" + ", ".join(f"{name} {e:.2f} %" for name, e in each.items()) + ")" if len(each) > 1 else ""
    print(f"Test error {result['test_error']:.2f} %{detail}")
    print(f"Run: {folder.path}")
    return 0


def compare_command(args: Any, given: Given) -> int:
    names = list(METHODS) if args.methods == "all" else [m for m in args.methods.split(",") if m]
    if not names or len(set(names)) < len(names):
        raise UsageError(f"--methods must name each method once, with commas between, but is {args.methods!r}.")
    if args.seeds < 1:
        raise UsageError(f"--seeds must be at least 1, but is {args.seeds}.")
    if args.workers < 0:
        raise UsageError(f"--workers must be at least 1, but is {args.workers}.")
    if "epochs" in given and not args.epochs > 0:
        raise UsageError(f"--epochs must be more than 0, but is {args.epochs:g}.")
    common, options = typed_settings(args.settings, given), typed_settings(args.options, given)
    recipes = [recipe(name) for name in names]
    for option in options:
        if not any(option in r.defaults() for r in recipes):
            raise UsageError(f"None of {', '.join(names)} has an option {flag(option)}.")
    out = args.out if "out" in given else None
    cells = []
    configs: dict[str, Config] = {}
    for seed in range(args.seeds):
        for known in recipes:
            own = {o: v for o, v in options.items() if o in known.defaults()}
            if known.name not in configs:
                config = resolve({**common, "method": known.name, "threads": 1, "options": own})
                configs[known.name] = complete(config, args.epochs if "epochs" in given else None)
            config = replace(configs[known.name], seed=seed)
            out = out or Path("runs") / f"compare-{config.data}-{config.labels}"
            cells.append(compare.Cell(config, compare.cell_folder(out, known.name, seed)))
    assert out is not None
    return run_comparison(cells, out, args.workers or len(os.sched_getaffinity(0)), args.json)


def run_comparison(cells: list[compare.Cell], out: Path, workers: int, as_json: bool) -> int:
    config = cells[0].config
    console.print(
        f"{len(cells)} runs on {config.data}: {config.labels} labels, {config.steps} steps each, "
        f"{workers} at a time, in {out}",
        soft_wrap=True,
    )
    for cell in cells:
        compare.check(cell)
    failed: dict[str, CertusError] = {}
    with many_progress(len(cells)) as progress:

        def done(cell: compare.Cell, outcome: dict[str, Any] | CertusError) -> None:
            if isinstance(outcome, CertusError):
                failed[cell.name] = outcome
                progress.finish(cell.name, f"failed: {outcome}")
            else:
                progress.finish(cell.name, f"done in {outcome['seconds']:.0f} s")

        try:
            results = compare.run_all(cells, workers, lambda c, tick: progress.tick(c.name, tick), done)
        except KeyboardInterrupt:
            command = shlex.join(["certus", *sys.argv[1:]])
            raise Interrupted(f"Stopped; every run is saved. Go on with: {command}") from None
    summary = compare.summarise(cells, results)
    put_json(out / "results.json", summary)
    picture = out / "comparison.png"
    runs: dict[str, list[Folder]] = {}
    for cell in cells:
        runs.setdefault(cell.config.method, [])
        if cell.name in results:
            runs[cell.config.method].append(cell.folder)
    if results:
        figures.comparison(summary, runs, load(config.data), picture)
    if as_json:
        print(json.dumps(summary))
    else:
        Console().print(comparison_table(summary))
        print(f"Results: {out / 'results.json'}")
        if results:
            print(f"Picture: {picture}")
    for name, reason in failed.items():
        print(f"certus: {name} failed: {reason}", file=sys.stderr)
    return 1 if failed else 0


def comparison_table(summary: Mapping[str, Any]) -> Table:
    reference = summary["reference"]
    table = Table(
        title=f"{summary['data']}, {summary['labels']} labels: test error (%)",
        caption="± standard deviation over seeds; the difference is paired by seed, with a 95 % confidence interval",
    )
    table.add_column("method")
    for column in ("mean ± std", "n", f"difference to {reference}", "s per run"):
        table.add_column(column, justify="right")
    for method, v in summary["methods"].items():
        if not v["n"]:
            table.add_row(method, "failed", "0", "", "")
            continue
        mean = f"{v['mean']:.2f}" + (f" ± {v['std']:.2f}" if v["std"] is not None else "")
        d = v["difference"]
        difference = ""
        if d and d["mean"] is not None:
            difference = f"{d['mean']:+.2f}" + (
                f"  [{d['low']:+.2f}, {d['high']:+.2f}]" if d["low"] is not None else ""
            )
        table.add_row(method, mean, str(v["n"]), difference, f"{v['seconds']:.1f}")
    return table


def evaluate_command(args: Any, given: Given) -> int:  # noqa: ARG001
    folder = Folder(args.run)
    run = build(folder.load_config())
    found = checkpoint.read(folder.checkpoints)
    if found is None:
        raise CertusError(f"{folder.path} has no checkpoint yet: train it with --resume {folder.path}.")
    step = restore(run, found)
    test = run.data.test
    each = errors(run.method.answers, run.data, test.images, test.labels)
    result = {
        "method": run.config.method,
        "data": run.config.data,
        "step": step,
        "steps": run.config.steps,
        "images": len(test),
        "test_error": sum(each) / len(each),
        "test_errors": {role(net): e for net, e in zip(run.method.answers, each, strict=True)},
    }
    if not args.json:
        of = "finished" if step == run.config.steps else f"stopped after step {step} of {run.config.steps}"
        print(f"{run.config.method} on {run.config.data} ({of}), {len(test)} test images")
    return show_result(result, folder, args.json)


def methods_command(args: Any, given: Given) -> int:  # noqa: ARG001
    listed = []
    for known in METHODS.values():
        method = known.build(placeholder, known.options())
        helps = {f.name: f.metadata["help"] for f in fields(known.options)}
        listed.append(
            {
                "name": known.name,
                "summary": known.summary,
                "reference": known.reference,
                "recipe": repr(method),
                "options": {name: {"default": value, "help": helps[name]} for name, value in known.defaults().items()},
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
        options = ", ".join(f"{flag(o)} {v['default']}" for o, v in entry["options"].items())  # type: ignore[attr-defined]
        out.print(f"  options: {options or 'none'}\n", markup=False)
    return 0


def placeholder(i: int) -> nn.Module:  # noqa: ARG001
    """A network to show a recipe with."""
    return nn.Sequential(nn.Dropout(0.5), nn.Linear(1, 2))


def data_command(args: Any, given: Given) -> int:  # noqa: ARG001
    listed = []
    for name, (about, _) in DATASETS.items():
        data = load(name)
        shape = "×".join(map(str, data.shape[1:] if len(data.shape) == 3 else data.shape))
        listed.append(
            {
                "name": name,
                "about": about,
                "classes": list(data.classes),
                "train": len(data.train),
                "test": len(data.test),
                "shape": list(data.shape),
                "preset": PRESETS.get(name, {}),
                "size": shape,
            }
        )
    if args.json:
        print(json.dumps(listed, ensure_ascii=False))
        return 0
    table = Table()
    for column in ("data set", "what it is", "classes", "train", "test", "size"):
        table.add_column(column, justify="left" if column in ("data set", "what it is") else "right")
    for d in listed:
        table.add_row(
            str(d["name"]),
            str(d["about"]),
            str(len(d["classes"])),  # type: ignore[arg-type]
            f"{d['train']:,}",
            f"{d['test']:,}",
            str(d["size"]),
        )
    Console().print(table)
    return 0


DO: dict[str, Callable[[Any, Given], int]] = {
    "train": train_command,
    "compare": compare_command,
    "evaluate": evaluate_command,
    "methods": methods_command,
    "data": data_command,
}
