"""Settings that suit a data set and a method. None was chosen on a test set.

The network decides which: `sprint` has those of `config/engine.py`, for good answers in minutes. The others have those
below. Those of digits and two moons were chosen on validation labels (as `certus sweep` does), those of
other vectors at other seeds than those that are reported (benchmarks/vectors.py). Those of CIFAR-10, CIFAR-100
and SVHN are the original papers', in the units of certus: a weight on a squared error that is averaged over C classes
is divided by C here, where it is summed; and a supervised loss that is averaged over the labelled images alone needs no
share of labelled images in the weight. Lengths are in epochs of the `clock`, 300 unless said otherwise.
"""

from __future__ import annotations

from typing import Any

from certus.config import engine
from certus.networks import has_weights

FOLDER, IMAGES, VECTORS = (
    "a folder of pictures",
    "the images given",
    "the vectors given",
)  # kinds of data without a name

TAUGHT = {"method": "mean-teacher"}  # in equal minutes ahead of ft-ccl or within noise (docs/performance.md)
DATA: dict[str, dict[str, Any]] = {  # what does not depend on the network
    "digits": {"translate": 0},  # they are centred: shifting them by a pixel hurts (docs/digits.md)
    "moons": {"labels": 6, "network": "mlp", "translate": 0, "noise": 0.3},
    "svhn": TAUGHT | {"labels": 1000, "validation": 1000, "translate": 2},
    "cifar10": TAUGHT | {"labels": 4000, "validation": 1000, "translate": 2, "flip": True},
    "cifar100": TAUGHT | {"labels": 10000, "validation": 1000, "translate": 2, "flip": True},
    "fashion-mnist": TAUGHT | {"labels": 1000, "validation": 1000, "translate": 2, "flip": True},
    FOLDER: TAUGHT | {"labels": 0, "validation": -1, "fit": "crop", "flip": "auto", "balance": "auto"},
    IMAGES: TAUGHT | {"labels": 0, "validation": 0},
    VECTORS: {"method": "label-propagation", "labels": 0, "validation": 0, "network": "mlp", "translate": 0},
}

TRAINING: dict[str, dict[str, Any]] = {  # of every network but sprint
    "digits": {"dropout": 0.2, "noise": 0.5, "labelled_batch": 32, "unlabelled_batch": 96, "learning_rate": 0.2},
    "moons": {"dropout": 0.1, "labelled_batch": 12, "unlabelled_batch": 200, "learning_rate": 0.02},
    "fashion-mnist": {"dropout": 0.3},
    IMAGES: {"dropout": 0.3, "labelled_batch": 32, "unlabelled_batch": 96},
    VECTORS: {
        "dropout": 0.1,
        "noise": 0.2,
        "labelled_batch": 16,
        "unlabelled_batch": 128,
        "optimiser": "muon",
        "learning_rate": 0.1,
    },
}

TUNED: dict[tuple[str, str], dict[str, Any]] = {
    ("digits", "supervised"): {"dropout": 0.35},
    ("digits", "pseudo-label"): {"weight": 0.3},
    ("digits", "entropy-minimisation"): {"weight": 0.5},
    ("digits", "pi"): {"weight": 5.0},
    ("digits", "temporal-ensembling"): {"weight": 10.0, "ramp": 115.0},
    ("digits", "vat"): {"epsilon": 1.0},
    ("digits", "mean-teacher"): {"weight": 5.0},
    ("digits", "pi-sntg"): {"weight": 5.0, "graph": 0.05},
    ("digits", "temporal-ensembling-sntg"): {"weight": 10.0, "ramp": 115.0, "graph": 0.05},
    ("digits", "mean-teacher-sntg"): {"weight": 5.0, "graph": 0.05},
    ("digits", "ma-dnn"): {"weight": 0.3, "ramp": 115.0},
    ("digits", "label-propagation"): {"spread": 0.3, "neighbours": 10},
    ("digits", "mean-teacher-label-propagation"): {"weight": 5.0, "spread": 0.3, "neighbours": 10},
    ("digits", "co-training"): {"agreement": 3.0, "epsilon": 0.1, "ramp": 115.0},
    ("digits", "mean-teacher-fastswa"): {"weight": 5.0},
    ("digits", "wcp"): {"epsilon": 1.0, "shift": 0.02, "drop": 0.02},
    ("digits", "dual-student"): {"weight": 2.0, "stabilisation": 5.0, "ramp": 115.0},
    ("digits", "fixmatch"): {"decay": 0.99},
    **{
        ("digits", method): {"weight": 20.0, "ramp": 230.0} for method in ("filtering-ccl", "temperature-ccl", "ft-ccl")
    },
    ("moons", "supervised"): {"learning_rate": 0.2},
    ("moons", "pseudo-label"): {"weight": 0.3, "ramp": 0.0, "learning_rate": 0.2},
    ("moons", "entropy-minimisation"): {"weight": 1.0, "ramp": 285.0, "learning_rate": 0.2},
    ("moons", "pi"): {"weight": 18.0, "ramp": 14.0},
    ("moons", "temporal-ensembling"): {"weight": 30.0, "ramp": 14.0},
    ("moons", "vat"): {"epsilon": 1.0},
    ("moons", "mean-teacher"): {"weight": 18.0, "ramp": 14.0},
    ("moons", "pi-sntg"): {"weight": 18.0, "ramp": 14.0, "graph": 0.1},
    ("moons", "temporal-ensembling-sntg"): {"weight": 30.0, "ramp": 14.0, "graph": 0.1},
    ("moons", "mean-teacher-sntg"): {"weight": 18.0, "ramp": 14.0, "graph": 0.1},
    ("moons", "ma-dnn"): {"weight": 0.3, "ramp": 120.0, "learning_rate": 0.2},
    ("moons", "label-propagation"): {"spread": 3.0},
    ("moons", "mean-teacher-label-propagation"): {"weight": 18.0, "ramp": 14.0},
    ("moons", "co-training"): {"agreement": 3.0, "epsilon": 0.8, "learning_rate": 0.1},
    ("moons", "mean-teacher-fastswa"): {"weight": 18.0, "ramp": 14.0, "cycle": 60.0},
    # dropping the worst connections of so small a network hurts
    ("moons", "wcp"): {"weight": 0.5, "epsilon": 1.0, "shift": 0.003, "drop": 0.0},
    ("moons", "dual-student"): {"weight": 10.0, "stabilisation": 5.0, "ramp": 14.0},
    ("moons", "fixmatch"): {"weight": 3.0, "threshold": 0.8, "decay": 0.99},
    ("moons", "filtering-ccl"): {"weight": 50.0, "ramp": 14.0},
    ("moons", "temperature-ccl"): {"weight": 60.0, "ramp": 14.0},
    ("moons", "ft-ccl"): {"weight": 20.0, "ramp": 14.0},
    **{
        (VECTORS, method): {"over": "inputs", "neighbours": 10, "alpha": 0.95, "start": 0.0, "spread": 3.0}
        for method in ("label-propagation", "mean-teacher-label-propagation")
    },
}

FIXMATCH: dict[str, Any] = {
    "labelled_batch": 64,
    "unlabelled_batch": 448,
    "learning_rate": 0.03,
    "dropout": 0.0,
    "translate": 4,
}

PUBLISHED: dict[tuple[str, str], dict[str, Any]] = {
    # Laine & Aila 2017 (smlaine2/tempens): 100 for Π and 30 for the ensemble, 100 on CIFAR-100; α = 0.6
    ("cifar10", "pi"): {"weight": 10.0},
    ("cifar100", "pi"): {"weight": 1.0},
    ("svhn", "pi"): {"weight": 10.0},
    ("cifar10", "temporal-ensembling"): {"weight": 3.0},
    ("cifar100", "temporal-ensembling"): {"weight": 1.0},
    ("svhn", "temporal-ensembling"): {"weight": 3.0},
    # Oliver, Odena, Raffel, Cubuk & Goodfellow 2018 (realistic evaluation): the same on both
    ("cifar10", "pseudo-label"): {"threshold": 0.95},
    ("svhn", "pseudo-label"): {"threshold": 0.95},
    ("cifar100", "pseudo-label"): {"threshold": 0.95},  # as on CIFAR-10
    # Miyato et al. 2018 (takerum/vat_tf): ε = 8 on whitened CIFAR-10; 3.5 on SVHN in [−½, ½], whose deviation is 0.2
    ("cifar10", "vat"): {"epsilon": 8.0},
    ("svhn", "vat"): {"epsilon": 17.5},
    ("cifar100", "vat"): {"epsilon": 8.0},  # not in the paper: as on CIFAR-10
    # Tarvainen & Valpola 2017 (CuriousAI/mean-teacher); CIFAR-100: Athiwaratkun et al. 2019, 100 at 31 of 128 labelled
    ("cifar10", "mean-teacher"): {"weight": 10.0},
    ("svhn", "mean-teacher"): {"weight": 10.0},
    ("cifar100", "mean-teacher"): {"weight": 4.0},
    # Liu & Tan 2021 do not print λ: Mean Teacher's
    **{("cifar100", method): {"weight": 4.0} for method in ("filtering-ccl", "temperature-ccl", "ft-ccl")},
    # Luo et al. 2018 (xinmei9322/SNTG): the base's own and k = 1, which on CIFAR-10 is 0.6 at 1,000 or 2,000 labels
    ("cifar10", "pi-sntg"): {"weight": 10.0, "graph": 1.0},
    ("svhn", "pi-sntg"): {"weight": 10.0, "graph": 1.0},
    ("cifar100", "pi-sntg"): {"weight": 1.0, "graph": 1.0},
    ("cifar10", "temporal-ensembling-sntg"): {"weight": 3.0, "graph": 1.0},
    ("svhn", "temporal-ensembling-sntg"): {"weight": 3.0, "graph": 1.0},
    ("cifar100", "temporal-ensembling-sntg"): {"weight": 1.0, "graph": 1.0},
    ("svhn", "mean-teacher-sntg"): {"weight": 10.0, "graph": 1.0},
    ("cifar10", "mean-teacher-sntg"): {"weight": 10.0, "graph": 1.0},  # not in the paper
    ("cifar100", "mean-teacher-sntg"): {"weight": 4.0, "graph": 1.0},  # not in the paper
    # Chen, Zhu & Gong 2018 (yanbeic/semi-memory)
    ("cifar10", "ma-dnn"): {"weight_decay": 4e-5},
    ("cifar100", "ma-dnn"): {"weight_decay": 4e-5},
    ("svhn", "ma-dnn"): {"weight_decay": 4e-5, "learning_rate": 0.02},
    # Iscen et al. 2019 (ahmetius/LP-DeepSSL): with mean teacher 100 at 50 of 100 labelled, 31 of 128 on CIFAR-100
    ("cifar10", "label-propagation"): {"learning_rate": 0.05},
    ("cifar100", "label-propagation"): {"learning_rate": 0.2},
    ("cifar10", "mean-teacher-label-propagation"): {"learning_rate": 0.05, "weight": 20.0, "ramp": 5.0, "decay": 0.97},
    ("cifar100", "mean-teacher-label-propagation"): {"learning_rate": 0.2, "weight": 4.0, "ramp": 5.0, "decay": 0.97},
    # Qiao et al. 2018: ε = 0.02 of the range 0–1, whose deviation is 0.25 on CIFAR and 0.2 on SVHN
    ("cifar10", "co-training"): {"epsilon": 0.08, "weight_decay": 1e-4, "learning_rate": 0.05},
    ("cifar100", "co-training"): {"epsilon": 0.08, "weight_decay": 1e-4, "learning_rate": 0.05},
    ("svhn", "co-training"): {"epsilon": 0.1, "weight_decay": 1e-4, "learning_rate": 0.05},
    # Athiwaratkun et al. 2019 (benathi/fastswa-semi-sup): 180 epochs, then 34 cycles of 30, 20 of them on CIFAR-100
    ("cifar10", "mean-teacher-fastswa"): {
        "weight": 20.0,
        "ramp": 5.0,
        "decay": 0.97,
        "weight_decay": 1e-4,
        "clock": 1200,
    },
    ("cifar100", "mean-teacher-fastswa"): {
        "weight": 4.0,
        "ramp": 5.0,
        "decay": 0.97,
        "learning_rate": 0.2,
        "clock": 780,
    },
    # Zhang & Qi 2020 (maple-research-lab/WCP): VAT's ε
    ("cifar10", "wcp"): {"epsilon": 8.0},
    ("svhn", "wcp"): {"epsilon": 17.5},
    ("cifar100", "wcp"): {"epsilon": 8.0},  # not in the paper: as on CIFAR-10
    # Ke et al. 2019 (ZHKKKe/DualStudent): λ₁ = 10, λ₂ = 100 at 50 of 100 labelled, 31 of 128 on CIFAR-100
    ("cifar10", "dual-student"): {"weight": 2.0, "stabilisation": 20.0, "threshold": 0.8, "weight_decay": 1e-4},
    ("cifar100", "dual-student"): {"weight": 0.4, "stabilisation": 4.0, "threshold": 0.4, "learning_rate": 0.2},
    ("svhn", "dual-student"): {"weight": 2.0, "stabilisation": 20.0, "threshold": 0.8},  # as on CIFAR-10
    # Sohn et al. 2020 (google-research/fixmatch)
    ("cifar10", "fixmatch"): {**FIXMATCH, "weight_decay": 5e-4},
    ("cifar100", "fixmatch"): {**FIXMATCH, "weight_decay": 1e-3},
    ("svhn", "fixmatch"): {**FIXMATCH, "weight_decay": 5e-4},
}

METHOD_PRESETS = PUBLISHED | TUNED

EPOCHS = {"digits": 40.0, "moons": 200.0}


def recommended(kind: str, method: str, network: str, depth: str = "all") -> dict[str, Any]:
    """Settings and options for a kind of data, a method and a network; the rest have their defaults."""
    if has_weights(network) and depth == "head":
        return DATA.get(kind, {}) | engine.head_settings(method, METHOD_PRESETS.get((VECTORS, method), {}))
    if network == "sprint":
        return DATA.get(kind, {}) | engine.settings(kind, method, METHOD_PRESETS.get((kind, method), {}))
    if has_weights(network):
        return DATA.get(kind, {}) | engine.fine_settings(method, METHOD_PRESETS.get((kind, method), {}))
    return DATA.get(kind, {}) | TRAINING.get(kind, {}) | METHOD_PRESETS.get((kind, method), {})


BY_DATA_SET = {name for known in (DATA, TRAINING, engine.BY_DATA) for settings in known.values() for name in settings}
BY_DATA_SET |= (
    engine.EVERYWHERE.keys() | engine.FINE.keys() | engine.HEAD.keys()
)  # settings whose default depends on the data and the network


def epochs_for(data: str) -> float:
    """How long a run on this data set is when nothing else is asked for."""
    return EPOCHS.get(data, 100.0)
