"""The folder of a run that several processes train: rank 0 opens, locks and writes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from certus.distributed.team import Team
from certus.training.run_folder import RunFolder


@contextmanager
def opened_by(team: Team, folder: AbstractContextManager[RunFolder]) -> Iterator[RunFolder]:
    """The folder that rank 0 has opened and locked; the others are told where it is."""
    with ExitStack() as held:
        yield RunFolder(Path(team.told(lambda: str(held.enter_context(folder).path))))
