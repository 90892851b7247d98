"""What is worth keeping of an experiment where others can read it: small files, no weights, no place of a machine."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from certus.compare import Cell
from certus.folder import Folder, put


def publish(cells: Sequence[Cell], made: Path, where: Path) -> None:
    """Copy each run's settings, metrics and result to WHERE/runs, and the experiment's tables and figures beside."""
    for cell in cells:
        target = Folder(where / "runs" / cell.folder.path.parent.name / cell.folder.path.name)
        target.path.mkdir(parents=True, exist_ok=True)
        put(target.config, replace(cell.config, data_dir="", init=Path(cell.config.init).name).text())
        for source, copy in ((cell.folder.metrics, target.metrics), (cell.folder.result, target.result)):
            put(copy, source.read_text())
    out = where / made.name
    out.mkdir(parents=True, exist_ok=True)
    for name in ("results.json", "results.md"):
        put(out / name, (made / name).read_text())
    if (made / "figures").is_dir():
        shutil.rmtree(out / "figures", ignore_errors=True)
        shutil.copytree(made / "figures", out / "figures", ignore=shutil.ignore_patterns("*.svg"))
