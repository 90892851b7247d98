"""The official files of the data sets: where they are, how they are downloaded, and errors about broken ones."""

from __future__ import annotations

import gzip
import os
import posixpath
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from certus.errors import CertusError, unknown
from certus.writing import sync_folder, write_new

CHUNK = 1 << 18  # bytes between two steps of the progress bar


@dataclass(frozen=True)
class Official:
    """A file as the authors of a data set publish it."""

    url: str
    md5: str  # published by the authors; checked for downloads, but not for files that are already there
    locations: tuple[str, ...]  # in the data folder, in the order of search; a download goes to the first
    members: tuple[str, ...] = ()  # of an archive: the files in it that are read

    def found(self, root: Path) -> Path | None:
        return next((root / path for path in self.locations if (root / path).is_file()), None)

    def paths(self, root: Path) -> list[Path]:
        """The paths to read: the file itself, or the members of the archive."""
        return [root / path for path in self.members] or [self.found(root) or root / self.locations[0]]

    def missing(self, root: Path) -> list[Path]:
        return [path for path in self.paths(root) if not path.is_file()]


def cifar_archive(name: str, md5: str, folder: str, files: Sequence[str]) -> Official:
    url = f"https://www.cs.toronto.edu/~kriz/{name}"
    return Official(url, md5, (name,), tuple(f"{folder}/{file}" for file in files))


def svhn_file(name: str, md5: str) -> Official:
    return Official(f"http://ufldl.stanford.edu/housenumbers/{name}", md5, (f"svhn/{name}", name))


def fashion_mnist_file(name: str, md5: str) -> Official:
    folders = ("fashion-mnist", "FashionMNIST/raw", "/usr/share/datasets/fashion-mnist")  # the last is Debian's
    locations = tuple(f"{folder}/{file}" for folder in folders for file in (f"{name}.gz", name))
    return Official(f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{name}.gz", md5, locations)


CIFAR10 = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin", "batches.meta.txt")
CIFAR100 = ("train.bin", "test.bin", "fine_label_names.txt")

OFFICIAL: dict[str, tuple[Official, ...]] = {
    "cifar10": (
        cifar_archive("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", "cifar-10-batches-bin", CIFAR10),
    ),
    "cifar100": (
        cifar_archive("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", "cifar-100-binary", CIFAR100),
    ),
    "svhn": (
        svhn_file("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
        svhn_file("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
    ),
    "fashion-mnist": (
        fashion_mnist_file("train-images-idx3-ubyte", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        fashion_mnist_file("train-labels-idx1-ubyte", "25c81989df183df01b3e8a0aad5dffbe"),
        fashion_mnist_file("t10k-images-idx3-ubyte", "bef4ecab320f06d8554ea6380940ec79"),
        fashion_mnist_file("t10k-labels-idx1-ubyte", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
}


def data_folder(given: Path | None = None) -> Path:
    """The given folder, else $CERTUS_DATA, else the user's cache folder."""
    if given is None and os.environ.get("CERTUS_DATA"):
        given = Path(os.environ["CERTUS_DATA"])
    if given is None:
        import pooch  # type: ignore[import-untyped]

        given = Path(pooch.os_cache("certus"))
    return given.expanduser()


def locate(name: str, root: Path) -> list[Path]:
    """The files from which a data set is read, in OFFICIAL's order; an archive is unpacked first."""
    paths: list[Path] = []
    for file in OFFICIAL[name]:
        missing, archive = file.missing(root), file.found(root)
        if missing and archive:
            unpack(name, archive, root, file.members)
        elif missing:
            raise CertusError(
                f"{name} needs {missing[0]}, but there is no such file: run `certus data fetch {name}`, "
                f"or download {file.url} to {root / file.locations[0]}."
            )
        paths += file.paths(root)
    return paths


def fetch(name: str, root: Path) -> list[Path]:
    """Download missing files, check their md5, and unpack them; existing files are used as they are."""
    if name not in OFFICIAL:
        raise unknown("data set to fetch", name, OFFICIAL)
    for file in OFFICIAL[name]:
        if file.missing(root) and not file.found(root):
            download(name, file, root)
    return locate(name, root)


def download(name: str, file: Official, root: Path) -> None:
    import pooch
    from requests import RequestException

    target, host = root / file.locations[0], urlsplit(file.url).hostname
    pooch.get_logger().setLevel("WARNING")  # the progress bar is enough
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with progress(file.url) as bar:
            downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=CHUNK)
            pooch.retrieve(file.url, f"md5:{file.md5}", target.name, target.parent, downloader=downloader)
        target.chmod(0o644)  # pooch lets only the owner read it, but a data folder may be shared
        return
    except RequestException as error:
        answer = error.response
        why = f"the connection to {host} failed" if answer is None else f"{host} answered {answer.status_code}"
    except ValueError:
        why = f"the file from {host} does not have the official md5 {file.md5}"
    except OSError as error:
        why = f"{error.filename or target}: {error.strerror or error}"
    raise CertusError(
        f"{target.name} could not be downloaded ({why}): download {file.url} to {target} in another way, "
        f"and run `certus data fetch {name}` again."
    )


def unpack(name: str, archive: Path, root: Path, files: Sequence[str]) -> None:
    """Extract the files that are missing, and no others, from a .tar.gz; each is written completely or not at all."""
    wanted = [path for path in files if not (root / path).is_file()]
    try:
        with TemporaryDirectory(dir=root, prefix=".unpack-") as folder, gzip.open(archive) as raw:
            with tarfile.open(fileobj=raw, mode="r|") as tar:
                for member in tar:
                    path = posixpath.normpath(member.name)
                    if member.isfile() and path in wanted and (content := tar.extractfile(member)):
                        Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
                        write_new(Path(folder, path), partial(shutil.copyfileobj, content, length=CHUNK))
            while raw.read(CHUNK):  # to the end, where gzip checks its checksum
                pass
            for path in wanted:
                if not Path(folder, path).is_file():
                    raise broken(name, archive, f"there is no {path} in it")
            for path in wanted:
                (root / path).parent.mkdir(exist_ok=True)
                Path(folder, path).replace(root / path)
                sync_folder((root / path).parent)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise broken(name, archive, f"it is truncated or altered ({error})") from error
    except OSError as error:
        raise CertusError(f"{archive} could not be unpacked into {root}: {error.strerror or error}.") from error


def broken(name: str, path: Path, why: str) -> CertusError:
    return CertusError(
        f"{path} cannot be used: {why}; replace it by the official file, "
        f"or delete it and run `certus data fetch {name}`."
    )


@contextmanager
def reading(name: str, path: Path) -> Iterator[None]:
    """Turn any exception about a broken file into an error that names the file."""
    try:
        yield
    except CertusError:
        raise
    except Exception as error:  # readers of other formats may raise anything
        text = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
        raise broken(name, path, f"it cannot be read ({text})") from error


def check_labels(name: str, path: Path, labels: NDArray[Any], lowest: int, highest: int) -> None:
    wrong = np.flatnonzero((labels < lowest) | (labels > highest))
    if len(wrong):
        first = wrong[0]
        raise broken(name, path, f"label {labels[first]} of image {first} is not in {lowest}..{highest}")


class Bar:
    """The progress of a download, with the interface that pooch expects."""

    def __init__(self, bars: Progress, title: str) -> None:
        self.bars, self.task, self.total = bars, bars.add_task(title, total=None), 0

    def update(self, size: int) -> None:
        self.bars.update(self.task, advance=size, total=self.total or None)

    def reset(self) -> None:
        self.bars.update(self.task, completed=0)

    def close(self) -> None:
        self.bars.refresh()


@contextmanager
def progress(url: str) -> Iterator[Bar]:
    """Progress on the error stream: a bar in a terminal, else one plain line."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.print(f"downloading {url}", soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(24), DownloadColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        yield Bar(bars, posixpath.basename(url))
