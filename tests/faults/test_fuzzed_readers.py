"""Every reader of files meets damaged ones: it reads them or refuses them in a sentence, and raises nothing else."""

from __future__ import annotations

import gzip
import io
import random
import struct
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from faults.campaign import DAMAGE, FULL, SEED, tell, write
from PIL import Image
from scipy.io import savemat

from certus.config import Config, resolve
from certus.data.cifar import records
from certus.data.decode import decode_bytes, quiet
from certus.data.fashion_mnist import idx
from certus.data.files import OFFICIAL, unpack
from certus.data.listing import scan
from certus.data.svhn import decode as decode_svhn
from certus.errors import CertusError
from certus.training import artefacts, checkpoint

COUNT = 10_000 if FULL else 40  # inputs of each reader
Reader = Callable[[bytes], object]
random_bytes = np.random.default_rng(0).integers(0, 256, (10, 12, 4), dtype=np.uint8)


def pictures(folder: Path) -> tuple[list[bytes], Reader]:  # noqa: ARG001 (every reader is given a folder)
    found = []
    for kind, mode in (("PNG", "RGBA"), ("PNG", "P"), ("PNG", "I;16"), ("JPEG", "RGB"), ("JPEG", "CMYK"), ("GIF", "P"),
                       ("WEBP", "RGBA"), ("BMP", "RGB"), ("TIFF", "RGBA"), ("TIFF", "1"), ("PPM", "L"),
                       ("SGI", "L"), ("JPEG2000", "L"), ("AVIF", "RGB"), ("TGA", "RGBA"), ("PCX", "RGB")):  # fmt: skip
        image = Image.fromarray(random_bytes)
        image = Image.fromarray(random_bytes[..., 0].astype(np.uint16) * 257) if mode == "I;16" else image.convert(mode)
        file = io.BytesIO()
        extra = {"exif": Image.Exif().tobytes()} if kind == "JPEG" else {}
        image.save(file, kind, **extra)
        found.append(file.getvalue())
    return found, lambda data: decode_bytes(data, 8)


def tables(folder: Path) -> tuple[list[bytes], Reader]:
    for name in ("a.png", "b.png", "c d.png", "=e.png"):
        write(folder / name, b"")

    def read(data: bytes) -> object:
        return scan(write(folder / "labels.csv", data).parent)

    return [
        b"file,label\na.png,cat\nb.png,dog\nc d.png,\n",
        b'\xef\xbb\xbffile,label,rank\r\n"a.png",cat,1\r\n./=e.png,\'=dog,2\r\n',
    ], read


def cifar(folder: Path) -> tuple[list[bytes], Reader]:
    good = b"".join(bytes([label]) + bytes(3072) for label in (0, 9, 3))
    return [good], lambda data: records("cifar10", [write(folder / "a.bin", data)], (10,))


def idx_files(folder: Path) -> tuple[list[bytes], Reader]:
    plain = bytes((0, 0, 8, 3)) + struct.pack(">III", 3, 28, 28) + bytes(3 * 784)
    return [plain, gzip.compress(plain, mtime=0)], lambda data: idx(write(folder / "a", data), (28, 28))


def svhn_files(folder: Path) -> tuple[list[bytes], Reader]:
    found = []
    for packed in (False, True):
        file = io.BytesIO()
        savemat(file, {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[1], [10]])}, do_compression=packed)
        found.append(file.getvalue())
    return found, lambda data: decode_svhn(write(folder / "a.mat", data))


def archives(folder: Path) -> tuple[list[bytes], Reader]:
    members, packed = OFFICIAL["cifar10"][0].members[:2], io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in (*members, "../outside"):
            about = tarfile.TarInfo(name)
            about.size = 30
            tar.addfile(about, io.BytesIO(bytes(range(30))))

    def read(data: bytes) -> None:
        root = folder / "root"
        archive = write(folder / "a.tar.gz", data)
        root.mkdir(exist_ok=True)
        try:
            unpack("cifar10", archive, root, members)
        finally:
            assert not (folder / "outside").exists()
            for name in members:
                (root / name).unlink(missing_ok=True)

    plain = gzip.decompress(packed.getvalue())
    return [packed.getvalue(), gzip.compress(plain, 0, mtime=0)], read


def checkpoints(folder: Path) -> tuple[list[bytes], Reader]:
    checkpoint.write(folder, 3, {"method.a": torch.arange(6.0), "optimiser.b": torch.ones(2, 2)}, {"sums": {}})
    step = folder / "step-00000003"
    good = {file.name: file.read_bytes() for file in step.iterdir()}
    turn = iter(range(10**9))

    def read(data: bytes) -> object:
        name = list(good)[next(turn) % len(good)]
        for other, content in good.items():
            write(step / other, data if other == name else content)
        return checkpoint.read(folder)

    return list(good.values()), read


def run_files(folder: Path) -> tuple[list[bytes], Reader]:
    texts = [resolve({"data": d, "method": m}).text() for d, m in (("digits", "ft-ccl"), ("moons", "wcp"))]
    return [t.encode() for t in texts], lambda data: resolve(Config.read(write(folder / "config.toml", data)))


def epochs(folder: Path) -> tuple[list[bytes], Reader]:  # noqa: ARG001 (every reader is given a folder)
    line = artefacts.sealed({"epoch": 1, "step": 3, "losses": {"supervised": 0.5}, "targets": {}})

    def read(data: bytes) -> object:
        try:
            return artefacts.opened(data, artefacts.EPOCH)
        except ValueError as e:  # which load_metrics turns into a sentence
            raise CertusError(str(e)) from None

    return [str(line).replace("'", '"').encode(), b'{"epoch": 1, "step": 3, "losses": {"a": 1e3}}'], read


def answers(folder: Path) -> tuple[list[bytes], Reader]:
    good = {"probabilities": torch.full((1, 3, 2), 0.5), "labels": torch.tensor([0, 1, 1]), "pe": torch.ones(3)}
    return [artefacts.tensor_bytes(good)], lambda data: artefacts.read_answers(write(folder / "a", data), "remove it")


@pytest.mark.parametrize(
    "make",
    [pictures, tables, cifar, idx_files, svhn_files, archives, checkpoints, run_files, epochs, answers],
    ids=lambda make: make.__name__,
)
def test_a_damaged_file_is_read_or_refused(
    make: Callable[[Path], tuple[list[bytes], Reader]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, read = make(tmp_path)
    for data in good:
        if make is not checkpoints:
            read(data)
    r = random.Random(f"{SEED} {make.__name__}")
    counts: Counter[str] = Counter()
    with quiet():
        for i in range(COUNT):
            data = r.choice(good)
            for _ in range(r.choice((1, 1, 1, 2, 5))):
                data = r.choice(DAMAGE)(data, r)
            try:
                read(data)
                counts["read"] += 1
            except CertusError:
                counts["refused"] += 1
            except Exception as e:
                raise AssertionError(f"seed {SEED}, input {i}: {data[:200]!r}") from e
    tell(capsys, f"fuzzed {make.__name__}", counts)
    assert counts["refused"]
