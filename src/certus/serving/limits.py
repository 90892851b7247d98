"""What one request may bring, how many pictures may wait, and how long."""

from __future__ import annotations

from dataclasses import dataclass

from certus.data.limits import PIXELS
from certus.errors import UsageError
from certus.methods.options import at_least
from certus.training.evaluation import BATCH

HELD = 8  # bodies of the largest size that are in memory at once


@dataclass(frozen=True)
class Limits:
    """The limits of a service. Each is refused with a reason if no service could keep it."""

    latency: float = 5.0  # milliseconds that a picture waits for others that are on their way
    max_batch: int = 64  # pictures that the model answers at once
    max_waiting: int = 256  # pictures that wait or are being answered
    max_pictures: int = 32  # of one request
    max_bytes: int = 20_000_000  # of one request
    max_pixels: int = 24_000_000  # of one picture: 6,000 × 4,000
    timeout: float = 30.0  # seconds from the first byte of a request to its answer

    def __post_init__(self) -> None:
        at_least(0, 10_000)("latency", self.latency)
        at_least(1, BATCH)("max_batch", self.max_batch)
        at_least(1, 1_000_000)("max_pictures", self.max_pictures)
        at_least(1, 1_000_000)("max_waiting", self.max_waiting)
        at_least(1, 1_000_000_000)("max_bytes", self.max_bytes)
        at_least(1, PIXELS)("max_pixels", self.max_pixels)
        at_least(0.1, 3600)("timeout", self.timeout)
        if self.max_waiting < self.max_pictures:
            raise UsageError(
                f"`max_waiting` is {self.max_waiting}, so a request of `max_pictures` {self.max_pictures} could never "
                "be answered: make it at least as large."
            )

    @property
    def max_held(self) -> int:
        """Bytes of all requests together."""
        return HELD * self.max_bytes
