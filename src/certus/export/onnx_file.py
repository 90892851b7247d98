"""The ONNX file of a graph: inputs and outputs by name, what the run is as metadata, and weights of 8 bits."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import Dim, ExportedProgram

from certus.errors import UsageError
from certus.export.graph import Graph
from certus.model import Model

KEY = "certus"  # of the metadata
LEAST = 1024  # numbers of a tensor that becomes 8 bits


def need_onnx() -> None:
    try:
        for name in ("onnx", "onnxruntime", "onnxscript"):
            import_module(name)
    except ImportError as e:
        raise UsageError(
            f"Exporting needs {e.name}: run pip install 'certus-ssl[export]', or in a checkout "
            "pip install -e '.[export]'."
        ) from None


def program(graph: Graph, model: Model) -> ExportedProgram:
    """The graph as torch exports it: any number of pictures of any size."""
    batch = Dim("batch")
    if graph.pictures:
        height, width = (side + odd for side, odd in zip(model.shape[1:], (3, 5), strict=True))  # no size is special
        inputs = torch.zeros(3, height, width, 3, dtype=torch.uint8)
        free = {0: batch, 1: Dim("height"), 2: Dim("width")}
    else:
        inputs, free = torch.zeros(3, *model.shape), {0: batch}
    with quiet(), torch.no_grad():
        return torch.export.export(graph, (inputs, torch.tensor(0)), dynamic_shapes=(free, None), strict=False)


def onnx_model(graph: Graph, model: Model, about: Mapping[str, Any]) -> Any:
    """The `onnx.ModelProto` of a graph."""
    import onnx

    with quiet(), torch.no_grad():
        made = torch.onnx.export(
            program(graph, model),
            dynamo=True,
            input_names=[input_name(graph), "seed"],
            output_names=graph.names,
            verbose=False,
            external_data=False,
        )
    assert made is not None
    proto = made.model_proto
    proto.producer_name, proto.producer_version = "certus", str(about["version"])
    proto.graph.name = "certus"
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0, np.int64), "seed"))  # its default
    del proto.metadata_props[:]
    onnx.helper.set_model_props(proto, {KEY: json.dumps(about, ensure_ascii=False)})
    for node in proto.graph.node:  # where each node stood in the source: paths of this machine
        del node.metadata_props[:]
        node.doc_string = ""
    return proto


def input_name(graph: Graph) -> str:
    return "images" if graph.pictures else "vectors"


@contextmanager
def quiet() -> Iterator[None]:
    """Without what torch says about itself."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def session(proto: Any) -> Any:
    """What answers, from the file's bytes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def answers_of(ready: Any, inputs: NDArray[Any], seed: int = 0) -> dict[str, NDArray[Any]]:
    """The outputs by name."""
    first = ready.get_inputs()[0].name
    names = [output.name for output in ready.get_outputs()]
    return dict(zip(names, ready.run(names, {first: inputs, "seed": np.array(seed, np.int64)}), strict=True))


def with_bytes(proto: Any) -> Any:
    """A copy whose large weights are bytes with one factor per output, w ≈ s·q; they are floats again when it runs."""
    import onnx
    from onnx import helper, numpy_helper

    small = onnx.ModelProto()
    small.CopyFrom(proto)
    graph, kept, nodes = small.graph, [], []
    for tensor in graph.initializer:
        w = numpy_helper.to_array(tensor)
        if w.dtype != np.float32 or w.ndim < 2 or w.size < LEAST:
            kept.append(tensor)
            continue
        axis = output_axis(graph, tensor.name, w.ndim)
        others = tuple(d for d in range(w.ndim) if d != axis)
        scale = np.maximum(np.abs(w).max(others) / 127, np.finfo(np.float32).tiny).astype(np.float32)
        shape = [-1 if d == axis else 1 for d in range(w.ndim)]
        q = np.clip(np.rint(w / scale.reshape(shape)), -127, 127).astype(np.int8)
        kept += [numpy_helper.from_array(q, f"{tensor.name}.q"), numpy_helper.from_array(scale, f"{tensor.name}.s")]
        names = [f"{tensor.name}.q", f"{tensor.name}.s"]
        nodes.append(helper.make_node("DequantizeLinear", names, [tensor.name], axis=axis))
    later = list(graph.node)
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(kept)
    graph.node.extend([*nodes, *later])
    return small


def output_axis(graph: Any, name: str, dimensions: int) -> int:
    """Which axis of a weight counts the outputs: the last of a matrix that is multiplied from the right, else 0."""
    users = [node for node in graph.node if name in node.input]
    right = all(node.op_type == "MatMul" and node.input[1] == name for node in users)
    return dimensions - 1 if right and users else 0
