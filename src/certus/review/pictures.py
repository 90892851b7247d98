"""The pictures of a data set as a browser shows them: made when they are asked for, at most as large as asked."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from certus.data import Dataset
from certus.data.decode import flattened, formats, need_pillow, orientation, quiet, read, upright
from certus.data.limits import Unreadable, check_pixels, most_pixels, pixels_in_use
from certus.report.pixels import as_rgb

if TYPE_CHECKING:
    from PIL import Image

THUMB, LARGE = 160, 1400  # pixels of the longer side
KEPT = 2000  # thumbnails in memory, about 5 kB each
CRISP = 96  # pixels up to which a picture is sent without loss


@dataclass
class Shown:
    """`root`: the folder of the pictures; None for a data set with a name, whose pixels are in memory."""

    data: Dataset
    names: tuple[str, ...]
    root: Path | None = None
    kept: OrderedDict[int, tuple[bytes, str]] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)  # Pillow's limits are the same for all threads

    def __post_init__(self) -> None:
        need_pillow()

    def thumbnail(self, picture: int) -> tuple[bytes, str]:
        """The bytes of a file, and its type."""
        with self.lock:
            if picture not in self.kept:
                self.kept[picture] = encoded(self.image(picture, THUMB))
            self.kept.move_to_end(picture)
            while len(self.kept) > KEPT:
                self.kept.popitem(last=False)
            return self.kept[picture]

    def large(self, picture: int) -> tuple[bytes, str]:
        with self.lock:
            return encoded(self.image(picture, LARGE))

    def image(self, picture: int, side: int) -> Image.Image:
        from PIL import Image

        if self.root is None:
            return Image.fromarray(as_rgb(self.data.train.images[picture].permute(1, 2, 0).numpy()))
        path, root = self.root / self.names[picture], self.root.resolve()
        if not path.resolve().is_relative_to(root):
            raise Unreadable("it is a link to a file outside the folder")
        try:
            with quiet(), read(path.resolve()) as data, Image.open(BytesIO(data), formats=formats()) as opened:
                with pixels_in_use.take(check_pixels(*opened.size), most_pixels()):
                    opened.draft(None, (side, side))
                    opened.load()
                    image = upright(flattened(opened)[0], orientation(opened))
                    image.thumbnail((side, side))
                    return image
        except Unreadable:
            raise
        except Exception as error:  # a damaged file makes Pillow raise almost anything
            raise Unreadable(str(error) or type(error).__name__) from None


def encoded(image: Image.Image) -> tuple[bytes, str]:
    file = BytesIO()
    if max(image.size) <= CRISP:
        image.save(file, "PNG")
        return file.getvalue(), "image/png"
    image.save(file, "JPEG", quality=88)
    return file.getvalue(), "image/jpeg"
