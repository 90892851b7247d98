"""certus evaluate: the error of a run on test images, its calibration, and how useful its certainty is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from certus.certainty import scores
from certus.certainty.calibration import Calibration
from certus.certainty.metrics import METRICS, UNDRAWN
from certus.cli.flags import argument, flag
from certus.cli.progress import console
from certus.config import Config
from certus.data import Part, is_folder
from certus.data import load as load_data
from certus.distributed.launch import current
from certus.errors import UsageError, unknown
from certus.methods.options import at_least
from certus.model import Model, Prediction, load
from certus.networks.roles import role
from certus.training.run_folder import RunFolder
from certus.training.threads import threads

MOST_DRAWS = 100_000
KINDS = "auto (the best that the run has), pv, ev, pe, mi, pr, confidence or witness"
SHARES = [x / 10 for x in range(1, 11)]


@dataclass(frozen=True)
class Options:
    """Measure how good a run's answers are on test images.

    It prints the error, the error of each class, NLL, Brier score, calibration error, and the error among the most
    certain answers. With several teachers, each number is the mean over them, not the number of their ensemble.
    """

    run: Path | None = argument("RUN", "the run's folder")
    data: str | None = flag("another data set, or a folder of pictures", None, "the run's")
    data_dir: str | None = flag("folder of the data set's files", None, "the run's")
    draws: int = flag("Monte-Carlo draws from which certainty is computed", 10)
    metric: str = flag(f"certainty by which answers are chosen: {KINDS}", "auto")
    json: bool = flag("print the numbers as JSON", False)


def run(options: Options) -> int:
    if options.run is None:
        raise UsageError("certus evaluate needs the folder of a run.")
    check_certainty(options.metric, options.draws)
    folder = RunFolder(options.run)
    config = folder.load_config()
    team = current()
    model = replace(load(folder.path), team=team)
    name = config.data if options.data is None else options.data
    root = config.data_dir if options.data_dir is None else options.data_dir
    with team.first():
        test = test_part(name, root, config, model)
    with threads(team.threads(config.threads)):
        alone = [
            replace(model, nets=(net,), witnesses=model.witnesses[i : i + 1], calibration=None)
            for i, net in enumerate(model.nets)
        ]
        predictions = [m.predict(test.images, options.draws, config.seed) for m in alone]
        together = model.predict(test.images, options.draws, config.seed) if model.calibration else None
    result: dict[str, Any] = {
        "run": str(folder.path),
        "method": config.method,
        "data": name,
        "images": len(test),
        "networks": len(predictions),
        **{key: fmean(values) for key, values in measures(predictions, test).items()},
        "errors": {
            role(net): scores.error(torch.from_numpy(p.probabilities), test.labels)
            for net, p in zip(model.nets, predictions, strict=True)
        },
        "class_errors": class_means(predictions, test, model.classes),
        "risk_coverage": coverage(predictions, test, options.metric),
        **({"calibrated": answering(model.calibration, together, test)} if model.calibration and together else {}),
    }
    if options.json:
        print(json.dumps(result, ensure_ascii=False))
    else:
        show(result)
    return 0


def check_certainty(metric: str, draws: int) -> None:
    """Refuse a metric that cannot be computed from so many draws."""
    if metric not in (known := ("auto", *METRICS, *UNDRAWN)):
        raise unknown("metric", metric, known)
    at_least(0, MOST_DRAWS)("draws", draws)
    if not draws and metric in METRICS:
        raise UsageError(f"Without draws there is no {metric} to rank by: use --metric confidence.")


def chosen_metric(metric: str, prediction: Prediction) -> str:
    """The one that is meant, which these answers must have."""
    name = prediction.metric if metric == "auto" else metric
    if name not in prediction.uncertainty:
        raise unknown("metric of this run", name, prediction.uncertainty)
    return name


def show(result: dict[str, Any]) -> None:
    each = ", ".join(f"{name} {e:.2f} %" for name, e in result["errors"].items())
    print(f"{result['method']} on {result['data']}: {result['images']:,} images")
    print(f"  error  {result['error']:.2f} %" + (f"  (the mean of {each})" if result["networks"] > 1 else ""))
    print(f"  NLL {result['nll']:.3f}   Brier {result['brier']:.3f}   ECE {result['ece']:.2f} %")
    print("  error of each class: " + ", ".join(f"{c} {e:.1f} %" for c, e in result["class_errors"].items()))
    print(f"  error among the most certain answers (by {result['risk_coverage']['metric']}):")
    print("   " + "".join(f" {int(100 * s):>6} %" for s in SHARES))
    print("   " + "".join(f" {r:>8.2f}" for r in result["risk_coverage"]["error"]))

    if known := result.get("calibrated"):
        print(f"  after calibration (temperature {known['temperature']:.3f}): ECE {known['ece']:.2f} %")
        if known["answered"] is not None:
            wrong = "" if known["error"] is None else f", {known['error']:.2f} % of them wrong"
            print(
                f"  answered: {known['answered']:,} of {result['images']:,}{wrong} "
                f"(promised: at most {known['promised']:.2f} %)"
            )


def answering(found: Calibration, given: Prediction, test: Part) -> dict[str, Any]:
    """What the calibrated run, all networks together, does with these images."""
    p, kept = torch.from_numpy(given.probabilities), given.answered
    some = kept is not None and bool(kept.any())
    return {
        "temperature": found.temperature,
        "ece": scores.calibration_error(p, test.labels),
        "answered": None if kept is None else int(kept.sum()),
        "error": scores.error(p[kept], test.labels[kept]) if some else None,
        "promised": 100 * found.chosen.bound,
    }


def test_part(name: str, root: str, config: Config, model: Model) -> Part:
    """The labelled test images of a data set or folder; of a folder without test/, all its labelled pictures."""
    data = load_data(name, root, config.size, config.fit) if is_folder(name) else load_data(name, root)
    part = data.test
    if not len(part) and is_folder(name):
        known = data.train.labels >= 0
        part = data.train if known.all() else Part(data.train.images[known], data.train.labels[known])
        console.print(
            f"{name} has no test folder: all its labelled pictures are used, also those that the run trained on.",
            soft_wrap=True,
        )
    if not set(data.classes) <= set(model.classes):
        other = ", ".join(sorted(set(data.classes) - set(model.classes)))
        raise UsageError(f"{name} has classes that this run does not know: {other}.")
    number = torch.tensor([model.classes.index(c) for c in data.classes])
    images = part.images
    if images.shape[1] != model.shape[0] and images.dim() == 4 and images.shape[1] == 1:
        images = images.expand(-1, 3, -1, -1)
    return Part(images, number[part.labels])


def measures(predictions: Sequence[Prediction], test: Part) -> dict[str, list[float]]:
    """Each score, for each network."""
    found: dict[str, list[float]] = {"error": [], "nll": [], "brier": [], "ece": []}
    for p in (torch.from_numpy(s.probabilities) for s in predictions):
        found["error"].append(scores.error(p, test.labels))
        found["nll"].append(scores.negative_log_likelihood(p, test.labels))
        found["brier"].append(scores.brier(p, test.labels))
        found["ece"].append(scores.calibration_error(p, test.labels))
    return found


def class_means(predictions: Sequence[Prediction], test: Part, classes: tuple[str, ...]) -> dict[str, float]:
    """The error of each class that has test images, as the mean over the networks."""
    return scores.mean_class_errors([torch.from_numpy(p.probabilities) for p in predictions], test.labels, classes)


def coverage(predictions: Sequence[Prediction], test: Part, metric: str) -> dict[str, Any]:
    """The error among the most certain 10 %, 20 %, … of the answers."""
    metric = chosen_metric(metric, predictions[0])
    curves = [
        scores.risk_coverage(
            torch.from_numpy(p.probabilities), test.labels, torch.from_numpy(p.uncertainty[metric]), SHARES
        )
        for p in predictions
    ]
    return {"metric": metric, "share": SHARES, "error": [fmean(c) for c in zip(*curves, strict=True)]}
