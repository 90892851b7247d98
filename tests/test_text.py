"""Names from outside can be printed, drawn and tabulated, and come back from tables as they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certus.text import brief, for_spreadsheet, from_spreadsheet, printable


@pytest.mark.parametrize("name", ["=1+1", "+a", "-a", "@sum", "\tx", "'=x", "''-x", "=", "-"])
def test_a_spreadsheet_sees_no_formula(name: str) -> None:
    assert for_spreadsheet(name) == f"'{name}"
    assert from_spreadsheet(f"'{name}") == name


@pytest.mark.parametrize("cell", ["cat", "a=b", "'quoted'", "-0.5", "+3", "-1e-05", "", -0.5, 3, None])
def test_other_cells_stay(cell: object) -> None:
    assert for_spreadsheet(cell) == cell
    assert not isinstance(cell, str) or from_spreadsheet(cell) == cell


@given(st.text())
def test_every_name_comes_back(name: str) -> None:
    assert from_spreadsheet(for_spreadsheet(name)) == printable(name)


def test_bytes_that_are_not_text_are_written_as_their_codes() -> None:
    assert printable("caf\udce9") == "caf\\udce9"
    assert printable("café 🐱") == "café 🐱"


def test_values_in_errors_are_short() -> None:
    assert brief(10**5000) == "a number of thousands of digits"
    assert brief(0.5) == "0.5"
    assert brief("x" * 100) == f"'{'x' * 58}…"
    assert brief("\udce9") == r"'\udce9'"
