"""Fault 9: clients that send anything. What is not Mneme's to judge goes on as it came; what is, is refused in words.

The routes of `/api/v1` are tried case by case in tests/integration/api (test_schema_fuzz by schemathesis, test_hostile_routes),
strange requests one by one in tests/acceptance/test_bad_input.py. Here: any bytes at all, on the real server with memory on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.clients import Api, error_of
from tests.support.database import connected
from tests.support.ledger import CHAT
from tests.support.replies import reply_json
from tests.support.rows import read_calls, read_messages, read_sessions, read_streams
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

ANSWER = {"choices": [{"message": {"role": "assistant", "content": "Be that as it may."}, "finish_reason": "stop"}]}
DEEP = 100_000
LIMIT = 1024 * 1024


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream(reply_json(ANSWER)) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def mneme(
    tmp_path_factory: pytest.TempPathFactory, module_database: str, upstream: ScriptedUpstream
) -> Iterator[MnemeServer]:
    folder = tmp_path_factory.mktemp("mneme")
    given = {"MAX_BODY_BYTES": str(LIMIT)}
    with MnemeServer(folder, database=module_database, upstream=upstream.url, worker=True, settings=given) as server:
        yield server


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["\0", "\ud800", "user"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool", "function", "x", "", None, 7])
CONTENTS = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url", "x"])}, optional={"text": VALUES}),
        max_size=3,
    ),
    VALUES,
)
MESSAGES = st.fixed_dictionaries(
    {"role": ROLES, "content": CONTENTS},
    optional={"name": VALUES, "tool_calls": VALUES, "tool_call_id": VALUES, "refusal": VALUES, "": VALUES},
)
DOCUMENTS = st.fixed_dictionaries(
    {"model": st.just("gpt-4o") | VALUES, "messages": st.lists(MESSAGES, max_size=4) | VALUES},
    optional={
        "stream": VALUES, "user": VALUES, "metadata": VALUES, "n": VALUES, "max_tokens": VALUES, "temperature": VALUES,
        "tools": VALUES, "stream_options": VALUES, "safety_identifier": VALUES, "x": VALUES,
    },
)  # fmt: skip


def written(document: Any) -> bytes:
    """As JSON that says all of Python's values, lone surrogates and NaN too."""
    return json.dumps(document).encode()


def spoiled(body: bytes, at: int, noise: bytes) -> bytes:
    return body[:at] + noise + body[at:]


BODIES = st.one_of(
    DOCUMENTS.map(written),
    DOCUMENTS.map(written),
    st.builds(spoiled, DOCUMENTS.map(written), st.integers(0, 400), st.binary(max_size=4)),
    st.tuples(DOCUMENTS.map(written), st.integers(0, 400)).map(lambda t: t[0][: t[1]]),
    st.binary(max_size=100),
)


@pytest.mark.parametrize("examples", [60, pytest.param(3000, marks=[pytest.mark.heavy, pytest.mark.timeout(900)])])
async def test_any_body_reaches_the_upstream_or_is_refused_in_words(
    mneme: MnemeServer, upstream: ScriptedUpstream, module_database: str, examples: int
) -> None:
    api = Api(mneme, user="ana")
    seen = {"forwarded": 0, "refused": 0}

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=examples < 100,
        suppress_health_check=list(HealthCheck),
    )
    @given(body=BODIES)
    def run(body: bytes) -> None:
        upstream.requests.clear()
        headers = {"x-mneme-user": "ana", "content-type": "application/json"}
        answer = mneme.http.post(CHAT, content=body, headers=headers)
        sent = [each for each in upstream.requests if each.path == CHAT]
        if answer.status_code == 200:
            seen["forwarded"] += 1
            assert answer.json() == ANSWER
            call = answer.headers["x-mneme-call-id"]
            assert api.request(call) == body
            assert [each.body for each in sent] == [api.request(call, sent=True)]
            assert answer.headers["x-mneme-status"] in ("ok", "bypass"), answer.headers
        else:
            seen["refused"] += 1
            assert 400 <= answer.status_code < 500, answer.text
            error_of(answer)
            assert sent == []

    run()
    print(seen)
    assert seen["forwarded"] > examples / 2
    api.wait_for_quiet()
    async with connected(module_database) as admin:
        sessions = {(row["user_id"], row["session_id"]) for row in await read_sessions(admin)}
        calls = {(row["user_id"], row["call_id"]): row for row in await read_calls(admin)}
        streams = {(row["user_id"], row["call_id"]) for row in await read_streams(admin)}
        messages = await read_messages(admin)
    assert {(row["user_id"], row["session_id"]) for row in messages} <= sessions
    assert {(row["user_id"], row["call_id"]) for row in messages if row["call_id"] is not None} <= set(calls)
    assert {key for key, row in calls.items() if row["status"] is not None} <= streams


ROUTES = ["/api/v1/memories", "/api/v1/memories/search", "/api/v1/context", "/api/v1/sessions", "/api/v1/users"]
HOSTILE = {
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"user":' * DEEP + b"1" + b"}" * DEEP,
    "half of it": b'{"user": "ana", "query": "x',
    "no UTF-8": b'{"user": "ana\xff\xfe", "query": "x"}',
    "UTF-16": '{"user": "ana"}'.encode("utf-16"),
    "wrong types": b'{"user": {"a": []}, "query": 7, "text": [null], "messages": "x", "k": "many", "id": {}}',
    "numbers beyond all": b'{"user": "ana", "query": "x", "k": 1e400, "token_budget": -99999999999999999999}',
    "not a number": b'{"user": "ana", "query": "x", "k": NaN}',
    "a lone surrogate": b'{"user": "\\ud800", "query": "\\udfff", "text": "\\ud800"}',
    "nothing": b"",
    "null": b"null",
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_hostile_is_refused_in_openais_shape(mneme: MnemeServer, route: str, name: str) -> None:
    answer = mneme.http.post(route, content=HOSTILE[name], headers={"content-type": "application/json"})
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        error_of(answer)
    else:
        assert name in ("a lone surrogate", "no UTF-8", "deep objects", "wrong types"), answer.text


@pytest.mark.parametrize("name", ["deep lists", "deep objects"])
def test_depth_is_the_upstreams_to_judge(mneme: MnemeServer, upstream: ScriptedUpstream, name: str) -> None:
    upstream.requests.clear()
    for body in (HOSTILE[name], b'{"model": "m", "messages": [{"role": "user", "content": ' + HOSTILE[name] + b"}]}"):
        answer = mneme.http.post(CHAT, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 200, answer.text
        assert upstream.requests[-1].body == body


@pytest.mark.parametrize("route", [CHAT, *ROUTES])
def test_a_body_over_the_limit_is_a_413(mneme: MnemeServer, route: str) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(LIMIT // 65536 + 2):
            yield b"x" * 65536

    for content in (b"x" * (LIMIT + 1), endless()):
        answer = mneme.http.post(route, content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 413
        error_of(answer)
