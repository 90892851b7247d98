"""Answers as the mean over each image and its mirror image, and that a result says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from builders import small_cnn

import certus
from certus.cli.main import main
from certus.config import resolve
from certus.errors import UsageError
from certus.training.build import build
from certus.training.evaluation import probabilities, uncertainties
from certus.training.planning import complete

IMAGES = torch.randint(0, 256, (7, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
TINY = {"data": "digits", "labels": 10, "width": 4, "labelled_batch": 10, "unlabelled_batch": 10, "threads": 1}


def scaled(images: torch.Tensor) -> torch.Tensor:
    return images.float() / 255 - 0.5


def test_an_answer_is_the_mean_of_both_sides() -> None:
    net = small_cnn()
    plain, turned = (probabilities(net, scaled, x) for x in (IMAGES, IMAGES.flip(-1)))
    both = probabilities(net, scaled, IMAGES, mirror=True, batch=3)
    assert torch.allclose(both, (plain + turned) / 2, atol=1e-6)
    assert not torch.allclose(both, plain, atol=1e-4)
    assert torch.allclose(both, probabilities(net, scaled, IMAGES.flip(-1), mirror=True), atol=1e-6)


def test_every_other_draw_sees_the_mirror_image() -> None:
    """Without dropout the draws differ by the side alone, and a symmetric image has two equal sides."""
    net = small_cnn(dropout=0.0)
    symmetric = (IMAGES + IMAGES.flip(-1)) // 2
    assert uncertainties([net], scaled, symmetric, 4, mirror=True)["pv"].max() < 1e-6
    assert uncertainties([net], scaled, IMAGES, 4, mirror=True)["pv"].min() > 1e-9
    assert uncertainties([net], scaled, IMAGES, 4)["pv"].max() < 1e-9


@pytest.mark.parametrize("mirror", [True, False])
def test_a_run_says_whether_it_mirrors_and_a_loaded_model_does_the_same(
    mirror: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for name, value in TINY.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    flag = "--mirror" if mirror else "--no-mirror"
    out = tmp_path / "run"
    assert main(["train", *words, flag, "--method", "supervised", "--steps", "2", "--out", str(out)]) == 0
    assert ("mirror image" in capsys.readouterr().out) == mirror
    model = certus.load(out)
    assert model.mirror == mirror
    assert model.result is not None
    assert model.result["mirror"] == mirror
    (net,) = model.nets
    expected = probabilities(net, model.normalised, IMAGES, mirror).numpy()
    assert (model.predict(IMAGES, draws=0).probabilities == expected).all()


def test_vectors_have_no_mirror_image() -> None:
    with pytest.raises(UsageError, match="cannot be shifted or mirrored"):
        build(complete(resolve({"data": "moons", "mirror": True, "steps": 1})))
