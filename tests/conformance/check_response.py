"""What becomes of an answer that is no stream."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib

from tests.conformance import samples
from tests.conformance.checks import OPENAI, TRANSPARENCY, Area, Run, Seen, add, check
from tests.conformance.compare import by_digits, differences, parsed
from tests.conformance.stage import Stage
from tests.support.replies import Fin, Reply, Send, head_of
from tests.support.sockets import RawResponse

AREA: Area = "response"

HEADERS = [
    ("x-request-id", "req_0123456789abcdef"),
    ("openai-processing-ms", "17"),
    ("openai-version", "2020-10-01"),
    ("openai-organization", "org-1"),
    ("x-ratelimit-limit-requests", "5000"),
    ("x-ratelimit-remaining-tokens", "159976"),
    ("x-ratelimit-reset-requests", "12ms"),
    ("cache-control", "no-store"),
    ("x-vendor", "a;  b"),
]
_CALLS = [
    {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1.0}'}},
    {"id": "call_b", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}},
]
_CHOICE = json.loads(samples.ANSWER)["choices"][0]


def _saying(**message: object) -> bytes:
    return samples.answer(choices=[{**_CHOICE, "message": {"role": "assistant", "content": None, **message}}])


VALUES: dict[str, tuple[str, str, bytes]] = {
    "usage": (
        "usage is the upstream's, with all its details",
        OPENAI,
        samples.answer(
            usage={
                "prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12,
                "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0, "x_images": 1},
                "completion_tokens_details": {"reasoning_tokens": 2, "accepted_prediction_tokens": 0},
                "x_cost": 0.25,
            }
        ),
    ),
    "no-usage": ("usage is not invented where there is none", OPENAI, samples.answer(usage=None)),
    "tool-calls": ("calls of tools arrive as they were made", OPENAI, _saying(tool_calls=_CALLS)),
    "refusal": ("a refusal stays one", OPENAI, _saying(refusal="I cannot.")),
    "audio": (
        "audio and annotations arrive",
        OPENAI,
        _saying(
            audio={"id": "audio_1", "data": "UklGRg==", "expires_at": 1, "transcript": "t"},
            annotations=[{"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 1}}],
        ),
    ),
    "choices": (
        "several choices arrive, with their log probabilities and finish reasons",
        OPENAI,
        samples.answer(
            choices=[
                {**_CHOICE, "index": i, "finish_reason": reason, "logprobs": {"content": [
                    {"token": "A", "logprob": -0.5, "bytes": [65], "top_logprobs": []}], "refusal": None}}
                for i, reason in enumerate(("stop", "length", "content_filter"))
            ]
        ),
    ),
    "extras": (
        "members that nobody knows arrive, at every level",
        TRANSPARENCY,
        samples.answer(
            choices=[{**_CHOICE, "stop_reason": 2, "token_ids": [1, 2], "message": {
                "role": "assistant", "content": "Hm.", "reasoning_content": "I think", "reasoning": "so", "x_mark": {"a": []}}}],
            prompt_logprobs=None, kv_transfer_params={"a": 1}, x_vendor={"b": [1.5]},
        ),
    ),
    "identity": (
        "`id`, `created`, `model`, `system_fingerprint` and `service_tier` are the upstream's",
        OPENAI,
        samples.answer(id="resp/é-1", created=1, model="org/Model:v1", system_fingerprint=None, service_tier="priority"),
    ),
}  # fmt: skip
"""Name of a check → what is right, where it is written, and the answer that is to arrive."""


def _arriving(name: str, body: bytes) -> Run:
    async def run(stage: Stage, seen: Seen) -> None:
        done = await stage.exchange(samples.plain(body), samples.ask(f"Does the answer's {name} stay?"))
        seen.differs(*differences(parsed(body), parsed(done.answered().body)))

    return run


for _name, (_right, _source, _body) in VALUES.items():
    add(AREA, _name, _right, _source, _arriving(_name, _body))


@check("bytes", "the body is the upstream's, byte for byte")
async def body_bytes(stage: Stage, seen: Seen) -> None:
    body = samples.ANSWER.replace(b": ", b" :  ", 3).replace(b"All right.", "Très bien \\u00e9 👌".encode()) + b"\n"
    done = await stage.exchange(samples.plain(body), samples.ask("Is the answer the same?"))
    seen.equal("body", body, done.answered().body)
    seen.equal("end", "whole", done.response.ended)


@check("numbers", "numbers keep their digits", "RFC 8259 §6; " + TRANSPARENCY)
async def numbers(stage: Stage, seen: Seen) -> None:
    body = samples.ANSWER[:-1] + b', "x_score": 1.0, "x_id": 12345678901234567890, "x_small": 1e-7, "x_zero": 0.10}'
    done = await stage.exchange(samples.plain(body), samples.ask("Do the answer's numbers stay?"))
    right, got = by_digits(body), by_digits(done.answered().body)
    for name in ("x_score", "x_id", "x_small", "x_zero"):
        seen.equal(f"$.{name}", str(right[name]), str(got.get(name)))


@check("headers", "request id, rate limits, processing time and all other headers arrive", OPENAI)
async def headers(stage: Stage, seen: Seen) -> None:
    reply = samples.plain(samples.ANSWER, headers=[samples.JSON, *HEADERS])
    done = await stage.exchange(reply, samples.ask("Do the answer's headers stay?"))
    same_headers(seen, [samples.JSON, *HEADERS], done.answered())


def same_headers(seen: Seen, right: list[tuple[str, str]], response: RawResponse) -> None:
    """Each header has arrived, once, with its value."""
    for name, value in right:
        got = [each.decode("utf-8", "replace") for given, each in response.headers if given.lower() == name.encode()]
        if got != [value]:
            seen.differs(f"{name}: {' | '.join(got) or 'missing'} instead of {value}")


@check("cookies", "a header that comes twice arrives twice", "RFC 6265 §3")
async def cookies(stage: Stage, seen: Seen) -> None:
    lines = [samples.JSON, ("set-cookie", "a=1; Path=/"), ("set-cookie", "b=2, 3")]
    done = await stage.exchange(samples.plain(samples.ANSWER, headers=lines), samples.ask("Two cookies?"))
    got = [value.decode() for name, value in done.answered().headers if name.lower() == b"set-cookie"]
    seen.equal("set-cookie", "a=1; Path=/ | b=2, 3", " | ".join(got))


@check("hop-by-hop", "what speaks of the upstream's own connection stays there", "RFC 9110 §7.6.1")
async def hop_by_hop(stage: Stage, seen: Seen) -> None:
    lines = [samples.JSON, ("connection", "keep-alive, x-hop"), ("x-hop", "1")]
    done = await stage.exchange(samples.plain(samples.ANSWER, headers=lines), samples.ask("Which header stays?"))
    if done.answered().header("x-hop") is not None:
        seen.differs("x-hop went on to the client")


@check("charset", "`Content-Type` keeps its parameters", "RFC 9110 §8.3")
async def charset(stage: Stage, seen: Seen) -> None:
    reply = samples.plain(samples.ANSWER, headers=[("content-type", "application/json; charset=UTF-8")])
    done = await stage.exchange(reply, samples.ask("Which charset?"))
    seen.equal("content-type", "application/json; charset=UTF-8", done.answered().header("content-type"))


@check("chunked", "an answer in chunks arrives whole", "RFC 9112 §7.1")
async def chunked_answer(stage: Stage, seen: Seen) -> None:
    reply = samples.chunked_reply([samples.JSON], samples.pieces(samples.ANSWER, 50), [Send(b"0\r\n\r\n")])
    done = await stage.exchange(reply, samples.ask("Did the answer come in chunks?"))
    seen.differs(*differences(parsed(samples.ANSWER), parsed(done.answered().body)))
    seen.equal("end", "whole", done.response.ended)


@check("until-close", "an answer that ends with its connection arrives whole", "RFC 9112 §6.3")
async def until_close(stage: Stage, seen: Seen) -> None:
    reply = Reply([Send(head_of("200 OK", [samples.JSON, ("connection", "close")]) + samples.ANSWER), Fin()])
    done = await stage.exchange(reply, samples.ask("Where does the answer end?"))
    seen.differs(*differences(parsed(samples.ANSWER), parsed(done.answered().body)))
    seen.equal("end", "whole", done.response.ended)


@check("large", "an answer of 10 MB arrives whole", OPENAI)
async def large(stage: Stage, seen: Seen) -> None:
    body = _saying(content="0123456789" * (stage.large // 10))
    done = await stage.exchange(samples.plain(body), samples.ask("How much can you say?"))
    got = await asyncio.to_thread(lambda: parsed(done.answered().body) == parsed(body))
    if not got:
        seen.differs(f"{len(done.response.body)} bytes, and other ones, instead of {len(body)}")


def decoded(response: RawResponse) -> bytes:
    """The body, by what its `Content-Encoding` says. Raises ValueError where that is not true."""
    coding = response.header("content-encoding") or "identity"
    if coding == "identity":
        return response.body
    if coding == "gzip":
        try:
            return gzip.decompress(response.body)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"the body is not gzip: {error}") from error
    raise ValueError(f"the answer is coded as {coding}, which nobody asked for")


@check("gzip", "a compressed answer arrives with the coding that its header names", "RFC 9110 §8.4")
async def compressed(stage: Stage, seen: Seen) -> None:
    lines = [samples.JSON, ("content-encoding", "gzip"), ("vary", "accept-encoding")]
    reply = samples.plain(gzip.compress(samples.ANSWER, mtime=0), headers=lines)
    done = await stage.exchange(reply, samples.ask("Can you squeeze?"), headers=[("accept-encoding", "gzip")])
    try:
        asked = done.request.header("accept-encoding")
        if asked != "gzip":
            seen.note(f"the upstream is asked for {asked or 'any coding'}, where the client asked for gzip")
        body = decoded(done.answered())
    except ValueError as error:
        seen.differs(str(error))
    else:
        seen.differs(*differences(parsed(samples.ANSWER), parsed(body)))


@check("uncompressed", "who accepts no coding gets none", "RFC 9110 §12.5.3")
async def uncompressed(stage: Stage, seen: Seen) -> None:
    body = _saying(content="word " * 2000)
    done = await stage.exchange(samples.plain(body), samples.ask("Plainly?"), headers=[("accept-encoding", "identity")])
    seen.equal("content-encoding", "identity", done.answered().header("content-encoding") or "identity")
