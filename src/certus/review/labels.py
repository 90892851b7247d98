"""The labels that a person gives: labels.csv as `certus train` reads it, and beside it a journal of every change.

A change is first appended to the journal (one line of JSON, flushed to the disk), then labels.csv is written anew. A
process that is killed in between leaves a table that is one change behind, and the next one writes it again. A table
that is neither was edited by somebody else; then the edits count, and the journal gets them too. So the journal has
what undo needs, also after a restart.

Several tabs and several processes may label at once: each change is made under a lock, to what is there now, and says
which version of a picture it is about. Each picture's version is the number of the last change to it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from certus.data.listing import FILE, LABEL, named_in, rows_of, shortened
from certus.errors import CertusError, UsageError
from certus.review.table import BY, Label, Place, Rows
from certus.text import from_spreadsheet
from certus.training.lock import Busy, locked
from certus.writing import append, encoded, make_folder, put

JOURNAL = ".labels.jsonl"  # a hidden file: not one of the pictures
PERSON, CHECKED, ACCEPTED, MERGED = "person", "checked", "accepted", "merged"
SKIPPED, REFUSED = "skipped", "refused"  # notes: to be asked again in the next round; the answer is wrong
PATIENCE = 10.0  # seconds


class Conflict(CertusError):
    """Somebody else has changed this picture in the meantime."""


@dataclass(frozen=True)
class State:
    """What is known of a picture."""

    label: Label | None = None  # as the table has it; None: it is not listed
    note: str = ""
    round: str = ""  # the run whose answers were shown when it was last changed

    def plain(self) -> list[Any]:
        return [list(self.label) if self.label else None, self.note, self.round]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> State:
        label, note, shown = plain
        return cls((str(label[0]), str(label[1])) if label else None, str(note), str(shown))


@dataclass(frozen=True)
class Wish:
    """A change that is asked for: another label, or a note alone, for a picture of this version (None: of any)."""

    picture: str
    label: str | None = None
    by: str = PERSON
    note: str = ""
    version: int | None = None


@dataclass(frozen=True)
class Entry:
    """A line of the journal."""

    number: int
    do: str  # mark, undo or edit
    before: str  # digest of labels.csv before it
    changes: tuple[tuple[str, State, State], ...]  # picture, what it was, what it is
    undoes: int = 0

    def line(self) -> str:
        record = {
            "number": self.number,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "do": self.do,
            "before": self.before,
            "changes": [[picture, was.plain(), now.plain()] for picture, was, now in self.changes],
            "undoes": self.undoes,
        }
        return json.dumps(record) + "\n"

    @classmethod
    def of(cls, line: bytes) -> Entry:
        found = json.loads(line)
        changes = tuple((str(p), State.of(was), State.of(now)) for p, was, now in found["changes"])
        return cls(int(found["number"]), str(found["do"]), str(found["before"]), changes, int(found["undoes"]))


@dataclass
class Labels:
    """The labels of a data set, as they are now; `round` names the run whose answers are shown."""

    place: Place
    round: str = ""
    states: dict[str, State] = field(default_factory=dict)  # of pictures that were ever changed
    versions: dict[str, int] = field(default_factory=dict)
    last: Entry | None = None
    done: list[Entry] = field(default_factory=list)  # that can be undone, the newest last
    offset: int = 0  # bytes of the journal that were read
    mutex: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.rows = Rows.read(self.place)
        self.stamp: tuple[int, ...] = ()
        if self.journal.exists():
            with self.alone():
                pass
        self.start = self.last.number if self.last else 0

    @property
    def journal(self) -> Path:
        return self.place.table.with_name(JOURNAL)

    def state(self, picture: str) -> State:
        return self.states.get(picture) or State(self.rows.get(picture))

    def label(self, picture: str) -> str | None:
        """The label that the picture has now in the table or by its folder; None if it has none."""
        row = self.rows.get(picture)
        return (row[0] if row else self.place.folder(picture)) or None

    def touched(self, picture: str) -> bool:
        """Whether this round has dealt with it."""
        return picture in self.states and bool(self.round) and self.states[picture].round == self.round

    def given(self) -> int:
        """Pictures that were labelled since this store was opened."""
        mine = (p for p, version in self.versions.items() if version > self.start)
        return sum(1 for p in mine if (label := self.state(p).label) and label[1] and not self.state(p).note)

    def refresh(self) -> None:
        """See what other processes have done."""
        with suppress(OSError):
            if self.journal.stat().st_size > self.offset:
                with self.alone():
                    pass

    def mark(self, wishes: Sequence[Wish]) -> Entry:
        """Make these changes, all or none; they are one step for undo."""
        with self.alone():
            for wish in wishes:
                if wish.version is not None and wish.version != self.versions.get(wish.picture, 0):
                    raise Conflict(f"{wish.picture} was changed elsewhere in the meantime: look at it again.")
                self.place.cell(wish.picture)
            changes = []
            for wish in wishes:
                was = self.state(wish.picture)
                label = was.label if wish.note else (wish.label or "", wish.by)
                changes.append((wish.picture, was, State(label, wish.note, self.round)))
            return self.write("mark", tuple(changes))

    def undo(self) -> Entry | None:
        """Take back the newest change that was not taken back yet; None if there is none."""
        with self.alone():
            if not self.done:
                return None
            undone = self.done[-1]
            back = tuple((p, now, was) for p, was, now in undone.changes if self.state(p) == now)
            return self.write("undo", back, undone.number)

    def merge(self, path: Path, known: Container[str]) -> tuple[int, list[str]]:
        """Take the labels of another table with the columns file and label; the number that were taken, and the
        pictures that a person has labelled otherwise here, which stay as they are."""
        columns, found = rows_of(path)
        names = [self.place.base + named_in(row[columns.index(FILE)]) for _, row in found]
        if strangers := [name for name in names if name not in known]:
            raise UsageError(f"{path} lists pictures that the data do not have: {shortened(strangers)}.")
        with self.alone():
            changes, kept = [], []
            for picture, (_, row) in zip(names, found, strict=True):
                label, was = from_spreadsheet(row[columns.index(LABEL)]), self.state(picture)
                self.place.cell(picture)
                if not label or label == self.label(picture):
                    continue
                if was.label and was.label[1] in (PERSON, CHECKED):
                    kept.append(picture)
                else:
                    by = row[columns.index(BY)] if BY in columns and row[columns.index(BY)] else MERGED
                    changes.append((picture, was, State((label, by), "", self.round)))
            if changes:
                self.write("mark", tuple(changes))
            return len(changes), kept

    def write(self, do: str, changes: tuple[tuple[str, State, State], ...], undoes: int = 0) -> Entry:
        """Journal first, then table."""
        number = self.last.number + 1 if self.last else 1
        entry = Entry(number, do, digest(self.place.table), changes, undoes)
        append(self.journal, text := entry.line())
        self.offset += len(encoded(text))
        self.apply(entry)
        self.save()
        return entry

    def apply(self, entry: Entry) -> None:
        for picture, _, now in entry.changes:
            self.states[picture] = now
            self.versions[picture] = entry.number
            self.rows.put(picture, now.label)
        if entry.do == "mark":
            self.done.append(entry)
        elif entry.do == "undo":
            self.done = [other for other in self.done if other.number != entry.undoes]
        self.last = entry

    def save(self) -> None:
        put(self.place.table, self.rows.text())
        self.stamp = stamp(self.place.table)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other tab or process writes, and what they wrote before is known."""
        with self.mutex, alone_in(self.place.table.parent):
            self.read_journal()
            self.read_table()
            yield

    def read_journal(self) -> None:
        """Apply the changes of other processes. A last line that was cut short was never confirmed; it is removed."""
        if not self.journal.exists():
            return
        with self.journal.open("r+b") as file:
            file.seek(self.offset)
            *lines, cut = file.read().split(b"\n")
            for number, line in enumerate(lines):
                try:
                    self.apply(Entry.of(line))
                except (ValueError, TypeError, KeyError) as e:
                    raise CertusError(
                        f"{self.journal} is damaged ({e}, {number + 1} lines after byte {self.offset}): move it away; "
                        f"{self.place.table.name} keeps all labels, but older ones cannot be undone."
                    ) from None
            self.offset += sum(len(line) + 1 for line in lines)
            if cut:
                file.truncate(self.offset)

    def read_table(self) -> None:
        """Bring table and journal together, if somebody was killed between the two or has edited the table."""
        if stamp(self.place.table) == self.stamp:
            return
        found = digest(self.place.table)
        if self.last and found == self.last.before and found != digest_of(self.rows.text()):
            self.save()
            return
        mine, self.rows = self.rows, Rows.read(self.place)
        if self.last:
            every = self.states.keys() | self.rows.cells.keys() | mine.cells.keys()
            changed = sorted(p for p in every if mine.get(p) != self.rows.get(p))
            if changed:
                was = (self.states.get(p, State(mine.get(p))) for p in changed)
                now = (State(self.rows.get(p)) for p in changed)
                self.write("edit", tuple(zip(changed, was, now, strict=True)))
        self.stamp = stamp(self.place.table)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; wait for others, who hold it for a moment."""
    with ExitStack() as held:
        until = time.monotonic() + PATIENCE
        make_folder(folder)
        while True:
            try:
                held.enter_context(locked(folder))
                break
            except Busy:
                if time.monotonic() > until:
                    raise CertusError(f"Another process keeps the labels in {folder} locked: end it first.") from None
                time.sleep(0.01)
        yield


def stamp(path: Path) -> tuple[int, ...]:
    """Changes when the file is written."""
    try:
        state = path.stat()
    except OSError:
        return (0,)
    return (state.st_ino, state.st_size, state.st_mtime_ns)


def digest(path: Path) -> str:
    """Of the file's content; empty if there is none."""
    try:
        return sha256(path.read_bytes()).hexdigest()[:16]
    except FileNotFoundError:
        return ""


def digest_of(text: str) -> str:
    return sha256(encoded(text)).hexdigest()[:16]
