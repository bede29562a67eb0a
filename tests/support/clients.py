"""What tests of the running server speak: OpenAI's SDK, plain HTTP, and Mneme's own API."""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx
from openai import AsyncOpenAI, OpenAI

from tests.support.replies import Recorded
from tests.support.server import MnemeServer, wait_until

MODEL = "gpt-4o"
TIMEOUT_S = 20.0
STUCK_S = 90.0
"""Seconds in which some job ends on the slowest machine, also one that waits a minute for a helper LLM. All together may take
longer."""

Message = dict[str, Any]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def system(text: str) -> Message:
    return {"role": "system", "content": text}


# --- OpenAI's SDK -----------------------------------------------------------------------------------------------------


def sdk(url: str, *, key: str = "sk-test", retries: int = 0, headers: Mapping[str, str] | None = None) -> OpenAI:
    """The SDK as an application has it; `url` ends in `/v1`. Close it."""
    return OpenAI(base_url=url, api_key=key, max_retries=retries, timeout=TIMEOUT_S, default_headers=headers)


def async_sdk(url: str, *, key: str = "sk-test") -> AsyncOpenAI:
    """The same, asynchronous. Close it."""
    return AsyncOpenAI(base_url=url, api_key=key, max_retries=0, timeout=TIMEOUT_S)


# --- plain HTTP -------------------------------------------------------------------------------------------------------


def ask(
    server: MnemeServer,
    messages: Sequence[Message] | str,
    *,
    headers: Mapping[str, str] | None = None,
    **fields: Any,
) -> httpx.Response:
    """POST /v1/chat/completions with these messages (a text: one user message), read to the end."""
    body = {"model": MODEL, "messages": [user(messages)] if isinstance(messages, str) else list(messages), **fields}
    return post(server, json.dumps(body).encode(), headers=headers)


def post(
    server: MnemeServer,
    body: bytes,
    *,
    headers: Mapping[str, str] | None = None,
    path: str = "/v1/chat/completions",
) -> httpx.Response:
    """POST these bytes as JSON."""
    return server.http.post(path, content=body, headers={"content-type": "application/json", **(headers or {})})


def answer_of(response: httpx.Response) -> str:
    """The text of a chat answer that is not streamed."""
    assert response.status_code == 200, response.text
    content = response.json()["choices"][0]["message"]["content"]
    assert isinstance(content, str)
    return content


def call_of(response: httpx.Response) -> str:
    return response.headers["x-mneme-call-id"]


def session_of(response: httpx.Response) -> str:
    return response.headers["x-mneme-session-id"]


def context_of(response: httpx.Response) -> dict[str, int]:
    """The figures of `x-mneme-context`."""
    parts = (part.split("=") for part in response.headers["x-mneme-context"].split(";"))
    return {name: int(value) for name, value in parts}


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error of an answer, which must have exactly OpenAI's shape."""
    body = response.json()
    assert list(body) == ["error"], body
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}, error
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    return dict(error)


# --- Mneme's own API --------------------------------------------------------------------------------------------------


class Api:
    """/api/v1 of a server, for one user and key."""

    def __init__(self, server: MnemeServer, *, user: str | None = None, key: str | None = None) -> None:
        self._server = server
        self.headers = {
            **({"x-mneme-user": user} if user is not None else {}),
            **({"authorization": f"Bearer {key}"} if key is not None else {}),
        }

    def send(self, method: str, path: str, **given: Any) -> httpx.Response:
        return self._server.http.request(method, f"/api/v1{path}", headers=self.headers, **given)

    def get(self, path: str, **query: Any) -> Any:
        answer = self.send("GET", path, params=query)
        assert answer.status_code == 200, f"GET {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def post(self, path: str, body: Any) -> Any:
        answer = self.send("POST", path, json=body)
        assert answer.is_success, f"POST {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def all(self, path: str, field: str, *, limit: int = 100, **query: Any) -> list[Any]:
        """Every entry of a list, page by page."""
        return list(self._pages(path, field, {"limit": limit, **query}))

    def _pages(self, path: str, field: str, query: dict[str, Any]) -> Iterator[Any]:
        cursor: str | None = None
        while True:
            page = self.get(path, **query, **({"cursor": cursor} if cursor is not None else {}))
            assert set(page) == {field, "next"}
            yield from page[field]
            cursor = page["next"]
            if cursor is None:
                return

    def history(self, session: str) -> list[dict[str, Any]]:
        return self.all(f"/sessions/{session}/history", "messages")

    def said(self, session: str) -> list[tuple[str, Any]]:
        """(role, content) of a session's messages."""
        return [(each["role"], each["content"]) for each in self.history(session)]

    def session(self, session: str) -> dict[str, Any]:
        return dict(self.get(f"/sessions/{session}"))

    def sessions(self) -> list[dict[str, Any]]:
        return self.all("/sessions", "sessions")

    def call(self, call: str) -> dict[str, Any]:
        return dict(self.get(f"/calls/{call}"))

    def calls(self, **query: Any) -> list[dict[str, Any]]:
        return self.all("/calls", "calls", **query)

    def chosen(self, call: str) -> list[dict[str, Any]]:
        """The items that a call's context was given."""
        return [each for each in self.get(f"/calls/{call}/context")["items"] if each["chosen"]]

    def raw(self, call: str) -> bytes:
        """The answer's bytes, as captured."""
        return self._bytes(f"/calls/{call}/raw")

    def request(self, call: str, *, sent: bool = False) -> bytes:
        """The request's bytes, as captured: as it came in, or as it went upstream."""
        return self._bytes(f"/calls/{call}/request", sent=sent)

    def events(self, call: str) -> list[dict[str, Any]]:
        return self.all(f"/calls/{call}/events", "events")

    def stream(self, call: str) -> bytes:
        """All events of a call put together again."""
        return b"".join(event_bytes(each) for each in self.events(call))

    def wait_for_quiet(self) -> None:
        """Until no job is left to do now. Fails if one was given up, or if nothing moves for `STUCK_S`."""
        last, since = None, time.monotonic()

        def quiet() -> bool:
            nonlocal last, since
            queue = self.get("/queue")
            assert queue["dead"] == 0, queue
            if queue != last:
                last, since = queue, time.monotonic()
            assert time.monotonic() - since < STUCK_S, f"the queue does not move: {queue}"
            return bool(queue["queued"] == 0 and queue["running"] == 0)

        wait_until(quiet, seconds=math.inf)  # the test's own limit ends it

    def _bytes(self, path: str, **query: Any) -> bytes:
        answer = self.send("GET", path, params=query)
        assert answer.status_code == 200, f"GET {path}: {answer.status_code} {answer.text}"
        return answer.content


def event_bytes(event: Mapping[str, Any]) -> bytes:
    data: str = event["data"]
    return base64.b64decode(data) if event.get("encoding") == "base64" else data.encode()


# --- what the upstream got ----------------------------------------------------------------------------------------------


def prompt_of(request: Recorded) -> str:
    """All text of the messages that an upstream received."""
    return "\n".join(_text(each.get("content")) for each in request.json()["messages"])


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""


def around_messages(body: bytes, wanted: str = "messages") -> tuple[bytes, bytes]:
    """A chat body's bytes before the value of `messages` (or another member), and behind it. Read by nothing of Mneme's own."""
    text = body.decode()
    decoder = json.JSONDecoder()
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        name, end = decoder.raw_decode(text, at)
        start = _skip(text, _skip(text, end) + 1)
        _, end = decoder.raw_decode(text, start)
        if name == wanted:
            return text[:start].encode(), text[end:].encode()
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
    raise AssertionError(f"no {wanted} in {text[:200]}")


def _skip(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at
