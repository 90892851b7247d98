"""Trains a comparison on a Ray cluster and counts the steps of each cell: ray_drive.py ADDRESS SECOND-MACHINE"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from threading import Event
from typing import Any

from certus.errors import CertusError
from certus.experiments.cells import Cell, check_folder
from certus.experiments.compare import comparison_cells, events_of
from certus.experiments.ray_pool import RayPool
from certus.training.build import build
from certus.training.lock import locked
from certus.training.loop import Listen, Tick, train
from certus.writing import append

SETTINGS = {"data": "moons", "width": 8, "labelled_batch": 6, "unlabelled_batch": 100}
STUCK_AT = 5


def cells_in(out: Path) -> list[Cell]:
    return comparison_cells(["supervised", "pi"], 2, SETTINGS, epochs=2, out=out)


def counted(cell: Cell, listen: Listen, second: str) -> dict[str, Any]:
    """As `train_cell`, with a checkpoint after each step. On the second machine it hangs in the middle."""
    import ray

    machine = ray.get_runtime_context().get_node_id()
    append(Path("begun"), f"{cell.name} {machine} {cell.folder.saved_step()}\n")

    def count(tick: Tick) -> None:
        append(Path(f"steps-{cell.name}"), f"{tick.step}\n")
        listen(tick)
        while machine == second and tick.step == STUCK_AT:
            Path("stuck").touch()
            time.sleep(0.1)

    with locked(cell.folder.path):
        check_folder(cell)
        return train(build(cell.config, cell.folder), cell.folder, count, save_seconds=0)


class Counted:
    def __init__(self, second: str) -> None:
        self.second = second

    def __call__(self, cell: Cell, listen: Listen) -> dict[str, Any]:
        return counted(cell, listen, self.second)


def main(address: str, second: str) -> None:
    from experiments.ray_drive import Counted as Imported  # a worker imports it by this name

    cells, found = cells_in(Path("out")), []
    with RayPool(address, 0, Path("out").absolute(), "cpu", Imported(second)) as pool:
        for kind, name, value in events_of(cells, pool, Event()):
            found += [] if kind == "tick" else [(kind, name, value if kind == "result" else str(value))]
        Path("found.json").write_text(json.dumps(found))
        Path(pool.place.marker).unlink()  # as if a machine had another disk
        try:
            list(events_of(cells[:1], pool, Event()))
        except CertusError as e:
            Path("refused").write_text(str(e))


if __name__ == "__main__":
    main(*sys.argv[1:])
