"""Teams of processes on this machine, without torchrun: each calls a function of this folder and gives plain values."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import sys
import traceback
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from certus.distributed import launch
from certus.distributed.team import Processes

PROCESSES = multiprocessing.get_context("forkserver")  # torch is imported once, and by a process that has no threads
PROCESSES.set_forkserver_preload(["distributed.work", "sklearn.datasets"])


def on_team(size: int, work: str, *words: Any) -> list[Any]:
    """What a function of work.py gives on each of `size` processes; it is called with the team and these words."""
    folder = Path(mkdtemp(prefix="team-"))
    started = [PROCESSES.Process(target=member, args=(folder, rank, size, work, words)) for rank in range(size)]
    shown = {"PYTHONPATH": os.pathsep.join(sys.path), "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
    with patch.dict(os.environ, shown):  # the first process of all imports the modules for the others
        for process in started:
            process.start()
    for process in started:
        process.join(300)
    errors = sorted(folder.glob("error-*"))
    assert not errors, "\n".join(path.read_text() for path in errors)
    assert all(process.exitcode == 0 for process in started)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]


def member(folder: Path, rank: int, size: int, work: str, words: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    try:
        store = dist.FileStore(str(folder / "store"), size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
        team = Processes.of(rank, size, store)
        launch.joined_now.append(team)
        found = getattr(importlib.import_module("distributed.work"), work)(team, *words)
        (folder / f"{rank}.json").write_text(json.dumps(found))
        dist.destroy_process_group()
    except BaseException:
        (folder / f"error-{rank}").write_text(traceback.format_exc())
        os._exit(1)
