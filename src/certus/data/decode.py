"""Picture files as pixels: every format and mode becomes red, green and blue bytes of one size."""

from __future__ import annotations

import functools
import math
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from certus.data.fitting import padded, resized, spare
from certus.data.limits import (
    Unreadable,
    bytes_in_use,
    check_file,
    check_pixels,
    most_bytes,
    most_pixels,
    pixels_in_use,
)
from certus.errors import UsageError

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = frozenset(
    ".png .jpg .jpeg .jpe .jfif .webp .bmp .tif .tiff .gif .ppm .pgm .pbm .pnm .jp2 .j2k .avif .tga .pcx .sgi".split()
)
FORMATS = tuple("PNG JPEG WEBP BMP TIFF GIF PPM JPEG2000 AVIF PCX SGI TGA".split())  # no other decoder is used
FORMAT_NAMES = "PNG, JPEG, WebP, BMP, TIFF, GIF, PPM, JPEG 2000, AVIF, PCX, SGI or TGA"
ORIENTATION = 0x0112  # the EXIF tag
SIZES = (32, 48, 64, 96, 128, 160)  # the choices when the user gives no size
SAMPLE = 1000  # pictures that are opened to choose a size
GREY = np.array([299, 587, 114], dtype=np.uint32)  # shares of red, green and blue in brightness, in thousandths
CHUNK = 4  # pictures that a thread takes at a time, because each handover costs time
WORKERS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, eq=False)
class Decoded:
    """A picture's pixels, and properties of its file."""

    pixels: NDArray[np.uint8]  # (3, size, size)
    width: int  # upright, before resizing
    height: int
    transparent: bool  # it had transparent pixels, which are white now

    @property
    def grey(self) -> bool:
        red, green, blue = self.pixels
        return bool((red == green).all() and (green == blue).all())


def decode(path: Path, size: int, fit: str = "crop") -> NDArray[np.uint8]:
    """The picture as (3, size, size): crop resizes its shorter side to `size`, then cuts out its middle.

    It is rotated by its EXIF orientation. Transparent pixels become white. 16 bits become 8 (v / 257). Only the first
    image of an animation or of several pages is used. Raises `Unreadable` with the reason if it cannot be decoded.
    """
    with quiet(), read(path) as data:
        return decode_bytes(data, size, fit).pixels


def decode_bytes(data: bytes, size: int, fit: str = "crop", most: int | None = None) -> Decoded:
    """Like `decode`, from a file's content, of `most` pixels. Pillow may warn, so call it within `quiet`."""
    need_pillow()
    from PIL import Image, UnidentifiedImageError

    if not data:
        raise Unreadable("the file is empty")
    try:
        with Image.open(BytesIO(data), formats=formats()) as image:
            width, height = image.size
            with pixels_in_use.take(check_pixels(width, height, most), most_pixels()):
                small, exif, transparent = reduced(image, size, fit)
            if exif >= 5:  # rotated by a quarter
                width, height = height, width
            return Decoded(np.ascontiguousarray(np.asarray(small).transpose(2, 0, 1)), width, height, transparent)
    except Unreadable:
        raise
    except UnidentifiedImageError:
        raise Unreadable(f"it is not a {FORMAT_NAMES} picture") from None
    except Image.DecompressionBombError:
        raise Unreadable(f"it has more than {most_pixels():,} pixels (CERTUS_MAX_PIXELS sets another limit)") from None
    except Exception as error:  # a damaged file makes Pillow raise almost anything
        raise Unreadable(str(error) or type(error).__name__) from error


@functools.cache
def formats() -> tuple[str, ...]:
    """Those of FORMATS that this version of Pillow has."""
    from PIL import Image

    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def reduced(image: Image.Image, size: int, fit: str) -> tuple[Image.Image, int, bool]:
    """A square of it as RGB, upright; its EXIF orientation; and whether it had transparent pixels."""
    width, height = image.size
    enough = spare(width, height, size, fit)  # JPEG: decode at a fraction of its size
    fraction = image.draft(None, (math.ceil(width * enough), math.ceil(height * enough)))
    image.load()
    exif = orientation(image)
    plain, transparent = flattened(image)
    extent = fraction[1][2:] if fraction else plain.size  # 225 rows at half size are 113, and the last one counts half
    small = upright(resized(plain, extent, size, fit), exif)
    return as_mode("RGB", padded(small, size)), exif, transparent


def flattened(image: Image.Image) -> tuple[Image.Image, bool]:
    """The image in mode L or RGB (no alpha, no palette, 8 bits), and whether it had transparent pixels."""
    from PIL import Image

    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):  # a PGM of 16 bits
        values = np.asarray(image).astype(np.uint32)
        transparent = values == image.info.get("transparency", -1)
        values[transparent] = 65535
        values += 128  # in place: a picture may be large
        values //= 257
        return Image.fromarray(values.astype(np.uint8)), bool(transparent.any())
    if image.mode in ("I", "F"):
        raise Unreadable("its brightness has 32 bits without a fixed range: save it with 8 or 16 bits")
    if image.has_transparency_data:
        layer = as_mode("RGBA", image)
        alpha = layer.getchannel("A")
        below = Image.new("RGB", layer.size, "white")
        below.paste(layer, mask=alpha)
        return below, alpha.getextrema() != (255, 255)
    return as_mode("L" if image.mode in ("1", "L") else "RGB", image), False


def as_mode(mode: str, image: Image.Image) -> Image.Image:
    return image if image.mode == mode else image.convert(mode)  # convert would copy


def orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 is upright. Read it after the pixels: Pillow rotates TIFF by itself, and in PNG
    it may come last."""
    try:
        value = image.getexif().get(ORIENTATION, 1)
    except Exception:  # a broken EXIF block does not make the pixels unusable
        return 1
    return value if value in range(1, 9) else 1


def upright(image: Image.Image, exif: int) -> Image.Image:
    """Rotate or mirror an image with this EXIF orientation."""
    from PIL.Image import Transpose

    turns = (
        Transpose.FLIP_LEFT_RIGHT,
        Transpose.ROTATE_180,
        Transpose.FLIP_TOP_BOTTOM,
        Transpose.TRANSPOSE,
        Transpose.ROTATE_270,
        Transpose.TRANSVERSE,
        Transpose.ROTATE_90,
    )
    return image if exif == 1 else image.transpose(turns[exif - 2])


def shorter_side(path: Path) -> int | None:
    """In pixels, read from the file's header alone; None if that is unreadable."""
    need_pillow()
    from PIL import Image

    try:
        check_file(path)
        with quiet(), Image.open(path, formats=formats()) as image:
            return min(image.size)
    except Exception:
        return None


def choose_size(paths: Sequence[Path]) -> tuple[int, str]:
    """The element of SIZES that is nearest to the pictures' median shorter side, and the reason in words."""
    sample = paths[:: -(-len(paths) // SAMPLE)]
    sides = [side for side in map(shorter_side, sample) if side]
    typical = median(sides or [SIZES[0]])
    size = min(SIZES, key=lambda size: abs(math.log(size / typical)))
    which = f"nearest of {', '.join(map(str, SIZES))}"
    if not SIZES[0] <= typical <= SIZES[-1]:
        which = f"{'smallest' if size == SIZES[0] else 'largest'} automatic size"
    return size, f"because their median shorter side is {typical:,.0f}, and {size} is the {which}"


@contextmanager
def read(path: Path) -> Iterator[bytes]:
    """The content of a regular file. Threads wait for each other if their files are large."""
    size = check_file(path)
    with bytes_in_use.take(size, most_bytes()):
        try:
            with path.open("rb") as file:
                data = file.read(size + 1)
        except OSError as error:
            raise Unreadable(error.strerror or str(error)) from None
        if len(data) > size:
            raise Unreadable("it is still being written")
        yield data


def stream(
    paths: Iterable[Path], size: int, channels: int, batch: int, fit: str = "crop"
) -> Iterator[tuple[list[Path], Tensor, list[tuple[Path, str]]]]:
    """Decode pictures in the order of their paths, `batch` files at a time: (paths, images, skipped with reasons).

    Images are (n, channels, size, size) uint8; with one channel, colour becomes brightness.
    """
    need_pillow()

    def attempt(path: Path) -> NDArray[np.uint8] | str:
        try:
            with read(path) as data:
                return as_channels(decode_bytes(data, size, fit).pixels, channels)
        except Unreadable as reason:
            return str(reason)

    rest = iter(sorted(paths))
    while some := list(islice(rest, batch)):
        with quiet():
            outcomes = list(zip(some, threaded_map(attempt, some), strict=True))
        good = [(path, pixels) for path, pixels in outcomes if not isinstance(pixels, str)]
        images = np.stack([p for _, p in good]) if good else np.empty((0, channels, size, size), np.uint8)
        skipped = [(path, reason) for path, reason in outcomes if isinstance(reason, str)]
        yield [path for path, _ in good], torch.from_numpy(images), skipped


def as_channels(pixels: NDArray[np.uint8], channels: int) -> NDArray[np.uint8]:
    """The pixels (3, H, W), or their brightness (1, H, W); the brightness of a grey picture is exact."""
    if channels == 3:
        return pixels
    return ((np.tensordot(GREY, pixels.astype(np.uint32), 1) + 500) // 1000).astype(np.uint8)[None]


def threaded_map(function: Callable[[A], B], items: Sequence[A]) -> Iterator[B]:
    """`map` by threads, in order, a bounded number of items ahead. Pillow lets other threads run while it decodes."""

    def each(some: Sequence[A]) -> list[B]:
        return [function(item) for item in some]

    rest = (items[at : at + CHUNK] for at in range(0, len(items), CHUNK))
    pool = ThreadPoolExecutor(WORKERS)
    try:
        waiting = deque(pool.submit(each, some) for some in islice(rest, 4 * WORKERS))
        while waiting:
            yield from waiting.popleft().result()
            waiting.extend(pool.submit(each, some) for some in islice(rest, 1))
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings, and Pillow's limit on pixels is ours. Both are the same for all threads: use it around them."""
    need_pillow()
    from PIL import Image

    before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, most_pixels()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        Image.MAX_IMAGE_PIXELS = before


def need_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise UsageError(
            "Reading pictures needs Pillow: run pip install 'certus-ssl[pictures]', or in a checkout "
            "pip install -e '.[pictures]'."
        ) from None
