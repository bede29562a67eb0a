"""What becomes of the upstream's errors."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.conformance import samples
from tests.conformance.check_response import same_headers
from tests.conformance.checks import OPENAI, TRANSPARENCY, Area, Run, Seen, add, check
from tests.conformance.compare import differences, parsed
from tests.conformance.stage import STREAM, Exchange, Stage, told

AREA: Area = "errors"

RETRY = "RFC 9110 §10.2.3; " + OPENAI
"""Clients wait for as long as an upstream asks them to."""


def error(message: str, kind: str, code: str | None, param: str | None = None, **more: object) -> bytes:
    """OpenAI's shape."""
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code, **more}}).encode()


Case = tuple[str, str, str, bytes, Sequence[tuple[str, str]]]
CASES: dict[str, Case] = {
    "400": (
        "a refused parameter arrives as it was refused",
        OPENAI,
        "400 Bad Request",
        error("Invalid value for 'temperature'.", "invalid_request_error", "invalid_value", "temperature"),
        [("x-request-id", "req_400")],
    ),
    "401": (
        "a wrong key is told as the upstream tells it",
        OPENAI,
        "401 Unauthorized",
        error("Incorrect API key provided: sk-con***.", "invalid_request_error", "invalid_api_key"),
        [("www-authenticate", 'Bearer realm="upstream"')],
    ),
    "403": (
        "an unsupported region is told as the upstream tells it",
        OPENAI,
        "403 Forbidden",
        error("Country not supported.", "request_forbidden", "unsupported_country_region_territory"),
        [],
    ),
    "404": (
        "an unknown model is a 404, with its code",
        OPENAI,
        "404 Not Found",
        error("The model `tiny` does not exist.", "invalid_request_error", "model_not_found", "model"),
        [],
    ),
    "422": (
        "another server's shape of errors arrives as it is",
        TRANSPARENCY,
        "422 Unprocessable Entity",
        b'{"detail": [{"loc": ["body", "n"], "msg": "too many", "type": "value_error", "input": 1.0}]}',
        [],
    ),
    "429": (
        "a rate limit is told with all that a client needs to wait",
        RETRY,
        "429 Too Many Requests",
        error("Rate limit reached for tiny: Limit 3, Used 3.", "requests", "rate_limit_exceeded"),
        [
            ("retry-after", "7"), ("retry-after-ms", "6543"), ("x-should-retry", "true"), ("x-ratelimit-limit-requests", "3"),
            ("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "6m0s"),
        ],
    ),
    "429-date": (
        "`Retry-After` may be a date",
        RETRY,
        "429 Too Many Requests",
        error("You exceeded your current quota.", "insufficient_quota", "insufficient_quota"),
        [("retry-after", "Fri, 31 Dec 2027 23:59:59 GMT")],
    ),
    "500": (
        "a server's error arrives with its request id",
        OPENAI,
        "500 Internal Server Error",
        error("The server had an error (req_500).", "server_error", None, x_trace={"a": 1.0}),
        [("x-request-id", "req_500")],
    ),
    "503": (
        "an overloaded server is told with its `Retry-After`",
        RETRY,
        "503 Service Unavailable",
        error("Overloaded.", "server_error", "overloaded"),
        [("retry-after", "3")],
    ),
    "529": ("a status of the upstream's own arrives as it is", TRANSPARENCY, "529 Overloaded", error("Later.", "overloaded_error", None), []),
}  # fmt: skip
"""Name of a check → what is right, where it is written, and the error that is to arrive."""


def _arriving(name: str, case: Case) -> Run:
    _, _, status, body, headers = case

    async def run(stage: Stage, seen: Seen) -> None:
        done = await stage.exchange(
            samples.plain(body, status, [samples.JSON, *headers]), samples.ask(f"Answer {name}?")
        )
        assert done.request
        _same_status(seen, status, done)
        seen.differs(*differences(parsed(body), parsed(done.response.body)))
        same_headers(seen, list(headers), done.response)
        seen.equal("content-type", "application/json", done.response.header("content-type"))

    return run


def _same_status(seen: Seen, status: str, done: Exchange) -> None:
    right = int(status.partition(" ")[0])
    if done.response.status != right:
        seen.differs(f"status {done.response.status} instead of {right}")


for _name, _case in CASES.items():
    add(AREA, _name, _case[0], _case[1], _arriving(_name, _case))


async def _odd(stage: Stage, seen: Seen, text: str, status: str, body: bytes, kind: str | None) -> None:
    reply = samples.plain(body, status, [("content-type", kind)] if kind else [])
    done = await stage.exchange(reply, samples.ask(text))
    assert done.request
    _same_status(seen, status, done)
    seen.equal("body", body, done.response.body)
    seen.equal("content-type", kind, done.response.header("content-type"))


@check("html", "a gateway's page of HTML arrives as it is")
async def html(stage: Stage, seen: Seen) -> None:
    body = b"<html><head><title>502 Bad Gateway</title></head><body>cloudflare \xe2\x80\x94 Ray ID</body></html>\r\n"
    await _odd(stage, seen, "Who stands between?", "502 Bad Gateway", body, "text/html; charset=UTF-8")


@check("text", "an error in plain words arrives as it is")
async def text(stage: Stage, seen: Seen) -> None:
    await _odd(stage, seen, "In plain words?", "500 Internal Server Error", b"Internal Server Error", "text/plain")


@check("empty", "an error without a body arrives without one")
async def empty(stage: Stage, seen: Seen) -> None:
    await _odd(stage, seen, "Wordless?", "500 Internal Server Error", b"", None)


@check("bytes", "an error's body is the upstream's, byte for byte")
async def error_bytes(stage: Stage, seen: Seen) -> None:
    body = b'{ "error" :{"message":"No \\u00e9.", "code":1.0,"type":null} }\n'
    await _odd(stage, seen, "To the byte?", "400 Bad Request", body, "application/json")


@check("streamed", "an error in answer to a streamed request is JSON with its status, no stream", OPENAI)
async def streamed_error(stage: Stage, seen: Seen) -> None:
    name, (_, _, status, body, headers) = "429", CASES["429"]
    reply = samples.plain(body, status, [samples.JSON, *headers])
    done = await stage.exchange(reply, samples.ask(f"Answer {name} to a stream?", STREAM))
    assert done.request
    _same_status(seen, status, done)
    seen.differs(*differences(parsed(body), parsed(done.response.body)))
    seen.equal("retry-after", "7", done.response.header("retry-after"))
    seen.equal("content-type", "application/json", done.response.header("content-type"))


@check("once", "the upstream is asked once for each request: retries are the client's to decide", TRANSPARENCY)
async def once(stage: Stage, seen: Seen) -> None:
    for name in ("429", "500", "503"):
        _, _, status, body, headers = CASES[name]
        done = await stage.exchange(
            samples.plain(body, status, [samples.JSON, *headers]), samples.ask(f"Only once, {name}?")
        )
        if not done.requests:
            seen.differs(f"{name}: the upstream was not asked; {told(done.response)}")
        elif len(done.requests) > 1:
            seen.differs(f"{name}: the upstream was asked {len(done.requests)} times")
