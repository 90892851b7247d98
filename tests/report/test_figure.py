"""The look of images and figures."""

from __future__ import annotations

import numpy as np

from certus.report.figure import canvas, name_points
from certus.report.thumbnails import as_rgb


def test_one_channel_is_ink_on_paper_and_colours_stay() -> None:
    grey = as_rgb(np.array([[[0], [255]]], dtype=np.uint8))
    assert grey[0, 0].tolist() == [255] * 3
    assert grey[0, 1].tolist() == [0] * 3
    colour = np.array([[[0, 100, 255]]], dtype=np.uint8)
    assert as_rgb(colour).tolist() == colour.tolist()


def test_names_of_points_that_lie_together_do_not_cover_each_other() -> None:
    _, (axes,) = canvas()
    points = [("automobile", 0.5, 50.0), ("truck", 0.5, 50.2), ("ship", 0.501, 50.1), ("frog", 0.0, 0.0)]
    axes.scatter([p[1] for p in points], [p[2] for p in points])
    name_points(axes, points)
    assert [text.get_text() for text in axes.texts] == [p[0] for p in points]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not [(i, j) for i in range(4) for j in range(i) if boxes[i].overlaps(boxes[j])]
