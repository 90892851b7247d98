"""How the pages of certus look: light or dark as the reader's system is set, and readable on a telephone."""

from __future__ import annotations

CSS = """
:root { color-scheme: light dark; --paper:#ffffff; --card:#f7f8fa; --ink:#1c2127; --muted:#5d646d; --grid:#e2e5e9;
  --s0:#1f6fd1; --s1:#c8362e; --s2:#1a8246; --s3:#8449bf; --s4:#b36100; --s5:#0b7f90; --s6:#a34f80; --s7:#666c75 }
@media (prefers-color-scheme: dark) { :root { --paper:#14171b; --card:#1c2026; --ink:#e6e9ed; --muted:#a2a9b3;
  --grid:#343a42; --s0:#6cabff; --s1:#ff7f76; --s2:#54c585; --s3:#c499f6; --s4:#f2a546; --s5:#4dcadb; --s6:#ee97c8;
  --s7:#b3b9c2 } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.2rem 1rem 3rem; max-width: 75rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "Liberation Sans", "DejaVu Sans", sans-serif }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .2rem 0 .4rem } h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem }
h3 { font-size: 1rem; margin: 0 0 .4rem } p { margin: .4rem 0; max-width: 46rem }
a { color: var(--s0) } code { font-size: .85em; overflow-wrap: anywhere } b { font-weight: 600 }
.muted, figcaption { color: var(--muted); font-size: .875rem }
.grid { columns: 30rem; column-gap: 1rem } .grid > figure { break-inside: avoid; margin-bottom: 1rem }
figure, .card { margin: 0; padding: .9rem 1rem; background: var(--card); border: 1px solid var(--grid);
  border-radius: .6rem; min-width: 0 }
.card { margin: .8rem 0 } figure.whole { column-span: all }
figure svg { display: block; width: 100%; height: auto; max-width: 36rem; margin: 0 auto }
figure svg * { stroke-linejoin: round } figure svg text { font-family: inherit !important }
 figcaption { margin-top: .5rem }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-size: .9375rem }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--grid); text-align: left; vertical-align: baseline }
th { font-weight: 600; font-size: .875rem } td.number, th.number { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums } tbody tr:last-child td { border-bottom: 0 }
.mark { display: inline-block; font-size: .75rem; padding: 0 .4rem; border: 1px solid var(--s4); border-radius: 1rem;
  color: var(--s4); white-space: nowrap }
details > summary { cursor: pointer; font-size: 1.25rem; font-weight: 600; margin: 2.2rem 0 .6rem }
details.small > summary { font-size: .9375rem; margin: .6rem 0 }
ul.images { list-style: none; margin: 0; padding: 0; display: grid; gap: .6rem;
  grid-template-columns: repeat(8, minmax(0, 6rem)) }
ul.images img { width: 100%; aspect-ratio: 1; object-fit: contain; image-rendering: pixelated; border-radius: .3rem;
  background: #fff }
ul.images span { display: block; font-size: .8125rem; line-height: 1.25; text-align: center; overflow-wrap: anywhere }
.right span { color: var(--s2) } .wrong span { color: var(--s1) }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .9375rem; margin: .6rem 0 }
@media (max-width: 30rem) { body { padding: .8rem .6rem 2rem } figure, .card { padding: .7rem .6rem }
  thead { display: none } tr { display: block; padding: .4rem 0; border-bottom: 1px solid var(--grid) }
  td { padding: .1rem 0; border: 0; font-weight: 600 }
  td.number { display: flex; justify-content: space-between; gap: 1rem; font-weight: 400; white-space: normal }
  td.number::before { content: attr(data-head); color: var(--muted) } td.number:empty { display: none }
  ul.images { grid-template-columns: repeat(4, 1fr) } }
@media print { details > * { display: block } }
"""
