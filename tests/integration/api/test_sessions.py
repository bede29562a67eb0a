"""/api/v1/sessions and /api/history over real Postgres."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import orjson

from app.context.transcript import Transcript
from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.turns import TurnStore
from tests.support.cases import cases
from tests.support.context_samples import tail_of
from tests.support.rows import count_rows, read_jobs, read_rows, set_message, set_session, set_summary, suppress
from tests.support.wired_api import HashEmbedder, WiredApi, all_pages, error_of

TURN = [{"role": "user", "content": "I'm vegetarian."}, {"role": "assistant", "content": "Noted."}]


async def append(
    client: httpx.AsyncClient, session: str, messages: list[dict[str, Any]], **fields: Any
) -> dict[str, Any]:
    answer = await client.post(f"/api/v1/sessions/{session}/messages", json={"messages": messages} | fields)
    assert answer.status_code == 201, answer.text
    added: dict[str, Any] = answer.json()
    return added


async def test_a_session_is_made_once(client: httpx.AsyncClient) -> None:
    body = {"user": "ana", "id": "trip", "type": "support", "metadata": {"n": 1}}
    first = await client.post("/api/v1/sessions", json=body)
    again = await client.post("/api/v1/sessions", json=body)

    assert (first.status_code, again.status_code) == (201, 200)
    made = first.json()
    assert made["external_id"] == "trip"
    assert made["user"] == "ana"
    assert made["status"] == "active"
    assert made["type"] == "support"
    assert made["metadata"] == {"n": 1}
    assert again.json() == made | {"created": False}
    for name in (made["id"], "trip"):
        assert (await client.get(f"/api/v1/sessions/{name}")).json()["id"] == made["id"]
    # An id that Mneme issued is accepted as it is.
    assert (await client.post("/api/v1/sessions", json={"user": "ana", "id": made["id"]})).json()["id"] == made["id"]


async def test_a_session_has_its_own_paging(client: httpx.AsyncClient) -> None:
    given = {"user": "ana", "id": "first", "config": {"paging": "on", "paging_budget_tokens": None}}
    assert (await client.post("/api/v1/sessions", json=given)).json()["config"] == {"paging": "on"}
    await client.post("/api/v1/sessions", json={"user": "ana", "id": "trip"})
    path = "/api/v1/sessions/trip"
    assert (await client.get(path)).json()["config"] == {}
    for change, config in (
        ({"paging": "on", "paging_budget_tokens": 4000}, {"paging": "on", "paging_budget_tokens": 4000}),
        ({"paging": "off"}, {"paging": "off", "paging_budget_tokens": 4000}),
        ({}, {"paging": "off", "paging_budget_tokens": 4000}),
        ({"paging": None}, {"paging_budget_tokens": 4000}),
        ({"paging_budget_tokens": None}, {}),
    ):
        answer = await client.patch(path, json={"config": change})
        assert (answer.status_code, answer.json()["config"]) == (200, config)
    listed = (await client.get("/api/v1/sessions", params={"user": "ana"})).json()["sessions"]
    assert {each["external_id"]: each["config"] for each in listed} == {"first": {"paging": "on"}, "trip": {}}
    assert (await client.patch("/api/v1/sessions/none", json={"config": {}})).status_code == 404


@cases(
    "body",
    [
        {}, {"config": None}, {"config": {"paging": True}}, {"config": {"paging": "maybe"}}, {"config": {"budget": 1}},
        *({"config": {"paging_budget_tokens": n}} for n in (0, -1, 999, "4000", 4000.5, True, 10**16, 10**400)),
    ],
)  # fmt: skip
async def test_what_a_session_cannot_choose_is_refused(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    await client.post("/api/v1/sessions", json={"user": "ana", "id": "trip"})
    answer = await client.patch("/api/v1/sessions/trip", json=body)
    assert answer.status_code == 400, answer.text
    error_of(answer)
    assert (await client.get("/api/v1/sessions/trip")).json()["config"] == {}


async def test_a_session_without_a_name(client: httpx.AsyncClient) -> None:
    made = (await client.post("/api/v1/sessions", json={"user": "ana"})).json()
    assert made["external_id"] is None
    assert (await client.get(f"/api/v1/sessions/{made['id']}")).status_code == 200


async def test_a_name_that_two_users_have_must_say_whose(client: httpx.AsyncClient) -> None:
    for user in ("ana", "bob"):
        await client.post("/api/v1/sessions", json={"user": user, "id": "main"})

    answer = await client.get("/api/v1/sessions/main/history")
    assert answer.status_code == 409
    assert error_of(answer)["code"] == "ambiguous_session"
    for user in ("ana", "bob"):
        by_header = await client.get("/api/v1/sessions/main", headers={"X-Mneme-User": user})
        by_query = await client.get("/api/v1/sessions/main", params={"user": user})
        assert by_header.json()["user"] == by_query.json()["user"] == user
    assert (await client.get("/api/v1/sessions/main", params={"user": "cleo"})).status_code == 404


async def test_names_may_hold_anything(client: httpx.AsyncClient) -> None:
    name = "2024/05 späß?#%2F"
    await client.post("/api/v1/sessions", json={"user": "a/b", "id": name})
    path = "/api/v1/sessions/2024%2F05%20sp%C3%A4%C3%9F%3F%23%252F"
    assert (await client.get(path)).json()["external_id"] == name
    assert (await client.get(path + "/history")).json() == {"messages": [], "next": None}
    assert (await client.get("/api/v1/users/a%2Fb")).json()["id"] == "a/b"


async def test_listing_and_closing(client: httpx.AsyncClient, api: WiredApi) -> None:
    for i in range(5):
        await client.post("/api/v1/sessions", json={"user": ("ana", "bob")[i % 2], "id": f"s{i}"})
        api.clock.move(timedelta(seconds=1))
    await append(client, "s2", TURN, user="ana")
    closed = await client.post("/api/v1/sessions/s2/close")
    again = await client.post("/api/v1/sessions/s2/close")

    assert closed.json()["status"] == "closed"
    assert again.json() == closed.json()
    rows = await all_pages(client, "/api/v1/sessions", "sessions", limit=2)
    assert [each["external_id"] for each in rows] == ["s4", "s3", "s2", "s1", "s0"]
    of_ana = await all_pages(client, "/api/v1/sessions", "sessions", limit=2, user="ana")
    assert [each["external_id"] for each in of_ana] == ["s4", "s2", "s0"]
    (ended,) = await all_pages(client, "/api/v1/sessions", "sessions", status="closed")
    assert ended["message_count"] == 2


async def test_pausing(client: httpx.AsyncClient) -> None:
    await append(client, "s", TURN, user="ana")
    paused = await client.patch("/api/v1/sessions/s", json={"status": "paused"})
    assert (paused.status_code, paused.json()["status"]) == (200, "paused")
    await append(client, "s", TURN, user="ana")
    (held,) = await all_pages(client, "/api/v1/sessions", "sessions", status="paused")
    assert (held["external_id"], held["message_count"]) == ("s", 4)
    again = await client.patch("/api/v1/sessions/s", json={"status": "active", "config": {"paging": "on"}})
    assert (again.json()["status"], again.json()["config"]) == ("active", {"paging": "on"})
    assert (await client.patch("/api/v1/sessions/s", json={})).status_code == 400
    assert (await client.patch("/api/v1/sessions/s", json={"status": "closed"})).status_code == 400
    await client.post("/api/v1/sessions/s/close")
    refused = await client.patch("/api/v1/sessions/s", json={"status": "paused", "config": {"paging": "off"}})
    assert (refused.status_code, refused.json()["error"]["param"]) == (409, "status")
    kept = (await client.get("/api/v1/sessions/s")).json()
    assert (kept["status"], kept["config"]) == ("closed", {"paging": "on"})


async def test_messages_are_added_and_read_back_whole(client: httpx.AsyncClient) -> None:
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": parts,
            "name": "Ana",
            "metadata": {"n": 1},
            "created_at": "2024-05-01T10:00:00+02:00",
        },
        {"role": "assistant", "content": None, "tool_calls": calls, "refusal": None, "annotations": []},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    ]
    added = await append(client, "s", messages, user="ana")

    assert added["created"] is True
    assert [each["turn_index"] for each in added["messages"]] == [1, 2, 3, 4]
    rows = (await client.get("/api/v1/sessions/s/history")).json()["messages"]
    assert (await client.get("/api/history/s")).json()["messages"] == rows
    assert [each["id"] for each in rows] == [each["id"] for each in added["messages"]]
    assert [each["role"] for each in rows] == ["system", "user", "assistant", "tool"]
    assert [each["content"] for each in rows] == ["Be brief.", parts, None, "42"]
    assert [each["parent_id"] for each in rows] == [None, rows[0]["id"], rows[1]["id"], rows[2]["id"]]
    assert rows[1]["name"] == "Ana"
    assert rows[1]["metadata"] == {"n": 1}
    assert rows[1]["created_at"] == "2024-05-01T08:00:00Z"
    assert rows[2]["tool_calls"] == calls
    assert rows[3]["tool_call_id"] == "c1"
    assert rows[0]["token_count"] == 2


async def test_history_pages_hold_everything_once(client: httpx.AsyncClient) -> None:
    for part in range(3):
        await append(client, "s", [{"role": "user", "content": f"{part} {i}"} for i in range(5)], user="ana")
    for limit in (1, 2, 7, 1000):
        rows = await all_pages(client, "/api/v1/sessions/s/history", "messages", limit=limit)
        assert [each["content"] for each in rows] == [f"{part} {i}" for part in range(3) for i in range(5)]
        assert [each["turn_index"] for each in rows] == list(range(1, 16))


async def test_history_is_read_backwards(client: httpx.AsyncClient) -> None:
    await append(client, "s", [{"role": "user", "content": f"{i}"} for i in range(1, 8)], user="ana")

    async def read(**params: int) -> list[int]:
        answer = await client.get("/api/v1/sessions/s/history", params=params)
        assert answer.status_code == 200, answer.text
        return [each["turn_index"] for each in answer.json()["messages"]]

    assert await read(last=3) == [5, 6, 7]
    assert await read(last=3, before=5) == [2, 3, 4]
    assert await read(last=3, before=2) == [1]
    assert await read(last=3, before=1) == []
    assert await read(last=3, before=100) == [5, 6, 7]
    refused = await client.get("/api/v1/sessions/s/history", params={"before": 5})
    assert (refused.status_code, error_of(refused)["param"]) == (400, "before")


async def test_added_messages_are_learned_from(client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    added = await append(client, "s", TURN, user="ana")
    (job,) = await read_jobs(admin)
    assert (job["entrypoint"], orjson.loads(job["payload"])["messages"]) == (
        "learn",
        [each["id"] for each in added["messages"]],
    )
    await append(client, "s", TURN, learn=False)
    assert await count_rows(admin, "pgqueuer") == 1
    assert await count_rows(admin, "embeddings", item_kind=0) == 2
    assert await count_rows(admin, "conversation_history", hidden=False) == 2
    assert len((await client.get("/api/v1/sessions/s/history")).json()["messages"]) == 4


async def test_a_transcript_goes_on_from_added_messages(client: httpx.AsyncClient, pool: Pool) -> None:
    """The gateway recognises a session that was filled here as one of its own."""
    said = [*TURN, {"role": "user", "content": "And I live in Lisbon."}, {"role": "assistant", "content": "Lovely."}]
    first = await append(client, "s", said[:2], user="ana")
    await append(client, "s", said[2:])
    turns, user = TurnStore(pool, Queries.load()), ids.user_id(ids.LOCAL_TENANT, "ana")

    async def recognise(messages: list[dict[str, Any]]) -> Any:
        own = Transcript.of(messages)
        return await turns.recognise(
            ids.LOCAL_TENANT, user,
            chains=[chain for i in own.answered if (chain := own.chains[i])], whole=own.chains[-1],
            tail1=tail_of(own, 1), tail2=tail_of(own, 2),
        )  # fmt: skip

    goes_on = await recognise([*said, {"role": "user", "content": "Dinner?"}])
    assert goes_on.how == "chain"
    assert str(goes_on.session_id) == first["session_id"]
    assert (goes_on.head_turn_index, goes_on.head_position) == (4, 1)
    assert goes_on.tip_turn_index == 4
    assert goes_on.tip_chain == Transcript.of(said).chains[-1]
    branch = await recognise([*said[:2], {"role": "user", "content": "Dinner?"}])
    assert (branch.how, branch.head_turn_index) == ("chain", 2)
    again = await recognise(said[:3])
    assert (again.how, again.asked_turn_index) == ("asked", 3)
    for cut in (said[2:], said):
        beheaded = await recognise([*cut[-2:], {"role": "user", "content": "Dinner?"}])
        assert beheaded.how == "tail"
        assert str(beheaded.session_id) == first["session_id"]


async def test_a_branch_shows_what_it_shares(client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    trunk = await append(client, "trunk", [{"role": "user", "content": f"t{i}"} for i in range(4)], user="ana")
    made = (await client.post("/api/v1/sessions", json={"user": "ana", "id": "branch"})).json()
    twig = (await client.post("/api/v1/sessions", json={"user": "ana", "id": "twig"})).json()
    for child, parent, at in ((made["id"], trunk["session_id"], 2), (twig["id"], made["id"], 3)):
        await set_session(admin, child, parent_session_id=parent, branch_turn_index=at, turn_count=at)
    await append(client, "branch", [{"role": "user", "content": f"b{i}"} for i in range(2)])
    await append(client, "twig", [{"role": "user", "content": "w"}])

    rows = await all_pages(client, "/api/v1/sessions/twig/history", "messages", limit=2)
    assert [each["content"] for each in rows] == ["t0", "t1", "b0", "w"]
    assert [each["session_id"] for each in rows] == [trunk["session_id"]] * 2 + [made["id"], twig["id"]]
    back = await client.get("/api/v1/sessions/twig/history", params={"last": 2, "before": 4})
    assert [each["content"] for each in back.json()["messages"]] == ["t1", "b0"]

    async def branches(of: str) -> list[str]:
        answer = await client.get("/api/v1/sessions", params={"parent": of})
        assert answer.status_code == 200, answer.text
        return [each["external_id"] for each in answer.json()["sessions"]]

    assert [await branches(each) for each in ("trunk", made["id"], "twig")] == [["branch"], ["twig"], []]
    assert (await client.get("/api/v1/sessions", params={"parent": "none"})).status_code == 404


async def test_suppressed_messages_are_not_shown(client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    added = await append(client, "s", [{"role": "user", "content": c} for c in "abc"], user="ana")
    for i, reason in ((0, "forgotten"), (1, "superseded")):
        await suppress(admin, ids.user_id(ids.LOCAL_TENANT, "ana"), added["messages"][i]["id"], reason)
    rows = (await client.get("/api/v1/sessions/s/history")).json()["messages"]
    assert [each["content"] for each in rows] == ["b", "c"]


async def test_times_out_of_bounds_are_refused(client: httpx.AsyncClient, api: WiredApi) -> None:
    ahead = (api.clock.now() + timedelta(days=2)).isoformat()
    for at in (ahead, "1969-12-31T23:59:59Z", datetime(1, 1, 1, tzinfo=UTC).isoformat()):
        body = {"user": "ana", "messages": [{"role": "user", "content": "x", "created_at": at}]}
        answer = await client.post("/api/v1/sessions/s/messages", json=body)
        assert answer.status_code == 400, at
        assert error_of(answer)["param"] == "created_at"
    assert (await client.get("/api/v1/sessions")).json()["sessions"] == []


async def test_the_local_user_is_used_where_nobody_is_named(client: httpx.AsyncClient) -> None:
    await append(client, "s", TURN)
    assert (await client.get("/api/v1/sessions/s")).json()["user"] == "local"


async def test_an_id_that_was_given_to_anothers_session_begins_none(client: httpx.AsyncClient) -> None:
    said = {"messages": [{"role": "user", "content": "hi"}]}
    made = (await client.post("/api/v1/sessions/own/messages", json={"user": "ana", **said})).json()["session_id"]
    for answer in (
        await client.post(f"/api/v1/sessions/{made}/messages", json={"user": "bob", **said}),
        await client.post(f"/api/v1/sessions/{made}/messages", json=said, headers={"X-Mneme-User": "bob"}),
        await client.post(f"/api/v1/sessions/{made}/messages", json=said, params={"user": "bob"}),
        await client.post("/api/v1/memories", json={"user": "bob", "session": made, "text": "Bob keeps bees"}),
        await client.post("/api/v1/sessions", json={"user": "bob", "id": made}),
    ):
        assert answer.status_code == 404, answer.text
    assert (await client.get("/api/v1/sessions", params={"user": "bob"})).json()["sessions"] == []
    again = await client.post(f"/api/v1/sessions/{made}/messages", json={"user": "ana", **said})
    assert (again.status_code, again.json()["session_id"]) == (201, made)


# --- deleting a message ---------------------------------------------------------------------------------------------------


async def test_a_message_is_deleted_once_and_is_not_shown(client: httpx.AsyncClient) -> None:
    added = await append(client, "s", TURN, user="ana")
    asked, answered = (each["id"] for each in added["messages"])
    path = f"/api/v1/sessions/s/messages/{asked}"

    gone = await client.delete(path, params={"user": "ana"})
    assert (gone.status_code, gone.json()) == (200, {"id": asked, "deleted": True, "forgotten": [], "kept": []})
    shown = (await client.get("/api/v1/sessions/s/history")).json()["messages"]
    assert [(each["id"], each["turn_index"], each["parent_id"]) for each in shown] == [(answered, 2, asked)]
    again = await client.delete(path)
    assert again.status_code == 404
    assert error_of(again)["type"] == "not_found_error"
    more = await append(client, "s", [{"role": "user", "content": "And tea."}], user="ana")
    assert more["messages"][0]["turn_index"] == 3


async def test_a_deleted_session_is_empty_and_closed_and_another_stays(client: httpx.AsyncClient) -> None:
    for name in ("gone", "stays"):
        await append(client, name, TURN, user="ana")
        await append(client, name, TURN, user="ana")
    gone = await client.delete("/api/v1/sessions/gone", params={"user": "ana"})
    assert (gone.status_code, gone.json()["deleted"], gone.json()["messages"]) == (200, True, 4)
    assert (await client.get("/api/v1/sessions/gone/history")).json()["messages"] == []
    assert (await client.get("/api/v1/sessions/gone")).json()["status"] == "closed"
    assert len((await client.get("/api/v1/sessions/stays/history")).json()["messages"]) == 4
    again = await client.delete("/api/v1/sessions/gone")
    assert (again.status_code, again.json()["messages"]) == (200, 0)
    for path, user in (("nothing", None), ("stays", "bob")):
        refused = await client.delete(f"/api/v1/sessions/{path}", params={"user": user} if user else {})
        assert refused.status_code == 404, path
        error_of(refused)
    assert len((await client.get("/api/v1/sessions/stays/history")).json()["messages"]) == 4


async def test_what_cannot_be_deleted(client: httpx.AsyncClient) -> None:
    ana, bob = await append(client, "mine", TURN, user="ana"), await append(client, "his", TURN, user="bob")
    hers = ana["messages"][0]["id"]
    for session, message, user in (
        ("mine", str(UUID(int=7)), None),
        ("mine", "no id", None),
        ("mine", bob["messages"][0]["id"], None),
        ("his", hers, None),
        ("mine", hers, "bob"),
        ("no such session", hers, None),
    ):
        params = {"user": user} if user else {}
        answer = await client.delete(f"/api/v1/sessions/{session}/messages/{message}", params=params)
        assert answer.status_code == 404, (session, message, user)
        error_of(answer)
    assert len((await client.get("/api/v1/sessions/mine/history")).json()["messages"]) == 2


async def test_a_key_deletes_what_is_its_own(locked: WiredApi) -> None:
    async def key(tenant: str, **given: Any) -> str:
        secret, _ = await locked.tenancy.create_key(tenant, "k", **given)
        return secret

    async with locked.client(await key("here")) as app:
        added = await append(app, "s", TURN, user="ana")
        whole = f"/api/v1/sessions/{added['session_id']}"
    for tenant, given, status in (
        ("elsewhere", {}, 404),
        ("here", {"user": "bob"}, 404),
        ("here", {"scopes": ["read", "proxy"]}, 403),
        ("here", {"user": "ana", "scopes": ["write"]}, 200),
    ):
        async with locked.client(await key(tenant, **given)) as caller:
            for path in (f"{whole}/messages/{added['messages'][0]['id']}", whole):
                assert (await caller.delete(path)).status_code == status, (path, given)


async def test_what_a_branch_shares_is_deleted_from_both(
    client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    added = await append(client, "root", TURN, user="ana")
    branch = await append(client, "branch", [{"role": "user", "content": "Otherwise."}], user="ana")
    parent = {"parent_session_id": UUID(added["session_id"]), "branch_turn_index": 1}
    await set_session(admin, UUID(branch["session_id"]), **parent)
    await set_message(admin, UUID(branch["messages"][0]["id"]), turn_index=2)
    asked, answered = (each["id"] for each in added["messages"])
    # The answer is the parent's alone.
    assert (await client.delete(f"/api/v1/sessions/branch/messages/{answered}")).status_code == 404
    assert (await client.delete(f"/api/v1/sessions/branch/messages/{asked}")).status_code == 200
    for session, left in (("root", ["Noted."]), ("branch", ["Otherwise."])):
        shown = (await client.get(f"/api/v1/sessions/{session}/history")).json()["messages"]
        assert [each["content"] for each in shown] == left


async def test_an_import_that_comes_again_does_not_bring_it_back(client: httpx.AsyncClient, api: WiredApi) -> None:
    """With times, its lines have the ids that they had; without, they are known by what they say."""
    lines = [
        {"session": "old", "user": "ana", "role": "user", "content": "I was in Lisbon."},
        {"session": "old", "user": "ana", "role": "assistant", "content": "Noted."},
        {
            "session": "older",
            "user": "ana",
            "role": "user",
            "content": "In Porto.",
            "created_at": "2024-01-02T00:00:00Z",
        },
    ]
    body = b"\n".join(orjson.dumps(each) for each in lines)

    async def bring() -> dict[str, Any]:
        answer = await client.post("/api/v1/import", content=body, headers={"content-type": "application/x-ndjson"})
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    await bring()
    for session in ("old", "older"):
        first = (await client.get(f"/api/v1/sessions/{session}/history")).json()["messages"][0]
        assert (await client.delete(f"/api/v1/sessions/{session}/messages/{first['id']}")).status_code == 200
    api.clock.move(timedelta(hours=1))
    told = await bring()
    assert told["duplicates"] == 3, told
    assert (await client.get("/api/v1/sessions/older/history")).json()["messages"] == []
    assert len((await client.get("/api/v1/sessions/old/history")).json()["messages"]) == 1


async def test_sessions_are_found_by_what_they_were_about(
    client: httpx.AsyncClient, api: WiredApi, admin: asyncpg.Connection[Any], pool: Pool
) -> None:
    """By the vector of the summary where it is in the present space, else by its words."""
    space = min(row["space"] for row in await read_rows(admin, "embedding_spaces"))
    about = {
        "trip": "Planned a train trip to Porto.",
        "bread": "Baked sourdough bread.",
        "tax": "Filed the tax return.",
    }
    for name, summary in about.items():
        await client.post("/api/v1/sessions", json={"user": "ana", "id": name})
        vector = (await HashEmbedder().embed([summary]))[0]
        await set_summary(admin, name, summary, vector.tolist(), space if name != "tax" else -1)
    await client.post("/api/v1/sessions", json={"user": "ana", "id": "new"})
    await client.post("/api/v1/sessions", json={"user": "bob", "id": "other"})

    async def found(**params: Any) -> list[str]:
        answer = await client.get("/api/v1/sessions", params={"user": "ana"} | params)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert page["next"] is None
        assert all(each["score"] > 0 for each in page["sessions"])
        return [each["external_id"] for each in page["sessions"]]

    assert (await found(query="Planned a train trip to Porto."))[0] == "trip"
    assert "tax" in await found(query="tax return")
    assert await found(query="Baked sourdough bread.", limit=1) == ["bread"]
    assert await found(query="bread", status="closed") == []
    listed = (await client.get("/api/v1/sessions", params={"user": "ana"})).json()["sessions"]
    assert [each["score"] for each in listed] == [None] * 4
    for wrong in ({"query": "x" * 2001}, {"query": "bread", "cursor": "x"}):
        answer = await client.get("/api/v1/sessions", params={"user": "ana"} | wrong)
        assert answer.status_code == 400
        error_of(answer)


async def test_thoughts_of_an_answer_are_shown_apart_and_found_by_nobody(client: httpx.AsyncClient) -> None:
    thought = "<think>Zebras dislike umbrellas.</think>\n"
    turn = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": f"{thought}Good morning."}]
    await append(client, "trip", turn, user="ana")
    rows = await all_pages(client, "/api/v1/sessions/trip/history", "messages")
    assert [(row["content"], row["reasoning"]) for row in rows] == [
        ("Hello.", None),
        ("Good morning.", {"text": thought}),
    ]
    lines = [{"session": "old", "user": "ana", **message} for message in turn]
    body = b"\n".join(map(orjson.dumps, lines))
    answer = await client.post("/api/v1/import", content=body, headers={"Content-Type": "application/x-ndjson"})
    assert answer.status_code == 200, answer.text
    rows = await all_pages(client, "/api/v1/sessions/old/history", "messages")
    assert [row["content"] for row in rows] == ["Hello.", "Good morning."]
    asked = {"user": "ana", "query": "Which animals dislike umbrellas?"}
    found = await client.post("/api/v1/memories/search", json=asked)
    assert found.status_code == 200, found.text
    assert "Zebras" not in found.text
