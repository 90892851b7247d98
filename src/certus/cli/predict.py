"""certus predict: label pictures with a trained run, and rank the answers by certainty."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from certus.certainty.calibration import Calibration
from certus.cli.answer_files import Row, writer
from certus.cli.evaluate import KINDS, check_certainty, chosen_metric
from certus.cli.flags import argument, flag
from certus.cli.progress import console
from certus.data.decode import SUFFIXES, stream
from certus.distributed.launch import current
from certus.errors import CertusError, UsageError
from certus.model import Model, Prediction, load
from certus.training.run_folder import RunFolder
from certus.training.threads import threads

WRITTEN = ("pv", "ev", "pe", "mi", "witness")
BATCH = 256
Answered = dict[str, Any]  # of a batch: rows, skipped, metric, uncertainty, answered


@dataclass(frozen=True)
class Options:
    """Label pictures with a trained run and say how certain each answer is.

    Several teachers answer together, with the mean of their probabilities.
    """

    run: Path | None = argument("RUN", "the run's folder")
    pictures: Path | None = argument("PICTURES", "a folder of pictures, or one picture")
    out: Path = flag("the file of answers: .csv, .json or .parquet", Path("predictions.csv"))
    format: str = flag("auto: a table, by the file's ending; coco or label-studio: JSON as those tools read it", "auto")
    top: int = flag("how many classes are named for each picture", 1)
    draws: int = flag("Monte-Carlo draws from which certainty is computed; 0: none", 10)
    metric: str = flag(f"certainty by which the answers are ranked: {KINDS}", "auto")


def run(options: Options) -> int:
    if options.run is None or options.pictures is None:
        raise UsageError("certus predict needs the folder of a run, and a folder of pictures or one picture.")
    check_certainty(options.metric, options.draws)
    if options.top < 1:
        raise UsageError(f"--top must be at least 1, but is {options.top}.")
    write = writer(options.out, options.format)
    folder = RunFolder(options.run)
    config, model = folder.load_config(), load(folder.path)
    if len(model.shape) != 3:
        raise UsageError(f"{folder.path} was trained on vectors: it cannot label pictures.")
    team = current()
    batches = [b for i, b in enumerate(batched(sorted(find(options.pictures)))) if i % team.size == team.rank]
    found: list[Answered] = []
    with threads(team.threads(config.threads)):
        for names, predictions, lost in track(
            answers([path for batch in batches for path in batch], model, options.draws, config.seed, config.fit),
            description="predicting",
            total=len(batches),
            console=console,
        ):
            found.append(answered_batch(options, names, predictions, lost))
    found = in_order(team.collected(found))
    for path, why in (line for batch in found for line in batch["skipped"]):
        print(f"certus: {path} was left out: {why}", file=sys.stderr)
    rows = [line for batch in found for line in batch["rows"]]
    if not rows:
        raise CertusError(f"No picture in {options.pictures} can be read, so {options.out} is not written.")
    metric = next(batch["metric"] for batch in found if batch["metric"])
    answered = sum(batch["answered"] for batch in found)
    uncertainty = [value for batch in found for value in batch["uncertainty"]]
    for rank, i in enumerate(np.argsort(uncertainty, kind="stable"), 1):
        rows[i]["rank"] = rank
    if team.leads:
        write(options.out, rows, model.classes)
    print(f"{len(rows):,} pictures in {options.out}, ranked by {metric}: 1 is the most certain.")
    if model.calibration:
        print(calibrated(model.calibration, answered, len(rows), "answered" in rows[0]))
    return 0


def batched(paths: list[Path]) -> Iterator[list[Path]]:
    """Whose pictures are answered together, and by one process."""
    for start in range(0, len(paths), BATCH):
        yield paths[start : start + BATCH]


def answered_batch(
    options: Options, names: list[Path], predictions: Prediction | None, lost: list[tuple[Path, str]]
) -> Answered:
    """What is known of a batch of pictures, in plain words and numbers."""
    skipped = [(str(path), why) for path, why in lost]
    if predictions is None:
        return {"rows": [], "skipped": skipped, "metric": "", "uncertainty": [], "answered": 0}
    metric = chosen_metric(options.metric, predictions)
    assert options.pictures is not None
    return {
        "rows": [row(options.pictures, path, predictions, i, options.top) for i, path in enumerate(names)],
        "skipped": skipped,
        "metric": metric,
        "uncertainty": predictions.uncertainty[metric].tolist(),
        "answered": 0 if predictions.answered is None else int(predictions.answered.sum()),
    }


def in_order(by_process: Sequence[list[Answered]]) -> list[Answered]:
    """The first batch of every process, then the second, …"""
    turns = zip_longest(*by_process)
    return [batch for turn in turns for batch in turn if batch is not None]


def calibrated(found: Calibration, answered: int, pictures: int, known: bool) -> str:
    """How many pictures are answered, and what is promised about them."""
    if not known:
        return f"Which pictures are answered is known with --draws {found.draws} alone, as the run was calibrated."
    return (
        f"Answered: {answered:,} of {pictures:,}. At most {100 * found.chosen.bound:.2f} % of such answers are wrong, "
        f"for pictures like those of {found.data} ({found.labels:,} labels, {100 * found.confidence:g} % confidence)."
    )


def find(path: Path) -> Iterator[Path]:
    """The picture, or all pictures in a folder and below it."""
    if not path.exists():
        raise UsageError(f"There is no folder or picture {path}.")
    if not path.is_dir():
        yield path
        return
    found = [p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and not (p.is_dir() or p.name.startswith("."))]
    if not found:
        raise UsageError(f"There are no pictures in {path}.")
    yield from found


def answers(
    paths: list[Path], model: Model, draws: int, seed: int, fit: str
) -> Iterator[tuple[list[Path], Prediction | None, list[tuple[Path, str]]]]:
    """Batch by batch, so that memory does not grow with the number of pictures; None if none of a batch can be read."""
    for names, images, lost in stream(paths, model.shape[1], model.shape[0], BATCH, fit):
        yield names, model.predict(images, draws, seed) if names else None, lost


def row(root: Path, path: Path, predictions: Prediction, i: int, top: int) -> Row:
    """The answer to one picture; its rank is known at the end."""
    p = predictions.probabilities[i]
    best = np.argsort(-p, kind="stable")[:top]
    answer: Row = {
        "file": str(path.relative_to(root)) if root.is_dir() else str(path),
        "label": predictions.classes[best[0]],
        "confidence": round(float(p[best[0]]), 6),
    }
    certainty = predictions.uncertainty
    answer |= {name: float(f"{certainty[name][i]:.6g}") for name in WRITTEN if name in certainty}
    if predictions.answered is not None:
        answer["answered"] = "yes" if predictions.answered[i] else "no"
    answer["rank"] = None
    for number, c in enumerate(best[1:], 2):
        answer |= {f"label_{number}": predictions.classes[c], f"confidence_{number}": round(float(p[c]), 6)}
    return answer
