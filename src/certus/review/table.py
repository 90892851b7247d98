"""labels.csv as rows that can be changed one by one: what others wrote in it stays, other columns too.

file,label,by            by: person, checked (a suspect label that a person looked at), accepted, merged, or empty
a.png,cat,person         with a column `folder`, class folders give labels too (data/listing.py)
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from certus.data.listing import BESIDE, FILE, LABEL, TABLE, folder_of, named_in, rows_of, scan
from certus.errors import UsageError
from certus.text import for_spreadsheet, from_spreadsheet

BY = "by"


@dataclass(frozen=True)
class Place:
    """Where the labels of a data set are kept."""

    table: Path  # labels.csv
    base: str = ""  # the folder of the table, as the names of pictures begin: "train/"
    folders: bool = False  # class folders give labels too

    def cell(self, picture: str) -> str:
        """The picture as the table names it."""
        cell = picture.removeprefix(self.base)
        try:
            kept = bool(cell.encode()) and named_in(cell.strip()) == cell and picture.startswith(self.base)
        except UnicodeEncodeError:
            kept = False
        if not kept:
            raise UsageError(f"A table cannot hold the name {picture!a}: rename this picture to label it.")
        return cell

    def folder(self, picture: str) -> str:
        """The label that the picture's class folder gives; empty if it gives none."""
        return (folder_of(picture, self.base) or "") if self.folders else ""


def place_in(root: Path) -> Place:
    """Where the labels of a folder of pictures are kept: in the table that it has, else beside its class folders."""
    listing = scan(root)
    top = {file.parts[0] for file, _ in listing.train}
    base = f"{top.pop()}/" if listing.layout == "parts" and len(top) == 1 else ""
    folders = listing.layout == "folders"
    if base and not (root / TABLE).exists():
        return Place(root / base / TABLE, base, not (root / base / TABLE).exists() or beside(root / base / TABLE))
    if base:
        return Place(root / TABLE, "", beside(root / TABLE))
    return Place(root / TABLE, "", folders)


def beside(path: Path) -> bool:
    return BESIDE in rows_of(path)[0]


Label = tuple[str, str]  # a label, and by whom


@dataclass
class Rows:
    """The table in memory, a line of text for each picture."""

    place: Place
    columns: list[str]
    cells: dict[str, list[str]] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, place: Place) -> Rows:
        """As the file has them; without a file, none."""
        if not place.table.exists():
            return cls(place, [FILE, LABEL, BY, *([BESIDE] if place.folders else [])])
        columns, found = rows_of(place.table)
        rows = cls(place, [*columns, *([] if BY in columns else [BY])])
        for _, row in found:
            rows.keep(place.base + named_in(row[columns.index(FILE)]), [*row, *[""] * (len(rows.columns) - len(row))])
        return rows

    def keep(self, picture: str, cells: list[str]) -> None:
        self.cells[picture] = cells
        self.lines[picture] = line(cells)

    def get(self, picture: str) -> Label | None:
        """None if the picture is not listed."""
        row = self.cells.get(picture)
        return (from_spreadsheet(row[self.columns.index(LABEL)]), row[self.columns.index(BY)]) if row else None

    def put(self, picture: str, label: Label | None) -> None:
        """None: take it out of the table."""
        if label is None:
            self.cells.pop(picture, None)
            self.lines.pop(picture, None)
            return
        row = list(self.cells.get(picture, [""] * len(self.columns)))
        values = {LABEL: str(for_spreadsheet(label[0])), BY: label[1]}
        if picture not in self.cells:
            values |= {FILE: self.place.cell(picture)}
            values |= {BESIDE: self.place.folder(picture)} if BESIDE in self.columns else {}
        for name, value in values.items():
            row[self.columns.index(name)] = value
        self.keep(picture, row)

    def text(self) -> str:
        return line(self.columns) + "".join(self.lines.values())


def line(cells: Sequence[str]) -> str:
    out = StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


def check_class(name: str) -> str:
    """The name of a class as it is kept; refuses one that a table cannot hold."""
    plain = " ".join(name.split())
    if not plain or len(plain) > 100 or not plain.isprintable() or plain.casefold() in ("unlabeled", "unlabelled"):
        raise UsageError(f"A class cannot be named {name[:100]!r}: use up to 100 visible characters.")
    return plain
