"""The page: one file without outside resources, light or dark as the reader's system is set."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from urllib.parse import quote

from certus.report.figure import ReportFigure, slug
from certus.report.style import CSS


def csv_link(name: str, text: str) -> str:
    return f'<a download="{escape(name)}.csv" href="data:text/csv;charset=utf-8,{quote(text)}">numbers as CSV</a>'


def figure_html(drawn: ReportFigure) -> str:
    label = escape(drawn.title, quote=True)
    shown = drawn.html or drawn.svg().replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    whole = ' class="whole"' if drawn.html else ""
    return (
        f'<figure id="{escape(drawn.name)}"{whole}><h3>{escape(drawn.title)}</h3>{shown}'
        f"<figcaption>{escape(drawn.caption)} {csv_link(drawn.name, drawn.csv())}</figcaption></figure>"
    )


def figures_html(drawn: Sequence[ReportFigure]) -> str:
    return f'<div class="grid">{"".join(map(figure_html, drawn))}</div>' if drawn else ""


def section(title: str, body: str, opened: bool = True) -> str:
    """A part of the page that can be collapsed."""
    return (
        f'<details id="{slug(title)}"{" open" * opened}><summary>{escape(title)}</summary>{body}</details>'
        if body
        else ""
    )


def sentence(text: str) -> str:
    return f'<p class="muted">{escape(text)}</p>'


def page(title: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{CSS}</style></head>\n'
        f"<body>{body}</body></html>\n"
    )
