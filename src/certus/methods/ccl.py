"""Certainty-driven consistency: learn from targets that the teacher is sure of, and softly from the others.

Filtering CCL keeps the certain targets (hard and probabilistic filter), Temperature CCL keeps all and heats the
uncertain ones, FT-CCL does both. They are one method with its parts switched on or off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from torch import nn

from certus.certainty.draws import Independent, parse, suitable
from certus.core.build_context import BuildContext
from certus.core.method import Method
from certus.core.refinements import Probabilistic, Temper, TopK
from certus.core.schedules import Drop, Heat, Keep
from certus.core.terms import Refine, Source
from certus.methods import circle
from certus.methods.recipe import Recipe, at_least, between, one_of, option
from certus.networks.stages import stages
from certus.teachers import Clean, Confidence, MonteCarlo, RandomRanks, Visits

DRAWN = ("pv", "ev", "pe", "mi")
UNDRAWN = ("confidence", "random", "reversed")
DRAWS = (
    "the teacher's draws per step: independent:T, tree:VIEWSx…xT that shares its trunk, or auto: tree:1x1x4 if it fits"
)
FRONTIER = "ours: better ranks for less, docs/performance.md; Liu & Tan 2021: PV of 10 independent draws"
METRIC = (
    "what certainty is ranked by: pv, ev, pe or mi of the draws; confidence of the clean answer; as controls random "
    "ranks, or reversed: the least confident first"
)


def unranked(o: Options) -> str | None:
    return None if o.hard or o.probabilistic or o.temper else "both filters and the temperature are off"


def undrawn(o: Options) -> str | None:
    return unranked(o) or (f"metric {o.metric} needs no draws" if o.metric in UNDRAWN else None)


def as_printed(o: Options) -> str | None:
    return "--certainty paper says what it is" if o.certainty == "paper" else None


def plan(name: str, value: str) -> None:  # noqa: ARG001 (a check is given the option's name)
    if value != "auto":
        parse(value)


@dataclass(frozen=True)
class Options(circle.Options):
    certainty: str = option(
        "quick",
        "quick: by --metric and --draws; paper: PV of 10 independent draws, as printed",
        one_of("quick", "paper"),
        unranked,
        source="ours",
    )
    metric: str = option("pe", METRIC, one_of(*DRAWN, *UNDRAWN), lambda o: unranked(o) or as_printed(o), FRONTIER)
    draws: str = option("auto", DRAWS, plan, lambda o: undrawn(o) or as_printed(o), FRONTIER)
    remember: bool = option(
        False, "mix the draws with what was drawn of the image at earlier visits", idle=undrawn, source="ours"
    )
    hard: bool = option(True, "the hard filter: keep the k most certain targets")
    beta: float = option(
        8.0, "k = βe of the hard filter", at_least(0), lambda o: None if o.hard else "the hard filter is off"
    )
    probabilistic: bool = option(True, "the probabilistic filter: drop uncertain targets by chance")
    rho: float = option(
        0.4,
        "P_max = 1 − ρe/210 of the probabilistic filter",
        between(0, 1),
        lambda o: None if o.probabilistic else "the probabilistic filter is off",
    )
    temper: bool = option(True, "the temperature: teach uncertain targets more softly")
    heat: float = option(
        4.0,
        "V_b of the temperature, V_max = max(V_b − e/80, 1)",
        at_least(1),
        lambda o: None if o.temper else "the temperature is off",
    )


@dataclass(frozen=True)
class Filtering(Options):
    temper: bool = option(False, Options.__dataclass_fields__["temper"].metadata["help"])


@dataclass(frozen=True)
class Temperature(Options):
    hard: bool = option(False, Options.__dataclass_fields__["hard"].metadata["help"])
    probabilistic: bool = option(False, Options.__dataclass_fields__["probabilistic"].metadata["help"])


def ccl(name: str, context: BuildContext, options: Options) -> Method:
    def source(teacher: nn.Module, view: str) -> Source:
        if unranked(options):
            return Clean(teacher, view)
        if options.certainty == "paper":
            return MonteCarlo(teacher, view, Independent(10), "pv")
        if options.metric in ("confidence", "reversed"):
            return Confidence(teacher, view, upside_down=options.metric == "reversed")
        if options.metric == "random":
            return RandomRanks(teacher, view)
        draws = suitable(stages(teacher)) if options.draws == "auto" else parse(options.draws)
        drawn = MonteCarlo(teacher, view, draws, options.metric)
        return Visits(drawn, len(context.labels), context.classes) if options.remember else drawn

    def refine(stream: str) -> Sequence[Refine]:
        parts: list[Refine] = []
        if options.hard:
            parts.append(TopK(Keep(options.beta)))
        if options.probabilistic:
            parts.append(Probabilistic(Drop(options.rho), stream))
        if options.temper:
            parts.append(Temper(Heat(options.heat)))
        return parts

    return circle.circle(name, context, options, source, refine)


PAPER = "Liu & Tan 2021, Certainty Driven Consistency Loss on Multi-Teacher Networks for Semi-Supervised Learning"

RECIPES = tuple(
    Recipe(name, summary, PAPER, options, partial(ccl, name))
    for name, summary, options in (
        ("filtering-ccl", "mean teacher that teaches only what it is certain of", Filtering),
        ("temperature-ccl", "mean teacher that teaches softly what it is not certain of", Temperature),
        ("ft-ccl", "both: filters out uncertain targets and softens the rest", Options),
    )
)
