"""What ties the images of a batch together inside a network, dropout and batch norm, when one process has some of them.

A process draws the dropout of the whole batch, which is named by its seed, and takes its rows of it. Other random
numbers inside a network are refused, because they would differ from those of one process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from certus.distributed.batch_norm import batch_norm
from certus.errors import UsageError
from certus.networks.dropout import ordered_dropout, quick_dropout

Masking = Callable[..., Tensor]
MASKS = frozenset({F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, quick_dropout, ordered_dropout})
RANDOM = frozenset(
    {
        *(torch.rand, torch.randn, torch.randint, torch.randperm, torch.rand_like, torch.randn_like, torch.bernoulli),
        *(torch.normal, torch.multinomial, Tensor.bernoulli, Tensor.bernoulli_, Tensor.uniform_, Tensor.normal_),
        *(Tensor.random_, F.alpha_dropout, F.feature_alpha_dropout, F.gumbel_softmax),
    }
)


class WholeBatch(TorchFunctionMode):
    """Within it, networks see the rows `start` to `stop` of a batch of `rows` images as they would in the whole."""

    def __init__(self, start: int, stop: int, rows: int) -> None:
        super().__init__()
        self.start, self.stop, self.rows = start, stop, rows

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in MASKS:
            return self.masked(func, *args, **kwargs)
        if func is F.batch_norm:
            return batch_norm(*args, **kwargs)
        attention = func is F.scaled_dot_product_attention and kwargs.get("dropout_p")
        if func in RANDOM or attention or (func is F.rrelu and kwargs.get("training")):
            raise UsageError(
                f"The network draws random numbers by {func.__name__}, which several processes cannot share: train it "
                "by one process."
            )
        return func(*args, **kwargs)

    def masked(self, func: Masking, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        """Dropout with this process's rows of the mask of the whole batch."""
        if not training or p == 0:
            return func(x, p, training, inplace)
        ones = x.new_ones(self.rows, *x.shape[1:])
        if x.ndim == 4 and not x.is_contiguous():  # the order of the random numbers is that of memory
            ones = ones.contiguous(memory_format=torch.channels_last)
        mask = func(ones, p, True, True)[self.start : self.stop]
        return x.mul_(mask) if inplace else x * mask
