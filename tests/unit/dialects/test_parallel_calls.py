"""Parallel tool calls as servers stream them: each call stays one."""

from __future__ import annotations

from typing import Any

import orjson

from app.features import messages, responses
from app.features.paging.stream import PhantomStream
from app.features.paging.tools import Names
from app.gateway.dialects.sse import answer_of_json, fold, payloads
from tests.support.phantoms import DONE, asked, calls, event, sent
from tests.support.tables import each_of

Piece = dict[str, Any]
PARIS, OSLO = '{"city":"Paris"}', '{"city":"Oslo"}'


def piece(index: int | None, call_id: str | None, name: str | None, arguments: str | None) -> Piece:
    """An element of `tool_calls` in a delta; None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    members = {"index": index, "id": call_id, "type": "function" if name else None, "function": function}
    return {key: value for key, value in members.items() if value is not None}


def null_id(made: Piece) -> Piece:
    return made | {"id": None}


TWO = [("a", "weather", PARIS), ("b", "time", OSLO)]
SAME = [("a", "weather", PARIS), ("b", "weather", OSLO)]
NAMELESS = [("", "weather", PARIS), ("", "time", OSLO)]
SERVERS: dict[str, tuple[list[list[Piece]], list[tuple[str, str, str]]]] = {
    "OpenAI": (
        [
            [piece(0, "a", "weather", "")], [piece(0, None, None, '{"city":')], [piece(0, None, None, '"Paris"}')],
            [piece(1, "b", "time", "")], [piece(1, None, None, OSLO)],
        ],
        TWO,
    ),
    "OpenAI, in turns": (
        [
            [piece(0, "a", "weather", ""), piece(1, "b", "time", "")], [piece(1, None, None, '{"city":')],
            [piece(0, None, None, PARIS)], [piece(1, None, None, '"Oslo"}')],
        ],
        TWO,
    ),
    "Ollama": ([[piece(0, "a", "weather", PARIS)], [piece(0, "b", "time", OSLO)]], TWO),
    "Ollama, one function": ([[piece(0, "a", "weather", PARIS)], [piece(0, "b", "weather", OSLO)]], SAME),
    "Ollama, one delta": ([[piece(0, "a", "weather", PARIS), piece(0, "b", "weather", OSLO)]], SAME),
    "index 0, arguments in pieces": (
        [
            [piece(0, "a", "weather", "")], [piece(0, None, None, PARIS)],
            [piece(0, "b", "time", "")], [piece(0, None, None, '{"city":')], [piece(0, None, None, '"Oslo"}')],
        ],
        TWO,
    ),
    "index 0, the id alone first": (
        [[piece(0, "a", None, None)], [piece(0, None, "weather", PARIS)], [piece(0, "b", None, None)],
         [piece(0, None, "time", OSLO)]],
        TWO,
    ),
    "index 0, back to the first": (
        [[piece(0, "a", "weather", '{"city":')], [piece(0, "b", "time", OSLO)], [piece(0, "a", None, '"Paris"}')]],
        TWO,
    ),
    "the id in each delta": (
        [
            [piece(0, "a", "weather", "")], [piece(0, "a", None, '{"city":')], [piece(0, "a", None, '"Paris"}')],
            [piece(1, "b", "time", "")], [piece(1, "b", None, OSLO)],
        ],
        TWO,
    ),
    "id and name in each delta": (
        [
            [piece(0, "a", "weather", "{")], [piece(0, "a", "weather", '"city":"Paris"}')],
            [piece(0, "b", "weather", "{")], [piece(0, "b", "weather", '"city":"Oslo"}')],
        ],
        SAME,
    ),
    "another id in each delta": (
        [[piece(0, "a", "weather", "")], [piece(0, "x", None, '{"city":')], [piece(0, "y", None, '"Paris"}')],
         [piece(1, "b", "time", "")], [piece(1, "z", None, OSLO)]],
        TWO,
    ),
    "no index": (
        [[piece(None, "a", "weather", '{"city":')], [piece(None, None, None, '"Paris"}')],
         [piece(None, "b", "time", OSLO)]],
        TWO,
    ),
    "no index, one delta": ([[piece(None, "a", "weather", PARIS), piece(None, "b", "weather", OSLO)]], SAME),
    "no index, no id": ([[piece(None, None, "weather", PARIS)], [piece(None, None, "time", OSLO)]], NAMELESS),
    "an empty id later": (
        [[piece(0, "a", "weather", "")], [piece(0, "", None, PARIS)], [piece(1, "b", "time", "")],
         [piece(1, "", "", OSLO)]],
        TWO,
    ),
    "null as id later": (
        [[piece(0, "a", "weather", "")], [null_id(piece(0, None, None, PARIS))], [piece(0, "b", "time", "")],
         [null_id(piece(0, None, None, OSLO))]],
        TWO,
    ),
    "a late id": (
        [[piece(0, None, "weather", "")], [piece(0, "a", None, PARIS)], [piece(1, "", "time", OSLO)],
         [piece(1, "b", None, "")]],
        TWO,
    ),
    "a new name without an id": ([[piece(0, None, "weather", PARIS)], [piece(0, None, "time", OSLO)]], NAMELESS),
    "one function without an id": (
        [[piece(0, "", "weather", PARIS)], [piece(0, "", "weather", OSLO)]],
        [("", "weather", PARIS), ("", "weather", OSLO)],
    ),
    "names without an id, one delta": (
        [[piece(0, None, "weather", None), piece(0, None, "time", None)]],
        [("", "weather", ""), ("", "time", "")],
    ),
    "Gemini": (
        [[piece(0, "", "weather", PARIS) | {"extra_content": {"google": 1}}], [piece(0, "", "time", OSLO)]],
        NAMELESS,
    ),
    "one id for all": ([[piece(0, "a", "weather", PARIS)], [piece(1, "a", "time", OSLO)]],
                       [("a", "weather", PARIS), ("a", "time", OSLO)]),
    "a name in pieces": ([[piece(0, "a", "wea", None)], [piece(0, None, "ther", "")], [piece(0, None, None, PARIS)]],
                         TWO[:1]),
}  # fmt: skip


def stream_of(deltas: list[list[Piece]]) -> bytes:
    return b"".join(event(calls(*delta)) for delta in deltas) + event(finish="tool_calls") + DONE


@each_of("server", SERVERS)
def test_each_call_of_a_stream_stays_one(server: str) -> None:
    deltas, expected = SERVERS[server]
    (choice,) = fold(payloads(stream_of(deltas))).choices
    found = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in choice.tool_calls]
    assert found == expected


@each_of("server", SERVERS)
def test_the_clients_bytes_stay_as_they_are(server: str) -> None:
    stream = stream_of(SERVERS[server][0])
    for size in (len(stream), 7):
        engine, out = PhantomStream(Names()), b""
        for at in range(0, len(stream), size):
            out += sent(engine.feed(stream[at : at + size]))
        assert out + sent(engine.end()) == stream


QUERY, QUERY_TOO = '{"question":"x"}', '{"question":"y"}'


@each_of(
    "deltas",
    [
        [[piece(0, "p", "memory_query", QUERY)], [piece(0, "q", "memory_query", QUERY_TOO)]],
        [[piece(0, "p", "memory_query", QUERY), piece(0, "q", "memory_query", QUERY_TOO)]],
        [[piece(0, "", "memory_query", QUERY)], [piece(0, "", "memory_query", QUERY_TOO)]],
        [
            [piece(0, "p", "memory_query", "")],
            [piece(0, None, None, QUERY)],
            [piece(0, "q", "memory_query", QUERY_TOO)],
        ],
        [[piece(None, "p", "memory_query", QUERY)], [piece(None, "q", "memory_query", QUERY_TOO)]],
    ],
)
def test_two_look_ups_with_one_index_are_two(deltas: list[list[Piece]]) -> None:
    engine = PhantomStream(Names())
    need = asked(engine.feed(stream_of(deltas)))
    assert need is not None
    assert [call.arguments for call in need.calls] == [QUERY, QUERY_TOO]


def test_a_look_up_beside_the_clients_call_with_one_index() -> None:
    """The look-up is taken out; the client's call keeps the index that it had, whichever comes first."""
    query, client = [piece(0, "p", "memory_query", QUERY)], [piece(0, "a", "weather", PARIS)]
    for deltas in ([query, client], [client, query]):
        out = sent(PhantomStream(Names()).feed(stream_of(deltas)))
        assert out == stream_of([client])


@each_of("extra", [{}, {"index": 0}])
def test_calls_of_a_whole_answer(extra: Piece) -> None:
    function = {"name": "weather", "arguments": "{}"}
    tool_calls = [{"id": call_id, "type": "function", "function": function, **extra} for call_id in ("a", "b")]
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": tool_calls}}]}
    answer = answer_of_json(orjson.dumps(body))
    assert answer is not None
    assert [call["id"] for call in answer.choices[0].tool_calls] == ["a", "b"]


@each_of("second", [0, 1])
def test_blocks_of_a_message_with_one_index(second: int) -> None:
    events = []
    for index, call_id, arguments in ((0, "a", PARIS), (second, "b", OSLO)):
        block = {"type": "tool_use", "id": call_id, "name": "weather", "input": {}}
        delta = {"type": "input_json_delta", "partial_json": arguments}
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    answer = messages.DIALECT.fold(map(orjson.dumps, events))
    found = [(call["id"], call["function"]["arguments"]) for call in answer.choices[0].tool_calls]
    assert found == [("a", PARIS), ("b", OSLO)]


@each_of(("second", "begins", "ends"), [(0, True, True), (1, True, True), (0, False, True), (0, True, False)])
def test_items_of_a_response_with_one_index(second: int, begins: bool, ends: bool) -> None:
    events: list[dict[str, Any]] = []
    for index, call_id, arguments in ((0, "a", PARIS), (second, "b", OSLO)):
        item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": "weather"}
        kind = "response.function_call_arguments.delta"
        events += [
            {"type": "response.output_item.added", "output_index": index, "item": item | {"arguments": ""}}
        ] * begins
        events += [{"type": kind, "output_index": index, "delta": arguments}] * (not ends)
        events += [
            {"type": "response.output_item.done", "output_index": index, "item": item | {"arguments": arguments}}
        ] * ends
    events.append({"type": "response.completed", "response": {"id": "r", "status": "completed"}})
    answer = responses.DIALECT.fold(map(orjson.dumps, events))
    found = [(call["id"], call["function"]["arguments"]) for call in answer.choices[0].tool_calls]
    assert found == [("a", PARIS), ("b", OSLO)]
