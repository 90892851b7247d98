"""certus methods."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from rich.text import Text
from torch import nn

from certus.cli.flags import argument, flag, spelled, with_flags
from certus.cli.help import Rows, page, print_rows
from certus.cli.screen import screen
from certus.config import Config
from certus.core.build_context import BuildContext
from certus.errors import unknown
from certus.methods import METHODS, Recipe
from certus.methods.recipe import shown
from certus.networks.mlp import MLP

GROUPS = {
    "labelled images only": ("supervised",),
    "the student's own answers as labels": ("pseudo-label", "entropy-minimisation", "fixmatch"),
    "the same answer under perturbations": ("pi", "temporal-ensembling", "vat", "wcp"),
    "a teacher that averages the student": ("mean-teacher", "mean-teacher-fastswa"),
    "a teacher and its certainty (the paper's methods)": ("filtering-ccl", "temperature-ccl", "ft-ccl"),
    "several students": ("co-training", "dual-student"),
    "neighbours in feature space": (
        *("pi-sntg", "temporal-ensembling-sntg", "mean-teacher-sntg", "ma-dnn"),
        *("label-propagation", "mean-teacher-label-propagation"),
    ),
}


@dataclass(frozen=True)
class Options:
    """List the methods, or explain one.

    certus methods NAME shows its recipe, its reference and its options. The options are flags of certus train and
    certus compare.
    """

    name: str | None = argument("[NAME]", "explain this method; without it: list all")
    full: bool = flag("explain every method", False)
    json: bool = flag("print the explanations as JSON", False)


def run(options: Options) -> int:
    if options.name is not None and options.name not in METHODS:
        raise unknown("method", options.name, METHODS)
    chosen = list(METHODS.values()) if options.name is None else [METHODS[options.name]]
    if options.json:
        print(json.dumps([explained(known) for known in chosen], ensure_ascii=False))
    elif options.full or options.name is not None:
        for known in chosen:
            show(explained(known))
    else:
        about = f"certus methods NAME explains a method and its options. Without --method it is {Config.method}."
        page("certus train --method NAME", about, listed())
    return 0


def listed() -> dict[str, Rows]:
    """Every method with its summary, by the idea behind it; those without a group come last."""
    grouped = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, "others": tuple(name for name in METHODS if name not in grouped)}
    return {title: [(name, summary(METHODS[name])) for name in names] for title, names in groups.items() if names}


def summary(known: Recipe) -> str:
    return with_flags(known.summary, known.defaults())


def explained(known: Recipe) -> dict[str, Any]:
    """A method in full: its reference, its recipe, and each option with its default and where that comes from."""
    method = known.build(BuildContext.bare(placeholder, 2), known.options())
    return {
        "name": known.name,
        "summary": summary(known),
        "reference": known.reference,
        "recipe": repr(method),
        "options": {
            f.name: {
                "default": f.default,
                "help": with_flags(f.metadata["help"], known.defaults()),
                "source": f.metadata["source"] or known.cited,
            }
            for f in fields(known.options)
        },
    }


def show(method: dict[str, Any]) -> None:
    out = screen(highlight=False, soft_wrap=True)
    out.print(Text.assemble((method["name"], "bold"), f": {method['summary']}"))
    out.print(f"  from {method['reference']}")
    for line in method["recipe"].splitlines()[1:]:
        out.print(f"  {line}")
    options = [
        (f"{spelled(name)} {shown(option['default'])}", f"{option['help']} ({option['source']})")
        for name, option in method["options"].items()
    ]
    print_rows(out, options, max((len(left) for left, _ in options), default=0))
    out.print()


def placeholder(i: int, scale: float = 1.0) -> nn.Module:  # noqa: ARG001
    """A network to show a recipe with."""
    return MLP(inputs=1, classes=2, width=1)
