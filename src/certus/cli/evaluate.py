"""certus evaluate and certus predict: what a trained run says, and how sure it is."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from rich.progress import track

from certus.certainty import scores
from certus.certainty.metrics import METRICS
from certus.cli.progress import console
from certus.cli.train import Given
from certus.data import Part, is_folder
from certus.data import load as load_data
from certus.data.decode import SUFFIXES, stream
from certus.errors import UsageError, unknown
from certus.model import Model, Prediction, load
from certus.networks.roles import role
from certus.training.run_folder import RunFolder, put
from certus.training.threads import threads

SHARES = [x / 10 for x in range(1, 11)]
WRITTEN = ("pv", "ev", "pe", "mi")


def evaluate_command(args: Any, given: Given) -> int:
    folder = RunFolder(args.run)
    config = folder.load_config()
    model = load(folder.path)
    name = args.data if "data" in given else config.data
    root = args.data_dir if "data_dir" in given else config.data_dir
    test = test_part(name, root, config.size, model)
    with threads(config.threads):
        alone = [Model((net,), model.classes, model.shape, model.mean, model.std) for net in model.nets]
        said = [m.predict(test.images, args.draws, config.seed) for m in alone]
    result: dict[str, Any] = {
        "run": str(folder.path),
        "method": config.method,
        "data": name,
        "images": len(test),
        "networks": len(said),
        **{key: fmean(values) for key, values in measures(said, test).items()},
        "errors": {
            role(net): scores.error(torch.from_numpy(p.probabilities), test.labels)
            for net, p in zip(model.nets, said, strict=True)
        },
        "class_errors": class_means(said, test, model.classes),
        "risk_coverage": coverage(said, test, args.metric),
    }
    if args.json:
        print(json.dumps(result, ensure_ascii=False))
        return 0
    each = ", ".join(f"{name} {e:.2f} %" for name, e in result["errors"].items())
    print(f"{config.method} on {name}: {len(test):,} images")
    print(f"  error  {result['error']:.2f} %" + (f"  (the mean of {each})" if len(said) > 1 else ""))
    print(f"  NLL {result['nll']:.3f}   Brier {result['brier']:.3f}   ECE {result['ece']:.2f} %")
    print("  error of each class: " + ", ".join(f"{c} {e:.1f} %" for c, e in result["class_errors"].items()))
    print(f"  error when only the most certain are answered (by {args.metric}):")
    print("   " + "".join(f" {int(100 * s):>6} %" for s in SHARES))
    print("   " + "".join(f" {r:>8.2f}" for r in result["risk_coverage"]["error"]))
    return 0


def test_part(name: str, root: str, size: int, model: Model) -> Part:
    """The labelled test images of a data set or folder; of a folder without test/, all its labelled pictures."""
    data = load_data(name, root, size if is_folder(name) else 0)
    part = data.test
    if not len(part) and is_folder(name):
        known = data.train.labels >= 0
        part = Part(data.train.images[known], data.train.labels[known])
        console.print(
            f"{name} has no test folder: its labelled pictures are asked, those trained on among them.", soft_wrap=True
        )
    if not set(data.classes) <= set(model.classes):
        other = ", ".join(sorted(set(data.classes) - set(model.classes)))
        raise UsageError(f"{name} has classes that this run does not know: {other}.")
    number = torch.tensor([model.classes.index(c) for c in data.classes])
    images = part.images
    if images.shape[1] != model.shape[0] and images.dim() == 4 and images.shape[1] == 1:
        images = images.expand(-1, 3, -1, -1)
    return Part(images, number[part.labels])


def measures(said: list[Prediction], test: Part) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"error": [], "nll": [], "brier": [], "ece": []}
    for p in (torch.from_numpy(s.probabilities) for s in said):
        found["error"].append(scores.error(p, test.labels))
        found["nll"].append(scores.negative_log_likelihood(p, test.labels))
        found["brier"].append(scores.brier(p, test.labels))
        found["ece"].append(scores.calibration_error(p, test.labels))
    return found


def class_means(said: list[Prediction], test: Part, classes: tuple[str, ...]) -> dict[str, float]:
    each = [scores.class_errors(torch.from_numpy(s.probabilities), test.labels) for s in said]
    columns = zip(classes, zip(*each, strict=True), strict=True)
    return {name: fmean(e for e in es if e is not None) for name, es in columns if es[0] is not None}


def coverage(said: list[Prediction], test: Part, metric: str) -> dict[str, Any]:
    if metric not in said[0].uncertainty:
        raise unknown("metric of this run", metric, said[0].uncertainty)
    curves = [
        scores.risk_coverage(
            torch.from_numpy(s.probabilities), test.labels, torch.from_numpy(s.uncertainty[metric]), SHARES
        )
        for s in said
    ]
    return {"metric": metric, "share": SHARES, "error": [fmean(c) for c in zip(*curves, strict=True)]}


def predict_command(args: Any, given: Given) -> int:  # noqa: ARG001
    if args.metric not in (*METRICS, "confidence"):
        raise unknown("metric", args.metric, (*METRICS, "confidence"))
    if args.top < 1:
        raise UsageError(f"--top must be at least 1, but is {args.top}.")
    if args.draws < 0:
        raise UsageError(f"--draws must be at least 0, but is {args.draws}.")
    if not args.draws and args.metric != "confidence":
        raise UsageError(f"Without draws there is no {args.metric} to rank by: use --metric confidence.")
    write = WRITERS.get(args.out.suffix)
    if write is None:
        raise unknown("file type", args.out.suffix or "(none)", WRITERS)
    folder = RunFolder(args.run)
    config, model = folder.load_config(), load(folder.path)
    if len(model.shape) != 3:
        raise UsageError(f"{folder.path} was trained on vectors: it cannot look at pictures.")
    paths = sorted(find(args.pictures))
    rows: list[dict[str, Any]] = []
    uncertainty: list[float] = []
    skipped: list[tuple[Path, str]] = []
    with threads(config.threads):
        for names, said, lost in track(
            answers(paths, model, args.draws, config.seed),
            description="predicting",
            total=-(-len(paths) // BATCH),
            console=console,
        ):
            rows += [row(args.pictures, path, said, i, args.top) for i, path in enumerate(names)]
            if args.metric not in said.uncertainty:  # a network without dropout
                raise unknown("metric of this run", args.metric, said.uncertainty)
            uncertainty += said.uncertainty[args.metric].tolist()
            skipped += lost
    for place, i in enumerate(np.argsort(uncertainty, kind="stable"), 1):
        rows[i]["rank"] = place
    write(args.out, rows)
    print(f"{len(rows):,} pictures in {args.out}, ranked by {args.metric}: 1 is the most certain.")
    for path, why in skipped:
        print(f"certus: {path} was left out: {why}", file=sys.stderr)
    return 1 if skipped and not rows else 0


BATCH = 256


def find(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
        return
    if not place.is_dir():
        raise UsageError(f"There is no folder or picture {place}.")
    found = [p for p in place.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file() and not p.name.startswith(".")]
    if not found:
        raise UsageError(f"There are no pictures in {place}.")
    yield from found


def answers(
    paths: list[Path], model: Model, draws: int, seed: int
) -> Iterator[tuple[list[Path], Prediction, list[tuple[Path, str]]]]:
    """Batch by batch, so that memory does not grow with the number of pictures."""
    for names, images, lost in stream(paths, model.shape[1], model.shape[0], BATCH):
        yield names, model.predict(images, draws, seed), lost


def row(root: Path, path: Path, said: Prediction, i: int, top: int) -> dict[str, Any]:
    p = said.probabilities[i]
    best = np.argsort(-p, kind="stable")[:top]
    told: dict[str, Any] = {
        "file": str(path.relative_to(root)) if root.is_dir() else str(path),
        "label": said.classes[best[0]],
        "confidence": round(float(p[best[0]]), 6),
    }
    told |= {name: float(f"{said.uncertainty[name][i]:.6g}") for name in WRITTEN if name in said.uncertainty}
    told["rank"] = None
    for place, c in enumerate(best[1:], 2):
        told |= {f"label_{place}": said.classes[c], f"confidence_{place}": round(float(p[c]), 6)}
    return told


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["file", "label"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    put(path, text.getvalue())


def write_json(path: Path, rows: list[dict[str, Any]]) -> None:
    put(path, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(
            "Writing parquet needs pyarrow: pip install 'certus[parquet]', or write .csv or .json."
        ) from None
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


WRITERS = {".csv": write_csv, ".json": write_json, ".parquet": write_parquet}
