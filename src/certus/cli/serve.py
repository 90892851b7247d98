"""certus serve: a trained model as an HTTP service."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path

from certus.cli.evaluate import MOST_DRAWS
from certus.cli.flags import argument, flag
from certus.errors import UsageError
from certus.methods.options import at_least
from certus.serving.limits import Limits

NEEDED = ("starlette", "uvicorn", "python_multipart", "PIL")
TOKEN = "CERTUS_TOKEN"
LIMITS = "limits"
USUAL = Limits()


@dataclass(frozen=True)
class Options:
    """Answer pictures over HTTP: a page for people, JSON for programs.

    The page is at /, programs POST pictures to /predict, and /openapi.json describes everything.

    Ctrl-C or SIGTERM stops it after the requests under way are answered.
    """

    model: Path | None = argument("MODEL", "the folder of a run, or a file that certus export wrote (.onnx)")
    host: str = flag("the address to listen at; one that other machines can reach needs a token", "127.0.0.1")
    port: int = flag("the port; 0: any that is free", 8000)
    token: str = flag(f"what every request must carry; better: the environment variable {TOKEN}", "")
    draws: int | None = flag(
        "Monte-Carlo draws from which certainty is computed; 0: none, which is quicker", None, "10, or as calibrated"
    )
    threads: int = flag("processor threads of the model", 0, "the run's, or all")
    latency: float = flag(
        "milliseconds that a picture waits for others that are on their way, to be answered with them",
        USUAL.latency,
        group=LIMITS,
    )
    max_batch: int = flag("pictures that are answered at once", USUAL.max_batch, group=LIMITS)
    max_waiting: int = flag("pictures that may wait; requests above this get 429", USUAL.max_waiting, group=LIMITS)
    max_pictures: int = flag("pictures in one request", USUAL.max_pictures, group=LIMITS)
    max_bytes: int = flag("bytes in one request", USUAL.max_bytes, group=LIMITS)
    max_pixels: int = flag("pixels in one picture", USUAL.max_pixels, group=LIMITS)
    timeout: float = flag("seconds that a request may take", USUAL.timeout, group=LIMITS)


def run(options: Options) -> int:
    if options.model is None:
        raise UsageError("certus serve needs the folder of a run, or an exported .onnx file.")
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise UsageError(
            f"Serving needs packages that are not installed ({', '.join(missing)}): run pip install "
            "'certus-ssl[serve]', or in a checkout pip install -e '.[serve]'."
        )
    from certus.serving import server
    from certus.serving.access import Access
    from certus.serving.answerer import open_answerer
    from certus.serving.app import Service

    at_least(0, MOST_DRAWS)("draws", options.draws or 0)
    at_least(0, 1024)("threads", options.threads)
    limits = Limits(**{f.name: getattr(options, f.name) for f in fields(Limits)})
    access = Access.on(options.host, options.token or os.environ.get(TOKEN, ""))
    answerer = open_answerer(options.model, options.draws, options.threads)
    with server.listen(options.host, options.port) as listening:
        service = Service(answerer, limits, access)
        print(f"{answerer.about.name} answers at {server.address_of(listening)} (Ctrl-C stops it)", flush=True)
        whole = server.run(service, listening)
    count = service.metrics.pictures
    pictures = f"{count:,} picture{'s' * (count != 1)}"
    if whole:
        print(f"Stopped after {pictures}.")
        return 0
    print(f"Stopped after {pictures}; requests under way were cut off.", flush=True)
    os._exit(130)  # at once: the thread of the model cannot be interrupted
