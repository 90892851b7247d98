"""A picture is decoded once, even if its file is moved, the cache is damaged, or the process is killed."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from certus.data import cache as module
from certus.data.cache import FOLDER, Found, decoded, default_folder
from certus.data.decode import decode

SIZE = 8
N = 12


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the files that were read and decoded."""
    count: Counter[str] = Counter()

    def counting(name: str) -> Callable[..., object]:
        real = getattr(module, name)

        def call(*args: object) -> object:
            count[name] += 1
            return real(*args)

        return call

    for name in ("read", "decode_bytes"):
        monkeypatch.setattr(module, name, counting(name))
    return count


def write(path: Path, seed: int, grey: bool = False, age: float = 100.0) -> None:
    """A picture of noise, old enough to count as settled."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 256, (10, 9) if grey else (10, 9, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    settle(path, age)


def settle(path: Path, age: float = 100.0) -> None:
    then = time.time_ns() - int(age * 1e9)
    os.utime(path, ns=(then, then))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for i in range(N):
        write(tmp_path / "photos" / f"{i:02}.png", i)
    return tmp_path / "photos"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def names(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*.png"))


def load(root: Path, folder: Path, size: int = SIZE, fit: str = "crop") -> Found:
    """Load, and compare every picture with its own file."""
    found = decoded(root, names(root), size, folder, lambda *_: None, fit)
    assert found.rows.keys() | found.skipped.keys() == set(names(root))
    for file, row in found.rows.items():
        assert (np.broadcast_to(found.pack.images[row], (3, size, size)) == decode(root / file, size, fit)).all(), file
    return found


def packs(folder: Path) -> list[Path]:
    return sorted(p for p in (folder / FOLDER / str(SIZE)).glob("*.npy") if not p.name.endswith(".keys.npy"))


def test_the_second_time_nothing_is_opened(root: Path, folder: Path, work: Counter[str]) -> None:
    load(root, folder)
    assert work == {"read": N, "decode_bytes": N}
    found = load(root, folder)
    assert work == {"read": N, "decode_bytes": N}
    assert isinstance(found.pack.images, np.memmap)
    assert found.notice is None
    assert len(packs(folder)) == 1


def test_a_file_that_may_still_change_is_read_again_but_not_decoded(
    root: Path, folder: Path, work: Counter[str]
) -> None:
    settle(root / "03.png", age=0.0)
    load(root, folder)
    load(root, folder)
    assert work == {"read": N + 1, "decode_bytes": N}


def test_a_changed_file_of_the_same_name_and_length(root: Path, folder: Path, work: Counter[str]) -> None:
    for i, name in enumerate(("a.bmp", "b.bmp")):
        write(root / name, 50 + i)
    (root / "a.bmp").rename(root / "x.png")
    before = load(root, folder)
    length = (root / "x.png").stat().st_size
    (root / "b.bmp").rename(root / "x.png")
    settle(root / "x.png", age=50.0)
    assert (root / "x.png").stat().st_size == length
    after = load(root, folder)
    assert work == {"read": N + 2, "decode_bytes": N + 2}
    assert (before.pack.images[before.rows["x.png"]] != after.pack.images[after.rows["x.png"]]).any()


def test_a_moved_file_is_not_decoded_again(root: Path, folder: Path, work: Counter[str]) -> None:
    load(root, folder)
    (root / "05.png").rename(root / "zz.png")
    load(root, folder)
    assert work == {"read": N + 1, "decode_bytes": N}
    root.rename(root.with_name("elsewhere"))
    load(root.with_name("elsewhere"), folder)
    assert work == {"read": 2 * N + 1, "decode_bytes": N}


def test_only_new_pictures_are_decoded(root: Path, folder: Path, work: Counter[str]) -> None:
    load(root, folder)
    write(root / "new" / "00.png", 100)
    write(root / "zz.png", 101)
    (root / "02.png").unlink()
    load(root, folder)
    assert work == {"read": N + 2, "decode_bytes": N + 2}
    load(root, folder)
    assert work == {"read": N + 2, "decode_bytes": N + 2}


def test_growing_leaves_no_copies_behind(root: Path, folder: Path) -> None:
    load(root, folder)
    write(root / "zz.png", 101)
    load(root, folder)
    assert len(packs(folder)) == 1


def test_folders_share_pictures(root: Path, folder: Path, work: Counter[str], tmp_path: Path) -> None:
    load(root, folder)
    for name in ("07.png", "01.png"):
        target = tmp_path / "few" / f"{int(name[:2]) % 7}.png"  # in another order
        target.parent.mkdir(exist_ok=True)
        target.write_bytes((root / name).read_bytes())
    load(tmp_path / "few", folder)
    load(root, folder)
    assert work["decode_bytes"] == N


def test_each_size_has_its_own(root: Path, folder: Path, work: Counter[str]) -> None:
    load(root, folder)
    load(root, folder, 12)
    assert work["decode_bytes"] == 2 * N
    load(root, folder)
    assert work["decode_bytes"] == 2 * N


def test_each_way_to_fit_has_its_own(root: Path, folder: Path, work: Counter[str]) -> None:
    found = {fit: load(root, folder, fit=fit).pack.images for fit in ("crop", "pad", "stretch")}
    assert work["decode_bytes"] == 3 * N
    assert not (found["crop"] == found["pad"]).all()
    assert not (found["stretch"] == found["pad"]).all()
    for fit in found:
        load(root, folder, fit=fit)
    assert work["decode_bytes"] == 3 * N


def mapped(images: np.ndarray) -> bool:
    base: object = images
    while base is not None and not isinstance(base, np.memmap):
        base = getattr(base, "base", None)
    return base is not None


def test_a_folder_with_one_content_under_two_names_is_mapped_too(root: Path, folder: Path, work: Counter[str]) -> None:
    (root / "05b.png").write_bytes((root / "04.png").read_bytes())
    settle(root / "05b.png")
    files = [Path(name) for name in names(root)]
    for _ in range(2):
        found = load(root, folder)
        assert len(found.pack.records) == N + 1
        images = found.images(files)
        assert mapped(images)
        assert (images[4] == images[6]).all()
        assert len(packs(folder)) == 1
    assert work["decode_bytes"] == N + 1  # both were read before the first was saved
    picked = found.images([files[4], files[6], files[0]])
    assert (picked == found.pack.images[[4, 6, 0]]).all()


@pytest.mark.parametrize("row", [4, 6])
def test_damage_of_either_copy_is_found(root: Path, folder: Path, row: int) -> None:
    (root / "05b.png").write_bytes((root / "04.png").read_bytes())
    settle(root / "05b.png")
    load(root, folder)
    (pack,) = packs(folder)
    content = bytearray(pack.read_bytes())
    content[-(N + 1 - row) * 3 * SIZE**2] ^= 255
    pack.write_bytes(bytes(content))
    load(root, folder)


def test_grey_pictures_take_one_channel(root: Path, folder: Path, work: Counter[str]) -> None:
    for i in range(N):
        write(root / f"{i:02}.png", i, grey=True)
    assert load(root, folder).pack.images.shape == (N, 1, SIZE, SIZE)
    write(root / "colour.png", 99)
    assert load(root, folder).pack.images.shape == (N + 1, 3, SIZE, SIZE)
    (root / "colour.png").unlink()
    assert load(root, folder).pack.images.shape == (N, 1, SIZE, SIZE)
    assert work["decode_bytes"] == N + 1


def test_an_unreadable_picture_is_tried_again(root: Path, folder: Path, work: Counter[str]) -> None:
    good = (root / "03.png").read_bytes()
    (root / "03.png").write_bytes(b"")
    settle(root / "03.png")
    for _ in range(2):
        found = load(root, folder)
        assert found.skipped == {"03.png": "the file is empty"}
        assert len(found.rows) == N - 1
    assert work["read"] == N + 1  # only this one is
    (root / "03.png").write_bytes(good)
    assert not load(root, folder).skipped
    assert not decoded(root, [], SIZE, folder, lambda *_: None).rows


def test_changes_are_not_written_back(root: Path, folder: Path) -> None:
    load(root, folder).pack.images[:] = 0
    load(root, folder)


def damage_images(folder: Path) -> None:
    data = bytearray(packs(folder)[0].read_bytes())
    data[-5] ^= 1
    packs(folder)[0].write_bytes(data)


def damage_head(folder: Path) -> None:
    data = packs(folder)[0].read_bytes()
    packs(folder)[0].write_bytes(b"garbage!" + data[8:])


def cut_images(folder: Path) -> None:
    os.truncate(packs(folder)[0], packs(folder)[0].stat().st_size - 1)


def empty_images(folder: Path) -> None:
    packs(folder)[0].write_bytes(b"")


def lose_images(folder: Path) -> None:
    packs(folder)[0].unlink()


def cut_keys(folder: Path) -> None:
    path = packs(folder)[0].with_suffix(".keys.npy")
    os.truncate(path, path.stat().st_size // 2)


def other_keys(folder: Path) -> None:
    np.save(packs(folder)[0].with_suffix(".keys.npy"), np.zeros(N))


def other_shape(folder: Path) -> None:
    np.save(packs(folder)[0], np.zeros((N, 3, SIZE, SIZE + 1), np.uint8))


def fewer_rows(folder: Path) -> None:
    np.save(packs(folder)[0], np.load(packs(folder)[0])[:-1])


def damage_seen(folder: Path) -> None:
    (path,) = (folder / FOLDER).glob("seen-*.json")
    path.write_text(path.read_text()[:-20])


def nonsense_seen(folder: Path) -> None:
    (path,) = (folder / FOLDER).glob("seen-*.json")
    path.write_text('[["00.png", null, 3, "zz"]]')


@pytest.mark.parametrize(
    ("harm", "again"),
    [(damage_images, 1), (damage_head, N), (cut_images, N), (empty_images, N), (lose_images, N), (cut_keys, N),
     (other_keys, N), (other_shape, N), (fewer_rows, N), (damage_seen, 0), (nonsense_seen, 0)],
)  # fmt: skip
def test_damage_is_found_and_repaired(
    root: Path, folder: Path, work: Counter[str], harm: Callable[[Path], None], again: int
) -> None:
    load(root, folder)
    harm(folder)
    load(root, folder)
    assert work["decode_bytes"] == N + again
    work.clear()
    load(root, folder)
    assert not work


class Killed(BaseException):
    pass


@pytest.mark.parametrize("at", range(1, 22))
def test_killed_while_writing(root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Blocks of 5: 3 packs and the whole, two files each, and the list of files; the file and the folder of each of
    these 9 are flushed to the disk, and 3 new folders. Each of the 21 is interrupted."""
    monkeypatch.setattr(module, "BLOCK", 5)
    with monkeypatch.context() as patch:
        writings = iter(range(1, 100))

        def sync(_: int) -> None:
            if next(writings) >= at:
                raise Killed

        patch.setattr(os, "fsync", sync)
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # a killed process removes nothing
        with pytest.raises(Killed):
            load(root, folder)
    found = load(root, folder)
    assert len(found.rows) == N
    assert not found.skipped
    assert len(packs(folder)) == 1


def test_an_interrupted_run_keeps_its_work(
    root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, work: Counter[str]
) -> None:
    monkeypatch.setattr(module, "BLOCK", 4)

    def listen(done: int, of: int) -> None:
        assert of == N
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decoded(root, names(root), SIZE, folder, listen)
    work.clear()
    load(root, folder)
    assert work["decode_bytes"] == N - 6


def test_leftovers_are_deleted_after_a_day(root: Path, folder: Path) -> None:
    load(root, folder)
    (pack,) = packs(folder)
    old, orphan, new = (pack.with_name(name) for name in (".old.part", "orphan.npy", ".new.part"))
    for path, age in ((old, 100_000.0), (orphan, 100_000.0), (new, 1000.0), (pack, 100_000.0)):
        path.touch()
        settle(path, age)
    load(root, folder)
    assert not old.exists()
    assert not orphan.exists()
    assert new.exists()
    assert pack.exists()


def test_a_pack_within_another_stays(root: Path, folder: Path, tmp_path: Path) -> None:
    """Loading one folder does not delete the pack of the other."""
    load(root, folder)
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "a.png").write_bytes((root / "07.png").read_bytes())
    settle(tmp_path / "few" / "a.png")
    load(tmp_path / "few", folder)
    both = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in packs(folder)}
    assert len(both) == 2
    for again in (root, tmp_path / "few", root):
        load(again, folder)
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in packs(folder)} == both


def test_a_damaged_pack_is_deleted_when_another_folder_uses_it(
    root: Path, folder: Path, tmp_path: Path, work: Counter[str]
) -> None:
    load(root, folder)
    (damaged,) = packs(folder)
    damage_images(folder)
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "a.png").write_bytes((root / f"{N - 1:02}.png").read_bytes())
    load(tmp_path / "few", folder)
    assert work["decode_bytes"] == N + 1
    assert damaged not in packs(folder)


@pytest.mark.parametrize("moment", [1, 5, 6, 11, N])
def test_two_processes_at_once(root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    """While one process decodes, another does all the work and deletes the blocks of the first."""
    monkeypatch.setattr(module, "BLOCK", 5)

    def listen(done: int, _: int) -> None:
        if done == moment:
            load(root, folder)

    found = decoded(root, names(root), SIZE, folder, listen)
    for file, row in found.rows.items():
        assert (found.pack.images[row] == decode(root / file, SIZE)).all()
    load(root, folder)
    assert len(packs(folder)) == 1


def test_damage_is_found_in_every_pack_that_is_used(root: Path, folder: Path, tmp_path: Path) -> None:
    """Each picture is in two packs, one of them damaged; the lists of known files are lost."""
    load(root, folder)
    (whole,) = packs(folder)
    for i in range(6):
        few = tmp_path / f"few{i}"
        few.mkdir()
        (few / "a.png").write_bytes((root / f"{i:02}.png").read_bytes())
        load(few, folder)
    for path in packs(folder):
        if path != whole:
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    for path in (folder / FOLDER).glob("seen-*.json"):
        path.unlink()
    for i in range(6):
        load(tmp_path / f"few{i}", folder)


def failing(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("how", ["full", "file"])
def test_a_folder_that_cannot_be_written(root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(module, "BLOCK", 5)
    if how == "full":
        monkeypatch.setattr(os, "fsync", failing)
    else:
        folder.write_text("a file")
    for _ in range(2):
        found = load(root, folder)
        assert found.notice is not None
        assert str(folder) in found.notice
        assert "CERTUS_CACHE" in found.notice
        assert len(found.rows) == N
    assert not list(folder.rglob("*.npy"))
    assert not list(folder.rglob("*.part"))


def test_a_complete_cache_needs_no_writing(root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(root, folder)
    monkeypatch.setattr(os, "fsync", failing)
    assert load(root, folder).notice is None


def test_a_full_disk_does_not_delete_the_old_pack(root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(root, folder)
    before = packs(folder)
    write(root / "zz.png", 99)
    monkeypatch.setattr(os, "fsync", failing)
    assert load(root, folder).notice
    assert packs(folder) == before


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CERTUS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "certus"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert default_folder() == tmp_path / "x" / "certus"
    monkeypatch.setenv("CERTUS_CACHE", str(tmp_path / "c"))
    assert default_folder() == tmp_path / "c"
