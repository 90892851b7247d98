"""certus suspects: which labels are probably wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from certus.cli.flags import argument, flag
from certus.cli.next import FORMAT, PREFIX, new_file, show, write
from certus.cli.progress import counting
from certus.data.remembered import heard_by
from certus.errors import UsageError
from certus.review.queues import suspects
from certus.review.reviewed import review


@dataclass(frozen=True)
class Options:
    """List the labels that are probably wrong, most suspect first.

    Each label is checked by a quick model that has not seen it. The model looks at features that do not come from the
    run's network, because a network that has learnt a wrong label finds it right.
    """

    run: Path | None = argument("RUN", "the run's folder")
    out: Path | None = flag("the file: .csv, or .json for Label Studio", None, "suspects.csv")
    format: str = flag(FORMAT, "", "by the file's ending")
    prefix: str | None = flag(PREFIX, None, "a local file")


def run(options: Options) -> int:
    if options.run is None:
        raise UsageError("certus suspects needs the folder of a run.")
    out, kind = new_file(options.out, "suspects", options.format)
    with counting("embedding pictures") as embedded, heard_by(embedded):
        found = review(options.run)
        items = suspects(found)
    count = int((found.labels >= 0).sum())
    if not items:
        print(f"None of the {count:,} labels is suspect, so {out} is not written.")
        return 0
    write(out, kind, found, items, options.prefix)
    show(found, items, f"{len(items):,} of {count:,} labels are suspect, most suspect first in {out}:")
    print("Look at each picture. Correct the labels that are wrong, and train again.")
    return 0
