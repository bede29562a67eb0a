"""Answer requests whose base URL is wrong: the root leads to the page, and a path without `/v1` gets the base URL to set."""

from __future__ import annotations

import re

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import NotFound

_OPENAI_PATH = re.compile(
    r"""/*(?:(?:openai|v1|openai/v1)/+)?
        (?:assistants|audio|batches|chat|completions|conversations|embeddings|evals|files|fine[_-]tuning|images|messages|models
          |moderations|realtime|rerank|responses|score|threads|uploads|vector_stores|videos)(?:/.*)?
      | /*api/+(?:openai/+)?v1/+(?:chat/+completions|completions|embeddings|messages|models|responses)(?:/.*)?
      | /*openai/+deployments/.*
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
"""Paths of the APIs of OpenAI, Anthropic and vLLM that do not begin with `/v1`. Mneme's own `/api/v1` has none of them."""
_HOST = re.compile(r"[\w.:\[\]-]{1,255}")
"""A Host header that an error message may quote: a name or an address, with a port."""
_MAX_PATH_CHARS = 200
"""Most characters of a path that an error message quotes."""


class BaseUrlHelp:
    """Plain ASGI: answers the two kinds of paths that a wrong base URL leads to, and leaves the others to an application."""

    def __init__(self, app: ASGIApp, pages: str | None) -> None:
        """Args:
        app: The application that answers all other paths.
        pages: The path of the pages that the root leads to; None where there are none.
        """
        self._app = app
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._find_answer(scope) or self._app
        await answer(scope, receive, send)

    def _find_answer(self, scope: Scope) -> Response | None:
        path = scope["path"]
        if path == "/" and self._pages is not None and scope["method"] in ("GET", "HEAD"):
            return RedirectResponse(self._pages)
        if _OPENAI_PATH.fullmatch(path):
            return JSONResponse(explain_missing_version(scope).body(), NotFound.status)
        return None


def explain_missing_version(scope: Scope) -> NotFound:
    """Return the error for a path of OpenAI's API that does not begin with `/v1`."""
    return NotFound(
        f"There is no {scope['method']} {scope['path'][:_MAX_PATH_CHARS]} here: "
        '"/v1" is missing from the base URL, or is not its whole path. '
        f"Set the base URL to {find_base_url(scope)} (Anthropic's SDKs add /v1 themselves: there, leave it out).",
        code="missing_v1",
    )


def find_base_url(scope: Scope) -> str:
    """Return the base URL that an OpenAI client should set, with the host that this request names."""
    host = Headers(scope=scope).get("host", "")
    if not _HOST.fullmatch(host):
        name, port = scope.get("server") or ("127.0.0.1", None)
        host = f"{name}:{port}" if port is not None else name
    return f"{scope.get('scheme', 'http')}://{host}/v1"
