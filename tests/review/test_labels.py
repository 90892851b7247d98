from __future__ import annotations

import csv
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from builders import write_pictures
from hypothesis import given, settings
from hypothesis import strategies as st

from certus.data.listing import scan
from certus.errors import CertusError, UsageError
from certus.review import labels as module
from certus.review.labels import ACCEPTED, CHECKED, REFUSED, SKIPPED, Conflict, Labels, Wish
from certus.review.table import Place, check_class, place_in

FOUR = ("cat/a.png", "dog/b.png", "unlabeled/c.png", "unlabeled/d.png")


def in_train(root: Path) -> dict[str, str | None]:
    """What `certus train` would learn."""
    return {path.as_posix(): label for path, label in scan(root).train}


def opened(root: Path, shown: str = "run") -> Labels:
    return Labels(place_in(root), shown)


def cells(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    return write_pictures(tmp_path / "photos", *FOUR)


def test_class_folders_and_the_table_are_read_together_and_the_table_wins(folders: Path) -> None:
    store = opened(folders)
    store.mark([Wish("unlabeled/c.png", "cat"), Wish("dog/b.png", "bird", CHECKED)])
    assert in_train(folders) == {
        "cat/a.png": "cat",
        "dog/b.png": "bird",
        "unlabeled/c.png": "cat",
        "unlabeled/d.png": None,
    }
    assert cells(folders / "labels.csv") == [
        {"file": "unlabeled/c.png", "label": "cat", "by": "person", "folder": ""},
        {"file": "dog/b.png", "label": "bird", "by": "checked", "folder": "dog"},
    ]
    assert scan(folders).layout == "folders"
    assert not scan(folders).others, "the journal is not counted among the files"


def test_a_label_can_be_taken_away_from_a_picture_in_a_class_folder(folders: Path) -> None:
    write_pictures(folders, "cat/e.png")
    opened(folders).mark([Wish("cat/a.png", None)])
    assert in_train(folders)["cat/a.png"] is None
    assert in_train(folders)["cat/e.png"] == "cat"


def test_a_table_of_others_keeps_its_rows_and_columns(tmp_path: Path) -> None:
    root = write_pictures(tmp_path, "one/a.png", "two/b.png", "two/c.png", "two/d.png", "val/v.png", "val/w.png")
    table = "who,file,label\nme,one/a.png,cat\nme,two/b.png,dog\nyou,val/v.png,cat\nme,two/c.png,cat\n"
    (root / "labels.csv").write_text(table)
    store = opened(root)
    store.mark([Wish("one/a.png", "'=dog", ACCEPTED)])
    assert in_train(root) == {"one/a.png": "'=dog", "two/b.png": "dog", "two/c.png": "cat", "two/d.png": None}
    assert cells(root / "labels.csv")[2] == {"who": "you", "file": "val/v.png", "label": "cat", "by": ""}
    assert cells(root / "labels.csv")[0]["who"] == "me"


def test_in_a_folder_with_parts_the_table_is_beside_the_training_pictures(tmp_path: Path) -> None:
    root = write_pictures(tmp_path, "train/cat/a.png", "train/dog/b.png", "train/c.png", "val/cat/v.png")
    opened(root).mark([Wish("train/c.png", "dog")])
    assert cells(root / "train" / "labels.csv")[0]["file"] == "c.png"
    assert in_train(root)["train/c.png"] == "dog"
    assert opened(root).label("train/cat/a.png") == "cat"
    assert opened(root).label("train/c.png") == "dog"


def test_a_class_folder_named_train_stays_a_class(tmp_path: Path) -> None:
    root = write_pictures(tmp_path, "train/a.png", "plane/b.png", "unlabeled/c.png")
    before = in_train(root)
    opened(root).mark([Wish("unlabeled/c.png", "plane")])
    assert in_train(root) == before | {"unlabeled/c.png": "plane"}


def test_undo_goes_back_over_restarts_to_the_first_change(folders: Path) -> None:
    opened(folders).mark([Wish("unlabeled/c.png", "cat"), Wish("unlabeled/d.png", "cat")])
    opened(folders).mark([Wish("unlabeled/c.png", "dog")])
    opened(folders).mark([Wish("unlabeled/d.png", note=SKIPPED)])
    store = opened(folders)
    assert store.touched("unlabeled/d.png")
    assert not opened(folders, "next run").touched("unlabeled/d.png"), "the next round asks again"
    for _ in range(2):
        assert store.undo()
    assert opened(folders).label("unlabeled/c.png") == "cat"
    assert opened(folders).undo()
    assert in_train(folders)["unlabeled/c.png"] is None
    assert opened(folders).undo() is None


def test_an_older_version_of_a_picture_is_not_overwritten(folders: Path) -> None:
    one, other = opened(folders), opened(folders)
    one.mark([Wish("unlabeled/c.png", "cat", version=0)])
    with pytest.raises(Conflict, match="changed elsewhere"):
        other.mark([Wish("unlabeled/d.png", "cat", version=0), Wish("unlabeled/c.png", "dog", version=0)])
    assert other.label("unlabeled/c.png") == "cat"
    assert other.label("unlabeled/d.png") is None, "all or none"
    other.mark([Wish("unlabeled/c.png", "dog", version=other.versions["unlabeled/c.png"])])
    one.refresh()
    assert one.label("unlabeled/c.png") == "dog"


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    """Each has its own handles of the files, as a process of its own would have."""
    table = tmp_path / "labels.csv"

    def write(name: str) -> None:
        store = Labels(Place(table))
        for i in range(15):
            store.mark([Wish(f"{name}{i}.png", "cat")])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, "ab"))
    assert sorted(row["file"] for row in cells(table)) == sorted(f"{n}{i}.png" for n in "ab" for i in range(15))
    numbers = [entry.number for entry in Labels(Place(table)).done]
    assert numbers == list(range(1, 31))


def test_another_tools_table_is_merged_but_a_persons_label_stays(folders: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("file,label\nunlabeled/c.png,dog\nunlabeled/d.png,bird\ncat/a.png,cat\n")
    store = opened(folders)
    store.mark([Wish("unlabeled/c.png", "cat")])
    assert store.merge(other, FOUR) == (1, ["unlabeled/c.png"])
    assert in_train(folders) == {
        "cat/a.png": "cat",
        "dog/b.png": "dog",
        "unlabeled/c.png": "cat",
        "unlabeled/d.png": "bird",
    }
    assert cells(folders / "labels.csv")[1]["by"] == "merged"
    with pytest.raises(UsageError, match=r"do not have: unlabeled/c\.png"):
        store.merge(other, ("unlabeled/d.png", "cat/a.png"))


def test_edits_by_others_count_and_are_not_overwritten(folders: Path) -> None:
    store = opened(folders)
    store.mark([Wish("unlabeled/c.png", "cat")])
    text = (folders / "labels.csv").read_text().replace(",cat,", ",dog,")
    (folders / "labels.csv").write_text(text + "cat/a.png,lion,,cat\n")
    store.mark([Wish("unlabeled/d.png", "cat")])
    assert [store.label(p) for p in FOUR] == ["lion", "dog", "dog", "cat"]
    assert store.undo()
    assert opened(folders).label("unlabeled/c.png") == "dog"
    assert list(in_train(folders).values()) == ["lion", "dog", "dog", None]


def test_a_journal_that_is_damaged_is_named(folders: Path) -> None:
    opened(folders).mark([Wish("unlabeled/c.png", "cat")])
    (folders / ".labels.jsonl").write_text('{"number": 1}\n')
    with pytest.raises(CertusError, match=r"labels\.jsonl is damaged .*move it away"):
        opened(folders)


@pytest.mark.parametrize("name", [" a.png", "b\\c.png", "d\udce9.png"])
def test_a_name_that_a_table_cannot_hold_is_refused(folders: Path, name: str) -> None:
    with pytest.raises(UsageError, match="rename this picture"):
        opened(folders).mark([Wish("unlabeled/c.png", "cat"), Wish(name, "cat")])
    assert not (folders / "labels.csv").exists()


@pytest.mark.parametrize("name", ["", "  ", "a\0b", "unlabeled", "x" * 101])
def test_a_name_that_no_class_can_have_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be named"):
        check_class(name)


def test_a_class_name_is_tidied() -> None:
    assert check_class("  snow \n leopard ") == "snow leopard"


class Killed(BaseException):
    pass


def killing(when: str) -> Callable[[], Any]:
    """The process is killed at this point of a change."""

    def no_append(path: Path, text: str) -> None:  # noqa: ARG001
        raise Killed

    def half_append(path: Path, text: str) -> None:
        with path.open("a") as file:
            file.write(text[: len(text) // 2])
        raise Killed

    def no_put(path: Path, text: str) -> None:  # noqa: ARG001
        raise Killed

    replaced = {"before": ("append", no_append), "half": ("append", half_append), "between": ("put", no_put)}
    return lambda: patch.object(module, *replaced[when])


PICTURES = ["a.png", "b.png", "c.png"]
ACTIONS = st.tuples(
    st.sampled_from(["label", "accept", "skip", "refuse", "undo", "reopen"]),
    st.lists(st.sampled_from(PICTURES), min_size=1, max_size=3, unique=True),
    st.sampled_from(["cat", "dog", "=1+2", ""]),
    st.sampled_from(["", "", "", "before", "half", "between"]),
)


@settings(max_examples=40)
@patch("os.fsync", lambda _: None)  # no power cuts here
@given(st.lists(ACTIONS, max_size=14))
def test_any_sequence_with_kills_gives_the_state_of_a_simple_model(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, list[str], str, str]]
) -> None:
    """The model: a list of dictionaries, the last is the state; undo drops it."""
    table = tmp_path_factory.mktemp("labels") / "labels.csv"
    table.write_text("file,label\nb.png,dog\n")
    history: list[dict[str, tuple[str, str] | None]] = [{"a.png": None, "b.png": ("dog", ""), "c.png": None}]
    store = Labels(Place(table), "run")
    for do, pictures, label, kill in actions:
        if do == "reopen":
            store = Labels(Place(table), "run")
            continue
        wishes = {
            "label": [Wish(p, label) for p in pictures],
            "accept": [Wish(p, label, ACCEPTED) for p in pictures],
            "skip": [Wish(p, note=SKIPPED) for p in pictures],
            "refuse": [Wish(p, note=REFUSED) for p in pictures],
        }.get(do)
        try:
            with killing(kill)() if kill else patch.object(module, "PATIENCE", 1.0):
                store.mark(wishes) if wishes else store.undo()
        except Killed:
            store = Labels(Place(table), "run")
        if kill in ("", "between"):  # the change was confirmed, or at least it is in the journal
            if do in ("label", "accept"):
                by = "person" if do == "label" else "accepted"
                history.append(history[-1] | dict.fromkeys(pictures, (label, by)))
            elif wishes:
                history.append(dict(history[-1]))
            elif len(history) > 1:
                history.pop()
        for reader in (store, Labels(Place(table), "run")):
            assert {p: reader.state(p).label for p in PICTURES} == history[-1]
        listed = {row["file"]: row["label"].removeprefix("'") for row in cells(table)}
        assert listed == {p: row[0] for p, row in history[-1].items() if row is not None}
