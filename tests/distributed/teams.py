"""Teams of processes on this machine: each calls a function of this folder and returns what it gives, as JSON."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from certus.distributed.team import Processes

HERE = Path(__file__).parent


def on_team(size: int, folder: Path, work: str, *words: Any) -> list[Any]:
    """What `work` (module:function) gives on each of `size` processes; it is called with the team and these words."""
    store = folder / f"store-{size}"
    command = [sys.executable, str(HERE / "teams.py"), str(store), str(size), work, json.dumps(words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen([*command, str(rank)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for rank in range(size)
    ]
    found = [process.communicate(timeout=300) for process in processes]
    assert not any(process.returncode for process in processes), "\n".join(err.decode()[-3000:] for _, err in found)
    return [json.loads(out.splitlines()[-1]) for out, _ in found]


def main(path: str, size: str, work: str, words: str, rank: str) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(path, int(size))
    dist.init_process_group("gloo", store=store, rank=int(rank), world_size=int(size))
    module, _, name = work.partition(":")
    sys.path.insert(0, str(HERE))
    found = getattr(importlib.import_module(module), name)(
        Processes.of(int(rank), int(size), store), *json.loads(words)
    )
    print(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
