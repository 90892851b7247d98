"""A whole review in a real browser: label, undo, close, kill, go on, accept, correct, train again."""

from __future__ import annotations

import csv
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from certus.data.listing import scan
from certus.training.run_folder import RunFolder

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
WRONG = "blue/red-99.png"  # a red picture among the blue ones (conftest.py)
KEYS = {"1": "blue", "2": "green", "3": "red"}
PATIENCE = 90_000  # ms; a busy machine is slow

if not CHROMIUM:
    pytest.skip("there is no chromium on this machine", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


class Server:
    """`certus review run` in a process of its own."""

    def __init__(self, place: Path) -> None:
        words = [sys.executable, "-m", "certus", "review", "run", "--no-browser"]
        self.process = subprocess.Popen(words, cwd=place, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        self.address = re.findall(r"http://\S+", self.said)[0]

    def end(self, how: signal.Signals) -> str:
        """What it says at the end."""
        self.process.send_signal(how)
        return self.process.communicate(timeout=PATIENCE / 1000)[0]


@contextmanager
def serving(place: Path) -> Iterator[Server]:
    server = Server(place)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()


@pytest.fixture
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


def opened(browser: Any, server: Server, view: str = "next") -> Any:
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.goto(f"{server.address}#{view}")
    page.wait_for_selector("#large" if view in ("next", "suspects") else f"#{'grid' if view == 'accept' else view}")
    until(page, "state !== null && !pending")
    return page


def until(page: Any, true: str, argument: object = None) -> None:
    """Wait for a condition. Playwright's own way needs `eval`, which the page forbids."""
    for _ in range(PATIENCE // 50):
        if page.evaluate(true, argument):
            return
        page.wait_for_timeout(50)
    raise AssertionError(true)


def settled(page: Any) -> None:
    until(page, "!pending")


def rows(place: Path) -> list[dict[str, str]]:
    with (place / "photos" / "labels.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def shown(page: Any) -> str:
    return page.evaluate("current().name")


def test_a_whole_review(browser: Any, place: Path) -> None:
    with serving(place) as server:
        page = opened(browser, server)
        asked = []
        for key in "1231231231":
            asked.append((shown(page), KEYS[key]))
            page.keyboard.press(key)
            until(page, "name => current() && current().name !== name", asked[-1][0])
        settled(page)
        assert [(row["file"], row["label"]) for row in rows(place)] == asked
        page.keyboard.press("u")
        until(page, "name => current() && current().name === name", asked[-1][0])
        assert [(row["file"], row["label"]) for row in rows(place)] == asked[:-1]
        page.close()

        page = opened(browser, server)
        assert shown(page) == asked[-1][0], "the first that is left"
        assert "9 labels given" in page.inner_text("#saved")
        confirmed = killed_in_the_middle(page, server)
        assert len(confirmed) >= 3
        assert not page.errors
        page.close()

    with serving(place) as server:
        page = opened(browser, server)
        kept = {row["file"]: row["label"] for row in rows(place)}
        assert kept.items() >= {**dict(asked[:-1]), **dict.fromkeys(confirmed, "green")}.items(), "nothing was lost"
        before = shown(page)
        assert before not in kept
        page.keyboard.press("u")
        until(page, "name => current() && current().name !== name", before)
        assert len(rows(place)) == len(kept) - 1, "undo goes over restarts"
        accept_a_grid(page, place)
        correct_a_label(page, place)
        add_a_class(page, place)
        train_again(page, place)
        assert not page.errors
        page.close()
        said = server.end(signal.SIGINT)
        assert re.search(
            r"^\d+ labels given, saved in .*labels.csv. Train again: certus train .*--from run-2$", said, re.M
        )
        assert server.process.returncode == 0


def killed_in_the_middle(page: Any, server: Server) -> list[str]:
    """Press keys until the server is gone; the pictures whose labels it has confirmed."""
    confirmed: list[str] = []

    def heard(response: Any) -> None:
        if response.url.endswith("/label") and response.ok:
            confirmed.append(response.json()["changed"][0]["name"])

    page.on("requestfinished", lambda request: heard(request.response()))
    for pressed in range(8):
        if pressed == 4:
            settled(page)
        page.keyboard.press("2")
        if pressed == 5:
            os.kill(server.process.pid, signal.SIGKILL)
    page.wait_for_selector("#alert:visible")
    assert "everything before it is" in page.inner_text("#alert")
    return confirmed


def accept_a_grid(page: Any, place: Path) -> None:
    page.click("[data-view=accept]")
    page.wait_for_selector("#cells button")
    before = len(rows(place))
    cells = page.locator("#cells button")
    count = cells.count()
    wrong = page.evaluate("view.cells[1].name")
    cells.nth(1).click()
    assert cells.nth(1).get_attribute("aria-pressed") == "true"
    page.keyboard.press("Enter")
    until(page, "name => !view.cells.some(cell => cell.name === name)", wrong)
    settled(page)
    found = rows(place)
    assert len(found) == before + count - 1
    assert {row["by"] for row in found[before:]} == {"accepted"}
    assert wrong not in {row["file"] for row in found}
    page.click("[data-view=next]")
    until(page, "view.name === 'next' && current()")
    asked = page.evaluate("[...view.items.values()].filter(item => !item.done).map(item => item.name)")
    assert wrong in asked[:2], "it is asked next, after what was taken back"


def correct_a_label(page: Any, place: Path) -> None:
    page.click("[data-view=suspects]")
    page.wait_for_selector("#alike:visible")
    assert shown(page) == WRONG
    assert page.locator("#like-answer img").count() == 4
    page.keyboard.press("Enter")
    settled(page)
    corrected = next(row for row in rows(place) if row["file"] == WRONG)
    assert corrected == {"file": WRONG, "label": "red", "by": "checked", "folder": "blue"}
    page.wait_for_selector("#empty:visible")


def add_a_class(page: Any, place: Path) -> None:
    page.click("[data-view=next]")
    until(page, "view.name === 'next' && current()")
    for _ in range(2):
        name = shown(page)
        page.keyboard.press("n")
        page.keyboard.type("<b>dark</b>")
        page.keyboard.press("Enter")
        until(page, "name => current() && current().name !== name", name)
        settled(page)
    assert page.locator("#classes button").last.inner_text().endswith("<b>dark</b>")
    page.keyboard.press("/")
    page.keyboard.type("dar")
    assert page.locator("#classes button").count() == 1
    page.keyboard.press("Escape")
    assert "<b>dark</b>" in scan(place / "photos").classes


def train_again(page: Any, place: Path) -> None:
    page.click("[data-view=train]")
    page.click("#start")
    until(page, "['done', 'failed'].includes(state.training.step)")
    assert page.evaluate("state.training.error") == ""
    page.wait_for_selector("#outcome:visible")
    assert "error on validation pictures" in page.inner_text("#outcome")
    old, new = (RunFolder(place / name) for name in ("run", "run-2"))
    assert old.finished()
    assert new.finished()
    assert new.load_split()["validation"] == old.load_split()["validation"]
    assert len(new.load_split()["labelled"]) == len(old.load_split()["labelled"]) + len(rows(place)) - 1
    assert new.load_model()["classes"] == ["<b>dark</b>", "blue", "green", "red"]
    assert page.evaluate("state.rounds.map(round => round.labels)")[-1] == len(new.load_split()["labelled"])
    page.wait_for_selector("#chart svg")
