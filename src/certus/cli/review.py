"""certus review."""

from __future__ import annotations

import shlex
import webbrowser
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from certus.cli.flags import argument, flag
from certus.cli.progress import counting
from certus.data.listing import shortened
from certus.errors import UsageError
from certus.review.choosing import STRATEGIES
from certus.review.labels import Labels


@dataclass(frozen=True)
class Options:
    """Label pictures in the browser: what is unsure, suspect or certain; then train again.

    The page is for this machine alone. Every label is saved at once in labels.csv, in the folder of the pictures, as
    certus train reads it. No picture is moved or changed.
    """

    run: Path | None = argument("RUN", "the folder of a finished run")
    strategy: str = flag("what to label next: certus (uncertain and diverse), uncertain or random", "certus")
    port: int = flag("the port of the page", 0, "a free one")
    merge: Path | None = flag("first take the labels of this other table with the columns file and label")
    browser: bool = flag("open the page in the browser", True, "yes")


def run(options: Options) -> int:
    if options.run is None:
        raise UsageError("certus review needs the folder of a run.")
    if options.strategy not in STRATEGIES:
        raise UsageError(f"`strategy` must be {', '.join(STRATEGIES)}, but is {options.strategy!r}.")
    from certus.review.retraining import command_of
    from certus.review.server import Desk, listen, serve
    from certus.review.session import open_session

    at = listen(options.port)
    with at.socket:
        with counting("asking the model") as told:
            desk = Desk(open_session(options.run, options.strategy, told))
        if options.merge is not None:
            merge(desk.session.labels, options.merge, set(desk.session.look.pictures))
        print(f"Review {options.run} at {at.address} (Ctrl-C ends it)", flush=True)
        if options.browser:
            webbrowser.open(at.address)
        with suppress(KeyboardInterrupt):
            serve(desk, at)
    if (unfinished := desk.retraining.stop()) is not None:
        print(f"The run being trained is saved: {shlex.join(['certus', 'train', '--resume', str(unfinished)])}")
    labels = f"{desk.given:,} label{'s' * (desk.given != 1)} given"
    print(f"{labels}, saved in {desk.session.labels.place.table}. Train again: {command_of(desk.session)}")
    return 0


def merge(labels: Labels, path: Path, known: set[str]) -> None:
    taken, kept = labels.merge(path, known)
    print(f"{taken:,} label{'s' * (taken != 1)} taken from {path}.")
    if kept:
        print(f"A person has labelled these otherwise, and they stay so: {shortened(kept)}.")
