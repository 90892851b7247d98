"""A run that is exported: the file, what it answers without torch, what is refused."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

import certus
from certus import export as exporting
from certus.cli.main import main
from certus.data import load as load_data
from certus.errors import CertusError, UsageError
from certus.export.onnx_file import answers_of, session, with_bytes
from certus.onnx import OnnxModel
from certus.serving.answerer import open_answerer

SETTINGS = {"method": "mean-teacher", "width": 16, "labelled_batch": 64, "unlabelled_batch": 64, "precision": "fp32"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a warm-up, so with a witness, and calibrated by draws."""
    out = tmp_path_factory.mktemp("exported") / "run"
    certus.train("digits", labels=200, steps=40, warm_up=0.5, out=out, threads=1, **SETTINGS)
    certus.calibrate(out, error=50, metric="pe", draws=3)
    return out


@pytest.fixture(scope="module")
def file(run: Path) -> Path:
    out = run.with_name("model.onnx")
    assert main(["export", str(run), "--out", str(out), "--draws", "3"]) == 0
    return out


def pictures(count: int = 12) -> np.ndarray:
    digits = load_data("digits").test.images[:count].numpy()
    return np.ascontiguousarray(np.repeat(digits, 3, 1).transpose(0, 2, 3, 1).astype(np.uint8))


def test_the_file_is_served_as_the_run_is(file: Path, run: Path) -> None:
    served, expected = open_answerer(file), open_answerer(run)
    assert served.about == replace(expected.about, name="model")
    assert served.about.promise
    images = pictures().transpose(0, 3, 1, 2)
    a, b = served.answer(images), expected.answer(images)
    np.testing.assert_allclose(a.probabilities, b.probabilities, atol=1e-4)
    np.testing.assert_allclose(a.uncertainty["witness"], b.uncertainty["witness"], atol=1e-3)
    assert a.answered is not None
    assert a.answered.tolist() == (a.uncertainty["pe"] < (served.about.limit or np.inf)).tolist()
    with pytest.raises(UsageError, match="exported with 3 draws"):
        open_answerer(file, draws=0)


def test_the_file_answers_as_the_run_does_for_any_number_of_pictures(file: Path, run: Path) -> None:
    model, exported = certus.load(run), OnnxModel(file, threads=1)
    own = model.predict(pictures()[..., :1], draws=3)
    for some in (slice(0, 12), slice(3, 4)):
        given = exported.predict(pictures()[some])
        assert np.abs(given["probabilities"] - own.probabilities[some]).max() < 1e-5
        assert np.array_equal(given["label"], own.labels[some])
        assert np.allclose(given["confidence"], own.probabilities[some].max(1), atol=1e-5)
        assert given["answered"].dtype == bool
        columns = dict(zip(exported.columns, given["uncertainty"].T, strict=True))
        assert set(columns) == {"confidence", "pe", "pv", "mi", "ev", "witness"}
        assert np.allclose(columns["witness"], own.uncertainty["witness"][some], atol=1e-5)


def test_the_seed_is_an_input_with_a_default(file: Path) -> None:
    ready = session(onnx.load(file))
    default = dict(zip([o.name for o in ready.get_outputs()], ready.run(None, {"images": pictures()}), strict=True))
    zero, one = (answers_of(ready, pictures(), seed) for seed in (0, 1))
    assert np.array_equal(default["uncertainty"], zero["uncertainty"])
    assert not np.array_equal(one["uncertainty"][:, 1], zero["uncertainty"][:, 1])
    assert np.array_equal(one["probabilities"], zero["probabilities"])


def test_the_metadata_say_what_the_file_is_and_not_where_it_was_made(file: Path, run: Path) -> None:
    about = OnnxModel(file).about
    assert about["classes"] == list("0123456789")
    assert about["version"] == certus.__version__
    assert (about["draws"], about["data"], about["inputs"]) == (3, "digits", [1, 8, 8])
    assert about["weights"] == certus.load(run).digest
    assert about["calibration"]["labels"] == 200
    assert about["calibration"]["chosen"]["bound"] <= 0.5
    assert str(Path.cwd()).encode() not in file.read_bytes()
    assert b"site-packages" not in file.read_bytes()
    onnx.checker.check_model(onnx.load(file))


WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from certus.onnx import main; sys.exit(main(sys.argv[1:]))"


def test_pictures_are_answered_without_torch_as_certus_predict_does(file: Path, run: Path, tmp_path: Path) -> None:
    for i, pixels in enumerate(pictures(5)):
        large = Image.fromarray(pixels * 15).resize((31 + i % 2, 24))
        large.convert("RGBA" if i == 3 else "L").save(tmp_path / f"{i}.png")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    words = [sys.executable, "-c", WITHOUT_TORCH, str(file), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "broken.png was left out" in done.stderr
    answers = list(csv.DictReader(io.StringIO(done.stdout)))
    out = tmp_path / "own.csv"
    assert main(["predict", str(run), str(tmp_path), "--out", str(out), "--draws", "3"]) == 0
    own = list(csv.DictReader(out.read_text().splitlines()))
    assert [Path(a["file"]).name for a in answers] == [o["file"] for o in own]
    for a, o in zip(answers, own, strict=True):
        assert (a["label"], a.keys() >= {"answered", "pe", "pv", "mi"}) == (o["label"], True)
        assert float(a["confidence"]) == pytest.approx(float(o["confidence"]), abs=1e-4)
        assert float(a["witness"]) == pytest.approx(float(o["witness"]), abs=1e-4)


def test_the_reader_refuses_in_a_sentence(tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.onnx").write_bytes(b"nothing")
    from certus.onnx import main as answer

    for words in ([tmp_path / "other.onnx", tmp_path], [file, tmp_path / "missing"], [file, tmp_path]):
        assert answer([str(word) for word in words]) == 2
        said = capsys.readouterr().err
        assert said.startswith("certus: ")
        assert said.count("\n") == 1


def test_weights_of_8_bits_are_smaller_and_nearly_the_same(file: Path) -> None:
    proto = onnx.load(file)
    small = with_bytes(proto)
    large = sum(len(t.raw_data) for t in proto.graph.initializer if t.data_type == 1 and len(t.raw_data) >= 4096)
    assert proto.ByteSize() - small.ByteSize() > 0.6 * large > 10_000
    before, after = (answers_of(session(p), pictures()) for p in (proto, small))
    difference = np.abs(before["probabilities"] - after["probabilities"]).max()
    assert 0 < difference < 0.1


def test_a_file_that_answers_differently_is_not_written(
    file: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proto = onnx.load(file)
    largest = max(proto.graph.initializer, key=lambda t: len(t.raw_data))
    weights = onnx.numpy_helper.to_array(largest).copy()
    weights.flat[: weights.size // 4] *= 1.5
    largest.raw_data = weights.tobytes()
    monkeypatch.setattr(exporting, "onnx_model", lambda *_: proto)
    out = tmp_path / "model.onnx"
    assert main(["export", str(run), "--out", str(out), "--draws", "3"]) == 1
    assert "The exported answers differ from those of certus by" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_file_that_ranks_differently_is_not_written(file: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = onnx.load(file)
    monkeypatch.setattr(exporting, "onnx_model", lambda *_: proto)
    monkeypatch.setattr(exporting.agreement, "masked_metrics", lambda *_: {"pe": np.arange(100.0)})
    monkeypatch.setattr(exporting.graph.Graph, "columns", ("confidence", "pe"))
    with pytest.raises(CertusError, match="ranks the pictures differently"):
        exporting.export(run, file.with_name("other.onnx"), draws=3)
    assert not file.with_name("other.onnx").exists()


def test_a_run_on_vectors_as_a_program_of_torch(tmp_path: Path) -> None:
    certus.train("moons", method="supervised", steps=20, out=tmp_path / "run", threads=1, precision="fp32")
    made = exporting.export(tmp_path / "run", tmp_path / "model.pt2", format="torch-export", draws=2)
    assert made.agreement is not None
    assert made.agreement.probability < 1e-5
    assert made.bytes == (tmp_path / "model.pt2").stat().st_size
    program = torch.export.load(tmp_path / "model.pt2").module()
    given = program(torch.zeros(5, 2), torch.tensor(0))
    assert np.allclose(given[1].numpy(), certus.load(tmp_path / "run").predict(np.zeros((5, 2))).probabilities)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ([], 2, "needs the folder of a run"),
        (["RUN", "--format", "pdf"], 2, "no format 'pdf'"),
        (["RUN", "--out", "model.txt"], 2, "ends in .onnx"),
        (["RUN", "--draws", "1"], 2, "--draws must be 0 or from 2"),
        (["RUN", "--format", "huggingface", "--int8"], 2, "8 bits"),
        (["nowhere"], 2, "holds no run"),
    ],
)
def test_what_makes_no_sense_is_refused(
    words: list[str], code: int, text: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", *(str(run) if w == "RUN" else w for w in words)]) == code
    assert text in capsys.readouterr().err


def test_the_extra_is_named_when_it_is_missing(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert main(["export", str(run)]) == 2
    assert "pip install 'certus-ssl[export]'" in capsys.readouterr().err


def test_a_folder_in_the_way_of_hugging_face_is_read_back(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "folder"
    assert main(["export", str(run), "--format", "huggingface", "--out", str(out)]) == 0
    assert sorted(p.name for p in out.iterdir()) == ["config.json", "model.safetensors"]
    about = json.loads((out / "config.json").read_text())
    assert about["id2label"]["3"] == "3"
    own, back = certus.load(run), certus.load(out)
    assert back.calibration == own.calibration
    a, b = (model.predict(pictures()[..., :1], draws=3) for model in (own, back))
    assert np.array_equal(a.probabilities, b.probabilities)
    assert all(np.array_equal(a.uncertainty[name], b.uncertainty[name]) for name in a.uncertainty)
    assert np.array_equal(a.answered, b.answered)
    assert main(["export", str(run), "--format", "huggingface", "--out", str(run)]) == 2
    data = (out / "model.safetensors").read_bytes()
    (out / "model.safetensors").write_bytes(data[:-8] + b"\x01" * 8)
    with pytest.raises(CertusError, match=r"model\.safetensors is damaged"):
        certus.load(out)
    (out / "config.json").write_text((out / "config.json").read_text().replace("ft-ccl", "pi").replace("0.5", "0.6"))
    with pytest.raises(CertusError, match=r"config\.json is damaged"):
        certus.load(out)
