"""Every kind of picture file becomes the right pixels, or gives a reason why not."""

from __future__ import annotations

import struct
import sys
import threading
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from certus.data import decode as module
from certus.data.decode import Unreadable, as_channels, decode, decode_bytes, shorter_side, stream, threaded_map
from certus.errors import UsageError

CORNERS = np.array([[[220, 30, 30], [30, 200, 40]], [[40, 50, 210], [230, 220, 60]]], dtype=np.uint8)
PICTURE = CORNERS.repeat(24, 0).repeat(24, 1)  # (48, 48, 3)
FORMATS = ("png", "jpg", "webp", "bmp", "tif", "gif", "ppm", "pnm", "jp2", "j2k", "avif", "tga", "pcx", "sgi")


def save(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)
    return path


def corners(pixels: np.ndarray) -> np.ndarray:
    """The middles of the four quarters, as (2, 2, 3)."""
    at = np.array([pixels.shape[1] // 4, 3 * pixels.shape[1] // 4])
    return pixels[:, at[:, None], at].transpose(1, 2, 0).astype(int)


def png(values: np.ndarray, depth: int, kind: int, transparent: bytes = b"") -> bytes:
    """A PNG by the specification, for what Pillow does not write."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = values.astype(f">u{depth // 8}")
    head = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], depth, kind, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    extra = chunk(b"tRNS", transparent) if transparent else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@pytest.mark.parametrize("ending", FORMATS)
def test_formats(tmp_path: Path, ending: str) -> None:
    pixels = decode(save(Image.fromarray(PICTURE), tmp_path / f"a.{ending}"), 16)
    assert pixels.shape == (3, 16, 16)
    assert pixels.dtype == np.uint8
    assert np.abs(corners(pixels) - CORNERS).max() <= 12


def test_the_ending_does_not_decide(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Image.fromarray(PICTURE).save(path, format="PNG")
    assert (corners(decode(path, 16)) == CORNERS).all()


@pytest.mark.parametrize(
    ("mode", "ending"),
    [("1", "png"), ("1", "tif"), ("L", "png"), ("L", "jpg"), ("LA", "png"), ("P", "gif"), ("P", "png"), ("P", "bmp"),
     ("RGBA", "png"), ("RGBA", "webp"), ("RGBA", "tif"), ("CMYK", "jpg"), ("CMYK", "tif"), ("YCbCr", "tif")],
)  # fmt: skip
def test_modes_agree_with_pillows_own_conversion(tmp_path: Path, mode: str, ending: str) -> None:
    """Opaque pictures of any mode; flat quarters, so that resizing changes nothing in their middles."""
    image = Image.fromarray(PICTURE).convert(mode, dither=Image.Dither.NONE)
    pixels = decode(save(image, tmp_path / f"a.{ending}"), 16)
    expected = np.asarray(image.convert("RGB"))[12::24, 12::24].astype(int)
    assert np.abs(corners(pixels) - expected).max() <= 12
    assert decode_bytes((tmp_path / f"a.{ending}").read_bytes(), 16).grey == (mode in ("1", "L", "LA"))


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_sixteen_bits_of_grey(tmp_path: Path, ending: str) -> None:
    values = np.array([[0, 200], [257 * 100 + 100, 65535]], dtype=np.uint16)
    image = Image.fromarray(values.repeat(24, 0).repeat(24, 1))
    assert image.mode == "I;16"
    pixels = decode(save(image, tmp_path / f"a.{ending}"), 16)
    assert (corners(pixels) == np.array([[0, 1], [100, 255]])[..., None]).all()


def test_sixteen_bits_of_colour_and_of_grey_with_a_transparent_value() -> None:
    colour = decode_bytes(png(PICTURE.astype(np.uint16) * 257, 16, 2), 16)
    assert (corners(colour.pixels) == CORNERS).all()
    values = np.array([[1000, 30000]]).repeat(24, 1).repeat(48, 0)
    grey = decode_bytes(png(values, 16, 0, struct.pack(">H", 1000)), 16)
    assert grey.transparent
    assert (corners(grey.pixels)[0, :, 0] == [255, round(30000 / 257)]).all()


@pytest.mark.parametrize("head", [b"P5 4 1 65535\n", b"P5 4 1 1000\n"])
def test_a_portable_greymap_of_sixteen_bits(head: bytes) -> None:
    most = int(head.split()[-1])
    values = np.array([0, most // 4, most // 2, most], dtype=">u2")
    pixels = decode_bytes(head + values.tobytes(), 4, "stretch").pixels
    assert (pixels[:, 0] == np.round(values.astype(float) / most * 255)).all()
    assert decode_bytes(b"P2 2 1 255\n0 255\n", 2, "stretch").pixels[0, 0].tolist() == [0, 255]


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_thirty_two_bits_are_refused(tmp_path: Path, dtype: type) -> None:
    path = save(Image.fromarray(np.zeros((9, 9), dtype)), tmp_path / "a.tif")
    with pytest.raises(Unreadable, match="32 bits"):
        decode(path, 8)


def test_transparent_pixels_become_white(tmp_path: Path) -> None:
    alpha = np.array([[0, 128], [255, 51]], dtype=np.uint8).repeat(24, 0).repeat(24, 1)
    black = np.zeros((48, 48, 3), np.uint8)
    for ending in ("png", "webp", "tif"):
        image = Image.fromarray(np.dstack([black, alpha]))
        found = decode_bytes(save(image, tmp_path / f"a.{ending}", lossless=True).read_bytes(), 16)
        assert found.transparent
        assert found.grey
        assert np.abs(corners(found.pixels)[..., 0] - [[255, 127], [0, 204]]).max() <= 1
    opaque = Image.fromarray(PICTURE).convert("RGBA")
    assert not decode_bytes(save(opaque, tmp_path / "b.png").read_bytes(), 16).transparent


def test_transparent_colour_does_not_bleed(tmp_path: Path) -> None:
    """Invisible red beside visible blue: shrinking must mix white and blue only."""
    image = np.zeros((64, 64, 4), np.uint8)
    image[:, ::2], image[:, 1::2] = (255, 0, 0, 0), (0, 0, 255, 255)
    pixels = decode(save(Image.fromarray(image), tmp_path / "a.png"), 8).astype(int)
    assert np.abs(pixels[:, 4, 4] - [127, 127, 255]).max() <= 2


@pytest.mark.parametrize("ending", ["gif", "png"])
def test_palette_with_transparency(tmp_path: Path, ending: str) -> None:
    image = Image.fromarray(np.array([[0, 1], [2, 0]], np.uint8).repeat(24, 0).repeat(24, 1))
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    several = {"transparency": bytes([0, 255, 255])} if ending == "png" else {"transparency": 0}
    found = decode_bytes(save(image, tmp_path / f"a.{ending}", **several).read_bytes(), 16)
    assert found.transparent
    white = [255, 255, 255]
    assert (corners(found.pixels) == [[white, [0, 255, 0]], [[0, 0, 255], white]]).all()


# What the first row and the first column of the stored pixels show, by the EXIF specification.
SIDES = {
    1: ("top", "left"), 2: ("top", "right"), 3: ("bottom", "right"), 4: ("bottom", "left"),
    5: ("left", "top"), 6: ("right", "top"), 7: ("right", "bottom"), 8: ("left", "bottom"),
}  # fmt: skip


def stored(upright: np.ndarray, orientation: int) -> np.ndarray:
    row, column = SIDES[orientation]
    pixels = upright if row in ("top", "bottom") else upright.swapaxes(0, 1)
    pixels = pixels[::-1] if row in ("bottom", "right") else pixels
    return pixels[:, ::-1] if column in ("bottom", "right") else pixels


@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("orientation", SIDES)
def test_exif_orientation(tmp_path: Path, ending: str, orientation: int) -> None:
    wide = np.pad(PICTURE, ((0, 0), (8, 8), (0, 0)), mode="edge")  # (48, 64, 3)
    image = Image.fromarray(np.ascontiguousarray(stored(wide, orientation)))
    exif = Image.Exif()
    exif[module.ORIENTATION] = orientation
    found = decode_bytes(save(image, tmp_path / f"a.{ending}", exif=exif).read_bytes(), 16)
    assert np.abs(corners(found.pixels) - CORNERS).max() <= 12
    assert (found.width, found.height) == (64, 48)


@pytest.mark.parametrize("ending", ["jpg", "png", "webp"])
@pytest.mark.parametrize("exif", [b"Exif\0\0II*\0\x08\0\0\0\xff", b"Exif\0\0II*\0", b"Exif\0\0nonsense"])
def test_broken_exif_rotates_nothing(tmp_path: Path, ending: str, exif: bytes) -> None:
    path = save(Image.fromarray(PICTURE), tmp_path / f"a.{ending}", exif=exif)
    assert np.abs(corners(decode(path, 16)) - CORNERS).max() <= 12


def test_an_unknown_orientation_rotates_nothing(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[module.ORIENTATION] = 99
    path = save(Image.fromarray(PICTURE), tmp_path / "a.jpg", exif=exif)
    assert np.abs(corners(decode(path, 16)) - CORNERS).max() <= 12


@pytest.mark.parametrize("turned", [False, True])
def test_the_centre_is_kept(tmp_path: Path, turned: bool) -> None:
    wide = np.zeros((40, 120, 3), np.uint8)
    wide[:, :40, 0] = wide[:, 40:80, 1] = wide[:, 80:, 2] = 255
    pixels = decode(save(Image.fromarray(wide.swapaxes(0, 1) if turned else wide), tmp_path / "a.png"), 20)
    assert (pixels[1, 1:-1, 1:-1] == 255).all()
    assert (pixels[[0, 2], 1:-1, 1:-1] == 0).all()


@pytest.mark.parametrize("turned", [False, True])
def test_stretch_keeps_all(tmp_path: Path, turned: bool) -> None:
    wide = PICTURE.repeat(3, 1)
    pixels = decode(save(Image.fromarray(wide.swapaxes(0, 1) if turned else wide), tmp_path / "a.png"), 16, "stretch")
    found = corners(pixels)
    assert (found == (CORNERS.swapaxes(0, 1) if turned else CORNERS)).all()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_pad_keeps_all_and_its_margin_has_the_colour_of_the_outline(tmp_path: Path, turned: bool, ending: str) -> None:
    wide = np.full((400, 1600, 3), (90, 10, 250), np.uint8)
    wide[100:300, 400:1200] = (0, 255, 0)
    path = save(Image.fromarray(wide.swapaxes(0, 1) if turned else wide), tmp_path / f"a.{ending}")
    pixels = decode(path, 32, "pad").astype(int)
    pixels = pixels.swapaxes(1, 2) if turned else pixels
    near = 6  # the filter goes a little beyond
    assert np.abs(pixels[:, :13] - [[[90]], [[10]], [[250]]]).max() <= near  # rows 12 to 19 are the picture
    assert np.abs(pixels[:, 15:17, 10:22] - [[[0]], [[255]], [[0]]]).max() <= near
    assert np.abs(pixels[:, 12:20, :6] - [[[90]], [[10]], [[250]]]).max() <= near


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_a_square_is_the_same_in_every_way_and_grey_stays_grey(tmp_path: Path, fit: str) -> None:
    path = save(Image.fromarray(PICTURE), tmp_path / "a.png")
    assert (decode(path, 16, fit) == decode(path, 16)).all()
    grey = save(Image.fromarray(PICTURE[:20, :, 0]), tmp_path / "b.png")
    assert decode_bytes(grey.read_bytes(), 16, fit).grey
    thin = save(Image.fromarray(PICTURE[:1]).resize((500, 1)), tmp_path / "c.png")
    assert decode(thin, 16, fit).shape == (3, 16, 16)


@pytest.mark.parametrize("fit", ["pad", "stretch"])
@pytest.mark.parametrize("orientation", SIDES)
def test_a_rotated_picture_is_fitted_as_an_upright_one(tmp_path: Path, fit: str, orientation: int) -> None:
    wide = np.pad(PICTURE[:, :-1], ((0, 0), (8, 8), (0, 0)), mode="edge")  # (48, 63, 3)
    exif = Image.Exif()
    exif[module.ORIENTATION] = orientation
    turned = Image.fromarray(np.ascontiguousarray(stored(wide, orientation)))
    found = decode(save(turned, tmp_path / "a.png", exif=exif), 16, fit).astype(int)
    assert np.abs(found - decode(save(Image.fromarray(wide), tmp_path / "b.png"), 16, fit)).max() <= 1


@pytest.mark.parametrize("shape", [(40, 60), (61, 40), (300, 200), (1000, 700), (5, 7)])
def test_it_is_shrinking_and_cropping(tmp_path: Path, shape: tuple[int, int]) -> None:
    """Against the two steps done one after the other, on a smooth random picture."""
    coarse = np.random.default_rng(0).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize(shape, Image.Resampling.BICUBIC)
    size = 20
    factor = size / min(shape)
    whole = image.resize((round(shape[0] * factor), round(shape[1] * factor)), Image.Resampling.BICUBIC)
    expected = np.asarray(ImageOps.fit(whole, (size, size)))
    pixels = decode(save(image, tmp_path / "a.png"), size).transpose(1, 2, 0)
    assert np.abs(pixels.astype(int) - expected).mean() < 4


@pytest.mark.parametrize("shape", [(1200, 900), (300, 225)])
def test_a_jpeg_read_at_a_fraction_looks_the_same(tmp_path: Path, shape: tuple[int, int]) -> None:
    coarse = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize(shape, Image.Resampling.BICUBIC)
    by_jpeg = decode(save(image, tmp_path / "a.jpg", quality=95, subsampling=0), 32).astype(int)
    by_png = decode(save(image, tmp_path / "a.png", compress_level=1), 32).astype(int)
    assert np.abs(by_jpeg - by_png).mean() < 2
    assert decode_bytes((tmp_path / "a.jpg").read_bytes(), 32).width == shape[0]


@pytest.mark.parametrize("ending", ["gif", "tif", "webp", "png"])
def test_only_the_first_frame_is_used(tmp_path: Path, ending: str) -> None:
    first, second = Image.new("RGB", (20, 20), (255, 0, 0)), Image.new("RGB", (20, 20), (0, 0, 255))
    path = save(first, tmp_path / f"a.{ending}", save_all=True, append_images=[second])
    with Image.open(path) as image:
        assert image.n_frames == 2
    assert np.abs(decode(path, 8)[:, 4, 4].astype(int) - [255, 0, 0]).max() <= 2


def test_progressive_and_two_view_jpeg(tmp_path: Path) -> None:
    image = Image.fromarray(PICTURE)
    for path in (
        save(image, tmp_path / "a.jpg", progressive=True),
        save(image, tmp_path / "b.jpg", format="MPO", save_all=True, append_images=[Image.new("RGB", (48, 48))]),
    ):
        assert np.abs(corners(decode(path, 16)) - CORNERS).max() <= 12


@pytest.mark.parametrize("ending", FORMATS)
def test_a_truncated_file_is_unreadable(tmp_path: Path, ending: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (48, 48, 3), dtype=np.uint8)
    data = save(Image.fromarray(noise), tmp_path / f"a.{ending}").read_bytes()
    for keep in (len(data) // 2, 20):
        (tmp_path / f"b.{ending}").write_bytes(data[:keep])
        with pytest.raises(Unreadable, match=r"\w"):
            decode(tmp_path / f"b.{ending}", 16)


def test_reasons(tmp_path: Path) -> None:
    for name, data, reason in (
        ("empty.png", b"", "the file is empty"),
        ("text.png", b"hello", f"it is not a {module.FORMAT_NAMES} picture"),
        (
            "other.png",
            b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
            f"it is not a {module.FORMAT_NAMES} picture",
        ),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(Unreadable) as failed:
            decode(tmp_path / name, 8)
        assert str(failed.value) == reason
    with pytest.raises(Unreadable, match="No such file"):
        decode(tmp_path / "missing.png", 8)


def test_pictures_of_too_many_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(Image.new("L", (100, 100)), tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # Pillow's own limit does not matter, and stays as it was
    assert decode(path, 8).shape == (3, 8, 8)
    assert Image.MAX_IMAGE_PIXELS == 100
    for most in (9999, 4000):  # of the second, Pillow refuses to open more than the double
        monkeypatch.setenv("CERTUS_MAX_PIXELS", str(most))
        with pytest.raises(Unreadable, match=f"{most:,}.*CERTUS_MAX_PIXELS"):
            decode(path, 8)


@pytest.fixture(scope="module")
def valid() -> dict[str, bytes]:
    files = {}
    for ending in FORMATS:
        Image.fromarray(PICTURE[::4, ::4]).save(buffer := BytesIO(), format=Image.registered_extensions()[f".{ending}"])
        files[ending] = buffer.getvalue()
    return files


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damage_is_a_reason_or_a_picture_and_nothing_else(valid: dict[str, bytes], data: st.DataObject) -> None:
    damaged = bytearray(valid[data.draw(st.sampled_from(FORMATS))])
    for _ in range(data.draw(st.integers(1, 6))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with module.quiet():
        try:
            pixels = decode_bytes(bytes(damaged), 8).pixels
        except Unreadable:
            return
    assert pixels.shape == (3, 8, 8)


def test_without_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(Image.new("L", (9, 9)), tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    for call in (lambda: decode(path, 8), lambda: shorter_side(path), lambda: next(stream([path], 8, 3, 1))):
        with pytest.raises(UsageError, match=r"pip install 'certus-ssl\[pictures\]'"):
            call()


def test_brightness_of_grey_is_exact_and_of_colour_weighted() -> None:
    grey = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3).transpose(2, 0, 1)
    assert (as_channels(grey, 1)[0].ravel() == np.arange(256)).all()
    colour = np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    by_pillow = np.asarray(Image.fromarray(colour).convert("L")).astype(int)
    assert np.abs(as_channels(colour.transpose(2, 0, 1), 1)[0] - by_pillow).max() <= 1


@pytest.mark.parametrize("channels", [1, 3])
def test_stream(tmp_path: Path, channels: int) -> None:
    for i in (3, 0, 4, 1):
        save(Image.new("RGB", (10, 12), (i, i, i)), tmp_path / f"{i}.png")
    (tmp_path / "2.png").write_bytes(b"")
    (tmp_path / "5.png").write_bytes(b"")
    batches = list(stream(tmp_path.iterdir(), 8, channels, 2))
    assert [[p.name for p in paths] for paths, _, _ in batches] == [["0.png", "1.png"], ["3.png"], ["4.png"]]
    assert [[(p.name, why) for p, why in skipped] for _, _, skipped in batches] == [
        [], [("2.png", "the file is empty")], [("5.png", "the file is empty")],
    ]  # fmt: skip
    images = torch.cat([images for _, images, _ in batches])
    assert images.dtype == torch.uint8
    assert images.shape == (4, channels, 8, 8)
    assert images[:, 0, 4, 4].tolist() == [0, 1, 3, 4]


def test_stream_of_nothing_readable(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    ((paths, images, skipped),) = stream([tmp_path / "a.png"], 8, 3, 5)
    assert (paths, images.shape, len(skipped)) == ([], (0, 3, 8, 8), 1)


def test_threaded_map_keeps_the_order_and_runs_few_items_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORKERS", 2)
    gate, started = threading.Event(), []

    def slow_first(i: int) -> int:
        started.append(i)
        if i == 0:
            gate.wait(10)
        if i == 4:  # the other thread's first
            gate.set()
        return i

    results = threaded_map(slow_first, range(10_000))
    assert [next(results) for _ in range(20)] == list(range(20))
    results.close()
    assert len(started) <= 20 + 4 * 4 * 2


def test_threaded_map_passes_on_exceptions() -> None:
    with pytest.raises(ZeroDivisionError):
        list(threaded_map(lambda i: 1 // i, [1, 0, 1]))
