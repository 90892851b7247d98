"""`certus serve` as a real process: answers over the network, a full queue, signals, and a browser."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
from services import as_files, as_json, picture

from certus.serving.page import PAGE, POLICY

CHROMIUM = Path("/usr/bin/chromium")
SLOW = """
import sys, threading, time
from certus.serving import answerer
plain = answerer.RunAnswerer.answer
def slowly(self, pictures):  # as long as the file is there
    import pathlib
    while pathlib.Path("hold").exists() and hasattr(self, "about"):
        time.sleep(0.01)
    return plain(self, pictures)
answerer.RunAnswerer.answer = slowly
from certus.__main__ import main
sys.argv = ["certus", *sys.argv[1:]]
main()
"""


class Served:
    def __init__(self, process: subprocess.Popen[str], address: str, folder: Path) -> None:
        self.process, self.address, self.folder = process, address, folder

    def predict(self, **request: Any) -> httpx.Response:
        return httpx.post(f"{self.address}/predict", timeout=60, **request)

    def stop(self, *signals: signal.Signals) -> tuple[int, str, str]:
        for number in signals:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err

    def wait_for(self, name: str, value: int) -> None:
        """Until a metric has this value."""
        for _ in range(3000):
            if re.search(rf"^{name} {value}$", httpx.get(f"{self.address}/metrics").text, re.M):
                return
        raise AssertionError(name)


@contextmanager
def served(folder: Path, run: Path, *words: str) -> Iterator[Served]:
    command = [sys.executable, "-c", SLOW, "serve", str(run), "--port", "0", "--draws", "0", *words]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        assert process.stdout
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, process.communicate()
        yield Served(process, found[0], folder)
    finally:
        process.kill()
        process.communicate()


def test_a_service_answers_fills_up_and_stops_after_its_last_answer(trained: Path, tmp_path: Path) -> None:
    words = "--max-waiting 4 --max-pictures 4 --max-batch 2".split()
    with served(tmp_path, trained, *words) as service:
        first = service.predict(json=as_json(picture(9), picture(200)))
        assert first.status_code == 200
        assert service.predict(files=as_files(picture(9), picture(200))).json() == first.json()

        (tmp_path / "hold").touch()
        held: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: held.append(service.predict(json=as_json(*[picture(9)] * 3))))
        asking.start()
        service.wait_for("certus_waiting_pictures", 3)
        refused = service.predict(json=as_json(picture(1), picture(2)))
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        service.process.send_signal(signal.SIGTERM)
        while httpx.get(f"{service.address}/ready").status_code == 200:
            pass
        assert service.predict(json=as_json(picture(1))).status_code == 503
        (tmp_path / "hold").unlink()
        asking.join()
        assert held[0].status_code == 200
        assert len(held[0].json()["answers"]) == 3
        code, out, err = service.stop()
        assert code == 0
        assert out == "Stopped after 7 pictures.\n"
        assert err == ""


def lost(service: Served) -> None:
    """The connection is closed, or the answer is an error."""
    with suppress(httpx.HTTPError):
        assert service.predict(json=as_json(picture())).status_code >= 500


def test_a_second_signal_stops_at_once_and_bytes_that_are_no_http_do_no_harm(trained: Path, tmp_path: Path) -> None:
    with served(tmp_path, trained) as service:
        host, port = service.address.removeprefix("http://").split(":")
        for rubbish in (
            b"\0" * 100,
            b"GET / HTTP/9.9\r\n\r\n",
            b"POST /predict HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        ):
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(rubbish)
                assert re.match(rb"HTTP/1.1 40[03] ", connection.recv(1000))
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
        (tmp_path / "hold").touch()
        asking = threading.Thread(target=lost, args=(service,))
        asking.start()
        service.wait_for("certus_waiting_pictures", 1)
        service.process.send_signal(signal.SIGINT)
        while httpx.get(f"{service.address}/ready").status_code == 200:
            pass
        service.process.send_signal(signal.SIGINT)
        asking.join()
        code, out, _ = service.stop()
        assert code == 130
        assert "cut off" in out


@pytest.mark.skipif(not CHROMIUM.exists() or find_spec("playwright") is None, reason="no chromium or no playwright")
def test_a_person_drops_pictures_on_the_page(trained: Path, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    token = "a-token-of-more-than-16-characters"
    files = []
    for name, data in {"<b>dark</b>.png": picture(10), "bright.png": picture(250), "broken.png": b"no picture"}.items():
        files.append(tmp_path / name.replace("/", "∕"))
        files[-1].write_bytes(data)
    with served(tmp_path, trained, "--token", token) as service, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 844})
        troubles: list[str] = []
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(service.address)
        page.get_by_label("Token of this service").fill("wrong")
        page.get_by_role("button", name="Go on").click()
        page.get_by_text("This is not the token.").wait_for()
        page.get_by_label("Token of this service").fill(token)
        page.get_by_role("button", name="Go on").click()
        page.get_by_text("Knows 10 classes").wait_for()
        page.get_by_label("Choose pictures").set_input_files(files)
        page.get_by_text("3 pictures done.").wait_for()
        items = page.locator("ol.answers > li")
        assert items.count() == 3
        texts = items.all_inner_texts()
        assert "No answer" in texts[2]
        assert "The picture cannot be read" in texts[2]
        assert "<b>dark<∕b>.png" in texts[0]
        answer = service.predict(files=as_files(picture(10)), headers={"Authorization": f"Bearer {token}"}).json()
        label = answer["answers"][0]["label"]
        assert texts[0].startswith(label)
        assert f"certainty {100 * answer['answers'][0]['certainty']:.1f}\N{NO-BREAK SPACE}%" in texts[0]
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.get_by_role("button", name="Clear").click()
        assert items.count() == 0
        browser.close()
        assert [t for t in troubles if "401" not in t and "422" not in t] == []
        assert all(url.startswith((service.address, "blob:")) for url in asked)


def test_the_page_names_no_other_address_and_its_policy_allows_none() -> None:
    assert not re.findall(r"https?://", PAGE)
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
