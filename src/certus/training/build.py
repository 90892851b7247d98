"""From a config to a run: load the data, draw the split, make the networks, the method and the optimiser."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from certus.config import Config, split_of, visible_labels
from certus.core.build_context import BuildContext, Networks
from certus.core.method import Method
from certus.data import Dataset, Part, load
from certus.data.batches import Batches
from certus.data.dataset import brightest
from certus.distributed.team import ALONE, Team
from certus.errors import CertusError, UsageError
from certus.methods import recipe
from certus.networks import network
from certus.networks.foreign import Blueprint
from certus.networks.pretrained import Pretrained
from certus.networks.sprint import Sprint
from certus.networks.weights import pretrained
from certus.optimisers import adam, muon, sgd
from certus.randomness import generator, seed_global, seed_of, untouched_generator
from certus.teachers.witness import witnessed
from certus.training import checkpoint
from certus.training.embedding import Trunk, embedded
from certus.training.guessing import guessed_labels
from certus.training.identity import check_settings
from certus.training.pretraining import go_on, load_trunk, set_trunk
from certus.training.run import Run
from certus.training.run_folder import RunFolder
from certus.views import Augmentation, Chain, Noise, weak
from certus.views.distort import Distort
from certus.views.randaugment import RandAugment

SAMPLE, SAMPLE_PIXELS = 2000, 1 << 26  # training images that a network may look at before it learns, and their numbers
MakeNetwork = Callable[[], nn.Module]


def build(config: Config, folder: RunFolder | None = None, team: Team = ALONE) -> Run:
    """The run of a config in which nothing is left to decide.

    `folder`: where it may have begun. Then its networks are built as they were, and one that has a checkpoint does not
    need the weights that it started from.
    """
    data = load(config.data, config.data_dir, config.size, config.fit)
    if folder is None:
        return build_on(data, config, team=team)
    return build_on(data, config, blueprint=folder.load_blueprint(), trained=folder.saved_step() > 0, team=team)


def build_on(
    data: Dataset,
    config: Config,
    make: MakeNetwork | None = None,
    reuse_labelled: bool = False,
    blueprint: Blueprint | None = None,
    trained: bool = False,
    team: Team = ALONE,
) -> Run:
    """A run on these data. `make` builds the user's own network, `blueprint` that of another package.

    `reuse_labelled`: without unlabelled images, the labelled ones are used in their place. `trained`: all weights will
    come from a checkpoint. `team`: the processes that train it together.
    """
    if len(data.shape) == 3 and config.translate >= (side := min(data.shape[1:])):
        raise UsageError(
            f"`translate` must be less than the shorter side of the images, {side} pixels, but is {config.translate}."
        )
    parts = split_of(config, data)
    inputs = embedded(data, config) if config.depth == "head" else data
    if len(inputs.shape) == 1 and (config.translate or config.flip or config.mirror or config.nudge):
        what = (
            "Features, which `depth` head learns from," if inputs is not data else f"{config.data} holds vectors, which"
        )
        raise UsageError(
            f"{what} cannot be shifted or mirrored: set `translate` and `nudge` to 0, turn `flip` and `mirror` off, or "
            "use `noise`."
        )
    held_out = Part(inputs.train.images[parts.validation], data.train.labels[parts.validation])
    if reuse_labelled and not len(parts.unlabelled):
        parts = replace(parts, unlabelled=parts.labelled)
    labels = visible_labels(config, data, parts)
    images, labels = inputs.train.images.to(config.device), labels.to(config.device)
    seen = labels[parts.labelled.to(config.device)]
    views = make_views(config, inputs)
    pool = torch.cat([parts.labelled, parts.unlabelled])

    def prepare(net: nn.Module) -> None:
        if isinstance(net, Sprint):
            order = torch.randperm(len(pool), generator=generator(config.seed, "sample for networks"))
            count = min(SAMPLE, SAMPLE_PIXELS // math.prod(data.shape))
            net.prepare(data.normalised(data.train.images[pool[order[:count]]]))
        elif isinstance(net, Pretrained):
            net.adapt(*data.scale, brightest(data.train.images))

    guesses = guessed_labels(data, config, parts, labels.cpu()).to(config.device) if config.guess else None
    start = replace(config, weights="", from_="") if trained else config
    context = BuildContext(
        network=make_networks(start, inputs.shape, data.classes, make, prepare, blueprint),
        classes=len(data.classes),
        images=images,
        labels=labels,
        pool=pool,
        normalised=inputs.normalised,
        weak=views["weak"],
        smoothing=config.label_smoothing,
        labelled_view=config.labelled_view,
        epochs=config.clock,
    )
    method = make_method(config, context)
    if method.sees == "both" and not len(parts.unlabelled):
        raise UsageError(
            f"{config.data} has no unlabelled images, which {config.method} needs: add some, ask for fewer `labels`, "
            "or use `method` supervised."
        )
    if config.warm_up and method.sees != "both":
        raise UsageError(
            f"`warm_up` is for methods that also learn from unlabelled images, and {config.method} does not: "
            "leave it out."
        )
    return Run(
        config=config,
        data=data,
        inputs=inputs,
        split=parts,
        batches=Batches(
            parts.labelled,
            parts.unlabelled,
            (config.labelled_batch, config.unlabelled_batch),
            seed_of(config.seed, "batches"),
            seen.cpu() if config.balance == "batches" else None,
            None if guesses is None else ((guesses >= 0) & (labels < 0)).nonzero()[:, 0].cpu(),
        ),
        views=views,
        method=method,
        optimiser=make_optimiser(config, method, team),
        images=images,
        labels=labels,
        validation=inputs.validation if inputs.validation and not len(held_out) else held_out,
        guesses=guesses,
        prior=log_frequencies(seen, len(data.classes)) if config.balance == "logits" else None,
        team=team,
    )


def log_frequencies(labels: Tensor, classes: int) -> Tensor:
    """(C,) of each class among these labels; a class that noise has removed counts as one label."""
    counts = labels.bincount(minlength=classes).clamp(min=1)
    return (counts / counts.sum()).log()


def make_views(config: Config, data: Dataset) -> dict[str, Augmentation]:
    """Weak views as the settings say, and strong ones on top of them; the view of labelled images is one of them."""
    gentle = weak(config.translate, config.flip, config.noise)
    strong: Augmentation = Chain((gentle, Noise(2 * config.noise or 0.5)))  # without pixels: more noise
    if len(data.shape) == 3 and config.strong == "distort":
        strong = Distort(config.flip, config.strength)
    elif data.train.images.dtype == torch.uint8:
        strong = Chain((gentle, RandAugment(*data.scale)))
    return {"weak": gentle, "strong": strong, "labelled": strong if config.labelled_view == "strong" else gentle}


def make_networks(
    config: Config,
    shape: tuple[int, ...],
    classes: Sequence[str],
    make: MakeNetwork | None = None,
    prepare: Callable[[nn.Module], None] = lambda _: None,
    blueprint: Blueprint | None = None,
) -> Networks:
    """The run's networks: each with its own initialisation, from weights learnt elsewhere, or from another run.

    `prepare` shows a network the images that the run trains on.
    """
    known = recipe(config.method)
    starts = [load_trunk(Path(start)) for start in config.init.split(",") if start]
    answering = read_networks(RunFolder(Path(config.from_))) if config.from_ else None

    def student(i: int, scale: float = 1.0) -> nn.Module:
        if make and scale != 1:
            raise UsageError("Your own network cannot be made wider or narrower: use students of one size.")
        seed_global(config.seed, "initialisation", i)
        width = max(1, round(scale * config.width))
        name, outputs = "linear" if config.depth == "head" else config.network, known.classes or len(classes)
        net = make() if make else network(name, shape, outputs, width, config.dropout, blueprint)
        prepare(net)
        if isinstance(net, Pretrained):
            if config.weights:
                net.load_state_dict(pretrained(config.network, config.weights, net), strict=False)
            net.freeze(config.depth)
        if starts:
            set_trunk(net, starts[i % len(starts)], config.init)
        if answering:
            go_on(net, answering.weights(i), answering.classes, classes, config.from_)
        return net.to(config.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    return student


@dataclass(frozen=True, eq=False)
class SavedNetworks:
    """What a run has learnt: its method with the weights of the newest checkpoint in the networks that answer."""

    config: Config
    about: Mapping[str, Any]  # what model.json has
    method: Method
    trunk: Trunk | None

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.about["classes"])

    @property
    def inputs(self) -> tuple[int, ...]:
        """The shape of what the networks see."""
        return (self.about["features"],) if "features" in self.about else tuple(self.about["shape"])

    def weights(self, i: int) -> dict[str, Tensor]:
        """Of the i-th answering network, which several students may share."""
        return self.method.answers[i % len(self.method.answers)].state_dict()


def untrained(
    config: Config, about: Mapping[str, Any], trunk: Trunk | None, blueprint: Blueprint | None
) -> SavedNetworks:
    """The networks of a run before their weights are put into them."""
    config, classes = replace(config, init="", weights="", from_=""), about["classes"]
    inputs = (about["features"],) if trunk else tuple(about["shape"])
    networks = make_networks(config, inputs, classes, blueprint=blueprint)
    method = make_method(config, BuildContext.bare(networks, len(classes)))
    return SavedNetworks(config, about, method, trunk)


def read_networks(found: RunFolder) -> SavedNetworks:
    """The networks of a run, from its folder alone."""
    config, about = found.load_config(), found.load_model()
    state = checkpoint.read(found.checkpoints)
    if state is None:
        raise CertusError(f"{found.path} has no checkpoint yet: train it with `resume` {found.path}.")
    check_settings(state[1], config, found.path)
    trunk = found.load_trunk(config, tuple(about["shape"])) if "features" in about else None
    saved = untrained(config, about, trunk, found.load_blueprint())
    method = saved.method
    if not method.answers:
        raise UsageError(f"{found.path} is a pretraining run, which has no answers: start a run from it with `init`.")
    names = {id(module): name for name, module in method.state.named_modules()}
    try:
        for net in (*method.answers, *method.witnesses):
            net.load_state_dict(checkpoint.part(state[0], f"method.{names[id(net)]}."))
    except RuntimeError:
        raise CertusError(
            f"The checkpoint in {found.path} does not fit its {found.config.name}: restore both."
        ) from None
    return saved


def make_optimiser(config: Config, method: Method, team: Team = ALONE) -> torch.optim.Optimizer:
    if config.optimiser == "muon":
        return muon(method.students, config.learning_rate, team.each)
    if config.optimiser == "adam":
        return adam(method.students, config.learning_rate, config.weight_decay)
    parameters = [p for net in method.students for p in net.parameters() if p.requires_grad]
    return sgd(parameters, config.learning_rate, config.momentum, config.weight_decay)


def make_method(config: Config, context: BuildContext) -> Method:
    known = recipe(config.method)
    with untouched_generator():
        method = known.build(context, known.options(**config.options))
        labels_alone = 0 < config.warm_up < 1 and not config.guess
        return witnessed(method) if labels_alone else method
