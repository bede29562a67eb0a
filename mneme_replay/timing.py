"""When and in which pieces an answer is played. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mneme_replay.cassette import Cassette, Headers, Response

CONNECTION = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade"}
)  # fmt: skip
"""Headers that speak of one connection only (RFC 9110 §7.6.1): the server that plays says its own."""


class Piece(NamedTuple):
    """Bytes to be sent together, seconds after the request came in."""

    at_s: float
    data: bytes


def pieces(response: Response, speed: float) -> Iterator[Piece]:
    """The body in its recorded pieces; `speed` 1: in their time, 2: twice as fast, 0: at once."""
    at = 0
    for chunk in response.chunks:
        if chunk.size:
            yield Piece(chunk.at_us / 1e6 / speed if speed else 0.0, response.body[at : at + chunk.size])
        at += chunk.size


def headers_to_play(response: Response) -> Headers:
    """The recorded headers, but for those of the connection, and for a length that announces no body (204, 304) or stands
    beside a transfer encoding."""
    named = {
        each.strip().lower()
        for name, value in response.headers
        if name.lower() == "connection"
        for each in value.split(",")
    }
    names = {name.lower() for name, _ in response.headers}
    dropped = CONNECTION | named
    if response.status in (204, 304) or "transfer-encoding" in names:
        dropped |= {"content-length"}
    return [(name, value) for name, value in response.headers if name.lower() not in dropped]


class Failure(NamedTuple):
    """What a client of Mneme got instead of an answer that never came: status and OpenAI-shaped error."""

    status: int
    body: dict[str, dict[str, str | None]]


def failure_of(cassette: Cassette) -> Failure:
    """For a cassette without a response."""
    told = cassette.error or "There was no answer."
    late = "Timeout" in told or "in time" in told
    return Failure(504 if late else 502, error_body(told, "upstream_error"))


def error_body(message: str, kind: str, code: str | None = None) -> dict[str, dict[str, str | None]]:
    """An error as OpenAI writes it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
