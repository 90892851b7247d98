"""A network pass that several processes share: each passes its rows of the batch, and all of them get all answers.

    images (B, …) ── own ──> rows of this process ── network ──> their answers ── joined ──> (B, …)

So every process computes the whole loss of the whole batch, and no method knows that there are others. The gradient of
a weight is the mean of the processes' gradients, as DistributedDataParallel takes it: `joined` multiplies the gradient
of a row by their number n, because the row adds to the weights of one process only. What leaves a pass in another way
is made whole at once: the gradient of the images is gathered and divided by n, the gradient of weights that are given
to a pass is averaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from certus.distributed.collectives import bounds, gathered_rows, summed
from certus.distributed.noise import WholeBatch

Weights = Mapping[str, Tensor]


class Collector(Protocol):
    """Takes draws one by one."""

    def add(self, p: Tensor) -> None: ...


class Rows(Protocol):
    """Which rows of a batch this process passes through a network."""

    def own(self, images: Tensor) -> Tensor:
        """The rows of this process."""
        ...

    def joined(self, answers: Tensor, rows: int) -> Tensor:
        """The answers of all processes, to `rows` images in all."""
        ...

    def batch(self, rows: int) -> AbstractContextManager[Any]:
        """While this process passes its part of `rows` images: dropout and batch statistics are those of the whole."""
        ...

    def stage(self, net: nn.Module, rows: int) -> nn.Module:
        """A part of a network, with `batch` around it."""
        ...

    def weights(self, given: Weights) -> Weights:
        """Weights that a pass has in place of the network's."""
        ...

    def collecting(self, draws: Collector, rows: int) -> AbstractContextManager[Collector]:
        """Collects draws (B, C) of this process's rows; afterwards `draws` have those of all rows, in order."""
        ...


@dataclass(frozen=True)
class Whole:
    """All rows: there is no other process."""

    def own(self, images: Tensor) -> Tensor:
        return images

    def joined(self, answers: Tensor, rows: int) -> Tensor:  # noqa: ARG002
        return answers

    def batch(self, rows: int) -> AbstractContextManager[Any]:  # noqa: ARG002
        return nullcontext()

    def stage(self, net: nn.Module, rows: int) -> nn.Module:  # noqa: ARG002
        return net

    def weights(self, given: Weights) -> Weights:
        return given

    def collecting(self, draws: Collector, rows: int) -> AbstractContextManager[Collector]:  # noqa: ARG002
        return nullcontext(draws)


WHOLE = Whole()


@dataclass(frozen=True)
class Shared:
    """The rows of one of several processes. A batch of fewer rows than processes is passed whole by each of them."""

    rank: int
    size: int

    def own(self, images: Tensor) -> Tensor:
        if len(images) < self.size:
            return images
        if images.requires_grad and torch.is_grad_enabled():
            return Own.apply(images, self.rank, self.size)
        start, stop = bounds(len(images), self.rank, self.size)
        return images[start:stop]

    def joined(self, answers: Tensor, rows: int) -> Tensor:
        if rows < self.size:
            return answers
        return Joined.apply(answers, rows, self.rank, self.size)

    def batch(self, rows: int) -> AbstractContextManager[Any]:
        return nullcontext() if rows < self.size else WholeBatch(*bounds(rows, self.rank, self.size), rows)

    def stage(self, net: nn.Module, rows: int) -> nn.Module:
        return Stage(net, self, rows)

    @contextmanager
    def collecting(self, draws: Collector, rows: int) -> Iterator[Collector]:
        mine = Drawn()
        yield mine
        if mine.draws:  # all of them in one message
            for draw in self.joined(torch.stack(mine.draws, 1), rows).unbind(1):
                draws.add(draw)

    def weights(self, given: Weights) -> Weights:
        return dict(zip(given, Averaged.apply(*given.values()), strict=True)) if torch.is_grad_enabled() else given


class Stage(nn.Module):
    """A part of a network that sees the rows of one process as it would in the whole batch."""

    def __init__(self, net: nn.Module, shared: Shared, rows: int) -> None:
        super().__init__()
        self.net, self.shared, self.rows = net, shared, rows

    def forward(self, x: Tensor) -> Tensor:
        with self.shared.batch(self.rows):
            return self.net(x)


class Drawn:
    """The draws of one process, as they come."""

    def __init__(self) -> None:
        self.draws: list[Tensor] = []

    def add(self, p: Tensor) -> None:
        self.draws.append(p)


class Own(Function):
    """Rows of the images; backward, the gradient of all images."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, rank: int, size: int) -> Tensor:
        ctx.rows, ctx.size = len(images), size
        start, stop = bounds(len(images), rank, size)
        return images[start:stop].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gathered_rows(gradient, ctx.rows) / ctx.size, None, None


class Joined(Function):
    """All answers; backward, n times the gradient of this process's rows."""

    @staticmethod
    def forward(ctx: Any, answers: Tensor, rows: int, rank: int, size: int) -> Tensor:
        ctx.bounds, ctx.size = bounds(rows, rank, size), size
        return gathered_rows(answers, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        start, stop = ctx.bounds
        return gradient[start:stop] * ctx.size, None, None, None


class Averaged(Function):
    """Weights as they are; backward, the mean of the processes' gradients, in one message."""

    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG004
        return tuple(w.view_as(w) for w in weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG004
        flat = summed(torch.cat([g.reshape(-1) for g in gradients])) / dist.get_world_size()
        parts = flat.split([g.numel() for g in gradients])
        return tuple(part.view(g.shape) for part, g in zip(parts, gradients, strict=True))
