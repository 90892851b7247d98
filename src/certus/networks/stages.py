"""Cut a network at its dropouts, so that the part before a dropout is computed once: net = s_K ∘ … ∘ s_1 ∘ s_0.

A network can be cut if its forward is a chain of modules, such as `head(trunk(x))`; `torch.fx` finds this out.
"""

from __future__ import annotations

from itertools import pairwise

import torch.fx
from torch import nn

from certus.networks.modes import has_dropout


def stages(net: nn.Module) -> list[nn.Module]:
    """The network as a list of modules: the first has no dropout, each later one begins with one dropout site.

    A site is a dropout, or a module that contains one and is no chain (a residual block). The parts are the network's
    own modules: they share its weights and its modes. A network that is no chain is one single stage.
    """
    parts = links(net)
    if parts == [net]:
        return parts
    cut: list[list[nn.Module]] = [[]]
    for part in parts:
        if has_dropout(part):
            cut.append([])
        cut[-1].append(part)
    return [nn.Sequential(*group) for group in cut]  # an empty one is the identity


def links(net: nn.Module) -> list[nn.Module]:
    """The modules that make up the network, in order; a module without dropout stays whole."""
    called = chain(net) if has_dropout(net) else None
    return [net] if called is None else [link for module in called for link in links(module)]


def chain(net: nn.Module) -> list[nn.Module] | None:
    """The modules that `net.forward` calls, if all it does is to call them one after the other on its one input."""
    if net._forward_hooks or net._forward_pre_hooks:
        return None
    if type(net).forward is nn.Sequential.forward:
        return [module for module in net._modules.values() if module is not None]  # with repetitions
    try:
        nodes = list(Shallow().trace(net).nodes)
    except Exception:  # code that cannot be traced (it branches on values, for example) is not known to be a chain
        return None
    called = nodes[1:-1]  # between the input and the output
    if not called or any(node.op != "call_module" or node.kwargs for node in called):
        return None
    if any(node.args != (before,) for before, node in pairwise(nodes)):
        return None
    return [net.get_submodule(str(node.target)) for node in called]


class Shallow(torch.fx.Tracer):
    """Trace this forward only, not those of the modules that it calls."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        return True
