"""A pool on a Ray cluster: each cell is a remote task with its cores or its GPU.

All machines see the folder of the cells under the same path, and each task checks that. So run folders, checkpoints and
locks are where they are without Ray, and a cell whose machine is lost goes on from its last checkpoint on another one:
Ray runs the task again, and the lock of the run folder keeps a second machine out as long as the first one lives.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from certus import __version__
from certus.errors import CertusError, Interrupted, UsageError, unexpected
from certus.experiments.cells import Cell
from certus.experiments.pool import Event, TrainCell, attempt, cores
from certus.writing import make_folder, naming, part_of, remove_abandoned, write_new

RAY, AUTO, OWN = "ray", "auto", "local"  # the last is Ray's word for a new cluster
ADDRESS = re.compile(r"(ray://)?[^\s/:]+:\d+|\[[0-9a-f:]+\]:\d+")
LOSSES = 5  # machines or processes that a cell may lose; then it has failed
LOOK = 0.25  # seconds between two looks for ticks
MEMORY = 80 * 2**20  # bytes for the objects of a cluster of our own; results and ticks are small
LOOPBACK = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anyone
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # every process of a new cluster listens on 127.0.0.1 alone
    "RAY_AUTH_MODE": "token",  # and other users of this machine may not use it
}


class Elsewhere(CertusError):
    """A machine of the cluster cannot do its part."""


@dataclass(frozen=True)
class Place:
    """What a machine of the cluster must have in common with this one."""

    folder: str  # the working directory: settings may have paths that are relative to it
    marker: str  # a file in the folder of the cells
    version: str = __version__
    variables: dict[str, str] = field(
        default_factory=lambda: {name: value for name, value in os.environ.items() if name.startswith("CERTUS_")}
    )

    def enter(self) -> None:
        host = os.uname().nodename
        if self.version != __version__:
            raise Elsewhere(f"{host} has certus {__version__}, but this machine has {self.version}: install the same.")
        for path, seen in ((self.folder, Path(self.folder).is_dir()), (self.marker, Path(self.marker).is_file())):
            if not seen:
                folder = path if path == self.folder else Path(path).parent
                raise Elsewhere(
                    f"{host} does not see the folder {folder} of this machine: all machines of the cluster need it "
                    "under the same path, on a shared disk."
                )
        os.chdir(self.folder)
        os.environ.update(self.variables)


def the_ray(own: bool) -> Any:
    """The package; `own`: to start a cluster that nobody else can reach."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if own:
        os.environ.update(LOOPBACK, RAY_AUTH_TOKEN=secrets.token_hex(32))  # read when the package is imported
    try:
        import ray
    except ImportError:
        raise UsageError("`on` a Ray cluster needs the package ray: run `pip install 'certus-ssl[ray]'`.") from None
    return ray


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Ray replaces the handler of SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def connect(on: str, workers: int) -> tuple[Any, bool]:
    """The package, connected; and whether it was not before."""
    address = os.environ.get("RAY_ADDRESS") or OWN if on == RAY else on
    if address not in (AUTO, OWN) and not ADDRESS.fullmatch(address):
        raise UsageError(f"`on` must be local, ray, auto or HOST:PORT of a Ray cluster, but is {address!r}.")
    ray = the_ray(address == OWN)
    if ray.is_initialized():
        return ray, False
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == OWN:
        settings |= {"num_cpus": workers or cores(), "include_dashboard": False, "object_store_memory": MEMORY}
    try:
        with handlers_kept():
            ray.init(address, **settings)
    except Exception as e:  # of many kinds, also plain ones
        what = "be started" if address == OWN else f"be reached at {address}"
        raise CertusError(f"Ray cannot {what}: {first_line(e)}") from None
    if address == OWN and ray.util.get_node_ip_address() != "127.0.0.1":
        ray.shutdown()
        raise CertusError(
            "Ray was imported before certus and would listen on all networks: import it later, or start it yourself."
        )
    return ray, True


def first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


class Mailbox:
    """An actor: ticks of all cells on their way to this process."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def put(self, event: Event) -> None:
        self.events.append(event)

    def take(self) -> list[Event]:
        taken, self.events = self.events, []
        return taken


def remote_cell(cell: Cell, train: TrainCell, place: Place, mailbox: Any) -> Event:
    """A task of the cluster. This process stops it by Ray's cancel, which is as Ctrl-C there."""
    import ray

    place.enter()
    sent: list[Any] = []

    def tell(event: Event) -> None:
        sent[:] = [mailbox.put.remote(event)]

    ended = attempt(cell, train, tell)
    ray.get(sent)  # no tick comes after the end
    return ended


class RayPool:
    def __init__(self, on: str, workers: int, out: Path, device: str, train: TrainCell) -> None:
        self.workers, self.out, self.device, self.train = workers, out, device, train
        self.ray, self.ours = connect(on, workers)
        self.waiting: deque[Cell] = deque()
        self.running: dict[Any, Cell] = {}  # by the reference to the task's result
        self.news: deque[Event] = deque()
        self.looked, self.found = -float("inf"), 0

    @property
    def size(self) -> int:
        """As many as asked for, or what the cluster has now."""
        if self.workers:
            return self.workers
        if time.monotonic() - self.looked > 10:
            kind = "GPU" if self.device == "cuda" else "CPU"
            self.looked, self.found = time.monotonic(), int(self.ray.cluster_resources().get(kind, 0))
            if not self.found:
                raise CertusError(f"The Ray cluster has no {kind}: add a machine, or set `workers` to wait for one.")
        return self.found

    def __enter__(self) -> Self:
        ray = self.ray
        make_folder(self.out)
        remove_abandoned(self.out / "ray")
        marker = part_of(self.out / "ray")
        with naming(marker):
            write_new(marker, "")
        self.place = Place(str(Path.cwd()), str(marker))
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self.mailbox = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()
        self.task = ray.remote(remote_cell)
        return self

    def __exit__(self, *failure: object) -> None:
        ray = self.ray
        try:
            if failure[0] is not None and self.running:
                for force in (False, True):  # a step finishes and is saved; after a minute it is too late
                    for task in reversed(list(self.running)):  # those that wait for room first, or they would get it
                        ray.cancel(task, force=force, recursive=False)
                    left = ray.wait(list(self.running), num_returns=len(self.running), timeout=60)[1]
                    self.running = {task: cell for task, cell in self.running.items() if task in left}
                    if not left:
                        break
        finally:
            Path(self.place.marker).unlink(missing_ok=True)
            with suppress(Exception):
                ray.kill(self.mailbox)
            if self.ours:
                ray.shutdown()

    def put(self, cell: Cell) -> None:
        self.waiting.append(cell)
        self.fill()

    def fill(self) -> None:
        while self.waiting and len(self.running) < self.size:
            cell = self.waiting.popleft()
            needs = {"num_cpus": cell.config.threads, "num_gpus": int(cell.config.device == "cuda")}
            task = self.task.options(**needs, max_retries=LOSSES, name=cell.name)
            self.running[task.remote(cell, self.train, self.place, self.mailbox)] = cell

    def event(self, stopped: threading.Event) -> Event | None:
        end = time.monotonic() + 1.0
        while not self.news and time.monotonic() < end:
            if stopped.is_set():
                raise Interrupted("Stopped; every run is saved.")
            self.fill()
            self.look()
        return self.news.popleft() if self.news else None

    def look(self) -> None:
        """Ticks first: a cell has none after its end."""
        if not self.running:
            time.sleep(LOOK)
            return
        ended = self.ray.wait(list(self.running), num_returns=1, timeout=LOOK)[0]
        self.news += self.ray.get(self.mailbox.take.remote())
        for task in ended:
            self.news.append(self.end_of(task, self.running.pop(task)))

    def end_of(self, task: Any, cell: Cell) -> Event:
        errors = self.ray.exceptions
        try:
            return self.ray.get(task)
        except errors.RayTaskError as e:
            failure = e.cause
            if isinstance(failure, Elsewhere):
                raise failure from None
            return "failed", cell.name, failure if isinstance(failure, CertusError) else unexpected(failure)
        except errors.RayError as e:
            lost = f"The machine or process that trained it was lost {LOSSES + 1} times ({type(e).__name__})"
            return "failed", cell.name, CertusError(f"{lost}. What it had saved is kept: run the same command again.")
