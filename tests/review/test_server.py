from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest
from PIL import Image

from certus.__main__ import main
from certus.data.listing import scan
from certus.errors import CertusError, UsageError
from certus.review.labels import Labels
from certus.review.retraining import compared, next_folder
from certus.review.rounds import add_round
from certus.review.server import Desk, listen, make_app
from certus.review.session import Session, open_session

WRONG = "blue/red-99.png"  # a red picture among the blue ones (conftest.py)
TOKEN, PORT = "the-token", 4321
HOME = f"http://127.0.0.1:{PORT}"


class Page:
    """A browser that has the address."""

    def __init__(self, session: Session) -> None:
        self.desk = Desk(session)
        self.app = make_app(self.desk, TOKEN, PORT)

    def send(self, method: str, path: str, **how: Any) -> httpx.Response:
        async def sent() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=HOME) as client:
                return await client.request(method, path, **how)

        return asyncio.run(sent())

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.send("GET", f"/{TOKEN}/{path}", headers=headers)

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body)
        return self.send("POST", f"/{TOKEN}/{path}", content=content, headers={"Origin": HOME, **headers})

    def items(self, queue: str, **ask: str) -> list[dict[str, Any]]:
        return self.send("GET", f"/{TOKEN}/queue/{queue}", params=ask).json()["items"]

    def state(self) -> dict[str, Any]:
        return self.get("state").json()


@pytest.fixture
def page(session: Session) -> Page:
    return Page(session)


def mark(item: dict[str, Any], label: str | None) -> dict[str, Any]:
    return {"picture": item["picture"], "label": label, "version": item["version"]}


def trained_labels(place: Path) -> dict[str, str | None]:
    return {path.as_posix(): label for path, label in scan(place / "photos").train}


def test_the_page_loads_nothing_from_elsewhere(page: Page) -> None:
    whole = ""
    for name in ("", "review.css", "review.js"):
        answer = page.get(name)
        assert answer.status_code == 200
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        whole += answer.text
    assert "https:" not in whole
    assert whole.replace("http://www.w3.org/2000/svg", "").count("http:") == 0
    assert "innerHTML" not in whole
    assert "<script>" not in page.get("").text


@pytest.mark.parametrize("path", ["/", "/state", "/wrong/state", f"/{TOKEN}x/state", f"/{TOKEN[:-1]}/", "//state"])
def test_without_the_token_there_is_nothing(page: Page, path: str) -> None:
    assert page.send("GET", path).status_code == 403


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}", ""])
def test_another_host_is_refused(page: Page, host: str) -> None:
    assert page.get("state", Host=host).status_code == 403
    assert page.get("state", Host=f"localhost:{PORT}").status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", f"https://127.0.0.1:{PORT}", ""])
def test_another_origin_is_refused(page: Page, origin: str) -> None:
    assert page.post("undo", {}, Origin=origin).status_code == 403
    assert page.get("state", Origin=origin).status_code == 403
    assert page.send("POST", f"/{TOKEN}/undo").status_code == 403, "without one"
    assert page.get("undo").status_code == 405, "nothing is changed by a link"
    assert page.post("undo", {}).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "thumb/../../etc/passwd",
        "thumb/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "picture/-1",
        "picture/999999",
        "thumb/1/../../run/config.toml",
        "..%2f..%2fpyproject.toml",
        "one/100000",
        "page/index.html",
        "server.py",
        "picture/%2fetc%2fpasswd",
    ],
)
def test_no_other_file_can_be_reached(page: Page, path: str) -> None:
    answer = page.get(path)
    assert answer.status_code in (403, 404)
    assert "root:" not in answer.text
    assert "certus run file" not in answer.text


def test_a_link_out_of_the_folder_is_not_followed(place: Path) -> None:
    secret = place / "secret.png"
    Image.new("RGB", (16, 16), "red").save(secret)
    (place / "photos" / "unlabeled" / "red-00.png").unlink()
    (place / "photos" / "unlabeled" / "red-00.png").symlink_to(secret)
    page = Page(open_session(place / "run"))
    at = page.desk.session.number["unlabeled/red-00.png"]
    for size in ("thumb", "picture"):
        answer = page.get(f"{size}/{at}")
        assert answer.status_code == 404
        assert "a link to a file outside the folder" in answer.text
    assert page.get(f"thumb/{at + 1}").headers["content-type"] == "image/png"


def test_a_folder_of_links_inside_the_folder_is_shown(place: Path) -> None:
    shutil.move(place / "photos", place / "elsewhere")
    (place / "photos").symlink_to(place / "elsewhere")
    assert Page(open_session(place / "run")).get("picture/0").status_code == 200


def test_names_are_data_and_never_html(place: Path) -> None:
    evil = "<script>alert(1)<_script>.png"
    os.rename(place / "photos/unlabeled/red-00.png", place / "photos/unlabeled" / evil)  # noqa: PTH104
    page = Page(open_session(place / "run"))
    at = page.desk.session.number[f"unlabeled/{evil}"]
    answer = page.get(f"one/{at}")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["name"] == f"unlabeled/{evil}"
    added = page.post("add-class", {"name": "<img src=x onerror=alert(1)>"})
    assert added.json()["name"] == "<img src=x onerror=alert(1)>"
    assert "onerror" not in page.get("").text


def test_the_queues_have_counts_and_reasons(page: Page) -> None:
    counts = page.state()["counts"]
    assert counts["next"]["left"] == counts["next"]["total"] > 20
    assert sum(counts["accept"]["classes"].values()) == counts["accept"]["left"] > 0
    items = page.items("next", count="3")
    assert len(items) == 3
    assert all(item["reason"] and item["name"].startswith("unlabeled/") for item in items)
    reds = page.items("accept", **{"class": "red"})
    assert reds
    assert all(item["answer"] == "red" for item in reds)
    assert page.get("queue/other").status_code == 400
    assert page.get("queue/next?start=many").json()["error"] == "'many' is not a whole number."


def test_a_label_is_saved_at_once_and_undone(page: Page, place: Path) -> None:
    item, *others = page.items("next")
    answer = page.post("label", {"marks": [mark(item, "red")]}).json()
    assert answer["changed"][0]["label"] == "red"
    assert answer["state"]["given"] == 1
    assert trained_labels(place)[item["name"]] == "red"
    assert page.items("next")[0]["name"] == others[0]["name"], "the first that is left"
    page.post("skip", mark(others[0], None))
    assert page.items("next")[0]["name"] == others[1]["name"]
    assert page.state()["counts"]["next"]["left"] == page.state()["counts"]["next"]["total"] - 2
    page.post("undo", {})
    undone = page.post("undo", {}).json()
    assert undone["changed"][0]["name"] == item["name"]
    assert trained_labels(place)[item["name"]] is None
    assert page.items("next")[0]["name"] == item["name"]


def test_what_is_taken_back_after_a_restart_is_asked_again(page: Page, place: Path) -> None:
    item = page.items("next")[0]
    page.post("label", {"marks": [mark(item, "red")]})
    again = Page(open_session(place / "run"))
    total = again.state()["counts"]["next"]["left"]
    assert item["name"] not in {other["name"] for other in again.items("next", start="0", count="200")}
    again.post("undo", {})
    first = again.items("next")[0]
    assert (first["name"], first["reason"], first["answer"]) == (item["name"], "asked again", item["answer"])
    assert again.state()["counts"]["next"]["left"] == total + 1
    again.post("label", {"marks": [mark(first, "blue")]})
    assert again.items("next")[0]["at"] == 1
    assert again.state()["counts"]["next"]["left"] == total


def test_a_tab_that_is_behind_does_not_overwrite(page: Page) -> None:
    item = page.items("next")[0]
    assert page.post("label", {"marks": [mark(item, "red")]}).status_code == 200
    late = page.post("label", {"marks": [mark(item, "blue")]})
    assert late.status_code == 409
    assert "changed elsewhere" in late.json()["error"]
    assert page.get(f"one/{item['picture']}").json()["label"] == "red"


def test_a_grid_is_accepted_but_for_the_wrong_ones_which_are_asked_next(page: Page, place: Path) -> None:
    of = max(page.state()["counts"]["accept"]["classes"].items(), key=lambda kv: kv[1])[0]
    cells = page.items("accept", grid="1", count="5", **{"class": of})
    before = page.state()["counts"]["accept"]["left"]
    wrong, *right = cells
    body = {"marks": [mark(c, of) for c in right], "refused": [mark(wrong, None)], "by": "accepted"}
    state = page.post("label", body).json()["state"]
    assert state["counts"]["accept"]["left"] == before - len(cells)
    learnt = trained_labels(place)
    assert [learnt[c["name"]] for c in cells] == [None, *[of] * len(right)]
    assert "accepted" in (place / "photos" / "labels.csv").read_text()
    first = page.items("next")[0]
    assert (first["name"], first["reason"]) == (wrong["name"], f"you refused the answer {of}")
    page.post("undo", {})
    assert page.state()["counts"]["accept"]["left"] == before
    assert trained_labels(place)[right[0]["name"]] is None


def test_a_wrong_label_is_found_and_corrected(page: Page, place: Path) -> None:
    suspects = page.items("suspects")
    assert suspects[0]["name"] == WRONG
    assert (suspects[0]["given"], suspects[0]["answer"]) == ("blue", "red")
    assert len(suspects[0]["likeGiven"]) == len(suspects[0]["likeAnswer"]) == 4
    page.post("label", {"marks": [mark(suspects[0], "red")], "by": "checked"})
    assert trained_labels(place)[WRONG] == "red"
    assert not [item for item in page.items("suspects") if item["name"] == WRONG]
    again = Page(open_session(place / "run"))
    assert not [item for item in again.items("suspects", start="0") if item["name"] == WRONG and not item["done"]]


def test_a_class_can_be_added(page: Page, place: Path) -> None:
    assert page.post("add-class", {"name": " dark  red "}).json()["name"] == "dark red"
    assert page.state()["classes"] == ["blue", "green", "red", "dark red"]
    item = page.items("next")[0]
    page.post("label", {"marks": [mark(item, "dark red")]})
    assert scan(place / "photos").classes == ("blue", "dark red", "green", "red")
    assert Page(open_session(place / "run")).state()["classes"] == ["blue", "green", "red", "dark red"]
    assert page.post("add-class", {"name": "unlabeled"}).status_code == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("label", {"marks": []}),
        ("label", {"marks": [{"picture": 1, "label": "yellow", "version": 0}]}),
        ("label", {"marks": [{"picture": "1", "label": "red", "version": 0}]}),
        ("label", {"marks": [{"picture": True, "label": "red", "version": 0}]}),
        ("label", {"marks": [{"picture": -1, "label": "red", "version": 0}]}),
        ("label", {"marks": [{"picture": 1, "label": ["red"], "version": 0}]}),
        ("label", {"marks": [{"picture": 1, "label": "red", "version": 0}], "by": "somebody"}),
        ("label", {"marks": "red"}),
        ("label", [1]),
        ("skip", {}),
        ("skip", {"picture": 10**9, "version": 0}),
    ],
)
def test_a_request_that_makes_no_sense_changes_nothing(page: Page, place: Path, path: str, body: Any) -> None:
    answer = page.post(path, body)
    assert answer.status_code == 400
    assert answer.json()["error"].endswith(".")
    assert not (place / "photos" / "labels.csv").exists()


def test_a_request_that_is_no_json_or_too_long_is_refused(page: Page) -> None:
    answer = page.post("label", b"{")
    assert (answer.status_code, answer.json()["error"]) == (400, "The request is not JSON.")
    answer = page.post("label", b"x" * (1 << 21))
    assert answer.json()["error"] == "The request is too long."


def test_a_full_disk_is_a_sentence(page: Page) -> None:
    item = page.items("next")[0]
    with patch("certus.review.labels.append", side_effect=OSError(28, "No space left on device", "labels")):
        answer = page.post("label", {"marks": [mark(item, "red")]})
    assert answer.status_code == 500
    assert "No space left on device" in answer.json()["error"]
    assert page.post("label", {"marks": [mark(item, "red")]}).status_code == 200


def test_two_hundred_classes_and_a_hundred_thousand_pictures_come_in_pages(session: Session) -> None:
    some = session.look.accept * (100_000 // len(session.look.accept))
    session.items["accept"] = some
    found = session.page("accept", -1, 10**9)
    assert len(found["items"]) == 200
    assert found["total"] == len(some)


def test_a_named_data_set_keeps_its_labels_in_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import certus

    monkeypatch.chdir(tmp_path)
    tiny = {"steps": 3, "threads": 1, "width": 2, "labelled_batch": 20, "unlabelled_batch": 20}
    certus.train("digits", method="supervised", labels=40, network="cnn13-small", out="run", **tiny)
    page = Page(open_session(Path("run")))
    assert not page.state()["canAdd"]
    assert page.post("add-class", {"name": "ten"}).json()["error"] == "digits has fixed classes: none can be added."
    item = page.items("next")[0]
    assert page.get(f"thumb/{item['picture']}").headers["content-type"] == "image/png"
    page.post("label", {"marks": [mark(item, "7")]})
    assert Path("run/labels.csv").read_text() == f"file,label,by\n{item['picture']},7,person\n"
    model = certus.train(from_="run", out="new")
    again = Page(open_session(model.folder or Path()))
    assert page.desk.session.labels.label(item["name"]) == "7"
    assert item["name"] not in {other["name"] for other in again.items("next")}
    assert again.state()["rounds"][-1]["labels"] == 41


def test_vectors_have_no_page(tmp_path: Path) -> None:
    import certus

    certus.train("moons", method="supervised", labels=6, steps=2, threads=1, out=tmp_path / "run")
    with pytest.raises(UsageError, match="moons holds vectors, which cannot be shown as pictures"):
        open_session(tmp_path / "run")


def test_before_and_after(place: Path, session: Session) -> None:
    outcome = compared(session, session)
    assert outcome["changed"] == 0
    assert outcome["answered"] == len(session.found.free)
    session.answers = {picture: (answer + 1) % 3 for picture, answer in session.answers.items()}
    outcome = compared(session, open_session(place / "run"))
    assert outcome["changed"] == len(outcome["changes"]) == len(session.found.free)
    assert outcome["changes"][0]["was"] != outcome["changes"][0]["now"]


def test_new_runs_are_numbered(place: Path) -> None:
    assert next_folder(place / "run") == place / "run-2"
    (place / "run-2").mkdir()
    assert next_folder(place / "run") == place / "run-3"


def test_a_round_is_kept_once_and_a_damaged_line_is_left_out(place: Path) -> None:
    table = place / "photos" / "labels.csv"
    first = add_round(table, place / "run")
    assert add_round(table, place / "run") == first
    rounds = place / "photos" / ".labels.rounds.jsonl"
    assert len(rounds.read_text().splitlines()) == 1
    rounds.write_text(
        '{"run": 1\n{"run": "other", "labels": 9, "error": 5.0}\n{"run": "x", "labels": [], "error": 0}\n'
    )
    assert [known.run for known in add_round(table, place / "run")] == ["other", first[0].run]


def test_a_port_in_use_and_one_that_cannot_be_are_named() -> None:
    at = listen()
    at.socket.listen()
    assert at.address.startswith(f"http://127.0.0.1:{at.port}/")
    assert len(at.token) >= 24
    with pytest.raises(CertusError, match=f"Port {at.port} cannot be used"):
        listen(at.port)
    at.socket.close()
    with pytest.raises(UsageError, match="`port` must be between 0 and 65535, but is 70000"):
        listen(70000)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "certus review needs the folder of a run."),
        (["nowhere"], "nowhere holds no run"),
        (["run", "--strategy", "best"], "--strategy must be certus, uncertain, random, but is 'best'."),
    ],
)
def test_the_command_says_what_is_wrong(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", ["certus", "review", *words])
    with pytest.raises(SystemExit):
        main()
    assert said in capsys.readouterr().err


def test_without_the_extra_the_command_says_what_to_install(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", ["certus", "review", "run"])
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    monkeypatch.delitem(sys.modules, "certus.review.server")
    with pytest.raises(SystemExit):
        main()
    assert "pip install 'certus-ssl[review]'" in capsys.readouterr().err


def test_the_command_serves_merges_and_says_how_to_train_again(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    Path("other.csv").write_text("file,label\nunlabeled/red-00.png,red\n")
    monkeypatch.setattr(sys, "argv", ["certus", "review", "run", "--no-browser", "--merge", "other.csv"])

    def label_one(desk: Desk, _: object) -> None:
        session = desk.session
        session.mark([{"picture": session.number["unlabeled/red-01.png"], "label": "red", "version": 0}], "person", [])
        raise KeyboardInterrupt

    monkeypatch.setattr("certus.review.server.serve", label_one)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    printed = capsys.readouterr().out
    assert "1 label taken from other.csv." in printed
    assert f"2 labels given, saved in {place}/photos/labels.csv. Train again: certus train --data" in printed
    assert printed.rstrip().endswith("--from run")
    assert Labels(open_session(place / "run").labels.place).label("unlabeled/red-00.png") == "red"
