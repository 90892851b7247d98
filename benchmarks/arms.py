"""The arms of benchmarks/minutes.py, which starts this file as a child process: one cell, one thread, one line of JSON.

default    what `certus train` does without a GPU, whatever that is
engine …   certus with the settings that it chooses for the data set, without a GPU; answers without shifted copies
0.1.0 …    certus with the network, the optimiser and the settings of version 0.1.0
usb …      USB's own algorithms and settings (benchmarks/usb.py), on certus's network, images and views
hog + logistic regression, label spreading   scikit-learn, without a network and without a limit of time
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
import torch
from hog import hog
from resumable import TWO_CORES, Given, Result, answer, budget
from torch import nn

import certus
from certus.config import Config, decide, resolve, split_of
from certus.config.presets import DATA
from certus.data import Dataset, Part, load
from certus.errors import CertusError
from certus.methods import recipe
from certus.training.build import build, build_on
from certus.training.evaluation import errors
from certus.training.loop import fit
from certus.training.memory import freed_memory_kept
from certus.training.planning import complete
from certus.training.run import Run

UNENDING = 1_000_000  # steps of a run that is only timed
UNNUDGED = {"nudge": 0}  # of the arms that are compared with each other: rivals have no shifted copies either
WARM, FEWEST, ENOUGH = 2, 5, 5.0  # steps that are not timed, that are at least, seconds that are


def settings(given: Given, method: str = "supervised") -> dict[str, Any]:
    data, _, labels = given["task"].rpartition("-")
    machine = {"data_dir": given["data_dir"], "device": "cpu", "threads": 1}
    return {"data": data, "labels": int(labels), "method": method, "seed": given["seed"], **machine}


# --- certus


def default(given: Given) -> Result:
    plain = {name: value for name, value in settings(given).items() if name != "method"}
    return trained(complete(resolve(plain), minutes=TWO_CORES * given["minutes"]))


def engine(method: str, given: Given) -> Result:
    plain = settings(given, method) | UNNUDGED
    return trained(complete(resolve(plain), minutes=TWO_CORES * given["minutes"]))


def first_version(method: str, given: Given) -> Result:
    plain = settings(given, method)
    chosen = {
        "network": "cnn13",
        "width": 16,
        "dropout": 0.3,
        "translate": 2,
        "flip": DATA[plain["data"]].get("flip", False),
        "noise": 0.0,
        "strong": "randaugment",
        "labelled_batch": 128,
        "unlabelled_batch": 384,
        "optimiser": "sgd",
        "learning_rate": 0.1,
        "pace": "cosine",
        "momentum": 0.9,
        "weight_decay": 2e-4,
        "warm_up": 0.0,
        "label_smoothing": 0.0,
        "precision": "fp32",
        "options": recipe(method).defaults(),
    }
    config = decide(resolve(plain | chosen), load(plain["data"], plain["data_dir"]))
    timed = build(replace(config, steps=UNENDING))
    return trained(replace(config, steps=steps_within(timed.advance, budget(given))))


def steps_within(step: Callable[[int], Any], seconds: float) -> int:
    """How many steps fit into these processor seconds, by timing a few."""
    with freed_memory_kept():
        for number in range(WARM):
            step(number)
        start, count = time.process_time(), 0
        while count < FEWEST or time.process_time() - start < min(ENOUGH, seconds):
            step(WARM + count)
            count += 1
        return max(1, int(seconds * count / (time.process_time() - start)))


def trained(config: Config) -> Result:
    run = build(config)
    start = time.process_time()
    fit(run)
    seconds = time.process_time() - start
    chosen = {name: value for name, value in asdict(config).items() if name != "data_dir"}
    validation = fmean(run.validation_errors())
    return evaluated(run, run.method.answers, validation, config.steps, seconds, chosen)


def evaluated(
    run: Run, nets: Sequence[nn.Module], validation: float, steps: int, seconds: float, chosen: dict[str, Any]
) -> Result:
    """With the test error, for which the test set is read this once."""
    test = fmean(errors(nets, run.data.normalised, *both(run.data.test), run.config.looks))
    return row(test, validation, steps, seconds, f"certus {certus.__version__}", chosen)


def row(test: float, validation: float, steps: int, seconds: float, version: str, chosen: dict[str, Any]) -> Result:
    found = {"test_error": round(test, 4), "validation_error": round(validation, 4), "steps": steps}
    return found | {"processor_seconds": round(seconds, 1), "version": version, "settings": chosen}


# --- USB: the settings of its config/classic_cv, which are the same for CIFAR-10 and SVHN

COMMON = {"optim": "SGD", "lr": 0.03, "momentum": 0.9, "weight_decay": 5e-4, "batch_size": 64, "ema_m": 0.999}
USB: dict[str, tuple[str, dict[str, Any]]] = {
    "fixmatch": (
        "fixmatch",
        COMMON | {"uratio": 7, "ulb_loss_ratio": 1.0, "p_cutoff": 0.95, "T": 0.5, "hard_label": True},
    ),
    "mean-teacher": ("meanteacher", COMMON | {"uratio": 1, "ulb_loss_ratio": 50.0, "unsup_warm_up": 0.4}),
}


def usb_arm(method: str, given: Given) -> Result:
    import usb

    if reason := usb.available():
        raise CertusError(reason)
    name, chosen = USB[method]
    plain = settings(given, method)
    data = load(plain["data"], plain["data_dir"])
    around = {
        "network": "sprint",
        "strong": "randaugment",
        "labelled_batch": chosen["batch_size"],
        "unlabelled_batch": chosen["uratio"] * chosen["batch_size"],
        "warm_up": 0.0,
        "precision": "fp32",
        **UNNUDGED,
    }
    config = decide(resolve(plain | around), data)

    def ready(steps: int) -> tuple[Run, Any]:
        """USB's algorithm on the network of a run of certus, which also makes its batches and views."""
        run = build_on(data, replace(config, steps=steps))
        net = run.method.students[0]
        return run, usb.algorithm(name, net, len(data.classes), num_train_iter=steps, **chosen)

    def advance(run: Run, algorithm: Any, number: int) -> None:
        step, n = run.step(number), chosen["batch_size"]
        weak, other = step.view("a"), step.view("b", "mixed" if method == "fixmatch" else "weak")
        step.seed_dropout("a")
        usb.step(algorithm, weak[:n], step.batch.labels[:n], weak[n:], other[n:])

    steps = steps_within(partial(advance, *ready(UNENDING)), budget(given))
    run, algorithm = ready(steps)
    start = time.process_time()
    with freed_memory_kept():
        for number in range(steps):
            advance(run, algorithm, number)
    seconds = time.process_time() - start
    nets = {"average": algorithm.ema_model.net, "student": algorithm.model.net}
    found = {
        who: fmean(errors([net], data.normalised, *both(run.validation), config.looks)) for who, net in nets.items()
    }
    answers = min(found, key=lambda who: found[who])  # in a short run the average is still near the first weights
    views = {
        k: getattr(config, k)
        for k in ("network", "width", "dropout", "translate", "flip", "mirror", "strong", "precision")
    }
    noted = {"algorithm": name, **chosen, **views, "answers": answers, "validation_errors": found}
    result = evaluated(run, [nets[answers]], found[answers], steps, seconds, noted)
    return result | {"version": "semilearn 0.3.2"}


def both(part: Part) -> tuple[torch.Tensor, torch.Tensor]:
    return part.images, part.labels


# --- scikit-learn

STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)  # C of logistic regression
NEIGHBOURS, ALPHAS, COMPONENTS = (10, 20, 50), (0.2, 0.8), 64


def logistic_regression(given: Given) -> Result:
    from sklearn.linear_model import LogisticRegression

    data, labelled, _, held_out = parts(given)
    start = time.process_time()
    x, x_val = hog(labelled.images.numpy()), hog(held_out.images.numpy())
    fitted = {c: LogisticRegression(C=c, max_iter=1000).fit(x, labelled.labels.numpy()) for c in STRENGTHS}
    found = {c: wrong(model.predict(x_val), held_out) for c, model in fitted.items()}
    best = min(found, key=lambda c: found[c])
    seconds = time.process_time() - start
    test = wrong(fitted[best].predict(hog(data.test.images.numpy())), data.test)
    return row(test, found[best], 0, seconds, sklearn_version(), {"C": best, "validation_errors": found})


def label_spreading(given: Given) -> Result:
    from sklearn.decomposition import PCA
    from sklearn.semi_supervised import LabelSpreading

    data, labelled, unlabelled, held_out = parts(given)
    start = time.process_time()
    x_labelled, x_unlabelled = hog(labelled.images.numpy()), hog(unlabelled.images.numpy())
    reduce = PCA(COMPONENTS, random_state=given["seed"]).fit(x_unlabelled).transform
    x = np.concatenate([reduce(x_labelled), reduce(x_unlabelled)])
    y = np.concatenate([labelled.labels.numpy(), np.full(len(x_unlabelled), -1)])
    x_val = reduce(hog(held_out.images.numpy()))
    best, model, found = (0, 0.0), None, {}
    for k, alpha in product(NEIGHBOURS, ALPHAS):
        spread = LabelSpreading(kernel="knn", n_neighbors=k, alpha=alpha).fit(x, y)
        found[k, alpha] = wrong(spread.predict(x_val), held_out)
        if model is None or found[k, alpha] < found[best]:
            best, model = (k, alpha), spread
    seconds = time.process_time() - start
    assert model is not None
    test = wrong(model.predict(reduce(hog(data.test.images.numpy()))), data.test)
    chosen = {"n_neighbors": best[0], "alpha": best[1], "components": COMPONENTS, "unlabelled": len(x_unlabelled)}
    chosen["validation_errors"] = {f"{k}, {alpha:g}": e for (k, alpha), e in found.items()}
    return row(test, found[best], 0, seconds, sklearn_version(), chosen)


def parts(given: Given) -> tuple[Dataset, Part, Part, Part]:
    """Labelled, unlabelled and validation images as certus divides them; the unlabelled ones have no labels."""
    warnings.filterwarnings(
        "ignore"
    )  # of scikit-learn, on convergence: C and the neighbours are chosen by their errors
    plain = settings(given)
    data = load(plain["data"], plain["data_dir"])
    split = split_of(decide(resolve(plain), data), data)
    shown = split.visible(data.train.labels)
    labelled, unlabelled = (Part(data.train.images[i], shown[i]) for i in (split.labelled, split.unlabelled))
    held_out = Part(data.train.images[split.validation], data.train.labels[split.validation])
    return data, labelled, unlabelled, held_out


def wrong(predicted: Any, part: Part) -> float:
    """Percent."""
    return round(100.0 * float(np.mean(predicted != part.labels.numpy())), 4)


def sklearn_version() -> str:
    import sklearn

    return f"scikit-learn {sklearn.__version__}"


ARMS: dict[str, Callable[[Given], Result]] = {
    "default": default,
    **{f"engine {m}": partial(engine, m) for m in ("supervised", "mean-teacher", "ft-ccl", "fixmatch")},
    **{f"0.1.0 {m}": partial(first_version, m) for m in ("supervised", "ft-ccl")},
    **{f"usb {m}": partial(usb_arm, m) for m in USB},
    "hog + logistic regression": logistic_regression,
    "label spreading": label_spreading,
}

if __name__ == "__main__":
    answer(ARMS)
