"""The arms of benchmarks/pictures.py, which starts this file as a child process: one cell, one thread, a line of JSON.

certus              certus train --data FOLDER --minutes M
certus supervised   the same with --method supervised
frozen, fine-tuned, scratch   the same with a fixed network, of which the head or all layers learn
hog …, features …   scikit-learn (benchmarks/rivals.py), without a limit of time
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import rivals
import torch
from folders import folder
from resumable import TWO_CORES, Given, Result, answer

import certus
from certus.certainty.metrics import best, unconfidence
from certus.certainty.scores import error, risk_coverage
from certus.data import pictures
from certus.training.artefacts import read_answers
from certus.training.loop import Tick
from certus.training.run_folder import RunFolder

PRETRAINED, SCRATCH = "efficientnet-lite0", "sprint"
Tensors = dict[str, torch.Tensor]


def trained(given: Given, **settings: Any) -> Result:
    """`certus train` on the folder, for the minutes, in one thread."""
    data = folder_of(given)
    pictures(str(data))  # decoded now: the minutes are for training
    ends = [time.process_time()]

    def listen(_: Tick) -> None:
        ends[1:] = [time.process_time()]

    machine = {"device": "cpu", "threads": 1, "seed": given["seed"], "minutes": TWO_CORES * given["minutes"]}
    with TemporaryDirectory() as out:
        run = RunFolder(certus.train(data, out=Path(out, "run"), listen=listen, **machine, **settings).folder)
        config, result = run.load_config(), run.load_result()
        answers = read_answers(run.predictions, "train again")
    chosen = {name: value for name, value in asdict(config).items() if name not in ("data", "data_dir")}
    return {
        "test_error": round(result["test_error"], 4),
        "error_of_certain_half": certain_half(answers),
        "network": config.network,
        "processor_seconds": round(ends[-1] - ends[0], 1),
        "version": f"certus {certus.__version__}",
        "settings": chosen,
    }


def certain_half(answers: Tensors) -> float:
    """Percent of wrong answers among the more certain half, as `certus predict` and `certus evaluate` rank them."""
    first = answers["probabilities"][0]
    known = {"confidence": unconfidence(first), **answers}
    return round(risk_coverage(first, answers["labels"], known[best(known)], [0.5])[0], 4)


def rival(fit: rivals.Fit, given: Given) -> Result:
    """A model of scikit-learn."""
    data = str(folder_of(given))
    found = fit(data, Path(given["cache"]), given["seed"])
    probabilities, labels = torch.from_numpy(found.probabilities), pictures(data).dataset.test.labels
    return {
        "test_error": round(error(probabilities, labels), 4),
        "error_of_certain_half": certain_half({"probabilities": probabilities[None], "labels": labels}),
        "network": found.network,
        "processor_seconds": round(found.seconds, 1),
        "version": rivals.version(),
        "settings": found.settings,
    }


def folder_of(given: Given) -> Path:
    return folder(Path(given["cache"]), given["folder"], given["directory"], given["labels"], given["seed"])


ARMS: dict[str, Callable[[Given], Result]] = {
    "certus": trained,
    "certus supervised": partial(trained, method="supervised"),
    "frozen": partial(trained, network=PRETRAINED, depth="head"),
    "fine-tuned": partial(trained, network=PRETRAINED, depth="all"),
    "scratch": partial(trained, network=SCRATCH),
    **{name: partial(rival, fit) for name, fit in rivals.FITS.items()},
}

if __name__ == "__main__":
    answer(ARMS)
