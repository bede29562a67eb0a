"""HAR 1.2 (http://www.softwareishard.com/blog/har-12-spec/) of cassettes, for browsers and the tools that read it. Pure.

Times of pieces have no place in it; they are there under `_chunks`, as its custom fields are named.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from mneme_replay.cassette import Cassette, Headers, Response

ORIGIN = "http://mneme"
"""What stands before a path: a capture does not know the address that its client used."""


def har(cassettes: Iterable[Cassette], version: str) -> dict[str, Any]:
    """The archive; `version`: of Mneme."""
    return {
        "log": {
            "version": "1.2",
            "creator": {"name": "Mneme", "version": version},
            "entries": [_entry(each) for each in cassettes],
        }
    }


def _entry(cassette: Cassette) -> dict[str, Any]:
    chunks = cassette.response.chunks if cassette.response is not None else ()
    first = chunks[0].at_us / 1000 if chunks else 0.0
    last = chunks[-1].at_us / 1000 if chunks else 0.0
    entry = {
        "startedDateTime": cassette.recorded_at,
        "time": last,
        "request": _request(cassette),
        "response": _response(cassette.response),
        "cache": {},
        "timings": {"send": 0, "wait": first, "receive": last - first},
        "comment": cassette.id,
        "_outcome": cassette.outcome,
        "_chunks": [list(each) for each in chunks],
    }
    return entry | ({"_error": cassette.error} if cassette.error else {})


def _request(cassette: Cassette) -> dict[str, Any]:
    request = cassette.request
    _, _, query = request.path.partition("?")
    found: dict[str, Any] = {
        "method": request.method,
        "url": ORIGIN + request.path,
        "httpVersion": "HTTP/1.1",
        "cookies": [],
        "headers": _headers(request.headers),
        "queryString": [{"name": name, "value": value} for name, value in parse_qsl(query, keep_blank_values=True)],
        "headersSize": -1,
        "bodySize": len(request.body),
    }
    if request.body:
        text, encoding = _text(request.body)
        found["postData"] = {"mimeType": _type(request.headers), "params": [], "text": text}
        found["postData"] |= {"_encoding": encoding} if encoding else {}
    return found


def _response(response: Response | None) -> dict[str, Any]:
    """Without one: status 0, as browsers write it."""
    body = response.body if response else b""
    text, encoding = _text(body)
    headers = response.headers if response else ()
    return {
        "status": response.status if response else 0,
        "statusText": _reason(response.status) if response else "",
        "httpVersion": "HTTP/1.1",
        "cookies": [],
        "headers": _headers(headers),
        "content": {"size": len(body), "mimeType": _type(headers), "text": text}
        | ({"encoding": encoding} if encoding else {}),
        "redirectURL": next((value for name, value in headers if name.lower() == "location"), ""),
        "headersSize": -1,
        "bodySize": len(body),
    }


def _headers(headers: Headers) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in headers]


def _type(headers: Headers) -> str:
    return next((value for name, value in headers if name.lower() == "content-type"), "application/octet-stream")


def _text(body: bytes) -> tuple[str, str | None]:
    try:
        return body.decode(), None
    except UnicodeDecodeError:
        return b64encode(body).decode(), "base64"


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
