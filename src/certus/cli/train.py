"""certus train."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from certus.cli.flags import Flag, flag, flag_names, many, spelled, with_flags
from certus.cli.progress import console, counting, run_progress, trying
from certus.cli.settings import config_flags, method_flags, option_flags
from certus.config import Config, decide_mirroring, estimate_by_folds, resolve
from certus.config.settings import LENGTH
from certus.data import is_folder, load, pictures
from certus.data.remembered import heard_by
from certus.distributed.launch import current
from certus.distributed.team import Lost, Team
from certus.errors import Interrupted, UsageError
from certus.methods import PRETRAINING
from certus.methods.options import at_least
from certus.networks import architecture
from certus.training.build import build
from certus.training.continuing import inherited
from certus.training.loop import both, train
from certus.training.planning import check_length, complete, told_config
from certus.training.race import race, wanted
from certus.training.run import Run
from certus.training.run_folder import RunFolder
from certus.training.shared_folder import opened_by
from certus.training.tensorboard import board, the_writer
from certus.views.looks import Looks
from certus.writing import put

FILES = "files"
WORST = 3  # classes that are named


@dataclass(frozen=True)
class NewRun:
    """The flags that certus train and certus pretrain share."""

    settings: Mapping[str, Any] = many(())
    epochs: float | None = flag("passes over the unlabelled images, instead of steps", None, "by data set", LENGTH)
    minutes: float | None = flag(
        "train for about this long: a few steps are timed, and then the number of steps is fixed", group=LENGTH
    )
    out: Path | None = flag("the run's folder", None, "runs/…", FILES)
    save_seconds: float = flag("seconds between two checkpoints; 0: one after every step", 30.0, group=FILES)
    json: bool = flag("print the result as JSON", False, group=FILES)


@dataclass(frozen=True)
class Options(NewRun):
    """Train one classifier.

    A first try: certus train --data digits --method ft-ccl --labels 20

    Each method has its own options: certus train --method NAME --help
    """

    settings: Mapping[str, Any] = many(config_flags())
    method_options: Mapping[str, Any] = many(option_flags())
    config: Path | None = flag("take the settings of this run file; flags override them", group=FILES)
    resume: Path | None = flag("continue the run in this folder, to the same result", group=FILES)
    tensorboard: Path | None = flag("also write the curves of the run for TensorBoard, below this folder", group=FILES)


def more_flags(options: Options) -> list[Flag]:
    """For the help page: the options of the method that was named."""
    return method_flags(resolve(options.settings)) if "method" in options.settings else []


def run(options: Options) -> int:
    if options.tensorboard is not None:
        the_writer()  # refused before anything is trained
    if options.resume is not None:
        return resume(options.resume, options)
    base = Config.read(options.config) if options.config is not None else {}
    if "from_" in options.settings:
        if options.config is not None:
            raise UsageError("--from takes the settings of a run, and so does --config: give only one of them.")
        base = inherited(options.settings)
    config = new_config(options, base, options.method_options)
    with opened_by(current(), RunFolder.new(options.out, config)) as folder:
        return train_in(folder, config, options, options.tensorboard)


def resume(path: Path, options: Options) -> int:
    """Continue a run; nothing of it can be changed."""
    start = {"epochs": options.epochs, "minutes": options.minutes, "out": options.out, "config": options.config}
    changed = [*options.settings, *options.method_options, *(name for name, v in start.items() if v is not None)]
    if changed:
        raise UsageError(
            f"--resume continues a run as it was started: leave out {', '.join(sorted(map(spelled, changed)))}."
        )
    team = current()
    with opened_by(team, RunFolder(path).held()) as folder:
        config = told_config(team, folder.load_config)
        if team.told(lambda: "finished" * folder.finished()):
            console.print(f"The run in {folder.path} is already finished.", soft_wrap=True)
            return show_result(folder.load_result(), folder, options.json) if team.leads else 0
        if team.leads and folder.is_old():
            note = "This run was begun by certus 0.1.0, whose checkpoints hold no settings: config.toml is trusted."
            console.print(note, soft_wrap=True)
        return train_in(folder, config, options, options.tensorboard)


def new_config(options: NewRun, base: dict[str, Any], method_options: Mapping[str, Any]) -> Config:
    """The settings that were given, over those of a run file; complete, with the number of steps."""
    team = current()

    def chosen() -> str:
        config, minutes = chosen_config(options, base, method_options)
        return json.dumps([asdict(config), minutes])

    settings, minutes = json.loads(team.told(chosen))
    with counting("embedding pictures") as told, heard_by(told):
        return complete(Config(**settings), options.epochs, minutes, team)


def chosen_config(
    options: NewRun, base: dict[str, Any], method_options: Mapping[str, Any]
) -> tuple[Config, float | None]:
    """The settings with a network and views that suit the data, and the minutes that are left."""
    steps = options.settings.get("steps") or None  # 0 is as if it were not given
    check_length(steps, options.epochs, options.minutes)
    if steps or options.epochs or options.minutes:
        base.pop("steps", None)
    inherited = base.pop("options", {})
    if options.settings.get("method", base.get("method")) != base.get("method"):
        inherited = {}
    given = {**base, **options.settings, "options": {**inherited, **method_options}}
    config, minutes = resolve(given), options.minutes
    if is_folder(config.data):
        with counting("reading pictures") as listen:
            found = pictures(config.data, config.size, config.fit, listen)
        for line in found.summary():
            console.print(line, soft_wrap=True)
    data = load(config.data, config.data_dir, config.size, config.fit)
    if wanted(given):
        with trying() as announce:
            found_network = race(given, data, minutes, announce)
        for line in found_network.remarks:
            console.print(with_flags(line, flag_names(Options)), soft_wrap=True, markup=False)
        config = resolve({**given, **found_network.settings})
        minutes = found_network.left(minutes)
    config, verdict = decide_mirroring(config, data)
    estimate = estimate_by_folds(config, data) if config.method not in PRETRAINING else None
    for remark in filter(None, (verdict, estimate)):
        console.print(with_flags(str(remark), flag_names(Options)), soft_wrap=True)
    return config, minutes


def train_in(folder: RunFolder, config: Config, options: NewRun, tensorboard: Path | None = None) -> int:
    """Train a run in its folder, from its newest checkpoint if it has one, and print the result."""
    at_least(0)("save_seconds", options.save_seconds)
    team = current()
    with team.first(), counting("embedding pictures") as told, heard_by(told):
        built = build(config, folder, team)
    console.print(title(built), soft_wrap=True)
    if team.leads and is_folder(config.data) and (skipped := pictures(config.data, config.size, config.fit).skipped):
        folder.path.mkdir(parents=True, exist_ok=True)
        put(folder.path / "skipped.txt", "".join(f"{file}\t{why}\n" for file, why in skipped))
    try:
        drawing = board(folder, tensorboard if team.leads else None)
        with run_progress(f"{config.method} seed {config.seed}") as listen, drawing as draw:
            result = train(built, folder, both(listen, draw), options.save_seconds)
    except (Interrupted, Lost) as e:
        raise type(e)(f"{e} Go on with: {again(folder, team)}") from None
    return show_result(result, folder, options.json)


def again(folder: RunFolder, team: Team) -> str:
    """The command that goes on."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    start = ["certus"] if team.size == 1 else ["torchrun", "--nproc-per-node", str(here), "-m", "certus"]
    return shlex.join([*start, "train", "--resume", str(folder.path)])


def title(run: Run) -> str:
    """Method, data, network and length of a run, and how its time is laid out."""
    config = run.config
    labels = f"{len(run.split.labelled):,} labels" if config.method not in PRETRAINING else "no labels"
    validation = f", {len(run.validation):,} more for validation" if len(run.validation) else ""
    epochs = config.steps / run.batches.per_epoch
    sizes = {"both": f"{config.labelled_batch} labelled + {config.unlabelled_batch} unlabelled"}
    images = sizes.get(run.method.sees, f"{run.images_per_step}")
    warm = f", the first {run.warm_steps:,} on labels alone" if run.warm_steps else ""
    if run.warm_steps == config.steps:
        warm = ", all on labels alone, because the run is too short to gain from unlabelled images"
    balance = {"batches": ", each class drawn equally often", "logits": ", loss adjusted to uneven classes"}
    n = run.team.threads(config.threads)
    cores = f"{n} thread{'s' * (n > 1)}" if config.device == "cpu" else config.device
    cores = cores if run.team.size == 1 else f"{run.team.size} processes of {cores}"
    width = "" if architecture(config.network).fixed else f" of width {config.width}"
    return (
        f"{config.method} on {config.data}: {labels}{validation}, {len(run.split.unlabelled):,} unlabelled; "
        f"{config.network}{width}, {config.optimiser}, {config.precision}, {cores}, seed "
        f"{config.seed}\n"
        f"{config.steps:,} steps of {images} images ({epochs:.3g} epochs){warm}{balance.get(config.balance, '')}"
    )


def show_result(result: Mapping[str, Any], folder: RunFolder, as_json: bool) -> int:
    if as_json:
        print(json.dumps({**result, "folder": str(folder.path)}))
        return 0
    each = result["test_errors"]
    detail = "  (" + ", ".join(f"{name} {e:.2f} %" for name, e in each.items()) + ")" if len(each) > 1 else ""
    looks = str(Looks(result.get("mirror", False), result.get("nudge", 0)))
    how = f", {looks}" if looks else ""
    if result["test_error"] is not None:
        print(f"Test error {result['test_error']:.2f} %{detail}{how}")
    elif result["validation_error"] is not None:
        print(f"Validation error {result['validation_error']:.2f} % (there are no test images){how}")
    else:
        print("No error was measured, because there are no test and no validation images.")
    if by_class := result.get("class_errors"):
        print(class_line(by_class))
    print(f"Run: {folder.path}")
    return 0


def class_line(errors: Mapping[str, float]) -> str:
    """The error of each class; of many classes, of the three worst."""
    worst = sorted(errors, key=lambda name: -errors[name])[:WORST]
    which = "Error by class" if len(errors) <= WORST else f"Highest errors of the {len(errors)} classes"
    return (
        f"{which}: {', '.join(f'{name} {errors[name]:.1f} %' for name in worst)}; mean {fmean(errors.values()):.2f} %"
    )
