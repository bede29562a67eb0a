"""The work: who is measured, and what is asked of them. Everyone gets the same bodies in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import orjson

from loadtests.fill import user_name
from loadtests.load import Requests, http_request
from loadtests.texts import Talk

Kind = Literal["reply", "stream"]
Name = Literal["direct", "floor", "litellm", "portkey", "off", "capture", "memory"]

CHUNKS: dict[Kind, int] = {"reply": 20, "stream": 200}
"""Words of an answer, each a chunk of its own in a stream."""
GAPS_MS: dict[Kind, int] = {"reply": 0, "stream": 5}
"""Between two chunks, and before a plain answer. A fast model writes 200 tokens a second. Without a gap a proxy reads twenty
chunks at once (measured), and what a chunk costs stays hidden."""
STREAM_S = CHUNKS["stream"] * GAPS_MS["stream"] / 1000
"""Seconds that a stream takes by itself."""
MODEL = "gpt-4o-mock"
"""A name by which the tokenizer and the window are known exactly, as those of real models are."""
SYSTEM = "You are a helpful assistant. Answer briefly, and say so when you do not know."
PATH = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to the upstream. `mneme`: whether Mneme's processes and Postgres are what it costs; `peer`: another proxy,
    measured where it is asked for. In the headers `{mock}` stands for the upstream's port."""

    name: Name
    title: str
    mneme: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    peer: bool = False


_OFF = ("X-Mneme-Memory", "off")
CONTENDERS: dict[str, Contender] = {
    each.name: each
    for each in (
        Contender("direct", "the mock upstream, with nothing before it"),
        Contender("floor", "a bare pass-through (ASGI + aiohttp): the least that a proxy in Python does"),
        Contender("litellm", "LiteLLM's proxy, without a database", peer=True),
        Contender(
            "portkey",
            "Portkey's gateway",
            headers=(("x-portkey-provider", "openai"), ("x-portkey-custom-host", "http://127.0.0.1:{mock}/v1")),
            peer=True,
        ),
        Contender("off", "Mneme, memory and capture off", True, (_OFF, ("X-Mneme-Capture", "off"))),
        Contender("capture", "Mneme, capture only", True, (_OFF,)),
        Contender("memory", "Mneme, whole path", True),
    )
}


def model_of(kind: Kind) -> str:
    """The mock upstream's script. (No comma: LiteLLM takes one for a list of models.)"""
    return f"{MODEL}:chunks={CHUNKS[kind]};gap_ms={GAPS_MS[kind]}"


def questions(kind: Kind, port: int, headers: Sequence[tuple[str, str]], users: int, seed: str) -> Requests:
    """New conversations of users in turn, each with a question of its own. The same `seed` asks the same."""
    talks: dict[int, Talk] = {}
    stream = {"stream": True} if kind == "stream" else {}

    def request(client: int, sent: int) -> bytes:
        if client not in talks:
            talks[client] = Talk(f"{seed} {client}")
        asked = talks[client].asked()
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": asked}]
        body = orjson.dumps({"model": model_of(kind), "messages": messages, "temperature": 0.2, **stream})
        user = user_name((client + sent) % users)
        return http_request(port, PATH, [*headers, ("X-Mneme-User", user), ("Authorization", "Bearer sk-none")], body)

    return request
