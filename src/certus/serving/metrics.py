"""Counts and times of a service in the text format of Prometheus."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
PICTURES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
KIND = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """How many values are at most each bound, their sum and their number."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str) -> Iterator[str]:
        total = 0
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{"+Inf" if bound is None else f"{bound:g}"}"}} {total}'
        yield f"{name}_sum {self.sum:.9g}"
        yield f"{name}_count {total}"


class Metrics:
    def __init__(self) -> None:
        self.start = time.time()
        self.requests: Counter[tuple[str, int]] = Counter()  # by path and status
        self.seconds, self.batches = Histogram(SECONDS), Histogram(PICTURES)
        self.answered = self.unsure = self.unreadable = 0

    @property
    def pictures(self) -> int:
        return self.answered + self.unsure

    def text(self, waiting: int, stopping: bool) -> str:
        return "\n".join(self.lines(waiting, stopping)) + "\n"

    def lines(self, waiting: int, stopping: bool) -> Iterator[str]:
        yield from head("certus_requests_total", "counter", "Requests by path and status.")
        for (path, status), count in sorted(self.requests.items()):
            yield f'certus_requests_total{{path="{path}",status="{status}"}} {count}'
        yield from head("certus_pictures_total", "counter", "Pictures by outcome; not sure: the answer was withheld.")
        outcomes = {"answered": self.answered, "not sure": self.unsure, "unreadable": self.unreadable}
        for outcome, count in outcomes.items():
            yield f'certus_pictures_total{{outcome="{outcome}"}} {count}'
        yield from head("certus_predict_seconds", "histogram", "Time of a request to /predict, in seconds.")
        yield from self.seconds.lines("certus_predict_seconds")
        yield from head("certus_batch_pictures", "histogram", "Pictures that the model answered at once.")
        yield from self.batches.lines("certus_batch_pictures")
        gauges = {
            "certus_waiting_pictures": ("Pictures that wait or are being answered.", waiting),
            "certus_ready": ("1 while new requests are accepted.", int(not stopping)),
            "process_start_time_seconds": ("Start of the process, in seconds since 1970.", round(self.start, 3)),
            "process_resident_memory_bytes": ("Memory of the process.", resident_bytes()),
        }
        for name, (help, value) in gauges.items():
            if value is not None:
                yield from head(name, "gauge", help)
                yield f"{name} {value}"


def head(name: str, kind: str, help: str) -> tuple[str, str]:
    return f"# HELP {name} {help}", f"# TYPE {name} {kind}"


def resident_bytes() -> int | None:
    """None where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
