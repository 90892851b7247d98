"""bfloat16 on a processor: whether it works here, and whether it gains.

Some machines claim instructions that they do not have, and die on the first bfloat16 product. So a child process tries
first, and times a few steps of a small convolution network in both precisions. The answer is kept in the user's cache,
one entry for each processor and version of torch.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from certus.errors import UsageError
from certus.writing import make_folder, put_json

PRECISIONS = ("auto", "fp32", "bf16")
WORTH = 1.2  # times as fast as fp32, from which on bf16 is taken
SECONDS = 120  # for the child


@dataclass(frozen=True)
class Probe:
    """What the child process found."""

    works: bool
    gain: float  # fp32's time over bf16's; 0 where it does not work
    why: str = ""


def autocast(precision: str, device: str) -> AbstractContextManager[object]:
    """Forward passes in this precision; losses and weights stay in fp32."""
    return torch.autocast(device, torch.bfloat16, enabled=precision == "bf16")


def decide_precision(asked: str, device: str) -> str:
    """fp32 or bf16. A GPU always has bf16; a processor if a child process survives it and gains from it."""
    if asked not in PRECISIONS:
        raise UsageError(f"`precision` must be auto, fp32 or bf16, but is {asked!r}.")
    if device == "cuda":
        return "bf16"
    if asked == "fp32":
        return "fp32"
    found = probe()
    if asked == "bf16" and not found.works:
        raise UsageError(f"`precision` bf16 does not work on this processor ({found.why}): use fp32.")
    return "bf16" if asked == "bf16" or found.gain >= WORTH else "fp32"


@cache
def probe() -> Probe:
    """From the cache, or from a child process."""
    kept = cache_file()
    key = f"{processor()} torch {torch.__version__}"
    try:
        known = json.loads(kept.read_text())
        found = Probe(**known[key])
        return Probe(bool(found.works), float(found.gain), str(found.why))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        known = {}
    found = try_in_child()
    try:
        make_folder(kept.parent)
        put_json(kept, {**known, key: vars(found)})
    except OSError:
        pass  # without a cache the next process tries again
    return found


def try_in_child(program: str | None = None) -> Probe:
    """Run the trial where it can do no harm."""
    words = [sys.executable, "-c", program or f"from {__name__} import trial; trial()"]
    try:
        child = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        return Probe(False, 0.0, f"the trial did not end: {type(e).__name__}")
    if child.returncode:
        reason = f"signal {-child.returncode}" if child.returncode < 0 else f"exit code {child.returncode}"
        return Probe(False, 0.0, f"the trial ended with {reason}")
    try:
        return Probe(True, float(child.stdout.split()[-1]))
    except (ValueError, IndexError):
        return Probe(False, 0.0, "the trial gave no answer")


def trial() -> None:
    """Print fp32's time over bf16's for a training step of a small convolution network, minima of several."""
    import time

    from torch import nn

    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.GELU(), nn.Conv2d(64, 64, 3, padding=1))
    net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.randn(32, 64, 16, 16).contiguous(memory_format=torch.channels_last)
    best = {"fp32": float("inf"), "bf16": float("inf")}
    for _ in range(6):
        for name in best:
            start = time.perf_counter()
            with autocast(name, "cpu"):
                loss = net(x).square().mean()
            loss.backward()
            best[name] = min(best[name], time.perf_counter() - start)
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in net.parameters())
    print(best["fp32"] / best["bf16"])


def processor() -> str:
    """The name of this processor and what it claims to be able to do, so that a moved cache is not believed."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = [line.split(":", 1)[1].strip() for line in lines if line.startswith(("model name", "flags"))][:2]
    flags = " ".join(word for word in found[-1].split() if "bf16" in word or "amx" in word) if found else ""
    return f"{found[0] if found else platform.processor()} {flags}".strip()


def cache_file() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "certus" / "precision.json"
