"""Memory of a training process: what a step needs at its peak, and what glibc keeps between steps."""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from certus.core.method import total
from certus.training.run import Run

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
LARGE = 1 << 30


def keep_freed_memory() -> None:
    """Ask glibc to keep freed blocks: the next step needs the same memory again.

    Fetching it anew took 12 % of a training step (docs/performance.md). Without glibc nothing happens.
    """
    ask_glibc("mallopt", M_MMAP_THRESHOLD, LARGE)
    ask_glibc("mallopt", M_TRIM_THRESHOLD, LARGE)


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep freed memory until the end, then return it, so that a worker does not hold the peak of its largest run."""
    keep_freed_memory()
    try:
        yield
    finally:
        ask_glibc("malloc_trim", 0)


def ask_glibc(name: str, *words: int) -> None:
    library: Any = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    if function := getattr(library, name, None):
        function(*words)


class Alive(TorchDispatchMode):
    """Bytes of the tensors that were made since it was entered and are still alive, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {id(t.untyped_storage()) for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if id(storage) not in given and id(storage) not in self._known:
                    self._add(storage)
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)

        def gone() -> None:
            self._known.discard(key)
            self.now -= size

        weakref.finalize(storage, gone)


def step_bytes(run: Run, number: int) -> int:
    """Bytes of the number-th step: networks, memories, momentum, and the peak of the step's own tensors.

    Gradients are thrown away, but batch-norm statistics move: use a run that has finished.
    """
    run.optimiser.zero_grad(set_to_none=True)
    with Alive() as alive:
        total(run.method.losses(run.step(number))).backward()
    run.optimiser.zero_grad(set_to_none=True)
    trained = [p for net in run.method.students for p in net.parameters()]
    return size(run.method.state.state_dict().values()) + size(trained) + alive.peak


def size(tensors: Iterable[Tensor]) -> int:
    return sum(t.nbytes for t in tensors)
