"""What is taken out of cassettes, and that no key gets into one."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mneme_replay.cassette import Cassette, Chunk, Response
from mneme_replay.fileformat import parse, render
from mneme_replay.redacting import KeyFound, Redaction
from tests.support.cassettes import SSE_HEADERS, asking, cassette, streamed, streaming
from tests.support.tables import each_of

KEY = "sk-proj-" + "a1B2" * 8


def response_of(call: Cassette) -> Response:
    assert call.response is not None
    return call.response


def test_named_values_go_and_all_else_stays() -> None:
    body = b'{"model": "tiny", "user": "ana", "messages": [{"role": "user", "content": "secret"}], "t": 1.0}'
    call = cassette(body=body, answer=b'{"user":"ana","choices":[]}', sent=b'{"user":"ana","messages":[]}')
    shown = Redaction(["$.user", "$.messages[*].content"]).apply(call)
    assert shown.request.body == body.replace(b'"ana"', b'"***"').replace(b'"secret"', b'"***"')
    assert shown.sent == b'{"user":"***","messages":[]}'
    assert response_of(shown).body == b'{"user":"***","choices":[]}'
    assert response_of(shown).chunks == (Chunk(1500, 27),)
    assert shown.redacted == ("$.user", "$.messages[*].content")
    assert parse(render(shown), shown.name) == shown
    assert Redaction(["$.user"]).apply(shown).redacted == ("$.user", "$.messages[*].content")


def test_a_length_that_was_told_is_told_anew() -> None:
    answer = b'{"user":"anastasia"}'
    call = cassette(answer=answer)
    headers = (("Content-Length", str(len(answer))), ("x-other", str(len(answer))))
    call = replace(call, response=replace(response_of(call), headers=headers))
    shown = response_of(Redaction(["$.user"]).apply(call))
    assert shown.headers == (("Content-Length", str(len(shown.body))), ("x-other", str(len(answer))))


@given(st.lists(st.integers(0, 2000)))
def test_the_pieces_of_a_stream_move_with_what_is_taken_out(cuts: list[int]) -> None:
    events = streaming("Hello there, ", "Anastasia", "!")
    body = b"".join(events)
    borders = sorted({0, *(each % len(body) for each in cuts), len(body)})
    chunks = tuple(Chunk(n, end - start) for n, (start, end) in enumerate(pairwise(borders)))
    call = streamed(response=Response(status=200, headers=SSE_HEADERS, body=body, chunks=chunks))
    shown = response_of(Redaction(["$.choices[*].delta.content"]).apply(call))
    assert shown.body == b"".join(streaming("***", "***", "***")).replace(b'"content":""', b'"content":"***"')
    assert sum(each.size for each in shown.chunks) == len(shown.body)
    assert [each.at_us for each in shown.chunks] == [each.at_us for each in chunks]
    if len(chunks) == 1:
        assert shown.chunks == (Chunk(0, len(shown.body)),)


@each_of(
    ("body", "shown"),
    [
        (b'{"user" : "ana"}', b'{"user":"***"}'),
        (b'{"other" : "ana"}', b'{"other" : "ana"}'),
        (b'{"user": "ana"', b'"***"'),
        (b"plain", b"plain"),
        (b"", b""),
        (
            b'data: {"a": 1}\n\ndata: {"user": "ana\n\ndata: [DONE]\n\n',
            b'data: {"a": 1}\n\ndata: "***"\n\ndata: [DONE]\n\n',
        ),
    ],
)
def test_bodies_of_any_kind(body: bytes, shown: bytes) -> None:
    assert Redaction(["$.user"]).apply(cassette(body=body)).request.body == shown


def test_headers_lose_what_is_secret() -> None:
    call = cassette()
    headers = (("Authorization", "Bearer x"), ("x-api-key", "k"), ("OpenAI-Organization", "org-1"), ("accept", "*/*"))
    path = "/v1/models?api_key=abc&limit=1"
    call = replace(call, request=replace(call.request, headers=headers, path=path))
    call = replace(call, response=replace(response_of(call), headers=(("set-cookie", "a=b"),)))
    shown = Redaction(headers=["openai-organization"]).apply(call)
    assert [value for _, value in shown.request.headers] == ["***", "***", "***", "*/*"]
    assert shown.request.path == "/v1/models?api_key=***&limit=1"
    assert response_of(shown).headers == (("set-cookie", "***"),)


def crlf(events: list[bytes]) -> list[bytes]:
    return [each.replace(b"data: ", b"data:").replace(b"\n", b"\r\n") for each in events]


def side_by_side(pieces: list[str]) -> list[bytes]:
    """A stream of two choices, in turns."""
    return [
        b"data: " + json.dumps({"choices": [{"index": n % 2, "delta": {"content": each}}]}).encode() + b"\n\n"
        for n, each in enumerate(pieces)
    ]


@each_of(
    ("call", "where"),
    [
        (cassette(body=asking(f"My key is {KEY}.")), "request.body"),
        (cassette(answer=asking(KEY)), "response.body"),
        (cassette(sent=asking(KEY)), "sent.body"),
        (cassette(error=f"refused: {KEY}"), "error"),
        (cassette(labels=("a", KEY)), "labels"),
        (cassette(call={"user": KEY}), "call"),
        (
            replace(cassette(), request=replace(cassette().request, headers=(("x-trace", KEY),))),
            "request header x-trace",
        ),
        (replace(cassette(), request=replace(cassette().request, path=f"/v1/{KEY}")), "request.path"),
        (streamed(events=streaming("The key: ", KEY[:12], KEY[12:])), "response.body, in several events"),
        (streamed(events=crlf(streaming("The key: ", KEY[:12], KEY[12:]))), "response.body, in several events"),
        (streamed(events=side_by_side(["a", KEY[:12], "b", KEY[12:]])), "response.body, in several events"),
        (cassette(body=asking(f"The keys:\n{KEY}")), "request.body"),
        (cassette(body=asking(f"The keys:\t{KEY}")), "request.body"),
        (cassette(body=asking(f"Maß{KEY}")), "request.body"),
        (cassette(body=json.dumps({"messages": f"日本{KEY}"}).encode()), "request.body"),
        (cassette(body=json.dumps({"arguments": json.dumps({"env": f"a\n{KEY}"})}).encode()), "request.body"),
        (cassette(body=asking(KEY).replace(b"sk-", b"s\\u006b\\u002d")), "request.body"),
        (cassette(body=asking("data:text/plain;base64," + b64encode(f"KEY={KEY}".encode()).decode())), "request.body"),
        (cassette(body=gzip.compress(asking(KEY))), "request.body"),
        (cassette(body=asking(KEY).decode().encode("utf-16")), "request.body"),
        (cassette(body=asking(f"_{KEY}_")), "request.body"),
        (
            replace(cassette(), request=replace(cassette().request, path="/v1/x?y=" + KEY.replace("-", "%2D"))),
            "request.path",
        ),
    ],
)
def test_a_key_is_refused_wherever_it_stands(call: Cassette, where: str) -> None:
    with pytest.raises(KeyFound) as caught:
        Redaction().apply(call)
    assert caught.value.found == [(where, "sk-pro…")]
    assert KEY not in str(caught.value)
    assert call.id in str(caught.value)


def test_keys_can_be_masked_and_nothing_moves() -> None:
    call = cassette(body=asking(f"größe {KEY}!"), answer=asking(KEY), labels=(KEY,), call={"user": KEY}, error=KEY)
    shown = Redaction(mask_keys=True).apply(call)
    assert KEY not in render(shown).decode()
    assert shown.request.body == asking(f"größe {'*' * len(KEY)}!")
    assert response_of(shown).chunks == response_of(call).chunks
    assert json.loads(shown.request.body)


@pytest.mark.parametrize("before", ["\n", "\t", "ß", "日本"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_key_is_masked_whatever_stands_before_it(before: str, ascii_only: bool) -> None:
    body = json.dumps({"messages": before + KEY}, ensure_ascii=ascii_only).encode()
    shown = Redaction(mask_keys=True).apply(cassette(body=body))
    assert json.loads(shown.request.body) == {"messages": before + "*" * len(KEY)}


def test_what_no_mask_reaches_is_refused_with_masks_too() -> None:
    packed = b64encode(f"KEY={KEY}".encode()).decode()
    with pytest.raises(KeyFound, match="where no mask reaches it"):
        Redaction(mask_keys=True).apply(cassette(body=asking(packed)))


@each_of("text", ["risk-assessment-of-the-project", "test_mneme_replay_answers_again", "a\\task-of-many-words-here"])
def test_what_is_no_key_passes(text: str) -> None:
    Redaction().apply(cassette(body=asking(text), answer=asking("a" * 4000)))


def test_bytes_that_are_no_text_stay_where_they_are() -> None:
    body = b"\xff" + KEY.encode() + b"\xfe"
    assert Redaction(mask_keys=True).apply(cassette(body=body)).request.body == b"\xff" + b"*" * len(KEY) + b"\xfe"


def test_a_path_that_is_none() -> None:
    with pytest.raises(ValueError, match="is no JSON path"):
        Redaction(["user"])
