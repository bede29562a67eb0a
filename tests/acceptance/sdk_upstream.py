"""An upstream whose answer depends on the model alone, for comparing two ways to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.replies import Recorded, Reply, Rst, Send, Stall, head_of, reply_events, reply_json

HEADERS = [
    ("x-request-id", "req-0123456789"),
    ("openai-processing-ms", "17"),
    ("openai-organization", "org-test"),
    ("x-ratelimit-remaining-requests", "59"),
    ("set-cookie", "a=1"),
    ("set-cookie", "b=2"),
]
USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 0},
}
TOOL_CALLS = [
    {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Lisbon"}'}},
    {"id": "call_2", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Porto"}'}},
]
LOGPROBS = {
    "content": [
        {
            "token": "Oi",
            "logprob": -0.25,
            "bytes": [79, 105],
            "top_logprobs": [{"token": "Oi", "logprob": -0.25, "bytes": [79, 105]}],
        }
    ],
    "refusal": None,
}
BYTES = bytes(range(256)) * 8
ERRORS = {
    400: ("400 Bad Request", "invalid_request_error", "bad_thing"),
    401: ("401 Unauthorized", "invalid_request_error", "invalid_api_key"),
    403: ("403 Forbidden", "permission_error", None),
    404: ("404 Not Found", "invalid_request_error", "model_not_found"),
    409: ("409 Conflict", "conflict_error", None),
    422: ("422 Unprocessable Entity", "invalid_request_error", None),
    429: ("429 Too Many Requests", "tokens", "rate_limit_exceeded"),
    500: ("500 Internal Server Error", "server_error", None),
    503: ("503 Service Unavailable", "server_error", None),
    529: ("529 Overloaded", "overloaded_error", None),
}


def script(request: Recorded) -> Reply:
    """The answer to a request, by its path and by the model in its body."""
    if request.path == "/v1/chat/completions":
        asked = request.json()
        return CHAT[asked["model"]](asked)
    if request.path in PATHS:
        return PATHS[request.path](request)
    return reply_json({"error": {"message": "No such path.", "type": "invalid_request_error"}}, "404 Not Found")


def error(status: int) -> Reply:
    line, kind, code = ERRORS[status]
    body = {"error": {"message": f"This is {line}.", "type": kind, "param": "messages", "code": code}}
    extra = [("retry-after", "7")] if status == 429 else []
    return reply_json(body, line, [*HEADERS, *extra])


def _completion(asked: dict[str, Any], message: dict[str, Any], reason: str = "stop", **choice: Any) -> Reply:
    count = asked.get("n") or 1
    choices = [
        {"index": n, "message": message, "logprobs": None, "finish_reason": reason} | choice for n in range(count)
    ]
    body = {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1700000000, "model": asked["model"],
        "choices": choices, "usage": USAGE, "system_fingerprint": "fp_1", "service_tier": "default", "unknown": {"x": [1.0]},
    }  # fmt: skip
    return reply_json(body, headers=HEADERS)


def chunk(model: str, delta: dict[str, Any], reason: str | None = None, index: int = 0, **more: Any) -> bytes:
    body = {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": model,
        "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}],
    }  # fmt: skip
    return b"data: " + json.dumps(body | more).encode() + b"\n\n"


def _stream(asked: dict[str, Any], deltas: Sequence[tuple[dict[str, Any], str | None]]) -> Reply:
    model = asked["model"]
    events = [chunk(model, delta, reason, n) for delta, reason in deltas for n in range(asked.get("n") or 1)]
    if (asked.get("stream_options") or {}).get("include_usage"):
        events.append(chunk(model, {}, choices=[], usage=USAGE))
    return reply_events([*events, b"data: [DONE]\n\n"], headers=HEADERS)


def _text(asked: dict[str, Any], text: str, reason: str = "stop", **choice: Any) -> Reply:
    if not asked.get("stream"):
        return _completion(asked, {"role": "assistant", "content": text, "refusal": None}, reason, **choice)
    pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
    first: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": "", "refusal": None}, None)]
    return _stream(asked, [*first, *(({"content": piece}, None) for piece in pieces), ({}, reason)])


def _tools(asked: dict[str, Any]) -> Reply:
    if not asked.get("stream"):
        return _completion(asked, {"role": "assistant", "content": None, "tool_calls": TOOL_CALLS}, "tool_calls")
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": None}, None)]
    for n, call in enumerate(TOOL_CALLS):
        function: Any = call["function"]
        begun = {
            "index": n,
            "id": call["id"],
            "type": "function",
            "function": {"name": function["name"], "arguments": ""},
        }
        deltas.append(({"tool_calls": [begun]}, None))
        halves = (function["arguments"][:5], function["arguments"][5:])
        deltas += [({"tool_calls": [{"index": n, "function": {"arguments": half}}]}, None) for half in halves]
    return _stream(asked, [*deltas, ({}, "tool_calls")])


def _function(asked: dict[str, Any]) -> Reply:
    called = {"name": "weather", "arguments": '{"city":"Lisbon"}'}
    if not asked.get("stream"):
        return _completion(asked, {"role": "assistant", "content": None, "function_call": called}, "function_call")
    begun = {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": ""}}
    return _stream(
        asked, [(begun, None), ({"function_call": {"arguments": called["arguments"]}}, None), ({}, "function_call")]
    )


def _broken(asked: dict[str, Any], *, end: Sequence[Any], also: Sequence[bytes] = ()) -> Reply:
    begun = [chunk(asked["model"], {"role": "assistant", "content": "Hel"}), *also]
    return reply_events(begun, headers=HEADERS, end=list(end))


_IN_BAND = {"error": {"message": "The engine died.", "type": "server_error", "param": None, "code": "engine_dead"}}

CHAT: dict[str, Callable[[dict[str, Any]], Reply]] = {
    "text": lambda asked: _text(asked, "Olá, größe 你好 🙂!"),
    "json": lambda asked: _text(asked, '{"name":"Minka","age":3}'),
    "json-cut": lambda asked: _text(asked, '{"name":"Min', "length"),
    "json-filtered": lambda asked: _text(asked, "", "content_filter"),
    "refusal": lambda asked: _completion(asked, {"role": "assistant", "content": None, "refusal": "I must not."}),
    "logprobs": lambda asked: _text(asked, "Oi", logprobs=LOGPROBS),
    "tools": _tools,
    "function": _function,
    "in-band": lambda asked: _broken(asked, end=[], also=[b"data: " + json.dumps(_IN_BAND).encode() + b"\n\n"]),
    "in-band-done": lambda asked: reply_events(
        [b"event: error\ndata: " + json.dumps(_IN_BAND).encode() + b"\n\n", b"data: [DONE]\n\n"], headers=HEADERS
    ),
    "cut": lambda asked: _broken(asked, end=[Rst()]),
    "stall": lambda asked: _broken(asked, end=[Stall()]),
    "never": lambda asked: Reply([Stall()]),
    "html": lambda asked: Reply([_raw("502 Bad Gateway", "text/html", b"<html><h1>Bad gateway</h1></html>")]),
    "not-json": lambda asked: Reply([_raw("200 OK", "application/json", b'{"id": "x"')]),
} | {f"error-{status}": (lambda asked, status=status: error(status)) for status in ERRORS}


def _raw(status: str, kind: str, body: bytes) -> Send:
    return Send(head_of(status, [("content-type", kind), ("content-length", str(len(body))), *HEADERS]) + body)


def _models(request: Recorded) -> Reply:
    model = {"id": "text", "object": "model", "created": 1, "owned_by": "test", "max_model_len": 8192}
    return reply_json({"object": "list", "data": [model]}, headers=HEADERS)


def _embeddings(request: Recorded) -> Reply:
    data = [{"object": "embedding", "index": 0, "embedding": "AACAPwAAAEA="}]
    return reply_json({"object": "list", "data": data, "model": "e", "usage": {"prompt_tokens": 1, "total_tokens": 1}})


def _responses(request: Recorded) -> Reply:
    events = [
        {"type": "response.created", "sequence_number": 0, "response": {"id": "r", "object": "response", "output": []}},
        {"type": "response.output_text.delta", "sequence_number": 1, "item_id": "m", "output_index": 0, "content_index": 0,
         "delta": "Oi", "logprobs": []},
    ]  # fmt: skip
    return reply_events([f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events], headers=HEADERS)


def _file(request: Recorded) -> Reply:
    size = len(request.body)
    made = {
        "id": "f",
        "object": "file",
        "bytes": size,
        "created_at": 1,
        "filename": "a",
        "purpose": "x",
        "status": "processed",
    }
    return reply_json(made, headers=HEADERS)


PATHS: dict[str, Callable[[Recorded], Reply]] = {
    "/v1/models": _models,
    "/v1/embeddings": _embeddings,
    "/v1/responses": _responses,
    "/v1/files": _file,
    "/v1/files/f/content": lambda request: Reply([_raw("200 OK", "application/octet-stream", BYTES)]),
}
