"""Ways to run a network: which randomness is on, and which statistics are used. Each restores the former state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd


def has_dropout(net: nn.Module) -> bool:
    """Whether Monte-Carlo draws of this network can differ."""
    return any(isinstance(m, _DropoutNd) and m.p > 0 for m in net.modules())


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards each module has its former mode again."""
    before = [(m, m.training) for m in net.modules()]
    net.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


@contextmanager
def dropout_only(net: nn.Module) -> Iterator[None]:
    """Dropout on, everything else as in evaluation: Monte-Carlo draws never change batch-norm statistics."""
    with evaluating(net):
        for module in net.modules():
            if isinstance(module, _DropoutNd):
                module.train()
        yield


@contextmanager
def frozen_statistics(net: nn.Module) -> Iterator[None]:
    """Batch norm uses the statistics of the batch, but its running statistics stay as they are."""
    norms = [m for m in net.modules() if isinstance(m, _BatchNorm)]
    before = [m.track_running_stats for m in norms]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm, track in zip(norms, before, strict=True):
            norm.track_running_stats = track
