"""Random numbers by name: every stream is a pure function of (seed, what it is for).

Nothing is drawn from a generator that lives from step to step. So a run resumed in mid-epoch, a run with an observer
switched off, and a run with another number of Monte-Carlo draws all meet the same views and the same dropout, and a
checkpoint needs no generator's state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import torch

Purpose = str | int


def seed_of(*purpose: Purpose) -> int:
    """A seed for this purpose, the same on every machine (63 bits, of which torch's CPU generator takes 32)."""
    digest = blake2b(repr(purpose).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator(*purpose: Purpose, device: torch.device | str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed_of(*purpose))


def seed_global(*purpose: Purpose, device: torch.device | str = "cpu") -> None:
    """Seed the generator that dropout and initialisation draw from (they cannot be handed one of their own)."""
    device = torch.device(device)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(seed_of(*purpose))
    else:
        torch.default_generator.manual_seed(seed_of(*purpose))


@contextmanager
def untouched_generator() -> Iterator[None]:
    """Leave the caller's global random numbers as they were."""
    state = torch.default_generator.get_state()
    try:
        yield
    finally:
        torch.default_generator.set_state(state)
