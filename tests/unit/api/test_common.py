"""Strict JSON, texts, cursors, and the bound of a body: without an app."""

from __future__ import annotations

import base64
import contextlib
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import orjson
import pytest
from fastapi import APIRouter, FastAPI
from hypothesis import given
from hypothesis import strategies as st

from app.api.common import (
    MAX_JSON_DEPTH,
    ApiMiddleware,
    add_routes,
    clean,
    decode_cursor,
    encode_cursor,
    is_json,
    paged,
    parse_json,
    utc,
)
from app.errors import BadBody, BadRequest
from tests.support.tables import each_of

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_json_is_read_but_for_nul(value: Any) -> None:
    try:
        text = orjson.dumps(value)
    except TypeError:  # a lone surrogate
        return
    expected = orjson.loads(text.replace(b"\\u0000", "\ufffd".encode())) if b"\\\\" not in text else None
    read = parse_json(text)
    if expected is not None:
        assert read == expected
    assert "\0" not in str(read)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(BadBody):
        parse_json(body)


@each_of(
    "body",
    [
        b"", b" ", b"{", b"nul", b"NaN", b"Infinity", b"1e400", b"\xff", b"[1,]",
        b"'a'", b"[" * 100_000, b'{"a":' * 3000,
    ],
)  # fmt: skip
def test_what_is_no_json(body: bytes) -> None:
    with pytest.raises(BadBody):
        parse_json(body)


@each_of(
    ("body", "value"),
    [
        (b'"a \\ud800"', "a \ufffd"), (b'"\\udc00\\ud800"', "\ufffd\ufffd"), (b'{"\\ud83d":"b"}', {"\ufffd": "b"}),
        (b'"\\ud83d\\ude00"', "\U0001f600"), (b'"a \xff"', "a \ufffd"), (b'"a\\u0000 \\udc00"', "a\ufffd \ufffd"),
        (b"\xef\xbb\xbf1", 1),
    ],
)  # fmt: skip
def test_a_replacement_stands_for_invalid_text(body: bytes, value: object) -> None:
    assert parse_json(body) == value


def test_depth_is_bounded() -> None:
    for left, right in ((b"[", b"]"), (b'{"a":', b"}")):
        parse_json(left * MAX_JSON_DEPTH + b"1" + right * MAX_JSON_DEPTH)
        with pytest.raises(BadBody, match="nested deeper"):
            parse_json(left * (MAX_JSON_DEPTH + 1) + b"1" + right * (MAX_JSON_DEPTH + 1))
    wide: list[object] = [[] for _ in range(1000)]
    assert parse_json(orjson.dumps(wide)) == wide


def test_texts_are_made_fit_for_postgres() -> None:
    assert clean("a\0b") == "a\ufffdb"
    assert clean("a\U0001f600") == "a\U0001f600"
    with pytest.raises(ValueError, match="lone surrogate"):
        clean("\ud83d")


@each_of(
    ("kind", "expected"),
    [
        ("application/json", True), ("Application/JSON; charset=utf-8", True), ("application/problem+json", True),
        ("text/json", False), ("text/plain", False), ("application/jsonl", False), (None, False), ("", False),
    ],
)  # fmt: skip
def test_what_is_called_json(kind: str | None, expected: bool) -> None:
    assert is_json(kind) is expected


def test_times_are_utc() -> None:
    assert utc(datetime(2024, 1, 1)) == datetime(2024, 1, 1, tzinfo=UTC)
    assert utc(datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))) == datetime(2024, 1, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match="outside"):
        utc(datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))))


@given(st.datetimes(timezones=st.just(UTC)), st.uuids(), st.integers(-(2**30), 2**30), st.text())
def test_a_cursor_comes_back(at: datetime, identity: UUID, number: int, text: str) -> None:
    kinds = (datetime, UUID, int, str)
    assert decode_cursor(encode_cursor([at, identity, number, text]), kinds) == (
        at, identity, number, text.replace("\0", "\ufffd"),
    )  # fmt: skip
    assert decode_cursor(None, kinds) is None


@given(st.text(max_size=40) | st.binary(max_size=30).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_no_other_cursor_is_taken(cursor: str) -> None:
    for kinds in ((int,), (UUID,), (datetime, UUID), (str,)):
        with contextlib.suppress(BadRequest):
            found = decode_cursor(cursor, kinds)
            assert found is not None
            assert all(isinstance(part, kind) for part, kind in zip(found, kinds, strict=True))


@each_of(
    ("parts", "kinds"),
    [
        ([1], (str,)), (["x"], (int,)), ([True], (int,)), ([2**31], (int,)), ([1.5], (int,)), ([[]], (str,)), ([1, 2], (int,)),
        (["x"], (UUID,)), (["2024-13-01"], (datetime,)), (["0001-01-01T00:00:00+14:00"], (datetime,)), ([], (int,)),
    ],
)  # fmt: skip
def test_cursors_of_another_list(parts: list[object], kinds: tuple[type, ...]) -> None:
    with pytest.raises(BadRequest):
        decode_cursor(encode_cursor(parts), kinds)


def test_a_page_ends_where_the_rows_do() -> None:
    assert paged([1, 2, 3], 3, lambda row: (row,)) == ([1, 2, 3], None)
    page, following = paged([1, 2, 3, 4], 3, lambda row: (row,))
    assert page == [1, 2, 3]
    assert decode_cursor(following, (int,)) == (3,)
    assert paged([], 3, lambda row: (row,)) == ([], None)


class Inner:
    """An app that reads its body and answers in two parts."""

    def __init__(self) -> None:
        self.path = ""
        self.read = b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.path = scope["path"]
        try:
            while True:
                message = await receive()
                self.read += message.get("body", b"")
                if not message.get("more_body"):
                    break
        except Exception:  # noqa: BLE001  # as a framework does, which answers that the body cannot be read
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"fine"})


async def call(
    inner: Inner, path: str, raw: bytes, body: list[bytes], length: int | None = None
) -> list[dict[str, Any]]:
    headers = [(b"content-length", str(length).encode())] if length is not None else []
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": raw, "headers": headers, "query_string": b""}
    parts = iter(body)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        part = next(parts, None)
        return {"type": "http.request", "body": part or b"", "more_body": part is not None}

    async def send(message: Any) -> None:
        sent.append(message)

    await ApiMiddleware(inner, max_bytes=10)(scope, receive, send)
    return sent


@each_of(
    ("body", "length", "status"),
    [
        ([b"x" * 10], None, 200), ([b"x" * 5, b"x" * 5], 10, 200), ([b"x" * 11], None, 413), ([b"x" * 6, b"x" * 5], None, 413),
        ([b"x"], 11, 413), ([b"x"], 10**30, 413), ([], None, 200),
    ],
)  # fmt: skip
async def test_a_body_is_bounded(body: list[bytes], length: int | None, status: int) -> None:
    sent = await call(Inner(), "/api/v1/x", b"/api/v1/x", body, length)
    assert [each["type"] for each in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == status
    if status == 413:
        assert orjson.loads(sent[1]["body"])["error"]["type"] == "invalid_request_error"


async def test_other_paths_are_left_alone() -> None:
    inner = Inner()
    sent = await call(inner, "/v1/x", b"/v1/x%2Fy", [b"x" * 100], 100)
    assert sent[0]["status"] == 200
    assert inner.read == b"x" * 100
    assert inner.path == "/v1/x"


async def test_an_encoded_slash_stays_in_its_segment() -> None:
    inner = Inner()
    await call(inner, "/api/v1/x/a/b c", b"/api/v1/x/a%2fb%20c?q=%2F", [])
    assert inner.path.count("/") == 4
    assert inner.path.replace("\ufdd0", "/") == "/api/v1/x/a/b c"


def test_routes_are_taken_as_they_were_made() -> None:
    app, router = FastAPI(), APIRouter(prefix="/told", tags=["telling"])
    router.add_api_route("/words", lambda: None, methods=["PUT"])
    add_routes(app, router)
    assert router.routes[0] in app.routes
    assert app.openapi()["paths"]["/told/words"]["put"]["tags"] == ["telling"]
