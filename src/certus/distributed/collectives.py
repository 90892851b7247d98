"""What the processes of a group send to each other. All of them call these functions, in the same order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


def bounds(rows: int, rank: int, size: int) -> tuple[int, int]:
    """The rows of one process: consecutive, and as many as the others have, or one more or less."""
    return rows * rank // size, rows * (rank + 1) // size


def gathered_rows(part: Tensor, rows: int) -> Tensor:
    """(rows, …) from each process's `bounds`, in order."""
    size = dist.get_world_size()
    longest = -(-rows // size)
    sent = part.new_zeros(longest, *part.shape[1:])
    sent[: len(part)] = part
    found = sent.new_empty(size * longest, *sent.shape[1:])
    dist.all_gather_single(found, sent)
    if size * longest == rows:
        return found
    lengths = [stop - start for start, stop in (bounds(rows, rank, size) for rank in range(size))]
    return torch.cat([piece[:n] for piece, n in zip(found.split(longest), lengths, strict=True)])


def gathered_vectors(part: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    """The vector of each process; `lengths` are theirs, which all know."""
    longest = max(lengths)
    sent = part.new_zeros(longest)
    sent[: len(part)] = part
    found = sent.new_empty(len(lengths) * longest)
    dist.all_gather_single(found, sent)
    return [piece[:n] for piece, n in zip(found.split(longest), lengths, strict=True)]


def gathered(same_shape: Tensor) -> Tensor:
    """(n, …): the tensor of each process."""
    sent = same_shape.contiguous()
    found = sent.new_empty(dist.get_world_size() * sent.numel())
    dist.all_gather_single(found, sent.flatten())
    return found.view(-1, *sent.shape)


def summed(tensor: Tensor) -> Tensor:
    """The sum over the processes, the same bits on all of them."""
    total = tensor.contiguous()
    total = total.clone() if total is tensor else total
    dist.all_reduce(total)
    return total


def spread(tensor: Tensor) -> None:
    """Overwrite the tensor by that of rank 0."""
    sent = tensor.detach().contiguous()
    dist.broadcast(sent, 0)
    with torch.no_grad():
        tensor.copy_(sent)
