from __future__ import annotations

import pickle
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, make_moons
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.semi_supervised import LabelSpreading
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from certus import Classifier
from certus.errors import UsageError

CANNOT_APPLY = {
    "check_classifiers_classes": "it uses −1 as a class, which means unlabelled here, as in LabelPropagation",
}


@parametrize_with_checks(
    [Classifier(steps=60)],
    expected_failed_checks=lambda _: CANNOT_APPLY,
    xfail_strict=True,
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks(estimator: Classifier, check) -> None:  # type: ignore[no-untyped-def]
    check(estimator)


def moons(labels: int = 20) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y = make_moons(300, noise=0.1, random_state=0)
    seen = np.full_like(y, -1)
    for c in (0, 1):
        seen[np.flatnonzero(y == c)[: labels // 2]] = c
    return X, y, seen


def test_vectors_with_unlabelled_rows() -> None:
    X, y, seen = moons()
    classifier = Classifier(method="mean-teacher", steps=200).fit(X, seen)
    assert classifier.score(X, y) > 0.85
    p = classifier.predict_proba(X)
    assert p.shape == (300, 2)
    assert np.allclose(p.sum(1), 1, atol=1e-5)
    assert set(classifier.predict(X)) <= {0, 1}
    for metric in ("pv", "ev", "pe", "mi", "pr", "confidence"):
        assert classifier.uncertainty(X, metric).shape == (300,)
    wrong = classifier.predict(X) != y
    assert classifier.uncertainty(X)[wrong].mean() > classifier.uncertainty(X)[~wrong].mean()


def mean_accuracy(make, seeds=range(4)):  # type: ignore[no-untyped-def]
    """On new points of two moons, of which 12 had a label in training."""
    found = []
    for seed in seeds:
        X, y = make_moons(1400, noise=0.1, random_state=seed)
        seen = np.full(700, -1)
        for c in (0, 1):
            seen[np.flatnonzero(y[:700] == c)[:6]] = c
        found.append(make(seed).fit(X[:700], seen).score(X[700:], y[700:]))
    return np.mean(found)


def test_on_vectors_the_default_is_as_good_as_label_spreading_and_better_than_the_labels_alone() -> None:
    default = mean_accuracy(lambda seed: Classifier(random_state=seed))
    assert default > mean_accuracy(lambda _: LabelSpreading()) - 0.01
    assert default > mean_accuracy(lambda seed: Classifier("supervised", random_state=seed)) + 0.02


def test_the_default_method_depends_on_the_inputs() -> None:
    X, _, seen = moons()
    assert np.array_equal(
        Classifier(steps=5).fit(X, seen).predict_proba(X),
        Classifier("label-propagation", steps=5).fit(X, seen).predict_proba(X),
    )
    pixels = np.random.default_rng(0).random((40, 8, 8))
    y = np.resize([0, 1, -1], 40)
    auto, named = (Classifier(m, steps=2, settings={"width": 8}).fit(pixels, y) for m in ("auto", "ft-ccl"))
    assert np.array_equal(auto.predict_proba(pixels), named.predict_proba(pixels))


def test_a_feature_that_never_varied_in_training_is_not_blown_up() -> None:
    X, y, seen = moons()
    constant = np.c_[X, np.full(len(X), 3.3)]
    classifier = Classifier(steps=100).fit(constant, seen)
    constant[:, 2] += 0.01
    assert classifier.score(constant, y) > 0.85


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
@pytest.mark.parametrize("channel", [False, True])
def test_images(dtype: type, channel: bool) -> None:
    digits = load_digits()
    X = digits.images.astype(dtype)[:200]
    X = X[..., None] if channel else X
    y = digits.target[:200].copy()
    y[100:] = -1
    settings = {"width": 8, "translate": 0}
    classifier = Classifier("ft-ccl", steps=40, options={"draws": "independent:2"}, settings=settings).fit(X, y)
    assert classifier.predict_proba(X).shape == (200, 10)
    assert classifier.score(X[:100], y[:100]) > 0.5


def test_the_same_random_state_gives_the_same_answers_and_leaves_torch_alone() -> None:
    X, _, seen = moons()
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    a, b = (Classifier(steps=20).fit(X, seen) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert np.array_equal(a.predict_proba(X), b.predict_proba(X))
    assert not np.array_equal(a.predict_proba(X), Classifier(steps=20, random_state=1).fit(X, seen).predict_proba(X))


def test_arguments_are_stored_untouched_and_clone_and_grid_search_work() -> None:
    options = {"weight": 3.0}
    classifier = Classifier("ft-ccl", options=options, steps=10)
    assert classifier.options is options
    assert clone(classifier).get_params() == classifier.get_params()
    X, y, _ = moons()
    search = GridSearchCV(Classifier(steps=10, method="supervised"), {"learning_rate": [0.0, 0.1]}, cv=2).fit(X, y)
    assert search.best_params_ == {"learning_rate": 0.1}


def test_inside_a_pipeline_a_grid_search_and_cross_validation() -> None:
    X, y, seen = moons()
    pipeline = make_pipeline(StandardScaler(), Classifier("supervised", steps=30))
    search = GridSearchCV(pipeline, {"classifier__learning_rate": [0.0, 0.1]}, cv=2).fit(X, y)
    assert search.best_params_ == {"classifier__learning_rate": 0.1}
    assert search.best_estimator_.predict_proba(X).shape == (300, 2)
    p = cross_val_predict(pipeline, X, y, cv=3, method="predict_proba")
    assert p.shape == (300, 2)
    assert (p.argmax(1) == y).mean() > 0.8
    known = seen >= 0
    assert clone(pipeline).fit(X, seen).score(X[known], y[known]) > 0.8  # unlabelled rows pass through, too


def test_images_inside_a_pipeline() -> None:
    X, y = pictures_of("bytes")
    pipeline = make_pipeline(FunctionTransformer(np.flip, kw_args={"axis": 2}), Classifier("supervised", **QUICK))
    assert pipeline.fit(X, y).score(X, y) > 0.9


def test_joblib_keeps_answers_and_uncertainty(tmp_path: Path) -> None:
    X, _, seen = moons()
    fitted = make_pipeline(StandardScaler(), Classifier("ft-ccl", steps=20)).fit(X, seen)
    fitted.predict_proba(X)  # it has a fused copy now
    joblib.dump(fitted, tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib")
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
    scaled = fitted[0].transform(X)
    assert np.array_equal(again[-1].uncertainty(scaled), fitted[-1].uncertainty(scaled))


def own_network(dropout: float) -> nn.Module:
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 2))


def test_your_own_network() -> None:
    X, y, seen = moons()
    classifier = Classifier(network=lambda: own_network(0.2), steps=100).fit(X, seen)
    assert isinstance(classifier.model_.nets[0], nn.Sequential)
    assert classifier.score(X, y) > 0.7


def test_a_network_without_dropout_is_refused_where_certainty_is_measured() -> None:
    X, _, seen = moons()
    with pytest.raises(UsageError, match="certainty needs dropout"):
        Classifier("ft-ccl", network=lambda: own_network(0.0), steps=1).fit(X, seen)
    Classifier("mean-teacher", network=lambda: own_network(0.0), steps=1).fit(X, seen)


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="one class"):
        Classifier(steps=1).fit(np.zeros((4, 2)), np.array([1, 1, -1, -1]))


def pictures_of(kind: str, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Colour images of 16×16 pixels, bright on the left or on the right, as bytes or as floats 0…1."""
    rng = np.random.default_rng(0)
    y = np.resize([0, 1], n)
    X = rng.integers(0, 120, (n, 16, 16, 3))
    X[y == 0, :, :8] += 135
    X[y == 1, :, 8:] += 135
    return (X / 255 if kind == "floats" else X.astype(np.uint8)), y


QUICK = {
    "network": "cnn13-small",
    "steps": 15,
    "settings": {"width": 8, "translate": 0, "labelled_batch": 8, "unlabelled_batch": 8, "threads": 1},
}


@pytest.mark.parametrize("mark", [None, "", -1, np.nan])
def test_text_labels_with_a_mark_for_unlabelled(mark: object) -> None:
    X, y, seen = moons()
    names = np.array(["left", "right"], dtype=object)[y]
    names[seen == -1] = mark
    numbered, named = (Classifier(steps=5).fit(X, labels) for labels in (seen, names))
    assert named.classes_.tolist() == ["left", "right"]
    assert np.array_equal(named.predict_proba(X), numbered.predict_proba(X))
    assert set(named.predict(X)) == {"left", "right"}
    assert np.array_equal(Classifier(steps=5).fit(X, names.tolist()).predict(X), named.predict(X))


def test_no_label_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="no label at all"):
        Classifier(steps=1).fit(np.zeros((4, 2)), [None, "", -1, np.nan])


def test_channels_first_or_last_give_the_same_answers() -> None:
    X, y = pictures_of("bytes")
    turned = np.moveaxis(X, 3, 1)
    last, first = (Classifier("supervised", **QUICK).fit(x, y) for x in (X, turned))
    assert last.model_.shape == first.model_.shape == (3, 16, 16)
    for x in (X, turned):
        assert np.array_equal(last.predict_proba(x), first.predict_proba(X))


@pytest.mark.parametrize(("trained", "asked"), [("bytes", "floats"), ("floats", "bytes")])
def test_bytes_and_floats_from_0_to_1_have_the_same_answers(trained: str, asked: str) -> None:
    X, y = pictures_of(trained)
    classifier = Classifier("supervised", **QUICK).fit(X, y)
    assert classifier.score(X, y) > 0.9
    for again in (classifier, pickle.loads(pickle.dumps(classifier))):
        with pytest.warns(UserWarning, match="and the model was trained on 0 to"):
            p = again.predict_proba(pictures_of(asked)[0])
        assert np.allclose(p, classifier.predict_proba(X), atol=1e-4)


def test_pixels_whose_scale_cannot_be_known_are_refused() -> None:
    X, y = pictures_of("floats")
    classifier = Classifier("supervised", **QUICK).fit(X, y)
    with pytest.raises(UsageError, match=r"pixels are from -1 to .*, but the model was trained on pixels from 0 to"):
        classifier.predict(X * 2 - 1)
