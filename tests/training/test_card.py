"""The card of a model says what the run's files say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from builders import keep_random_weights, plain_config, write_pictures

import certus
from certus.certainty.metrics import unconfidence
from certus.cli.main import main
from certus.networks.weights import IMAGENET
from certus.training.artefacts import opened
from certus.training.build import build
from certus.training.card import card_of, last, of_answers, rate, weights, write_card
from certus.training.card_text import markdown, plain
from certus.training.loop import train
from certus.training.run_folder import RunFolder

DIGITS = {"data": "digits", "labels": 100, "width": 4, "labelled_batch": 50}


def card_files(folder: Path) -> tuple[dict, str]:
    return json.loads((folder / "model-card.json").read_text()), (folder / "model-card.md").read_text()


def test_every_finished_run_has_one(tmp_path: Path) -> None:
    config = plain_config("supervised", **DIGITS, validation=60, steps=4)
    result = train(build(config), RunFolder(tmp_path / "run"))
    card, text = card_files(tmp_path / "run")
    assert card["classes"] == list("0123456789")
    assert (card["data"]["labelled"], card["data"]["validation"], card["data"]["test"]) == (100, 60, 540)
    assert card["errors"]["test"]["percent"] == result["test_error"]
    assert card["errors"]["test"]["n"] == 540
    assert card["errors"]["validation"]["n"] == 60
    assert card["class errors"]["percent"] == pytest.approx(result["class_errors"])
    assert card["pretrained weights"] is None
    assert card["calibration"] is None
    assert f"| test | {result['test_error']:.2f} | 540 |" in text
    assert "## Not tested on" in text
    assert "Not calibrated" in text
    assert card["command"] in text
    opened((tmp_path / "run" / "model-card.json").read_text(), {"classes": [str]})  # its seal is whole


def test_it_can_be_written_again_from_the_folder_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(build(plain_config("supervised", **DIGITS, validation=60, steps=2)), RunFolder(tmp_path / "run"))
    before = card_files(tmp_path / "run")
    for file in (tmp_path / "run").glob("model-card.*"):
        file.unlink()
    assert main(["card", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out == before[1]
    assert card_files(tmp_path / "run") == before
    assert main(["card", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {k: v for k, v in before[0].items() if k != "check"}


def test_a_run_that_is_not_finished_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = plain_config("supervised", steps=4, width=4)

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(build(config), RunFolder(tmp_path / "run"), stop, save_seconds=0)
    assert not list((tmp_path / "run").glob("model-card*"))
    assert main(["card", str(tmp_path / "run")]) == 2
    assert "is not finished: train it to the end with --resume" in capsys.readouterr().err
    assert main(["card", str(tmp_path / "nothing")]) == 2
    assert main(["card"]) == 2


def test_calibration_enters_the_card(tmp_path: Path) -> None:
    train(build(plain_config("supervised", **DIGITS, validation=200, steps=60)), RunFolder(tmp_path / "run"))
    known = certus.calibrate(tmp_path / "run", error=60)
    card, text = card_files(tmp_path / "run")
    assert card["calibration"]["labels"] == 200
    assert card["calibration"]["chosen"]["bound"] == pytest.approx(known.chosen.bound)
    assert f"at most {100 * known.chosen.bound:.2f} %" in text


def test_a_folder_without_test_pictures_says_that_nothing_was_tested(tmp_path: Path) -> None:
    names = [f"{c}/{i}.png" for c in ("a|b", "<c>") for i in range(4)]
    data = write_pictures(tmp_path / "data", *names)
    model = certus.train(str(data), method="supervised", steps=1, size=8, width=2, network="cnn13-small",
                         validation=0, labelled_batch=4, out=str(tmp_path / "run"))  # fmt: skip
    assert model.result is not None
    card, text = card_files(tmp_path / "run")
    assert card["errors"] == {"test": None, "validation": None}
    assert card["data"]["validation"] == 0
    assert "No error was measured" in text
    assert "there were no test images" in text
    assert "a\\|b" in text
    assert "\\<c\\>" in text


def test_a_pretraining_run_has_no_answers(tmp_path: Path) -> None:
    words = f"pretrain --data digits --width 4 --steps 1 --threads 1 --out {tmp_path / 'run'}"
    assert main(words.split()) == 0
    card, text = card_files(tmp_path / "run")
    assert not card["answers"]
    assert "pretraining run" in text
    assert "Errors" not in text


def test_coverage_is_what_a_loop_finds() -> None:
    torch.manual_seed(0)
    probabilities, labels = torch.rand(2, 200, 3).softmax(-1), torch.randint(0, 3, (200,))
    probabilities[0, :150] = torch.eye(3)[labels[:150]] * 0.6 + 0.1 + 0.01 * torch.rand(150, 3)
    found = of_answers({"probabilities": probabilities, "labels": labels})
    order = unconfidence(probabilities[0]).argsort(stable=True).tolist()
    right = probabilities[0].argmax(1) == labels
    for error, answered in found["coverage"]["answered"].items():
        fits = [n for n in range(1, 201) if 100 * sum(not right[i] for i in order[:n]) / n <= int(error)]
        assert answered == max(fits, default=0)
    assert found["coverage"]["metric"] == "confidence"
    assert last(torch.tensor([False, False])) == 0


def test_an_interval_holds_its_error_and_shrinks_with_n() -> None:
    few, many = rate(10.0, 50), rate(10.0, 5000)
    assert few is not None
    assert many is not None
    assert few["interval"][0] < many["interval"][0] < 10 < many["interval"][1] < few["interval"][1]
    assert few["interval"] == pytest.approx([4.35, 21.36], abs=0.01)  # as statistical packages give it
    assert rate(0.0, 100)["interval"][0] == 0  # type: ignore[index]
    assert rate(None, 100) is None
    assert rate(5.0, None) == {"percent": 5.0, "n": None, "interval": None}


def test_the_licence_of_pretrained_weights_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CERTUS_WEIGHTS", str(tmp_path / "weights"))
    keep_random_weights()
    base = plain_config("supervised", data="digits", steps=1)
    for network, package in IMAGENET.items():
        found = weights(replace(base, network=network, weights="imagenet"))
        assert found is not None
        assert found["licence"] == package.licence
    assert "unknown" in weights(replace(base, weights="file.pt"))["licence"]  # type: ignore[index]
    assert "that run" in weights(replace(base, init="other"))["licence"]  # type: ignore[index]
    assert weights(base) is None


def test_names_from_outside_stay_on_their_line() -> None:
    assert plain("a\n# b | `c` <i>") == "a # b \\| \\`c\\` \\<i\\>"
    assert plain("\udce9") == "\\\\udce9"


def test_a_card_is_of_its_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    train(build(plain_config("mean-teacher", steps=2, width=4)), folder)
    card = write_card(folder)
    assert card == card_of(folder, folder.load_result())
    assert markdown(card).startswith("# run\n")
