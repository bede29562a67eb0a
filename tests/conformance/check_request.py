"""What becomes of a chat request's body on its way to the upstream."""

from __future__ import annotations

import json

from tests.conformance import samples
from tests.conformance.checks import OPENAI, TRANSPARENCY, Area, Run, Seen, add, check
from tests.conformance.compare import by_digits, differences, key_orders, messages_lost, parsed
from tests.conformance.stage import MODEL, STREAM, Stage

AREA: Area = "request"
VLLM = "vLLM's OpenAI-compatible server, extra parameters"

CARRIED: dict[str, tuple[str, str, str]] = {
    "user": ("`user` arrives", OPENAI, '"user": "ana-7"'),
    "metadata": ("`metadata` arrives, with `store`", OPENAI, '"store": true, "metadata": {"trace": "t-1", "team": "blue"}'),
    "sampling": (
        "sampling parameters arrive",
        OPENAI,
        '"temperature": 0.7, "top_p": 0.9, "frequency_penalty": 0.1, "presence_penalty": -0.2, "seed": 42, "n": 2,'
        ' "stop": ["END", "\\n\\n"], "logit_bias": {"50256": -100}, "logprobs": true, "top_logprobs": 3',
    ),
    "limits": ("`max_completion_tokens` arrives as itself", OPENAI, '"max_completion_tokens": 64'),
    "max-tokens": ("the older `max_tokens` arrives as itself", OPENAI, '"max_tokens": 64'),
    "newer-parameters": (
        "the API's newer parameters arrive",
        OPENAI,
        '"reasoning_effort": "low", "verbosity": "low", "service_tier": "flex", "prompt_cache_key": "k-1",'
        ' "prompt_cache_retention": "24h", "safety_identifier": "s-1", "parallel_tool_calls": false',
    ),
    "modalities": (
        "`modalities`, `audio`, `prediction` and `web_search_options` arrive",
        OPENAI,
        '"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"},'
        ' "prediction": {"type": "content", "content": "x = 1"}, "web_search_options": {"search_context_size": "low"}',
    ),
    "response-format": (
        "a JSON schema arrives whole",
        OPENAI,
        '"response_format": {"type": "json_schema", "json_schema": {"name": "reply", "description": "d", "strict": true,'
        ' "schema": {"type": "object", "properties": {"b": {"type": ["string", "null"]}, "a": {"const": 1}},'
        ' "required": ["b", "a"], "additionalProperties": false, "$defs": {"x": {"type": "integer"}}}}}',
    ),
    "tools": (
        "tools arrive, with `function.strict` and their schemas",
        OPENAI,
        '"tools": [{"type": "function", "function": {"name": "weather", "description": "d", "strict": true, "parameters":'
        ' {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": false}}},'
        ' {"type": "function", "function": {"name": "bare"}}]',
    ),
    "tool-choice": (
        "`tool_choice` arrives as it was given",
        OPENAI,
        '"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "object", "properties": {}}}}],'
        ' "tool_choice": {"type": "function", "function": {"name": "a"}}',
    ),
    "custom-tools": (
        "custom tools and `allowed_tools` arrive",
        OPENAI,
        '"tools": [{"type": "custom", "custom": {"name": "sql", "description": "d", "format": {"type": "text"}}}],'
        ' "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "custom",'
        ' "custom": {"name": "sql"}}]}}',
    ),
    "functions": (
        "the older `functions` and `function_call` arrive",
        OPENAI,
        '"functions": [{"name": "f", "parameters": {"type": "object", "properties": {}}}], "function_call": {"name": "f"}',
    ),
    "guided-json": ("`guided_json` and `guided_choice` arrive", VLLM, '"guided_json": {"type": "object"}, "guided_choice": ["a"]'),
    "vllm-sampling": (
        "`top_k`, `min_p` and their like arrive",
        VLLM,
        '"top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1, "ignore_eos": true, "min_tokens": 1, "best_of": 1,'
        ' "stop_token_ids": [2], "skip_special_tokens": false, "prompt_logprobs": 1, "priority": 3',
    ),
    "vllm-template": (
        "`chat_template_kwargs`, `documents` and their like arrive",
        VLLM,
        '"chat_template_kwargs": {"enable_thinking": false}, "add_generation_prompt": true, "documents": [{"title": "t",'
        ' "text": "x"}], "structured_outputs": {"choice": ["yes", "no"]}, "return_token_ids": true',
    ),
    "unknown": (
        "members that nobody knows arrive, nested ones too",
        TRANSPARENCY,
        '"x_vendor": {"deep": [{"a": null}, [], {}], "flag": false}, "zeta": "z"',
    ),
    "nulls": (
        "null, false, empty and absent stay four things",
        TRANSPARENCY,
        '"stop": null, "stream": false, "tools": [], "logit_bias": {}, "user": ""',
    ),
    "stream-options": (
        "`stream_options` arrive as they were given",
        OPENAI,
        f'{STREAM}, "stream_options": {{"include_usage": true, "include_obfuscation": false, "continuous_usage_stats": true}}',
    ),
}  # fmt: skip
"""Name of a check → what is right, where it is written, and the members that are to arrive."""


def _carried(name: str, members: str) -> Run:
    async def run(stage: Stage, seen: Seen) -> None:
        streams = STREAM in members
        reply = samples.stream(samples.EVENTS) if streams else samples.plain(samples.ANSWER)
        done = await stage.exchange(reply, samples.ask(f"May {name} pass?", members))
        got = parsed(done.request.body)
        right = json.loads("{" + members + "}")
        seen.differs(*differences(right, {key: got[key] for key in right if key in got}))

    return run


for _name, (_right, _source, _members) in CARRIED.items():
    add(AREA, _name, _right, _source, _carried(_name, _members))


@check("bytes", "the body is the client's, byte for byte (but for `messages`, where memory is added)")
async def body_bytes(stage: Stage, seen: Seen) -> None:
    body = samples.ask("Is every byte the same?", '"temperature":1.0 ,  "stop" : [ "a" ],\n\t"user": "x"') + b"\n"
    stage.same_bytes(seen, await stage.exchange(samples.plain(samples.ANSWER), body))


@check("nothing-added", "nothing is added that the client did not say, neither plain nor streamed", OPENAI)
async def nothing_added(stage: Stage, seen: Seen) -> None:
    for streams in (False, True):
        reply = samples.stream(samples.EVENTS) if streams else samples.plain(samples.ANSWER)
        done = await stage.exchange(reply, samples.ask(f"Is anything added? {streams}", STREAM if streams else ""))
        got = parsed(done.request.body)
        allowed = {"model", "messages"} | ({"stream"} if streams else set())
        kind = "streamed" if streams else "plain"
        seen.differs(*(f"{kind}: $.{name} is added: {json.dumps(got[name])}" for name in got if name not in allowed))


@check("model", "the model's name arrives as the client gave it (or as the settings map it)", OPENAI)
async def model(stage: Stage, seen: Seen) -> None:
    done = await stage.exchange(samples.plain(samples.ANSWER), samples.ask("Which model are you?"))
    seen.equal("model", MODEL, parsed(done.request.body).get("model"))


@check(
    "numbers", "numbers keep their digits: 1.0, 12345678901234567890, 1e-1, 0.10, -0", "RFC 8259 §6; " + TRANSPARENCY
)
async def numbers(stage: Stage, seen: Seen) -> None:
    members = '"temperature": 1.0, "top_p": 1e-1, "presence_penalty": 0.10, "seed": 12345678901234567890, "x_zero": -0'
    done = await stage.exchange(samples.plain(samples.ANSWER), samples.ask("Do numbers stay?", members))
    right, got = by_digits(done.sent), by_digits(done.request.body)
    for name in ("temperature", "top_p", "presence_penalty", "seed", "x_zero"):
        seen.equal(f"$.{name}", str(right[name]), str(got.get(name)))


@check("key-order", "keys keep their order, in objects of any depth")
async def key_order(stage: Stage, seen: Seen) -> None:
    members = '"zeta": {"b": 1, "a": {"d": 1, "c": 2}}, "user": "u", "alpha": 1'
    done = await stage.exchange(samples.plain(samples.ANSWER), samples.ask("Do keys stay?", members))
    orders = (key_orders({**parsed(body), "messages": 0}) for body in (done.sent, done.request.body))
    right, got = orders
    for place, keys in right.items():
        kept = [each for each in got.get(place, []) if each in keys]
        seen.equal(f"keys of {place}", ", ".join(keys), ", ".join(kept))


@check("unicode", "text arrives as the same characters: emoji, escapes, U+2028, an escaped NUL", "RFC 8259 §7")
async def unicode(stage: Stage, seen: Seen) -> None:
    text = '"Grüße 👩‍👩‍👧 \\u00e9 \\ud83d\\ude00 \\u2028 \\u0000 \\/ tab\\t"'
    body = (
        b'{"model": "MODEL", "messages": [{"role": "user", "content": '
        + text.encode()
        + b'}], "user": '
        + text.encode()
        + b"}"
    )
    done = await stage.exchange(samples.plain(samples.ANSWER), body)
    got = parsed(done.request.body)
    _same_messages(stage, seen, done.sent, got)
    seen.equal("$.user", json.loads(text), got.get("user"))


MESSAGES: dict[str, tuple[str, str]] = {
    "developer-role": ("a `developer` message stays one", '{"role": "developer", "content": "Be brief."}'),
    "system-role": ("a `system` message stays one", '{"role": "system", "content": "Be terse."}'),
    "names": ("participants' names arrive", '{"role": "user", "name": "ana", "content": "Who is Bob?"}'),
    "parts": (
        "content in parts arrives, with images, audio and files",
        '{"role": "user", "content": [{"type": "text", "text": "See?"}, {"type": "image_url", "image_url": {"url":'
        ' "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}}, {"type": "input_audio", "input_audio": {"data": "UklGRg==",'
        ' "format": "wav"}}, {"type": "file", "file": {"file_id": "file-1"}}]}',
    ),
    "tool-turns": (
        "calls of tools and their results arrive",
        '{"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f",'
        ' "arguments": "{\\"a\\": 1.0}"}}]}, {"role": "tool", "tool_call_id": "call_1", "content": "42"}',
    ),
    "message-extras": (
        "members of messages that nobody knows arrive",
        '{"role": "assistant", "content": "Hm.", "reasoning_content": "I think", "refusal": null, "x_mark": [1]},'
        ' {"role": "user", "content": [{"type": "text", "text": "Go on", "cache_control": {"type": "ephemeral"}}]}',
    ),
}  # fmt: skip
"""Name of a check → what is right, and the messages that are to arrive."""


def _arriving(name: str, messages: str) -> Run:
    async def run(stage: Stage, seen: Seen) -> None:
        last = json.dumps({"role": "user", "content": f"What of {name}?"})
        body = f'{{"model": "MODEL", "messages": [{messages}, {last}]}}'.encode()
        done = await stage.exchange(samples.plain(samples.ANSWER), body)
        _same_messages(stage, seen, done.sent, parsed(done.request.body))

    return run


def _same_messages(stage: Stage, seen: Seen, sent: bytes, got: dict[str, object]) -> None:
    right = json.loads(sent)["messages"]
    if stage.way.messages_may_grow:
        seen.differs(*messages_lost(right, got.get("messages")))
    else:
        seen.differs(*differences({"messages": right}, {"messages": got.get("messages")}))


for _name, (_right, _members) in MESSAGES.items():
    add(AREA, _name, _right, OPENAI, _arriving(_name, _members))


@check("large", "a body of 5 MB arrives whole (images travel inside JSON)", OPENAI)
async def large(stage: Stage, seen: Seen) -> None:
    image = "A" * (stage.large // 2)
    part = f'{{"type": "image_url", "image_url": {{"url": "data:image/png;base64,{image}"}}}}'
    body = f'{{"model": "MODEL", "messages": [{{"role": "user", "content": [{part}]}}], "user": "big"}}'.encode()
    done = await stage.exchange(samples.plain(samples.ANSWER), body)
    if image.encode() not in done.request.body:
        seen.differs(f"the image did not arrive: {len(done.request.body)} bytes")


@check("chunked", "a body sent in chunks, without a length, arrives whole", "RFC 9112 §7.1")
async def chunked_body(stage: Stage, seen: Seen) -> None:
    body = stage.body(samples.ask("Was I in pieces?", '"user": "pieces"'))
    asked = stage.play(samples.plain(samples.ANSWER), "/chat/completions", "POST")
    lines = stage.lines([("transfer-encoding", "chunked")], json_body=True)
    async with stage.client() as client:
        await client.send("POST", f"{stage.way.prefix}/chat/completions", lines)
        for piece in samples.pieces(body, 7):
            await client.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await client.write(b"0\r\n\r\n")
        response = await client.response("POST")
    seen.equal("status", 200, response.status)
    got = parsed(asked[0].body) if asked else {}
    seen.equal("$.user", "pieces", got.get("user"))
