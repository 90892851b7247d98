"""The processes that train one model: what they share, agree on and are told by rank 0, which alone writes and prints.

`ALONE` is the team of one process. It does nothing but call what it is given.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from certus.distributed.collectives import gathered, gathered_vectors, spread
from certus.distributed.rows import WHOLE, Rows, Shared
from certus.errors import CertusError, Told

PATIENCE = timedelta(days=7)  # for what rank 0 does alone; torchrun ends all if it fails
DIMENSIONS = 6  # of a result, at most
Item = TypeVar("Item")
Plain = TypeVar("Plain")


class Store(Protocol):
    """Texts by name, which all processes see: torchrun has it."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def wait(self, keys: list[str], timeout: timedelta) -> None: ...
    def add(self, key: str, amount: int) -> int: ...


class Lost(CertusError):
    """Another process of the team has ended."""


class Team(Protocol):
    """One process of those that train a model."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def rows(self) -> Rows: ...

    @property
    def leads(self) -> bool:
        """Whether this process writes and prints."""
        ...

    def threads(self, wanted: int) -> int:
        """How many this process uses."""
        ...

    def told(self, make: Callable[[], str]) -> str:
        """What rank 0 makes, alone."""
        ...

    def told_bytes(self, make: Callable[[], bytes]) -> bytes:
        """The same for much."""
        ...

    def first(self) -> AbstractContextManager[None]:
        """Rank 0 goes first, so that the others find what it has cached."""
        ...

    def agreed(self, value: float) -> float:
        """The value that rank 0 has."""
        ...

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Of each flag, whether a process has set it."""
        ...

    def each(self, work: Callable[[Item], Tensor], items: Sequence[Item]) -> list[Tensor]:
        """The results of `work`, all for everybody; each process does some of them."""
        ...

    def collected(self, plain: Plain) -> list[Plain]:
        """What every process has, in the order of the ranks: lists, dictionaries, texts and numbers."""
        ...

    def same(self, tensors: Mapping[str, Tensor]) -> None:
        """Give everybody what rank 0 has."""
        ...

    def check_equal(self, tensors: Mapping[str, Tensor], when: str) -> None:
        """Refuse to go on if a tensor is not the same to the bit everywhere."""
        ...

    def guarded(self) -> AbstractContextManager[None]:
        """Within it, a process that is lost is an error with a sentence."""
        ...


@dataclass(frozen=True)
class Alone:
    """One process."""

    rank = 0
    size = 1
    leads = True
    rows: Rows = WHOLE

    def threads(self, wanted: int) -> int:
        return wanted

    def told(self, make: Callable[[], str]) -> str:
        return make()

    def told_bytes(self, make: Callable[[], bytes]) -> bytes:
        return make()

    def first(self) -> AbstractContextManager[None]:
        return nullcontext()

    def agreed(self, value: float) -> float:
        return value

    def any(self, *flags: bool) -> tuple[bool, ...]:
        return flags

    def each(self, work: Callable[[Item], Tensor], items: Sequence[Item]) -> list[Tensor]:
        return [work(item) for item in items]

    def collected(self, plain: Plain) -> list[Plain]:
        return [plain]

    def same(self, tensors: Mapping[str, Tensor]) -> None:
        pass

    def check_equal(self, tensors: Mapping[str, Tensor], when: str) -> None:
        pass

    def guarded(self) -> AbstractContextManager[None]:
        return nullcontext()


ALONE = Alone()


@dataclass(frozen=True)
class Processes:
    """One of several processes, which torchrun has started. Texts go through its store, tensors through the group."""

    rank: int
    size: int
    store: Store
    rows: Rows
    numbers: Iterator[int] = field(default_factory=count)  # names for messages, the same everywhere

    @classmethod
    def of(cls, rank: int, size: int, store: Store) -> Processes:
        return cls(rank, size, store, Shared(rank, size))

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def threads(self, wanted: int) -> int:
        """As many as torchrun has decided, if it has."""
        given = os.environ.get("OMP_NUM_THREADS", "")
        return min(wanted, int(given)) if given.isdecimal() and int(given) else wanted

    def told(self, make: Callable[[], str]) -> str:
        key = f"told {next(self.numbers)}"
        if not self.leads:
            self.store.wait([key], PATIENCE)
            message = json.loads(self.store.get(key))
            if "failed" in message:
                raise Told(message["failed"])
            return str(message["text"])
        try:
            text = make()
        except CertusError as e:
            self.store.set(key, json.dumps({"failed": e.exit_code}))
            raise
        self.store.set(key, json.dumps({"text": text}))
        return text

    def told_bytes(self, make: Callable[[], bytes]) -> bytes:
        made = b""

        def length() -> str:
            nonlocal made
            made = make()
            return str(len(made))

        n = int(self.told(length))
        buffer = torch.frombuffer(bytearray(made or bytes(n)), dtype=torch.uint8) if n else torch.empty(0)
        if n:
            dist.broadcast(buffer, 0)
        return bytes(buffer.numpy().data) if n else b""

    @contextmanager
    def first(self) -> Iterator[None]:
        key = f"first {next(self.numbers)}"
        if not self.leads:
            self.store.wait([key], PATIENCE)
        yield
        if self.leads:
            self.store.set(key, "done")

    def agreed(self, value: float) -> float:
        known = torch.tensor([value], dtype=torch.float64)
        dist.broadcast(known, 0)
        return float(known)

    def any(self, *flags: bool) -> tuple[bool, ...]:
        known = torch.tensor(flags, dtype=torch.int32)
        dist.all_reduce(known, dist.ReduceOp.MAX)
        return tuple(bool(flag) for flag in known)

    def each(self, work: Callable[[Item], Tensor], items: Sequence[Item]) -> list[Tensor]:
        shares = shared_out([item.numel() if isinstance(item, Tensor) else 1 for item in items], self.size)
        mine = {i: work(items[i]) for i in shares[self.rank]}
        shapes = self._shapes(mine, shares)
        known = [t.reshape(-1) for t in mine.values()] or [torch.empty(0, device=device_of(items))]
        lengths = [sum(shapes[i].numel() for i in share) for share in shares]
        results: dict[int, Tensor] = {}
        for share, vector in zip(shares, gathered_vectors(torch.cat(known), lengths), strict=True):
            parts = vector.split([shapes[i].numel() for i in share])
            results |= {i: part.view(shapes[i]) for i, part in zip(share, parts, strict=True)}
        return [results[i] for i in range(len(items))]

    def _shapes(self, mine: Mapping[int, Tensor], shares: Sequence[Sequence[int]]) -> dict[int, torch.Size]:
        """Of every result."""
        table = torch.full((max(map(len, shares)), DIMENSIONS), -1)
        for line, result in zip(table, mine.values(), strict=False):
            line[: result.ndim] = torch.tensor(result.shape)
        tables = gathered(table)
        return {
            i: torch.Size(n for n in line.tolist() if n >= 0)
            for share, lines in zip(shares, tables, strict=True)
            for i, line in zip(share, lines, strict=False)
        }

    def collected(self, plain: Plain) -> list[Plain]:
        data = torch.frombuffer(bytearray(json.dumps(plain).encode()), dtype=torch.uint8)
        lengths = gathered(torch.tensor([len(data)])).flatten().tolist()
        return [json.loads(bytes(part.numpy().data)) for part in gathered_vectors(data, lengths)]

    def same(self, tensors: Mapping[str, Tensor]) -> None:
        for name in sorted(tensors):
            spread(tensors[name])

    def check_equal(self, tensors: Mapping[str, Tensor], when: str) -> None:
        names = sorted(tensors)  # a checkpoint that was read has another order in every process
        sums = gathered(torch.stack([bit_sum(tensors[name]) for name in names]))  # (n, tensors)
        unlike = (sums != sums[0]).nonzero()
        if len(unlike):
            rank, i = unlike[0].tolist()
            raise CertusError(
                f"The processes no longer have the same weights {when}: `{names[i]}` of process {rank} is not "
                "that of process 0. The checkpoint before it is kept: use machines of one kind."
            )

    @contextmanager
    def guarded(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as e:
            if is_loss(e):
                raise Lost("Another process of this run has ended, so all of them have stopped.") from e
            raise


def is_loss(error: RuntimeError) -> bool:
    """Whether this is how torch reports that another process cannot be reached."""
    words = ("gloo", "Connection closed", "Connection reset", "Broken pipe", "NCCL")
    return isinstance(error, dist.DistError) or any(word in str(error) for word in words)


def shared_out(costs: Sequence[int], size: int) -> list[list[int]]:
    """The numbers of the items that each process does: the largest first, each to the one that has least to do."""
    shares: list[list[int]] = [[] for _ in range(size)]
    load = [0] * size
    for i in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        least = load.index(min(load))
        shares[least].append(i)
        load[least] += costs[i]
    return shares


def device_of(items: Sequence[object]) -> torch.device:
    """Where results are: beside matrices; of other items they come back to the processor."""
    return items[0].device if items and isinstance(items[0], Tensor) else torch.device("cpu")


def bit_sum(tensor: Tensor) -> Tensor:
    """The sum of a tensor's bits, read as whole numbers: differs wherever one number differs."""
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.detach().contiguous().reshape(-1).view(kind).sum(dtype=torch.int64).cpu()
