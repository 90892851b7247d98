"""Label propagation on a graph of nearest neighbours: pure functions of features and labels.

W joins every image and its k nearest neighbours, 𝒲 = D^-½ W D^-½, and Z = (I − α𝒲)⁻¹ Y. Features are compared by
A_ij = ⟨v_i, v_j⟩^γ (cosine) and W = A + Aᵀ; vectors as they are given by exp(−‖x_i − x_j‖²/σ_iσ_j), where σ_i is the
distance of x_i to its k-th neighbour, so that the graph fits sparse and dense regions (Zelnik-Manor & Perona 2004).
"""

from __future__ import annotations

from math import log

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import cg
from torch import Tensor
from torch.nn import functional as F
from torch.special import entr

CHUNK = 1024  # rows of similarities in memory at a time


def graph(features: Tensor, k: int = 50, gamma: float = 3.0) -> sparse.csr_array:
    """𝒲 (N, N), symmetric, no loops: normalised similarities of every image and its k nearest by cosine."""
    v = F.normalize(features.float(), dim=1)
    n, k = len(v), min(k, len(v) - 1)
    neighbours, similarities = [], []
    for start in range(0, n, CHUNK):
        rows = v[start : start + CHUNK] @ v.T  # (chunk, N)
        rows[
            torch.arange(len(rows)), torch.arange(start, start + len(rows))
        ] = -torch.inf  # no image is its own neighbour
        top = rows.topk(k, dim=1)
        neighbours.append(top.indices.cpu())
        similarities.append(top.values.clamp(min=0).pow(gamma).cpu())
    one_way = matrix(torch.cat(neighbours), torch.cat(similarities))
    return normalised(one_way + one_way.T)


def local_graph(vectors: Tensor, k: int = 10) -> sparse.csr_array:
    """𝒲 (N, N), symmetric, no loops: every vector and its k nearest, at a scale that is local."""
    x = vectors.double().cpu()
    n, k = len(x), min(k, len(x) - 1)
    found = []
    for start in range(0, n, CHUNK):
        rows = torch.cdist(x[start : start + CHUNK], x)  # (chunk, N)
        rows[torch.arange(len(rows)), torch.arange(start, start + len(rows))] = torch.inf
        found.append(rows.topk(k, dim=1, largest=False))
    distances, neighbours = torch.cat([f.values for f in found]), torch.cat([f.indices for f in found])
    sigma = distances[:, -1].clamp(min=1e-12)
    one_way = matrix(neighbours, (-distances.square() / (sigma[:, None] * sigma[neighbours])).exp())
    return normalised(one_way.maximum(one_way.T))


def matrix(neighbours: Tensor, values: Tensor) -> sparse.csr_array:
    """(N, N) from the columns (N, k) and values (N, k) of each row."""
    n, k = neighbours.shape
    columns, entries = neighbours.flatten().numpy(), values.flatten().double().numpy()
    return sparse.csr_array((entries, columns, np.arange(0, n * k + 1, k)), shape=(n, n))


def normalised(w: sparse.csr_array) -> sparse.csr_array:
    """D^-½ W D^-½."""
    degree = np.asarray(w.sum(axis=1)).ravel()
    scale = sparse.diags_array(1.0 / np.sqrt(np.where(degree > 0, degree, 1.0)))
    return sparse.csr_array(scale @ w @ scale)


def diffuse(
    w: sparse.csr_array,
    y: NDArray[np.float64],
    alpha: float = 0.99,
    damping: NDArray[np.float64] | None = None,
    iterations: int = 20,
) -> NDArray[np.float64]:
    """Z = (I − α𝒲C)⁻¹ Y by conjugate gradient, C = diag(damping): node j passes on the share c_j of its value.

    𝒲C is not symmetric, but with u = C^½ Z the system (I − αC^½𝒲C^½) u = C^½ Y is, and Z = Y + α𝒲C^½ u.
    """
    root = np.sqrt(np.ones(len(y)) if damping is None else damping)
    half = sparse.diags_array(root)
    system = sparse.eye_array(len(y)) - alpha * (half @ w @ half)
    u = np.stack([cg(system, root * column, rtol=1e-6, maxiter=iterations)[0] for column in y.T], axis=1)
    return y + alpha * (w @ (root[:, None] * u))


def label_matrix(labels: Tensor, classes: int) -> NDArray[np.float64]:
    """Y (N, C): 1/n_c at the n_c labelled images of class c, 0 elsewhere; −1 is unlabelled."""
    known = F.one_hot(labels.clamp(min=0), classes).double() * (labels >= 0)[:, None]
    return (known / known.sum(0).clamp(min=1)).numpy()


def by_share(z: NDArray[np.float64], labels: Tensor) -> NDArray[np.float64]:
    """Z with the mass of each class in proportion to its number of labels (Zhu, Ghahramani & Lafferty 2003)."""
    known = labels[labels >= 0]
    count = torch.bincount(known, minlength=z.shape[1]).double().numpy()
    return z * (count / np.maximum(z.sum(0), 1e-300))


def shares(z: Tensor) -> Tensor:
    """ẑ (N, C): of what has arrived at each image; every class alike where nothing has."""
    z = z.clamp(min=0)
    total = z.sum(1, keepdim=True)
    return torch.where(total > 0, z / total.clamp(min=1e-300), 1 / z.shape[1])


def pseudo_labels(z: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each image's class (N,), its certainty ω_i = 1 − H(ẑ_i)/log C (N,), and the class weights ζ_c (C,).

    ω is divided by its maximum. A labelled image keeps its label and has ω = 1. ζ_c = (N/C)/(images of class c).
    """
    n, classes = z.shape
    z = z.clamp(min=0)
    share = z / z.sum(1, keepdim=True).clamp(min=1e-300)
    weight = 1 - entr(share).sum(1) / log(classes)
    weight = torch.where(z.sum(1) > 0, weight, 0.0).clamp(min=0)  # no label has reached it
    weight = weight / weight.max().clamp(min=1e-12)
    known = labels >= 0
    guess = torch.where(known, labels, share.argmax(1))
    count = F.one_hot(guess, classes).sum(0)
    return guess, torch.where(known, 1.0, weight).float(), n / classes / count.clamp(min=1)
