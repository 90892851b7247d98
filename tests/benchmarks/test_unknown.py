"""benchmarks/unknown.py: its score against scikit-learn's, and the pictures that it makes."""

from __future__ import annotations

import torch
from builders import normal
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from unknown import COLUMNS, auroc, pictures, table


@given(st.integers(0, 1000), st.booleans())
def test_auroc_is_that_of_scikit_learn_also_with_ties(seed: int, ties: bool) -> None:
    known, unknown = normal(30, seed=seed), normal(20, seed=seed + 1) + 0.5
    if ties:
        known, unknown = known.round(), unknown.round()
    expected = roc_auc_score([0] * 30 + [1] * 20, torch.cat([known, unknown]))
    assert abs(auroc(known, unknown) - expected) < 1e-9


def test_pictures_have_the_shape_of_the_run_and_use_all_bytes() -> None:
    for shape in ((3, 32, 32), (1, 28, 28)):
        made = pictures("digits", shape)
        assert made.shape[1:] == shape
        assert made.dtype == torch.uint8
        assert made.min() == 0
        assert made.max() == 255


def test_the_table_has_a_row_for_each_pair() -> None:
    rows = [
        dict(zip(COLUMNS, ["svhn", "cifar10", str(seed), "1", *["0.9"] * 5, "", ""], strict=True)) for seed in range(2)
    ]
    line = next(line for line in table(rows).splitlines() if line.startswith("| svhn | cifar10"))
    assert line.endswith("| — | — | 2 |")
    assert "0.90 ± 0.00" in line
