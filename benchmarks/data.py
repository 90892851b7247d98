"""How much of a step is views and batch assembly, and how fast are pictures decoded? Ratios within one run.

    CERTUS_DATA=… python benchmarks/data.py            interleaved, minima of several

1. batch assembly and the views of one FT-CCL step against the whole step (CNN-13 width 32, |B| = 512, T = 10);
2. decoding 2,000 JPEGs of 400×300, and opening their folder, against a plain loop of Pillow with threads;
3. peak memory of loading CIFAR-10 and building a run.

docs/performance.md has the results.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

from certus.config import resolve
from certus.data import pictures
from certus.data.decode import stream
from certus.training.build import build
from certus.training.planning import complete


def fastest(jobs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Each job's smallest time, the jobs taking turns."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def views_share() -> None:
    given = {"data": "cifar10", "method": "ft-ccl", "network": "cnn13", "width": 32, "steps": 1000}
    config = complete(resolve(given))
    torch.set_num_threads(config.threads)
    run = build(config)
    print(f"data and network built: peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")

    def inputs() -> None:
        step = run.step(500)
        step.view("a"), step.view("b")
        for t in range(10):
            run.views["weak"](step.batch.images, step.generator(f"view b draw {t}"))

    times = fastest({"views": inputs, "step": lambda: run.advance(500)}, rounds=3)
    print(
        f"views and batch assembly {1e3 * times['views']:.0f} ms of an FT-CCL step of {1e3 * times['step']:.0f} ms: "
        f"{100 * times['views'] / times['step']:.1f} %"
    )


def decoding() -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "photos"
        random = np.random.default_rng(0)
        for i in range(2000):
            folder = root / ("cat", "dog", "unlabeled")[min(i % 10, 2)]
            folder.mkdir(parents=True, exist_ok=True)
            small = random.integers(0, 255, (30, 40, 3), dtype=np.uint8)
            Image.fromarray(small).resize((400, 300)).save(folder / f"{i:05d}.jpg", quality=90)
        files = sorted(root.rglob("*.jpg"))

        def plain(path: Path, draft: bool = False) -> np.ndarray:
            with Image.open(path) as image:
                if draft:
                    image.draft("RGB", (64, 64))
                return np.asarray(ImageOps.fit(image.convert("RGB"), (64, 64)))

        def loop(draft: bool) -> None:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(partial(plain, draft=draft), files))

        def ours() -> None:
            with tempfile.TemporaryDirectory() as cache:
                os.environ["CERTUS_CACHE"] = cache
                pictures.__globals__["_opened"].clear()
                pictures(str(root), 64)

        def decode_alone() -> None:
            for _ in stream(files, 64, 3, 256):
                pass

        jobs = {"plain": partial(loop, False), "draft": partial(loop, True), "ours": decode_alone, "cached": ours}
        times = fastest(jobs, rounds=3)
        for name, what in (("ours", "decoding"), ("cached", "scanning, hashing, decoding and caching")):
            print(
                f"{what}: {2000 / times[name]:,.0f} pictures a second, {times['plain'] / times[name]:.2f} × a plain "
                f"loop of Pillow by threads, {times['draft'] / times[name]:.2f} × one that also uses JPEG's draft mode"
            )


if __name__ == "__main__":
    if "--pictures" not in sys.argv:
        views_share()
    decoding()
