"""certus calibrate: when a run may answer, so that at most a wanted share of its answers is wrong."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from certus.api import calibrate
from certus.certainty.calibration import Calibration
from certus.cli.evaluate import KINDS, check_certainty
from certus.cli.flags import argument, flag
from certus.errors import UsageError
from certus.training.run_folder import RunFolder


@dataclass(frozen=True)
class Options:
    """Find when a run may answer, for a wanted share of wrong answers.

    It reads the run's validation labels and keeps what it found in the run: predict, evaluate and export then say which
    pictures are answered. All lines of the table hold at once, so other errors may be tried on the same labels.
    """

    run: Path | None = argument("RUN", "the run's folder")
    error: float = flag("wanted percent of wrong answers, at most", 2.0)
    confidence: float = flag("of the promise, in percent", 95.0)
    metric: str = flag(f"certainty that decides: {KINDS}", "auto")
    draws: int = flag("Monte-Carlo draws from which certainty is computed", 10)
    json: bool = flag("print the numbers as JSON", False)


def run(options: Options) -> int:
    if options.run is None:
        raise UsageError("certus calibrate needs the folder of a run.")
    check_certainty(options.metric, options.draws)
    found = calibrate(
        options.run, options.error, confidence=options.confidence, metric=options.metric, draws=options.draws
    )
    if options.json:
        print(json.dumps(asdict(found)))
    else:
        show(found, options.run)
    return 0


def show(found: Calibration, folder: Path) -> None:
    chosen, n = found.chosen, found.labels
    before, after = found.log_loss
    below = f"its {found.metric} is below {chosen.threshold:.4g}" if chosen.threshold is not None else "it is given"
    print(f"{folder}: {n:,} validation labels")
    print(f"  temperature {found.temperature:.3f}  (log-loss {before:.4f} → {after:.4f})")
    print(f"  at most wrong, with {100 * found.confidence:g} % confidence, all lines at once:")
    print("    answered         wrong   at most")
    for level in found.levels:
        mark = "  ← chosen" if level == chosen else ""
        print(
            f"    {level.answered:>6,} ({level.answered / n:>4.0%}) {level.wrong:>8,} {100 * level.bound:>8.2f} %{mark}"
        )
    print(
        f"A picture is answered if {below}: {chosen.answered:,} of {n:,}. At most {100 * chosen.bound:.2f} % of such "
        "answers are wrong, for pictures from the same source."
    )
    print(f"Kept in {RunFolder(folder).calibration}.")
