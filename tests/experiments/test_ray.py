"""Comparisons on a real Ray cluster of two machines, one of which is lost."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

import pytest
from experiments.ray_drive import STUCK_AT, cells_in

import certus
from certus.cli.main import main
from certus.errors import CertusError, UsageError
from certus.experiments import ray_pool
from certus.experiments.pool import train_cell
from certus.experiments.ray_pool import LOOPBACK, Elsewhere, Place, connect
from certus.training.run_folder import RunFolder

TESTS = Path(__file__).parents[1]
VARYING = ("seconds", "time", "images_per_second", "check")
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed (extra ray)")


@pytest.fixture
def environment() -> dict[str, str]:
    """Of every process of a cluster: on the loopback, and for this test alone."""
    paths = os.pathsep.join([str(Path(certus.__file__).parents[1]), str(TESTS)])
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {**inherited, **LOOPBACK, "RAY_AUTH_TOKEN": secrets.token_hex(32), "PYTHONPATH": paths}


@pytest.fixture
def machines(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    folder = mkdtemp(prefix="ray-", dir="/tmp")  # short, as names of sockets must be
    process = subprocess.Popen(
        [sys.executable, str(TESTS / "experiments" / "ray_machines.py"), folder],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    yield process
    process.communicate()
    shutil.rmtree(folder, ignore_errors=True)


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not (path.exists() and (path.stat().st_size or path.name == "stuck")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def under_way(folders: list[RunFolder], process: subprocess.Popen[str]) -> tuple[RunFolder, RunFolder]:
    """The one that trains, and the one that waits: where there is room for one, Ray chooses which is first."""
    while True:
        for i, folder in enumerate(folders):
            if folder.metrics.exists() and folder.metrics.stat().st_size:
                return folder, folders[1 - i]
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def state(folder: RunFolder) -> tuple[bytes, object]:
    (newest,) = folder.checkpoints.iterdir()
    lines = [{k: v for k, v in line.items() if k not in VARYING} for line in folder.load_metrics()]
    return (newest / "state.safetensors").read_bytes(), lines


@needs_ray
@pytest.mark.skipif(sys.platform != "linux", reason="the names of sockets and processes are Linux's")
def test_a_lost_machine_loses_no_cell_and_ctrl_c_saves(
    machines: subprocess.Popen[str], environment: dict[str, str], tmp_path: Path
) -> None:
    assert machines.stdin
    assert machines.stdout
    address, second = machines.stdout.readline().split()

    # One machine is lost while it trains.
    drive = [sys.executable, str(TESTS / "experiments" / "ray_drive.py"), address, second]
    driver = subprocess.Popen(drive, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    wait_for(tmp_path / "stuck", driver)
    machines.stdin.write("kill\n")
    machines.stdin.flush()
    assert machines.stdout.readline() == "killed\n"
    _, err = driver.communicate()
    assert driver.returncode == 0, err
    found = json.loads((tmp_path / "found.json").read_text())
    local = cells_in(tmp_path / "local")
    assert sorted((kind, name) for kind, name, _ in found) == sorted(("result", cell.name) for cell in local)
    begun = [line.split() for line in (tmp_path / "begun").read_text().splitlines()]
    (lost,) = {name for name, machine, _ in begun if machine == second}
    assert Counter(name for name, _, _ in begun) == {cell.name: 1 + (cell.name == lost) for cell in local}
    saved = int(next(step for name, machine, step in begun if name == lost and machine != second))
    assert saved in (STUCK_AT - 1, STUCK_AT)
    for cell in local:
        steps = [int(line) for line in (tmp_path / f"steps-{cell.name}").read_text().split()]
        again = [*range(1, STUCK_AT + 1), *range(saved + 1, cell.config.steps + 1)]
        assert steps == (again if cell.name == lost else list(range(1, cell.config.steps + 1)))
        result = train_cell(cell, lambda _: None)
        (ours,) = (value for _, name, value in found if name == cell.name)
        assert {**ours, "seconds": 0, "images_per_second": 0} == {**result, "seconds": 0, "images_per_second": 0}
        assert state(RunFolder(tmp_path / "out" / cell.name)) == state(cell.folder)

    # A machine that does not see the folder is refused.
    assert "does not see the folder" in (tmp_path / "refused").read_text()

    # Ctrl-C saves what is trained, from the command line.
    words = "compare --data digits --labels 10 --width 2 --unlabelled-batch 100 --epochs 1000 --out long".split()
    command = [sys.executable, "-m", "certus", *words, "--methods", "supervised", "--seeds", "2", "--on", address]
    driver = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    folder, other = under_way([RunFolder(tmp_path / "long" / f"supervised-seed{s}") for s in (0, 1)], driver)
    os.killpg(driver.pid, signal.SIGINT)
    _, err = driver.communicate()
    assert driver.returncode == 130, err
    assert "every run is saved. Go on with: certus compare" in err
    assert "Traceback" not in err
    assert folder.saved_step() > 0
    with folder.held():
        pass
    if other.exists():  # Ray sometimes starts a machine more than it was asked for: then both train, and both are saved
        assert other.load_config().steps
    assert not list(tmp_path.rglob("*.part"))


def test_a_machine_must_have_the_same_version_and_the_same_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "marker").touch()
    monkeypatch.setenv("CERTUS_DATA", "there")
    place = Place(str(tmp_path), str(tmp_path / "marker"))
    monkeypatch.setenv("CERTUS_DATA", "here")
    monkeypatch.chdir("/")
    place.enter()
    assert (Path.cwd(), os.environ["CERTUS_DATA"]) == (tmp_path, "there")
    for wrong, message in (
        (Place(str(tmp_path), str(tmp_path / "marker"), version="0.0.1"), "install the same"),
        (Place(str(tmp_path / "no"), str(tmp_path / "marker")), f"does not see the folder {tmp_path / 'no'} of"),
        (Place(str(tmp_path), str(tmp_path / "other")), f"does not see the folder {tmp_path} of"),
    ):
        with pytest.raises(Elsewhere, match=message):
            wrong.enter()


@pytest.mark.parametrize("on", ["somewhere", "ray//x:1", "http://host:80", "host:port", ""])
def test_an_address_that_makes_no_sense_is_refused(on: str) -> None:
    with pytest.raises(UsageError, match="`on` must be local, ray, auto or HOST:PORT"):
        connect(on, 1)


def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    for words in (
        "compare --data moons --methods supervised --seeds 1 --epochs 1",
        "sweep --data moons --method pi --set weight=1,2",
    ):
        assert main([*words.split(), "--on", "ray"]) == 2
        assert "certus: --on a Ray cluster needs the package ray: run `pip install" in capsys.readouterr().err


def test_a_cluster_that_cannot_be_started_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def is_initialized(self) -> bool:
            return False

        def init(self, *_: object, **__: object) -> None:
            raise Exception("It timed out.\nMore.")

    monkeypatch.setattr(ray_pool, "the_ray", lambda _: Broken())
    with pytest.raises(CertusError, match=r"^Ray cannot be reached at host:1: It timed out\.$"):
        connect("host:1", 1)
