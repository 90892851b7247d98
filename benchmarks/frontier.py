"""The frontier of certainty: how good are ranks, and what do they cost?

    python benchmarks/frontier.py --data-dir DATA --minutes 15 --out frontier.json

This trains Mean Teacher on CIFAR-10 and examines its teacher early, midway and late. On many unlabelled images, each
estimate of certainty is compared with 100 independent draws of the same metric (Spearman, overlap of the most certain
quarter), and with the noise floor: two estimates of T draws agree less with each other than either does with the 100.
It is also compared with the hidden labels: how well does it find the teacher's wrong answers (AUROC), and how accurate
are the most certain 12.5, 25 and 50 % (the paper's k at e = 8, 16 and 32)? The cost is in forwards of the network
beyond the teacher's answer. docs/performance.md has the results.
"""

from __future__ import annotations

import argparse
import json
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from certus.certainty.draws import Tree, parse
from certus.certainty.metrics import unconfidence
from certus.certainty.streaming import Moments, Summary, mix
from certus.config import resolve
from certus.core.schedules import Clock
from certus.core.step import Batch, Step
from certus.networks.inference import quick_stages
from certus.networks.stages import stages
from certus.training.build import build
from certus.training.planning import complete
from certus.training.run import Run

METRICS = ("pv", "ev", "pe", "mi")
PLANS = [
    *(f"independent:{t}" for t in (2, 3, 5, 10, 20)),
    *("tree:1x1x4", "tree:1x1x10", "tree:1x2x4", "tree:1x2x10", "tree:1x4x10", "tree:2x4x20", "tree:3x5x15"),
]
POINTS = {"early": 0.1, "midway": 0.5, "late": 1.0}
SHARES = (0.125, 0.25, 0.5)


def teachers(run: Run, listen: Any) -> dict[str, list[nn.Module]]:
    """Train; at each point the teacher and its two earlier selves, one pass over the unlabelled images apart."""
    wanted: dict[int, list[tuple[str, int]]] = {}
    for name, fraction in POINTS.items():
        last = max(3, round(fraction * run.config.steps)) - 1
        for back in (2, 1, 0):
            at = max(0, last - back * min(run.batches.per_epoch, last // 3))
            wanted.setdefault(at, []).append((name, back))
    found: dict[str, list[nn.Module]] = {name: [nn.Identity()] * 3 for name in POINTS}
    for number in range(run.config.steps):
        run.advance(number)
        for name, back in wanted.get(number, []):
            found[name][2 - back] = deepcopy(run.method.answers[0])
        if number % 100 == 0:
            listen(f"step {number}/{run.config.steps}")
    return found


def step_of(run: Run, places: Tensor, number: int) -> Step:
    batch = Batch(run.data.normalised(run.images[places]), run.labels[places], places)
    return Step(batch, Clock(number, run.config.steps, len(places)), run.views, seed=1)


def drawn(run: Run, net: nn.Module, places: Tensor, plan: str, number: int) -> Summary:
    """What this plan says of the images; another `number`, other noise."""
    parts = []
    for part in places.split(256):
        step = step_of(run, part, number)
        moments = Moments(len(part), len(run.data.classes))
        step.draw(net, "b", parse(plan), moments)
        parts.append(moments.summary())
    return Summary(*(torch.cat([getattr(p, f) for p in parts]) for f in Summary.__dataclass_fields__))


def quality(uncertainty: Tensor, reference: Tensor | None, right: Tensor) -> dict[str, float]:
    order = uncertainty.argsort(stable=True)
    row = {"auroc": float(roc_auc_score(~right.numpy(), uncertainty.numpy()))}
    for share in SHARES:
        row[f"accuracy of the most certain {share:.1%}"] = float(right[order[: int(share * len(order))]].float().mean())
    if reference is not None:
        row["spearman"] = float(spearmanr(uncertainty.numpy(), reference.numpy()).statistic)
        k = len(order) // 4
        first = set(reference.argsort(stable=True)[:k].tolist())
        row["overlap"] = len(first & set(order[:k].tolist())) / k
    return row


def seconds(job: Any, rounds: int = 5) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        job()
        best = min(best, time.perf_counter() - start)
    return best


def costs(run: Run, net: nn.Module) -> dict[str, dict[str, float]]:
    """Of each plan beyond the answer, in forwards by multiply-adds, and in time of the answer, |B| = 128."""
    places = run.split.unlabelled[:128]
    parts, shape = stages(net), run.data.shape
    quick_stages(net, run.data.normalised(run.images[places]))

    def job(plan: str | None) -> None:
        step = step_of(run, places, 0)
        step.answer(net, "b")
        if plan:
            step.draw(net, "b", parse(plan), Moments(len(places), len(run.data.classes)))

    alone = seconds(lambda: job(None))
    found = {}
    for text in PLANS:
        plan = parse(text)
        units = plan.cost(parts, shape)
        if isinstance(plan, Tree):  # its first trunk is the answer's
            units -= Tree((2, 2, 2)).cost(parts, shape) - Tree((1, 2, 2)).cost(parts, shape)
        found[text] = {"units": units, "time": seconds(lambda text=text: job(text)) / alone - 1}  # type: ignore[misc]
    return found


def look(run: Run, selves: list[nn.Module], images: int) -> list[dict[str, Any]]:
    places = run.split.unlabelled[torch.linspace(0, len(run.split.unlabelled) - 1, images).long()]
    truth, net = run.data.train.labels[places], selves[-1]
    clean = torch.cat([step_of(run, part, 0).answer(net, "b") for part in places.split(256)]).softmax(1)
    right = clean.argmax(1) == truth
    reference = drawn(run, net, places, "independent:100", 1)
    rows = [{"what": "clean answer", "metric": "confidence", **quality(unconfidence(clean), None, right)}]
    for text in PLANS:
        now = drawn(run, net, places, text, 2)
        again = drawn(run, net, places, text, 3)
        kept = now
        for i, earlier in enumerate(reversed(selves[:-1])):
            before = drawn(run, earlier, places, text, 4 + i)
            kept = mix(before, kept, torch.full((images,), (i + 1) / (i + 2)))  # equal weights of the visits
        for metric in METRICS:
            u, v, w = (getattr(s, metric) for s in (now, again, kept))
            floor = float(spearmanr(u.numpy(), v.numpy()).statistic)
            ref = getattr(reference, metric)
            rows.append({"what": text, "metric": metric, "floor": floor, **quality(u, ref, right)})
            rows.append({"what": f"{text}, 3 visits", "metric": metric, **quality(w, ref, right)})
    for metric in METRICS:
        u = getattr(reference, metric)
        rows.append({"what": "independent:100", "metric": metric, **quality(u, None, right)})
    for row in rows:
        row["accuracy"] = float(right.float().mean())
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--labels", type=int, default=4000)
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--weight", type=float, default=2.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("frontier.json"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    given = {
        "data": "cifar10",
        "data_dir": args.data_dir,
        "method": "mean-teacher",
        "labels": args.labels,
        "labelled_batch": 32,
        "unlabelled_batch": 96,
        "width": args.width,
        "dropout": 0.5,
        "threads": args.threads,
        "seed": args.seed,
        "options": {"weight": args.weight},
    }
    run = build(complete(resolve(given), minutes=args.minutes))
    found = teachers(run, lambda text: print(text, flush=True))
    result: dict[str, Any] = {"settings": given, "steps": run.config.steps, "points": {}}
    with torch.no_grad():
        for name, selves in found.items():
            result["points"][name] = look(run, selves, args.images)
            print(name, f"{result['points'][name][0]}", flush=True)
        result["costs"] = costs(run, found["late"][-1])
    args.out.write_text(json.dumps(result, indent=1))
    show(result)


def show(result: dict[str, Any]) -> None:
    for name, rows in result["points"].items():
        print(f"\n{name}: {100 * rows[0]['accuracy']:.1f} % of the teacher's answers are right")
        columns = "".join(f"{c:>7}" for c in ("units", "time", "rho", "floor", "top", "AUROC"))
        print(f"{'what':26} {'metric':9}{columns}  accuracy at 12.5, 25, 50 %")
        for row in sorted(rows, key=lambda r: -r["auroc"]):
            cost = result["costs"].get(row["what"].removesuffix(", 3 visits"), {"units": 0.0, "time": 0.0})
            taken = [row[f"accuracy of the most certain {s:.1%}"] for s in SHARES]
            print(
                f"{row['what']:26} {row['metric']:10} {cost['units']:6.2f} {cost['time']:6.2f} "
                f"{row.get('spearman', np.nan):6.3f} {row.get('floor', np.nan):6.3f} {row.get('overlap', np.nan):6.3f} "
                f"{row['auroc']:6.3f}  {'  '.join(f'{100 * a:5.1f}' for a in taken)}"
            )


if __name__ == "__main__":
    main()
