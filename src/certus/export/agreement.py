"""Does an exported file answer as the run does? Asked before the file is written.

Draws are compared under the same masks: the run's own networks, not fused and not shared between draws, are given the
masks of the graph, and their draws go through `Moments`, as always in certus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from certus.certainty.streaming import Moments
from certus.config import Config
from certus.data import load
from certus.data.fitting import padded, resized
from certus.errors import CertusError
from certus.export.graph import DRAWN, Graph
from certus.export.masks import Draws, with_masks
from certus.model import Model, Prediction
from certus.networks.modes import evaluating
from certus.randomness import generator
from certus.training.embedding import rooted

PICTURES = 100
TOLERANCE = 1e-4  # of probabilities
RANKS = 0.999  # Spearman's, of the uncertainty that the run ranks by
OTHER_SIZES = 10  # pictures that are asked about at another size
Run = Callable[[NDArray[np.generic], int], Mapping[str, NDArray[np.generic]]]  # inputs and seed -> outputs


@dataclass(frozen=True)
class Agreement:
    """How much the exported answers differ from those of certus."""

    pictures: int
    source: str
    probability: float  # largest difference
    labels: int  # that differ
    ranks: Mapping[str, float]  # Spearman's, under the same masks
    own_draws: float  # Spearman's of `metric` against certus with its own draws
    two_seeds: float  # that of certus against itself with another seed
    metric: str
    other_size: float | None  # largest difference of probabilities for pictures of another size

    def check(self) -> None:
        """Refuse a file that answers differently."""
        worst = max(self.probability, self.other_size or 0.0)
        if worst > TOLERANCE or self.labels:
            raise CertusError(
                f"The exported answers differ from those of certus by {worst:.2g} (at most {TOLERANCE:g} is accepted), "
                f"{self.labels} of {self.pictures} labels are others: nothing is written."
            )
        if (found := self.ranks[self.metric]) < RANKS:
            raise CertusError(
                f"The exported {self.metric} ranks the pictures differently from certus (Spearman {found:.4f}; "
                f"accepted: {RANKS:g}): nothing is written."
            )


def sample(model: Model, config: Config) -> tuple[Tensor, str]:
    """A hundred pictures as they are stored: of the run's data if they are at hand, else smooth noise."""
    try:
        data = load(config.data, config.data_dir, config.size, config.fit)
        part = data.test if len(data.test) else data.train
        order = torch.randperm(len(part), generator=generator(0, "export"))[:PICTURES]
        return part.images[order], "of the run's data"
    except (CertusError, OSError):
        random = generator(0, "export")
        if len(model.shape) == 1:
            drawn = torch.randn(PICTURES, *model.shape, generator=random)
            return drawn * model.std.flatten() + model.mean.flatten(), "of noise"
        coarse = torch.rand(PICTURES, model.shape[0], 4, 4, generator=random) * 255
        smooth = nn.functional.interpolate(coarse, size=model.shape[1:], mode="bicubic", align_corners=False)
        return smooth.clamp(0, 255).to(torch.uint8), "of noise"


def as_inputs(stored: Tensor) -> NDArray[np.generic]:
    """Stored pictures (N, C, H, W) as the graph takes them; vectors as they are."""
    if stored.dim() == 2:
        return stored.float().numpy()
    return stored.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).contiguous().to(torch.uint8).numpy()


def compare(run: Run, graph: Graph, model: Model, stored: Tensor, source: str, fit: str) -> Agreement:
    """Answers of the file against those of certus."""
    draws = graph.count
    given, own = run(as_inputs(stored), 0), model.predict(stored, draws)
    again = model.predict(stored, draws, seed=1)
    columns = {name: given["uncertainty"][:, i] for i, name in enumerate(graph.columns)}
    expected = {**own.uncertainty, **(masked_metrics(model, stored, draws) if draws else {})}
    metric = model.calibration.metric if model.calibration and model.calibration.metric in columns else own.metric
    return Agreement(
        pictures=len(stored),
        source=source,
        probability=apart(given["probabilities"], own.probabilities),
        labels=int((given["label"] != own.labels).sum()),
        ranks={name: spearman(values, expected[name]) for name, values in columns.items()},
        own_draws=spearman(columns[metric], own.uncertainty[metric]),
        two_seeds=spearman(again.uncertainty[metric], own.uncertainty[metric]),
        metric=metric,
        other_size=other_size(run, model, stored[:OTHER_SIZES], fit) if graph.pictures else None,
    )


@torch.no_grad()
def masked_metrics(model: Model, stored: Tensor, count: int, seed: int = 0) -> dict[str, NDArray[np.generic]]:
    """The metrics of certus, of whole passes through the networks as they were trained, with the graph's masks."""
    x = model.normalised(rooted(model.trunk(stored)) if model.trunk else stored)
    draws, moments = Draws(), Moments(len(x), len(model.classes))
    for number, net in enumerate(model.nets):
        masked = with_masks(deepcopy(net), draws)
        draws.seed, draws.count = torch.tensor(seed + number), count
        for t in range(count):
            view = x.flip(-1) if model.looks.mirror and t % 2 else x
            draws.only = t
            with evaluating(masked):
                moments.add(masked(view).softmax(1))
        draws.seed = draws.only = None
    return {name: getattr(moments, name).numpy() for name in DRAWN}


def other_size(run: Run, model: Model, stored: Tensor, fit: str) -> float | None:
    """Oblong pictures through Pillow and certus, and straight through the file."""
    try:
        from PIL import Image
    except ImportError:
        return None
    height, width = round(1.3 * model.shape[1]) + 1, 2 * model.shape[2] + 1
    large = [Image.fromarray(a).resize((width, height)) for a in as_inputs(stored)]
    small = np.stack([np.asarray(padded(resized(i, i.size, model.shape[1], fit), model.shape[1])) for i in large])
    pixels = torch.from_numpy(small).permute(0, 3, 1, 2)
    if model.shape[0] == 1:
        from certus.data.decode import as_channels

        pixels = torch.from_numpy(np.stack([as_channels(p, 1) for p in pixels.numpy()]))
    own: Prediction = model.predict(pixels, 0)
    return apart(run(np.stack([np.asarray(i) for i in large]), 0)["probabilities"], own.probabilities)


def apart(a: NDArray[np.generic], b: NDArray[np.generic]) -> float:
    return float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max())


def spearman(a: NDArray[np.generic], b: NDArray[np.generic]) -> float:
    """Of two lists of numbers; 1 where one of them does not vary, because then nothing is ranked."""
    from scipy.stats import spearmanr

    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return 1.0
    return float(spearmanr(a, b).statistic)
