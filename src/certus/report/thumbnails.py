"""The test images that a run was surest of and wrong about, and those that it was least sure of."""

from __future__ import annotations

import base64
import io
from html import escape

import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imsave

from certus.data import Dataset, load
from certus.errors import CertusError
from certus.report.figure import WIDTH, ReportFigure, slug
from certus.report.runs import Arm, RunRecord
from certus.report.statistics import Array, certain_mistakes, least_certain

COUNT = 16


def test_images(run: RunRecord) -> Dataset | str:
    """The data set that a run was tested on, or why its images cannot be shown."""
    config = run.config
    try:
        data = load(config.data, config.data_dir, config.size)
    except (CertusError, OSError) as e:
        return f"The test images are left out, because {config.data} cannot be loaded here any more: {e}"
    if len(data.shape) != 3:
        return f"{config.data} holds vectors, of which there are no images to show."
    said = run.said["labels"]
    if len(data.test) != len(said) or not bool((data.test.labels == said).all()):
        return f"The test images are left out, because those of {config.data} are not the ones this run was asked."
    return data


def thumbnails(arm: Arm) -> tuple[list[ReportFigure], list[str]]:
    """Both rows of images, of the arm's first finished seed; or a sentence on why there are none."""
    if not arm.answering:
        return [], []
    run = arm.answering[0]
    data = test_images(run)
    if isinstance(data, str):
        return [], [data]
    said, u = run.said, run.said[run.metric]
    mistakes = certain_mistakes(said["probabilities"], said["labels"], u, COUNT)
    kind = "PE of ten draws" if run.metric == "pe" else "confidence"
    how = f"Answer ✓, or answer ✗ truth. Seed {run.config.seed}, ranked by {kind}."
    drawn = []
    if mistakes:
        why = f"Wrong, and sure of it: a wrong label in the test set, or what the network has learnt falsely. {how}"
        drawn.append(sheet(arm, run, data, mistakes, "The most certain mistakes", why))
    why = f"Where it would ask a person first: many should be hard to read, and many are wrong. {how}"
    return [*drawn, sheet(arm, run, data, least_certain(u, COUNT), "The least certain images", why)], []


def sheet(arm: Arm, run: RunRecord, data: Dataset, places: list[int], title: str, caption: str) -> ReportFigure:
    said, u = run.said, run.said[run.metric]
    rows, cells = [], []
    figure = Figure(figsize=(WIDTH, 0.95 * -(-len(places) // 8) + 0.1), layout="constrained")
    for i, place in enumerate(places):
        p, label = said["probabilities"][place], int(said["labels"][place])
        best = int(p.argmax())
        answer, truth = data.classes[best], data.classes[label]
        rows.append((place, answer, truth, float(p[best]), float(u[place])))
        image = data.test.images[place].permute(1, 2, 0).numpy()
        axes = figure.add_subplot(-(-len(places) // 8), 8, i + 1)
        axes.imshow(as_rgb(image))
        axes.set_axis_off()
        axes.set_title(answer if best == label else f"{answer} ({truth})", fontsize=7)
        word = f"{answer} ✓" if best == label else f"{answer} ✗ {truth}"
        text = f"test image {place}: answered {answer} with {p[best]:.0%}, is {truth}"
        cells.append(
            f'<li class="{"right" if best == label else "wrong"}"><img src="{uri(as_rgb(image))}" '
            f'alt="{escape(text)}" title="{escape(text)}"><span>{escape(word)}</span></li>'
        )
    return ReportFigure(
        f"{slug(arm.name)}-{slug(title)}",
        title,
        caption,
        ("test image", "answered", "is", "probability", run.metric),
        rows,
        figure,
        f'<ul class="images">{"".join(cells)}</ul>',
    )


def as_rgb(image: Array) -> Array:
    """(H, W, 3) uint8, one channel as ink on paper, whatever its range."""
    x = image.astype(np.float64)
    top = 255.0 if image.dtype == np.uint8 and x.max() > 16 else max(1e-9, x.max())
    x = (x / top).clip(0, 1)
    rgb = 1 - np.repeat(x, 3, axis=2) if x.shape[2] == 1 else x
    return (255 * rgb).astype(np.uint8)


def uri(image: Array) -> str:
    file = io.BytesIO()
    imsave(file, image, format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
