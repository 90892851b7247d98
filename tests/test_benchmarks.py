"""The pure parts of benchmarks/minutes.py: which cells run in which order, what a stopped run leaves, HOG."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import minutes
import minutes_report
import numpy as np
import pytest
from hog import hog
from minutes_report import ARMS, COLUMNS, TIMELESS, USB, Cell
from resumable import append, read

ROW = ("svhn-1000", "engine ft-ccl", "3", 1, 12.5, 13.0, 70, 295.2, 812, "certus 0", '{"a":"b, c","d":1}')


def test_cells_that_are_run_first_are_complete_comparisons() -> None:
    found = minutes.cells(("a-1", "b-1"), ("engine pi", "label spreading"), ("10", "3"), seeds=2)
    assert [(c.seed, c.minutes, c.task, c.arm) for c in found[:6]] == [
        (0, "", "a-1", "label spreading"),
        (0, "", "b-1", "label spreading"),
        (0, "3", "a-1", "engine pi"),
        (0, "3", "b-1", "engine pi"),
        (0, "10", "a-1", "engine pi"),
        (0, "10", "b-1", "engine pi"),
    ]
    assert len(found) == len(set(found)) == 12
    assert {c.seed for c in found[6:]} == {1}


def test_every_arm_can_be_run_and_drawn() -> None:
    import arms

    assert set(arms.ARMS) == set(ARMS)
    assert set(minutes_report.LEVELS) == set(TIMELESS)
    assert {arm for arm in ARMS if arm.startswith("usb ")} == set(USB)
    timed = [arm for arm in ARMS if arm not in TIMELESS]
    looks = [tuple(minutes_report.look(arm).values()) for arm in timed]
    assert len(set(looks)) == len(timed)


@pytest.mark.parametrize("missing", [1, 5, 30, 50])
def test_a_finished_cell_is_known_again_and_one_that_was_cut_off_is_not(tmp_path: Path, missing: int) -> None:
    file = tmp_path / "new" / "runs.csv"
    assert read(file) == []
    append(file, COLUMNS, ROW)
    append(file, COLUMNS, (*ROW[:3], 2, *ROW[4:]))
    whole = file.read_text()
    assert whole.splitlines()[0] == ",".join(COLUMNS)
    file.write_text(whole[:-missing])
    (row,) = read(file)
    assert row == dict(zip(COLUMNS, map(str, ROW), strict=True))
    assert Cell.of(row) == Cell("svhn-1000", "engine ft-ccl", "3", 1)
    append(file, COLUMNS, (*ROW[:3], 2, *ROW[4:]))
    assert file.read_text() == whole


def naive_hog(image: Any) -> list[float]:
    """One image (C, H, W), pixel by pixel."""
    channels, height, width = image.shape
    rows, columns = height // 4, width // 4
    cells = [[[0.0] * 9 for _ in range(columns)] for _ in range(rows)]
    for y in range(4 * rows):
        for x in range(4 * columns):
            steepest, angle = -1.0, 0.0
            for c in range(channels):
                down = float(image[c, y + 1, x]) - float(image[c, y - 1, x]) if 0 < y < height - 1 else 0.0
                right = float(image[c, y, x + 1]) - float(image[c, y, x - 1]) if 0 < x < width - 1 else 0.0
                if math.hypot(down, right) > steepest:
                    steepest, angle = math.hypot(down, right), math.atan2(down, right) % math.pi
            low = math.floor(angle / math.pi * 9)
            share = angle / math.pi * 9 - low
            cells[y // 4][x // 4][low % 9] += (1 - share) * steepest
            cells[y // 4][x // 4][(low + 1) % 9] += share * steepest
    found: list[float] = []
    for i in range(rows - 1):
        for j in range(columns - 1):
            block = [v for a, b in ((0, 0), (0, 1), (1, 0), (1, 1)) for v in cells[i + a][j + b]]
            block = [min(v / math.sqrt(sum(w * w for w in block) + 1e-10), 0.2) for v in block]
            found += [v / math.sqrt(sum(w * w for w in block) + 1e-10) for v in block]
    return found


def test_hog_is_what_a_loop_over_pixels_finds() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 13, 16), dtype=np.uint8)
    found = hog(images)
    assert found.shape == (2, 2 * 3 * 4 * 9)
    for image, descriptor in zip(images, found, strict=True):
        np.testing.assert_allclose(descriptor, naive_hog(image), atol=1e-5)
    assert not hog(np.full((1, 1, 8, 8), 7, np.uint8)).any()
