"""Every file of a run is damaged in every way; then the run is resumed, asked, reported and compared.

Each outcome is a success with the same result or a sentence: never a traceback, never silently another result.
"""

from __future__ import annotations

import io
import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import write_pictures
from experiments.inline import Serial
from faults.campaign import DAMAGE, FULL, SEED, Outcome, odd_json, tell
from matplotlib.figure import Figure

from certus.experiments import compare
from certus.training.build import build
from certus.training.loop import train
from certus.training.run_folder import RunFolder

COUNT = 1_200 if FULL else 40  # mutations, each followed by one command
TINY = "--data digits --labels 10 --unlabelled 40 --validation 20 --width 2 --labelled-batch 10 --unlabelled-batch 20"
METHOD = "mean-teacher"
VARYING = ("seconds", "time", "images_per_second", "check")
FINISHED = ("load", "report", "compare", "predict")
STOPPED = ("resume", "report", "predict")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are composed but not rendered, and no process is started."""

    def save(self: Figure, target: Any, **_: Any) -> None:  # noqa: ARG001
        if hasattr(target, "write"):
            target.write("<svg></svg>" if isinstance(target, io.TextIOBase) else b"<svg></svg>")

    monkeypatch.setattr(Figure, "savefig", save)
    monkeypatch.setattr(compare, "open_pool", Serial)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runs/: a comparison of two finished seeds; stopped/: a run that was stopped after its fourth step; pictures/."""
    root = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "open_pool", Serial)
        patch.setattr(Figure, "savefig", lambda *_, **__: None)
        made = Outcome(compare_words(root))
        assert made.code == 0, made.err
    config = RunFolder(root / "runs" / f"{METHOD}-seed0").load_config()

    def stop(tick: Any) -> None:
        if tick.step == 5:  # the fourth is saved
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(build(config), RunFolder(root / "stopped"), stop, save_seconds=0)
    write_pictures(root / "pictures", "a.png", "b.png", "c.png")
    return root


def compare_words(root: Path) -> list[str]:
    words = f"compare {TINY} --methods {METHOD} --seeds 2 --epochs 3 --workers 1 --json --out".split()
    return [*words, str(root / "runs")]


def seed0(root: Path) -> Path:
    return root / "runs" / f"{METHOD}-seed0"


def ask(root: Path, command: str, run: Path) -> tuple[Outcome, str]:
    """Let a command use a run; what it did, and its result as text that is the same whenever the result is."""
    if command == "compare":
        outcome = Outcome(compare_words(root))
        found = json.loads(outcome.out)["methods"] if outcome.out else {}
        return outcome, json.dumps({name: row["test_error"] for name, row in found.items()})
    if command == "load":
        outcome = Outcome(["train", "--resume", str(run), "--json"])
        return outcome, re.sub(r'"(seconds|folder)": [^,}]*', "", outcome.out)
    if command == "resume":
        outcome = Outcome(["train", "--resume", str(run)])
        return outcome, state_of(run) if not outcome.code else ""
    out = root / ("page.html" if command == "report" else "answers.csv")
    out.unlink(missing_ok=True)
    inputs = [str(root / "pictures")] if command == "predict" else []
    outcome = Outcome([command, str(run), *inputs, "--out", str(out)])
    return outcome, out.read_text() if out.exists() else ""


def state_of(run: Path) -> str:
    """The weights, the result and the metrics of a run, without times."""
    folder = RunFolder(run)
    lines = [{k: v for k, v in line.items() if k not in VARYING} for line in folder.load_metrics()]
    weights = {p.name: p.read_bytes().hex() for p in folder.checkpoints.glob("step-*/state.safetensors")}
    return json.dumps([weights, lines, {k: v for k, v in folder.load_result().items() if k not in VARYING}])


def damage(path: Path, r: random.Random) -> tuple[str, bool]:
    """Damage a file or remove it; how, and whether the damage must be noticed if it changes the result."""
    data = path.read_bytes()
    kinds: list[Callable[[bytes, random.Random], bytes]] = list(DAMAGE)
    chance = r.random()
    if chance < 0.08:
        path.unlink()
        return "deleted", True
    if chance < 0.16:
        path.unlink()
        path.mkdir()
        return "a folder in its place", True
    if chance < 0.4 and path.suffix in (".json", ".jsonl"):
        unsealed = r.random() < 0.5
        path.write_bytes(odd_json(data, r, unsealed))
        return f"odd value{', unsealed' * unsealed}", not unsealed
    kind = r.choice(kinds)
    path.write_bytes(kind(data, r))
    return kind.__name__, True


def test_a_damaged_file_of_a_run_is_named_or_changes_nothing(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [("finished", command) for command in FINISHED] + [("stopped", command) for command in STOPPED]
    intact, files = {}, {}
    for kind, command in cases:
        root = copy_of(whole, tmp_path / "good", kind)
        run = root / "stopped" if kind == "stopped" else seed0(root)
        files[kind] = sorted(str(p.relative_to(run)) for p in run.rglob("*") if p.is_file())
        outcome, intact[kind, command] = ask(root, command, run)
        assert outcome.code == 0, outcome.err
        assert intact[kind, command]
    counts: Counter[str] = Counter()
    for i in range(COUNT):
        r = random.Random(f"{SEED} mutation {i}")
        kind, command = cases[i % len(cases)]
        name = files[kind][i // len(cases) % len(files[kind])]
        root = copy_of(whole, tmp_path / "damaged", kind)
        run = root / "stopped" if kind == "stopped" else seed0(root)
        how, noticed = damage(run / name, r)
        what = f"seed {SEED}, mutation {i}: {name} {how}, then {command} of a {kind} run"
        try:
            outcome, result = ask(root, command, run)
            outcome.check()
        except BaseException as e:
            raise AssertionError(what) from e
        same = result.replace("damaged", "good") == intact[kind, command].replace("damaged", "good")
        told = outcome.code or Path(name).name in outcome.err
        assert same or told or not noticed or name == HARMLESS, f"{what}: another result, without a word"
        counts[f"{outcome.kind}{'' if same or outcome.code else ', told' if told else ', unsealed'}"] += 1
    tell(capsys, "mutations", counts)
    assert counts["success"]
    assert counts["sentence"]


HARMLESS = "environment.json"  # a report names the version in it; no result depends on it


def copy_of(whole: Path, root: Path, kind: str) -> Path:
    """A fresh copy of the runs; the digits of the path's name do not matter."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(whole / "runs", root / "runs")
    shutil.copytree(whole / "pictures", root / "pictures")
    if kind == "stopped":
        shutil.copytree(whole / "stopped", root / "stopped")
    return root
