"""Random numbers by name: every stream is a pure function of (seed, purpose).

No generator is kept from step to step. So a run that was resumed in the middle of an epoch, a run without an observer,
and a run with another number of Monte-Carlo draws all have the same views and the same dropout. A checkpoint needs no
generator state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import torch

Purpose = str | int


def seed_of(*purpose: Purpose) -> int:
    """A seed for this purpose, the same on every machine (63 bits, of which torch's CPU generator uses 32)."""
    digest = blake2b(repr(purpose).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator(*purpose: Purpose, device: torch.device | str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed_of(*purpose))


def seed_global(*purpose: Purpose, device: torch.device | str = "cpu") -> None:
    """Seed the global generator, from which dropout and initialisation draw (they accept no other)."""
    device = torch.device(device)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(seed_of(*purpose))
    else:
        torch.default_generator.manual_seed(seed_of(*purpose))


@contextmanager
def untouched_generator() -> Iterator[None]:
    """Restore the state of the global generator afterwards."""
    state = torch.default_generator.get_state()
    try:
        yield
    finally:
        torch.default_generator.set_state(state)
