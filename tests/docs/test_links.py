"""What the pages say exists: links, anchors, Python, commands, flags and method names."""

from __future__ import annotations

import ast
import io
import re
import shlex
import sys
from contextlib import redirect_stdout
from dataclasses import fields
from functools import cache
from pathlib import Path
from textwrap import dedent
from unittest.mock import patch

import pytest

import certus
from certus.__main__ import main
from certus.config import Config
from certus.methods import METHODS

ROOT = Path(__file__).parents[2]
OWN = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted((ROOT / "docs").glob("*.md"))
PAGES = [*OWN, ROOT / "results" / "README.md"]
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())

FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.M | re.S)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FLAG = re.compile(r"--[a-z][a-z-]*")


def blocks(text: str) -> list[tuple[str, str]]:
    """(language, content) of every fenced block."""
    return [(language, dedent(content)) for _, language, content in FENCED.findall(text)]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return FENCED.sub("", page.read_text())


@cache
def anchors(page: Path) -> set[str]:
    """Of the headings, in the way of GitHub: lower case, spaces become hyphens, punctuation goes."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@every_page
def test_every_relative_link_leads_to_a_file_and_its_heading(page: Path) -> None:
    for link in LINK.findall(INLINE.sub("", prose(page))):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), f"{link}: no such file"
        assert target.is_relative_to(ROOT), f"{link} leads out of the repository"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


@every_page
def test_python_blocks_are_python(page: Path) -> None:
    for language, content in blocks(page.read_text()):
        if language == "python":
            ast.parse(content)


@every_page
def test_python_blocks_use_names_that_certus_has(page: Path) -> None:
    for language, content in blocks(page.read_text()):
        if language == "python":
            for name in re.findall(r"\bcertus\.(\w+)\(", content):
                assert name in certus.__all__, f"certus.{name}"


def commands(page: Path) -> list[list[str]]:
    """The words of every command line `certus …`, in fenced blocks and in backticks."""
    lines = []
    for language, content in blocks(page.read_text()):
        if language != "python":
            lines += content.replace("\\\n", " ").splitlines()
    lines += INLINE.findall(prose(page))
    found = [line.strip().removeprefix(".venv/bin/") for line in lines]
    return [shlex.split(line, comments=True)[1:] for line in found if line.startswith("certus ")]


@cache
def help_text(command: str) -> str:
    """What `certus COMMAND --help` prints."""
    out = io.StringIO()
    with (
        patch.object(sys, "argv", ["certus", command, "--help"]),
        patch.dict("os.environ", {"COLUMNS": "200"}),
        redirect_stdout(out),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    assert ended.value.code in (0, None), f"certus has no command {command}"
    return out.getvalue()


@cache
def settings() -> set[str]:
    """The settings of a run and the options of the methods, as flags."""
    names = {f.name for f in fields(Config)} | {name for recipe in METHODS.values() for name in recipe.defaults()}
    flags = {f"--{name.replace('_', '-')}" for name in names}
    return flags | {f"--no-{flag[2:]}" for flag in flags}


@every_page
def test_every_command_line_names_a_command_and_flags_that_exist(page: Path) -> None:
    for command, *words in commands(page):
        if command == "--version":
            continue
        known = set(FLAG.findall(help_text(command))) | settings()
        for word in words:
            if word.startswith("--"):
                assert word.split("=")[0] in known, f"certus {command} has no flag {word}"


@pytest.mark.parametrize("page", OWN, ids=lambda page: page.name)
def test_every_flag_in_backticks_exists(page: Path) -> None:
    """A span that begins with a flag speaks of certus or of a benchmark."""
    known = settings() | set(FLAG.findall((ROOT / "mkdocs.yml").read_text()))
    for script in (ROOT / "benchmarks").glob("*.py"):
        known |= set(re.findall(r'"(--[a-z-]+)"', script.read_text()))
    spans = [span for span in INLINE.findall(prose(page)) if span.startswith("--")]
    for span in spans:
        flag = span.split()[0].split("=")[0]
        if flag not in known:
            known |= {flag for name in COMMANDS for flag in FLAG.findall(help_text(name))}
        assert flag in known, span


COMMANDS = tuple("train pretrain compare sweep watch report paper evaluate predict methods data".split())


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "methods.md"], ids=lambda page: page.name)
def test_every_method_is_listed(page: Path) -> None:
    named = set(INLINE.findall(prose(page)))
    assert set(METHODS) <= named, set(METHODS) - named
    assert f"{len(METHODS)} methods" in page.read_text()


@pytest.mark.parametrize("page", OWN, ids=lambda page: page.name)
def test_prose_is_wrapped_at_100_columns(page: Path) -> None:
    """Tables and headings cannot be wrapped, nor can a line that is one link."""
    long = [line for line in prose(page).splitlines() if len(line) > 100 and not line.startswith(("|", "#", "!["))]
    assert not long, long[0]


def test_the_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


def test_no_page_installs_the_other_project_named_certus() -> None:
    pages = [*PAGES, *ROOT.glob("examples/*.py"), *ROOT.glob("benchmarks/*.py"), *ROOT.rglob("src/certus/**/*.py")]
    for page in pages:
        assert not re.search(r"pip install[^\n]*['\" ]certus(?!-ssl)\b", page.read_text()), page
