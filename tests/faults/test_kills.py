"""A kill and a full disk before every operation on the disk: a run, a resume, predictions and a report."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from faults.harness import FULL, KILLED, SEED, Outcome, chosen, command, drawn_once, forked, unflushed
from PIL import Image

MOONS = "--data moons --method supervised --width 4 --labelled-batch 6 --validation 10 --threads 1 --steps 4"
TRAIN = ["train", *MOONS.split(), "--save-seconds", "0", "--out", "run"]
DIGITS = "--data digits --method supervised --width 2 --labelled-batch 10 --threads 1 --steps 2"
VARYING = ("seconds", "time", "images_per_second")  # what no two runs have in common
FEW = 3  # operations of the first part, unless at full length; of the others, one


def artefacts(folder: Path) -> dict[str, object]:
    """What a finished run holds, without what no two runs have in common. Each file must open."""
    import certus
    from certus.training import checkpoint
    from certus.training.run_folder import RunFolder

    run = RunFolder(folder)
    model, found = certus.load(folder), checkpoint.read(run.checkpoints)
    assert found
    assert model.result
    return {
        "files": sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()),
        "state": next(run.checkpoints.glob("*/state.safetensors")).read_bytes(),
        "predictions": run.predictions.read_bytes(),
        "metrics": [{k: v for k, v in line.items() if k not in VARYING} for line in run.load_metrics()],
        "result": {k: v for k, v in run.load_result().items() if k not in (*VARYING, "bytes")},
        "config": run.load_config(),
        "split": run.split.read_bytes(),
        "model": run.model.read_bytes(),
        "answers": model.predict(np.zeros((2, 2), np.float32), draws=0).probabilities.tolist(),
    }


def go_on(root: Path) -> dict[str, object]:
    """Do what the user would do after a failure: resume the run, or begin it again if there is none yet."""
    from certus.training.run_folder import RunFolder

    begun = RunFolder(root / "run").exists()
    assert command(str(root), ["train", "--resume", "run"] if begun else TRAIN) == 0
    return artefacts(root / "run")


def litter(root: Path) -> list[str]:
    """Files that are none of certus's artefacts: half-written ones and locks."""
    return [str(p.relative_to(root)) for p in root.rglob(".*")]


def check_failure(done: Outcome, failure: str, left: set[str], at: str) -> None:
    """A killed process is gone; a full disk is one sentence that names a file, and nothing half-written is left."""
    if failure == "kill":
        assert done.code == KILLED, at
        return
    assert done.code in (0, 1), (at, done.err)
    assert "Traceback" not in done.err, (at, done.err)
    assert not left, at
    if done.code:
        (sentence,) = (line for line in done.err.splitlines() if line.startswith("certus: "))
        assert "No space left on device" in sentence, at
        assert any(name in sentence for name in ("run", "out", "page", "figures")), (at, sentence)


class Campaign:
    """Each part replays a command with failures; `again` restores what was before it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.counts = folder, dict.fromkeys(("operations", "kill", "full"), 0)
        self.before, self.root = folder / "before", folder / "work"

    def again(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.before, self.root)

    def replay(
        self, words: list[str], check: Callable[[], None], few: int, do: Callable[..., int] = command
    ) -> Iterator[str]:
        """Yields the name of each failure, after it has happened."""
        self.again()
        whole = forked(self.root, do, str(self.root), words)
        assert whole.code == 0, whole.err
        assert not litter(self.root)
        assert not unflushed(whole.operations)
        check()
        self.counts["operations"] += len(whole.operations)
        for failure in ("kill", "full"):
            for n in chosen(len(whole.operations), few):
                self.again()
                at = f"{failure} before operation {n} of {words[0]}: {' '.join(whole.operations[n - 1])}"
                done = forked(self.root, do, str(self.root), words, failure=failure, at=n)
                self.counts[failure] += 1
                check_failure(done, failure, set(litter(self.root)) - set(litter(self.before)), at)
                yield at

    def report(self, capsys: pytest.CaptureFixture[str], name: str) -> None:
        c = self.counts
        with capsys.disabled():
            print(f"\n{name}: {c['kill']} kills, {c['full']} full disks at {c['operations']} operations, seed {SEED}")


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    made = Campaign(tmp_path)
    made.before.mkdir()
    return made


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    """A run that nothing has disturbed."""
    root = tmp_path_factory.mktemp("whole") / "work"
    root.mkdir()
    done = forked(root, go_on, root)
    assert done.value, done.err
    return root / "run", done.value


def test_a_run_comes_to_the_same_end_whatever_its_disk_does(
    campaign: Campaign, whole: tuple[Path, dict[str, object]], capsys: pytest.CaptureFixture[str]
) -> None:
    for at in campaign.replay(TRAIN, lambda: None, few=FEW):
        after = forked(campaign.root, go_on, campaign.root)
        assert after.value == whole[1], (at, after.err)
        assert not litter(campaign.root), at
    campaign.report(capsys, "train")


def test_a_resumed_run_comes_to_the_same_end_whatever_its_disk_does(
    campaign: Campaign, whole: tuple[Path, dict[str, object]], capsys: pytest.CaptureFixture[str]
) -> None:
    """It was killed after the second step, before the checkpoint of the first was removed."""
    root = campaign.before
    campaign.again()
    operations = forked(campaign.root, command, str(campaign.root), TRAIN).operations
    at = operations.index(("remove", "run/checkpoints/step-00000001/state.json"))
    done = forked(root, command, str(root), TRAIN, failure="kill", at=at + 1)
    assert done.code == KILLED
    assert len(list((root / "run" / "checkpoints").iterdir())) == 2
    words = ["train", "--resume", "run", "--save-seconds", "0"]
    for place in campaign.replay(words, lambda: None, few=1):
        after = forked(campaign.root, go_on, campaign.root)
        assert after.value == whole[1], (place, after.err)
        assert not litter(campaign.root), place
    campaign.report(capsys, "resume")


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_predictions_are_the_old_or_the_new_ones(
    kind: str, campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    root = campaign.before
    assert forked(root, command, str(root), ["train", *DIGITS.split(), "--out", "run"]).code == 0
    for i in range(3):
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (8, 8), dtype=np.uint8)).save(root / f"{i}.png")
    out = f"out.{kind}"
    (root / out).write_text("old")
    words = ["predict", "run", ".", "--out", out, "--draws", "2"]
    check_outputs(campaign, words, [out])
    campaign.report(capsys, f"predict {kind}")


def test_a_report_is_the_old_or_the_new_one(
    campaign: Campaign, whole: tuple[Path, dict[str, object]], capsys: pytest.CaptureFixture[str]
) -> None:
    root = campaign.before
    shutil.copytree(whole[0], root / "run")
    (root / "figures").mkdir()
    for name in ("page.html", "figures/errors-while-training.svg"):
        (root / name).write_text("old")
    figures = ["--figures", "figures"] if FULL else []  # they take most of the time
    check_outputs(campaign, ["report", "run", "--out", "page.html", *figures], ["page.html", "figures"])
    campaign.report(capsys, "report")


def check_outputs(campaign: Campaign, words: list[str], names: list[str]) -> None:
    """After a failure each file is as it was before, or as it should be; the same command then succeeds."""
    new: dict[str, bytes] = {}
    old = contents(campaign.before, names)

    def remember() -> None:
        new.update(contents(campaign.root, names))
        assert all(new[name] != b"old" for name in new if name == names[0])

    for at in campaign.replay(words, remember, 1, drawn_once):
        for name, content in contents(campaign.root, names).items():
            if not Path(name).name.startswith("."):
                assert content in (old.get(name), new[name]), (at, name)
        after = forked(campaign.root, drawn_once, str(campaign.root), words)
        assert after.code == 0, (at, after.err)
        assert contents(campaign.root, names) == new, at
        assert not litter(campaign.root), at


def contents(root: Path, names: list[str]) -> dict[str, bytes]:
    files = [p for name in names for p in [root / name, *(root / name).rglob("*")] if p.is_file()]
    return {str(p.relative_to(root)): p.read_bytes() for p in files}


def test_the_harness_sees_what_it_should(tmp_path: Path) -> None:
    """A writer that does not rename, does not flush and does not tidy up is found out."""
    root = tmp_path / "work"
    root.mkdir()
    done = forked(root, careless, root)
    assert done.operations == (("open", ".part"), ("write", ".part"), ("rename", ".part"), ("mkdir", "folder"))
    assert unflushed(done.operations) == [".part", "."]
    assert forked(root, careless, root, failure="kill", at=2).code == KILLED
    (root / ".part").unlink()
    full = forked(root, careless, root, failure="full", at=2)
    assert full.value == "No space left on device"
    assert litter(root) == [".part"]
    assert (root / ".part").read_text() == "12"


def careless(root: Path) -> str:
    try:
        with (root / ".part").open("wb") as file:
            file.write(b"1234")
        (root / ".part").replace(root / "file")
        (root / "folder").mkdir(exist_ok=True)
    except OSError as e:
        return e.strerror or ""
    return "done"
