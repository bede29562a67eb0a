"""/api/v1/objects: what is seen of a session's objects and by whom, and what people may ask of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx
import pytest
from msgspec.structs import replace

from app.features.paging.store import PagingStore
from app.features.paging.values import (
    Fidelity,
    Levels,
    Relationship,
    RelationType,
    SemanticObject,
    Shrunk,
    Zone,
    handle_of,
)
from app.store.ids import LOCAL_TENANT, nobody, user_id
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.sessions import NewSession, SessionRef
from app.store.tenancy import UserRef
from tests.support.paged import fault, made, moved, record
from tests.support.rows import count_rows, read_rows, update_rows
from tests.support.wired_api import WiredApi, all_pages, error_of

Admin = asyncpg.Connection
PATH = "/api/v1/objects"
AUTH = "import jwt\n\n\ndef check(token):\n    return Response(401, 'TOKEN_EXPIRED')  # an expired token\n"


class Stage:
    """Sessions with two objects each: `auth` at its stub, and `other`, read later, that depends on it."""

    def __init__(self, api: WiredApi, pool: Pool) -> None:
        self.api = api
        self.store = PagingStore(pool, Queries.load(), api.clock)

    async def session(self, user: str | None, name: str, tenant: UUID = LOCAL_TENANT) -> SessionRef:
        whose = UserRef(user_id(tenant, user) if user else nobody(tenant), user or "")
        ref, _ = await self.api.sessions.create(tenant, whose, NewSession(name))
        return ref

    async def fill(self, ref: SessionRef, tenant: UUID = LOCAL_TENANT) -> tuple[SemanticObject, SemanticObject]:
        auth = made(ref.session_id, "auth", AUTH)
        other = made(ref.session_id, "other", "nothing of it\n" * 50, source_key=None, tags=("log",))
        await self.store.keep(tenant, ref.user_id, uuid4(), record(ref.session_id, auth))
        lines = "\n".join(AUTH.splitlines()[:2])
        levels = [Levels(auth.id, Shrunk(lines, 40, ("bodies",), ("imports",)), None, ("the body matters",))]
        await self.store.store_levels(tenant, ref.user_id, levels, {}, None)
        call = record(
            ref.session_id,
            other,
            turn=4,
            zone=Zone.WARNING,
            relationships=(Relationship(other.id, auth.id, RelationType.DEPENDS_ON),),
            transitions=(moved(auth, Fidelity.STUB, turn=4),),
            faults=(replace(fault(ref.session_id.int & 0xFFFF, auth), created_at=self.api.clock.now()),),
        )
        await self.store.keep(tenant, ref.user_id, uuid4(), call)
        return auth, other


@pytest.fixture
def stage(api: WiredApi, pool: Pool) -> Stage:
    return Stage(api, pool)


async def read(client: httpx.AsyncClient, path: str, **params: Any) -> Any:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_objects_are_listed_and_read(stage: Stage, client: httpx.AsyncClient) -> None:
    ref = await stage.session("ana", "one")
    auth, other = await stage.fill(ref)
    again = await stage.session("ana", "two")
    elsewhere, _ = await stage.fill(again)

    async def names(**params: Any) -> set[str]:
        rows = await all_pages(client, PATH, "objects", limit=1, user="ana", **params)
        assert len({each["id"] for each in rows}) == len(rows)
        return {each["id"] for each in rows}

    assert len(await names()) == 4
    assert await names(session="one") == await names(session=str(ref.session_id)) == {str(auth.id), str(other.id)}
    assert await names(session="one", fidelity=3) == {str(auth.id)}
    assert await names(key="src/auth.py") == {str(auth.id), str(elsewhere.id)}
    assert await names(session="two", tag="log", type="file_context", pinned=False) == await names(
        session="two", fidelity=0
    )
    assert await names(type="plan") == await names(pinned=True) == set()

    whole = await read(client, f"{PATH}/{auth.id}", user="ana")
    assert (whole["handle"], whole["session_id"]) == (handle_of(auth.id), str(ref.session_id))
    assert (whole["content"], whole["stub"], whole["fidelity"]) == (AUTH, "Read auth", 3)
    assert whole["tokens"] == {"l0": 300, "l1": 40, "l2": None, "l3": 12}
    assert whole["detailed"] == {
        "text": "import jwt\n", "losses": ["bodies"], "can_answer": ["imports"],
    }  # fmt: skip
    assert (whole["compact"], whole["fault_when"], whole["shrunk"]) == (None, ["the body matters"], True)
    assert whole["relationships"] == [{"source": str(other.id), "target": str(auth.id), "relationship": "depends_on"}]
    listed = (await read(client, PATH, user="ana", session="one", fidelity=3))["objects"][0]
    assert listed.items() <= whole.items(), "the list has the same without texts"


async def test_objects_are_found_by_their_words(stage: Stage, client: httpx.AsyncClient) -> None:
    ref = await stage.session("ana", "one")
    auth, other = await stage.fill(ref)
    await stage.fill(await stage.session("ana", "two"))

    async def found(**params: Any) -> list[str]:
        answer = await read(client, PATH, user="ana", session="one", **params)
        assert answer["next"] is None
        return [each["id"] for each in answer["objects"]]

    assert await found(q="expired token, nothing else") == [str(auth.id), str(other.id)], "the best first"
    assert await found(q="which token is expired?") == [str(auth.id)], "shown as its stub, and found by its content"
    assert await found(q="expired token, nothing else", tag="log") == [str(other.id)]
    assert await found(q="currency") == []
    refused = await client.get(PATH, params={"user": "ana", "q": "token"})
    assert (refused.status_code, error_of(refused)["param"]) == (400, "session")


async def test_what_became_of_an_object_and_of_a_session(stage: Stage, client: httpx.AsyncClient) -> None:
    ref = await stage.session("ana", "one")
    auth, other = await stage.fill(ref)
    events = await all_pages(client, f"{PATH}/{auth.id}/history", "events", limit=1, user="ana")
    assert sorted(each["event"] for each in events) == ["fault", "transition"]
    assert await all_pages(client, f"{PATH}/{other.id}/history", "events", user="ana") == []
    (asked,) = await all_pages(client, "/api/v1/sessions/one/faults", "faults", type="micro_fault")
    assert (asked["object_id"], asked["question"], asked["answer"]) == (str(auth.id), "where?", "there")
    assert (asked["answer_tokens"], asked["avoided_tokens"], asked["latency_ms"]) == (5, 295, 3)
    assert asked["content_hash"] == auth.content_hash.hex()
    assert await all_pages(client, "/api/v1/sessions/one/faults", "faults", type="full_restore") == []
    (change,) = await all_pages(client, "/api/v1/sessions/one/transitions", "transitions", trigger="pressure")
    assert {"object_id": str(auth.id), "before": 0, "after": 3, "turn": 4, "zone": "warning"}.items() <= change.items()
    assert {each["event"]: each for each in events} == {"fault": asked, "transition": change}
    assert await all_pages(client, "/api/v1/sessions/one/transitions", "transitions", trigger="access") == []


async def test_pressure(stage: Stage, client: httpx.AsyncClient, admin: Admin) -> None:
    ref = await stage.session("ana", "one")
    await stage.session("ana", "never paged")
    auth, other = await stage.fill(ref)
    shown = {"zone": "warning", "turn": 4, "tokens": 9000, "shown_tokens": 7800, "avoided_tokens": 5000}
    await update_rows(admin, "paged_sessions", {}, offered=True, **shown)
    await client.post(f"{PATH}/{other.id}/pin", params={"user": "ana"})
    told = await read(client, "/api/v1/sessions/one/pressure")
    also = {"budget": 10_000, "share": 0.78, "tools_offered": True, "session_id": str(ref.session_id)}
    assert (shown | also).items() <= told.items()
    assert told["objects"] == {
        "tokens": auth.tokens_l3 + other.tokens_l0, "l0": 1, "l1": 0, "l2": 0, "l3": 1, "evicted": 0, "pinned": 1,
    }  # fmt: skip
    nothing = await read(client, "/api/v1/sessions/never paged/pressure")
    assert (nothing["zone"], nothing["turn"], nothing["budget"], nothing["objects"]["tokens"]) == ("normal", None, 0, 0)


async def test_a_question_is_answered_and_recorded_as_of_no_call(stage: Stage, client: httpx.AsyncClient) -> None:
    ref = await stage.session("ana", "one")
    auth, _ = await stage.fill(ref)
    path = f"{PATH}/{auth.id}/fault"
    answer = await client.post(path, json={"question": "Which code for an expired token?", "user": "x"})
    assert answer.status_code == 400, "the user stands in the query or the header"
    answer = await client.post(path, json={"question": "Which code for an expired token?"}, params={"user": "ana"})
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert "TOKEN_EXPIRED" in told["answer"]
    assert told["content"] is None
    assert told["quotes"][0]["place"].startswith(f"src/auth.py [{handle_of(auth.id)}], line")
    fault = told["fault"]
    assert (fault["call_id"], fault["object_id"], fault["type"]) == (None, str(auth.id), "micro_fault")
    assert fault["avoided_tokens"] == 300 - fault["answer_tokens"] > 0
    newest = (await read(client, "/api/v1/sessions/one/faults"))["faults"][0]
    assert newest == fault
    shown = await read(client, f"{PATH}/{auth.id}", user="ana")
    assert (shown["fidelity"], shown["wanted"], shown["pinned"]) == (3, None, False), "it stays as it is (§3.3)"
    assert shown["micro_fault_count"] == 2
    again = await client.post(path, json={"question": "Code of the expired token?"}, params={"user": "ana"})
    assert again.status_code == 200
    assert (await read(client, f"{PATH}/{auth.id}", user="ana"))["pinned"], "what is asked again is pinned"


async def test_nothing_answers(stage: Stage, client: httpx.AsyncClient) -> None:
    auth, _ = await stage.fill(await stage.session("ana", "one"))
    answer = await client.post(f"{PATH}/{auth.id}/fault", json={"question": "Zebra?"}, params={"user": "ana"})
    told = answer.json()
    assert (told["answer"], told["quotes"], told["fault"]["object_id"]) == (None, [], None)
    newest = (await read(client, "/api/v1/sessions/one/faults"))["faults"][0]
    assert (newest["question"], newest["object_id"]) == ("Zebra?", None)


async def test_what_is_wanted_back_is_wanted_of_the_next_prompt(stage: Stage, client: httpx.AsyncClient) -> None:
    ref = await stage.session("ana", "one")
    auth, other = await stage.fill(ref)
    answer = await client.post(f"{PATH}/{auth.id}/fault", json={"restore": True}, params={"user": "ana"})
    told = answer.json()
    assert (told["content"], told["answer"], told["fault"]["type"]) == (AUTH, None, "full_restore")
    shown = await read(client, f"{PATH}/{auth.id}", user="ana")
    assert (shown["wanted"], shown["pinned"], shown["fault_count"]) == ("restore", True, 1)
    state = await stage.store.read(LOCAL_TENANT, ref.user_id, ref.session_id)
    assert state.restored == {auth.id}
    assert state.zone == Zone.NORMAL, "of a decision nothing changes"

    for wish, wanted, pinned in (("unpin", "restore", False), ("pin", "restore", True), ("release", "release", False)):
        answer = await client.post(f"{PATH}/{auth.id}/{wish}", params={"user": "ana"})
        assert answer.status_code == 200, answer.text
        # At its stub already there is nothing to release.
        expected = None if wish == "release" else wanted
        assert (answer.json()["wanted"], answer.json()["pinned"]) == (expected, pinned), wish
    answer = await client.post(f"{PATH}/{other.id}/release", params={"user": "ana"})
    assert answer.json()["wanted"] == "release"
    state = await stage.store.read(LOCAL_TENANT, ref.user_id, ref.session_id)
    assert state.restored == frozenset()
    assert state.released == {other.id}
    answer = await client.post(f"{PATH}/{other.id}/pin", params={"user": "ana"})
    assert (answer.json()["wanted"], answer.json()["pin_reason"]) == (None, "api")


async def test_a_session_without_a_user_is_reached_by_its_id(stage: Stage, client: httpx.AsyncClient) -> None:
    ref = await stage.session(None, "alone")
    auth, _ = await stage.fill(ref)
    assert (await client.get(f"{PATH}/{auth.id}", params={"user": "ana"})).status_code == 404
    found = await read(client, f"{PATH}/{auth.id}", session=str(ref.session_id))
    assert found["content"] == AUTH


async def test_two_users_see_nothing_of_each_other(stage: Stage, client: httpx.AsyncClient) -> None:
    ours, theirs = await stage.session("ana", "one"), await stage.session("bo", "one")
    await stage.fill(ours)
    auth, _ = await stage.fill(theirs)
    assert {each["session_id"] for each in (await read(client, PATH, user="ana"))["objects"]} == {str(ours.session_id)}
    unknown = await client.get(f"{PATH}/{uuid4()}", params={"user": "ana"})
    assert unknown.status_code == 404
    for method, path, body in (
        ("GET", f"{PATH}/{auth.id}", None),
        ("GET", f"{PATH}/{auth.id}/history", None),
        ("POST", f"{PATH}/{auth.id}/fault", {"question": "code?"}),
        ("POST", f"{PATH}/{auth.id}/fault", {"restore": True}),
        ("POST", f"{PATH}/{auth.id}/pin", None),
        ("POST", f"{PATH}/{auth.id}/release", None),
    ):
        for params in ({"user": "ana"}, {"user": "ana", "session": "one"}, {"session": str(ours.session_id)}):
            answer = await client.request(method, path, json=body, params=params)
            assert (answer.status_code, answer.json()) == (404, unknown.json()), (method, path, params)
    shown = await read(client, f"{PATH}/{auth.id}", user="bo")
    assert (shown["pinned"], shown["fault_count"], shown["micro_fault_count"]) == (False, 0, 1)
    for what in ("pressure", "faults", "transitions"):
        answer = await client.get(f"/api/v1/sessions/{theirs.session_id}/{what}", params={"user": "ana"})
        assert answer.status_code == 404, what


async def test_two_tenants_and_a_key_of_one_user(locked: WiredApi, pool: Pool, admin: Admin) -> None:
    stage = Stage(locked, pool)
    ours, _ = await locked.tenancy.create_key("acme", "ours")
    foreign, _ = await locked.tenancy.create_key("other", "theirs")
    confined, _ = await locked.tenancy.create_key("acme", "ana's", user="ana")
    reading, _ = await locked.tenancy.create_key("acme", "reader", scopes=["read"])
    tenant = (await read_rows(admin, "tenants", name="acme"))[0]["tenant_id"]
    hers, his = await stage.session("ana", "hers", tenant), await stage.session("bo", "his", tenant)
    (mine, _), (bos, _) = await stage.fill(hers, tenant), await stage.fill(his, tenant)
    async with locked.client(ours) as client:
        assert (await read(client, f"{PATH}/{mine.id}", user="ana"))["content"] == AUTH
        assert (await client.get(PATH)).status_code == 400, "whose?"
    async with locked.client(foreign) as client:
        for params in ({"user": "ana"}, {"user": "ana", "session": str(hers.session_id)}):
            assert (await client.get(f"{PATH}/{mine.id}", params=params)).status_code == 404
            assert (
                await client.post(f"{PATH}/{mine.id}/fault", json={"restore": True}, params=params)
            ).status_code == 404
        assert (await read(client, PATH, user="ana"))["objects"] == []
        assert (await client.get(f"/api/v1/sessions/{hers.session_id}/pressure")).status_code == 404
    async with locked.client(confined) as client:
        assert (await read(client, f"{PATH}/{mine.id}"))["content"] == AUTH
        assert (await client.get(f"{PATH}/{bos.id}")).status_code == 404
        assert (await client.get(PATH, params={"session": str(his.session_id)})).status_code == 404
        assert (await client.get(f"{PATH}/{bos.id}", params={"user": "bo"})).status_code == 403
    async with locked.client(reading) as client:
        assert (await read(client, f"{PATH}/{mine.id}", user="ana"))["content"] == AUTH
        refused = await client.post(f"{PATH}/{mine.id}/fault", json={"restore": True}, params={"user": "ana"})
        assert (refused.status_code, error_of(refused)["code"]) == (403, "missing_scope")


async def test_bad_input_is_said(stage: Stage, client: httpx.AsyncClient, admin: Admin) -> None:
    auth, _ = await stage.fill(await stage.session("ana", "one"))
    before = await count_rows(admin, "fault_history")
    bodies: tuple[Any, ...] = (
        {}, {"restore": False}, {"question": ""}, {"question": "  "}, {"question": 1}, {"question": "x" * 2001},
        {"question": "a?", "restore": True}, {"question": None}, {"restore": "perhaps"}, {"more": 1}, [], None, "x",
    )  # fmt: skip
    for body in bodies:
        answer = await client.post(f"{PATH}/{auth.id}/fault", json=body, params={"user": "ana"})
        assert answer.status_code == 400, (body, answer.text)
        assert error_of(answer)["type"] == "invalid_request_error"
    queries: tuple[dict[str, Any], ...] = (
        {"fidelity": 5}, {"fidelity": "x"}, {"type": "x"}, {"tag": ""}, {"key": "k" * 2049}, {"pinned": "x"},
        {"cursor": "x"}, {"limit": 0}, {"session": ""},
    )  # fmt: skip
    for params in queries:
        answer = await client.get(PATH, params={"user": "ana"} | params)
        assert answer.status_code == 400, params
        assert error_of(answer)["message"]
    for at in ("faults", "transitions"):
        for query in ("cursor=x", "type=x&trigger=x", "limit=1001"):
            assert (await client.get(f"/api/v1/sessions/one/{at}?{query}")).status_code == 400, (at, query)
    for name in ("x", "9f86d081", "%00", str(auth.id) + "0"):
        answer = await client.get(f"{PATH}/{name}", params={"user": "ana"})
        assert answer.status_code == 404, name
        assert error_of(answer)["message"]
    assert (await client.get(PATH, params={"session": "no such"})).status_code == 404
    assert await count_rows(admin, "fault_history") == before


async def test_a_question_that_postgres_could_not_keep(stage: Stage, client: httpx.AsyncClient) -> None:
    auth, _ = await stage.fill(await stage.session("ana", "one"))
    answer = await client.post(
        f"{PATH}/{auth.id}/fault", content=b'{"question": "expired\\u0000 token?"}', params={"user": "ana"},
        headers={"content-type": "application/json"},
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    assert answer.json()["fault"]["question"] == "expired\ufffd token?"
