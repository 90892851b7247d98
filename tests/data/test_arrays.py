from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from certus.data.arrays import Pixels, as_column, channels_first, check_rank, known_labels
from certus.errors import UsageError


class NAType:
    """As pandas has it."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = None  # type: ignore[assignment]


def objects(*values: object) -> np.ndarray:
    y = np.empty(len(values), dtype=object)
    y[:] = values
    return y


@pytest.mark.parametrize("mark", [None, "", -1, -1.0, math.nan, np.int64(-1), np.float32("nan"), NAType()])
def test_marks_of_rows_without_a_label(mark: object) -> None:
    known, labels = known_labels(objects("cat", mark, "dog", mark))
    assert known.tolist() == [True, False, True, False]
    assert labels.tolist() == ["cat", "dog"]


def test_labels_that_are_numbers() -> None:
    known, labels = known_labels(objects(3, None, 5))
    assert (known.tolist(), labels.tolist(), labels.dtype.kind) == ([True, False, True], [3, 5], "i")
    known, labels = known_labels(np.array([3.0, math.nan, -1.0, 5.0]))
    assert (known.tolist(), labels.tolist()) == ([True, False, False, True], [3.0, 5.0])
    assert known_labels(np.array([True, False]))[0].tolist() == [True, True]
    assert known_labels(objects(True, False))[0].tolist() == [True, True]


def test_text_has_the_empty_text_as_mark() -> None:
    known, labels = known_labels(np.array(["cat", "", "dog"]))
    assert (known.tolist(), labels.tolist()) == ([True, False, True], ["cat", "dog"])


@pytest.mark.parametrize("text", ["-1", "nan", "None"])
def test_a_mark_that_numpy_turned_into_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"text with '{text}', which may be a class or the mark"):
        known_labels(np.array(["cat", text]))


def test_text_beside_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="labels of two kinds, such as 'cat' and 3"):
        known_labels(objects("cat", 3, None))


def test_a_list_of_text_keeps_its_marks() -> None:
    assert as_column(["cat", -1, None]).tolist() == ["cat", -1, None]
    assert as_column([0, 1, -1]) == [0, 1, -1]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((2, 8, 9), (1, 8, 9)),
        ((2, 8, 9, 3), (3, 8, 9)),
        ((2, 3, 8, 9), (3, 8, 9)),
        ((2, 8, 9, 1), (1, 8, 9)),
        ((2, 1, 8, 9), (1, 8, 9)),
        ((2, 12, 8, 8), (12, 8, 8)),  # more channels than pixels on a side
        ((2, 8, 8, 12), (12, 8, 8)),
    ],
)
def test_the_axis_of_the_channels(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    images = torch.arange(math.prod(shape)).view(shape)
    found = channels_first(images)
    assert found.shape == (2, *expected)
    c = expected[0] - 1
    if len(shape) == 4:
        assert torch.equal(found[:, c], images[..., c] if shape[3] == expected[0] else images[:, c])


@pytest.mark.parametrize("shape", [(3, 16, 3), (8, 8, 8), (9, 3, 9), (9, 8, 10)])
def test_ambiguous_shapes_get_a_sentence(shape: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError, match=f"{shape[0]}×{shape[1]}×{shape[2]} may have their channels first or last"):
        channels_first(torch.zeros(2, *shape))


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4, 5, 6)])
def test_other_numbers_of_axes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"vectors \(n, d\) or images"):
        check_rank(shape)


BYTES = torch.tensor([[0, 51, 255]], dtype=torch.uint8)
FRACTIONS = torch.tensor([[0.0, 0.2, 1.0]])


def test_fractions_become_bytes_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="from 0 to 1, and the model was trained on 0 to 255: .* multiplied by 255"):
        assert torch.allclose(Pixels(0, 255).rescaled(FRACTIONS), BYTES.float())
    with pytest.warns(UserWarning, match="multiplied"):
        Pixels(0, 255).rescaled(FRACTIONS.double() / 2)


def test_bytes_become_fractions_with_a_warning() -> None:
    for given in (BYTES, BYTES.float(), BYTES.long(), BYTES // 2):
        with pytest.warns(UserWarning, match="and the model was trained on 0 to 1: they are divided by 255"):
            assert torch.allclose(Pixels(0, 1).rescaled(given), given.float() / 255)


@pytest.mark.parametrize(
    ("trained", "given"),
    [
        (Pixels(0, 255), BYTES),
        (Pixels(0, 255), BYTES // 255),  # nearly black
        (Pixels(0, 255), BYTES.float()),
        (Pixels(0, 255), BYTES.long()),
        (Pixels(0, 255), torch.zeros(1, 3)),
        (Pixels(0, 255), torch.empty(0, 3)),
        (Pixels(0, 1), FRACTIONS),
        (Pixels(0, 1), FRACTIONS * 1.1 - 0.05),  # resized
        (Pixels(0, 1), (BYTES > 100).byte()),
        (Pixels(-1, 1), 2 * FRACTIONS - 1),
        (Pixels(-2.1, 2.6), FRACTIONS),
        (Pixels(0, 16), 16 * FRACTIONS),
        (Pixels(0, 16), BYTES // 16),
        (Pixels(0, 65535), FRACTIONS * 40000),
    ],
)
def test_pixels_in_the_range_of_training_stay(trained: Pixels, given: torch.Tensor) -> None:
    assert trained.rescaled(given) is given


@pytest.mark.parametrize(
    ("trained", "given"),
    [
        (Pixels(0, 255), BYTES.int() * 257),
        (Pixels(0, 255), 2 * FRACTIONS - 1),
        (Pixels(0, 255), FRACTIONS * math.nan),
        (Pixels(0, 1), 2 * FRACTIONS - 1),
        (Pixels(0, 1), 16 * FRACTIONS),
        (Pixels(0, 1), BYTES.int() * 257),
        (Pixels(-1, 1), BYTES),
        (Pixels(-1, 1), BYTES.float()),
        (Pixels(0, 16), BYTES),
        (Pixels(0, 16), FRACTIONS),
    ],
)
def test_pixels_of_an_unknown_scale_are_refused(trained: Pixels, given: torch.Tensor) -> None:
    with pytest.raises(UsageError, match=f"but the model was trained on pixels from {trained}: bring them to that"):
        trained.rescaled(given)


def test_the_range_of_any_type() -> None:
    assert Pixels.of(torch.tensor([3, 700], dtype=torch.int32)) == Pixels(3, 700)
    assert Pixels.of(torch.tensor([False, True])) == Pixels(0, 1)
    assert str(Pixels(0, 0.123456)) == "0 to 0.1235"
