"""Training steps to be timed: ours, a straightforward implementation, and USB's, on the same network and image counts.

benchmarks/speed.py starts this as a child process. It builds one contender, then answers each line of its input with a
line of JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from certus.config import decide, resolve
from certus.data.dataset import Dataset, Part
from certus.networks import network
from certus.training.build import build_on
from certus.training.memory import Alive, keep_freed_memory, step_bytes
from certus.training.run import Run
from certus.views import weak

CLASSES, SHAPE, STEPS = 10, (3, 32, 32), 10_000


def pictures(n: int = 2048) -> Dataset:
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (n, *SHAPE), dtype=torch.uint8, generator=random)
    labels = torch.randint(0, CLASSES, (n,), generator=random)
    part = Part(images, labels)
    return Dataset("random pictures", tuple(map(str, range(CLASSES))), part, Part(images[:512], labels[:512]))


def our_run(spec: dict[str, Any]) -> Run:
    given = {
        "data": "cifar10",
        "method": spec["method"],
        "labels": 500,
        "validation": 0,
        "steps": STEPS,
        "network": spec["network"],
        "width": spec["width"],
        "threads": spec["threads"],
        "dropout": 0.5,
        "labelled_batch": spec["batch"] // 4,
        "unlabelled_batch": spec["batch"] - spec["batch"] // 4,
        "options": spec.get("options", {}),
    }
    data = pictures()
    return build_on(data, decide(resolve(given), data))


def ours(spec: dict[str, Any]) -> Callable[[], Any]:
    if not spec.get("give back"):
        keep_freed_memory()  # as `certus train` does
    run, numbers = our_run(spec), count(STEPS // 20)  # early enough for every filter to be at work
    return lambda: run.advance(next(numbers))


def straightforward(spec: dict[str, Any]) -> Callable[[], Any]:
    """As the equations are written down: eager, channels first, T passes in a loop, the average tensor by tensor."""
    labelled, b = spec["batch"] // 4, spec["batch"]
    data = pictures()
    images, labels = data.normalised(data.train.images), data.train.labels
    student = network(spec["network"], SHAPE, CLASSES, spec["width"], 0.5)
    teacher = deepcopy(student).requires_grad_(False)
    optimiser = torch.optim.SGD(student.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=2e-4)
    augment, random = weak(translate=2, flip=True), torch.Generator().manual_seed(0)
    e, heat = 11, 4.0

    def view(x: Tensor, random: torch.Generator) -> Tensor:
        return augment(x, random).contiguous()  # channels first: our augmentation leaves them last

    def fixmatch(x: Tensor, y: Tensor) -> Tensor:
        u = x[labelled:]
        logits = student(torch.cat([view(x[:labelled], random), view(u, random), view(u, random)]))
        on_labels, on_weak, on_strong = logits.split([labelled, len(u), len(u)])
        sure, guess = on_weak.detach().softmax(1).max(1)
        pseudo = F.cross_entropy(on_strong, guess, reduction="none")
        return F.cross_entropy(on_labels, y[:labelled]) + (pseudo * (sure >= 0.95)).mean()

    def consistency(x: Tensor, y: Tensor) -> Tensor:
        logits = student(view(x, random))
        teacher.eval()
        weight, v = torch.ones(b), torch.ones(b)
        with torch.no_grad():
            target = teacher(view(x, random))
            if spec["method"] == "ft-ccl":
                for module in teacher.modules():
                    if isinstance(module, nn.Dropout):
                        module.train()
                draws = torch.stack([teacher(view(x, random)).softmax(1) for _ in range(10)])
                rank = draws.var(0, correction=0).sum(1).argsort().argsort() + 1
                dropped = torch.rand(b) < (1 - 0.4 * e / 210) * (rank - 1) / (b - 1)
                weight = ((rank <= 8 * e * b / 512) & ~dropped).float()
                v = (rank / b) ** 2 * heat + 1
        p, q = (logits / v[:, None]).softmax(1), (target / v[:, None]).softmax(1)
        return F.cross_entropy(logits[:labelled], y[:labelled]) + 10 * (weight * (p - q).square().sum(1)).mean()

    def step() -> None:
        places = torch.randint(0, len(images), (b,), generator=random)
        x, y = images[places], labels[places]
        loss = fixmatch(x, y) if spec["method"] == "fixmatch" else consistency(x, y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            for mine, theirs in zip(teacher.state_dict().values(), student.state_dict().values(), strict=True):
                if mine.is_floating_point():
                    mine.mul_(0.99).add_(theirs, alpha=0.01)
                else:
                    mine.copy_(theirs)

    return step


def usbs(spec: dict[str, Any]) -> Callable[[], Any]:
    """USB's own trainer step on views that are already made (its loader's work is not counted)."""
    import usb

    labelled, data = spec["batch"] // 4, pictures()
    x, y = data.normalised(data.train.images[: spec["batch"]]), data.train.labels
    net = network(spec["network"], SHAPE, CLASSES, spec["width"], 0.5)
    name = {"mean-teacher": "meanteacher", "fixmatch": "fixmatch"}[spec["method"]]
    algorithm = usb.algorithm(name, net, CLASSES)
    u = x[labelled:]
    return lambda: usb.step(algorithm, x[:labelled], y[:labelled], u, u.clone())


def convolutions(step: Callable[[], Any]) -> dict[str, float]:
    """Floating-point operations of a step's convolutions, and the seconds that it spends in them."""
    with FlopCounterMode(display=False) as counter:
        step()
    flops = sum(n for op, n in counter.get_flop_counts()["Global"].items() if "conv" in str(op))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    inside = {"aten::mkldnn_convolution", "aten::convolution_backward", "aten::_slow_conv2d_forward"}
    seconds = sum(e.self_cpu_time_total for e in profile.key_averages() if e.key in inside) / 1e6
    return {"flops": float(flops), "seconds": seconds}


def counted_bytes(spec: dict[str, Any], step: Callable[[], Any]) -> int:
    """Peak of a step's tensors beside what was there before it; of ours with networks and momentum."""
    if spec["who"] == "ours":
        return step_bytes(our_run(spec), STEPS // 20)
    with Alive() as alive:
        step()
    return alive.peak


def main() -> None:
    spec = json.loads(sys.argv[1])
    torch.set_num_threads(spec["threads"])
    torch.manual_seed(0)
    step = {"ours": ours, "straightforward": straightforward, "USB": usbs}[spec["who"]](spec)
    for line in sys.stdin:
        asked = line.strip()
        answer: Any = None
        if asked == "step":
            start = time.perf_counter()
            step()
            answer = time.perf_counter() - start
        elif asked == "convolutions":
            answer = convolutions(step)
        elif asked == "bytes":
            answer = counted_bytes(spec, step)
        elif asked == "resident":
            answer = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
