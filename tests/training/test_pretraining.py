from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest
import torch
from torch.nn import functional as F

from certus.cli.main import run
from certus.config import resolve
from certus.errors import UsageError
from certus.methods.rotation import PredictRotation
from certus.model import load
from certus.training.build import build
from certus.training.planning import complete
from certus.training.run_folder import RunFolder

TINY = "--data digits --network cnn13-small --width 2 --unlabelled-batch 100 --threads 1 --steps 3".split()
SAME = {"network": "cnn13-small", "width": 2}  # as in TINY


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained") / "run"
    assert run(["pretrain", *TINY, "--out", str(folder)]) == 0
    return folder


def test_the_term_is_the_cross_entropy_of_the_four_turns() -> None:
    config = complete(resolve({"method": "rotation", "width": 2, "dropout": 0.0, "steps": 2, "noise": 0.0}))
    rotating = build(config)
    step = rotating.step(0)
    student = rotating.method.students[0].eval()
    x = step.batch.images
    expected = torch.stack(
        [F.cross_entropy(student(torch.rot90(x, k, (2, 3))), torch.full((len(x),), k)) for k in range(4)]
    ).mean()
    assert PredictRotation(student, "a")(step).item() == pytest.approx(expected.item(), rel=1e-5)
    assert student(x).shape[1] == 4


def test_it_sees_every_image_and_no_label() -> None:
    rotating = build(complete(resolve({"method": "rotation", "width": 2, "validation": 0, "steps": 1})))
    places = torch.cat([rotating.batches(i, "everything") for i in range(rotating.batches.per_epoch + 1)])
    assert set(places.tolist()) == set(range(len(rotating.data.train)))


def test_students_start_from_its_trunk_with_heads_of_their_own(pretrained: Path) -> None:
    given = {**SAME, "steps": 1, "init": str(pretrained), "options": {"teachers": 2}}
    plain, started = (build(complete(resolve(g))) for g in (given | {"init": ""}, given))
    assert started.config.init == str(pretrained)
    one, two = (dict(net.state_dict()) for net in started.method.students)
    before = dict(plain.method.students[0].state_dict())
    for name in one:
        if name.startswith("head."):
            assert torch.equal(one[name], before[name])
            assert not torch.equal(one[name], two[name])
        else:
            assert torch.equal(one[name], two[name])
    assert any(not torch.equal(one[name], before[name]) for name in one if not name.startswith("head."))


def test_each_student_of_a_circle_may_have_a_run_of_its_own(pretrained: Path, tmp_path: Path) -> None:
    assert run(["pretrain", *TINY, "--seed", "1", "--out", str(tmp_path / "other")]) == 0
    given = {**SAME, "steps": 1, "init": f"{pretrained},{tmp_path / 'other'}", "options": {"teachers": 2}}
    one, two = build(complete(resolve(given))).method.students
    assert not torch.equal(one.trunk[0][0].weight, two.trunk[0][0].weight)


def test_another_network_is_refused(pretrained: Path) -> None:
    with pytest.raises(UsageError, match="another network"):
        build(complete(resolve({**SAME, "width": 3, "steps": 1, "init": str(pretrained)})))


def test_a_pretraining_run_has_no_answers(pretrained: Path) -> None:
    assert RunFolder(pretrained).load_result()["test_error"] is None
    with pytest.raises(UsageError, match="pretraining run"):
        load(pretrained)


@pytest.mark.parametrize("seed", range(3))
def test_it_learns_to_tell_the_turns_of_images_it_has_not_seen(seed: int) -> None:
    """Digits, five epochs: 83 to 89 % over six seeds, of which chance is 25 %."""
    rotating = build(complete(resolve({"method": "rotation", "validation": 0, "seed": seed, "threads": 1}), epochs=5))
    for number in range(rotating.config.steps):
        rotating.advance(number)
    student, x = rotating.method.students[0].eval(), rotating.data.normalised(rotating.data.test.images)
    with torch.no_grad():
        right = [(student(x.rot90(k, (2, 3))).argmax(1) == k).float().mean().item() for k in range(4)]
    assert min(right) > 0.4
    assert fmean(right) > 0.65
