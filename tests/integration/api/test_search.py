"""POST /api/v1/memories/search and /api/v1/context: what the compiler is asked, and how its answer is shown."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import httpx

from app.context.request import SearchResult
from app.context.score import Scored
from app.store import ids
from app.store.ids import LOCAL_TENANT
from app.store.sessions import NewSession
from app.store.tenancy import UserRef
from tests.support.context_samples import memory, message
from tests.support.wired_api import WiredApi, error_of


async def test_what_the_compiler_is_asked(client: httpx.AsyncClient, api: WiredApi) -> None:
    body = {
        "user": "ana", "query": "where?", "k": 5, "token_budget": 100, "tiers": [3], "kinds": ["fact"], "history": True,
        "now": "2024-01-01T00:00:00Z", "profile": "temporal_focused",
    }  # fmt: skip
    assert (await client.post("/api/v1/memories/search", json=body)).status_code == 200
    (asked,) = api.searcher.asked
    assert asked.scope.tenant_id == LOCAL_TENANT
    assert asked.scope.user_id == ids.user_id(LOCAL_TENANT, "ana")
    assert asked.scope.session is None
    assert asked.scope.confine is None
    assert asked.scope.history is True
    assert (asked.query, asked.k, asked.token_budget, asked.now) == ("where?", 5, 100, datetime(2024, 1, 1, tzinfo=UTC))
    assert (list(asked.tiers or ()), list(asked.kinds or ())) == ([3], ["fact"])
    assert asked.profile == "temporal_focused"


async def test_a_profile_that_is_none_is_refused(client: httpx.AsyncClient) -> None:
    for path, body in (("memories/search", {"query": "x"}), ("context", {"query": "x"})):
        answer = await client.post(f"/api/v1/{path}", json=body | {"profile": "best"})
        assert answer.status_code == 400, answer.text
        assert error_of(answer)["param"] == "profile"


async def test_a_preview_by_a_profile(client: httpx.AsyncClient, api: WiredApi) -> None:
    for given in ({}, {"profile": "strategy"}):
        assert (await client.post("/api/v1/context", json={"query": "x"} | given)).status_code == 200
        assert api.previewer.asked[-1].profile == given.get("profile", "auto")


async def test_whose_memory_is_searched(client: httpx.AsyncClient, api: WiredApi) -> None:
    tenant = LOCAL_TENANT
    made, _ = await api.sessions.create(tenant, UserRef(ids.user_id(tenant, "ana"), "ana"), NewSession(external="s"))
    nobody, _ = await api.sessions.create(tenant, UserRef(ids.nobody(tenant), ""), NewSession(external="anonymous"))
    local = ids.user_id(tenant, "local")
    for body, headers, user, session, confine in (
        ({}, {}, local, None, None),
        ({}, {"X-Mneme-User": "bob"}, ids.user_id(tenant, "bob"), None, None),
        ({"user": "ana", "session": "s"}, {}, made.user_id, made.session_id, None),
        ({"session": "s"}, {}, made.user_id, made.session_id, None),
        ({"session": str(made.session_id)}, {}, made.user_id, made.session_id, None),
        ({"session": "not yet"}, {}, local, None, None),
        ({"user": "bob", "session": "not yet"}, {}, ids.user_id(tenant, "bob"), None, None),
        ({"session": "anonymous"}, {}, nobody.user_id, nobody.session_id, nobody.session_id),
    ):
        answer = await client.post("/api/v1/memories/search", json={"query": "x"} | body, headers=headers)
        assert answer.status_code == 200, answer.text
        scope = api.searcher.asked[-1].scope
        assert (scope.user_id, scope.session, scope.confine) == (user, session, confine), body


async def test_how_an_answer_is_shown(client: httpx.AsyncClient, api: WiredApi) -> None:
    one, two = message(1, "Lives in Lisbon"), memory(2, "Lives in Porto")
    api.searcher.result = SearchResult(
        [Scored(one, 0.9, 0.8, ("similarity",), (0.5,)), Scored(two, 0.1, 0.1, ("similarity",), (0.1,))],
        tokens=one.token_count + two.token_count,
        statuses={two.id: "superseded"},
        widened=[(UUID(int=7), ("invoice",))],
    )
    found = (await client.post("/api/v1/memories/search", json={"user": "ana", "query": "x"})).json()
    assert set(found) == {"items", "tokens", "widened", "took_ms"}
    assert found["widened"] == [{"procedure": str(UUID(int=7)), "words": ["invoice"]}]
    assert found["tokens"] == one.token_count + two.token_count
    assert [each["text"] for each in found["items"]] == ["Lives in Lisbon", "Lives in Porto"]
    assert [each["status"] for each in found["items"]] == ["active", "superseded"]
    item = found["items"][0]
    assert item["id"] == str(one.id)
    assert item["kind"] == one.kind
    assert item["score"] == 0.9
    assert item["signals"] == {"similarity": 0.5}
    assert item["provenance"] == [
        {
            "session": each.session,
            "message_id": str(each.message_id),
            "turn_index": each.turn_index,
            "metadata": dict(each.metadata),
        }
        for each in one.provenance
    ]


async def test_compile_only(client: httpx.AsyncClient, api: WiredApi) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}], "unknown": 1}]
    body = {"user": "ana", "session": "s", "model": "m", "messages": messages, "max_tokens": 10}
    answer = await client.post("/api/v1/context", json=body)
    assert answer.json()["messages"] == messages
    (asked,) = api.previewer.asked
    assert asked.user.external == "ana"
    assert (asked.session, asked.model, asked.max_tokens) == ("s", "m", 10)
    await client.post("/api/v1/context", json={"query": "hi"})
    assert api.previewer.asked[-1].messages == [{"role": "user", "content": "hi"}]
    assert api.previewer.asked[-1].user.external == "local"
    refused = await client.post("/api/v1/context", json={"messages": ["hi"]})
    assert error_of(refused)["param"] == "messages.0"
