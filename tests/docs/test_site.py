"""`make docs` builds the site without a warning, and no page loads anything from another server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    pages = list(tmp_path.glob("*.html"))
    assert {"index.html", "pictures.html", "contributing.html", "changelog.html"} <= {page.name for page in pages}
    assert (tmp_path / "results" / "index.html").is_file()
    loaded = r'<(?:script|img|iframe)[^>]*src="https?:|<link[^>]*rel="stylesheet"[^>]*href="https?:'
    assert not [page for page in pages if re.search(loaded, page.read_text())]
