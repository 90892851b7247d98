"""Models of timm and transformers as modules that give features; what builds one again; their published weights.

Neither package is imported before a model of it is asked for. Nothing is unpickled: weights are safetensors, or torch
reads tensors alone. No code comes with weights.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from certus.errors import CertusError, UsageError
from certus.randomness import untouched_generator

notices = logging.getLogger("certus")
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
UNUSED = ("id2label", "label2id", "_name_or_path", "transformers_version")  # settings that build nothing


@dataclass(frozen=True)
class Blueprint:
    """What it takes to build a model again: without its weights, and without a connection. It can be written as JSON.

    `arguments`: of timm's create_model, or the config of transformers.
    """

    package: str
    architecture: str
    arguments: Mapping[str, Any]
    centre: list[float]  # of pixels from 0 to 255, as the weights know them
    spread: list[float]
    size: int  # the model's own, in pixels; for a model that takes no other
    patch: int  # a model that takes any size takes multiples of this

    @staticmethod
    def of(kept: Mapping[str, Any]) -> Blueprint:
        """As a run keeps it."""
        if kept["package"] not in MODELS:
            raise CertusError(f"This run's network is of the package {kept['package']!r}, which certus does not know.")
        return Blueprint(**{name: kept[name] for name in (f.name for f in fields(Blueprint))})

    def plain(self) -> dict[str, Any]:
        return asdict(self)


class Foreign(nn.Module):
    """Images (B, 3, H, W) → features (B, D), without dropout and with fixed statistics, by the code of a package."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model.eval()
        for module in model.modules():
            if isinstance(module, _DropoutNd):
                module.p = 0.0

    def train(self, mode: bool = True) -> Foreign:  # noqa: ARG002
        """Always evaluation mode."""
        return super().train(False)

    @staticmethod
    def describe(package: Any, where: str) -> Blueprint:
        raise NotImplementedError

    @staticmethod
    def weights(package: Any, where: str, blueprint: Blueprint) -> dict[str, Tensor]:
        """Their published weights, by their names."""
        raise NotImplementedError

    def renamed(self, found: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The tensors of a file that the package wrote, by the names of the model in memory."""
        return found


class OfTimm(Foreign):
    model: Any

    def __init__(self, timm: Any, blueprint: Blueprint) -> None:
        super().__init__(timm.create_model(blueprint.architecture, pretrained=False, **blueprint.arguments))

    def forward(self, images: Tensor) -> Tensor:
        return pooled(self.model.forward_head(self.model.forward_features(images), pre_logits=True))

    @staticmethod
    def describe(package: Any, where: str) -> Blueprint:
        more = {"dynamic_img_size": True}  # positions that follow the size of the pictures
        try:
            model = package.create_model(where, pretrained=False, num_classes=0, **more)
        except TypeError:  # it has no such argument
            more = {}
            model = package.create_model(where, pretrained=False, num_classes=0)
        about = model.pretrained_cfg
        builds = {key: about[key] for key in ("input_size", "fixed_input_size", "num_classes") if key in about}
        own = getattr(model, "_model_args", {}) if ":" in where else {}  # of a model from the hub or a folder
        arguments = {**own, "num_classes": 0, **more, "pretrained_cfg": builds}
        return Blueprint(
            "timm",
            about.get("architecture") or where,
            json.loads(json.dumps(arguments)),
            of_bytes(about["mean"]),
            of_bytes(about["std"]),
            int(about["input_size"][-1]),
            one_number(getattr(getattr(model, "patch_embed", None), "patch_size", 1)),
        )

    @staticmethod
    def weights(package: Any, where: str, blueprint: Blueprint) -> dict[str, Tensor]:
        more = {name: value for name, value in blueprint.arguments.items() if name != "pretrained_cfg"}
        with tensors_alone():
            model = package.create_model(where, pretrained=True, **more)
        return model.state_dict()


class OfTransformers(Foreign):
    model: Any

    def __init__(self, transformers: Any, blueprint: Blueprint) -> None:
        config = transformers.AutoConfig.for_model(blueprint.architecture, **blueprint.arguments)
        model = transformers.AutoModel.from_config(config, trust_remote_code=False, dtype=torch.float32)
        if hasattr(getattr(model, "pooler", None), "dense"):  # many weights come without this layer
            model.pooler = None
        super().__init__(model)
        known = inspect.signature(model.forward).parameters
        self.more = {name: True for name in ("interpolate_pos_encoding",) if name in known}
        self.first = any(name.endswith(("cls_token", "class_embedding")) for name, _ in model.named_parameters())

    def forward(self, images: Tensor) -> Tensor:
        answer = self.model(pixel_values=images, **self.more)
        found = answer.get("pooler_output")
        return pooled(answer["last_hidden_state"] if found is None else found, self.first)

    @staticmethod
    def describe(package: Any, where: str) -> Blueprint:
        config = package.AutoConfig.from_pretrained(where, trust_remote_code=False)
        config = getattr(config, "vision_config", None) or config
        with torch.device("meta"):
            reads = package.AutoModel.from_config(config, trust_remote_code=False).main_input_name
        if reads != "pixel_values":
            raise UsageError(f"Network transformers:{where} reads {reads}, not pictures: use another.")
        arguments = json.loads(config.to_json_string(use_diff=False))
        pixels = preprocessing(where)
        factor = pixels.get("rescale_factor", 1 / 255) if pixels.get("do_rescale", True) else 1.0
        mean, std = (pixels["image_mean"], pixels["image_std"]) if pixels.get("do_normalize", True) else (0.0, 1.0)
        return Blueprint(
            "transformers",
            arguments.pop("model_type"),
            {key: value for key, value in arguments.items() if key not in UNUSED},
            of_bytes(mean, factor),
            of_bytes(std, factor),
            one_number(arguments.get("image_size") or 224),
            one_number(arguments.get("patch_size") or 1),
        )

    @staticmethod
    def weights(package: Any, where: str, blueprint: Blueprint) -> dict[str, Tensor]:
        model, found = package.AutoModel.from_pretrained(
            where,
            config=package.AutoConfig.for_model(blueprint.architecture, **blueprint.arguments),
            use_safetensors=True,
            trust_remote_code=False,
            dtype=torch.float32,
            output_loading_info=True,
        )
        return without_missing(model, found)

    def renamed(self, found: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Its files keep the names of older versions."""
        kind, config = type(self.model), self.model.config
        with untouched_generator():
            return without_missing(
                *kind.from_pretrained(None, config=config, state_dict=dict(found), output_loading_info=True)
            )


MODELS: dict[str, Any] = {"timm": OfTimm, "transformers": OfTransformers}


def without_missing(model: Any, found: Mapping[str, Any]) -> dict[str, Tensor]:
    """Those of a model's weights that were in its file."""
    return {name: t for name, t in model.state_dict().items() if name not in found["missing_keys"]}


def preprocessing(where: str) -> dict[str, Any]:
    """What preprocessor_config.json says about pixels."""
    reader = import_module("transformers.image_processing_base").ImageProcessingMixin
    try:
        return IMAGENET | reader.get_image_processor_dict(where)[0]
    except OSError:
        say_unknown_scale(where)
        return IMAGENET


@cache
def say_unknown_scale(where: str) -> None:
    notices.warning("%s does not say how its pixels are scaled: they get the mean and deviation of ImageNet.", where)


def pooled(x: Tensor, first: bool = False) -> Tensor:
    """(B, D) of (B, D), of tokens (B, T, D), the first of which may stand for all, or of pixels (B, D, h, w)."""
    if x.ndim == 3:
        return x[:, 0] if first else x.mean(1)
    return x.mean((2, 3)) if x.ndim == 4 else x


def of_bytes(values: Any, factor: float = 1 / 255) -> list[float]:
    """Of three colours from 0 to 255, where the model reads those times `factor`."""
    three = list(values) * (3 if len(values) == 1 else 1) if isinstance(values, list | tuple) else [values] * 3
    return [float(v) / factor for v in three]


def one_number(value: Any) -> int:
    """Of a number, or of one for each side."""
    return int(max(value) if isinstance(value, list | tuple) else value)


# --- asking them


def installed(package: str, name: str) -> Any:
    """The package, imported."""
    if find_spec(package) is None:
        raise UsageError(f"Network {name} needs the package {package}: run `pip install certus-ssl[{package}]`.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(package)
    except Exception as e:  # of whatever it imports
        raise UsageError(
            f"Network {name} needs the package {package}, which is installed but cannot be imported "
            f"({type(e).__name__}: {line(e)}): install what it needs."
        ) from None


@contextmanager
def asking(package: str, name: str) -> Iterator[Any]:
    """The package, for a network of this name. What it raises becomes one sentence; it writes nothing on the screen."""
    module, log = installed(package, name), logging.getLogger(package)
    before = log.level
    bars: Any = module.logging if package == "transformers" else None
    shown = bool(bars and bars.is_progress_bar_enabled())
    try:
        log.setLevel(logging.ERROR)
        if shown:
            bars.disable_progress_bar()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield module
    except CertusError:
        raise
    except Exception as e:  # theirs, of any kind
        raise UsageError(f"{package} cannot give network {name}: {line(e)}.") from None
    finally:
        log.setLevel(before)
        if shown:
            bars.enable_progress_bar()


@contextmanager
def tensors_alone() -> Iterator[None]:
    """torch reads tensors alone from files, whatever it is asked for."""
    force, never = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    before = {name: os.environ.pop(name, None) for name in (force, never)}
    os.environ[force] = "1"
    try:
        yield
    finally:
        del os.environ[force]
        os.environ.update({name: value for name, value in before.items() if value is not None})


def line(error: Exception) -> str:
    """The first line of what an error says, without a full stop."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".: ")
    return text if len(text) <= 200 else f"{text[:199]}…"
