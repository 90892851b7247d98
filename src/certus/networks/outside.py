"""Networks of timm and transformers, where those packages are installed: `timm:resnet18`, `transformers:FOLDER`.

    adapt (pixels, size and colours as the weights know them)   their model, without its head   dropout   linear

Their model stays in evaluation mode: its batch norms keep the statistics that came with the weights, and it has no
randomness of its own, so that Monte-Carlo draws compute it once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.errors import UsageError
from certus.networks.foreign import MODELS, Blueprint, Foreign, asking, line
from certus.networks.pretrained import Adapt, Pretrained, readable
from certus.randomness import untouched_generator

FOLDERS = {"transformers": "", "timm": "local-dir:"}  # how each package's names of folders begin
INNER = "trunk.1.model."


def is_outside(name: str) -> bool:
    package, colon, _ = name.partition(":")
    return bool(colon) and package in FOLDERS


def absolute(name: str) -> str:
    """The name with the whole path of the folder that it names, if it names one."""
    if not is_outside(name):
        return name
    package, _, where = name.partition(":")
    start = FOLDERS[package]
    path = Path(where.removeprefix(start)).expanduser()
    if where.startswith(start) and where != start and path.is_dir():
        return f"{package}:{start}{path.resolve()}"
    if package == "transformers" and where.startswith(("/", ".", "~")):
        raise UsageError(f"Network {name} names a folder that does not exist: {path}.")
    return name


def describe(name: str) -> Blueprint:
    """What the package knows about a model of this name."""
    package, _, where = absolute(name).partition(":")
    if not where:
        raise UsageError(f"`network` {name} names no model of {package}: write its name after the colon.")
    with untouched_generator(), asking(package, name) as module:
        return MODELS[package].describe(module, where)


class Outside(Pretrained):
    """A model of another package for pictures of `size` pixels, or of more: those that its weights can read."""

    def __init__(
        self,
        blueprint: Blueprint,
        channels: int,  # noqa: ARG002 (grey becomes three colours)
        classes: int,
        width: int = 32,
        dropout: float = 0.2,
        size: int = 128,
    ) -> None:
        if width != 32:
            raise UsageError(f"This network has a fixed width, but `width` is {width}: leave it out.")
        name = f"{blueprint.package}:{blueprint.architecture}"
        with asking(blueprint.package, name) as module:
            model = MODELS[blueprint.package](module, blueprint)
        adapt, features = fitting_size(model, blueprint, readable(size))
        super().__init__(adapt, [model], features, classes, dropout)
        self.blueprint = blueprint

    def named(self, found: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """By this network's names, or by those of the package, whose networks with a head put a word before them."""
        own = self.named_alike(found)
        if own is None:
            model, package = self.trunk[1], self.blueprint.package
            assert isinstance(model, Foreign)
            with asking(package, f"{package}:{self.blueprint.architecture}"):
                return self.named_alike(model.renamed(found))
        return own

    def named_alike(self, found: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        inner = [name.removeprefix(INNER) for name in self.state_dict() if name.startswith(INNER)]
        for prefix in (name.removesuffix(inner[0]) for name in found if name.endswith(inner[0])):
            if all(prefix + name in found for name in inner):
                head = {name: found[name] for name in ("head.weight", "head.bias") if prefix == INNER and name in found}
                return {INNER + name: found[prefix + name] for name in inner} | head
        return None

    def published(self, name: str) -> dict[str, Tensor]:
        package, _, where = name.partition(":")
        with untouched_generator(), asking(package, name) as module:
            found = MODELS[package].weights(module, where, self.blueprint)
        named = self.named(found)
        if named is None:
            raise UsageError(f"{package} has no weights for every layer of network {name}: use another, or a file.")
        return named


def blueprint_of(net: nn.Module) -> Blueprint | None:
    """Of the first such network in it."""
    return next((m.blueprint for m in net.modules() if isinstance(m, Outside)), None)


# --- sizes


class AdaptToPatches(Adapt):
    """Both sides become multiples of `patch`; with `exact`, both become `size`."""

    def __init__(self, blueprint: Blueprint, size: int, exact: bool) -> None:
        super().__init__(blueprint.centre, blueprint.spread, size)
        self.patch, self.exact = blueprint.patch, exact

    def enlarge(self, size: int) -> None:
        if not self.exact:
            super().enlarge(size)

    def resized(self, x: Tensor) -> Tensor:
        sides, scale = x.shape[2:], self.size / min(x.shape[2:])
        wanted = [self.size if self.exact else max(1, round(s * scale / self.patch)) * self.patch for s in sides]
        if wanted == list(sides):
            return x
        return F.interpolate(x, wanted, mode="bilinear", antialias=wanted[0] < sides[0])


@torch.no_grad()
def fitting_size(model: Foreign, blueprint: Blueprint, size: int) -> tuple[Adapt, int]:
    """Pictures at their size for a model that takes them, else at the model's own; and the number of features."""
    for adapt in (AdaptToPatches(blueprint, size, False), AdaptToPatches(blueprint, blueprint.size, True)):
        try:
            return adapt, model(adapt(torch.zeros(1, 3, size, size))).shape[1]
        except Exception as e:  # each model refuses a size in its own way
            reason = line(e)
    name = f"{blueprint.package}:{blueprint.architecture}"
    raise UsageError(f"Network {name} gives no features of pictures ({reason}): use another.")
