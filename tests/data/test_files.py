"""The official files: where they are, how a missing one is downloaded, and errors about broken ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from certus.data.files import OFFICIAL, Official, data_folder, fetch, locate
from certus.errors import CertusError, UsageError

Publish = Callable[..., None]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A folder and the loopback address at which it is served."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "host"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Make `toy` a data set of one official file."""

    def do(url: str, data: bytes, path: str, members: tuple[str, ...] = ()) -> None:
        file = Official(f"{url}/{Path(path).name}", hashlib.md5(data).hexdigest(), (path,), members)
        monkeypatch.setitem(OFFICIAL, "toy", (file,))

    return do


def archive(files: dict[str, bytes], link: tuple[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        if link:
            member = tarfile.TarInfo(link[0])
            member.type, member.linkname = tarfile.SYMTYPE, link[1]
            tar.addfile(member)
    return buffer.getvalue()


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def left_over(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def refused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CERTUS_DATA", str(tmp_path / "variable"))
    assert data_folder(tmp_path) == tmp_path
    assert data_folder(None) == tmp_path / "variable"
    monkeypatch.setenv("CERTUS_DATA", "~/data")
    assert data_folder(None) == Path.home() / "data"
    monkeypatch.setenv("CERTUS_DATA", "")
    assert "certus" in str(data_folder(None))


def test_every_official_file_has_an_address_and_a_checksum() -> None:
    files = [file for files in OFFICIAL.values() for file in files]
    assert set(OFFICIAL) == {"cifar10", "cifar100", "svhn", "fashion-mnist"}
    assert all(file.url.startswith("http") and file.url.endswith(Path(file.locations[0]).name) for file in files)
    assert all(len(bytes.fromhex(file.md5)) == 16 for file in files)
    assert len({file.md5 for file in files}) == len(files)


def test_a_file_is_downloaded_once(host: tuple[Path, str], root: Path, publish: Publish) -> None:
    folder, url = host
    put(folder / "a.mat", b"data")
    publish(url, b"data", "toy/a.mat")
    assert fetch("toy", root) == locate("toy", root) == [root / "toy/a.mat"]
    assert (root / "toy/a.mat").read_bytes() == b"data"
    (folder / "a.mat").unlink()
    assert fetch("toy", root) == [root / "toy/a.mat"]
    assert left_over(root) == ["toy/a.mat"]


def test_an_archive_is_downloaded_and_unpacked(host: tuple[Path, str], root: Path, publish: Publish) -> None:
    folder, url = host
    data = archive({"toy/one.bin": b"1", "toy/two.bin": b"2" * 100_000, "toy/readme.html": b"not needed"})
    put(folder / "toy.tar.gz", data)
    publish(url, data, "toy.tar.gz", ("toy/two.bin", "toy/one.bin"))
    assert fetch("toy", root) == [root / "toy/two.bin", root / "toy/one.bin"]
    assert (root / "toy/two.bin").read_bytes() == b"2" * 100_000
    assert left_over(root) == ["toy.tar.gz", "toy/one.bin", "toy/two.bin"]


def test_a_download_with_another_checksum_is_refused(host: tuple[Path, str], root: Path, publish: Publish) -> None:
    folder, url = host
    put(folder / "a.mat", b"altered")
    publish(url, b"data", "toy/a.mat")
    with pytest.raises(CertusError, match=r"^a\.mat could not be downloaded \(.* official md5 8d777f385d3dfec8815d20f"):
        fetch("toy", root)
    assert left_over(root) == []


def test_an_address_that_no_longer_exists(host: tuple[Path, str], root: Path, publish: Publish) -> None:
    publish(host[1], b"data", "toy/a.mat")
    with pytest.raises(CertusError, match=r"127\.0\.0\.1 answered 404"):
        fetch("toy", root)
    assert left_over(root) == []


def test_without_network_the_error_names_the_address_and_the_path(
    root: Path, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    url = f"http://127.0.0.1:{refused_port()}"
    data = archive({"toy/a.bin": b"1"})
    publish(url, data, "toy.tar.gz", ("toy/a.bin",))
    with pytest.raises(CertusError) as error:
        fetch("toy", root)
    text = str(error.value)
    assert text.count("\n") == 0
    assert "the connection to 127.0.0.1 failed" in text
    assert f"download {url}/toy.tar.gz to {root / 'toy.tar.gz'}" in text
    assert left_over(root) == []
    put(root / "toy.tar.gz", data)
    assert fetch("toy", root) == [root / "toy/a.bin"]


def test_a_data_folder_that_cannot_be_written(host: tuple[Path, str], root: Path, publish: Publish) -> None:
    put(root, b"a file where the folder should be")
    publish(host[1], b"data", "toy/a.mat")
    with pytest.raises(CertusError, match=r"a\.mat could not be downloaded \(.*data.*: "):
        fetch("toy", root)


def test_only_data_sets_with_official_files_are_fetched(root: Path) -> None:
    with pytest.raises(UsageError, match=r"no data set to fetch 'cifar'. Did you mean 'cifar10'\?"):
        fetch("cifar", root)


@pytest.mark.parametrize("name", OFFICIAL)
def test_a_missing_file_is_named(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = OFFICIAL[name][0]
    relative = tuple(path for path in first.locations if not path.startswith("/"))
    monkeypatch.setitem(OFFICIAL, name, (Official(first.url, first.md5, relative, first.members),))
    with pytest.raises(CertusError) as error:
        locate(name, root)
    assert str(error.value) == (
        f"{name} needs {root / (first.members or first.locations)[0]}, but there is no such file: "
        f"run `certus data fetch {name}`, or download {first.url} to {root / first.locations[0]}."
    )


def test_an_existing_archive_is_used_and_existing_files_are_kept(root: Path, publish: Publish) -> None:
    data = archive({"./toy/a.bin": b"new a", "./toy/b.bin": b"new b"})
    publish("http://127.0.0.1:9", data, "toy.tar.gz", ("toy/a.bin", "toy/b.bin"))
    put(root / "toy.tar.gz", data)
    put(root / "toy/a.bin", b"old a")
    assert [path.read_bytes() for path in locate("toy", root)] == [b"old a", b"new b"]


def test_an_archive_cannot_write_outside_the_folder(root: Path, publish: Publish) -> None:
    data = archive({"../evil": b"1", "/tmp/../evil": b"1", "toy/../../evil": b"1", "toy/a.bin": b"good"})
    publish("http://127.0.0.1:9", data, "toy.tar.gz", ("toy/a.bin",))
    put(root / "toy.tar.gz", data)
    locate("toy", root)
    assert left_over(root.parent) == ["data/toy.tar.gz", "data/toy/a.bin"]


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: data[: len(data) // 2], "truncated or altered"),
        (lambda data: data[:-6], "truncated or altered"),
        (lambda data: data[:-8] + bytes(4) + data[-4:], "truncated or altered"),
        (lambda _: b"<html>not an archive</html>", "truncated or altered"),
        (lambda _: gzip.compress(b"not a tar file"), "truncated or altered"),
        (lambda _: b"", "truncated or altered"),
        (lambda _: archive({"toy/other.bin": b"1"}), r"there is no toy/a\.bin in it"),
        (lambda _: archive({}, link=("toy/a.bin", "/etc/hostname")), r"there is no toy/a\.bin in it"),
    ],
    ids=["half", "no checksum", "wrong checksum", "html", "no tar", "empty", "other files", "link"],
)
def test_a_broken_archive_is_named(damage: Callable[[bytes], bytes], why: str, root: Path, publish: Publish) -> None:
    data = archive({"toy/a.bin": bytes(range(256)) * 300})
    publish("http://127.0.0.1:9", data, "toy.tar.gz", ("toy/a.bin",))
    put(root / "toy.tar.gz", damage(data))
    with pytest.raises(CertusError, match=rf"toy\.tar\.gz cannot be used: .*{why}.*`certus data fetch toy`\.$"):
        locate("toy", root)
    assert left_over(root) == ["toy.tar.gz"]
