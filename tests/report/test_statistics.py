"""The report's numbers against naive loops and scipy's and scikit-learn's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, roc_auc_score

from certus.certainty.scores import calibration_error
from certus.config import resolve
from certus.report import numbers
from certus.report.figure import canvas, name_points
from certus.report.runs import RunRecord, arms, flat, name_of
from certus.report.thumbnails import as_rgb
from certus.training.run_folder import RunFolder

numbers_0_100 = st.floats(0.1, 100)


def answers(n: int = 60, classes: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    probabilities = torch.randn(n, classes, generator=random).softmax(1)
    labels = torch.randint(classes, (n,), generator=random)
    return probabilities, labels, (10 * torch.rand(n, generator=random)).round()  # with ties


@given(st.lists(st.tuples(numbers_0_100, numbers_0_100), min_size=2, max_size=8))
def test_a_row_has_scipys_p_and_the_share_of_errors_that_are_gone(pairs: list[tuple[float, float]]) -> None:
    mine, theirs = ({i: p[side] for i, p in enumerate(pairs)} for side in (0, 1))
    row = numbers.compared(mine, theirs)
    assert row["preliminary"] == (len(pairs) < 3)
    base = np.mean(list(theirs.values()))
    assert row["reduction"] == pytest.approx(100 * (base - np.mean(list(mine.values()))) / base)
    differences = [a - b for a, b in pairs]
    if np.ptp(differences) > 1e-6:
        assert row["p"] == pytest.approx(scipy.stats.ttest_rel(*zip(*pairs, strict=True)).pvalue)


def test_what_a_t_test_cannot_tell_is_not_told() -> None:
    assert numbers.paired_p([1.0], [2.0]) is None
    assert numbers.paired_p([], []) is None
    assert numbers.paired_p([1.0, 2.0], [3.0, 4.0]) is None
    assert numbers.compared({}, None)["mean"] is None
    assert numbers.compared({0: 1.0}, {1: 5.0})["reduction"] is None
    assert numbers.compared({0: 4.0, 1: 9.0}, {0: 8.0})["reduction"] == 50  # only seeds that both have


def test_a_band_is_the_mean_of_the_seeds_that_have_come_so_far() -> None:
    found = numbers.band([{1: 2.0, 2: 4.0}, {1: 4.0}])
    assert found["mean"].tolist() == [3.0, 4.0]
    assert found["std"].tolist() == pytest.approx([2**0.5, 0.0])
    assert found["n"].tolist() == [2, 1]


def test_ranked_bins_are_sorted_by_uncertainty_and_a_rest_is_left_out() -> None:
    right = torch.tensor([1, 0, 1, 1, 0, 0, 1])
    uncertainty = torch.tensor([0.7, 0.6, 0.1, 0.2, 0.5, 0.4, 0.3])
    assert numbers.ranked_bins(right, uncertainty, 2) == [100.0, 50.0, 0.0]
    assert [numbers.bin_size(n) for n in (5, 540, 999, 1000, 10000)] == [1, 54, 99, 100, 100]
    assert numbers.rank_correlation([90, 80, 70]) == -1
    assert numbers.rank_correlation([50, 50]) is None


@pytest.mark.parametrize("seed", range(5))
def test_auroc_is_scikit_learns_with_ties(seed: int) -> None:
    probabilities, labels, uncertainty = answers(seed=seed)
    missed = probabilities.argmax(1) != labels
    assert numbers.auroc(missed, uncertainty) == pytest.approx(roc_auc_score(missed, uncertainty))
    assert numbers.auroc(torch.zeros(4), torch.rand(4)) is None


def test_confusions_are_scikit_learns() -> None:
    probabilities, labels, _ = answers()
    expected = confusion_matrix(labels, probabilities.argmax(1), labels=range(4))
    assert (numbers.confusion(probabilities, labels) == expected).all()


def test_reliability_s_bins_hold_every_image_and_give_the_calibration_error() -> None:
    probabilities, labels, _ = answers(200)
    found = numbers.reliability(probabilities, labels)
    assert sum(found["images"]) == 200
    gaps = [n * abs(a - c) for n, c, a in zip(found["images"], found["confidence"], found["accuracy"], strict=True)]
    assert sum(gaps) / 200 == pytest.approx(calibration_error(probabilities, labels))


def test_mistakes_come_surest_first_and_classes_by_themselves() -> None:
    probabilities, labels, uncertainty = answers()
    said = probabilities.argmax(1)
    naive = sorted((i for i in range(60) if said[i] != labels[i]), key=lambda i: float(uncertainty[i]))
    assert numbers.certain_mistakes(probabilities, labels, uncertainty, 7) == naive[:7]
    assert uncertainty[numbers.least_certain(uncertainty, 3)].tolist() == uncertainty.sort().values[-3:].tolist()
    means = numbers.by_class(uncertainty, labels, 5)
    assert means[4] is None
    assert means[0] == pytest.approx(uncertainty[labels == 0].mean().item())


def test_an_arm_is_named_by_what_sets_it_apart() -> None:
    def config(**given: object) -> dict[str, object]:
        return flat(resolve({"data": "digits", **given}))

    plain, mi = config(method="ft-ccl"), config(method="ft-ccl", options={"metric": "mi"})
    noisy = config(method="supervised", label_noise=0.5)
    assert name_of(plain, [plain]) == "ft-ccl"
    assert name_of(mi, [plain, mi]) == "ft-ccl, metric mi"
    assert name_of(plain, [plain, mi]) == "ft-ccl"  # as the method comes
    assert name_of(mi, [mi]) == "ft-ccl"  # nothing to be told apart from
    heavy, preset = config(options={"weight": 6.0}), plain["weight"]
    assert preset != 6.0
    assert [name_of(c, [plain, mi, heavy]) for c in (plain, heavy)] == ["ft-ccl", "ft-ccl, weight 6"]
    assert name_of(noisy, [plain, mi, noisy]) == "supervised, label noise 0.5"
    assert config(seed=1) == config(seed=2)


def test_a_method_as_it_comes_stands_before_its_variants(tmp_path: Path) -> None:
    settings = [{"options": {"metric": "mi"}}, {"method": "supervised"}, {}, {"options": {"hard": False}, "seed": 3}]
    runs = [RunRecord(RunFolder(tmp_path / str(i)), resolve({"method": "ft-ccl", **g})) for i, g in enumerate(settings)]
    grouped, notes = arms([*runs, RunRecord(RunFolder(tmp_path / "again"), runs[0].config)])
    assert [a.name for a in grouped] == ["supervised", "ft-ccl", "ft-ccl, metric mi", "ft-ccl, hard off"]
    assert len(notes) == 1


def test_one_channel_is_ink_on_paper_and_colours_stay() -> None:
    grey = as_rgb(np.array([[[0], [255]]], dtype=np.uint8))
    assert grey[0, 0].tolist() == [255] * 3
    assert grey[0, 1].tolist() == [0] * 3
    colour = np.array([[[0, 100, 255]]], dtype=np.uint8)
    assert as_rgb(colour).tolist() == colour.tolist()


def test_names_of_points_that_lie_together_do_not_cover_each_other() -> None:
    _, (axes,) = canvas()
    points = [("automobile", 0.5, 50.0), ("truck", 0.5, 50.2), ("ship", 0.501, 50.1), ("frog", 0.0, 0.0)]
    axes.scatter([p[1] for p in points], [p[2] for p in points])
    name_points(axes, points)
    assert [text.get_text() for text in axes.texts] == [p[0] for p in points]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not [(i, j) for i in range(4) for j in range(i) if boxes[i].overlaps(boxes[j])]
