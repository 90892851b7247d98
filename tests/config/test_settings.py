from __future__ import annotations

import tomllib
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest
import torch

from certus.config import Config, resolve
from certus.errors import UsageError
from certus.methods import METHODS
from certus.training.build import build
from certus.training.planning import complete
from certus.training.run_folder import RunFolder

TINY = {"data": "moons", "steps": 3, "threads": 1, "width": 8, "labelled_batch": 6, "unlabelled_batch": 10}
TINY_DIGITS = {"data": "digits", "steps": 2, "threads": 1, "width": 2, "labelled_batch": 10, "unlabelled_batch": 10}

STRONG = TINY_DIGITS | {
    "method": "mean-teacher",
    "warm_up": 0.0,
    "strong": "randaugment",
    "options": {"student_view": "strong"},
}

# A value other than the preset's for every setting, on the smallest data that the setting applies to.
OTHERS: dict[str, tuple[dict[str, object], object]] = {
    "data": (TINY_DIGITS | {"network": "mlp", "noise": 0.1, "translate": 0}, None),
    "method": (TINY, "mean-teacher"),
    "labels": (TINY, 9),
    "seed": (TINY, 1),
    "validation": (TINY, 100),
    "unlabelled": (TINY, 30),
    "balanced": (TINY | {"labels": 20}, False),
    "balance": (TINY | {"labels": 20}, "batches"),
    "label_noise": (TINY | {"labels": 20}, 0.5),
    "network": (TINY_DIGITS, "mlp"),
    "width": (TINY, 9),
    "dropout": (TINY, 0.45),
    "translate": (TINY_DIGITS, 3),
    "flip": (TINY_DIGITS, True),
    "noise": (TINY, 0.77),
    "labelled_batch": (TINY, 7),
    "unlabelled_batch": (TINY, 11),
    "steps": (TINY, 4),
    "clock": (TINY | {"method": "ft-ccl"}, 10),
    "learning_rate": (TINY, 0.017),
    "momentum": (TINY, 0.3),
    "weight_decay": (TINY, 0.1),
    "optimiser": (TINY, "muon"),
    "pace": (TINY, "linear"),
    "warm_up": (TINY, 0.5),
    "label_smoothing": (TINY, 0.3),
    "strong": (STRONG, "distort"),
    "labelled_view": (TINY_DIGITS | {"method": "supervised", "labelled_view": "weak"}, "strong"),
    "strength": (STRONG | {"strong": "distort"}, 1.5),
    "precision": (TINY, "bf16"),
}
UNOBSERVED = {"device", "threads", "data_dir"}  # where it runs, not what
ELSEWHERE = {
    "weights",
    "depth",
    "guess",
    "options",
    "size",
    "fit",
    "init",
    "from_",
    "mirror",
    "nudge",
}  # test_race, test_embedding, test_guessing, test_contract, own_pictures (two), pretraining, continuing, looks (two)


def weights(given: dict[str, object]) -> list[torch.Tensor]:
    run = build(complete(resolve(given)))
    for number in range(run.config.steps):
        run.advance(number)
    return [p.clone() for net in run.method.answers for p in net.parameters()]


@pytest.mark.parametrize("name", [f.name for f in fields(Config) if f.name not in UNOBSERVED | ELSEWHERE])
def test_every_setting_changes_the_result(name: str) -> None:
    given, other = OTHERS[name]
    a = weights(given)
    b = weights(given | {name: other} if other is not None else TINY)
    assert len(a) != len(b) or any(x.shape != y.shape or not torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_config_reads_back_as_itself(method: str, tmp_path: Path) -> None:
    config = complete(resolve({"method": method, "data": "moons", "steps": 7, "learning_rate": 1e-7}))
    path = tmp_path / "config.toml"
    path.write_text(config.text())
    assert resolve(Config.read(path)) == config
    assert tomllib.loads(config.text()) == asdict(config)


def test_a_saved_config_holds_no_gaps() -> None:
    config = complete(resolve({"data": "digits"}), epochs=2)
    assert config.network in ("sprint", "cnn13-small")
    assert config.device in ("cpu", "cuda")
    assert config.threads >= 1
    assert config.steps >= 2
    assert config.options.keys() == METHODS[config.method].defaults().keys()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "ft-cll"}, "Did you mean 'ft-ccl'"),
        ({"labels": -1}, "`labels` must be at least 0, but is -1"),
        ({"label_noise": 1.5}, "`label_noise` must be between 0 and 1, but is 1.5"),
        ({"dropout": 1.0}, "`dropout` must be between 0 and 0.95, but is 1"),
        ({"learning_rate": float("nan")}, "`learning_rate` must be a finite number, but is nan"),
        ({"options": {"metric": 1}}, "`metric` must be of type str, but is 1"),
        ({"options": {"teachers": True}}, "`teachers` must be of type int, but is True"),
        ({"options": {"heat": float("inf")}}, "`heat` must be a finite number, but is inf"),
        ({"options": 3}, "`options` must be"),
        ({"seed": 10**5000}, "`seed` must be at most .*, but is a number of thousands of digits"),
        ({"noise": 10**400}, "`noise` must be of type float, but is 1000"),
        ({"data_dir": "a\0b"}, "`data_dir` must not hold a null character"),
        ({"options": {"teachers": 0}}, "`teachers` must be at least 1, but is 0"),
        ({"options": {"weight": -1.0}}, "`weight` must be at least 0, but is -1"),
        ({"learning_rate": float("inf")}, "`learning_rate` must be a finite number, but is inf"),
        ({"noise": float("inf")}, "`noise` must be a finite number, but is inf"),
        *(({"options": {name: float("inf")}}, f"`{name}` must be .*, but is inf") for name in ("beta", "ramp", "heat")),
        ({"options": {"weight": float("nan")}}, "`weight` must be .*, but is nan"),
        ({"options": {"metric": "vp"}}, "There is no metric 'vp'"),
        ({"options": {"metric": "random", "draws": "independent:4"}}, "metric random needs no draws"),
        ({"options": {"hard": False, "beta": 4.0}}, "the hard filter is off"),
        ({"options": {"probabilistic": False, "rho": 0.1}}, "the probabilistic filter is off"),
        ({"options": {"temper": False, "heat": 2.0}}, "the temperature is off"),
        ({"options": {"hard": False, "probabilistic": False, "temper": False, "metric": "mi"}}, "are off"),
        ({"method": "supervised", "options": {"weight": 1.0}}, "has no option `weight`"),
        ({"method": "pi", "options": {"teachers": 2}}, "has no option `teachers`"),
        (
            {"data": "svhn", "method": "supervised", "strong": "distort"},
            "`strong` would change nothing: the student of supervised",
        ),
        ({"method": "pi", "strength": 1.0}, "`strength` would change nothing"),
        ({"method": "pi", "labelled_view": "strong"}, "pi sees labelled ones weakly too"),
        ({"method": "fixmatch", "strong": "randaugment", "strength": 1.0}, "`strong` is not distort"),
        ({"optimiser": "muon", "momentum": 0.5}, "`momentum` would change nothing: `optimiser` muon has its own"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        resolve(given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"data": "digit"}, "Did you mean 'digits'"),
        ({"network": "cnn14"}, "There is no network 'cnn14'"),
        ({"data": "moons", "network": "cnn13"}, "use `network` mlp"),
        ({"data": "moons", "translate": 1}, "cannot be shifted"),
        ({"network": "cnn13"}, "too small for network cnn13"),
        ({"dropout": 0.0}, "certainty needs dropout"),
        ({"labels": 0, "validation": 0}, "has no unlabelled images"),
        ({"size": 16}, "`size` is only for folders of pictures"),
        ({"init": "nowhere"}, "holds no checkpoint to start from"),
        ({"labels": 5}, "cannot cover the 10 classes"),
        ({"labels": 1200}, "too few for 1200 labels, 200 validation images"),
        ({"device": "tpu"}, "must be auto, cpu or cuda"),
    ],
)
def test_what_does_not_fit_the_data_is_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        build(complete(resolve({"data": "digits", "steps": 1, **given})))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("labels = 'many'", "must be of type int"),
        ("lables = 3", "Did you mean 'labels'"),
        ("labels = ", "is not a run file"),
        ("labels = true", "must be of type int"),
        ("options = 3", "must be a table"),
    ],
)
def test_a_run_file_is_checked_like_the_command_line(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        Config.read(path)


def test_a_missing_run_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no-such"):
        Config.read(tmp_path / "no-such.toml")
    with pytest.raises(UsageError, match="holds no run"):
        RunFolder(tmp_path).load_config()


def test_minutes_fix_the_number_of_steps() -> None:
    config = resolve(TINY | {"steps": 0})
    short, long = (complete(config, minutes=m).steps for m in (0.001, 0.1))
    assert 1 <= short < long
    assert complete(replace(config, steps=5), minutes=3).steps == 5


def test_epochs_are_passes_over_the_unlabelled_images() -> None:
    config = complete(resolve(TINY | {"steps": 0, "labels": 10, "validation": 90}), epochs=3)
    assert config.steps == 3 * 90  # 900 unlabelled images in batches of 10
