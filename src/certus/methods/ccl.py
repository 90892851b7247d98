"""Certainty-driven consistency: learn from certain targets, and less from uncertain ones.

Filtering CCL keeps the certain targets (hard and probabilistic filter). Temperature CCL keeps all targets and gives the
uncertain ones a higher temperature. FT-CCL does both. They are one method with its parts switched on or off.
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
from certus.methods.options import at_least, between, one_of, option
from certus.methods.recipe import Recipe
from certus.networks.stages import stages
from certus.teachers import Clean, Confidence, MonteCarlo, RandomRanks, Visits

DRAWN = ("pv", "ev", "pe", "mi")
UNDRAWN = ("confidence", "random", "reversed")
DRAWS = (
    "the teacher's draws per step: independent:T, tree:VIEWSx…xT (shares computation), or auto (tree:1x1x4 if it fits)"
)
FRONTIER = "ours: better ranks at a lower cost (docs/performance.md); Liu & Tan 2021: PV of 10 independent draws"
METRIC = (
    "metric for ranking: pv, ev, pe or mi of the draws, or confidence of the clean answer; controls: random ranks, or "
    "reversed (the least confident first)"
)


def unranked(o: Options) -> str | None:
    """Why no ranks are needed."""
    return None if o.hard or o.probabilistic or o.temper else "both filters and the temperature are off"


def undrawn(o: Options) -> str | None:
    """Why no draws are needed."""
    return unranked(o) or (f"metric {o.metric} needs no draws" if o.metric in UNDRAWN else None)


def fixed_by_paper(o: Options) -> str | None:
    """Why metric and draws cannot be chosen."""
    return "`certainty` paper sets it" if o.certainty == "paper" else None


def is_plan(name: str, value: str) -> None:  # noqa: ARG001 (a check takes the option's name)
    """Refuse what is neither auto nor a plan."""
    if value != "auto":
        parse(value)


@dataclass(frozen=True)
class Options(circle.Options):
    """The options of FT-CCL: those of the circle, certainty, filters and temperature."""

    certainty: str = option(
        "quick",
        "quick: by `metric` and `draws`; paper: PV of 10 independent draws",
        one_of("quick", "paper"),
        unranked,
        source="ours",
    )
    metric: str = option("pe", METRIC, one_of(*DRAWN, *UNDRAWN), lambda o: unranked(o) or fixed_by_paper(o), FRONTIER)
    draws: str = option("auto", DRAWS, is_plan, lambda o: undrawn(o) or fixed_by_paper(o), FRONTIER)
    remember: bool = option(
        False, "mix the draws with those of earlier visits of the same image", idle=undrawn, source="ours"
    )
    hard: bool = option(True, "hard filter: keep the k most certain targets")
    beta: float = option(
        8.0, "β of the hard filter, k = βe", at_least(0), lambda o: None if o.hard else "the hard filter is off"
    )
    probabilistic: bool = option(True, "probabilistic filter: drop uncertain targets at random")
    rho: float = option(
        0.4,
        "ρ of the probabilistic filter, P_max = 1 − ρe/210 up to e = 210, then 0",
        between(0, 1),
        lambda o: None if o.probabilistic else "the probabilistic filter is off",
    )
    temper: bool = option(True, "temperature: soften uncertain targets")
    heat: float = option(
        4.0,
        "V_b of the temperature, V_max = max(V_b − e/80, 1)",
        at_least(1),
        lambda o: None if o.temper else "the temperature is off",
    )


@dataclass(frozen=True)
class Filtering(Options):
    """FT-CCL's options, with the temperature off by default."""

    temper: bool = option(False, Options.__dataclass_fields__["temper"].metadata["help"])


@dataclass(frozen=True)
class Temperature(Options):
    """FT-CCL's options, with both filters off by default."""

    hard: bool = option(False, Options.__dataclass_fields__["hard"].metadata["help"])
    probabilistic: bool = option(False, Options.__dataclass_fields__["probabilistic"].metadata["help"])


def ccl(name: str, context: BuildContext, options: Options) -> Method:
    def source(teacher: nn.Module, view: str) -> Source:
        if unranked(options):
            return Clean(teacher, view)
        if options.certainty == "paper":
            return MonteCarlo(teacher, view, Independent(10), "pv")
        if options.metric in ("confidence", "reversed"):
            return Confidence(teacher, view, reverse=options.metric == "reversed")
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
        ("filtering-ccl", "Mean Teacher that keeps only the certain targets", Filtering),
        ("temperature-ccl", "Mean Teacher that softens the uncertain targets", Temperature),
        ("ft-ccl", "Mean Teacher with both: filters out uncertain targets and softens the rest", Options),
    )
)
