"""Train again from the page: `certus train` in a process of its own, its progress, and what it changed."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import IO, Any

from certus.errors import CertusError, UsageError, unexpected
from certus.review.session import Session, open_session
from certus.text import printable
from certus.training.run_folder import RunFolder

CHANGES = 200  # pictures with another answer that the page is given
PATIENCE = 60.0  # seconds for a run that is stopped to save itself


def again(session: Session, out: Path | None = None) -> list[str]:
    """The words of the command that trains again with the labels given."""
    data = ["--data", session.found.config.data] if session.folder else []
    return ["train", *data, "--from", str(session.run), *(["--out", str(out)] if out else [])]


def command_of(session: Session) -> str:
    """The command that trains again, as it is typed."""
    return printable(shlex.join(["certus", *again(session)]))


def next_folder(run: Path) -> Path:
    """RUN-2, RUN-3, …: the first that holds nothing."""
    run = run.resolve() if run.name in ("", "..") else run
    name = re.sub(r"-\d{1,4}$", "", run.name) if RunFolder(run).load_config().from_ else run.name
    return next(path for i in count(2) if not (path := run.with_name(f"{name}-{i}")).exists())


@dataclass
class Retraining:
    """At most one run at a time. `replace` is called with the session of a run that has finished."""

    replace: Callable[[Session], None]
    out: Path | None = None
    process: subprocess.Popen[bytes] | None = None
    step: str = "none"  # none, training, looking, done or failed
    error: str = ""
    outcome: dict[str, Any] = field(default_factory=dict)
    mutex: threading.Lock = field(default_factory=threading.Lock)

    @property
    def busy(self) -> bool:
        return self.step in ("training", "looking")

    def start(self, session: Session) -> None:
        with self.mutex:
            if self.busy:
                raise UsageError("A run is being trained already: wait for it, or stop it.")
            self.out, self.step, self.error = next_folder(session.run), "training", ""
            log = tempfile.TemporaryFile()  # noqa: SIM115 (closed when the process has ended)
            words = [sys.executable, "-m", "certus", *again(session, self.out), "--json"]
            self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)
        threading.Thread(target=self.follow, args=(session, self.process, log), daemon=True).start()

    def follow(self, before: Session, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        """Wait for the run, look at its answers, and put it in the place of the old one."""
        try:
            code = process.wait()
            log.seek(0)
            said = log.read().decode(errors="replace").strip().splitlines()
            if code or self.out is None:
                raise CertusError(
                    said[-1].removeprefix("certus: ") if said else f"certus train ended with code {code}."
                )
            self.step = "looking"
            after = open_session(self.out, before.strategy)
            after.added = before.added
            self.outcome = compared(before, after)
            self.replace(after)
            self.step = "done"
        except (CertusError, OSError) as e:
            self.step, self.error = "failed", str(e)
        except Exception as e:  # nobody else would hear of it
            self.step, self.error = "failed", str(unexpected(e))
        finally:
            log.close()

    def stop(self) -> Path | None:
        """Let a run save itself and end; its folder, if it is worth going on with."""
        if self.process is None or self.process.poll() is not None:
            return None
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
        return self.out if self.out and RunFolder(self.out).exists() else None

    def progress(self) -> dict[str, Any]:
        done, steps, error = 0, 0, None
        if self.step == "training" and self.out and RunFolder(self.out).exists():
            folder = RunFolder(self.out)
            with suppress(CertusError):
                steps = folder.load_config().steps
                if lines := folder.load_metrics():
                    done, error = lines[-1]["step"], lines[-1].get("validation_error")
        return {
            "step": self.step,
            "done": done,
            "steps": steps,
            "validation": error,
            "out": printable(self.out or ""),
            "error": printable(self.error),
            "outcome": self.outcome,
        }


def compared(before: Session, after: Session) -> dict[str, Any]:
    """Two runs: their errors on validation, and the pictures without a label that got another answer."""
    old = dict(zip(before.found.pictures, range(len(before.found.pictures)), strict=True))
    was = {p: before.named(a) for p, a in before.answers.items()}
    now = after.found.answers
    changes = []
    for row, picture in enumerate(after.found.free.tolist()):
        answer, earlier = after.named(int(now.labels[row])), was.get(old.get(after.look.pictures[picture], -1))
        if earlier is not None and answer != earlier:
            sure = float(now.probabilities[row].max())
            changes.append({**after.picture(picture), "was": earlier, "now": answer, "sure": round(sure, 4)})
    changes.sort(key=lambda change: -change["sure"])
    rounds = {known.run: known for known in after.rounds}
    first, second = (rounds.get(str(s.run.resolve())) for s in (before, after))
    return {
        "labels": [first and first.labels, second and second.labels],
        "errors": [first and first.error, second and second.error],
        "answered": len(now),
        "changed": len(changes),
        "changes": changes[:CHANGES],
        "unsure": [unsure(before), unsure(after)],
    }


def unsure(session: Session) -> int:
    """Pictures without a label whose answer has less than nine chances in ten."""
    p = session.found.answers.probabilities
    return int((p.max(1) < 0.9).sum()) if len(p) else 0
