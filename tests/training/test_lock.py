"""One process at a time trains in a run folder, and it notices if the folder is taken away."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import certus
from certus.cli.main import main
from certus.config import resolve
from certus.errors import CertusError, UsageError
from certus.training import lock
from certus.training.build import build
from certus.training.lock import Busy, locked
from certus.training.loop import Tick, train
from certus.training.planning import complete
from certus.training.run_folder import RunFolder

TINY = {"data": "moons", "method": "supervised", "width": 4, "steps": 6, "threads": 1}
WORDS = ["--data", "moons", "--method", "supervised", "--width", "4", "--threads", "1"]
HOLD = """
import sys, time
from pathlib import Path
from certus.training import lock
if sys.argv[2] == "none":
    lock.fcntl = None
with lock.locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def hold(folder: Path, how: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder), how], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


@pytest.fixture(params=["flock", "none", "refused"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With locks, without `fcntl`, and on a file system that has no locks."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    if request.param == "none":
        monkeypatch.setattr(lock, "fcntl", None)
    elif request.param == "refused":
        monkeypatch.setattr(lock.fcntl, "flock", refuse)
    return request.param


def test_a_second_process_is_told_who_trains_and_a_killed_one_releases_the_folder(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = hold(folder, "flock" if how == "flock" else "none")
    sentence = f"{folder} is being trained by process {process.pid} on {platform.node()}."
    with pytest.raises(Busy) as error, locked(folder):
        pytest.fail("the folder is locked")
    assert str(error.value).startswith(sentence)
    assert error.value.exit_code == 1
    process.kill()
    process.communicate()
    with locked(folder):
        assert len(list(folder.iterdir())) == 1
    assert not list(folder.iterdir())


@pytest.mark.usefixtures("how")
def test_a_thread_may_lock_twice_and_another_thread_may_not(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def other() -> None:
        try:
            with locked(tmp_path):
                pass
        except BaseException as e:
            errors.append(e)

    with locked(tmp_path) as first:
        with locked(tmp_path / ".." / tmp_path.name) as second:
            assert first is second
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert [type(e) for e in errors] == [Busy]
    with locked(tmp_path):
        pass


def claim(folder: Path, machine: str, seconds: float, boot: str = "") -> None:
    """A lock of a process that this machine has not, touched so long ago."""
    (folder / ".lock").write_text(json.dumps([2**22 + 1, machine, boot or lock.boot_id()]))
    touched = time.time() - seconds
    os.utime(folder / ".lock", (touched, touched))


@pytest.mark.usefixtures("how")
@pytest.mark.parametrize(("machine", "boot"), [("elsewhere", ""), (platform.node(), "another kernel")])
def test_a_lock_of_another_machine_holds_while_it_is_touched(machine: str, boot: str, tmp_path: Path) -> None:
    claim(tmp_path, machine, lock.SILENCE / 2, boot)
    with pytest.raises(Busy, match=f"by process {2**22 + 1} on {machine}"), locked(tmp_path):
        pytest.fail("the folder is locked")
    claim(tmp_path, machine, 2 * lock.SILENCE, boot)
    with locked(tmp_path) as held:
        held.check()
        assert lock.named(tmp_path / ".lock") == (os.getpid(), platform.node())
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("how")
def test_a_lock_of_this_machine_needs_no_silence(tmp_path: Path) -> None:
    claim(tmp_path, platform.node(), 0)
    with locked(tmp_path):
        pass


def test_the_holder_touches_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "HEARTBEAT", 0.01)
    with locked(tmp_path):
        os.utime(tmp_path / ".lock", (0, 0))
        while not (tmp_path / ".lock").stat().st_mtime:
            time.sleep(0.01)


def test_a_holder_that_was_taken_for_gone_writes_nothing_more(tmp_path: Path) -> None:
    with locked(tmp_path) as held:
        (tmp_path / ".lock").rename(tmp_path / "aside")  # as another machine does after the silence
        claim(tmp_path, "elsewhere", 0)
        with pytest.raises(Busy, match="on elsewhere"):
            held.check()
    assert lock.named(tmp_path / ".lock") == (2**22 + 1, "elsewhere")  # it is not ours to remove


@pytest.mark.parametrize("links", [True, False])
def test_of_many_that_find_an_abandoned_lock_one_keeps_it(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads in place of machines: neither `flock` nor the number of a process helps between them."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(lock, "fcntl", None)
    monkeypatch.setattr(lock, "HELD", {})
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    for _ in range(20):
        claim(tmp_path, "elsewhere", 2 * lock.SILENCE)
        start, handles = threading.Barrier(6), []

        def race(start: threading.Barrier = start, handles: list[int] = handles) -> None:
            start.wait()
            with suppress(Busy):
                handles.append(lock.acquire(tmp_path)[1])

        threads = [threading.Thread(target=race) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ours = [lock.is_at(handle, tmp_path / ".lock") for handle in handles]
        assert sum(ours) == 1  # whoever lost it again in the same instant finds out by `check`
        for handle in handles:
            os.close(handle)
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_lock_can_be_waited_for(tmp_path: Path) -> None:
    process = hold(tmp_path / "run", "flock")
    threading.Timer(0.3, process.kill).start()
    with locked(tmp_path / "run", seconds=60):
        assert process.wait() < 0
    process.communicate()


def test_folders_that_were_made_for_nothing_are_removed(tmp_path: Path) -> None:
    with locked(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b" / ".lock").is_file()
    assert not (tmp_path / "a").exists()
    with locked(tmp_path / "a"):
        (tmp_path / "a" / "file").touch()
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["open", "write", "link"])
def test_a_full_disk_leaves_neither_lock_nor_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = getattr(os, name)

    def full(*args: object, **more: object) -> object:
        if name != "open" or ".lock." in str(args[0]):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, name, full)
        with pytest.raises(OSError, match=r"No space left on device: '.*\.lock'"), locked(tmp_path / "run"):
            pytest.fail("the lock could not be written")
    assert not (tmp_path / "run").exists()
    with locked(tmp_path / "run"):
        pass


def test_no_command_touches_a_folder_that_is_being_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *WORDS, "--steps", "3", "--out", "done"]) == 0
    RunFolder(Path("done")).result.unlink()
    processes = [hold(tmp_path / name, "flock") for name in ("new", "done")]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    try:
        for words in (
            ["train", *WORDS, "--out", "new"],
            ["pretrain", "--data", "digits", "--width", "2", "--steps", "1", "--out", "new"],
            ["train", "--resume", "done"],
        ):
            assert main(words) == 1
            assert "is being trained by process" in capsys.readouterr().err
        with pytest.raises(CertusError, match="is being trained by process"):
            certus.train(**TINY, out="new")
        with pytest.raises(CertusError, match="is being trained by process"):
            certus.train(resume="done")
        with pytest.raises(CertusError, match="is being trained by process"):
            train(build(complete(resolve(TINY))), RunFolder(Path("new")))
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert {p: t for p, t in before.items() if p.is_file()}.items() <= after.items()
    assert main(["train", "--resume", "done"]) == 0
    assert main(["train", *WORDS, "--steps", "3", "--out", "new"]) == 0


def test_a_name_that_another_process_is_using_is_not_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = complete(resolve(TINY))
    first, second = (Path("runs") / f"moons-supervised-6-seed0{end}" for end in ("", "-2"))
    process = hold(tmp_path / first, "flock")
    try:
        with RunFolder.new(None, config) as folder:
            assert folder.path == second
            with RunFolder.new(None, config) as same_thread:
                assert same_thread.path == second
    finally:
        process.kill()
        process.communicate()
    with RunFolder.new(None, config) as folder:
        assert folder.path == first


def test_two_that_start_together_do_not_mix(tmp_path: Path) -> None:
    start = [sys.executable, "-m", "certus", "train", *WORDS, "--steps", "400", "--out", "run", "--save-seconds", "0"]
    processes = [
        subprocess.Popen([*start, "--seed", str(seed)], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        for seed in (0, 1)
    ]
    said = [process.communicate()[1] for process in processes]
    codes = [process.returncode for process in processes]
    assert sorted(codes) in ([0, 1], [0, 2]), said  # 2: the first had already finished when the second looked
    winner = codes.index(0)
    folder = RunFolder(tmp_path / "run")
    assert folder.load_config().seed == folder.load_result()["seed"] == winner
    assert "is being trained by" in said[1 - winner] or "already holds a run" in said[1 - winner]


@pytest.mark.parametrize("what", ["removed", "moved", "replaced"])
def test_a_folder_that_is_taken_away_while_training_is_an_error(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    real = train

    def interfere(run, where, listen, save_seconds):  # type: ignore[no-untyped-def]
        def take_away(tick: Tick) -> None:
            if tick.step == 2:
                shutil.rmtree(folder) if what == "removed" else folder.rename(elsewhere)
                if what == "replaced":
                    folder.mkdir()
            listen(tick)

        return real(run, where, take_away, save_seconds)

    monkeypatch.setattr("certus.cli.train.train", interfere)
    assert main(["train", *WORDS, "--steps", "6", "--out", str(folder), "--save-seconds", "0"]) == 1
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert "was removed, moved or replaced while it was being trained" in sentence
    assert not (folder / "checkpoints").exists()
    monkeypatch.undo()
    if what == "moved":
        assert main(["train", "--resume", str(elsewhere)]) == 0


def test_a_file_is_no_folder_and_a_missing_folder_holds_no_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file, not a folder"):
        certus.train(**TINY, out=tmp_path / "file")
    with pytest.raises(UsageError, match="holds no run"):
        certus.train(resume=tmp_path / "nothing")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_ctrl_c_releases_the_folder(tmp_path: Path) -> None:
    words = ["train", *WORDS, "--steps", "100000", "--out", "run"]
    process = subprocess.Popen(
        [sys.executable, "-m", "certus", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    process.communicate()
    assert not (tmp_path / "run" / ".lock").exists()
