from __future__ import annotations

import torch

from certus.config import resolve
from certus.training.build import build
from certus.training.planning import complete


def test_the_strong_view_of_images_is_changed_much_and_of_vectors_noisier() -> None:
    images = build(complete(resolve({"data": "digits", "width": 2, "steps": 1})))
    step = images.step(0)
    weak, strong = step.view("a"), step.view("a", "strong")
    assert weak.shape == strong.shape
    changed = (weak - strong).abs().amax((1, 2, 3)) > 0.01
    assert changed.float().mean() > 0.9
    assert torch.equal(strong, images.step(0).view("a", "strong"))
    vectors = build(complete(resolve({"data": "moons", "steps": 1}))).step(0)
    moved = [(vectors.view("a", kind) - vectors.batch.images).std() for kind in ("weak", "strong")]
    assert moved[1] > 1.5 * moved[0]


def test_the_wrong_labels_of_a_noisy_run_are_written_down(tmp_path) -> None:  # type: ignore[no-untyped-def]
    import json

    from certus.training.run_folder import RunFolder

    run = build(complete(resolve({"data": "digits", "labels": 100, "label_noise": 0.5, "steps": 1, "width": 2})))
    RunFolder(tmp_path / "run").create(run)
    wrong = json.loads((tmp_path / "run" / "split.json").read_text())["wrong labels"]
    assert 30 <= len(wrong) <= 50  # half are replaced, a tenth of these by the right label
    for place, label in wrong.items():
        assert run.labels[int(place)] == label != run.data.train.labels[int(place)]


def test_supervised_sees_only_labelled_images() -> None:
    run = build(complete(resolve({"data": "digits", "method": "supervised", "width": 2, "steps": 1})))
    assert (run.step(0).batch.labels >= 0).all()
    given = {"data": "digits", "method": "mean-teacher", "width": 2, "steps": 1, "warm_up": 0.0, "labelled_batch": 32}
    labels = build(complete(resolve(given))).step(0).batch.labels
    assert (labels[:32] >= 0).all()
    assert (labels[32:] == -1).all()
