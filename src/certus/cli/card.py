"""certus card: what a trained model is, in one page."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from certus.cli.flags import argument, flag
from certus.errors import UsageError
from certus.training.card import write_card
from certus.training.card_text import markdown
from certus.training.run_folder import RunFolder


@dataclass(frozen=True)
class Options:
    """Print the card of a model: data, errors, certainty, licence, and what it was not tested on.

    Every run writes it at its end, as model-card.md and model-card.json. This writes both again, also for runs of older
    versions.
    """

    run: Path | None = argument("RUN", "the run's folder")
    json: bool = flag("print it as JSON", False)


def run(options: Options) -> int:
    if options.run is None:
        raise UsageError("certus card needs the folder of a run.")
    folder = RunFolder(options.run)
    folder.load_config()
    if not folder.finished():
        raise UsageError(f"{folder.path} is not finished: train it to the end with `resume` {folder.path}.")
    card = write_card(folder)
    print(json.dumps(card, ensure_ascii=False) if options.json else markdown(card), end="\n" * options.json)
    return 0
