from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.gateway.headers import HOP_BY_HOP, Headers, find, request_headers, response_headers
from tests.support.tables import each_of

IDENTITY = (b"accept-encoding", b"identity")


def passed(*headers: tuple[bytes, bytes], api_key: str | None = None) -> Headers:
    return request_headers(headers, api_key=api_key)


def test_other_headers_go_on_as_they_are() -> None:
    headers = [
        (b"User-Agent", b"curl/8"),
        (b"x-stainless-retry-count", b"1"),
        (b"Cookie", b"a=mneme_1; b=2"),
        (b"X-Twice", b"1"),
        (b"x-twice", b"\xff \t2"),
        (b"authorization", b"Bearer sk-1"),
        (b"OpenAI-Organization", b"mneme_org"),
        (b"idempotency-key", b"i"),
    ]
    assert passed(*headers) == [*headers, IDENTITY]


@each_of(
    "name",
    [*sorted(HOP_BY_HOP), b"host", b"Host", b"Content-Length", b"expect", b"X-Mneme-User", b"x-mneme-key"],
)
def test_headers_that_stay_behind(name: bytes) -> None:
    assert passed((name, b"1"), (b"b", b"2")) == [(b"b", b"2"), IDENTITY]


def test_headers_named_by_connection_stay_behind() -> None:
    headers = [(b"Connection", b"close, X-One"), (b"connection", b" x-two "), (b"x-one", b"1"), (b"X-Two", b"2")]
    assert passed(*headers) == [IDENTITY]
    assert response_headers(headers, 200) == []


def test_the_length_of_a_streamed_body_is_kept() -> None:
    headers = [(b"content-length", b"12")]
    assert request_headers(headers, api_key=None, streamed=True) == [*headers, IDENTITY]


def test_identity_is_asked_for_once() -> None:
    assert passed((b"Accept-Encoding", b"gzip, br")) == [IDENTITY]


def test_the_clients_coding_is_asked_for_where_nobody_reads_the_answer() -> None:
    headers = [(b"accept-encoding", b"gzip, br"), (b"a", b"b")]
    assert request_headers(headers, api_key=None, unread=True) == headers
    assert request_headers(headers[1:], api_key=None, unread=True) == headers[1:]


def test_our_own_key_replaces_the_clients() -> None:
    headers = [(b"Authorization", b"Bearer sk-client"), (b"a", b"b")]
    assert passed(*headers, api_key="sk-own") == [(b"a", b"b"), IDENTITY, (b"authorization", b"Bearer sk-own")]


@pytest.mark.parametrize(
    "header",
    [
        (b"authorization", b"Bearer mneme_abc"),
        (b"AUTHORIZATION", b"bearer   MNEME_abc"),
        (b"authorization", b"mneme_abc"),
        (b"authorization", b" mneme_abc"),
        (b"api-key", b"mneme_abc"),
        (b"x-api-key", b"mneme_abc"),
        (b"x-auth-token", b"Bearer\tmneme_abc"),
        (b"X-Mneme-Key", b"mneme_abc"),
    ],
)
@pytest.mark.parametrize("api_key", [None, "sk-own"])
def test_a_mneme_key_never_goes_upstream(header: tuple[bytes, bytes], api_key: str | None) -> None:
    assert b"mneme_" not in b"".join(value.lower() for _, value in passed(header, api_key=api_key))


TOKENS = st.sampled_from([b"a", b"Date", b"server", b"x-request-id", b"connection", b"TE", b"Transfer-Encoding"])


@given(st.lists(st.tuples(TOKENS, st.sampled_from([b"a", b"close", b"server, x"]))))
def test_order_and_duplicates_of_response_headers(headers: Headers) -> None:
    named = {token.strip() for name, value in headers if name == b"connection" for token in value.split(b",")}
    kept = [(n, v) for n, v in headers if n.lower() not in HOP_BY_HOP and n.lower() not in named]
    assert response_headers(headers, 200) == kept


def test_response_headers_that_stay_behind() -> None:
    kept = [(b"Date", b"x"), (b"date", b"y"), (b"Content-Length", b"5"), (b"x-\xff", b"\xff\t")]
    lost = [(b"x-mneme-status", b"ok"), (b"bad name", b"1"), (b"x{}", b"1"), (b"x", b"a\rb"), (b"", b"\x00")]
    assert response_headers([*kept, *lost], 200) == kept


@each_of(
    ("status", "more", "kept"),
    [
        (200, [], True),
        (404, [], True),
        (204, [], False),
        (304, [], False),
        (200, [(b"Transfer-Encoding", b"chunked")], False),
    ],
)
def test_a_length_without_a_body_is_dropped(status: int, more: Headers, kept: bool) -> None:
    assert (find(response_headers([(b"Content-Length", b"5"), *more], status), b"content-length") is not None) == kept


def test_find() -> None:
    headers = [(b"A", b"1"), (b"a", b"2")]
    assert find(headers, b"a") == b"1"
    assert find(headers, b"b") is None
