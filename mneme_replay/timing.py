"""When and in which pieces an answer is played. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from mneme_replay.cassette import Cassette, Headers, Response

CONNECTION = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade"}
)  # fmt: skip
"""Headers that speak of one connection only (RFC 9110 §7.6.1): the server that plays says its own."""
PATIENCE = 2
"""How many times as long as the client of the recording another one may wait in vain, besides `GRACE_S`."""
GRACE_S = 5.0
"""Seconds: enough for a busy machine, and no test that waits for what never comes hangs for long."""


class Piece(NamedTuple):
    """Bytes to be sent together, seconds after the request came in."""

    at_s: float
    data: bytes


def parse_speed(text: str) -> float:
    """How many times as fast as recorded; 0: at once. Raises ValueError."""
    speed = float(text)
    if not (math.isfinite(speed) and speed >= 0):
        raise ValueError("a speed is a number from 0 on")
    return speed


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


def left_in_silence(cassette: Cassette) -> bool:
    """Whether the recording ends with a client that had enough: of waiting, or of the answer. Whoever asks for it again gets
    what that one got, and then nothing, until he leaves, too."""
    response = cassette.response
    if cassette.outcome != "gone" or response is None:
        return cassette.outcome == "gone"
    lengths = [value for name, value in response.headers if name.lower() == "content-length"]
    return not response.truncated and lengths != [str(len(response.body))]  # with all its bytes it has its end


def latency_s(cassette: Cassette) -> float:
    """Seconds that the call took, as far as that is known."""
    latency = cassette.call.get("latency_ms")
    known = latency / 1000 if isinstance(latency, int | float) and latency >= 0 else 0.0
    last = cassette.response.chunks[-1].at_us / 1e6 if cassette.response and cassette.response.chunks else 0.0
    return max(known, last)


def silence_s(cassette: Cassette) -> float:
    """Seconds after the request at which even a patient client is told that nothing comes. No speed makes it shorter: how long
    a client waits is its own affair."""
    return latency_s(cassette) * PATIENCE + GRACE_S


def failure_of(cassette: Cassette) -> Failure:
    """For a cassette without a response."""
    if left_in_silence(cassette):
        told = f"The client of this recording gave up after {latency_s(cassette):.1f} s without an answer."
        return Failure(504, error_body(told, "upstream_error"))
    told = cassette.error or "There was no answer."
    late = "Timeout" in told or "in time" in told
    return Failure(504 if late else 502, error_body(told, "upstream_error"))


def error_body(message: str, kind: str, code: str | None = None) -> dict[str, dict[str, str | None]]:
    """An error as OpenAI writes it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
