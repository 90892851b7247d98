"""The service as a process: listens, and stops when it is told to, after the requests under way are answered."""

from __future__ import annotations

import logging
import os
import socket
from types import FrameType

import uvicorn

from certus.errors import CertusError, UsageError
from certus.serving.app import Service

CONNECTIONS = 1024  # above this uvicorn itself answers 503
QUIET = ("uvicorn.error", "uvicorn.asgi", "python_multipart")  # they speak of every malformed request


class Server(uvicorn.Server):
    """The first signal refuses new requests and waits for those under way; the second ends at once."""

    def __init__(self, service: Service) -> None:
        super().__init__(
            uvicorn.Config(
                service.app(),
                http="h11",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=CONNECTIONS,
                timeout_graceful_shutdown=int(service.limits.timeout) + 1,
            )
        )
        self.service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.service.stopping:
            self.should_exit = self.force_exit = True
        self.service.stopping = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if self.service.stopping and not self.service.under_way:
            self.should_exit = True
        return await super().on_tick(counter)


def listen(host: str, port: int) -> socket.socket:
    """A socket that waits for connections; port 0 takes a free one."""
    if not 0 <= port <= 65535:
        raise UsageError(f"`port` must be between 0 and 65535, but is {port}.")
    made = None
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # The protocol is named so that asyncio sends every packet at once. Else each answer waits for 40 ms.
        made = socket.socket(kind, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if os.name == "posix":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a new start need not wait for the old port
        made.bind(address)
        made.listen(CONNECTIONS)
        return made
    except OSError as e:
        if made:
            made.close()
        reason = e.strerror or e
        raise CertusError(
            f"Nothing can be served at {host}, port {port} ({reason}): choose another `port` or `host`."
        ) from None


def address_of(listening: socket.socket) -> str:
    """What is typed into a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(service: Service, listening: socket.socket) -> bool:
    """Serve until a signal comes; whether every request under way was answered."""
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.ERROR)
    server = Server(service)
    server.run([listening])
    return not server.force_exit
