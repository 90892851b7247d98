"""Whether torchrun has started this process, and how it joins the others.

Without torchrun, or with one process, there is a team of one. Rank 0 prints; an error is printed once, by the first
process that has one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from certus.errors import CertusError, Told

if TYPE_CHECKING:  # imported when it is needed, because it imports torch
    from certus.distributed.team import Processes, Team

GRACE = 1.0  # seconds in which the process that has claimed an error prints it, before torchrun ends all
joined_now: list[Team] = []


def launched() -> bool:
    """Whether torchrun has started this process beside others."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def current() -> Team:
    """The team of this process."""
    from certus.distributed.team import ALONE

    return joined_now[-1] if joined_now else ALONE


@contextmanager
def joined() -> Iterator[Team]:
    """Join the processes that torchrun has started; a team that was joined before is taken as it is."""
    if joined_now or not launched():
        yield current()
        return
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # torch advises against what `gradients.py` needs
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    from certus.distributed.team import Processes

    store, rank, size = next(rendezvous("env://"))
    accelerated = torch.cuda.is_available()
    if accelerated:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl" if accelerated else "gloo", store=store, rank=rank, world_size=size)
    team = Processes.of(rank, size, store)
    joined_now.append(team)
    try:
        with ExitStack() as quiet:
            if not team.leads:
                nothing = quiet.enter_context(Path(os.devnull).open("w"))
                quiet.enter_context(redirect_stdout(nothing))
                quiet.enter_context(redirect_stderr(nothing))
            yield team
    except BaseException as e:
        if isinstance(e, Told) or not claimed(team):
            time.sleep(GRACE)
            raise Told(exit_code(e)) from e
        raise
    finally:
        joined_now.pop()
        if sys.exc_info()[0] is None:
            dist.destroy_process_group()


def claimed(team: Processes) -> bool:
    """Whether this process is the first that has an error, and so prints it."""
    with suppress(Exception):  # the store may be gone: better twice than never
        return team.store.add("errors", 1) == 1
    return True


def exit_code(error: BaseException) -> int:
    if isinstance(error, CertusError):
        return error.exit_code
    return 130 if isinstance(error, KeyboardInterrupt) else 1
