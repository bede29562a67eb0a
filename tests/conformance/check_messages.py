"""What becomes of /v1/messages: blocks and their marks, thinking, named events, and the errors of that API."""

from __future__ import annotations

import json

from tests.conformance import samples
from tests.conformance.check_response import same_headers
from tests.conformance.check_stream import END, SSE_HEAD
from tests.conformance.checks import TRANSPARENCY, Area, Run, Seen, add, check
from tests.conformance.compare import messages_lost, parsed
from tests.conformance.stage import Exchange, Lines, Stage

AREA: Area = "messages"

ANTHROPIC = "Anthropic API reference; vLLM serves it"
PATH = "/messages"
VERSION = ("anthropic-version", "2023-06-01")
MARK = '"cache_control": {"type": "ephemeral", "ttl": "1h"}'

LONG = "\\n".join(f"worker_{n}: queue {n * 7}, Gr\\u00f6\\u00dfe {n}" for n in range(100))
"""A result as an agent's tools give it, some 3,000 characters, as the inside of a JSON string."""

REQUESTS: dict[str, tuple[str, str, str]] = {
    "cache-control": (
        "every `cache_control` mark stays on its block, of tools, system and messages",
        ANTHROPIC,
        f'"system": [{{"type": "text", "text": "Long.", {MARK}}}], "tools": [{{"name": "a", "input_schema": {{"type": "object"}}, {MARK}}}],'
        f' "messages": [{{"role": "user", "content": [{{"type": "text", "text": "First.", {MARK}}}, {{"type": "text", "text": "More?", {MARK}}}]}}]',
    ),
    "thinking": (
        "thinking goes back signed, as it came, and redacted thinking too",
        ANTHROPIC,
        '"thinking": {"type": "enabled", "budget_tokens": 1024}, "tools": [{"name": "a", "input_schema": {"type": "object"}}],'
        ' "messages": [{"role": "user", "content": "How warm?"}, {"role": "assistant", "content": ['
        '{"type": "thinking", "thinking": "Ask the tool.", "signature": "c2ln+/=="}, {"type": "redacted_thinking", "data": "ZGF0YQ=="},'
        ' {"type": "tool_use", "id": "toolu_1", "name": "a", "input": {"x": 1.0, "b": {}}}]},'
        ' {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "21"}],'
        ' "is_error": false}]}]',
    ),
    "blocks": (
        "images, documents, citations, and blocks that nobody knows arrive",
        ANTHROPIC,
        '"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},'
        ' {"type": "document", "source": {"type": "url", "url": "https://x.example/a.pdf"}, "title": "A", "citations": {"enabled": true}},'
        ' {"type": "x_unheard_of", "x": [1e3, null]}, {"type": "text", "text": "What is it?"}]}]',
    ),
    "tool-results": (
        "long results of parallel calls arrive whole: texts, blocks with an image among them, errors, marks",
        ANTHROPIC,
        '"tools": [{"name": "a", "input_schema": {"type": "object"}}], "messages": [{"role": "user", "content": "Look."},'
        ' {"role": "assistant", "content": [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "t1", "name": "a", "input": {}},'
        ' {"type": "tool_use", "id": "t2", "name": "a", "input": {"n": 1.0}}, {"type": "tool_use", "id": "t3", "name": "a", "input": {}}]},'
        f' {{"role": "user", "content": [{{"type": "tool_result", "tool_use_id": "t1", "content": "{LONG}"}},'
        f' {{"type": "tool_result", "tool_use_id": "t2", "content": [{{"type": "text", "text": "{LONG}", {MARK}}},'
        ' {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}}, {"type": "text", "text": "end"}]},'
        f' {{"type": "tool_result", "tool_use_id": "t3", "is_error": true, {MARK}}}, {{"type": "text", "text": "And?"}}]}}]',
    ),
    "roundabout": (
        "numbers, escapes, spaces and the order of members stay",
        TRANSPARENCY,
        '"metadata" : {"user_id":"u\\u002d1"} , "temperature": 1.0, "top_p":1E-1,  "messages":[{"content":"Gr\\u00fc\\u00dfe \\ud83d\\ude42?",'
        '"role":"user"}] , "stop_sequences": []',
    ),
    "parameters": (
        "the API's parameters arrive, and unknown ones",
        ANTHROPIC,
        '"tool_choice": {"type": "tool", "name": "a", "disable_parallel_tool_use": true}, "service_tier": "auto", "top_k": 5,'
        ' "tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 2}, {"name": "a", "input_schema": {"type": "object"}}],'
        ' "mcp_servers": [{"type": "url", "url": "https://x.example", "name": "m"}], "x_vendor": {"a": [1.0]},'
        ' "messages": [{"role": "user", "content": "Go."}]',
    ),
}  # fmt: skip
"""Name of a check → what is right, where it is written, and the members of the request."""


def _ask(members: str, more: str = "") -> bytes:
    return f'{{"model": "MODEL", "max_tokens": 16, {members}{more}}}'.encode()


ASK = '"messages": [{"role": "user", "content": "Hi"}]'
MESSAGE = (
    b'{"id":"msg_1","type":"message", "role":"assistant","model":"tiny","stop_reason":"end_turn","stop_sequence":null,'
    b'"content":[{"type":"thinking","thinking":"Hm","signature":"c2ln"},{"type":"text","text":"Gr\\u00fc\\u00dfe.","citations":null},'
    b'{"type":"x_new","x":1.0}],"usage":{"input_tokens":3,"output_tokens":2,"cache_read_input_tokens":1,'
    b'"cache_creation":{"ephemeral_5m_input_tokens":0}},"container":null}'
)


async def _exchange(stage: Stage, body: bytes, headers: Lines = ()) -> Exchange:
    return await stage.exchange(samples.plain(MESSAGE), body, path=PATH, headers=[VERSION, *headers])


def _arriving(members: str) -> Run:
    async def run(stage: Stage, seen: Seen) -> None:
        done = await _exchange(stage, _ask(members))
        grown = stage.grown
        stage.same_bytes(seen, done)
        if stage.grown > grown:  # memory is there: each block of the client's is, too, whole and in its place
            right, got = parsed(stage.right_body(done.sent)), parsed(done.request.body)
            seen.differs(*messages_lost(right["messages"], got["messages"]))
        seen.equal("body", MESSAGE, done.answered().body)

    return run


for _name, (_right, _source, _members) in REQUESTS.items():
    add(AREA, _name, _right, _source, _arriving(_members))


@check("headers", "`anthropic-version`, `anthropic-beta` and `x-api-key` arrive", ANTHROPIC)
async def headers(stage: Stage, seen: Seen) -> None:
    given = [("anthropic-beta", "a-2025-01-01,b-2025-02-02"), ("x-api-key", "sk-ant-conformance")]
    done = await _exchange(stage, _ask(ASK), given)
    for name, value in (VERSION, *given):
        seen.equal(name, value, done.request.header(name))


@check("answer", "an answer is the upstream's, byte for byte")
async def answer(stage: Stage, seen: Seen) -> None:
    told = [samples.JSON, ("request-id", "req_011"), ("anthropic-ratelimit-requests-remaining", "7")]
    done = await stage.exchange(samples.plain(MESSAGE, headers=told), _ask(ASK), path=PATH, headers=[VERSION])
    seen.equal("body", MESSAGE, done.answered().body)
    same_headers(seen, told, done.response)


def _named(kind: str, **more: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()


def _delta(index: int, kind: str, **more: object) -> bytes:
    return _named("content_block_delta", index=index, delta={"type": kind, **more})


def _block(index: int, kind: str, *deltas: bytes, **more: object) -> list[bytes]:
    started = _named("content_block_start", index=index, content_block={"type": kind, **more})
    return [started, *deltas, _named("content_block_stop", index=index)]


BEGUN = _named("message_start", message={**json.loads(MESSAGE), "content": [], "stop_reason": None})
EVENTS = [
    BEGUN,
    _named("ping"),
    *_block(0, "thinking", _delta(0, "thinking_delta", thinking="Hm"), _delta(0, "signature_delta", signature="c2ln"), thinking="", signature=""),
    *_block(1, "text", _delta(1, "text_delta", text="Gr"), _delta(1, "citations_delta", citation={"cited_text": "x"}), text=""),
    *_block(2, "tool_use", *(_delta(2, "input_json_delta", partial_json=each) for each in ("", '{"x', '": 1.0}')), id="toolu_1", name="a", input={}),
    *_block(3, "x_unheard_of", _delta(3, "x_delta", x=[1.0])),
    _named("x_unheard_of", a=1.0),
    _named("message_delta", delta={"stop_reason": "tool_use", "stop_sequence": None}, usage={"output_tokens": 9}),
    _named("message_stop"),
]  # fmt: skip


async def _streamed(stage: Stage, seen: Seen, events: list[bytes]) -> None:
    reply = samples.chunked_reply(SSE_HEAD, events, END)
    done = await stage.exchange(reply, _ask(ASK, ', "stream": true'), path=PATH, headers=[VERSION])
    seen.equal("body", b"".join(events), done.answered().body)
    seen.equal("end", "whole", done.response.ended)


@check(
    "stream",
    "a stream is the upstream's, byte for byte: thinking, signatures, arguments, pings, and events nobody knows",
)
async def stream(stage: Stage, seen: Seen) -> None:
    await _streamed(stage, seen, EVENTS)


PARALLEL = [
    BEGUN,
    _named("content_block_start", index=0, content_block={"type": "tool_use", "id": "t1", "name": "a", "input": {}}),
    _named("content_block_start", index=1, content_block={"type": "tool_use", "id": "t2", "name": "b", "input": {"x": 1.0}}),
    *(_delta(n % 2, "input_json_delta", partial_json=each) for n, each in enumerate(('{"x', "", '": 1}', ""))),
    _named("ping"),
    *(_named("content_block_stop", index=n) for n in (1, 0)),
    _named("message_delta", delta={"stop_reason": None}, usage={"output_tokens": 4}),
    _named("ping"),
    _named(
        "message_delta", delta={"stop_reason": "tool_use", "stop_sequence": None},
        usage={"input_tokens": 3, "cache_read_input_tokens": 1, "cache_creation_input_tokens": 0, "output_tokens": 9},
    ),
    _named("message_stop"),
]  # fmt: skip


@check(
    "stream-tools",
    "calls that come at once keep their indexes and their ids, and usage that is told twice is told twice",
    ANTHROPIC,
)
async def stream_tools(stage: Stage, seen: Seen) -> None:
    await _streamed(stage, seen, PARALLEL)


@check("stream-error", "an error within a stream arrives, and the stream ends there", ANTHROPIC)
async def stream_error(stage: Stage, seen: Seen) -> None:
    overloaded = _named("error", error={"type": "overloaded_error", "message": "Overloaded"}, request_id="req_1")
    await _streamed(
        stage, seen, [BEGUN, *_block(0, "text", _delta(0, "text_delta", text="Oi"), text="")[:2], overloaded]
    )


@check("error", "an error has the upstream's status and shape, also one that HTTP does not know", ANTHROPIC)
async def error(stage: Stage, seen: Seen) -> None:
    for status in ("400 Bad Request", "429 Too Many Requests", "529 Overloaded"):
        kind = {"400": "invalid_request_error", "429": "rate_limit_error", "529": "overloaded_error"}[status[:3]]
        body = json.dumps(
            {"type": "error", "error": {"type": kind, "message": f"This is {status}."}, "request_id": "r"}
        )
        told = [samples.JSON, ("x-should-retry", "false"), ("request-id", "req_err")]
        reply = samples.plain(body.encode(), status, told)
        done = await stage.exchange(reply, _ask(ASK), path=PATH, headers=[VERSION])
        assert done.request
        seen.equal("status", int(status[:3]), done.response.status)
        seen.equal("body", body.encode(), done.response.body)
        seen.equal("request-id", "req_err", done.response.header("request-id"))


@check("malformed", "a request that is none is the upstream's to refuse: it arrives as it is")
async def malformed(stage: Stage, seen: Seen) -> None:
    for members in (
        '"messages": 7',
        '"messages": []',
        '"messages": [{"role": "user", "content": 7}]',
        '"messages": [[]]',
    ):
        done = await stage.exchange(
            samples.plain(b"{}", "400 Bad Request"), _ask(members), path=PATH, headers=[VERSION]
        )
        assert done.request
        seen.equal(f"body of {members}", stage.right_body(done.sent), done.request.body)
        seen.equal("status", 400, done.response.status)


@check("count-tokens", "`count_tokens` counts what the client has, and passes", ANTHROPIC)
async def count_tokens(stage: Stage, seen: Seen) -> None:
    body = _ask(REQUESTS["thinking"][2]).replace(b'"max_tokens": 16, ', b"")
    reply = samples.plain(b'{"input_tokens": 2095}')
    done = await stage.exchange(reply, body, path=f"{PATH}/count_tokens", headers=[VERSION])
    seen.equal("body", stage.right_body(done.sent), done.request.body)
    seen.equal("answer", b'{"input_tokens": 2095}', done.answered().body)


@check("batches", "batches of messages pass", ANTHROPIC)
async def batches(stage: Stage, seen: Seen) -> None:
    body = b'{"requests": [{"custom_id": "a", "params": {"model": "MODEL", "max_tokens": 1, "messages": []}}]}'
    told = b'{"id": "msgbatch_1", "type": "message_batch", "processing_status": "in_progress"}'
    done = await stage.exchange(samples.plain(told), body, path=f"{PATH}/batches", headers=[VERSION])
    seen.equal("body", stage.right_body(done.sent), done.request.body)
    seen.equal("answer", told, done.answered().body)
