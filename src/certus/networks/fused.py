"""An inference twin of a network: batch norm folded away, channels_last, its dropout left for Monte-Carlo draws.

oneDNN's convolution with the activation inside and weights packed beforehand (`mkldnn._convolution_pointwise`, private)
gained only 1 to 5 % over a convolution and an activation in place, so the twin is made of torch's public parts.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.parametrize import is_parametrized

from certus.networks.dropout import OrderedDropout, QuickDropout
from certus.networks.folding import fold, renew
from certus.networks.modes import evaluating
from certus.networks.references import refer


def fuse(net: nn.Module, quick: bool = False) -> Fused | None:
    """The twin, or None where `obstacle(net)` says why not.

    `quick` draws other dropout masks of the same distribution in less time (`QuickDropout`); without it the twin's
    draws are the network's own under the same seed.
    """
    return None if obstacle(net) else Fused(net, quick)


def obstacle(net: nn.Module) -> str | None:
    """Why a copy that is changed inside could not be trusted to answer as the network does, if so."""
    for name, module in net.named_modules():
        where = f"{name or 'the network'} ({type(module).__name__})"
        if module._forward_hooks or module._forward_pre_hooks:
            return f"{where} has hooks, which do not know the twin"
        if is_parametrized(module) or isinstance(module, (nn.RNNBase, LazyModuleMixin)):
            return f"{where} holds its weights in a way that the twin cannot follow"
    try:
        deepcopy(net, tensors(net))
    except Exception as error:  # a user's own module may hold anything
        return f"the network cannot be copied: {error}"
    return None


class Fused(nn.Module):
    """The network in evaluation mode, or under `dropout_only`, in less time; `refresh` when its weights have moved.

    It owns no parameters and saves nothing: what is not folded is the network's own memory, the rest is made again.
    """

    source: nn.Module

    def __init__(self, net: nn.Module, quick: bool = False) -> None:
        super().__init__()
        refer(self, source=net)
        self.enter = ChannelsLast()
        self.net = deepcopy(net, tensors(net))
        pairs = list(zip(self.net.modules(), net.modules(), strict=True))
        self._folds = fold(self.net, {id(mine): theirs for mine, theirs in pairs})
        folded = {id(f.linear) for f in self._folds}
        self._shared = [(mine, theirs) for mine, theirs in pairs if id(theirs) not in folded and holds(theirs)]
        for module in self.net.modules():
            module._buffers.update(module._parameters)
            module._parameters.clear()
            module._non_persistent_buffers_set.update(module._buffers)
        redrop(self.net, QuickDropout if quick else nn.Dropout if channels_last(net) else OrderedDropout)
        self.eval().refresh()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.enter(x))

    def train(self, mode: bool = True) -> Fused:  # noqa: ARG002
        """Nothing here learns: evaluation mode, always. `dropout_only` switches on the dropouts alone."""
        return super().train(False)

    def refresh(self) -> None:
        """Take over the network's present weights and statistics."""
        for mine, theirs in self._shared:  # the same memory still, unless the network was moved
            for name, tensor in chain(theirs._parameters.items(), theirs._buffers.items()):
                mine._buffers[name] = None if tensor is None else tensor.detach()
        renew(self._folds)

    @torch.no_grad()
    def difference(self, x: Tensor) -> float:
        """max |p_twin − p_network| over these inputs: the check for a network whose code we do not know."""
        net = self.source
        with evaluating(self), evaluating(net):
            own = net(x).softmax(1)
            return float((self(x).softmax(1) - own).abs().max())


class ChannelsLast(nn.Module):
    """Pictures with their channels side by side in memory, everything else as it is."""

    def forward(self, x: Tensor) -> Tensor:
        return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def redrop(net: nn.Module, kind: type[nn.Dropout]) -> None:
    """Every plain dropout becomes one of this kind."""
    for parent in list(net.modules()):
        for name, child in parent._modules.items():
            if type(child) is nn.Dropout:
                parent._modules[name] = kind(child.p, child.inplace)


def tensors(net: nn.Module) -> dict[int, Tensor]:
    """What a copy shares with the network, as `deepcopy` wants to be told."""
    return {id(tensor): tensor for tensor in chain(net.parameters(), net.buffers())}


def holds(module: nn.Module) -> bool:
    return bool(module._parameters or module._buffers)


def channels_last(net: nn.Module) -> bool:
    """Whether the network itself computes in channels_last, which on some CPUs decides the order of dropout masks."""
    pictures = [p for p in net.parameters() if p.ndim == 4 and not p.is_contiguous()]
    return any(p.is_contiguous(memory_format=torch.channels_last) for p in pictures)
