"""The version stands in one place, and the files around a release agree with it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

import certus

ROOT = Path(__file__).parents[2]


def test_the_version_comes_from_the_package_alone() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "certus-ssl"
    assert "version" not in project
    assert "version" in project["dynamic"]


def test_the_changelog_begins_with_what_is_unreleased_and_dates_this_version() -> None:
    sections = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert sections[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(certus.__version__)}\] - \d{{4}}-\d\d-\d\d", sections[1])


def test_the_citation_names_the_software_and_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "title", "message", "authors"} <= set(citation)
    assert citation["authors"] == [{"name": "The certus authors"}]
    (paper,) = citation["references"]
    assert paper["title"].startswith("Certainty Driven Consistency Loss")
    assert "version" not in citation  # it stands in certus.__version__
