"""What becomes of the other paths under /v1: what an upstream serves, a proxy before it must not take away."""

from __future__ import annotations

import json
from typing import Any

from tests.conformance import samples
from tests.conformance.check_stream import END, SSE_HEAD
from tests.conformance.checks import OPENAI, TRANSPARENCY, Area, Run, Seen, add, check
from tests.conformance.compare import differences, event_differences, messages_lost, parsed
from tests.conformance.stage import UPSTREAM_PREFIX, Exchange, Stage
from tests.support.replies import Reply, Send, head_of

AREA: Area = "paths"

VLLM = "vLLM's OpenAI-compatible server"
ANTHROPIC = "Anthropic API reference; vLLM serves it"

MODELS = {
    "object": "list",
    "data": [{"id": "tiny", "object": "model", "created": 1, "owned_by": "me", "max_model_len": 4096}],
}
EMBEDDED = {
    "object": "list", "model": "tiny", "usage": {"prompt_tokens": 2, "total_tokens": 2},
    "data": [{"object": "embedding", "index": 0, "embedding": [0.1, -1e-7, 1.0]}],
}  # fmt: skip
RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 1700000000, "status": "completed", "model": "tiny", "x_new": {"a": 1},
    "output": [{"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
                "content": [{"type": "output_text", "text": "Hi.", "annotations": [], "logprobs": []}]}],
    "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5, "input_tokens_details": {"cached_tokens": 1}},
}  # fmt: skip
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "tiny", "stop_reason": "end_turn", "stop_sequence": None,
    "content": [{"type": "thinking", "thinking": "Hm", "signature": "c2ln"}, {"type": "text", "text": "Hi."}],
    "usage": {"input_tokens": 3, "output_tokens": 2, "cache_read_input_tokens": 1},
}  # fmt: skip

Case = tuple[str, str, str, str, str, object]
CASES: dict[str, Case] = {
    "models": ("the list of models is the upstream's", OPENAI, "GET", "/models", "", MODELS),
    "model": ("one model is the upstream's", OPENAI, "GET", "/models/tiny", "", MODELS["data"][0]),
    "embeddings": (
        "embeddings pass, with their parameters",
        OPENAI,
        "POST",
        "/embeddings",
        '{"model": "MODEL", "input": ["a", "b"], "dimensions": 3, "encoding_format": "float", "user": "u", "x_vendor": 1}',
        EMBEDDED,
    ),
    "embeddings-base64": (
        "embeddings in base64 stay so",
        OPENAI,
        "POST",
        "/embeddings",
        '{"model": "MODEL", "input": [[1, 2]], "encoding_format": "base64"}',
        {**EMBEDDED, "data": [{"object": "embedding", "index": 0, "embedding": "zczMPQAAgD8="}]},
    ),
    "completions": (
        "the older completions pass",
        OPENAI,
        "POST",
        "/completions",
        '{"model": "MODEL", "prompt": ["a", [1, 2]], "echo": true, "logprobs": 2, "best_of": 2, "suffix": "s", "x_vendor": 1}',
        {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "tiny", "x_new": 1, "usage": EMBEDDED["usage"],
         "choices": [{"index": 0, "text": "b", "finish_reason": "stop", "logprobs": {"tokens": ["b"], "token_logprobs": [-1.5]}}]},
    ),
    "responses": (
        "/v1/responses passes",
        OPENAI,
        "POST",
        "/responses",
        '{"model": "MODEL", "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}], "instructions": "Short.",'
        ' "store": false, "metadata": {"a": "b"}, "include": ["reasoning.encrypted_content"], "text": {"verbosity": "low"}, "x_vendor": 1}',
        RESPONSE,
    ),
    "response-by-id": ("a stored response can be read", OPENAI, "GET", "/responses/resp_1?include[]=output", "", RESPONSE),
    "response-deletion": (
        "a stored response can be deleted", OPENAI, "DELETE", "/responses/resp_1", "",
        {"id": "resp_1", "object": "response", "deleted": True},
    ),
    "messages": (
        "/v1/messages passes",
        ANTHROPIC,
        "POST",
        "/messages",
        '{"model": "MODEL", "max_tokens": 16, "system": [{"type": "text", "text": "Hm", "cache_control": {"type": "ephemeral"}}],'
        ' "messages": [{"role": "user", "content": "Hi"}], "thinking": {"type": "enabled", "budget_tokens": 8}}',
        MESSAGE,
    ),
    "moderations": (
        "moderations pass", OPENAI, "POST", "/moderations", '{"model": "MODEL", "input": "x"}',
        {"id": "modr-1", "model": "tiny", "results": [{"flagged": False, "categories": {"x": False}}]},
    ),
    "images": (
        "images pass", OPENAI, "POST", "/images/generations", '{"model": "MODEL", "prompt": "a dog", "size": "1024x1024"}',
        {"created": 1, "data": [{"b64_json": "iVBORw0KGgo="}], "usage": {"total_tokens": 1}},
    ),
    "batches": (
        "batches pass", OPENAI, "POST", "/batches",
        '{"input_file_id": "file-1", "endpoint": "/v1/chat/completions", "completion_window": "24h"}',
        {"id": "batch_1", "object": "batch", "endpoint": "/v1/chat/completions", "status": "validating", "x_new": 1},
    ),
    "rerank": (
        "vLLM's /v1/rerank passes", VLLM, "POST", "/rerank", '{"model": "MODEL", "query": "q", "documents": ["a", "b"], "top_n": 1}',
        {"id": "rerank-1", "model": "tiny", "usage": {"total_tokens": 3}, "results": [{"index": 1, "document": {"text": "b"}, "relevance_score": 0.5}]},
    ),
    "unknown": (
        "a path that nobody knows reaches the upstream", TRANSPARENCY, "POST", "/x/new/thing", '{"model": "MODEL", "a": 1.0}', {"ok": True},
    ),
}  # fmt: skip
"""Name of a check → what is right, where it is written, method, path, body, and the answer that is to arrive."""


def _passing(case: Case) -> Run:
    _, _, method, path, body, answer = case

    async def run(stage: Stage, seen: Seen) -> None:
        reply = samples.plain(json.dumps(answer).encode(), headers=[samples.JSON, ("x-request-id", "req_path")])
        done = await stage.exchange(reply, body.encode(), path=path, method=method)
        _asked_rightly(stage, seen, done, method, path)
        _same_request(stage, seen, done, path)
        seen.differs(*(f"answer: {each}" for each in differences(answer, parsed(done.answered().body))))
        seen.equal("x-request-id", "req_path", done.response.header("x-request-id"))

    return run


def _same_request(stage: Stage, seen: Seen, done: Exchange, path: str) -> None:
    """The request is the client's, by value; but for the `input` of a response and the `messages` of a message, where a proxy
    may add to them."""
    right, got = parsed(stage.right_body(done.sent)), parsed(done.request.body)
    grows = {"/responses": "input", "/messages": "messages"}.get(path)
    if grows is not None and stage.way.messages_may_grow and isinstance(got, dict):
        lost = messages_lost(_messages(right[grows]), _messages(got.get(grows)))
        seen.differs(*(f"request: {each.replace('$.messages', f'$.{grows}')}" for each in lost))
        right, got = ({**each, grows: None} for each in (right, got))
    seen.differs(*(f"request: {each}" for each in differences(right, got)))


def _messages(given: Any) -> Any:
    """The input of a response as messages."""
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def _asked_rightly(stage: Stage, seen: Seen, done: Exchange, method: str, path: str) -> None:
    seen.equal("request line", f"{method} {UPSTREAM_PREFIX}{path}", f"{done.request.method} {done.request.target}")


for _name, _case in CASES.items():
    add(AREA, _name, _case[0], _case[1], _passing(_case))


async def _streams(stage: Stage, seen: Seen, path: str, body: str, events: list[bytes]) -> None:
    done = await stage.exchange(samples.chunked_reply(SSE_HEAD, events, END), body.encode(), path=path)
    _same_request(stage, seen, done, path)
    seen.differs(*event_differences(b"".join(events), done.answered().body))


def _named(kind: str, **more: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()


@check("responses-stream", "/v1/responses streams its named events", OPENAI)
async def responses_stream(stage: Stage, seen: Seen) -> None:
    events = [
        _named("response.created", sequence_number=0, response={**RESPONSE, "status": "in_progress", "output": []}),
        _named("response.output_text.delta", sequence_number=1, item_id="msg_1", output_index=0, content_index=0, delta="Hi", obfuscation="x"),
        _named("response.x_unheard_of", sequence_number=2, a=1.0),
        _named("response.completed", sequence_number=3, response=RESPONSE),
    ]  # fmt: skip
    await _streams(stage, seen, "/responses", '{"model": "MODEL", "input": "Hi", "stream": true}', events)


@check("messages-stream", "/v1/messages streams its named events", ANTHROPIC)
async def messages_stream(stage: Stage, seen: Seen) -> None:
    events = [
        _named("message_start", message={**MESSAGE, "content": [], "stop_reason": None}),
        _named("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        _named("ping"),
        _named("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hi."}),
        _named("content_block_stop", index=0),
        _named("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 2}),
        _named("message_stop"),
    ]
    body = '{"model": "MODEL", "max_tokens": 16, "messages": [{"role": "user", "content": "Hi"}], "stream": true}'
    await _streams(stage, seen, "/messages", body, events)


@check("completions-stream", "the older completions stream", OPENAI)
async def completions_stream(stage: Stage, seen: Seen) -> None:
    base = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "tiny"}
    chunks = [
        {**base, "choices": [{"index": 0, "text": each, "logprobs": None, "finish_reason": None}]} for each in "ab"
    ]
    events = [b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks] + [samples.DONE]
    await _streams(stage, seen, "/completions", '{"model": "MODEL", "prompt": "a", "stream": true, "top_k": 3}', events)


UPLOAD = (
    b'--b0undary\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--b0undary\r\nContent-Disposition: form-data; name="x_vendor"\r\n\r\n1.0\r\n'
    b'--b0undary\r\nContent-Disposition: form-data; name="file"; filename="gr\xc3\xbc\xc3\x9fe.jsonl"\r\n'
    b"Content-Type: application/octet-stream\r\n\r\n" + bytes(range(256)) + b"\r\n--b0undary--\r\n"
)


@check("files", "an upload arrives as it was sent, part for part", OPENAI + "; RFC 7578")
async def files(stage: Stage, seen: Seen) -> None:
    made = {
        "id": "file-1",
        "object": "file",
        "bytes": 256,
        "created_at": 1,
        "filename": "grüße.jsonl",
        "purpose": "batch",
    }
    kind = "multipart/form-data; boundary=b0undary"
    done = await stage.exchange(
        samples.plain(json.dumps(made).encode()), UPLOAD, path="/files", headers=[("content-type", kind)]
    )
    seen.equal("content-type", kind, done.request.header("content-type"))
    seen.equal("body", UPLOAD, done.request.body)
    seen.differs(*differences(made, parsed(done.answered().body)))


@check("transcriptions", "audio arrives as it was sent, and its text as it was heard", OPENAI + "; RFC 7578")
async def transcriptions(stage: Stage, seen: Seen) -> None:
    upload = UPLOAD.replace(b'name="purpose"\r\n\r\nbatch', b'name="model"\r\n\r\n' + stage.way.model.encode())
    kind = "multipart/form-data; boundary=b0undary"
    reply = samples.plain(
        b"1\n00:00:00,000 --> 00:00:01,000\nHi.\n", headers=[("content-type", "text/plain; charset=utf-8")]
    )
    done = await stage.exchange(reply, upload, path="/audio/transcriptions", headers=[("content-type", kind)])
    if bytes(range(256)) not in done.request.body:
        seen.differs(f"the audio did not arrive: {len(done.request.body)} bytes")
    if b'name="x_vendor"' not in done.request.body:
        seen.differs("a field that nobody knows did not arrive")
    seen.equal("body", b"1\n00:00:00,000 --> 00:00:01,000\nHi.\n", done.answered().body)


@check("speech", "audio comes back byte for byte", OPENAI)
async def speech(stage: Stage, seen: Seen) -> None:
    audio = bytes(range(256)) * 40
    lines = [("content-type", "audio/mpeg"), ("transfer-encoding", "chunked")]
    parts = b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in samples.pieces(audio, 999))
    reply = Reply([Send(head_of("200 OK", lines)), Send(parts), Send(b"0\r\n\r\n")])
    body = b'{"model": "MODEL", "input": "Hi", "voice": "alloy"}'
    done = await stage.exchange(reply, body, path="/audio/speech")
    seen.equal("body", len(audio), len(done.answered().body))
    if done.response.body != audio:
        seen.differs("the bytes are others")
    seen.equal("content-type", "audio/mpeg", done.response.header("content-type"))


@check("file-content", "a file's content comes back byte for byte, with its name", OPENAI)
async def file_content(stage: Stage, seen: Seen) -> None:
    lines = [("content-type", "application/octet-stream"), ("content-disposition", 'attachment; filename="a b.bin"')]
    done = await stage.exchange(samples.plain(UPLOAD, headers=lines), path="/files/file-1/content", method="GET")
    seen.equal("body", UPLOAD, done.answered().body)
    for name, value in lines:
        seen.equal(name, value, done.response.header(name))


@check("error", "an error on another path arrives as it is", OPENAI)
async def path_error(stage: Stage, seen: Seen) -> None:
    body = b'{"error": {"message": "No such File object: file-9", "type": "invalid_request_error", "param": "id", "code": null}}'
    done = await stage.exchange(samples.plain(body, "404 Not Found"), path="/files/file-9", method="GET")
    assert done.request
    seen.equal("status", 404, done.response.status)
    seen.differs(*differences(parsed(body), parsed(done.response.body)))
