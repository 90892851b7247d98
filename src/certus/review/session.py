"""What the page shows and does: the queues of a run, the labels that are given, and the rounds."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from certus import data
from certus.data import is_folder
from certus.data.listing import TABLE
from certus.errors import UsageError, unknown
from certus.review.labels import ACCEPTED, CHECKED, PERSON, REFUSED, SKIPPED, Entry, Labels, Wish
from certus.review.pictures import Shown
from certus.review.queues import Item, Look, queues_of
from certus.review.reviewed import Listen, Reviewed, review
from certus.review.rounds import Round, add_round
from certus.review.table import Place, check_class, place_in
from certus.text import printable

QUEUES = ("next", "suspects", "accept")
MOST = 200  # pictures of one request
FEWEST, LENGTH, SHARE = 50, 200, 0.05  # pictures to label next: at least, at most, of those without a label


@dataclass
class Session:
    """A run under review. `found` and `look` belong to that run; the labels outlive it."""

    run: Path
    strategy: str
    found: Reviewed
    look: Look
    labels: Labels
    shown: Shown
    rounds: list[Round] = field(default_factory=list)
    added: list[str] = field(default_factory=list)  # classes that no picture has yet
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.number = {name: i for i, name in enumerate(self.look.pictures)}
        self.items: dict[str, tuple[Item, ...]] = {
            "next": self.look.next,
            "suspects": self.look.suspects,
            "accept": self.look.accept,
        }
        self.inside = {name: {self.look.pictures[item.picture] for item in self.items[name]} for name in QUEUES}
        self.certain = Counter(self.named(item.answer) for item in self.look.accept)
        self.front: dict[str, Item] = {}
        self.answers = dict(zip(self.found.free.tolist(), self.found.answers.labels.tolist(), strict=True))

    @property
    def folder(self) -> bool:
        return is_folder(self.found.config.data)

    @property
    def classes(self) -> list[str]:
        """Of the run, of the labels since, and new ones; a class keeps its place, and so its key."""
        since = sorted({label for name in self.labels.states if (label := self.labels.label(name))})
        return list(dict.fromkeys([*self.look.classes, *self.added, *since]))

    def done(self, queue: str, name: str) -> bool:
        """Whether a picture needs no more of a person's time in this queue."""
        state = self.labels.states.get(name)
        if state is None:
            return False
        if queue == "suspects":
            return self.labels.touched(name) or bool(state.label and state.label[1] == CHECKED)
        if state.note == REFUSED and self.labels.touched(name):
            return queue == "accept"
        return self.labels.touched(name) or bool(self.labels.label(name))

    def queue(self, queue: str, of_class: str = "") -> list[Item]:
        """In order; to label next are first those that a person has refused or taken back."""
        items = self.items[queue]
        if queue == "next":
            items = (*map(self.asked_again, self.returned()), *items)
        if not of_class:
            return list(items)
        return [item for item in items if of_class in {self.named(item.answer), self.named(item.given)}]

    def returned(self) -> list[str]:
        """Pictures to ask about that were in no queue: their answer was refused, or their label was taken back. Once
        here, a picture keeps its place."""
        for name, state in list(self.labels.states.items()):
            if name in self.front or name not in self.number:
                continue
            refused = state.note == REFUSED and self.labels.touched(name)
            if refused or not (state.note or self.labels.label(name) or self.labels.touched(name) or self.known(name)):
                self.front[name] = self.asked_about(name)
        return list(self.front)

    def known(self, name: str) -> bool:
        return name in self.inside["next"] or name in self.inside["accept"]

    def asked_about(self, name: str) -> Item:
        picture = self.number[name]
        p = replace(self.found.model, trunk=None).answer(self.found.inputs(np.array([picture])), 0, 0).probabilities[0]
        return Item(picture, int(p.argmax()), float(p.max()), "")

    def asked_again(self, name: str) -> Item:
        item = self.front[name]
        refused = self.labels.state(name).note == REFUSED
        return replace(item, reason=f"you refused the answer {self.named(item.answer)}" if refused else "asked again")

    def named(self, number: int | None) -> str | None:
        return None if number is None else self.look.classes[number]

    def page(self, queue: str, start: int, count: int, of_class: str = "") -> dict[str, Any]:
        """Some items of a queue, and where the first is that is not done."""
        if queue not in QUEUES:
            raise unknown("queue", queue, QUEUES)
        self.labels.refresh()
        items = self.queue(queue, of_class)
        first = next((i for i, item in enumerate(items) if not self.done(queue, self.name(item))), len(items))
        start = first if start < 0 else start
        some = items[start : start + min(count, MOST)]
        return {
            "items": [self.plain(queue, start + i, item) for i, item in enumerate(some)],
            "start": start,
            "total": len(items),
            "first": first,
        }

    def grid(self, of_class: str, count: int) -> dict[str, Any]:
        """The most certain pictures of a class that nobody has looked at yet."""
        self.labels.refresh()
        items = self.queue("accept", of_class)
        some = [item for item in items if not self.done("accept", self.name(item))][: min(count, MOST)]
        return {"items": [self.plain("accept", i, item) for i, item in enumerate(some)]}

    def name(self, item: Item) -> str:
        return self.look.pictures[item.picture]

    def plain(self, queue: str, at: int, item: Item) -> dict[str, Any]:
        return {
            "at": at,
            "answer": self.named(item.answer),
            "sure": round(item.sure, 4),
            "reason": item.reason,
            "given": self.named(item.given),
            "likeGiven": list(item.like_given),
            "likeAnswer": list(item.like_answer),
            "done": self.done(queue, self.name(item)),
            **self.picture(item.picture),
        }

    def picture(self, number: int) -> dict[str, Any]:
        """What is known of a picture now."""
        name = self.look.pictures[number]
        state = self.labels.state(name)
        return {
            "picture": number,
            "name": printable(name),
            "label": self.labels.label(name),
            "by": state.label[1] if state.label else "",
            "note": state.note if self.labels.touched(name) else "",
            "version": self.labels.versions.get(name, 0),
            "touched": self.labels.touched(name),
        }

    def counts(self) -> dict[str, Any]:
        """What is left of each queue; of the answers to accept, for each class."""
        left: dict[str, Any] = {}
        again = self.returned()
        for queue in QUEUES:
            over = [n for n in self.labels.states if n in self.inside[queue] and self.done(queue, n)]
            left[queue] = {"total": len(self.inside[queue]), "left": len(self.inside[queue]) - len(over)}
        left["next"]["left"] += sum(not self.done("next", name) for name in again)
        left["next"]["total"] += len(again)
        by_class = self.certain.copy()
        by_class.subtract(
            self.named(self.answers[self.number[n]])
            for n in self.labels.states
            if n in self.inside["accept"] and self.done("accept", n)
        )
        left["accept"]["classes"] = dict(by_class)
        return left

    def state(self) -> dict[str, Any]:
        self.labels.refresh()
        return {
            "run": printable(self.run),
            "data": printable(self.found.config.data),
            "classes": self.classes,
            "canAdd": self.folder,
            "counts": self.counts(),
            "given": self.labels.given(),
            "canUndo": bool(self.labels.done),
            "rounds": [vars(known) for known in self.rounds],
            "table": printable(self.labels.place.table),
            "pictures": len(self.look.pictures),
        }

    def mark(self, marks: Sequence[Mapping[str, Any]], by: str, refused: Sequence[Mapping[str, Any]]) -> list[int]:
        """Give labels and refuse answers, in one step; the pictures that changed."""
        if by not in (PERSON, CHECKED, ACCEPTED):
            raise UsageError(f"A label cannot be given by {by!r}.")
        if not 0 < len(marks) + len(refused) <= MOST:
            raise UsageError(f"Between 1 and {MOST} pictures can be labelled at once.")
        known = set(self.classes)
        for mark in marks:
            label = mark.get("label")
            if label is not None and (not isinstance(label, str) or label not in known):
                raise unknown("class", str(label), known)
        wishes = [Wish(*self.asked(mark)[:1], mark.get("label"), by, "", self.asked(mark)[1]) for mark in marks]
        wishes += [Wish(*self.asked(mark)[:1], None, by, REFUSED, self.asked(mark)[1]) for mark in refused]
        return self.changed(self.labels.mark(wishes))

    def skip(self, mark: Mapping[str, Any]) -> list[int]:
        name, version = self.asked(mark)
        return self.changed(self.labels.mark([Wish(name, note=SKIPPED, version=version)]))

    def undo(self) -> list[int]:
        entry = self.labels.undo()
        return self.changed(entry) if entry else []

    def changed(self, entry: Entry) -> list[int]:
        return [self.number[name] for name, _, _ in entry.changes if name in self.number]

    def asked(self, mark: Mapping[str, Any]) -> tuple[str, int]:
        """The picture that a request is about, and the version that its sender has seen."""
        picture, version = mark.get("picture"), mark.get("version")
        if type(picture) is not int or type(version) is not int or not 0 <= picture < len(self.look.pictures):
            raise UsageError("A label needs the number of a picture, and its version.")
        return self.look.pictures[picture], version

    def add_class(self, name: str) -> str:
        if not self.folder:
            raise UsageError(f"{self.found.config.data} has fixed classes: none can be added.")
        plain = check_class(name)
        if plain not in self.classes:
            self.added.append(plain)
        return plain


def open_session(run: Path, strategy: str = "certus", listen: Listen = lambda *_: None) -> Session:
    """A finished run, its data set and its labels as they are now."""
    data.forget()
    found = review(run, listen=listen)
    config = found.config
    if len(found.data.shape) != 3:
        raise UsageError(f"{config.data} holds vectors, which cannot be shown as pictures.")
    root = Path(config.data) if is_folder(config.data) else None
    place = place_in(root) if root else Place(run / TABLE)
    look = queues_of(found, max(FEWEST, min(LENGTH, round(SHARE * len(found.free)))), strategy)
    labels = Labels(place, str(run.resolve()))
    shown = Shown(found.data, look.pictures, root)
    return Session(run, strategy, found, look, labels, shown, add_round(place.table, run))
