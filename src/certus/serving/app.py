"""The service: its paths, and what every request passes through."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from certus import __version__
from certus.data.decode import WORKERS, decode_bytes, quiet
from certus.data.limits import Unreadable
from certus.errors import unexpected
from certus.serving import openapi
from certus.serving.access import Access
from certus.serving.answerer import Answerer, certainty
from certus.serving.batching import Batcher, Full
from certus.serving.bodies import Held, pictures_of, read_body
from certus.serving.limits import Limits
from certus.serving.metrics import KIND, Metrics
from certus.serving.page import PAGE, POLICY
from certus.serving.refusal import Refusal
from certus.text import printable

notices = logging.getLogger("certus")
Picture = NDArray[np.uint8]  # (3, size, size)
Answer = dict[str, Any]
DIGITS = 6  # of a probability
DESCRIBED = 20  # errors that nobody foresaw whose traceback is kept in a file; a service may run for years
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(eq=False)
class Service:
    answerer: Answerer
    limits: Limits = field(default_factory=Limits)
    access: Access = field(default_factory=Access)
    metrics: Metrics = field(default_factory=Metrics)
    under_way: int = 0  # requests to /predict
    stopping: bool = False
    batcher: Batcher[Picture, Answer] = field(init=False)

    def __post_init__(self) -> None:
        self.held = Held(self.limits.max_held)
        self.decoders = ThreadPoolExecutor(WORKERS, "decode")
        self.model_thread = ThreadPoolExecutor(1, "model", lambda: torch.set_num_threads(self.answerer.threads))
        self.batcher = Batcher(
            answer=self.answer,
            thread=self.model_thread,
            most=self.limits.max_batch,
            room=self.limits.max_waiting,
            latency=self.limits.latency / 1000,
            listen=self.metrics.batches.add,
        )

    def app(self) -> Starlette:
        paths = {
            "/": self.page,
            "/model": self.model,
            "/health": self.health,
            "/ready": self.ready,
            "/metrics": self.show_metrics,
            "/openapi.json": self.openapi,
        }
        app = Starlette(
            routes=[Route("/predict", self.predict, methods=["POST"])]
            + [Route(path, endpoint, methods=["GET"]) for path, endpoint in paths.items()],
            exception_handlers={Refusal: refuse, HTTPException: no_such_path},
            lifespan=self.lifespan,
        )
        app.router.redirect_slashes = False
        app.add_middleware(Guard, service=self, paths=frozenset({"/predict", *paths}))
        return app

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        with quiet():
            worker = asyncio.create_task(self.batcher.run())
            try:
                yield
            finally:
                worker.cancel()
                with suppress(asyncio.CancelledError):
                    await worker
                for pool in (self.decoders, self.model_thread):
                    pool.shutdown(wait=False, cancel_futures=True)  # a second signal must not wait for a batch

    async def predict(self, request: Request) -> Response:
        if self.stopping:
            raise Refusal(503, "The service is stopping: ask another one, or try again later.", {"Connection": "close"})
        self.under_way += 1
        start = time.perf_counter()
        try:
            return JSONResponse({"answers": await self.answers(request)})
        except Full as full:
            sentence = f"Too many pictures are waiting: try again in {full.seconds} s."
            raise Refusal(429, sentence, {"Retry-After": str(full.seconds)}) from None
        finally:
            self.under_way -= 1
            self.metrics.seconds.add(time.perf_counter() - start)

    async def answers(self, request: Request) -> list[Answer]:
        """Within the time that a request may take."""
        late, sentence, body = 408, "The body of the request did not arrive in time: send it again.", b""
        try:
            async with asyncio.timeout(self.limits.timeout):
                announced = request.headers.get("content-length")
                body = await read_body(request.stream(), announced, self.limits, self.held)
                late, sentence = 504, "The answer was not ready in time: try again later, or send fewer pictures."
                pictures = await pictures_of(request.headers.get("content-type", ""), body, self.limits)
                return await self.batcher.ask(len(pictures), partial(self.decode, pictures))
        except TimeoutError:
            raise Refusal(late, sentence) from None
        except ClientDisconnect:
            raise Refusal(400, "The connection was closed before the body had arrived.") from None
        finally:
            self.held.bytes -= len(body)

    async def decode(self, pictures: Sequence[bytes]) -> list[Picture]:
        """In threads, all of a request side by side; the first that cannot be decoded refuses the request."""
        loop = asyncio.get_running_loop()
        found = await asyncio.gather(
            *(loop.run_in_executor(self.decoders, self.decode_one, data) for data in pictures), return_exceptions=True
        )
        for number, outcome in enumerate(found, 1):
            if isinstance(outcome, Unreadable):
                self.metrics.unreadable += 1
                raise Refusal(422, f"Picture {number} cannot be read: {one_line(outcome)}.", picture=number)
            if isinstance(outcome, BaseException):
                raise outcome
        return [picture for picture in found if not isinstance(picture, BaseException)]

    def decode_one(self, data: bytes) -> Picture:
        about = self.answerer.about
        return decode_bytes(data, about.size, about.fit, self.limits.max_pixels).pixels

    def answer(self, pictures: Sequence[Picture]) -> list[Answer]:
        """What the service says of each picture."""
        about, found = self.answerer.about, self.answerer.answer(np.stack(pictures))
        answers = []
        for i, p in enumerate(found.probabilities.astype(float)):
            uncertainty = {name: float(values[i]) for name, values in found.uncertainty.items()}
            unsure = found.answered is not None and not found.answered[i]
            self.metrics.unsure += unsure
            self.metrics.answered += not unsure
            answers.append(
                {
                    "label": about.classes[int(p.argmax())],
                    "probabilities": {name: rounded(x) for name, x in zip(about.classes, p, strict=True)},
                    "certainty": rounded(certainty(about.metric, uncertainty[about.metric], len(about.classes))),
                    "uncertainty": {name: float(f"{u:.6g}") for name, u in uncertainty.items()},
                    "answered": not unsure,
                }
            )
        return answers

    async def page(self, _: Request) -> Response:
        return HTMLResponse(PAGE, headers={"Content-Security-Policy": POLICY})

    async def model(self, _: Request) -> Response:
        about, limits = self.answerer.about, self.limits
        return JSONResponse(
            {
                "name": about.name,
                "certus": __version__,
                "classes": about.classes,
                "metric": about.metric,
                "limit": about.limit,
                "promise": about.promise,
                "max_pictures": limits.max_pictures,
                "max_bytes": limits.max_bytes,
                "max_pixels": limits.max_pixels,
            }
        )

    async def health(self, _: Request) -> Response:
        return JSONResponse({"state": "running"})

    async def ready(self, _: Request) -> Response:
        if self.stopping:
            raise Refusal(503, "The service is stopping.")
        return JSONResponse({"state": "ready"})

    async def show_metrics(self, _: Request) -> Response:
        return Response(self.metrics.text(self.batcher.taken, self.stopping), headers={"Content-Type": KIND})

    async def openapi(self, _: Request) -> Response:
        return JSONResponse(openapi.document(self.answerer.about, self.limits, bool(self.access.token)))


def rounded(share: float) -> float:
    return min(1.0, max(0.0, round(float(share), DIGITS)))


def one_line(error: Exception) -> str:
    """What a decoder says of a damaged file, which may be long."""
    return " ".join(printable(error).split())[:200]


async def refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return JSONResponse({"error": error.sentence, **error.more}, error.status, error.headers)


async def no_such_path(_: Request, error: Exception) -> Response:
    """404 and 405, in the form of the other refusals."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": f"{error.detail}: /openapi.json lists the paths."}, error.status_code, error.headers)


class Guard:
    """Checks who asks, adds headers, counts, and turns an error that nobody foresaw into one sentence."""

    def __init__(self, app: ASGIApp, service: Service, paths: frozenset[str]) -> None:
        self.app, self.service, self.paths = app, service, paths
        self.failures = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                more = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        request, path = Request(scope), scope["path"]
        try:
            try:
                self.service.access.check(path, Headers(scope=scope))
                await self.app(scope, receive, watched)
            except Refusal as refusal:
                await (await refuse(request, refusal))(scope, receive, watched)
            except Exception as error:
                self.failures += 1
                described = self.failures <= DESCRIBED
                notices.error("%s", unexpected(error) if described else f"Again: {type(error).__name__}.")
                if status:
                    raise
                answer = JSONResponse({"error": "The service could not answer; its log says why."}, 500)
                await answer(scope, receive, watched)
        finally:
            self.service.metrics.requests[path if path in self.paths else "other", status] += 1
