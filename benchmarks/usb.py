"""USB (microsoft/Semi-supervised-learning, released as `semilearn` 0.3.2) without a GPU, as a second opinion.

In an environment of its own, beside certus:

    pip install -c constraints.txt -e .
    pip install --no-deps semilearn==0.3.2 torchvision==0.28.0
    pip install -c constraints.txt numpy scikit-learn scipy progress pillow tqdm ruamel.yaml matplotlib

    from usb import algorithm, step
    fixmatch = algorithm("fixmatch", net, classes=10, ulb_loss_ratio=1.0)
    print(step(fixmatch, x_lb, y_lb, x_ulb_w, x_ulb_s))

What USB imports but a training step on images never calls is replaced by stand-ins while it is imported, and only
where the real thing is not installed. USB's own losses, steps and hooks are not changed. The first step of Mean
Teacher, Π, VAT and Pseudo-Label has consistency weight 0, because USB ramps it from `it` = 0: set `algorithm.it` to be
elsewhere in the ramp.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import sys
import warnings
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

STAND_INS = {
    "transformers": ("tokenization_utils_base", "file_utils", "data"),  # networks and collators for text and speech
    "timm": ("models", "models.layers"),  # ViT
    "torchaudio": (),  # speech data
    "skimage": ("util",),  # a montage of MedMNIST
    "wandb": (),  # two loggers, off by default
    "aim": (),
    "tensorboard": (),  # a third: needed by torch.utils.tensorboard, which is replaced below
}
OPERATORS = ("nms", "qnms")  # of torchvision's compiled part, which does not load beside a CPU build of torch


class StandIn(ModuleType):
    """A module in which every name is an empty class: enough for `from … import …`, annotations and base classes."""

    __path__: list[str] = []  # noqa: RUF012 (a package, so that its submodules can be imported)

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@contextlib.contextmanager
def stand_ins() -> Iterator[None]:
    """Stand-ins for what is not installed, taken away again so that no other library takes them for the real thing."""
    missing = [name for name in STAND_INS if importlib.util.find_spec(name) is None]
    names = [name for top in missing for name in (top, *(f"{top}.{sub}" for sub in STAND_INS[top]))]
    if "tensorboard" in missing:
        names.append("torch.utils.tensorboard")
    sys.modules.update({name: StandIn(name) for name in names})
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]


@cache
def torchvision_operators() -> torch.library.Library | None:
    """Declare the operators that torchvision registers shapes for, where its compiled part does not load."""
    with contextlib.suppress(OSError, ImportError, RuntimeError):
        import torchvision  # noqa: F401

        return None
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]  # the half that was imported before it failed
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in OPERATORS:
        library.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    return library  # kept: the declarations end with it


def stay(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG001
    """`.cuda()` without a GPU, which USB calls on every tensor."""
    return self


def without_gpu() -> None:
    """Make `.cuda()` harmless where there is no GPU."""
    if not torch.cuda.is_available():
        torch.Tensor.cuda = nn.Module.cuda = stay  # type: ignore[assignment, method-assign]


@cache
def load() -> ModuleType:
    """USB, imported."""
    without_gpu()
    torchvision_operators()
    with stand_ins(), contextlib.redirect_stdout(io.StringIO()) as printed:
        import semilearn
        import semilearn.lighting.config as config
    if "import failed" in printed.getvalue():  # USB prints such errors and goes on without the algorithm
        raise ImportError(printed.getvalue().strip())
    config.get_port = lambda: 0  # it would run netstat for a port that one process does not need
    return semilearn


def available() -> str | None:
    """Nothing if USB can be used here, else the reason why not, in one sentence."""
    for name in ("semilearn", "torchvision"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed: benchmarks/usb.py begins with the commands."
    try:
        load()
    except Exception as error:  # whatever another version of it stumbles over
        return f"semilearn is installed but cannot be imported ({type(error).__name__}: {error})."
    return None


class Answering(nn.Module):
    """A network as USB wants it: its answer is a dictionary (the features, which no loss here uses, are the logits)."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        logits = self.net(x)
        return {"logits": logits, "feat": logits}


def algorithm(name: str, net: nn.Module, classes: int, **settings: Any) -> Any:
    """USB's algorithm `name`, ready for `step`, training `net` itself; settings as USB names them."""
    usb = load()
    given = {"algorithm": name, "num_classes": classes, "dataset": "none"}
    unknown = settings.keys() - vars(usb.get_config(dict(given))).keys()
    if unknown:
        raise TypeError(f"USB's {name} has no setting {', '.join(sorted(unknown))}")
    config = usb.get_config(given | settings)
    config.distributed = False  # the one attribute that get_config leaves to a training script
    networks = iter((net, deepcopy(net)))  # USB builds two: the student, and a copy that it saves the average in

    def build(**ignored: Any) -> nn.Module:  # noqa: ARG001
        return Answering(next(networks))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.cuda.amp: deprecated, and no GPU
        made = usb.get_algorithm(config, build, None, logging.getLogger("usb"))
    made.model.train()
    made.call_hook("before_run", "EMAHook")
    return made


def step(algorithm: Any, x_lb: Tensor, y_lb: Tensor, x_ulb_w: Tensor, x_ulb_s: Tensor) -> dict[str, float]:
    """One whole training step: losses, gradient, update of the weights and of their average; what USB logs of it."""
    batch = algorithm.process_batch(x_lb=x_lb, y_lb=y_lb, x_ulb_w=x_ulb_w, x_ulb_s=x_ulb_s)
    algorithm.out_dict, algorithm.log_dict = algorithm.train_step(**batch)
    algorithm.call_hook("after_train_step", "ParamUpdateHook")
    algorithm.call_hook("after_train_step", "EMAHook")
    algorithm.it += 1
    return algorithm.log_dict
