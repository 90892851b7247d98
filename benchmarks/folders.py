"""Folders of pictures with few labels, in the layout that certus reads, drawn from sets whose labels are all known.

    python benchmarks/folders.py CACHE --sets cifar10,svhn,fashion-mnist --photos flowers=DIR --labels 1,25 --seeds 3

`--photos NAME=DIR` takes any directory with one folder of pictures per class. Each folder is one draw:

    CACHE/folders/NAME/seed-S/labels-N/train/CLASS/…   train/unlabelled/…   test/CLASS/…

The test pictures are drawn first and are the same for every seed and number of labels. The labels of a smaller number
are among those of a larger one with the same seed. Files are links, not copies.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from resumable import names

from certus.data import Part, load
from certus.data.decode import SUFFIXES, shorter_side
from certus.data.listing import UNLABELLED, suffix, walk
from certus.errors import CertusError, UsageError

SETS = ("cifar10", "svhn", "fashion-mnist")
LABELS = (1, 5, 25, 100)  # of each class
SHARE, MOST_TEST = 0.3, 2000  # of the pictures, for test
MOST_UNLABELLED = 3000
FEWEST = 4  # pictures of a class: for test, labelled and unlabelled
Classes = Mapping[str, Sequence[Path]]  # pictures by class


@dataclass(frozen=True)
class PictureSet:
    """Labelled pictures, to train with and to test with, under `root`; `provide` makes those that are not there yet."""

    root: Path
    train: Classes
    test: Classes
    provide: Callable[[Path], None] = lambda _: None

    def shuffled(self, pictures: Iterable[Path], seed: str) -> list[Path]:
        """In an order that depends on the seed and the names alone."""

        def key(picture: Path) -> bytes:
            name = picture.relative_to(self.root).as_posix()
            return blake2b(os.fsencode(f"{seed} {name}"), digest_size=16).digest()

        return sorted(pictures, key=key)


# --- the sets


@functools.cache
def photos(root: Path) -> PictureSet:
    """A directory with a folder of pictures per class. Pictures with the same content count once, as the first one."""
    if not root.is_dir():
        raise UsageError(f"There is no directory {root}.")
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    found, seen = {}, set()
    for folder in folders:
        if folder.name.casefold() in UNLABELLED:
            raise UsageError(f"{folder} has no labels, but every folder in {root} must be a class: move it elsewhere.")
        files = (folder / name for name in sorted(walk(str(folder))) if suffix(name) in SUFFIXES)
        found[folder.name] = kept = []
        for file in filter(shorter_side, files):  # whose header can be read
            content = blake2b(file.read_bytes()).digest()
            if content not in seen:
                seen.add(content)
                kept.append(file)
    if len(found) < 2 or min(map(len, found.values())) < FEWEST:
        counts = ", ".join(f"{name} ({len(files):,})" for name, files in found.items()) or "none"
        raise UsageError(f"{root} must have two classes or more of {FEWEST} pictures or more, but has {counts}.")
    whole = PictureSet(root, found, {})
    test = held_out(whole, SHARE)
    return PictureSet(root, {name: sorted({*files} - {*test[name]}) for name, files in found.items()}, test)


@functools.cache
def known(name: str, cache: Path) -> PictureSet:
    """A data set that certus loads by name, as PNG files, which are written when they are drawn."""
    root, data = cache / "pictures" / name, load(name)
    parts = {"train": data.train, "test": data.test}

    def provide(file: Path) -> None:
        if not file.exists():
            write_png(parts[file.relative_to(root).parts[0]], int(file.stem), file)

    folders = [label.replace("/", "-") for label in data.classes]
    train, test = (
        {label: [root / name / label / f"{i:05}.png" for i in (part.labels == c).nonzero().flatten().tolist()]
         for c, label in enumerate(folders)}
        for name, part in parts.items()
    )  # fmt: skip
    return PictureSet(root, train, held_out(PictureSet(root, test, {}), 1.0), provide)


def write_png(part: Part, index: int, file: Path) -> None:
    from PIL import Image

    pixels = part.images[index].permute(1, 2, 0).squeeze(-1).numpy()
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(f".{os.getpid()}")
    Image.fromarray(pixels).save(unfinished, "PNG", compress_level=1)
    unfinished.replace(file)


def held_out(pictures: PictureSet, share: float) -> Classes:
    """The test pictures: a share of each class, of all classes at most MOST_TEST."""
    share = min(share, MOST_TEST / max(1, sum(map(len, pictures.train.values()))))
    count = {label: max(1, int(share * len(files))) for label, files in pictures.train.items()}
    return {label: pictures.shuffled(files, "test")[: count[label]] for label, files in pictures.train.items()}


# --- a draw


def drawn(pictures: PictureSet, labels: int, seed: int) -> dict[str, list[Path]]:
    """The pictures of each folder, by its name.

    A class with few pictures gives half of them as labels at most, so that each class has unlabelled ones.
    """
    parts = {f"test/{label}": list(files) for label, files in pictures.test.items()}
    rest = []
    for label, files in pictures.train.items():
        order = pictures.shuffled(files, f"seed {seed}")
        count = min(labels, max(1, len(files) // 2))
        parts[f"train/{label}"] = order[:count]
        rest += order[count:]
    parts[f"train/{UNLABELLED[1]}"] = pictures.shuffled(rest, f"seed {seed}")[:MOST_UNLABELLED]
    return parts


def draw(pictures: PictureSet, labels: int, seed: int, out: Path) -> None:
    """Make the folder `out`, complete or not at all. Pictures are numbered, so that no name tells a class."""
    unfinished = out.with_name(f".{out.name}-{os.getpid()}")
    try:
        for folder, files in drawn(pictures, labels, seed).items():
            (unfinished / folder).mkdir(parents=True)
            for i, file in enumerate(files):
                pictures.provide(file)
                link(file.resolve(), unfinished / folder / f"{i:05}{suffix(file.name)}")
        with suppress(OSError):  # another process was quicker
            unfinished.rename(out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    if not out.is_dir():
        raise CertusError(f"{out} cannot be made: is there something else of this name?")


def link(file: Path, new: Path) -> None:
    """A hard link, else a symbolic one, else a copy."""
    for way in (new.hardlink_to, new.symlink_to):
        with suppress(OSError):
            return way(file)
    shutil.copyfile(file, new)
    return None


def folder(cache: Path, name: str, directory: str | None, labels: int, seed: int) -> Path:
    """Of this draw, which is made if it is not there yet. `directory` has the photographs of a set of one's own."""
    out = cache.resolve() / "folders" / name / f"seed-{seed}" / f"labels-{labels}"
    if not out.is_dir():
        pictures = photos(Path(directory).resolve()) if directory is not None else known(name, cache.resolve())
        draw(pictures, labels, seed, out)
    return out


# --- the command line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sets", type=names, default=list(SETS), help="data sets that certus loads by name")
    parser.add_argument(
        "--photos", metavar="NAME=DIR", type=named, action="append", default=[], help="one folder of pictures per class"
    )
    parser.add_argument("--labels", type=numbers, default=list(LABELS), help="of each class")
    parser.add_argument("--seeds", type=int, default=3)


def named(text: str) -> tuple[str, str]:
    name, _, directory = text.partition("=")
    if not name or not directory or "/" in name or name.startswith(".") or name in SETS:
        raise argparse.ArgumentTypeError(
            f"it must be NAME=DIR with a new name, such as flowers=photos, but is {text!r}"
        )
    return name, directory


def numbers(text: str) -> list[int]:
    found = names(text)
    if wrong := [n for n in found if not n.isdigit() or not int(n)]:
        raise argparse.ArgumentTypeError(f"they must be whole numbers above 0, but one is {wrong[0]!r}")
    return [int(n) for n in found]


def sources(args: argparse.Namespace) -> dict[str, str | None]:
    """The names of the sets, with the directories of those that have one."""
    return {name: None for name in args.sets if name} | dict(args.photos)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path, metavar="CACHE")
    add_arguments(parser)
    args = parser.parse_args()
    try:
        for name, directory in sources(args).items():
            for seed in range(args.seeds):
                for labels in args.labels:
                    print(folder(args.cache, name, directory, labels, seed), flush=True)
    except CertusError as e:
        raise SystemExit(str(e)) from None


if __name__ == "__main__":
    main()
