"""The fused copy of a network, for inference: batch norm folded away, channels_last, dropout kept for draws.

oneDNN's convolution with the activation inside and weights packed beforehand (`mkldnn._convolution_pointwise`, private)
gained only 1 to 5 % over a convolution and an activation in place. So the fused copy uses torch's public parts only.
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
from certus.networks.foreign import Foreign
from certus.networks.modes import evaluating
from certus.networks.references import refer


def fuse(net: nn.Module, quick: bool = False) -> Fused | None:
    """The fused copy, or None where `obstacle(net)` gives a reason against it.

    `quick` draws other dropout masks of the same distribution in less time (`QuickDropout`). Without it the copy draws
    the same masks as the network under the same seed.
    """
    return None if is_foreign(net) or obstacle(net) else Fused(net, quick)


def is_foreign(net: nn.Module) -> bool:
    """Whether it holds code of another package, which is left as it is: a copy could change what it does."""
    return any(isinstance(m, Foreign) for m in net.modules())


def obstacle(net: nn.Module) -> str | None:
    """Why a fused copy might answer differently from the network; None: there is no known reason."""
    for name, module in net.named_modules():
        where = f"{name or 'the network'} ({type(module).__name__})"
        if module._forward_hooks or module._forward_pre_hooks:
            return f"{where} has hooks, which the fused copy would not run"
        if is_parametrized(module) or isinstance(module, (nn.RNNBase, LazyModuleMixin)):
            return f"{where} stores its weights in a way that the fused copy cannot follow"
    try:
        deepcopy(net, tensors(net))
    except Exception as error:  # a user's module may hold anything
        return f"the network cannot be copied: {error}"
    return None


class Fused(nn.Module):
    """A quicker copy of a network for evaluation mode and for `dropout_only`; call `refresh` when its weights change.

    It has no parameters and an empty state dict. Tensors that are not folded are the network's own; `refresh` computes
    the others.
    """

    source: nn.Module

    def __init__(self, net: nn.Module, quick: bool = False) -> None:
        super().__init__()
        refer(self, source=net)
        self.enter = ChannelsLast()
        self.net = deepcopy(net, tensors(net))
        pairs = list(zip(self.net.modules(), net.modules(), strict=True))
        self._folds = fold(self.net, {id(own): original for own, original in pairs})
        folded = {id(f.linear) for f in self._folds}
        self._shared = [
            (own, original) for own, original in pairs if id(original) not in folded and has_tensors(original)
        ]
        for module in self.net.modules():
            module._buffers.update(module._parameters)
            module._parameters.clear()
            module._non_persistent_buffers_set.update(module._buffers)
        replace_dropout(self.net, QuickDropout if quick else nn.Dropout if uses_channels_last(net) else OrderedDropout)
        self.eval().refresh()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.enter(x))

    def train(self, mode: bool = True) -> Fused:  # noqa: ARG002
        """Always evaluation mode, because nothing here learns. `dropout_only` switches on the dropouts alone."""
        return super().train(False)

    def refresh(self) -> None:
        """Take over the network's current weights and statistics."""
        for own, original in self._shared:  # usually the same memory, unless the network changed its device
            for name, tensor in chain(original._parameters.items(), original._buffers.items()):
                own._buffers[name] = None if tensor is None else tensor.detach()
        renew(self._folds)

    @torch.no_grad()
    def difference(self, x: Tensor) -> float:
        """max |p_copy − p_network| over these inputs: the check for a network whose code we do not know."""
        net = self.source
        with evaluating(self), evaluating(net), torch.autocast(x.device.type, enabled=False):
            expected = net(x).softmax(1)
            return float((self(x).softmax(1) - expected).abs().max())


class ChannelsLast(nn.Module):
    """The first layer of a fused copy."""

    def forward(self, x: Tensor) -> Tensor:
        return to_channels_last(x)


def to_channels_last(x: Tensor) -> Tensor:
    """Images in channels_last memory format, in which convolutions are quick; other inputs stay as they are."""
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def replace_dropout(net: nn.Module, kind: type[nn.Dropout]) -> None:
    """Replace every plain dropout by one of this kind."""
    for parent in list(net.modules()):
        for name, child in parent._modules.items():
            if type(child) is nn.Dropout:
                parent._modules[name] = kind(child.p, child.inplace)


def tensors(net: nn.Module) -> dict[int, Tensor]:
    """The tensors that a copy shares with the network, in the form of `deepcopy`'s memo."""
    return {id(tensor): tensor for tensor in chain(net.parameters(), net.buffers())}


def has_tensors(module: nn.Module) -> bool:
    return bool(module._parameters or module._buffers)


def uses_channels_last(net: nn.Module) -> bool:
    """Whether the network computes in channels_last. On some CPUs this decides the order of dropout masks."""
    kernels = [p for p in net.parameters() if p.ndim == 4 and not p.is_contiguous()]
    return any(p.is_contiguous(memory_format=torch.channels_last) for p in kernels)
