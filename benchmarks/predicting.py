"""Images per second of answers: with certainty against a plain loop, and clean against ONNX Runtime."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from certus.networks import network
from certus.networks.modes import dropout_only
from certus.training.evaluation import probabilities, uncertainties

N, SHAPE, CLASSES = 512, (3, 32, 32), 10


def plain_certainty(net: nn.Module, images: Tensor) -> Tensor:
    """A clean pass and ten more with dropout, stacked."""
    with torch.no_grad():
        clean = net(images).softmax(1)
        with dropout_only(net):
            draws = torch.stack([net(images).softmax(1) for _ in range(10)])
        return clean.amax(1) + draws.var(0, correction=0).sum(1)


def exported(net: nn.Module, images: Tensor, threads: int) -> Callable[[], Any] | str:
    """The clean pass by ONNX Runtime, or why not."""
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if missing:
        return f"ONNX Runtime left out: {', '.join(missing)} not installed"
    import onnxruntime

    program = torch.onnx.export(net, (images[:64],), dynamo=True, verbose=False)
    assert program is not None
    buffer = io.BytesIO()
    program.save(buffer)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(buffer.getvalue(), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda: [session.run(None, {name: part.numpy()}) for part in images.split(64)]


def predicting(threads: int, widths: tuple[int, ...] = (16, 128)) -> dict[str, Any]:
    torch.set_num_threads(threads)
    found: dict[str, Any] = {}
    print("\nImages per second")
    for width in widths:
        net = network("cnn13", SHAPE, CLASSES, width, 0.5).eval()
        ours = network("cnn13", SHAPE, CLASSES, width, 0.5).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        images = torch.randn(N, *SHAPE)
        jobs: dict[str, Callable[[], Any]] = {
            "plain loop with certainty": lambda net=net, images=images: plain_certainty(net, images),  # type: ignore[misc]
            "certus with certainty": lambda net=ours, images=images: (  # type: ignore[misc]
                probabilities(net, lambda x: x, images),
                uncertainties([net], lambda x: x, images),
            ),
            "plain loop, clean": lambda net=net, images=images: [net(p) for p in images.split(64)],  # type: ignore[misc]
            "certus, clean": lambda net=ours, images=images: probabilities(net, lambda x: x, images),  # type: ignore[misc]
        }
        onnx = exported(net, images, threads)
        if isinstance(onnx, str):
            print(f"  {onnx}")
        else:
            jobs["ONNX Runtime, clean"] = onnx
        best = dict.fromkeys(jobs, float("inf"))
        with torch.no_grad():
            for _ in range(3):
                for name, job in jobs.items():
                    start = time.perf_counter()
                    job()
                    best[name] = min(best[name], time.perf_counter() - start)
        for name, seconds in best.items():
            print(f"  width {width:3}  {name:28} {N / seconds:9.1f}")
        found[f"width {width}"] = {name: N / seconds for name, seconds in best.items()}
    return found
