"""One picture file as pixels: every format and mode becomes red, green and blue bytes of one size."""

from __future__ import annotations

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

from certus.errors import CertusError, UsageError

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".tif", ".tiff", ".gif"))
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF")  # no other decoder is ever tried
KNOWN = "PNG, JPEG, WebP, BMP, TIFF or GIF"
ORIENTATION = 0x0112  # the EXIF tag
SIZES = (32, 48, 64, 96, 128)  # chosen from when none is given
SAMPLE = 1000  # pictures that are looked at to choose
GREY = np.array([299, 587, 114], dtype=np.uint32)  # brightness of red, green and blue, in thousandths
TOGETHER = 4  # small pictures that a thread takes at a time, as handing them over costs time
WORKERS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

A = TypeVar("A")
B = TypeVar("B")


class Unreadable(CertusError):
    """A picture that cannot be decoded; the message is the reason alone."""


@dataclass(frozen=True, eq=False)
class Decoded:
    """A picture's pixels, and what it was before."""

    pixels: NDArray[np.uint8]  # (3, size, size)
    width: int  # upright, before shrinking
    height: int
    transparent: bool  # it had see-through pixels, which are white now

    @property
    def grey(self) -> bool:
        red, green, blue = self.pixels
        return bool((red == green).all() and (green == blue).all())


def decode(path: Path, size: int) -> NDArray[np.uint8]:
    """The picture as (3, size, size): shrunk whole until its shorter side is `size`, then cropped to its centre.

    It is turned upright by its EXIF orientation. See-through pixels are laid on white. 16 bits become 8 (v / 257).
    Of an animation or a file of several pages the first counts. An `Unreadable` says why when there is no picture.
    """
    with quiet():
        return decode_bytes(read(path), size).pixels


def decode_bytes(data: bytes, size: int) -> Decoded:
    """As `decode`, from a file's content; it may warn, so that the caller wraps it (or many of them) in `quiet`."""
    need_pillow()
    from PIL import Image, UnidentifiedImageError

    if not data:
        raise Unreadable("the file is empty")
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
            spare = 2 * size / min(width, height)  # JPEG: decode at a fraction, no smaller than twice the need
            fraction = image.draft(None, (math.ceil(width * spare), math.ceil(height * spare)))
            image.load()
            turn = orientation(image)
            plain, transparent = flat(image)
            extent = fraction[1][2:] if fraction else plain.size  # 225 rows at a half are 113, the last of them half
            small = as_mode("RGB", upright(square(plain, extent, size), turn))
            if turn >= 5:
                width, height = height, width
            return Decoded(np.ascontiguousarray(np.asarray(small).transpose(2, 0, 1)), width, height, transparent)
    except Unreadable:
        raise
    except UnidentifiedImageError:
        raise Unreadable(f"it is not a {KNOWN} picture") from None
    except Image.DecompressionBombError:
        raise Unreadable(f"it has more than {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels") from None
    except Exception as error:  # a damaged file makes Pillow raise almost anything
        raise Unreadable(str(error) or type(error).__name__) from error


def flat(image: Image.Image) -> tuple[Image.Image, bool]:
    """Without alpha, palette or more than 8 bits: in mode L or RGB; and whether anything was see-through."""
    from PIL import Image

    if image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.uint32)
        transparent = values == image.info.get("transparency", -1)
        values[transparent] = 65535
        return Image.fromarray(((values + 128) // 257).astype(np.uint8)), bool(transparent.any())
    if image.mode in ("I", "F"):
        raise Unreadable("its brightness has 32 bits and no fixed range: save it with 8 or 16 bits")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        alpha = layer.getchannel("A")
        below = Image.new("RGB", layer.size, "white")
        below.paste(layer, mask=alpha)
        return below, alpha.getextrema() != (255, 255)
    return as_mode("L" if image.mode in ("1", "L") else "RGB", image), False


def as_mode(mode: str, image: Image.Image) -> Image.Image:
    return image if image.mode == mode else image.convert(mode)  # which would copy


def square(image: Image.Image, extent: tuple[float, float], size: int) -> Image.Image:
    """The central square at the new size; averaging filter, so that shrinking makes no false patterns."""
    from PIL import Image

    if image.size == extent == (size, size):
        return image
    side = min(extent)
    left, top = (extent[0] - side) / 2, (extent[1] - side) / 2
    box = (left, top, left + side, top + side)
    return image.resize((size, size), Image.Resampling.BICUBIC, box=box, reducing_gap=3.0)


def orientation(image: Image.Image) -> int:
    """1 to 8, where 1 is upright; read after the pixels, as Pillow turns TIFF by itself and PNG may say it last."""
    try:
        value = image.getexif().get(ORIENTATION, 1)
    except Exception:  # the pixels are good even if their EXIF block is not
        return 1
    return value if value in range(1, 9) else 1


def upright(image: Image.Image, turn: int) -> Image.Image:
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
    return image if turn == 1 else image.transpose(turns[turn - 2])


def shorter_side(path: Path) -> int | None:
    """In pixels, from the head of the file alone; None if that cannot be read."""
    need_pillow()
    from PIL import Image

    try:
        with quiet(), Image.open(path, formats=FORMATS) as image:
            return min(image.size)
    except Exception:
        return None


def choose_size(paths: Sequence[Path]) -> tuple[int, str]:
    """The one of SIZES nearest to the pictures' median shorter side, and why in words."""
    sample = paths[:: -(-len(paths) // SAMPLE)]
    sides = [side for side in map(shorter_side, sample) if side]
    typical = median(sides or [SIZES[0]])
    size = min(SIZES, key=lambda size: abs(math.log(size / typical)))
    which = f"nearest of {', '.join(map(str, SIZES))}"
    if not SIZES[0] <= typical <= SIZES[-1]:
        which = f"{'smallest' if size == SIZES[0] else 'largest'} that is chosen unasked"
    return size, f"as their median shorter side is {typical:,.0f}, and {size} is the {which}"


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from None


def stream(
    paths: Iterable[Path], size: int, channels: int, batch: int
) -> Iterator[tuple[list[Path], Tensor, list[tuple[Path, str]]]]:
    """Any pictures in the order of their paths, `batch` files at a time: (paths, images, skipped with reasons).

    Images are (n, channels, size, size) uint8; colour becomes brightness where the data set is grey (channels 1).
    """
    need_pillow()

    def attempt(path: Path) -> NDArray[np.uint8] | str:
        try:
            return as_channels(decode_bytes(read(path), size).pixels, channels)
        except Unreadable as reason:
            return str(reason)

    rest = iter(sorted(paths))
    while some := list(islice(rest, batch)):
        with quiet():
            outcomes = list(zip(some, in_order(attempt, some), strict=True))
        good = [(path, pixels) for path, pixels in outcomes if not isinstance(pixels, str)]
        images = np.stack([p for _, p in good]) if good else np.empty((0, channels, size, size), np.uint8)
        skipped = [(path, reason) for path, reason in outcomes if isinstance(reason, str)]
        yield [path for path, _ in good], torch.from_numpy(images), skipped


def as_channels(pixels: NDArray[np.uint8], channels: int) -> NDArray[np.uint8]:
    """(3, H, W) as it is, or its brightness as (1, H, W); exactly the grey of a grey picture."""
    if channels == 3:
        return pixels
    return ((np.tensordot(GREY, pixels.astype(np.uint32), 1) + 500) // 1000).astype(np.uint8)[None]


def in_order(function: Callable[[A], B], items: Sequence[A]) -> Iterator[B]:
    """`map` by threads, a bounded way ahead: Pillow lets other threads run while it decodes and resizes."""

    def each(some: Sequence[A]) -> list[B]:
        return [function(item) for item in some]

    rest = (items[at : at + TOGETHER] for at in range(0, len(items), TOGETHER))
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
    """No warnings. Python keeps the filters for all threads at once: set them around the threads, not in them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def need_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise UsageError("Reading pictures needs Pillow: pip install 'certus[pictures]'.") from None
