"""A folder of the user's pictures: which pictures there are, and their labels. Three layouts are recognised:

photos/cat/*.jpg  photos/dog/*.jpg  photos/unlabeled/*.jpg      one folder per class
photos/labels.csv (file,label)  photos/*.jpg                    a table; a picture that is not in it is unlabelled
photos/train/…  photos/val/…  photos/test/…                     parts, each in one of these two layouts

val/ and test/ may also stand beside the class folders or the table. Folders inside a class folder belong to the class.
A table that also has a column `folder`, as `certus review` writes it beside class folders, corrects them: a picture
that it does not list has the label of its folder, and where both give one, the table wins.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from certus.data.decode import FORMAT_NAMES, SUFFIXES
from certus.data.limits import Unreadable, check_file
from certus.errors import UsageError
from certus.text import from_spreadsheet

UNLABELLED = ("unlabeled", "unlabelled")
ROLES = {"train": "train", "val": "validation", "valid": "validation", "validation": "validation", "test": "test"}
TABLE = "labels.csv"
FILE, LABEL, BESIDE = "file", "label", "folder"  # columns; with the last, class folders count too

Entry = tuple[Path, str | None]  # a picture, relative to the root, and its label


@dataclass(frozen=True)
class Listing:
    """The pictures of a folder, in the order of their paths, and their labels."""

    root: Path
    layout: str  # "folders", "table" or "parts"
    classes: tuple[str, ...]
    train: tuple[Entry, ...]
    validation: tuple[Entry, ...] | None
    test: tuple[Entry, ...] | None
    others: Mapping[str, int]  # number of files that are not pictures, by suffix
    notes: tuple[str, ...]  # decisions that the user should know


@dataclass(frozen=True)
class Table:
    """The labels in a table: picture, relative to the root -> label; empty for one that is listed without a label."""

    labels: Mapping[str, str]
    beside: bool  # class folders give labels too

    def label(self, picture: str, base: str) -> str | None:
        if self.beside and picture not in self.labels:
            return folder_of(picture, base)
        return self.labels.get(picture) or None


def scan(root: Path) -> Listing:
    """Recognise the layout, and find every picture's part and label."""
    if not root.is_dir():
        raise UsageError(f"{root} is not a folder." if root.exists() else f"There is no folder {root}.")
    files = sorted(walk(str(root)))
    pictures = [file for file in files if suffix(file) in SUFFIXES]
    rest = [f for f in files if not f.endswith("/") and suffix(f) not in SUFFIXES and f.split("/")[-1] != TABLE]
    others = Counter(suffix(file) or "no suffix" for file in rest)
    if not pictures:
        raise UsageError(
            f"There is no {FORMAT_NAMES} picture in {root}{f' (only {counted(others)})' if others else ''}."
        )
    notes: list[str] = []
    bases = part_folders(root, files, pictures, notes)
    tables = read_tables(root, bases, files)
    parts: dict[str, list[Entry]] = {"train": [], "validation": [], "test": []}
    for picture in pictures:
        base = base_of(picture, bases)
        role = bases.get(base, "train")
        label = tables[role].label(picture, base) if role in tables else folder_of(picture, base)
        parts[role].append((Path(picture), label))
    classes = tuple(sorted({label for _, label in parts["train"] if label is not None}))
    check_classes(root, classes, pictures)
    for base in (base for base, role in bases.items() if role != "train"):
        check_held_out(root / base, parts[bases[base]], classes, notes)
    alone = "train" in tables and not tables["train"].beside  # no class folder counts
    note_unlabelled([p.as_posix() for p, label in parts["train"] if label is None], bases, alone, notes)
    deepest = {Path(folder) for folder in {picture.rpartition("/")[0] for picture in pictures}}
    filled = {f"{folder.as_posix()}/" for deep in deepest for folder in (deep, *deep.parents)}
    if empty := [file for file in files if file.endswith("/") and file not in filled]:
        notes.append(f"Folders without pictures: {shortened(empty)}")
    return Listing(
        root=root,
        layout="parts" if "train" in bases.values() else "table" if alone else "folders",
        classes=classes,
        train=tuple(parts["train"]),
        validation=tuple(parts["validation"]) or None,
        test=tuple(parts["test"]) or None,
        others=dict(others),
        notes=tuple(notes),
    )


def walk(folder: str, inside: str = "", above: frozenset[str] = frozenset()) -> Iterator[str]:
    """Relative paths of all files and folders, except hidden ones; a folder ends in a slash. Links are followed."""
    real = os.path.realpath(folder)
    if real in above:
        return
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    yield f"{inside}{entry.name}/"
                    yield from walk(entry.path, f"{inside}{entry.name}/", above | {real})
                else:
                    yield f"{inside}{entry.name}"
    except OSError as error:
        raise UsageError(f"The folder {folder} cannot be read: {error.strerror}.") from None


def suffix(file: str) -> str:
    return os.path.splitext(file)[1].lower()  # noqa: PTH122 (Path is much slower, for 100,000 files)


def base_of(picture: str, bases: Mapping[str, str]) -> str:
    """The folder of the picture's part, such as "val/"; empty if there is none."""
    top = picture[: picture.find("/") + 1]
    return top if top in bases else ""


def folder_of(picture: str, base: str) -> str | None:
    """The class folder of a picture; None if it is in none."""
    first, *rest = picture.removeprefix(base).split("/")
    return first if rest and first.casefold() not in UNLABELLED else None


def part_folders(root: Path, files: Sequence[str], pictures: Sequence[str], notes: list[str]) -> dict[str, str]:
    """The folders that are parts, such as "val/" -> "validation". A folder train/ beside classes may be a class."""
    tops = {picture[: picture.find("/") + 1] for picture in pictures if "/" in picture}
    bases = {top: ROLES[name] for top in sorted(tops) if (name := top[:-1].casefold()) in ROLES}
    for role in bases.values():
        if len(same := [base for base in bases if bases[base] == role]) > 1:
            raise UsageError(f"{root} has two folders for {role}, {' and '.join(same)}: keep only one.")
    train = next((base for base, role in bases.items() if role == "train"), None)
    classes = sorted(top for top in tops - bases.keys() if top[:-1].casefold() not in UNLABELLED)
    if train is None or not classes or (TABLE in files and BESIDE not in rows_of(root / TABLE)[0]):
        return bases
    if len(bases) > 1 or train + TABLE in files or any(p.startswith(train) and p.count("/") > 1 for p in pictures):
        raise UsageError(
            f"{root} has a folder {train} and beside it {shortened(classes)}, which may be classes: "
            f"move these folders into {root / train}, or out of {root}."
        )
    notes.append(f"Read as a class, because other folders of pictures are beside it: {train}")
    return {}


def read_tables(root: Path, bases: Mapping[str, str], files: Sequence[str]) -> dict[str, Table]:
    """For each part that has a table, this table. One in the top folder may label pictures of every part."""
    existing = set(files)
    own = {role: read_table(root, base, existing) for base, role in bases.items() if base + TABLE in existing}
    if TABLE not in existing:
        return own
    if own:
        raise UsageError(
            f"There is a {TABLE} both in {root} and in its folder for {next(iter(own))}: keep only one of them."
        )
    table = read_table(root, "", existing)
    labelled = {base_of(picture, bases) for picture, label in table.labels.items() if label}
    return {role: table for base, role in bases.items() if base in labelled} | {"train": table}


def rows_of(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The columns of a table, and its rows with their line numbers."""
    try:
        check_file(path)
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header, *rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row] or [(0, [])]
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text: save it as UTF-8.") from None
    except (csv.Error, OSError, Unreadable) as error:
        raise UsageError(f"{path} cannot be read as a table: {error}.") from None
    columns = header[1]
    if columns.count(FILE) != 1 or columns.count(LABEL) != 1:
        raise UsageError(
            f"{path} begins with {','.join(columns)!r}, but its first line must be file,label (with a comma)."
        )
    for line, row in rows:
        if len(row) != len(columns):
            raise UsageError(f"{path} has {len(row)} columns in line {line}, but {len(columns)} in the first.")
    return columns, rows


def named_in(cell: str) -> str:
    """The picture that a cell of a table names."""
    return str(PurePosixPath(cell.replace("\\", "/")))


def read_table(root: Path, base: str, existing: set[str]) -> Table:
    """The table in this folder. An empty label means unlabelled."""
    path = root / base / TABLE
    columns, rows = rows_of(path)
    labels: dict[str, str] = {}
    missing = []
    for line, row in rows:
        name, label = row[columns.index(FILE)], from_spreadsheet(row[columns.index(LABEL)])
        picture = base + named_in(name)
        if picture not in existing:
            missing.append(name)
        elif suffix(picture) not in SUFFIXES:
            raise UsageError(
                f"{path} lists {name} in line {line}, but by its suffix it is not a {FORMAT_NAMES} picture."
            )
        elif label and labels.get(picture, label) not in ("", label):
            raise UsageError(
                f"{path} gives {name} two labels, {labels[picture]!r} and {label!r} (line {line}): keep one."
            )
        else:
            labels[picture] = label or labels.get(picture, "")
    if missing:
        raise UsageError(
            f"{path} lists files that do not exist (paths are relative to its folder): {shortened(missing)}."
        )
    return Table(labels, BESIDE in columns)


def check_classes(root: Path, classes: Sequence[str], pictures: Sequence[str]) -> None:
    if not classes:
        raise UsageError(
            f"No training picture in {root} has a label: put some into one folder per class, such as {root / 'cat'}, "
            f"or list them in {root / TABLE} with the columns file,label."
        )
    if len(classes) == 1:
        inner = {p.split("/")[1] for p in pictures if p.startswith(f"{classes[0]}/") and p.count("/") > 1}
        hint = f", or use the folder {root / classes[0]} if its folders are the classes" if len(inner) > 1 else ""
        raise UsageError(f"All labels in {root} are {classes[0]!r}: label pictures of at least two classes{hint}.")


def check_held_out(folder: Path, entries: Sequence[Entry], classes: Sequence[str], notes: list[str]) -> None:
    labels = {label for _, label in entries if label is not None}
    if not labels:
        raise UsageError(f"No picture in {folder} has a label: it needs one folder per class, or a {TABLE}.")
    if unknown := sorted(labels - set(classes)):
        raise UsageError(
            f"{folder} has pictures of {shortened(unknown)}, but no training picture has such a label: add some."
        )
    if n := sum(label is None for _, label in entries):
        notes.append(f"Skipped, because they have no label: {n:,} in {folder}")


def note_unlabelled(pictures: Sequence[str], bases: Mapping[str, str], table: bool, notes: list[str]) -> None:
    """Note the training pictures that count as unlabelled although they are not in a folder for unlabelled ones."""
    folders = Counter(folder_of(p, base_of(p, bases)) for p in pictures)
    loose = sum("/" not in p.removeprefix(base_of(p, bases)) for p in pictures)
    named = sorted(folder for folder in folders if folder is not None)
    if table and len(named) > 1:
        n = sum(folders[folder] for folder in named)
        notes.append(f"Unlabelled, because only {TABLE} gives labels: {n:,} in {shortened(named)}")
    elif loose and not table:
        notes.append(f"Unlabelled, because they are outside the class folders: {loose:,}")


def shortened(names: Sequence[str], most: int = 3) -> str:
    """`a, b, c and 4 more`"""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def counted(others: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} × {ending}" for ending, n in sorted(others.items(), key=lambda item: -item[1]))
