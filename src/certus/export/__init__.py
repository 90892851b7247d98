"""A run for other programs: as one ONNX file, as a program of torch, or as a folder of weights and a description."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from certus import __version__
from certus.config import Config
from certus.config.run_file import seal_of
from certus.errors import UsageError, unknown
from certus.export.agreement import Agreement, apart, as_inputs, compare, sample
from certus.export.graph import Graph
from certus.export.onnx_file import answers_of, need_onnx, onnx_model, program, session, with_bytes
from certus.model import Model, load
from certus.training.portable import write_portable
from certus.training.run_folder import RunFolder
from certus.training.threads import threads
from certus.writing import put

FORMATS = {"onnx": ".onnx", "torch-export": ".pt2", "huggingface": ""}


@dataclass(frozen=True)
class Exported:
    """What was written, and how much it agrees with the run."""

    path: Path
    bytes: int
    agreement: Agreement | None = None
    lost: tuple[float, int] | None = None  # by weights of 8 bits: of the probabilities, and labels that differ


def export(run: str | Path, out: str | Path, *, format: str = "onnx", draws: int = 10, int8: bool = False) -> Exported:
    """Write a run for other programs, after a check that it answers as certus does.

    Parameters
    ----------
    run : str or Path
        The run's folder.
    out : str or Path
        The file to write; a folder for the format huggingface.
    format : str
        onnx, torch-export or huggingface.
    draws : int
        Monte-Carlo draws inside the graph; 0: none.
    int8 : bool
        Store weights in 8 bits (onnx only): a quarter of the size, and the loss is measured.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if not 0 <= draws <= 1000 or draws == 1:
        raise UsageError(f"`draws` must be 0 or from 2 to 1,000, but is {draws}.")
    if int8 and format != "onnx":
        raise UsageError("Weights of 8 bits are for the format onnx alone.")
    folder, path = RunFolder(Path(run)), Path(out)
    config, model = folder.load_config(), load(run)
    if format == "huggingface":
        return Exported(path, write_portable(path, folder, config, model.tensors, model.calibration))
    if FORMATS[format] != path.suffix:
        raise UsageError(f"The file of the format {format} ends in {FORMATS[format]}, but `out` is {path}.")
    if len(model.shape) == 3 and model.shape[1] != model.shape[2]:
        raise UsageError(f"Only square pictures can be exported, but this run's are {model.shape[1]}×{model.shape[2]}.")
    if format == "onnx":
        need_onnx()
    with threads(config.threads):
        graph = Graph(model, config.fit, draws).eval()
        stored, source = sample(model, config)
        write = write_onnx if format == "onnx" else write_program
        return write(
            path, graph, model, config, lambda ask: compare(ask, graph, model, stored, source, config.fit), int8
        )


Compare = Callable[[Any], Agreement]


def write_onnx(path: Path, graph: Graph, model: Model, config: Config, agree: Compare, int8: bool) -> Exported:
    proto = onnx_model(graph, model, description(graph, model, config))
    ready = session(proto)
    found = agree(lambda inputs, seed: answers_of(ready, inputs, seed))
    found.check()
    lost = None
    if int8:
        proto = with_bytes(proto)
        inputs = as_inputs(sample(model, config)[0])
        before, after = answers_of(ready, inputs), answers_of(session(proto), inputs)
        changed = int((before["label"] != after["label"]).sum())
        lost = apart(before["probabilities"], after["probabilities"]), changed
    put(path, data := proto.SerializeToString())
    return Exported(path, len(data), found, lost)


def write_program(path: Path, graph: Graph, model: Model, config: Config, agree: Compare, int8: bool) -> Exported:  # noqa: ARG001
    import torch

    made = program(graph, model)
    ready = made.module()

    def ask(inputs: Any, seed: int) -> dict[str, Any]:
        with torch.no_grad():
            given = ready(torch.from_numpy(inputs), torch.tensor(seed))
        return {name: value.numpy() for name, value in zip(graph.names, given, strict=True)}

    found = agree(ask)
    found.check()
    put(path, lambda file: torch.export.save(made, file))
    return Exported(path, path.stat().st_size, found)


def description(graph: Graph, model: Model, config: Config) -> dict[str, Any]:
    """The metadata: enough to use the file, and to know what it is."""
    return {
        "version": __version__,
        "classes": list(model.classes),
        "inputs": list(model.shape),
        "fit": config.fit,
        "draws": graph.count,
        "uncertainty": list(graph.columns),
        "data": Path(config.data).name,
        "method": config.method,
        "network": config.network,
        "labels": config.labels,
        "settings": seal_of(asdict(config)),
        "weights": model.digest,
        "calibration": asdict(model.calibration) if model.calibration else None,
    }
