"""Files of the site that stand outside docs/: CONTRIBUTING.md, CHANGELOG.md, results/ and examples/.

Links in the Markdown files lead to files of the repository, so they work there too. Here each link is replaced by the
place of that file on the site. A link to a file that is not on the site fails in `mkdocs build --strict`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
TOP = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
PUBLISHED = {".md", ".png", ".svg", ".csv"}
LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?\)")


def on_files(files: Files, *, config: Any) -> Files:
    outside = [ROOT / name for name in TOP if name != "README.md"]
    outside += [path for path in sorted((ROOT / "results").rglob("*")) if path.suffix in PUBLISHED]
    outside += sorted(path for path in (ROOT / "examples").iterdir() if path.is_file())
    for path in outside:
        files.append(File.generated(config, site_path(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:  # noqa: ARG001
    source = Path(page.file.abs_src_path)
    here = Path(page.file.src_uri).parent

    def moved(link: re.Match[str]) -> str:
        target = os.path.relpath(site_path(source.parent / link[2]), here)
        return f"{link[1]}{target}{link[3] or ''})"

    return LINK.sub(moved, markdown)


def site_path(path: Path) -> str:
    """Where a file of the repository stands on the site, relative to its root."""
    place = Path(os.path.normpath(path)).relative_to(ROOT)
    if place.parts[0] == "docs":
        return "/".join(place.parts[1:])
    return TOP.get(place.as_posix(), place.as_posix())
