"""How fast is a training step? Ratios within one run: each contender has its own process, all take turns, minima.

    python benchmarks/speed.py                      # `make bench`; docs/performance.md has the results
    python benchmarks/speed.py --widths 16 --batches 128 --seconds 30

USB takes part if it is installed (benchmarks/usb.py says how), and so does ONNX Runtime. Times are ratios to the
straightforward Mean Teacher step of the same network and batch; the JSON file has the seconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
PAPER = {"certainty": "paper"}


class Contender:
    """A child process that does one step when it is asked."""

    def __init__(self, name: str, spec: dict[str, Any]) -> None:
        self.name, self.spec, self.times = name, spec, [float("inf")]
        command = [sys.executable, str(HERE / "contenders.py"), json.dumps(spec)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, what: str) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} died: see above.")
        return json.loads(line)

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def race(specs: dict[str, dict[str, Any]], seconds: float, profile: str = "") -> dict[str, dict[str, Any]]:
    """Least seconds, counted bytes and resident memory of each, measured in turn."""
    contenders = [Contender(name, spec) for name, spec in specs.items()]
    for c in contenders:
        c.ask("step")
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < 2 or time.perf_counter() < end:
        for c in contenders:
            c.times.append(c.ask("step"))
        rounds += 1
    found = {}
    for c in contenders:
        found[c.name] = {"seconds": min(c.times), "rounds": rounds, "resident": c.ask("resident")}
        if c.name == profile:
            found[c.name]["convolutions"] = c.ask("convolutions")
        found[c.name]["bytes"] = c.ask("bytes")
        c.end()
    return found


def matrix_peak(threads: int) -> float:
    """fp32 multiply-adds ×2 per second of a large matrix product, the machine's own best."""
    torch.set_num_threads(threads)
    a, best = torch.randn(2048, 2048), float("inf")
    for _ in range(12):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2 * 2048**3 / best


def steps(width: int, batch: int, threads: int, seconds: float, usb: bool) -> dict[str, Any]:
    base = {"network": "cnn13", "width": width, "batch": batch, "threads": threads}
    specs = {
        "straightforward mean-teacher": {"who": "straightforward", "method": "mean-teacher"},
        "our mean-teacher": {"who": "ours", "method": "mean-teacher"},
        "our mean-teacher, memory given back": {"who": "ours", "method": "mean-teacher", "give back": True},
        "straightforward ft-ccl": {"who": "straightforward", "method": "ft-ccl"},
        "our ft-ccl, paper's certainty": {"who": "ours", "method": "ft-ccl", "options": PAPER},
        "our ft-ccl": {"who": "ours", "method": "ft-ccl"},
        "our ft-ccl, tree:1x2x4": {"who": "ours", "method": "ft-ccl", "options": {"draws": "tree:1x2x4"}},
    }
    if usb:
        specs["USB mean-teacher"] = {"who": "USB", "method": "mean-teacher"}
    return race({n: {**base, **s} for n, s in specs.items()}, seconds, profile="our mean-teacher")


def wide_residual(batch: int, threads: int, seconds: float, usb: bool) -> dict[str, Any]:
    base = {"network": "wrn-28", "width": 32, "batch": batch, "threads": threads, "method": "fixmatch"}
    who = ["straightforward", "ours", *(["USB"] if usb else [])]
    return race({f"{'our' if w == 'ours' else w} fixmatch": {**base, "who": w} for w in who}, seconds)


def sweep(threads: int, seconds: float) -> dict[str, Any]:
    """Step time against T, n teachers and |B|, at width 16."""
    base = {"who": "ours", "network": "cnn13", "width": 16, "batch": 128, "threads": threads, "method": "ft-ccl"}
    specs: dict[str, dict[str, Any]] = {"mean-teacher": {**base, "method": "mean-teacher"}}
    for t in (2, 5, 10, 20):
        specs[f"independent:{t}"] = {**base, "options": {"metric": "pv", "draws": f"independent:{t}"}}
    for n in (1, 2, 3):
        specs[f"{n} teachers"] = {**base, "options": {"teachers": n}}
    for b in (64, 128, 256, 512):
        specs[f"|B| = {b}"] = {**base, "batch": b}
    return race(specs, seconds)


def show(title: str, found: dict[str, Any], reference: str) -> None:
    print(f"\n{title}")
    unit = found[reference]
    for name, v in found.items():
        print(
            f"  {name:36} {1000 * v['seconds']:9.1f} ms  {v['seconds'] / unit['seconds']:6.2f} ×   "
            f"step's tensors {v['bytes'] / 1e6:8.1f} MB   resident {v['resident'] / 1e9:5.2f} GB   n = {v['rounds']}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", default="128,32,16")
    parser.add_argument("--batches", default="128,512")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each network and batch, two rounds at least")
    parser.add_argument("--only", default="steps,fixmatch,sweep,predict")
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    args = parser.parse_args()
    parts = args.only.split(",")
    reason = usb_reason()
    print(f"USB: {reason or 'takes part'}")
    result: dict[str, Any] = {"threads": args.threads, "steps": {}}
    for width in map(int, args.widths.split(",")) if "steps" in parts else ():
        for batch in map(int, args.batches.split(",")):
            peak = matrix_peak(args.threads)
            found = steps(width, batch, args.threads, args.seconds, not reason)
            conv = found["our mean-teacher"]["convolutions"]
            share = conv["flops"] / conv["seconds"] / peak
            result["steps"][f"cnn13 width {width}, |B| {batch}"] = {"peak": peak, "convolutions": share, **found}
            show(f"CNN-13, width {width}, |B| = {batch}", found, "straightforward mean-teacher")
            print(f"  convolutions run at {share:.0%} of this machine's matrix peak, {peak / 1e9:.0f} GFLOP/s")
            args.out.write_text(json.dumps(result, indent=1))
    if "fixmatch" in parts:
        result["fixmatch"] = wide_residual(64, args.threads, args.seconds, not reason)
        show("FixMatch, WRN-28-2, |B| = 64", result["fixmatch"], "straightforward fixmatch")
    if "sweep" in parts:
        result["sweep"] = sweep(args.threads, args.seconds)
        show("FT-CCL, CNN-13 of width 16", result["sweep"], "mean-teacher")
    if "predict" in parts:
        from predicting import predicting

        result["predict"] = predicting(args.threads)
    args.out.write_text(json.dumps(result, indent=1))
    print(f"\n{args.out}")


def usb_reason() -> str | None:
    if find_spec("semilearn") is None:
        return "left out, it is not installed (benchmarks/usb.py says how)"
    import usb

    return usb.available()


if __name__ == "__main__":
    main()
