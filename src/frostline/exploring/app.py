"""The explorer's HTTP side: the page, predictions, runs as streams of frames, exports."""

import asyncio
import io
import tempfile
import threading
import zipfile
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import tomli_w
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp

from frostline import __version__, cancellation
from frostline.errors import FrostlineError
from frostline.exploring import address
from frostline.exploring.frames import show
from frostline.exploring.messages import pack
from frostline.exploring.presets import PRESETS
from frostline.exploring.saved_folders import Opened
from frostline.files.plain_json import plain
from frostline.log import LOG
from frostline.runs import schema as specs
from frostline.runs.build import build_heads
from frostline.runs.predict import predict
from frostline.runs.record import record
from frostline.web.guard import Guard, leave_to_guard
from frostline.web.live_streams import LiveStreams
from frostline.web.request_limits import Limits

LIMITS = Limits(connections=64)
"""Limits of requests to the page's server."""
MOST_STREAMS = 16
"""Runs that are streamed at the same time, over all open pages."""
SCRIPTS = ("picture.js", "heads.js", "audit.js", "explore.js")
"""The page's scripts."""
Answer = TypeVar("Answer")


class Explorer:
    """The workers behind the page: one thread computes frames, a step of every open page in turn, one predictions and
    one exports. ``streams`` counts the runs that are not over."""

    def __init__(self, opened: Opened | None = None):
        self.opened = opened
        self.streams = LiveStreams(MOST_STREAMS, f"{MOST_STREAMS} runs are under way in other tabs; close some.")
        self.stopping = False
        self._frames = ThreadPoolExecutor(1, thread_name_prefix="frames")
        self._predictions = ThreadPoolExecutor(1, thread_name_prefix="predictions")
        self._exports = ThreadPoolExecutor(1, thread_name_prefix="exports")

    @property
    def running(self) -> int:
        """Number of streams that are not over."""
        return self.streams.open

    def stop(self) -> None:
        self.stopping = True

    def close(self) -> None:
        for pool in (self._frames, self._predictions, self._exports):
            pool.shutdown(cancel_futures=True)

    async def predict(self, request: Request, spec: specs.Spec) -> Any:
        return await self._while_wanted(request, self._predictions, lambda: predict(spec))

    async def export(self, request: Request, spec: specs.Spec) -> bytes:
        return await self._while_wanted(request, self._exports, lambda: zipped(spec))

    async def _while_wanted(self, request: Request, pool: ThreadPoolExecutor, work: Callable[[], Answer]) -> Answer:
        """The answer of ``work``, which is stopped, or never begun, once its client has disconnected."""
        gone = threading.Event()

        def unless_gone() -> Answer:
            with cancellation.cancel_when(lambda: gone.is_set() or self.stopping):
                return work()

        waiting = asyncio.wrap_future(pool.submit(unless_gone))
        try:
            while not waiting.done():
                await asyncio.wait([waiting], timeout=0.2)
                if self.stopping or await request.is_disconnected():
                    raise HTTPException(503, "nobody waits for this any more.")
            return waiting.result()
        finally:
            gone.set()
            waiting.cancel()

    def streamed(self, messages: Iterator[bytes]) -> Response:
        return self.streams.answer(self._stream(messages), "application/octet-stream")

    async def _stream(self, messages: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
        """The messages of a run, which ends after the layer under way once its page has disconnected."""
        loop = asyncio.get_running_loop()
        gone = threading.Event()

        def next_message() -> bytes | None:
            with cancellation.cancel_when(lambda: gone.is_set() or self.stopping):
                return _next(messages)

        try:
            while not self.stopping:
                message = await loop.run_in_executor(self._frames, next_message)
                if message is None:
                    return
                if message:
                    yield message
        finally:
            gone.set()
            # The thread that computes frames closes the run, after the step under way.
            if not self.stopping and isinstance(messages, Generator):
                self._frames.submit(messages.close)


def make_app(explorer: Explorer, *, hosts: Collection[str]) -> ASGIApp:
    app = FastAPI(title="frostline explore", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    _pages(app, explorer)
    _runs(app, explorer)

    @app.exception_handler(StarletteHTTPException)
    async def refuse(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, StarletteHTTPException)
        return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)

    @app.exception_handler(cancellation.Cancelled)
    async def given_up(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": "nobody waits for this any more."}, 503)

    @app.exception_handler(OSError)
    async def no_room(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, OSError)
        LOG.error("an export failed: %s", error.strerror)
        return JSONResponse(
            {"error": f"The run cannot be written here: {error.strerror}. Set TMPDIR to a place with room."}, 507
        )

    @app.exception_handler(FrostlineError)
    async def explain(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": _sentence(error)}, 422)

    app.add_exception_handler(Exception, leave_to_guard)
    known = ("/", "/run", "/theory", "/rows/B", "/rows/V", "/run.zip")
    return Guard(app, LIMITS, hosts=hosts, known=known, draining=lambda: explorer.stopping)


def _pages(app: FastAPI, explorer: Explorer) -> None:
    here = files("frostline.exploring")
    page, shared_style, own_style = (
        path.read_text(encoding="utf-8")
        for path in (here / "explore.html", files("frostline.report") / "page.css", here / "explore.css")
    )
    about = {
        "version": __version__,
        "defaults": address.DEFAULTS,
        "presets": [asdict(preset) for preset in PRESETS],
        "opened": None if explorer.opened is None else explorer.opened.about,
    }

    @app.get("/")
    async def whole() -> HTMLResponse:
        return HTMLResponse(page)

    @app.get("/explore.css")
    async def styles() -> Response:
        return Response(shared_style + own_style, media_type="text/css")

    scripts = {name: (here / name).read_text(encoding="utf-8") for name in SCRIPTS}

    @app.get("/explore.js")
    @app.get("/picture.js")
    @app.get("/audit.js")
    @app.get("/heads.js")
    async def script(request: Request) -> Response:
        return Response(scripts[request.url.path[1:]], media_type="text/javascript")

    @app.get("/about")
    async def told() -> JSONResponse:
        return JSONResponse(about)

    @app.get("/healthz")
    async def health() -> dict[str, int | bool]:
        return {"alive": True, "running": explorer.running}

    @app.get("/opened")
    async def clouds() -> Response:
        if explorer.opened is None:
            raise HTTPException(404, "nothing was opened; start with: frostline explore FOLDER")
        return explorer.streamed(explorer.opened.messages())

    @app.get("/opened/{number}")
    def sights(number: int) -> Response:
        known = () if explorer.opened is None else explorer.opened.sights
        if not 0 <= number < len(known):
            raise HTTPException(404, f"there is no text {number} whose heads can be looked through.")
        return Response(known[number](), media_type="application/octet-stream")


def _runs(app: FastAPI, explorer: Explorer) -> None:
    def spec_of(request: Request) -> specs.Spec:
        return address.to_spec(address.read(request.url.query))

    @app.get("/theory")
    async def theory(request: Request) -> JSONResponse:
        return JSONResponse(plain(await explorer.predict(request, spec_of(request))))

    @app.get("/rows/{name}")
    async def rows(request: Request, name: str) -> dict[str, str]:
        return {"rows": address.typed_rows(address.read(request.url.query), name)}

    @app.get("/run")
    async def run(request: Request) -> Response:
        return explorer.streamed(show(spec_of(request)))

    @app.get("/spec.toml")
    async def spec(request: Request) -> Response:
        asked = spec_of(request)
        # A spec whose heads cannot be built is refused, not exported.
        build_heads(asked)
        return _attached(tomli_w.dumps(specs.to_table(asked)).encode(), "run.toml", "application/toml")

    @app.get("/run.zip")
    async def folder(request: Request) -> Response:
        return _attached(await explorer.export(request, spec_of(request)), "run.zip", "application/zip")


def zipped(spec: specs.Spec) -> bytes:
    """The run directory that ``frostline simulate`` would write, as a ZIP archive."""

    def look(*_: Any) -> None:
        cancellation.poll()

    with tempfile.TemporaryDirectory() as place:
        folder = record(spec, out=Path(place) / "run", progress=look).folder
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    archive.write(path, Path("run") / path.relative_to(folder))
        return written.getvalue()


def _attached(body: bytes, name: str, kind: str) -> Response:
    return Response(body, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _next(messages: Any) -> bytes | None:
    """The next message of a run, an error in words included; None after the last one."""
    try:
        return next(messages, None)
    except cancellation.Cancelled:
        return None
    except FrostlineError as error:
        return pack("error", {"says": _sentence(error)})
    except Exception as error:
        LOG.exception("a run failed")
        return pack("error", {"says": f"This should not happen: {type(error).__name__}; the terminal says more."})


def _sentence(error: Exception) -> str:
    return f"Not possible: {error}"
