"""One's own folder of pictures: which there are, what label each has, and all of them as a data set.

photos/cat/*.jpg  photos/dog/*.jpg  photos/unlabeled/*.jpg      a folder per class
photos/labels.csv (file,label)  photos/*.jpg                    a table; a picture that it does not name is unlabelled
photos/train/…  photos/val/…  photos/test/…                     parts, each in one of these two ways

val/ and test/ may also stand beside the class folders or the table. Folders within a class folder belong to it.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from certus.data.cache import Listen, Records, decoded, default_folder
from certus.data.dataset import Dataset, Part
from certus.data.decode import KNOWN, SUFFIXES, choose_size
from certus.errors import UsageError

UNLABELLED = ("unlabeled", "unlabelled")
ROLES = {"train": "train", "val": "validation", "valid": "validation", "validation": "validation", "test": "test"}
TABLE = "labels.csv"
TOLERATED = 0.05  # of the pictures may be unreadable
SHOWN = 10  # of these are in the summary

Entry = tuple[Path, str | None]  # relative to the root; its label


@dataclass(frozen=True)
class Listing:
    """Which pictures there are, in the order of their paths, and what label each has."""

    root: Path
    layout: str  # "folders", "table" or "parts"
    classes: tuple[str, ...]
    train: tuple[Entry, ...]
    validation: tuple[Entry, ...] | None
    test: tuple[Entry, ...] | None
    others: Mapping[str, int]  # files that are not pictures, by their ending
    notes: tuple[str, ...]  # what was decided where the folder leaves a choice


def scan(root: Path) -> Listing:
    """Recognise the layout, and give every picture its part and its label."""
    if not root.is_dir():
        raise UsageError(f"{root} is not a folder." if root.exists() else f"There is no folder {root}.")
    files = sorted(walk(str(root)))
    pictures = [file for file in files if suffix(file) in SUFFIXES]
    rest = [f for f in files if not f.endswith("/") and suffix(f) not in SUFFIXES and f.split("/")[-1] != TABLE]
    others = Counter(suffix(file) or "no ending" for file in rest)
    if not pictures:
        raise UsageError(f"There is no {KNOWN} picture in {root}{f' (but {counted(others)})' if others else ''}.")
    notes: list[str] = []
    bases = part_folders(root, files, pictures, notes)
    tables = read_tables(root, bases, files)
    parts: dict[str, list[Entry]] = {"train": [], "validation": [], "test": []}
    for picture in pictures:
        base = base_of(picture, bases)
        role = bases.get(base, "train")
        label = tables[role].get(picture) if role in tables else folder_of(picture, base)
        parts[role].append((Path(picture), label))
    classes = tuple(sorted({label for _, label in parts["train"] if label is not None}))
    check_classes(root, classes, pictures)
    for base in (base for base, role in bases.items() if role != "train"):
        check_held_out(root / base, parts[bases[base]], classes, notes)
    note_unlabelled([p.as_posix() for p, label in parts["train"] if label is None], bases, "train" in tables, notes)
    deepest = {Path(folder) for folder in {picture.rpartition("/")[0] for picture in pictures}}
    filled = {f"{folder.as_posix()}/" for deep in deepest for folder in (deep, *deep.parents)}
    if empty := [file for file in files if file.endswith("/") and file not in filled]:
        notes.append(f"Folders without pictures: {shortened(empty)}")
    return Listing(
        root=root,
        layout="parts" if "train" in bases.values() else "table" if "train" in tables else "folders",
        classes=classes,
        train=tuple(parts["train"]),
        validation=tuple(parts["validation"]) or None,
        test=tuple(parts["test"]) or None,
        others=dict(others),
        notes=tuple(notes),
    )


def walk(folder: str, inside: str = "", above: frozenset[str] = frozenset()) -> Iterator[str]:
    """Relative paths of all that is not hidden; a folder's ends in a slash. Links are followed, but not in circles."""
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
                elif entry.is_file() or entry.is_symlink():
                    yield f"{inside}{entry.name}"
    except OSError as error:
        raise UsageError(f"The folder {folder} cannot be read: {error.strerror}.") from None


def suffix(file: str) -> str:
    return os.path.splitext(file)[1].lower()  # noqa: PTH122 (Path takes far longer, 100,000 times)


def base_of(picture: str, bases: Mapping[str, str]) -> str:
    """The part's folder that it is in, such as "val/", or nothing."""
    top = picture[: picture.find("/") + 1]
    return top if top in bases else ""


def folder_of(picture: str, base: str) -> str | None:
    """The class folder that it is in."""
    first, *rest = picture.removeprefix(base).split("/")
    return first if rest and first.casefold() not in UNLABELLED else None


def part_folders(root: Path, files: Sequence[str], pictures: Sequence[str], notes: list[str]) -> dict[str, str]:
    """The folders that are parts, "val/" -> "validation". A folder train/ among classes is one: a railway's."""
    tops = {picture[: picture.find("/") + 1] for picture in pictures if "/" in picture}
    bases = {top: ROLES[name] for top in sorted(tops) if (name := top[:-1].casefold()) in ROLES}
    for role in bases.values():
        if len(same := [base for base in bases if bases[base] == role]) > 1:
            raise UsageError(f"{root} has two folders for {role}, {' and '.join(same)}: keep one.")
    train = next((base for base, role in bases.items() if role == "train"), None)
    classes = sorted(top for top in tops - bases.keys() if top[:-1].casefold() not in UNLABELLED)
    if train is None or not classes or TABLE in files:
        return bases
    if len(bases) > 1 or train + TABLE in files or any(p.startswith(train) and p.count("/") > 1 for p in pictures):
        raise UsageError(
            f"{root} has a folder {train} and beside it {shortened(classes)}, which may be classes or not: "
            f"move them into {root / train}, or away."
        )
    notes.append(f"Taken for a class, because other folders of pictures stand beside it: {train}")
    return {}


def read_tables(root: Path, bases: Mapping[str, str], files: Sequence[str]) -> dict[str, dict[str, str]]:
    """For each part that is labelled by a table: picture -> label. A table at the top may speak of every part."""
    there = set(files)
    own = {role: read_table(root, base, there) for base, role in bases.items() if base + TABLE in there}
    if TABLE not in there:
        return own
    if own:
        raise UsageError(
            f"There is a {TABLE} both in {root} and in its folder for {next(iter(own))}: keep one of them."
        )
    table = read_table(root, "", there)
    spoken_of = {base_of(picture, bases) for picture in table}
    return {role: table for base, role in bases.items() if base in spoken_of} | {"train": table}


def read_table(root: Path, base: str, there: set[str]) -> dict[str, str]:
    """The table in this folder: picture, relative to the root -> label. An empty label is none."""
    path = root / base / TABLE
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header, *rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row] or [(0, [])]
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text: save it as UTF-8.") from None
    except (csv.Error, OSError) as error:
        raise UsageError(f"{path} cannot be read as a table: {error}.") from None
    columns = header[1]
    if columns.count("file") != 1 or columns.count("label") != 1:
        raise UsageError(f"{path} begins with {','.join(columns)!r}: its first line must be file,label (with a comma).")
    labels: dict[str, str] = {}
    missing = []
    for line, row in rows:
        if len(row) != len(columns):
            raise UsageError(f"{path} has {len(row)} columns in line {line}, but {len(columns)} in the first.")
        name, label = row[columns.index("file")], row[columns.index("label")]
        picture = base + str(PurePosixPath(name.replace("\\", "/")))
        if picture not in there:
            missing.append(name)
        elif suffix(picture) not in SUFFIXES:
            raise UsageError(f"{path} names {name} in line {line}, which is not a {KNOWN} picture by its ending.")
        elif label and labels.setdefault(picture, label) != label:
            raise UsageError(f"{path} gives {name} two labels, {labels[picture]!r} and {label!r} (line {line}).")
    if missing:
        raise UsageError(f"{path} names files that are not there, relative to its own folder: {shortened(missing)}.")
    return labels


def check_classes(root: Path, classes: Sequence[str], pictures: Sequence[str]) -> None:
    if not classes:
        raise UsageError(
            f"No training picture in {root} has a label: put some into a folder per class, such as {root / 'cat'}, "
            f"or name them in {root / TABLE} with the columns file,label."
        )
    if len(classes) == 1:
        inner = {p.split("/")[1] for p in pictures if p.startswith(f"{classes[0]}/") and p.count("/") > 1}
        hint = f", or give {root / classes[0]} if the folders in it are the classes" if len(inner) > 1 else ""
        raise UsageError(f"All labels in {root} are {classes[0]!r}: label pictures of at least two classes{hint}.")


def check_held_out(folder: Path, entries: Sequence[Entry], classes: Sequence[str], notes: list[str]) -> None:
    labels = {label for _, label in entries if label is not None}
    if not labels:
        raise UsageError(f"No picture in {folder} has a label: it needs a folder per class, or a {TABLE}.")
    if unknown := sorted(labels - set(classes)):
        raise UsageError(
            f"{folder} has pictures of {shortened(unknown)}, but no labelled training picture is of that class."
        )
    if n := sum(label is None for _, label in entries):
        notes.append(f"Left out, because they have no label: {n:,} in {folder}")


def note_unlabelled(pictures: Sequence[str], bases: Mapping[str, str], table: bool, notes: list[str]) -> None:
    """Say which training pictures count as unlabelled although their folder does not say so."""
    folders = Counter(folder_of(p, base_of(p, bases)) for p in pictures)
    loose = sum("/" not in p.removeprefix(base_of(p, bases)) for p in pictures)
    named = sorted(folder for folder in folders if folder is not None)
    if table and len(named) > 1:
        n = sum(folders[folder] for folder in named)
        notes.append(f"Unlabelled, because {TABLE} alone gives labels: {n:,} in {shortened(named)}")
    elif loose and not table:
        notes.append(f"Unlabelled, because they lie outside the class folders: {loose:,}")


def shortened(names: Sequence[str], most: int = 3) -> str:
    """`a, b, c and 4 more`"""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def counted(others: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} × {ending}" for ending, n in sorted(others.items(), key=lambda item: -item[1]))


@dataclass(frozen=True, eq=False)
class Pictures:
    """The decoded pictures, and what there is to say about them."""

    listing: Listing
    dataset: Dataset  # train.labels is −1 for unlabelled pictures; test is empty if there is no such folder
    validation: Part | None
    files: Mapping[str, tuple[Path, ...]]  # train, validation, test: relative to the root, in the order of the images
    skipped: tuple[tuple[Path, str], ...]  # which could not be read, and why
    size: int
    reason: str  # why this size
    duplicates: tuple[tuple[Path, Path], ...]  # (train, test) with the same pixels
    records: Records  # of all pictures: what they were before
    notice: str | None  # about the cache

    def summary(self) -> list[str]:
        """What to know before training, a line each."""
        listing, records, labels = self.listing, self.records, self.dataset.train.labels
        counts = {name: int((labels == i).sum()) for i, name in enumerate(self.dataset.classes)}
        few, many = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        area = records["width"].astype(np.int64) * records["height"]
        small, large = (f"{r['width']}×{r['height']}" for r in records[[area.argmin(), area.argmax()]])
        channels = "grey" if self.dataset.shape[0] == 1 else "colour"
        lines = [
            f"{len(counts)} classes: " + shortened([f"{name} ({n:,})" for name, n in counts.items()], 12),
            f"{sum(counts.values()):,} labelled and {int((labels < 0).sum()):,} unlabelled training pictures, "
            f"{len(self.files['validation']):,} for validation, {len(self.files['test']):,} for test",
            f"Pictures of {small if small == large else f'{small} to {large}'} pixels, used as {self.size}×{self.size} "
            f"in {channels}, {self.reason}",
        ]
        if (ratio := counts[many] / counts[few]) > 1:
            lines.append(f"Imbalance: {many} has {ratio:.1f} times as many labels as {few}")
        if n := int(records["transparent"].sum()):
            lines.append(f"Laid on white, because of see-through pixels: {n:,}")
        if self.duplicates:
            same = shortened([f"{test} = {train}" for train, test in self.duplicates])
            lines.append(f"Both in the training and in the test set: {len(self.duplicates):,} ({same})")
        if self.skipped:
            lines.append(f"Left out, because they cannot be read: {len(self.skipped):,}")
            lines += [f"  {file}: {reason}" for file, reason in self.skipped[:SHOWN]]
            lines += [f"  and {len(self.skipped) - SHOWN:,} more"] * (len(self.skipped) > SHOWN)
        if listing.others:
            lines.append(f"Other files, left alone: {counted(listing.others)}")
        return [*lines, *listing.notes, *([self.notice] if self.notice else [])]


def load(root: Path, size: int | None = None, cache: Path | None = None, listen: Listen = lambda *_: None) -> Pictures:
    """All pictures of the folder, from the cache or decoded now; `listen` hears (pictures read, pictures to read)."""
    if size is not None and not 8 <= size <= 1024:
        raise UsageError(f"--size must be between 8 and 1024 pixels, but is {size}.")
    listing = scan(root)
    held_out = {"validation": listing.validation or (), "test": listing.test or ()}
    entries = {"train": listing.train} | {r: tuple(e for e in p if e[1] is not None) for r, p in held_out.items()}
    every = [str(file) for part in entries.values() for file, _ in part]
    chosen, reason = (size, "as --size asks for") if size is not None else choose_size([root / file for file in every])
    found = decoded(root, every, chosen, cache or default_folder(), listen)
    if len(found.skipped) > TOLERATED * len(every):
        named = shortened([f"{file} ({why})" for file, why in found.skipped.items()])
        raise UsageError(
            f"{len(found.skipped):,} of the {len(every):,} pictures in {root} cannot be read, more than "
            f"{TOLERATED:.0%}: repair or remove {named}."
        )
    entries = {role: tuple(e for e in part if str(e[0]) not in found.skipped) for role, part in entries.items()}
    number: dict[str | None, int] = {None: -1} | {name: i for i, name in enumerate(listing.classes)}
    files = {role: tuple(file for file, _ in part) for role, part in entries.items()}
    train, validation, test = (
        Part(torch.from_numpy(found.images(files[role])), torch.tensor([number[label] for _, label in part]).long())
        for role, part in entries.items()
    )
    for i, name in enumerate(listing.classes):
        if not (train.labels == i).any():
            raise UsageError(f"None of the labelled training pictures of {name} in {root} can be read: add some.")
    return Pictures(
        listing=listing,
        dataset=Dataset(root.resolve().name, listing.classes, train, test),
        validation=validation if listing.validation else None,
        files=files,
        skipped=tuple((Path(file), why) for file, why in found.skipped.items()),
        size=chosen,
        reason=reason,
        duplicates=tuple(found.copies(files["train"], files["test"])),
        records=found.pack.records,
        notice=found.notice,
    )
