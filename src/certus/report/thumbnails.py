"""The most certain mistakes of a run, and the test images that it is least certain of."""

from __future__ import annotations

import base64
import io
from html import escape

from matplotlib.figure import Figure
from matplotlib.image import imsave

from certus.data import Dataset, load
from certus.errors import CertusError
from certus.report.figure import WIDTH, ReportFigure, slug
from certus.report.measures import certain_mistakes, least_certain
from certus.report.pixels import as_rgb
from certus.report.runs import Arm, RunRecord
from certus.report.statistics import Array
from certus.text import printable

COUNT = 16


def test_images(run: RunRecord) -> Dataset | str:
    """The data set that a run was tested on, or why its images cannot be shown."""
    config = run.config
    try:
        data = load(config.data, config.data_dir, config.size, config.fit)
    except (CertusError, OSError) as e:
        return f"The test images are not shown, because {config.data} cannot be loaded: {e}"
    if len(data.shape) != 3:
        return f"{config.data} holds vectors, which cannot be shown as images."
    labels = run.answers["labels"]
    if len(data.test) != len(labels) or not bool((data.test.labels == labels).all()):
        return f"The test images are not shown, because {config.data} has changed since the run."
    return data


def thumbnails(arm: Arm) -> tuple[list[ReportFigure], list[str]]:
    """Both sheets of images, of the arm's first finished seed; or a sentence on why there are none."""
    if not arm.answering:
        return [], []
    run = arm.answering[0]
    data = test_images(run)
    if isinstance(data, str):
        return [], [data]
    answers, u = run.answers, run.answers[run.metric]
    mistakes = certain_mistakes(answers["probabilities"], answers["labels"], u, COUNT)
    metric = "PE of ten draws" if run.metric == "pe" else run.metric
    key = f"Answer ✓, or answer ✗ true class. Seed {run.config.seed}, ranked by {metric}."
    drawn = []
    if mistakes:
        caption = f"Wrong with a high certainty: a wrong label in the test set, or a systematic mistake. {key}"
        drawn.append(sheet(arm, run, data, mistakes, "The most certain mistakes", caption))
    caption = f"A person should check these first: many are hard to recognise, and many are wrong. {key}"
    return [*drawn, sheet(arm, run, data, least_certain(u, COUNT), "The least certain images", caption)], []


def sheet(arm: Arm, run: RunRecord, data: Dataset, indices: list[int], title: str, caption: str) -> ReportFigure:
    answers, u = run.answers, run.answers[run.metric]
    rows, cells = [], []
    figure = Figure(figsize=(WIDTH, 0.95 * -(-len(indices) // 8) + 0.1), layout="constrained")
    for i, index in enumerate(indices):
        p, label = answers["probabilities"][index], int(answers["labels"][index])
        best = int(p.argmax())
        answer, truth = printable(data.classes[best]), printable(data.classes[label])
        rows.append((index, answer, truth, float(p[best]), float(u[index])))
        image = data.test.images[index].permute(1, 2, 0).numpy()
        axes = figure.add_subplot(-(-len(indices) // 8), 8, i + 1)
        axes.imshow(as_rgb(image))
        axes.set_axis_off()
        axes.set_title(answer if best == label else f"{answer} ({truth})", fontsize=7)
        word = f"{answer} ✓" if best == label else f"{answer} ✗ {truth}"
        text = f"test image {index}: answered {answer} with {p[best]:.0%}, is {truth}"
        cells.append(
            f'<li class="{"right" if best == label else "wrong"}"><img src="{uri(as_rgb(image))}" '
            f'alt="{escape(text)}" title="{escape(text)}"><span>{escape(word)}</span></li>'
        )
    return ReportFigure(
        f"{slug(arm.name)}-{slug(title)}",
        title,
        caption,
        ("test image", "answered", "true class", "probability", run.metric),
        rows,
        figure,
        f'<ul class="images">{"".join(cells)}</ul>',
    )


def uri(image: Array) -> str:
    file = io.BytesIO()
    imsave(file, image, format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
