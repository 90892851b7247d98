"""Answers of an exported run, with numpy, onnxruntime and Pillow alone: torch is not imported.

python -m certus.onnx model.onnx pictures/ > answers.csv
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certus.errors import CertusError, UsageError

SUFFIXES = frozenset(".png .jpg .jpeg .webp .bmp .tif .tiff .gif .ppm .pgm .jp2 .avif".split())
BATCH = 32  # pictures of one size that are answered at a time


class OnnxModel:
    """A file that `certus export` wrote.

    Attributes
    ----------
    classes : tuple of str
    columns : tuple of str
        The names of the uncertainties, the columns of `uncertainty`.
    about : dict
        The metadata: version, data, method, fit, draws, calibration, …
    """

    def __init__(self, path: str | Path, threads: int = 0) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise UsageError("Answering needs onnxruntime: run pip install onnxruntime.") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        try:
            self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            self.about: dict[str, Any] = json.loads(self.session.get_modelmeta().custom_metadata_map["certus"])
        except Exception as e:  # onnxruntime has an exception for each reason
            reason = "it has no metadata of certus" if isinstance(e, KeyError) else " ".join(str(e).split())[:200]
            raise UsageError(f"{path} is no file that certus has exported: {reason}.") from None
        self.classes, self.columns = tuple(self.about["classes"]), tuple(self.about["uncertainty"])
        self.input = self.session.get_inputs()[0].name
        self.outputs = [output.name for output in self.session.get_outputs()]

    def predict(self, inputs: NDArray[Any], seed: int = 0) -> dict[str, NDArray[Any]]:
        """`label`, `probabilities`, `confidence`, `uncertainty`, and `answered` if the run was calibrated.

        `inputs`: uint8 (N, H, W, 3) of any size; float32 (N, D) for a run on vectors.
        """
        given = {self.input: inputs, "seed": np.array(seed, np.int64)}
        return dict(zip(self.outputs, self.session.run(self.outputs, given), strict=True))


def read(path: Path) -> NDArray[np.uint8]:
    """A picture file as (H, W, 3): upright, transparent pixels white, 16 bits as 8."""
    from PIL import Image, ImageOps

    with Image.open(path) as image:
        image.load()
        upright: Any = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I;16"):
        return np.repeat(((np.asarray(upright).astype(np.uint32) + 128) // 257).astype(np.uint8)[..., None], 3, 2)
    if upright.has_transparency_data:
        layer = upright.convert("RGBA")
        below = Image.new("RGB", layer.size, "white")
        below.paste(layer, mask=layer.getchannel("A"))
        upright = below
    return np.asarray(upright.convert("RGB"))


def find(path: Path) -> list[Path]:
    if not path.exists():
        raise UsageError(f"There is no folder or picture {path}.")
    found = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES) if path.is_dir() else [path]
    if not found:
        raise UsageError(f"There are no pictures in {path}.")
    return found


def rows(model: OnnxModel, paths: Sequence[Path], seed: int = 0) -> list[dict[str, Any]]:
    """The answer to each picture that can be read; pictures of one size are answered together."""
    answers: dict[Path, dict[str, Any]] = {}
    waiting: dict[tuple[int, ...], list[tuple[Path, NDArray[np.uint8]]]] = {}

    def answer(some: list[tuple[Path, NDArray[np.uint8]]]) -> None:
        given = model.predict(np.stack([pixels for _, pixels in some]), seed)
        for i, (path, _) in enumerate(some):
            answers[path] = {
                "file": str(path),
                "label": model.classes[given["label"][i]],
                "confidence": f"{given['confidence'][i]:.6f}",
                **{name: f"{given['uncertainty'][i, k]:.6g}" for k, name in enumerate(model.columns) if k},
                **({"answered": "yes" if given["answered"][i] else "no"} if "answered" in given else {}),
            }

    for path in paths:
        try:
            pixels = read(path)
        except Exception as e:  # a damaged file makes Pillow raise almost anything
            print(f"certus: {path} was left out: {e}", file=sys.stderr)
            continue
        some = waiting.setdefault(pixels.shape, [])
        some.append((path, pixels))
        if len(some) == BATCH:
            answer(waiting.pop(pixels.shape))
    for some in waiting.values():
        answer(some)
    return [answers[path] for path in paths if path in answers]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m certus.onnx", description="Answer pictures with an exported run.")
    parser.add_argument("model", type=Path, help="a file that certus export wrote")
    parser.add_argument("pictures", type=Path, help="a folder of pictures, or one picture")
    parser.add_argument("--seed", type=int, default=0, help="of the draws; the same seed gives the same answers")
    given = parser.parse_args(words)
    try:
        found = rows(OnnxModel(given.model), find(given.pictures), given.seed)
        if not found:
            raise CertusError(f"No picture in {given.pictures} can be read.")
    except CertusError as e:
        print(f"certus: {e}", file=sys.stderr)
        return e.exit_code
    writer = csv.DictWriter(sys.stdout, list(found[0]), lineterminator="\n")
    try:
        writer.writeheader()
        writer.writerows(found)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
