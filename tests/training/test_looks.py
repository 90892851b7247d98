"""Answers as the mean over copies of each image, mirrored or shifted, and that a result says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from builders import small_cnn
from hypothesis import given
from hypothesis import strategies as st

import certus
from certus.cli.main import main
from certus.config import resolve
from certus.errors import UsageError
from certus.training.build import build
from certus.training.evaluation import probabilities, uncertainties
from certus.training.planning import complete
from certus.views.looks import Looks, moved

IMAGES = torch.randint(0, 256, (7, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
TINY = {"data": "digits", "labels": 10, "width": 4, "labelled_batch": 10, "unlabelled_batch": 10, "threads": 1}
MIRROR = Looks(mirror=True)


def scaled(images: torch.Tensor) -> torch.Tensor:
    return images.float() / 255 - 0.5


def reflected(i: int, size: int) -> int:
    """The pixel that is seen beyond the border, which itself is not repeated."""
    return -i if i < 0 else 2 * (size - 1) - i if i >= size else i


@given(st.integers(2, 6), st.integers(2, 6), st.integers(-3, 3))
def test_a_shifted_copy_is_read_pixel_by_pixel(height: int, width: int, by: int) -> None:
    by = max(-min(height, width) + 1, min(by, min(height, width) - 1))
    x = torch.arange(2.0 * 3 * height * width).view(2, 3, height, width)
    seen = moved(x, by)
    for row in range(height):
        for column in range(width):
            expected = x[..., reflected(row - by, height), reflected(column - by, width)]
            assert torch.equal(seen[..., row, column], expected)


@pytest.mark.parametrize(("looks", "count"), [(Looks(), 1), (MIRROR, 2), (Looks(nudge=1), 3), (Looks(True, 2), 6)])
def test_an_answer_is_the_mean_over_all_looks(looks: Looks, count: int) -> None:
    net = small_cnn()
    copies = [IMAGES, *([IMAGES.flip(-1)] if looks.mirror else [])]
    copies += [moved(x.float(), by).byte() for by in (looks.nudge, -looks.nudge) if by for x in copies]
    assert len(copies) == len(looks(IMAGES.float())) == count
    each = [probabilities(net, scaled, x) for x in copies]
    found = probabilities(net, scaled, IMAGES, looks, batch=3)
    assert torch.allclose(found, torch.stack(each).mean(0), atol=1e-6)
    assert count == 1 or not torch.allclose(found, each[0], atol=1e-4)


def test_mirrored_images_have_the_same_answer() -> None:
    net = small_cnn()
    answers = [probabilities(net, scaled, x, MIRROR) for x in (IMAGES, IMAGES.flip(-1))]
    assert torch.allclose(*answers, atol=1e-6)


def test_every_other_draw_sees_the_mirror_image() -> None:
    """Without dropout the draws differ by the side alone, and a symmetric image has two equal sides."""
    net = small_cnn(dropout=0.0)
    symmetric = (IMAGES + IMAGES.flip(-1)) // 2
    assert uncertainties([net], scaled, symmetric, 4, looks=MIRROR)["pv"].max() < 1e-6
    assert uncertainties([net], scaled, IMAGES, 4, looks=MIRROR)["pv"].min() > 1e-9
    assert uncertainties([net], scaled, IMAGES, 4, looks=Looks(nudge=1))["pv"].max() < 1e-9


@pytest.mark.parametrize(
    ("looks", "flags", "words"),
    [
        (Looks(), "--no-mirror --nudge 0", ""),
        (MIRROR, "--mirror --nudge 0", "mean over each image and its mirror image"),
        (Looks(nudge=2), "--no-mirror --nudge 2", "mean over each image and shifted copies"),
        (Looks(True, 1), "--mirror --nudge 1", "mean over each image, its mirror image and shifted copies"),
    ],
)
def test_a_run_says_how_it_looks_and_a_loaded_model_does_the_same(
    looks: Looks, flags: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word for name, value in TINY.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    out = tmp_path / "run"
    assert main(["train", *given, *flags.split(), "--method", "supervised", "--steps", "2", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert str(looks) == words
    assert words in shown
    assert ("mean over" in shown) == bool(words)
    model = certus.load(out)
    assert model.looks == looks
    assert model.result is not None
    assert (model.result["mirror"], model.result["nudge"]) == (looks.mirror, looks.nudge)
    (net,) = model.nets
    expected = probabilities(net, model.normalised, IMAGES, looks).numpy()
    assert (model.predict(IMAGES, draws=0).probabilities == expected).all()


@pytest.mark.parametrize("given", [{"mirror": True}, {"nudge": 1}])
def test_vectors_have_no_other_side(given: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="cannot be shifted or mirrored"):
        build(complete(resolve({"data": "moons", "steps": 1, **given})))
