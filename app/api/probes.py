"""Is it alive, is it ready, what has it counted: asked again and again, and without what the other routes need (FastAPI)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from app.errors import MnemeError
from app.metrics import Exposition

CHECK_TIMEOUT_S = 2.0
"""Seconds for one readiness check: shorter than the probes of orchestrators usually wait."""

Check = Callable[[], Awaitable[None]]
"""Returns when its part is warm; raises a MnemeError that says what is missing."""

PROBES = frozenset(
    {("GET", "/healthz"), ("HEAD", "/healthz"), ("GET", "/readyz"), ("HEAD", "/readyz"), ("GET", "/metrics")}
)
"""Method and path of what `Probes` answers."""


class Probes:
    """Plain ASGI for the requests of `PROBES`, for whoever can reach the port: they say nothing of anybody."""

    def __init__(self, checks: Mapping[str, Check], exposition: Exposition, refresh: Sequence[Check] = ()) -> None:
        """`checks`: what must be warm, by name. `refresh`: brings gauges up to date before they are shown; one that fails
        leaves its gauge as it was."""
        self._checks = checks
        self._exposition = exposition
        self._refresh = refresh

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: Response
        if scope["path"] == "/healthz":
            answer = JSONResponse(await self.healthz())
        elif scope["path"] == "/readyz":
            answer = await self.readyz()
        else:
            answer = await self.metrics(Headers(scope=scope).get("accept"))
        await answer(scope, receive, send)

    async def healthz(self) -> dict[str, str]:
        """200 while the process serves."""
        return {"status": "alive"}

    async def readyz(self) -> JSONResponse:
        """200 only when everything that a request needs is warm."""
        states = await asyncio.gather(*map(_state, self._checks.values()))
        found = dict(zip(self._checks, states, strict=True))
        ready = all(each == "ok" for each in found.values())
        return JSONResponse({"ready": ready, "checks": found}, status_code=200 if ready else 503)

    async def metrics(self, accept: str | None) -> Response:
        """What was counted, for Prometheus."""
        await asyncio.gather(*map(_state, self._refresh))
        body, content_type = self._exposition.render(accept)
        return Response(body, media_type=content_type)


async def _state(check: Check) -> str:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await check()
    except TimeoutError:
        return f"no answer within {CHECK_TIMEOUT_S:g} s"
    except MnemeError as error:
        return error.message
    return "ok"
