"""The HTTP interface: scoring, alarms, the status, events, metrics, health checks, and the live page."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from jinja2 import Environment
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp

from frostline import __version__
from frostline.errors import FrostlineError
from frostline.serving import schema
from frostline.serving.batching import Late, Overloaded
from frostline.serving.empty_texts import score_readable, with_empty
from frostline.serving.service import SAVED_EVERY, Service
from frostline.serving.submission import Submission
from frostline.web.guard import Guard, leave_to_guard
from frostline.web.live_streams import LiveStreams

OPEN = ("/", "/live.js", "/live.css", "/docs", "/openapi.json", "/healthz", "/readyz")
"""Paths that are served without a token: pages without data, and the checks of a load balancer."""
MOST_PAGES = 32
"""Largest number of live pages that may be open at the same time."""
BEAT = 0.5
"""Seconds between two pictures of the stream for a live page."""
MOST_EVENTS = 1000
"""Largest number of events in one answer."""
FIRST_ERRORS = 5
"""Number of errors of a request that an answer lists."""
_PROBLEM: dict[str, Any] = {"model": schema.Problem}
COMMON: dict[int | str, dict[str, Any]] = {
    400: _PROBLEM | {"description": "The request cannot be read."},
    401: _PROBLEM | {"description": "The token is missing or wrong."},
    403: _PROBLEM | {"description": "The Host header names another machine."},
    422: _PROBLEM | {"description": "The request can be read but not answered; the sentence says why."},
    500: _PROBLEM | {"description": "A defect of the service."},
}
"""Answers that every route can give."""
SCORING: dict[int | str, dict[str, Any]] = {
    408: _PROBLEM | {"description": "The body took too long to arrive."},
    413: _PROBLEM | {"description": "The body is too large."},
    503: _PROBLEM | {"description": "Too many texts are waiting, or the service is stopping; see Retry-After."},
    504: _PROBLEM | {"description": "The time for a call was over before its texts were scored."},
}
"""Further answers of the route that scores."""


def make_app(service: Service, *, token: str | None = None, hosts: Collection[str] = ()) -> ASGIApp:
    """The application behind its guard."""
    app = FastAPI(
        title="frostline",
        version=__version__,
        description="How strange texts look to an encoder, against its baseline.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lambda _: _saving(service),
        responses=COMMON,
    )
    _add_scoring(app, service)
    _add_control(app, service)
    _add_queries(app, service)
    _add_pages(app, service)
    _add_error_answers(app)
    known = ("/score", "/status", "/alarm", "/events", "/metrics", "/stream")
    return Guard(
        app,
        service.limits,
        hosts=hosts,
        token=token,
        open=OPEN,
        known=known,
        count=service.counted,
        failed=service.login_failed,
        draining=lambda: service.draining,
    )


@asynccontextmanager
async def _saving(service: Service) -> AsyncIterator[None]:
    """Save the state of the stream at intervals, and with it events that could not be written before."""

    async def save() -> None:
        while True:
            await asyncio.sleep(SAVED_EVERY)
            await asyncio.to_thread(service.save)

    task = asyncio.create_task(save())
    yield
    task.cancel()
    await asyncio.to_thread(service.close)


def _add_scoring(app: FastAPI, service: Service) -> None:
    limits = service.limits

    @app.post("/score", response_model=schema.Answer, responses=SCORING, summary="Score texts")
    async def score(request: schema.Asked) -> dict[str, Any]:
        """Score texts as the next ones of the stream. The order of texts matters to the alarm, not to their scores."""
        start = time.monotonic()
        if service.draining:
            raise HTTPException(503, "the service is stopping.", {"Retry-After": "5"})
        if len(request.texts) > limits.texts:
            raise HTTPException(422, f"{len(request.texts)} texts; a call takes {limits.texts} at most.")
        submissions = [_submission(text, request.dry_run) for text in request.texts]
        for number, text in enumerate(submissions):
            if len(text.text) > limits.characters:
                raise HTTPException(
                    422, f"text {number} has {len(text.text)} characters; the limit is {limits.characters}: cut it."
                )
        try:
            (scores, causes, tokenized), empty = await score_readable(
                lambda texts: service.batcher.score(texts, until=start + limits.seconds), submissions
            )
        except Overloaded as busy:
            wait = max(1, round(busy.seconds))
            raise HTTPException(
                503, f"{busy.waiting} texts are waiting; come again in {wait} s.", {"Retry-After": str(wait)}
            ) from None
        except Late:
            raise HTTPException(504, f"not scored within {limits.seconds:g} s; send fewer texts at a time.") from None
        except FrostlineError as error:
            raise HTTPException(422, str(error)) from None
        readable = [text for place, text in enumerate(submissions) if place not in empty]
        body = service.answer(readable, scores, causes, tokenized, reasons=request.reasons)
        body["texts"] = with_empty(body["texts"], submissions, empty)
        service.metrics.seconds.observe(time.monotonic() - start)
        return body


def _submission(text: str | schema.NamedText, dry_run: bool) -> Submission:
    if isinstance(text, str):
        return Submission(text, dry_run=dry_run)
    return Submission(text.text, text.id, text.source, dry_run)


def _add_control(app: FastAPI, service: Service) -> None:
    @app.get("/status", response_model=schema.ServiceStatus, summary="Which source, since when, why")
    async def status() -> schema.ServiceStatus:
        """The alarms of all texts and of every source, in words and numbers."""
        return schema.ServiceStatus.model_validate(await asyncio.to_thread(service.status))

    @app.post("/alarm", response_model=schema.StoredEvent, summary="Acknowledge, reset, maintenance window")
    async def alarm(request: schema.Control) -> schema.StoredEvent:
        """Say who does it and why: both are kept in an event."""
        try:
            event = await asyncio.to_thread(service.control, **request.model_dump())
        except FrostlineError as error:
            raise HTTPException(422, str(error)) from None
        return schema.StoredEvent.model_validate(event.facts())


def _add_queries(app: FastAPI, service: Service) -> None:
    @app.get("/events", response_model=schema.EventList, summary="Stored events")
    async def events(
        after: Annotated[int, Query(ge=0, le=2**62, description="Only events with larger numbers.")] = 0,
        since: Annotated[float, Query(ge=0, le=1e11, description="Not before: seconds since 1970.")] = 0.0,
        kind: Annotated[schema.Kind | None, Query(description="Only events of one kind.")] = None,
        newest: Annotated[bool, Query(description="The newest first.")] = False,
        limit: Annotated[int, Query(ge=1, le=MOST_EVENTS, description="How many.")] = 100,
    ) -> dict[str, Any]:
        """Strange texts, alarms and their ends, one page after another: pass the last number as ``after``."""
        selected = await asyncio.to_thread(
            service.events.select, after=after, since=since, kind=kind, newest=newest, limit=limit
        )
        return {"events": [event.facts() for event in selected]}

    @app.get("/healthz", summary="Whether the process is alive")
    async def healthz() -> dict[str, bool]:
        return {"alive": True}

    @app.get(
        "/readyz",
        response_model=schema.Ready,
        responses={503: {"model": schema.Ready, "description": "The service is stopping."}},
        summary="Whether texts are scored",
    )
    async def readyz(answer: Response) -> dict[str, Any]:
        """503 on open connections while the service is stopping (new ones are not accepted). ``degraded`` lists other
        faults; texts are still scored."""
        ready = not service.draining
        answer.status_code = 200 if ready else 503
        return {"ready": ready, "degraded": service.degraded()}

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {CONTENT_TYPE_LATEST.partition(";")[0]: {"schema": {"type": "string"}}}}},
        summary="Metrics for Prometheus",
    )
    async def metrics() -> Response:
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _add_pages(app: FastAPI, service: Service) -> None:
    here = files("frostline.serving")
    style = (files("frostline.report") / "page.css").read_text(encoding="utf-8") + (here / "live.css").read_text(
        encoding="utf-8"
    )
    live, script = (here / "live.html").read_text(encoding="utf-8"), (here / "live.js").read_text(encoding="utf-8")
    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        (here / "docs.html").read_text(encoding="utf-8")
    )
    pages = LiveStreams(MOST_PAGES, f"{MOST_PAGES} live pages are open; close one.")

    @app.get(
        "/stream",
        response_class=Response,
        responses={
            200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
            503: _PROBLEM | {"description": "Too many live pages are open."},
        },
        summary="The live page's numbers as server-sent events",
    )
    async def stream(
        once: Annotated[bool, Query(description="End after the first event.")] = False,
    ) -> Response:
        return pages.answer(beats(once), "text/event-stream")

    async def beats(once: bool) -> AsyncGenerator[str, None]:
        while not service.draining:
            yield f"data: {await asyncio.to_thread(service.picture)}\n\n"
            if once:
                return
            await asyncio.sleep(BEAT)

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(live)

    @app.get("/live.js", include_in_schema=False)
    async def live_script() -> Response:
        return Response(script, media_type="text/javascript")

    @app.get("/live.css", include_in_schema=False)
    async def live_style() -> Response:
        return Response(style, media_type="text/css")

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> HTMLResponse:
        return HTMLResponse(template.render(described=app.openapi(), url=str(request.base_url).rstrip("/")))


def _add_error_answers(app: FastAPI) -> None:
    @app.exception_handler(StarletteHTTPException)
    async def refuse(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, StarletteHTTPException)
        return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)

    app.add_exception_handler(Exception, leave_to_guard)

    @app.exception_handler(RequestValidationError)
    async def explain(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        # The input is not sent back: it may be long, and it is a text.
        problems = error.errors()
        if any(problem["loc"] == ("body",) and problem["type"] == "model_attributes_type" for problem in problems):
            return JSONResponse({"error": "send a JSON object, with the header Content-Type: application/json."}, 422)
        # A text is a string or an object: where an object was sent, only what is wrong with the object is said.
        objects = [problem for problem in problems if "NamedText" in problem["loc"][:-1]]
        sentences = [_sentence(problem) for problem in (objects or problems)[:FIRST_ERRORS]]
        return JSONResponse({"error": "; ".join(sentences)}, 422)


def _sentence(problem: Mapping[str, Any]) -> str:
    """The fault of one value of a request, in words."""
    where = " ".join(str(part)[:40] for part in problem["loc"] if part != "NamedText")
    is_name = problem["type"] == "string_pattern_mismatch"
    return f"{where}: {'it has a control character or a direction mark' if is_name else problem['msg']}"
