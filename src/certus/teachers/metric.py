"""The metric in which neighbours are near: directions in which they differ count less.

Neighbours mostly have the same class, so how they differ does not tell classes apart. Linear discriminant analysis
shrinks the scatter within classes in this way; here neighbours take the place of labels, of which there are few.
"""

from __future__ import annotations

import torch
from scipy import sparse
from torch import Tensor


def scatter(x: Tensor, w: sparse.csr_array) -> Tensor:
    """S = Xᵀ(I − 𝒲)X = ½ Σ_ij W_ij u uᵀ, u = x_i/√d_i − x_j/√d_j (D, D)."""
    values = x.float().cpu().numpy()
    found = torch.from_numpy(values.T @ (values - w.astype(values.dtype) @ values)).double()
    return (found + found.T) / 2  # rounding must not make it asymmetric


def near(x: Tensor, w: sparse.csr_array) -> Tensor:
    """x (S/s̄ + I)^-½ (N, D), s̄ = tr S / D: the vectors x (N, D) in the metric of the graph 𝒲 of their neighbours."""
    s = scatter(x, w)
    mean = s.trace() / len(s)
    if not mean > 0:  # neighbours are equal
        return x
    values, vectors = torch.linalg.eigh(s / mean)
    return x @ (vectors * (values.clamp(min=0) + 1).rsqrt()).to(x)
