"""A folder of the user's pictures as a data set: listed, decoded, and summarised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from certus.data.cache import Listen, Records, decoded, default_folder
from certus.data.dataset import Dataset, Part
from certus.data.decode import choose_size
from certus.data.fitting import DONE
from certus.data.listing import Listing, counted, scan, shortened
from certus.errors import UsageError

TOLERATED = 0.05  # share of pictures that may be unreadable
SHOWN = 10  # unreadable pictures that the summary names


@dataclass(frozen=True, eq=False)
class Pictures:
    """The decoded pictures, and facts about them."""

    listing: Listing
    dataset: Dataset  # train.labels is −1 for unlabelled pictures; test is empty if there is no test folder
    validation: Part | None
    files: Mapping[
        str, tuple[Path, ...]
    ]  # of train, validation and test, relative to the root, in the order of the images
    skipped: tuple[tuple[Path, str], ...]  # unreadable pictures, and the reasons
    size: int
    reason: str  # for this size
    fit: str
    duplicates: tuple[tuple[Path, Path], ...]  # (train, test) with the same pixels
    records: Records  # properties of all picture files
    notice: str | None  # about the cache

    def summary(self) -> list[str]:
        """What the user should know before training, one fact per line."""
        listing, records, labels = self.listing, self.records, self.dataset.train.labels
        counts = {name: int((labels == i).sum()) for i, name in enumerate(self.dataset.classes)}
        few, many = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        area = records["width"].astype(np.int64) * records["height"]
        small, large = (f"{r['width']}×{r['height']}" for r in records[[area.argmin(), area.argmax()]])
        channels = "grey" if self.dataset.shape[0] == 1 else "colour"
        fitted = f"{DONE[self.fit]} to" if (records["width"] != records["height"]).any() else "used as"
        lines = [
            f"{len(counts)} classes: " + shortened([f"{name} ({n:,})" for name, n in counts.items()], 12),
            f"{sum(counts.values()):,} labelled and {int((labels < 0).sum()):,} unlabelled training pictures"
            + "".join(f", {len(own):,} for {part}" for part in ("validation", "test") if len(own := self.files[part])),
            f"Pictures of {small if small == large else f'{small} to {large}'} pixels, {fitted} "
            f"{self.size}×{self.size} in {channels}, {self.reason}",
        ]
        if (ratio := counts[many] / counts[few]) > 1:
            lines.append(f"Imbalance: {many} has {ratio:.1f} times as many labels as {few}")
        if n := int(records["transparent"].sum()):
            lines.append(f"Put on white, because of transparent pixels: {n:,}")
        if self.duplicates:
            same = shortened([f"{test} = {train}" for train, test in self.duplicates])
            lines.append(f"Both in the training and in the test set: {len(self.duplicates):,} ({same})")
        if self.skipped:
            lines.append(f"Skipped, because they cannot be read: {len(self.skipped):,}")
            lines += [f"  {file}: {reason}" for file, reason in self.skipped[:SHOWN]]
            lines += [f"  and {len(self.skipped) - SHOWN:,} more"] * (len(self.skipped) > SHOWN)
        if listing.others:
            lines.append(f"Other files, ignored: {counted(listing.others)}")
        return [*lines, *listing.notes, *([self.notice] if self.notice else [])]


def load(
    root: Path,
    size: int | None = None,
    cache: Path | None = None,
    listen: Listen = lambda *_: None,
    fit: str = "crop",
) -> Pictures:
    """All pictures of the folder, from the cache or decoded now; `listen` gets (pictures read, pictures to read)."""
    if size is not None and not 8 <= size <= 1024:
        raise UsageError(f"`size` must be between 8 and 1024 pixels, but is {size}.")
    listing = scan(root)
    held_out = {"validation": listing.validation or (), "test": listing.test or ()}
    entries = {"train": listing.train} | {r: tuple(e for e in p if e[1] is not None) for r, p in held_out.items()}
    every = [str(file) for part in entries.values() for file, _ in part]
    chosen, reason = (size, "as requested") if size is not None else choose_size([root / file for file in every])
    found = decoded(root, every, chosen, cache or default_folder(), listen, fit)
    if len(found.skipped) > TOLERATED * len(every):
        named = shortened([f"{file} ({why})" for file, why in found.skipped.items()])
        raise UsageError(
            f"{len(found.skipped):,} of the {len(every):,} pictures in {root} cannot be read, which is more than "
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
            raise UsageError(f"No labelled training picture of class {name} in {root} can be read: add some.")
    return Pictures(
        listing=listing,
        dataset=Dataset(root.resolve().name, listing.classes, train, test),
        validation=validation if listing.validation else None,
        files=files,
        skipped=tuple((Path(file), why) for file, why in found.skipped.items()),
        size=chosen,
        reason=reason,
        fit=fit,
        duplicates=tuple(found.copies(files["train"], files["test"])),
        records=found.pack.records,
        notice=found.notice,
    )
