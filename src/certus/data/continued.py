"""The split of a run that goes on from another: its validation images stay the same, and labels came in between.

So the errors of both runs are measured on the same images, none of which either has learnt.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from certus.data.dataset import Dataset
from certus.data.listing import FILE, LABEL, TABLE, rows_of, shortened
from certus.data.split import Split
from certus.errors import CertusError, UsageError, unknown
from certus.text import from_spreadsheet


def continued(run: Path, data: Dataset, named: bool) -> Split | None:
    """The split after the run in this folder; None where it must be drawn anew.

    Of a data set with a name, the run has RUN/labels.csv with the labels that a person gave: the position of an image
    as `file`, and its class. They are added to those that the run had. A folder of pictures has all labels itself. If
    its pictures have changed, or the run had no validation images of its own, those are drawn anew.
    """
    before = read_split(run)
    held_out = torch.tensor(before["validation"], dtype=torch.int64)
    if named:
        given = {int(image): int(label) for image, label in before["wrong labels"].items()}
        given |= read_positions(run / TABLE, data)
        given = {image: label for image, label in given.items() if image not in set(held_out.tolist())}
        return parted(data, torch.tensor(sorted({*before["labelled"], *given})).long(), held_out, given)
    if before.get("pixels") != data.pixels or not len(held_out):
        return None
    labels = data.train.labels
    held_out = held_out[labels[held_out] >= 0]
    known = (labels >= 0).nonzero()[:, 0]
    return parted(data, known[~torch.isin(known, held_out)], held_out, {})


def parted(data: Dataset, labelled: Tensor, held_out: Tensor, given: dict[int, int]) -> Split:
    every = torch.arange(len(data.train))
    parts = Split(labelled, every[~torch.isin(every, torch.cat([labelled, held_out]))], held_out, given)
    seen = set(parts.visible(data.train.labels)[labelled].tolist())
    if missing := [name for i, name in enumerate(data.classes) if i not in seen]:
        raise UsageError(f"{data.name} has no labelled training image of class {shortened(missing)}: label some.")
    return parts


def read_split(run: Path) -> dict[str, Any]:
    """What split.json of a run has, which was checked when the run was named."""
    try:
        found = json.loads((run / "split.json").read_bytes())
        return {"wrong labels": {}, "validation": [], **found, "labelled": list(found["labelled"])}
    except OSError as e:
        raise CertusError(f"The run in {run} is needed, from which this one goes on: {e.strerror or e}.") from None
    except (ValueError, KeyError, TypeError):
        raise CertusError(f"{run / 'split.json'} is damaged: restore it from a copy.") from None


def read_positions(path: Path, data: Dataset) -> dict[int, int]:
    """The labels in a table whose pictures are positions of training images; none if there is no such table."""
    if not path.exists():
        return {}
    columns, rows = rows_of(path)
    found: dict[int, int] = {}
    for line, row in rows:
        image, label = row[columns.index(FILE)], from_spreadsheet(row[columns.index(LABEL)])
        if not (image.isascii() and image.isdigit() and int(image) < len(data.train)):
            raise UsageError(
                f"{path} lists {image!r} in line {line}, but {data.name} has the images 0 to {len(data.train) - 1}."
            )
        if label and label not in data.classes:
            raise unknown(f"class of {data.name}", label, data.classes)
        if label:
            found[int(image)] = data.classes.index(label)
    return found
