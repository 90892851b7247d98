"""Stop on a signal, after the current step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_signal(signals: Sequence[signal.Signals], impatient: bool = True) -> Iterator[threading.Event]:
    """The first of these signals stops after the current step, a second one at once.

    Not `impatient`: a second one is ignored, because torchrun passes on what the terminal has sent already.
    """
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def handle(*_: Any) -> None:
        if stopped.is_set() and impatient:
            raise KeyboardInterrupt
        stopped.set()

    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
