"""The card of a model as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from certus.text import printable

MANY = 30  # classes; of more, the worst are listed


def markdown(card: Mapping[str, Any]) -> str:
    return "\n".join(lines(card)) + "\n"


def lines(card: Mapping[str, Any]) -> Iterator[str]:
    data, trained = card["data"], card["training"]
    shape = "×".join(map(str, card["input"]))
    yield f"# {plain(card['name'])}"
    yield ""
    if not card["answers"]:
        yield "A pretraining run: it has no answers, and is a start for other runs."
    else:
        yield f"Names one of {len(card['classes'])} classes: {plain(', '.join(card['classes']))}."
    yield f"Written by certus {card['certus']} from the files of the run."
    yield from heading("Data")
    wrong = f" ({data['wrong labels']:,} of them wrong on purpose)" if data["wrong labels"] else ""
    yield f"- {plain(data['name'])}, fingerprint {plain(data['fingerprint'])}"
    yield f"- {data['labelled']:,} labelled pictures{wrong}, {number(data['unlabelled'])} unlabelled"
    yield f"- {number(data['validation'])} more labelled pictures for validation, {data['test']:,} for the test"
    yield from heading("Method")
    yield f"- {card['method']} ({plain(card['reference'])})"
    yield f"- network {plain(card['network'])}, inputs {shape}"
    yield f"- {trained['steps']:,} steps, {trained['seconds']:,.0f} s, seed {trained['seed']}"
    start = card["pretrained weights"]
    yield (
        f"- first weights: {plain(start['from'])}; licence: {plain(start['licence'])}"
        if start
        else ("- first weights: random, so no licence of others applies to them")
    )
    yield f"- to train it again: `{plain(card['command'])}` in this folder"
    if card["answers"]:
        yield from heading("Errors")
        yield from errors(card)
        yield from heading("Certainty")
        yield from certainty(card)
        yield from heading("Not tested on")
        yield from (f"- {plain(what)}" for what in card["not tested on"])


def errors(card: Mapping[str, Any]) -> Iterator[str]:
    if not any(card["errors"].values()):
        yield "No error was measured, because there are no test and no validation images."
        return
    yield "| images | wrong (%) | n | 95 % interval |"
    yield "|---|---|---|---|"
    for name, rate in card["errors"].items():
        if rate:
            ends = " to ".join(f"{end:.2f}" for end in rate["interval"]) if rate["interval"] else "unknown"
            yield f"| {name} | {rate['percent']:.2f} | {number(rate['n'])} | {ends} |"
    by_class = card["class errors"]["percent"]
    if by_class:
        worst = sorted(by_class, key=lambda name: -by_class[name])[:MANY]
        which = "By class" if len(by_class) <= MANY else f"The {MANY} worst of {len(by_class)} classes"
        yield ""
        yield (
            f"{which}, {card['class errors']['on']} images, in %: "
            + ", ".join(f"{plain(name)} {by_class[name]:.1f}" for name in worst)
            + "."
        )


def certainty(card: Mapping[str, Any]) -> Iterator[str]:
    known, n = card["calibration"], card["data"]["test"]
    if measured := card["probabilities"]:
        yield (
            f"Before any calibration, on {n:,} test images: expected calibration error "
            f"{measured['expected calibration error']:.2f} %, log-loss {measured['log-loss']:.3f}, Brier score "
            f"{measured['brier']:.3f}."
        )
        yield ""
        coverage = card["coverage"]
        yield f"Answered if only the most certain answers are given, by {coverage['metric']}, on the same images:"
        yield ""
        yield "| wrong, at most (%) | answered | share (%) |"
        yield "|---|---|---|"
        for error, count in coverage["answered"].items():
            yield f"| {error} | {count:,} | {100 * count / n:.1f} |"
        yield ""
        yield "This was read off the test images and promises nothing about others."
    else:
        yield "No test images, so nothing was measured."
    yield ""
    if not known:
        yield "Not calibrated, so it answers every picture (`certus calibrate`)."
        return
    chosen, draws = known["chosen"], f", {known['draws']} draws" if known["draws"] else ""
    yield (
        f"Calibrated on {known['labels']:,} validation labels of {plain(known['data'])}: temperature "
        f"{known['temperature']:.3f}; it answers {chosen['answered']:,} of them, and with "
        f"{100 * known['confidence']:g} % confidence at most {100 * chosen['bound']:.2f} % of such answers are wrong, "
        f"for pictures from the same source. By {known['metric']}{draws}."
    )


def heading(text: str) -> tuple[str, str, str]:
    return "", f"## {text}", ""


def number(count: int | None) -> str:
    return "an unknown number of" if count is None else f"{count:,}" if count else "no"


def plain(text: object) -> str:
    """A name from outside, in a line of Markdown."""
    kept = " ".join(printable(text).split())
    return "".join(f"\\{c}" if c in "\\|<>`*[]" else c for c in kept)
