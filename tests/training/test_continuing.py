"""A run that goes on from another: its weights, its settings, its validation images, and the labels that came since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from builders import write_pictures

import certus
from certus import data
from certus.__main__ import main
from certus.config import Config, resolve, split_of
from certus.data import load
from certus.errors import UsageError
from certus.training.build import build
from certus.training.planning import complete
from certus.training.pretraining import go_on
from certus.training.run_folder import RunFolder

TINY: dict[str, Any] = {"steps": 2, "threads": 1, "width": 8, "labelled_batch": 6, "unlabelled_batch": 10}


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def photos(count: int = 12) -> Path:
    names = [f"{name}/{i}.png" for name in ("cat", "dog") for i in range(count)]
    return write_pictures(Path("photos"), *names, *(f"unlabeled/{i}.png" for i in range(6)))


def weights(run: Path | str) -> dict[str, torch.Tensor]:
    return certus.load(run).nets[0].state_dict()


def going_on(**settings: Any) -> certus.Model:
    data.forget()
    return certus.train(from_="old", **settings)


def old_run(**settings: Any) -> RunFolder:
    data.forget()
    certus.train(**{"data": "photos/", "network": "cnn13-small", "flip": False, **TINY, **settings}, out="old")
    return RunFolder(Path("old"))


def test_a_run_on_a_folder_goes_on_with_new_labels_and_the_same_validation_images() -> None:
    photos()
    old = old_run(validation=4)
    kept = old.load_split()
    (photos() / "labels.csv").write_text("file,label,folder\nunlabeled/1.png,cat,\nunlabeled/2.png,dog,\n")
    new = RunFolder(Path(going_on(out="new", learning_rate=0.0).folder or ""))
    assert new.load_split()["validation"] == kept["validation"]
    assert len(new.load_split()["labelled"]) == len(kept["labelled"]) + 2
    assert new.load_config().steps == old.load_config().steps
    before, after = weights("old"), weights("new")
    same = [torch.equal(before[name], after[name]) for name in before if "running" not in name and "num_" not in name]
    assert all(same), "with a learning rate of 0 nothing moves but statistics"
    assert Path("old", "result.json").exists()


def test_a_new_class_grows_the_head_and_the_others_keep_their_rows() -> None:
    photos()
    old_run(validation=4)
    (photos() / "labels.csv").write_text("file,label,folder\nunlabeled/1.png,bird,\nunlabeled/2.png,bird,\n")
    model = going_on(out="new", learning_rate=0.0)
    assert model.classes == ("bird", "cat", "dog")
    before, after = weights("old")["head.weight"], weights("new")["head.weight"]
    assert torch.equal(after[1:], before)


def test_the_head_follows_the_names_of_classes() -> None:
    net = torch.nn.Module()
    net.head = torch.nn.Linear(2, 3)
    weight = torch.tensor([[1.0, 1.0], [2.0, 2.0]])
    first = net.head.weight[1].clone()
    go_on(net, {"head.weight": weight, "head.bias": torch.tensor([1.0, 2.0])}, ("a", "b"), ("b", "new", "a"), "old")
    assert net.head.weight[0].tolist() == [2, 2]
    assert net.head.weight[2].tolist() == [1, 1]
    assert torch.equal(net.head.weight[1], first)
    assert net.head.bias[[0, 2]].tolist() == [2, 1]
    with pytest.raises(UsageError, match="another network"):
        go_on(net, {"head.weight": torch.zeros(2, 5)}, ("a", "b"), ("b", "new", "a"), "old")


def test_pictures_that_came_or_went_make_a_new_draw() -> None:
    photos()
    old_run(validation=4)
    write_pictures(Path("photos"), "cat/new.png")
    assert len(RunFolder(Path(going_on(out="new").folder or "")).load_split()["validation"]) == 4


def test_a_named_data_set_goes_on_with_labels_by_position() -> None:
    old = old_run(data="moons", network="mlp", labels=6, validation=10, method="mean-teacher")
    split, moons = old.load_split(), load("moons")
    free = next(i for i in range(len(moons.train)) if i not in {*split["labelled"], *split["validation"]})
    wrong = 1 - int(moons.train.labels[free])
    held_out, corrected = split["validation"][0], split["labelled"][0]
    other = 1 - int(moons.train.labels[corrected])
    rows = [f"{free},{moons.classes[wrong]}", f"{held_out},{moons.classes[0]}", f"{corrected},{moons.classes[other]}"]
    Path("old/labels.csv").write_text("file,label\n" + "\n".join(rows) + "\n")
    new = RunFolder(Path(going_on(out="new").folder or ""))
    record = new.load_split()
    assert record["labelled"] == sorted([*split["labelled"], free])
    assert record["validation"] == split["validation"]
    assert record["wrong labels"] == {str(free): wrong, str(corrected): other}
    run = build(new.load_config(), new)
    assert int(run.labels[free]) == wrong, "a person's label counts, not the data set's"
    assert int((run.labels >= 0).sum()) == len(split["labelled"]) + 1 == new.load_config().labels
    certus.train(from_="new", out="third")
    assert RunFolder(Path("third")).load_split()["wrong labels"] == record["wrong labels"], "they are not lost"


@pytest.mark.parametrize(
    ("rows", "words"),
    [("7000,0", "lists '7000' in line 2, but moons has the images 0 to"), ("1,cat", "no class of moons 'cat'")],
)
def test_a_table_that_does_not_fit_the_data_set_is_refused(rows: str, words: str) -> None:
    old_run(data="moons", network="mlp", labels=6, validation=10)
    Path("old/labels.csv").write_text(f"file,label\n{rows}\n")
    with pytest.raises(UsageError, match=words):
        going_on(out="new")


def test_an_interrupted_run_is_continued_to_the_same_result() -> None:
    """The split is the same when it is built again, and the weights come from the checkpoint."""
    old_run(data="moons", network="mlp", labels=6, validation=10)
    model = going_on(out="new")
    config = RunFolder(Path("new")).load_config()
    assert config.from_ == str(Path("old").resolve())
    assert torch.equal(split_of(config, load("moons")).validation, build(config).split.validation)
    assert model.result is not None


def test_what_cannot_go_on_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(*words: str) -> str:
        monkeypatch.setattr("sys.argv", ["certus", "train", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code
        return capsys.readouterr().err

    old = old_run(data="moons", network="mlp", labels=6, validation=10)
    assert "cannot go on with digits" in typed("--from", "old", "--data", "digits")
    assert "give only one of them" in typed("--from", "old", "--config", "old/config.toml")
    assert "another network than this one: use its --network and --width" in typed("--from", "old", "--width", "9")
    old.result.unlink()
    assert "old is not finished: train it to the end with --resume old" in typed("--from", "old")


def test_the_setting_changes_the_start() -> None:
    old_run(data="moons", network="mlp", labels=6, validation=10)
    plain = resolve({"data": "moons", "network": "mlp", "labels": 6, "validation": 10, **TINY})
    warm: Config = complete(resolve({"data": "moons", "network": "mlp", "labels": 6, **TINY, "from_": "old"}))
    first, second = (build(c).method.students[0].state_dict() for c in (complete(plain), warm))
    assert not all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(second["head.weight"], weights("old")["head.weight"])
