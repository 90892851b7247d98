"""How a setting gets its value.

In rising order: the default, the data set's preset, the method's preset on that data set, what the user gave
(`resolve`). What is still `auto` or 0 then is decided from the data and the machine (`decide`). A saved run has no
gaps.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from certus.config.engine import FEW_FOR_GUESSES, HEAD_METHOD
from certus.config.presets import DATA, FOLDER, recommended
from certus.config.settings import Config, checked_types, undecided
from certus.data import Dataset, is_folder
from certus.data.batches import steps_per_pass
from certus.data.continued import continued
from certus.data.folds import FEW, estimate
from certus.data.mirroring import Verdict, judge
from certus.data.split import Split, corrupt, some_of, split
from certus.errors import UsageError
from certus.methods import PRETRAINING, recipe
from certus.networks import architecture, has_weights, suitable, suitable_width
from certus.networks.outside import absolute
from certus.networks.precision import decide_precision
from certus.networks.weights import IMAGENET
from certus.randomness import generator
from certus.text import brief

MOST_VALIDATION = 2000  # images that are held out without being asked for; they are copied into memory
UNEVEN, UNEVEN_RATIO = "logits", 3  # what is done where a class has so many times the labels of another


def resolve(given: Mapping[str, Any]) -> Config:
    """Fill in what was not given, and refuse what makes no sense."""
    plain = checked_types({name: value for name, value in given.items() if name != "options"})
    defaults: dict[str, Any] = {f.name: f.default for f in fields(Config) if f.name != "options"}
    data = plain.get("data", defaults["data"])
    kind = FOLDER if is_folder(data) else data
    basic = defaults | DATA.get(kind, {}) | plain
    if basic["depth"] == "head" and "method" not in plain:
        plain["method"] = basic["method"] = HEAD_METHOD
    known = recipe(basic["method"])
    if (basic["depth"] != "all" or basic["guess"] is True) and basic["network"] == "auto":
        basic["network"] = next(iter(IMAGENET))
    network = quick_network(basic["network"], basic["device"])
    preset = recommended(kind, known.name, network, basic["depth"])
    own = {name: value for name, value in preset.items() if name in known.defaults()}
    around = {name: value for name, value in preset.items() if name in defaults}
    settings = defaults | around | plain | {"network": network}
    if (network == "sprint" or has_weights(network)) and "mirror" not in plain and basic["depth"] != "head":
        settings["mirror"] = settings["flip"]
    for f in fields(Config):
        if check := f.metadata.get("check"):
            check(f.name, settings[f.name])
    chosen = given.get("options", {})
    if not isinstance(chosen, Mapping):
        raise UsageError(f"`options` must be options of the method with their values, but is {brief(chosen)}.")
    options = known.complete(chosen, own)
    refuse_infinite(settings | options)
    refuse_idle(settings, options, plain)
    for name in idle_settings(settings, options).keys() - plain.keys():  # of a preset, next to what was given
        settings[name] = defaults[name]
    return Config(**settings, options=options)


def quick_network(name: str, device: str) -> str:
    """Without a GPU images are learnt by `sprint`, unless another network is asked for."""
    accelerated = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    return "sprint" if name == "auto" and not accelerated else name


def idle_settings(settings: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, str]:
    """Settings that change nothing next to the others, and why."""
    method = settings["method"]
    idle = {"strength": "`strong` is not distort"} if settings["strong"] != "distort" else {}
    strong = options.get("student_view") == "strong"
    if not strong and (method != "supervised" or settings["labelled_view"] != "strong"):
        idle = dict.fromkeys(("strong", "strength"), f"the student of {method} sees no strong views here")
    if not strong and method != "supervised":
        idle["labelled_view"] = f"with weak views of unlabelled images {method} sees labelled ones weakly too"
    if settings["optimiser"] == "muon":
        idle |= dict.fromkeys(("momentum", "weight_decay"), "`optimiser` muon has its own")
    if settings["optimiser"] == "adam":
        idle["momentum"] = "`optimiser` adam has its own"
    if not has_weights(settings["network"]):
        idle["depth"] = f"network {settings['network']} has no weights from other pictures"
        idle["guess"] = idle["depth"]
    elif not settings["warm_up"]:
        idle["guess"] = "without `warm_up` nothing learns the guesses"
    if settings["depth"] == "head":
        idle["guess"] = "with `depth` head all labels can travel"
        idle |= dict.fromkeys(("strong", "strength"), "with `depth` head there are no strong views")
    if not is_folder(settings["data"]):
        idle["fit"] = "it is for folders of pictures"
    if method in PRETRAINING:
        idle["balance"] = f"{method} has no labels"
    return idle


def refuse_infinite(values: Mapping[str, Any]) -> None:
    """Refuse infinity and NaN, whichever setting or option has it."""
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"`{name}` must be a finite number, but is {value:g}.")


def refuse_idle(settings: Mapping[str, Any], options: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse a given setting that would change nothing, unless it has its default or, in a saved run, 0."""
    usual = {f.name: f.default for f in fields(Config)}
    for name, reason in idle_settings(settings, options).items():
        if given.get(name, 0) not in (usual[name], 0):
            raise UsageError(f"`{name}` would change nothing: {reason}. Leave it out.")


def decide_mirroring(config: Config, data: Dataset) -> tuple[Config, Verdict | None]:
    """With `flip` and `mirror` decided, by the labels that the run will see; and the verdict, if there was one."""
    verdict = None
    if undecided(config.flip):
        verdict = judge_labelled(config, data) if len(data.shape) == 3 else Verdict(False, "vectors have no left side")
        config = replace(config, flip=verdict.flip)
    return (replace(config, mirror=config.flip) if undecided(config.mirror) else config), verdict


def judge_labelled(config: Config, data: Dataset) -> Verdict:
    parts = split_of(with_validation(config, data), data)
    labels = visible_labels(config, data, parts)
    order = torch.randperm(len(parts.labelled), generator=generator(config.seed, "mirroring"))
    return judge(data.train.images, labels, parts.labelled[order], data.classes)


def visible_labels(config: Config, data: Dataset, parts: Split) -> Tensor:
    """(N,) as the run knows them: −1 where it may not look, and wrong where it is told wrong ones."""
    return corrupt(parts.visible(data.train.labels), config.label_noise, len(data.classes), config.seed)


def decide_balance(config: Config, data: Dataset) -> Config:
    """With `balance` decided: by how uneven the labels are that the run will see."""
    if config.balance != "auto":
        return config
    parts = split_of(config, data)
    counts = parts.visible(data.train.labels)[parts.labelled].bincount(minlength=len(data.classes))
    return replace(config, balance=UNEVEN if counts.max() > UNEVEN_RATIO * counts.min() else "none")


def with_validation(config: Config, data: Dataset) -> Config:
    """With the number of validation images decided: a fifth of the labels, but none of few labels."""
    if config.validation >= 0:
        return config
    labels = config.labels or int((data.train.labels >= 0).sum())
    few = labels < FEW * len(data.classes)
    return replace(config, validation=0 if data.validation or few else min(labels // 5, MOST_VALIDATION))


def estimate_by_folds(config: Config, data: Dataset) -> str | None:
    """Where the labels are too few for validation: a sentence about the error. Otherwise None."""
    if config.validation >= 0 or data.validation or len(data.shape) != 3 or with_validation(config, data).validation:
        return None
    parts = split_of(with_validation(config, data), data)
    return estimate(data.train.images, parts.visible(data.train.labels), parts.labelled)


def decide(config: Config, data: Dataset) -> Config:
    """With every `auto` decided: network, width, device, threads, paths, validation, mirrored views. Not the number of
    steps."""
    if config.device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"`device` must be auto, cpu or cuda, but is {config.device!r}.")
    if config.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("`device` cuda was asked for, but torch sees no GPU here: use `device` cpu.")
    device = ("cuda" if torch.cuda.is_available() else "cpu") if config.device == "auto" else config.device
    name = suitable(data.shape) if config.network == "auto" else config.network
    if config.weights and not architecture(name).fixed:
        raise UsageError(f"Network {name} starts from its own initialisation: leave `weights` out.")
    weights = config.weights or ("imagenet" if has_weights(name) else "")
    config = decide_balance(with_validation(decide_mirroring(config, data)[0], data), data)
    return replace(
        config,
        data=str(Path(config.data).resolve()) if is_folder(config.data) else config.data,
        data_dir=str(Path(config.data_dir).resolve()) if config.data_dir else "",
        init=",".join(str(Path(start).resolve()) for start in config.init.split(",") if start),
        from_=str(Path(config.from_).resolve()) if config.from_ else "",
        size=data.shape[1] if is_folder(config.data) else 0,
        network=absolute(name),
        width=config.width or suitable_width(name, device == "cuda"),
        device=device,
        precision=decide_precision(config.precision, device),
        weights=weights if weights in ("", "imagenet") else str(Path(weights).resolve()),
        momentum=config.momentum if config.optimiser == "sgd" else 0.0,
        weight_decay=0.0 if config.optimiser == "muon" else config.weight_decay,
        threads=config.threads or len(os.sched_getaffinity(0)),
        guess=decide_guess(config, data),
    )


def decide_guess(config: Config, data: Dataset) -> bool:
    """Whether the warm-up learns guesses: with few labels, and if there is something to guess."""
    parts = split_of(config, data)
    if not undecided(config.guess):
        return config.guess
    return 0 < len(parts.labelled) < FEW_FOR_GUESSES * len(data.classes) and len(parts.unlabelled) > 0


def split_of(config: Config, data: Dataset) -> Split:
    """Which images are labelled, unlabelled and for validation."""
    if config.from_ and (parts := continued(Path(config.from_), data, not is_folder(config.data))):
        return replace(parts, unlabelled=some_of(parts.unlabelled, config.unlabelled, config.seed, data.name))
    return split(data, config.labels, config.seed, config.validation, config.balanced, config.unlabelled)


def steps_per_epoch(config: Config, data: Dataset) -> int:
    """The training steps of one pass over the unlabelled images; without any, over the labelled ones."""
    parts = split_of(config, data)
    return steps_per_pass(len(parts.labelled), len(parts.unlabelled), (config.labelled_batch, config.unlabelled_batch))
