"""What a server is until its database is there: alive, and not ready; all but /v1 is put off."""

from __future__ import annotations

from html import escape

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Receive, Scope, Send

from app.errors import StoreUnavailable

PAGES = "/ui"
AGAIN_S = 2
"""Seconds until a page asks again: as long as one may wait for its answer."""


class Away:
    """Plain ASGI: 503 at once, with what is missing; a page for /ui."""

    def __init__(self) -> None:
        self.missing = "The database has not been looked for yet."
        """For people, until there is nothing missing."""

    async def check(self) -> None:
        """The readiness check of the database. Raises StoreUnavailable."""
        raise StoreUnavailable(self.missing)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = StoreUnavailable(f"{self.missing} Until it is there only requests under /v1 are answered.")
        wants = Headers(scope=scope).get("accept", "")
        answer: Response
        if scope["path"].startswith(PAGES) and "text/html" in wants:
            answer = HTMLResponse(_page(error.message), 503)
        else:
            answer = JSONResponse(error.body(), 503)
        answer.headers["retry-after"] = str(AGAIN_S)
        await answer(scope, receive, send)


def _page(message: str) -> str:
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="{AGAIN_S}">'
        f"<title>Mneme: no database yet</title><h1>No database yet</h1><p>{escape(message)}</p>"
    )
