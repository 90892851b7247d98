"""The engine: what makes good answers in minutes on a machine without a GPU.

Network `sprint`, optimiser Muon, and methods that learn from strong views. Chosen on validation labels, with the same
number of trials for supervised, mean-teacher, ft-ccl and fixmatch (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from certus.config.settings import Config

EVERYWHERE: dict[str, Any] = {
    "dropout": 0.1,
    "labelled_batch": 64,
    "unlabelled_batch": 320,
    "optimiser": "muon",
    "learning_rate": 0.24,
    "pace": "linear",
    "label_smoothing": 0.2,
    "strong": "distort",
    "nudge": 1,  # answers are means over shifted copies
    "precision": "auto",
}

TAUGHT = (
    *("mean-teacher", "mean-teacher-sntg", "mean-teacher-label-propagation", "mean-teacher-fastswa"),
    *("filtering-ccl", "temperature-ccl", "ft-ccl"),
)
BY_METHOD: dict[str, dict[str, Any]] = {
    "supervised": {"labelled_batch": 250},
    "fixmatch": {"warm_up": -1.0, "horizon": 0.2, "threshold": 0.5},  # 0.95 is beyond what smoothed labels teach
    **{
        method: {
            "warm_up": -1.0,
            "student_view": "strong",
            "distance": "cross-entropy",
            "sharpen": 0.5,
            "horizon": 0.2,
            "weight": 1.0,
            "ramp": 0.0,
        }
        for method in TAUGHT
    },
}
OTHERS: dict[str, dict[str, Any]] = {  # chosen with three trials each (docs/paper.md)
    "pseudo-label": {"ramp": 0.0, "threshold": 0.5},
    "entropy-minimisation": {"ramp": 0.0},
    "pi": {"ramp": 0.0, "weight": 1.0},
    "temporal-ensembling": {"ramp": 0.0, "weight": 1.0},
    "vat": {"ramp": 0.0},
    "pi-sntg": {"ramp": 0.0, "weight": 1.0, "graph": 0.1},
    "temporal-ensembling-sntg": {"ramp": 0.0, "weight": 0.3, "graph": 0.1},
    "ma-dnn": {},
    "label-propagation": {},
    "co-training": {"ramp": 0.0},
    "wcp": {},
    "dual-student": {"ramp": 0.0, "threshold": 0.5},
}
BY_METHOD |= {method: {"warm_up": -1.0, **values} for method, values in OTHERS.items()}
BY_METHOD["mean-teacher-sntg"] |= {"graph": 0.1}  # as for the other two: 1 collapses
BY_METHOD["filtering-ccl"] |= {"rho": 1.0}  # at the end of the run every target is kept
BY_METHOD["temperature-ccl"] |= {"heat": 1.0}
BY_METHOD["ft-ccl"] |= {"rho": 1.0, "heat": 1.0}
BY_DATA: dict[str, dict[str, Any]] = {
    "digits": {"width": 64, "labelled_batch": 20, "unlabelled_batch": 128, "nudge": 0},
}
BY_BOTH: dict[tuple[str, str], dict[str, Any]] = {  # docs/digits.md
    ("digits", "supervised"): {"labelled_batch": 64, "labelled_view": "strong", "strength": 0.8},
    ("digits", "fixmatch"): {"warm_up": 0.5, "labelled_view": "strong", "threshold": 0.0},
    **{("digits", method): {"warm_up": 0.5, "labelled_view": "strong"} for method in TAUGHT},
}

FINE: dict[str, Any] = {  # to go on from weights that were learnt on other pictures
    "dropout": 0.2,
    "labelled_batch": 16,
    "unlabelled_batch": 32,
    "optimiser": "adam",
    "learning_rate": 2e-4,
    "weight_decay": 0.01,
    "pace": "linear",
    "label_smoothing": 0.1,
    "strong": "distort",
    "precision": "fp32",  # convolutions per channel gain nothing from bf16
}
FINE_BY_METHOD: dict[str, dict[str, Any]] = {
    **{method: BY_METHOD[method] | {"guess": "auto"} for method in (*TAUGHT, "fixmatch")},
    "supervised": {"labelled_batch": 64},
}
FEW_FOR_GUESSES = 25  # labels per class; with fewer, a warm-up also learns guesses (docs/pictures.md)

HEAD: dict[str, Any] = FINE | {  # to learn one layer on the features of such a network
    "labelled_batch": 32,
    "unlabelled_batch": 128,
    "noise": 0.3,
    "translate": 0,
    "flip": False,
    "mirror": False,
}
HEAD_METHOD = "label-propagation"  # over the features: with few labels far ahead of the others (docs/pictures.md)
HEAD_BY_METHOD: dict[str, dict[str, Any]] = {
    **{
        key: {"over": "angles", "near": True, "regression": 0.04}
        for key in ("label-propagation", "mean-teacher-label-propagation")
    },
    "supervised": {"labelled_batch": 64},
    **{method: {"warm_up": 0.3, "distance": "cross-entropy", "horizon": 0.2, "weight": 1.0} for method in TAUGHT},
    "fixmatch": {"warm_up": 0.3, "horizon": 0.2, "threshold": 0.5},
}

OF_TRAINING = (  # what a paper's authors chose for another optimiser and network
    *("dropout", "labelled_batch", "unlabelled_batch", "learning_rate", "momentum", "weight_decay", "translate"),
)


def settings(kind: str, method: str, published: Mapping[str, Any]) -> dict[str, Any]:
    """For this kind of data and method; of the method's published settings, those that the engine does not replace."""
    options = {name: value for name, value in published.items() if name not in OF_TRAINING}
    return EVERYWHERE | BY_DATA.get(kind, {}) | options | BY_METHOD.get(method, {}) | BY_BOTH.get((kind, method), {})


def fine_settings(method: str, published: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a network with weights that were learnt on other pictures."""
    options = {name: value for name, value in published.items() if name not in OF_TRAINING}
    return FINE | options | FINE_BY_METHOD.get(method, {})


def head_settings(method: str, published: Mapping[str, Any]) -> dict[str, Any]:
    """The same for one layer on the features of such a network."""
    options = {name: value for name, value in published.items() if name not in OF_TRAINING}
    return HEAD | options | HEAD_BY_METHOD.get(method, {})


# How a run is laid out in the time that it has

FEW = 1200  # steps of the usual batch below which smaller batches, and so more steps, are better
SMALL = {320: 128, 250: 125}  # the unlabelled batch of such a run, and the labelled one of supervised learning
LONG = 400_000  # images that a run sees, from which on a wider network is better
WIDER, PRICE = 192, 1.9  # its width, and the time of its step relative to that of the usual width
PASSES, IMAGES = 16, 40_000  # a warm-up passes so often over the labelled images, and over so many at least
EASY, HARD = 0.4, 90_000  # difficulty of labels up to which that is enough, and images that those of difficulty 1 need
FINE_PASSES, FINE_IMAGES = 3, 3_000  # of a network with weights that were learnt on other pictures
LEAST, MOST = 0.1, 0.6  # shares of the steps that a warm-up has
TOO_SHORT = 0.7  # share that it may need; beyond it unlabelled images no longer pay (docs/performance.md)
STEPS = {"digits": 150}  # of a run whose length was not asked for
FINE_STEPS, HEAD_STEPS = 800, 600


def usual_steps(config: Config) -> int:
    """How long a run is when nothing else is asked for: about ten minutes on two cores for pictures of 32×32."""
    if config.depth == "head":
        return HEAD_STEPS
    return STEPS.get(config.data, 1500) if config.network == "sprint" else FINE_STEPS


@dataclass(frozen=True)
class WarmUp:
    """How many images a run should see with labels alone, before it learns from unlabelled ones."""

    required: float  # a run that is too short for these learns from labels alone
    wanted: float

    def share(self, steps: int, batch: int) -> float:
        """Of the steps of a run."""
        seen = steps * batch
        if self.required > TOO_SHORT * seen:
            return 1.0
        return min(MOST, max(LEAST, self.required / seen, self.wanted / seen))


def warm_up_for(labels: int, difficulty: float) -> WarmUp:
    """`difficulty`: the error of a linear model on edges and colours, relative to that of chance. Targets for difficult
    pictures are wrong for longer."""
    hard = HARD * max(0.0, difficulty - EASY) / (1 - EASY)
    return WarmUp(max(PASSES * labels, hard), IMAGES)


def fine_warm_up_for(labels: int) -> WarmUp:
    """The same for a network with weights that were learnt on other pictures."""
    return WarmUp(FINE_PASSES * labels, FINE_IMAGES)


def smaller_batches(config: Config) -> Config | None:
    """For a run of few steps; None where the batch is not the engine's usual one."""
    usual = EVERYWHERE | BY_METHOD.get(config.method, {})
    sizes = (config.labelled_batch, config.unlabelled_batch)
    if config.network != "sprint" or sizes != (usual["labelled_batch"], usual["unlabelled_batch"]):
        return None
    return replace(config, labelled_batch=SMALL.get(sizes[0], sizes[0]), unlabelled_batch=SMALL[sizes[1]])


def labels_alone(config: Config) -> Config | None:
    """For a run whose steps all warm up: so many images in a step as supervised learning has; None where the batch is
    not the engine's."""
    alone: int = BY_METHOD["supervised"]["labelled_batch"]
    totals = {EVERYWHERE["unlabelled_batch"]: alone, SMALL[EVERYWHERE["unlabelled_batch"]]: SMALL[alone]}
    usual = EVERYWHERE | BY_METHOD.get(config.method, {})
    total = totals.get(config.unlabelled_batch)
    if config.network != "sprint" or config.labelled_batch != usual["labelled_batch"] or total is None:
        return None
    return replace(config, unlabelled_batch=total - config.labelled_batch, warm_up=1.0)
