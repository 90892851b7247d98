"""certus next: which pictures a person should label next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from certus.cli.evaluate import MOST_DRAWS
from certus.cli.flags import argument, flag
from certus.cli.progress import counting
from certus.cli.tables import print_table
from certus.data import is_folder, pictures
from certus.data.listing import TABLE
from certus.data.remembered import heard_by
from certus.errors import UsageError, unknown
from certus.methods.options import at_least
from certus.report.text_table import TextTable
from certus.review.choosing import STRATEGIES
from certus.review.files import FORMATS, format_of, table, tasks
from certus.review.queues import Item, to_label
from certus.review.reviewed import Reviewed, review
from certus.text import printable
from certus.writing import put

SHOWN = 10
FORMAT = "csv, or label-studio for tasks with predictions"
PREFIX = "what stands before each file's name in Label Studio"


@dataclass(frozen=True)
class Options:
    """List the pictures that a person should label next, best first.

    Of the pictures that the run is unsure of, it takes some of every kind, unlike each other and unlike the labelled
    ones.
    """

    run: Path | None = argument("RUN", "the run's folder")
    n: int = flag("how many pictures", 50)
    strategy: str = flag("certus (unsure, and of every kind), uncertain or random", "certus")
    out: Path | None = flag("the file: .csv, or .json for Label Studio", None, "next.csv")
    format: str = flag(FORMAT, "", "by the file's ending")
    prefix: str | None = flag(PREFIX, None, "a local file")


def run(options: Options) -> int:
    if options.run is None:
        raise UsageError("certus next needs the folder of a run.")
    at_least(1, MOST_DRAWS)("n", options.n)
    if options.strategy not in STRATEGIES:
        raise unknown("strategy", options.strategy, STRATEGIES)
    out, kind = new_file(options.out, "next", options.format)
    with counting("embedding pictures") as embedded, counting("answering pictures") as answered, heard_by(embedded):
        found = review(options.run, draws=0, listen=answered)
        items = to_label(found, options.n, options.strategy)
    if not items:
        print(f"Every picture of {found.config.data} has a label, so {out} is not written.")
        return 0
    write(out, kind, found, items, options.prefix)
    show(found, items, f"{len(items):,} of {len(found.free):,} pictures without a label in {out}, best first:")
    if is_folder(found.config.data):
        print(f"{how_to_label(found)} Then train again: {shlex.join(['certus', 'train', '--data', found.config.data])}")
        print(f"Or label in the browser: {shlex.join(['certus', 'review', str(options.run)])}")
    return 0


def how_to_label(found: Reviewed) -> str:
    """For this layout of the folder."""
    config = found.config
    listing = pictures(config.data, config.size, config.fit).listing
    tables = {Path(base) / TABLE for base in ("", "train")}
    if any((listing.root / path).is_file() for path in tables):
        return f"Fill in the column label and add the lines to {TABLE} in {config.data}."
    return f"Move each picture into the folder of its class in {config.data}."


def new_file(out: Path | None, name: str, format: str) -> tuple[Path, str]:
    """The file to write and its format; an existing file is refused."""
    if out is None:
        out = Path(f"{name}{FORMATS.get(format, '.csv')}")
    kind = format_of(out, format)
    if out.exists():
        raise UsageError(f"{out} exists already: give another `out`, or remove it.")
    return out, kind


def write(out: Path, kind: str, found: Reviewed, items: Sequence[Item], prefix: str | None) -> None:
    put(out, table(found, items) if kind == "csv" else tasks(found, items, prefix))


def show(found: Reviewed, items: Sequence[Item], title: str) -> None:
    """The first lines of the file."""
    rows = tuple((printable(found.pictures[item.picture]), printable(item.reason)) for item in items[:SHOWN])
    print(title)
    more = len(items) - len(rows)
    print_table(TextTable(("picture", "why"), rows, caption=f"and {more:,} more" if more else ""))
