"""The command line as a user types it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from certus import __version__
from certus.cli.main import COMMANDS, main, run
from certus.errors import CertusError, Interrupted, UsageError
from certus.methods import METHODS
from certus.training.run_folder import RunFolder

TINY = "--data moons --width 8 --labelled-batch 6 --unlabelled-batch 50 --threads 1".split()


def certus(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "certus", *words], cwd=cwd, capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two teachers on digits, made by typing the command."""
    folder = tmp_path_factory.mktemp("finished")
    words = "train --data digits --method ft-ccl --labels 20 --seed 0 --teachers 2 --epochs 1 --width 4 --out run"
    done = certus(*words.split(), "--warm-up", "0", "--threads", "1", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Test error" in done.stdout
    assert "teacher 1" in done.stdout
    assert "teacher 2" in done.stdout
    assert "run" in done.stdout.splitlines()[-1]
    assert "epoch 1/1" in done.stderr
    assert "images/s" in done.stderr
    return folder / "run"


def test_a_run_is_a_folder(finished: Path) -> None:
    folder = RunFolder(finished)
    assert folder.load_config().options["teachers"] == 2
    split = json.loads((finished / "split.json").read_text())
    assert len(split["labelled"]) == 20
    assert len(split["validation"]) == 200
    assert json.loads((finished / "environment.json").read_text())["certus"] == __version__
    lines = folder.load_metrics()
    assert [line["epoch"] for line in lines] == [1]
    assert lines[0]["validation_error"] == pytest.approx(sum(lines[0]["validation_errors"]) / 2)
    assert set(lines[0]["losses"]) == {"supervised 1", "consistency 1", "supervised 2", "consistency 2"}
    result = folder.load_result()
    assert result["test_error"] == pytest.approx(sum(result["test_errors"].values()) / 2)
    assert result["test_errors"].keys() == {"teacher 1", "teacher 2"}
    said = load_file(folder.predictions)
    assert said["probabilities"].shape == (2, 540, 10)
    assert said["pv"].shape == (540,)
    assert len(list(folder.checkpoints.iterdir())) == 1


def test_evaluate_agrees_with_the_result(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", str(finished), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["errors"] == pytest.approx(RunFolder(finished).load_result()["test_errors"])
    assert run(["evaluate", str(finished)]) == 0
    shown = capsys.readouterr().out
    assert "540 images" in shown
    assert "teacher 2" in shown


def test_a_run_file_gives_the_same_result_to_the_bit(finished: Path, tmp_path: Path) -> None:
    again = certus("train", "--config", str(finished / "config.toml"), "--out", "again", "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    first, second = RunFolder(finished), RunFolder(tmp_path / "again")
    assert json.loads(again.stdout)["test_error"] == first.load_result()["test_error"]
    assert first.config.read_text() == second.config.read_text()
    a, b = (next(f.checkpoints.glob("*/state.safetensors")).read_bytes() for f in (first, second))
    assert a == b


def test_resuming_a_finished_run_prints_its_result(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--resume", str(finished)]) == 0
    out = capsys.readouterr()
    assert "finished" in out.err
    assert "Test error" in out.out


def test_minutes_are_written_down_as_steps(here: Path) -> None:
    assert run(["train", *TINY, "--method", "supervised", "--minutes", "0.01", "--out", "run"]) == 0
    assert RunFolder(here / "run").load_config().steps == RunFolder(here / "run").load_result()["steps"] > 1


def test_runs_without_a_name_get_free_ones(here: Path) -> None:
    for _ in range(2):
        assert run(["train", *TINY, "--method", "supervised", "--steps", "2"]) == 0
    assert sorted(p.name for p in (here / "runs").iterdir()) == [
        "moons-supervised-6-seed0",
        "moons-supervised-6-seed0-2",
    ]


def test_flags_override_a_run_file(finished: Path, here: Path) -> None:
    words = ["train", "--config", str(finished / "config.toml"), "--steps", "1", "--draws", "2", "--out", "run"]
    assert run(words) == 0
    config = RunFolder(here / "run").load_config()
    assert (config.steps, config.options["draws"], config.options["teachers"], config.width) == (1, "2", 2, 4)


def test_another_method_does_not_inherit_the_options_of_a_run_file(finished: Path, here: Path) -> None:
    words = ["train", "--config", str(finished / "config.toml"), "--method", "mean-teacher", "--steps", "1"]
    assert run([*words, "--out", "run"]) == 0
    config = RunFolder(here / "run").load_config()
    assert (config.method, config.options["teachers"], config.width) == ("mean-teacher", 1, 4)


def test_zero_steps_are_those_of_the_epochs(here: Path) -> None:
    assert run(["train", *TINY, "--method", "supervised", "--steps", "0", "--epochs", "0.5", "--out", "run"]) == 0
    assert RunFolder(here / "run").load_result()["steps"] == 8


def test_version_and_help_need_no_command() -> None:
    done = certus("--version", cwd=Path.cwd())
    assert (done.returncode, done.stdout) == (0, f"certus {__version__}\n")
    done = certus("--help", cwd=Path.cwd())
    assert done.returncode == 0
    assert all(name in done.stdout for name in COMMANDS)


def test_methods_in_full_has_recipes_and_references(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["methods", "--full"]) == 0
    shown = capsys.readouterr().out
    assert run(["methods", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in listed] == list(METHODS)
    for entry in listed:
        assert entry["name"] in shown
        assert entry["reference"] in shown
        assert all(line.strip() in shown for line in entry["recipe"].splitlines()[1:])
    assert run(["methods", "vat", "--json"]) == 0
    (vat,) = json.loads(capsys.readouterr().out)
    assert vat == next(entry for entry in listed if entry["name"] == "vat")
    assert vat["options"]["iterations"] == {
        "default": 1,
        "help": "power iterations",
        "source": "Miyato, Maeda, Koyama & Ishii 2018",
    }


def test_data_lists_the_data_sets(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data"]) == 0
    assert "digits" in capsys.readouterr().out
    assert run(["data", "--json"]) == 0
    digits = next(d for d in json.loads(capsys.readouterr().out) if d["name"] == "digits")
    assert (digits["train"], digits["test"], digits["shape"]) == (1257, 540, [1, 8, 8])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("trian", "There is no command 'trian'. Did you mean 'train'?"),
        ("train --lables 3", "There is no option '--lables'. Did you mean '--labels'?"),
        ("train --method ft-cll", "There is no method 'ft-cll'. Did you mean 'ft-ccl'?"),
        ("train --data digit", "There is no data set 'digit'. Did you mean 'digits'?"),
        ("train --labels 5000", "too few for 5000 labels"),
        ("train --labels 3", "cannot cover the 10 classes"),
        ("train --teachers 0", "--teachers must be at least 1, but is 0."),
        ("train --weight -1", "--weight must be at least 0, but is -1."),
        ("train --method supervised --teachers 2", "Method supervised has no option --teachers."),
        ("train --labels many", "--labels must be a whole number, but is 'many'."),
        ("train --labels", "--labels needs a value."),
        ("train digits", "certus train does not understand 'digits'."),
        ("train --method ft-cll --help", "There is no method 'ft-cll'. Did you mean 'ft-ccl'?"),
        ("train --lables 3 --help", "There is no option '--lables'. Did you mean '--labels'?"),
        ("train --hard maybe", "certus train does not understand 'maybe'."),
        ("train --steps -1", "--steps must be more than 0, but is -1."),
        ("pretrain --labels 20", "There is no option '--labels'."),
        ("pretrain --epochs 0", "--epochs must be more than 0, but is 0."),
        ("train --metric random --draws 3", "--draws would change nothing: metric random needs no draws."),
        ("train --epochs 3 --minutes 1", "Give only one of --epochs, --minutes."),
        ("train --minutes 0", "--minutes must be more than 0"),
        ("train --translate 8 --steps 1", "--translate must be less than the shorter side of the images, 8 pixels"),
        ("train --epochs inf", "--epochs must be at most 99,999,999, but is inf."),
        ("train --epochs 1e9", "--epochs must be at most"),
        ("train --minutes inf", "--minutes must be at most 99,999,999, but is inf."),
        ("train --learning-rate 1e308", "--learning-rate must be between 0 and 1,000, but is 1e+308."),
        ("train --beta inf", "--beta must be a finite number, but is inf."),
        ("train --noise nan", "--noise must be a finite number, but is nan."),
        ("train --width 1000000", "--width must be between 0 and 4,096, but is 1000000."),
        ("train --threads 1000000", "--threads must be between 0 and 1,024, but is 1000000."),
        (f"train --seed {'9' * 5000}", "--seed must be a whole number, but is '999"),
        ("train --draws tree:1000000x1000000", "--draws must be at most 10,000 in all"),
        ("train --draws 99999999999", "--draws must be at most 10,000 in all"),
        ("train --save-seconds nan --steps 1", "--save-seconds must be at least 0, but is nan."),
        ("compare --seeds 1000000000", "--seeds must be at most 10,000"),
        ("compare --epochs nan", "--epochs must be more than 0, but is nan."),
        ("evaluate no-such --draws 1000000000", "--draws must be at most 100,000"),
        ("train --config no-such.toml", "Cannot read no-such.toml"),
        ("train --resume no-such", "no-such holds no run"),
        ("train --resume no-such --labels 3", "leave out --labels"),
        ("train --out taken", "taken already holds a run"),
        ("train --out a-file", "a-file is a file"),
        ("evaluate", "certus evaluate needs the folder of a run."),
        ("evaluate no-such", "no-such holds no run"),
        ("evaluate no-such --draws -1", "--draws must be at least 0, but is -1."),
        ("evaluate no-such --draws 0 --metric pe", "Without draws there is no pe to rank by: use --metric confidence."),
        ("evaluate no-such --metric vp", "There is no metric 'vp'."),
        ("predict", "certus predict needs the folder of a run, and a folder of pictures or one picture."),
        ("report", "certus report needs the folder of a run, or of a comparison."),
        ("report no-such", "There is no folder no-such."),
        ("paper tabel1", "There is no experiment 'tabel1'. Did you mean 'table1'?"),
        ("paper table1 --scale cpu --seeds 0", "--seeds must be at least 1, but is 0."),
        ("methods ft-cll", "There is no method 'ft-cll'. Did you mean 'ft-ccl'?"),
        ("data fetch", "certus data fetch NAME downloads one."),
        ("compare --methods supervised,nothing", "There is no method 'nothing'"),
        ("compare --methods pi,pi", "must name each method once"),
        ("compare --seeds 0", "--seeds must be at least 1"),
        ("compare --workers 0", "--workers must be at least 1"),
        ("compare --methods supervised --teachers 2", "None of supervised has an option --teachers"),
        ("compare --labels 3", "cannot cover the 10 classes"),
    ],
)
def test_bad_input_gets_one_sentence_and_code_2(
    words: str, sentence: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "taken").mkdir()
    (here / "taken" / "config.toml").write_text("")
    (here / "a-file").write_text("")
    assert main(words.split()) == 2
    out, err = capsys.readouterr()
    assert sentence in err
    assert err.startswith("certus: ")
    assert len(err.splitlines()) == 1
    assert out == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_an_unknown_flag(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--nonsense"]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("certus: There is no option '--nonsense'.")
    assert len(err.splitlines()) == 1
    assert out == ""


def test_an_error_of_the_library_names_flags(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise UsageError("`learning_rate` must be less, or use `no_balanced`, `beta` and `out`, not `anything`.")

    monkeypatch.setattr("certus.cli.report.write_report", refuse)
    assert main(["report", str(here)]) == 2
    sentence = "certus: --learning-rate must be less, or use --no-balanced, --beta and --out, not `anything`.\n"
    assert capsys.readouterr().err == sentence


def test_errors_reach_the_shell_without_a_traceback(tmp_path: Path) -> None:
    done = certus("train", "--method", "ft-cll", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("certus: There is no method 'ft-cll'.")
    assert len(done.stderr.splitlines()) == 1


def test_a_loss_that_becomes_nan_stops_with_step_term_and_checkpoint(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", *TINY, "--learning-rate", "1000", "--steps", "50", "--save-seconds", "0", "--out", "run"]
    assert main(words) == 1
    sentence = capsys.readouterr().err.splitlines()[-1]
    found = re.search(r"The loss became nan in step (\d+), term 'supervised'", sentence)
    assert found
    assert "try a smaller --learning-rate or --weight" in sentence
    (kept,) = RunFolder(here / "run").checkpoints.iterdir()
    assert kept.name == f"step-{int(found[1]) - 1:08d}"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", ["train", "pretrain"])
def test_a_stopped_run_says_how_to_go_on(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise Interrupted("Stopped after step 1 of 2; everything is saved.")

    monkeypatch.setattr("certus.cli.train.train", stop)
    assert main([command, "--width", "2", "--steps", "2", "--out", "my run"]) == 130
    sentence = "everything is saved. Go on with: certus train --resume 'my run'\n"
    assert capsys.readouterr().err.endswith(sentence)


@pytest.mark.usefixtures("here")
def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("certus.training.checkpoint.write_new", full)
    assert main(["train", *TINY, "--method", "supervised", "--steps", "2", "--out", "run"]) == 1
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert "No space left on device" in sentence
    assert "--resume run" in sentence


def test_a_truncated_checkpoint_is_refused(here: Path) -> None:
    assert run(["train", *TINY, "--method", "supervised", "--steps", "2", "--out", "run"]) == 0
    path = next((here / "run" / "checkpoints").glob("*/state.safetensors"))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CertusError, match="is damaged"):
        run(["evaluate", "run"])
