"""The card of a model: what it learnt from, how wrong it is, how certain, and what it was not tested on.

It is made from the run's folder alone, as model-card.json and model-card.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from certus import __version__
from certus.certainty import scores
from certus.certainty.metrics import METRICS, UNDRAWN, best, unconfidence
from certus.config import Config
from certus.methods import PRETRAINING, recipe
from certus.networks import architecture
from certus.networks.weights import IMAGENET
from certus.training.artefacts import CALIBRATION, read_answers, read_record, sealed
from certus.training.card_text import markdown
from certus.training.run_folder import RunFolder
from certus.writing import put, put_json

Card = dict[str, Any]
NAME = "model-card"
ERRORS = (1, 2, 5, 10)  # percent
Z = 1.96  # of an interval of 95 %
DAMAGED = "remove it, and calibrate the run again"


def write_card(folder: RunFolder, result: Mapping[str, Any] | None = None, validation: int | None = None) -> Card:
    """Write both files of a finished run; `result` and the number of validation images, if they are not on the disk."""
    card = card_of(folder, folder.load_result() if result is None else result, validation)
    put_json(folder.path / f"{NAME}.json", sealed(card))
    put(folder.path / f"{NAME}.md", markdown(card))
    return card


def card_of(folder: RunFolder, result: Mapping[str, Any], validation: int | None = None) -> Card:
    config, split, about = folder.load_config(), folder.load_split(), folder.load_model()
    again = f"remove it and {folder.result.name}, and continue the run with `resume` {folder.path}"
    measured = of_answers(read_answers(folder.predictions, again)) if folder.predictions.exists() else {}
    held: int | None = len(split.get("validation", ())) if validation is None else validation
    if not held and result["validation_error"] is not None:
        held = None  # they are a part of the data of their own, and an older run does not say how many
    errors = {
        "test": rate(result["test_error"], measured.get("images")),
        "validation": rate(result["validation_error"], held),
    }
    known = read_record(folder.calibration, CALIBRATION, DAMAGED) if folder.calibration.exists() else None
    return {
        "name": folder.path.resolve().name,
        "certus": __version__,
        "method": config.method,
        "reference": recipe(config.method).reference,
        "answers": config.method not in PRETRAINING,
        "classes": about["classes"],
        "input": about["shape"],
        "network": config.network if architecture(config.network).fixed else f"{config.network}, width {config.width}",
        "data": {
            "name": config.data,
            "fingerprint": split["fingerprint"],
            "labelled": len(split["labelled"]),
            "wrong labels": len(split.get("wrong labels", ())),
            "unlabelled": split.get("unlabelled"),
            "validation": held,
            "test": measured.get("images", 0),
        },
        "errors": errors,
        "class errors": {
            "on": "test" if result["test_error"] is not None else "validation",
            "percent": result.get("class_errors", {}),
        },
        "probabilities": measured.get("probabilities"),
        "coverage": measured.get("coverage"),
        "calibration": known and {key: value for key, value in known.items() if key not in ("levels", "weights")},
        "not tested on": untested(config, errors["test"] is not None),
        "pretrained weights": weights(config),
        "training": {"steps": result["steps"], "seconds": result["seconds"], "seed": result["seed"]},
        "command": f"certus train --config {folder.config.name} --out NEW",
    }


def rate(percent: float | None, images: int | None) -> Card | None:
    """An error with the number of images and, if that is known, Wilson's interval of 95 %."""
    if percent is None:
        return None
    if not images:
        return {"percent": percent, "n": None, "interval": None}
    p, n = percent / 100, images
    centre, spread = p + Z**2 / (2 * n), Z * math.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    ends = [100 * (centre + sign * spread) / (1 + Z**2 / n) for sign in (-1, 1)]
    return {"percent": percent, "n": n, "interval": [max(0.0, ends[0]), min(100.0, ends[1])]}


def of_answers(found: Mapping[str, Tensor]) -> Card:
    """Measures of the answers to the test images, each the mean over the networks."""
    each, labels = found["probabilities"], found["labels"]

    def mean(score: Any) -> float:
        return sum(score(p, labels) for p in each) / len(each)

    uncertainty = {name: found[name] for name in (*METRICS, *UNDRAWN) if name in found}
    uncertainty["confidence"] = unconfidence(each[0])
    metric = best(uncertainty)
    missed = scores.wrong(each[0], labels)[uncertainty[metric].argsort(stable=True)]  # the most certain first
    shares = missed.cumsum(0) / missed.new_ones(len(missed)).cumsum(0)  # wrong among the first 1, 2, …
    return {
        "images": len(labels),
        "probabilities": {
            "expected calibration error": mean(scores.calibration_error),
            "log-loss": mean(scores.negative_log_likelihood),
            "brier": mean(scores.brier),
        },
        "coverage": {"metric": metric, "answered": {str(e): last(100 * shares <= e) for e in ERRORS}},
    }


def last(good: Tensor) -> int:
    """The number of the last that is true, from 1; 0 if none is."""
    return int(good.nonzero().max()) + 1 if good.any() else 0


def untested(config: Config, tested: bool) -> list[str]:
    """What nobody has measured about this model."""
    found = [] if tested else ["any picture that was set aside for a test: there were no test images"]
    found += [
        f"pictures from other sources than {config.data}: other cameras, places, times or people",
        "pictures of anything that is none of its classes: it names a class for those too",
        "pictures that are blurred, dark, rotated, drawn over or made to deceive it",
        "whether its errors fall on some groups of people or things more than on others, beyond the classes",
    ]
    return found


def weights(config: Config) -> Card | None:
    """Where a network's first weights came from, and their licence; None: they were random."""
    if config.init:
        return {"from": f"the run {config.init}", "licence": "see the card of that run"}
    if not config.weights:
        return None
    if config.weights == "imagenet" and config.network in IMAGENET:
        package = IMAGENET[config.network]
        return {"from": f"ImageNet, by the package {package.module}", "licence": package.licence}
    return {"from": f"{config.network}: {config.weights}", "licence": "unknown to certus: ask who published them"}
