"""The page's server: on this machine alone, for whoever has the address with its random token.

Every request must name this server (Host), carry the token as the first part of its path, and, if it changes
something, come from this page (Origin). Pictures are asked for by number, so no path leads out of the data set.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from certus.data.limits import Unreadable
from certus.errors import CertusError, UsageError, unexpected
from certus.review.labels import Conflict
from certus.review.retraining import Retraining, command_of
from certus.review.session import Session
from certus.text import printable

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError:
    raise UsageError(
        "certus review needs Starlette and uvicorn: run pip install 'certus-ssl[review]', or in a checkout "
        "pip install -e '.[review]'."
    ) from None

HOST = "127.0.0.1"
FILES = {
    "": ("index.html", "text/html"),
    "review.css": ("review.css", "text/css"),
    "review.js": ("review.js", "text/javascript"),
}
MOST = 1 << 20  # bytes of a request
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
Do = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class Guard:
    """Refuses every request that does not come from the page, and keeps the page from loading anything else."""

    app: ASGIApp
    token: str
    port: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                more = [(n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in own]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        _, token, rest = [*scope["path"].split("/", 2), "", ""][:3]
        if reason := self.refusal(scope["method"], headers, token):
            await PlainTextResponse(reason, 403)(scope, receive, protected)
            return
        inner = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}
        await self.app(inner, receive, protected)

    def refusal(self, method: str, headers: dict[str, str], token: str) -> str:
        hosts = [f"{name}:{self.port}" for name in (HOST, "localhost")]
        if headers.get("host") not in hosts:
            return "This server answers only under its own address."
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            return "The address is incomplete: use the one that certus review has printed."
        origin = headers.get("origin")
        if origin not in (f"http://{headers['host']}", None) or (origin is None and method not in ("GET", "HEAD")):
            return "Only this server's own page may do that."
        return ""


class Desk:
    """The session that is open now; another takes its place when a run was trained again."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.retraining = Retraining(self.replace)
        self.earlier = 0  # labels given in the rounds before this one

    def replace(self, session: Session) -> None:
        self.earlier += self.session.labels.given()
        self.session = session

    @property
    def given(self) -> int:
        return self.earlier + self.session.labels.given()


def make_app(desk: Desk, token: str, port: int) -> ASGIApp:
    def file(request: Request) -> Response:
        name, kind = FILES[request.url.path.rpartition("/")[2]]
        text = (files("certus.review") / "page" / name).read_text(encoding="utf-8")
        return Response(text, media_type=f"{kind}; charset=utf-8")

    def state(_: Request) -> Response:
        return JSONResponse(everything())

    def everything() -> dict[str, Any]:
        session, training = desk.session, desk.retraining.progress()
        return {**session.state(), "given": desk.given, "training": training, "command": command_of(session)}

    def queue(request: Request) -> Response:
        ask, session = request.query_params, desk.session
        start, count = (number(ask.get(name, usual)) for name, usual in (("start", "-1"), ("count", "40")))
        of_class = ask.get("class", "")
        if ask.get("grid"):
            return JSONResponse(session.grid(of_class, count))
        return JSONResponse(session.page(request.path_params["name"], start, count, of_class))

    def picture(request: Request) -> Response:
        session, at = desk.session, request.path_params["number"]
        if at >= len(session.look.pictures):
            return PlainTextResponse("There is no such picture.", 404)
        large = request.path_params["size"] == "picture"
        try:
            data, kind = session.shown.large(at) if large else session.shown.thumbnail(at)
        except Unreadable as e:
            return PlainTextResponse(f"The picture cannot be shown: {printable(e)}.", 404)
        return Response(data, media_type=kind, headers={"cache-control": "private, max-age=86400"})

    def one(request: Request) -> Response:
        at = request.path_params["number"]
        if at >= len(desk.session.look.pictures):
            return PlainTextResponse("There is no such picture.", 404)
        return JSONResponse(desk.session.picture(at))

    def label(body: dict[str, Any]) -> Any:
        marks, refused = (records(body.get(name, [])) for name in ("marks", "refused"))
        return answered(desk.session.mark(marks, str(body.get("by", "person")), refused))

    def skip(body: dict[str, Any]) -> Any:
        return answered(desk.session.skip(body))

    def undo(_: dict[str, Any]) -> Any:
        return answered(desk.session.undo())

    def answered(changed: list[int]) -> dict[str, Any]:
        return {"changed": [desk.session.picture(i) for i in changed], "state": everything()}

    def add_class(body: dict[str, Any]) -> Any:
        return {"name": desk.session.add_class(str(body.get("name", ""))), "state": everything()}

    def train(_: dict[str, Any]) -> Any:
        desk.retraining.start(desk.session)
        return {"state": everything()}

    def stop(_: dict[str, Any]) -> Any:
        desk.retraining.stop()
        return {"state": everything()}

    routes = [
        *(Route(f"/{name}", file) for name in FILES),
        Route("/state", state),
        Route("/queue/{name}", queue),
        Route("/one/{number:int}", one),
        Route("/{size}/{number:int}", picture),
        *(
            Route(f"/{do.__name__.replace('_', '-')}", posted(do), methods=["POST"])
            for do in (label, skip, undo, add_class, train, stop)
        ),
    ]
    handlers = dict.fromkeys((CertusError, OSError, Exception), failed)
    return Guard(Starlette(routes=routes, exception_handlers=handlers), token, port)


def posted(do: Do) -> Callable[[Request], Awaitable[Response]]:
    """A route that reads JSON and answers with JSON."""

    async def route(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(do, await read_json(request)))

    return route


def failed(_: Request, error: Exception) -> Response:
    """Every error is a sentence."""
    if isinstance(error, OSError):
        file = f": {error.filename}" if error.filename else ""
        return JSONResponse({"error": printable(f"It could not be saved. {error.strerror or error}{file}.")}, 500)
    if not isinstance(error, CertusError):
        return JSONResponse({"error": printable(unexpected(error))}, 500)
    return JSONResponse({"error": printable(error)}, 409 if isinstance(error, Conflict) else 400)


async def read_json(request: Request) -> dict[str, Any]:
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > MOST:
            raise UsageError("The request is too long.")
    try:
        body = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        raise UsageError("The request is not JSON.") from None
    if not isinstance(body, dict):
        raise UsageError("The request is not a record.")
    return body


def records(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise UsageError("The request has no list of pictures.")
    return value


def number(text: str) -> int:
    try:
        return max(-1, min(int(text[:12]), 10**9))
    except ValueError:
        raise UsageError(f"{text[:12]!r} is not a whole number.") from None


@dataclass(frozen=True)
class Listening:
    """A socket on this machine, and the address of the page."""

    socket: socket.socket
    token: str

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/{self.token}/"


def listen(port: int = 0) -> Listening:
    """On this port of the loopback interface; 0: on a free one."""
    if not 0 <= port < 65536:
        raise UsageError(f"`port` must be between 0 and 65535, but is {port}.")
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((HOST, port))
    except OSError as e:
        made.close()
        raise CertusError(f"Port {port} cannot be used ({e.strerror}): give another `port`, or none.") from None
    return Listening(made, secrets.token_urlsafe(18))


def serve(desk: Desk, at: Listening) -> None:
    """Answer until Ctrl-C or SIGTERM."""
    app = make_app(desk, at.token, at.port)
    config = uvicorn.Config(
        app, log_level="critical", access_log=False, server_header=False, timeout_graceful_shutdown=2, lifespan="off"
    )
    uvicorn.Server(config).run(sockets=[at.socket])
