"""/api/v1/memories over real Postgres."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from tests.support.cases import cases
from tests.support.rows import count_rows, find_tables, read_suppressions
from tests.support.wired_api import WiredApi, all_pages, error_of

ANA = {"X-Mneme-User": "ana"}


async def add(client: httpx.AsyncClient, text: str, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/api/v1/memories", json={"user": "ana", "text": text} | fields)
    assert answer.status_code in (200, 201), answer.text
    made: dict[str, Any] = answer.json()
    return made


async def test_a_memory_is_made_read_and_listed(client: httpx.AsyncClient) -> None:
    made = await add(
        client, "Ana lives in Lisbon", tags=["home", "home"], metadata={"from": {"crm": 7}}, importance=0.9
    )

    assert made["created"] is True
    assert made["user"] == "ana"
    assert made["tier"] == 3
    assert made["scope"] == "global"
    assert made["tags"] == ["home"]
    assert made["token_count"] == 4
    assert made["validated_by"] == "user"
    read = (await client.get(f"/api/v1/memories/{made['id']}")).json()
    assert read == {key: value for key, value in made.items() if key != "created"}
    listed = (await client.get("/api/v1/memories", params={"user": "ana"})).json()
    assert listed == {"memories": [read], "next": None}
    assert (await client.get("/api/v1/memories", params={"user": "bob"})).json()["memories"] == []


@cases("share", [1e-300, 1e-46, 5e-324])
async def test_a_share_too_small_for_its_column_is_none(client: httpx.AsyncClient, share: float) -> None:
    made = await add(client, "Ana hardly matters", importance=share)
    assert made["importance"] == 0
    answer = await client.patch(f"/api/v1/memories/{made['id']}", json={"importance": share, "confidence": share})
    assert (answer.status_code, answer.json()["confidence"]) == (200, 0)


TOO_SURE: list[Any] = [
    1.0,
    1,
    0.9500001,
    0.951,
    95,
    1e300,
    -0.01,
    -1,
    "1.0",
    "0.96",
    "sure",
    "NaN",
    "Infinity",
    "",
    True,
    [],
    {},
]


async def test_a_confidence_that_nobody_can_have_is_refused(client: httpx.AsyncClient) -> None:
    """The page says that nothing is believed beyond 0.95; the answer names the field and the limit."""
    made = await add(client, "Ana lives in Lisbon")
    path = f"/api/v1/memories/{made['id']}"
    for confidence in TOO_SURE:
        ways = {
            "patch": await client.patch(path, json={"confidence": confidence, "importance": 0.1}),
            "batch": await client.post(
                "/api/v1/memories/batch",
                json={
                    "create": [{"user": "ana", "text": "Ana has a cat"}],
                    "update": [{"id": made["id"], "confidence": confidence}],
                },
            ),
        }
        for way, answer in ways.items():
            assert answer.status_code == 400, (way, confidence, answer.text)
            error = error_of(answer)
            assert error["type"] == "invalid_request_error"
            assert error["param"].endswith("confidence"), (way, confidence, error)
            assert "0 to 0.95" in error["message"], (way, confidence, error)
    for body in (b'{"confidence": NaN}', b'{"confidence": Infinity}', b'{"confidence": 1e999}'):
        answer = await client.patch(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400, body
    memories = (await client.get("/api/v1/memories", params={"user": "ana"})).json()["memories"]
    assert [(memory["text"], memory["confidence"], memory["importance"]) for memory in memories] == [
        (made["text"], made["confidence"], made["importance"])
    ], "nothing is half stored"


async def test_a_confidence_up_to_the_limit_is_taken(client: httpx.AsyncClient) -> None:
    made = await add(client, "Ana lives in Lisbon")
    for confidence in (0.95, 0, 0.0, 0.5, 0.949999, "0.25"):
        answer = await client.patch(f"/api/v1/memories/{made['id']}", json={"confidence": confidence})
        assert answer.status_code == 200, (confidence, answer.text)
        assert answer.json()["confidence"] == pytest.approx(float(confidence))
    unchanged = await client.patch(f"/api/v1/memories/{made['id']}", json={"confidence": None, "importance": 1})
    assert (unchanged.status_code, unchanged.json()["confidence"]) == (200, pytest.approx(0.25))


async def test_a_new_memory_takes_no_confidence(client: httpx.AsyncClient) -> None:
    """A client states things outright, so it cannot say how far they are believed; the answer names the field."""
    for confidence in (1.0, 0.5, "1"):
        memory = {"user": "ana", "text": "Ana has a cat", "confidence": confidence}
        for path, body in (("memories", memory), ("memories", [memory]), ("memories/batch", {"create": [memory]})):
            answer = await client.post(f"/api/v1/{path}", json=body)
            assert answer.status_code == 400, (path, answer.text)
            assert error_of(answer)["param"].endswith("confidence")
    assert (await client.get("/api/v1/memories", params={"user": "ana"})).json()["memories"] == []


async def test_the_same_words_are_one_memory(client: httpx.AsyncClient) -> None:
    first = await add(client, "Likes tea", tier=1)
    again = await client.post("/api/v1/memories", json={"user": "ana", "text": "  likes   TEA. "})

    assert again.status_code == 200
    assert again.json()["id"] == first["id"]
    assert again.json()["created"] is False
    assert again.json()["reinforcement_count"] == 1
    # What is said outright is never less than what it was learned as.
    assert again.json()["tier"] == 3
    assert again.json()["expires_at"] is None
    assert len((await client.get("/api/v1/memories")).json()["memories"]) == 1


async def test_many_at_once_for_several_users_keep_their_order(client: httpx.AsyncClient) -> None:
    wanted = [{"user": ("ana", "bob")[i % 2], "text": f"fact {i // 4}"} for i in range(8)]
    answer = await client.post("/api/v1/memories", json=wanted)

    assert answer.status_code == 201
    made = answer.json()["memories"]
    assert [(each["user"], each["text"]) for each in made] == [(each["user"], each["text"]) for each in wanted]
    assert [each["created"] for each in made] == [True, True, False, False, True, True, False, False]


async def test_session_memories_expire(client: httpx.AsyncClient, api: WiredApi) -> None:
    made = await add(client, "is in a hurry", tier=1, session="monday")
    assert made["scope"] == "local"
    assert made["session"] == "monday"

    api.clock.move(timedelta(hours=25))
    assert (await client.get("/api/v1/memories")).json()["memories"] == []
    (expired,) = (await client.get("/api/v1/memories", params={"status": "expired"})).json()["memories"]
    assert expired["status"] == "expired"
    restored = await client.post(f"/api/v1/memories/{made['id']}/restore")
    assert restored.status_code == 200
    assert restored.json()["status"] == "active"
    assert len((await client.get("/api/v1/memories")).json()["memories"]) == 1


FILTERS: tuple[tuple[dict[str, Any], set[str]], ...] = (
    ({}, {"a", "b", "c"}),
    ({"tier": 4}, {"c"}),
    ({"tier": [3, 4]}, {"a", "b", "c"}),
    ({"kind": "preference"}, {"b"}),
    ({"kind": ["preference", "procedure"]}, {"b", "c"}),
    ({"tag": "x"}, {"a", "b"}),
    ({"tag": ["x", "y"]}, {"b"}),
    ({"metadata": '{"n": 1}'}, {"a"}),
    ({"metadata": '{"deep": {"er": [2]}}'}, {"b"}),
    ({"status": "invalidated"}, {"d"}),
    ({"status": ["active", "invalidated"]}, {"a", "b", "c", "d"}),
    ({"status": "all"}, {"a", "b", "c", "d"}),
    ({"user": "nobody-of-that-name"}, set()),
)


async def test_filters(client: httpx.AsyncClient) -> None:
    await add(client, "a", tags=["x"], metadata={"n": 1})
    await add(client, "b", kind="preference", tags=["x", "y"], metadata={"deep": {"er": [1, 2]}})
    await add(client, "c", kind="procedure")
    gone = await add(client, "d")
    everything = await client.get("/api/v1/memories", params={"user": "ana", "metadata": "{}"})
    assert len(everything.json()["memories"]) == 4, "an empty object is in every one"
    await client.post(f"/api/v1/memories/{gone['id']}/invalidate")

    for scope in ({}, {"user": "ana"}):
        for params, found in FILTERS:
            answer = await client.get("/api/v1/memories", params=scope | params)
            assert answer.status_code == 200, answer.text
            assert {each["text"] for each in answer.json()["memories"]} == found, params


async def test_what_a_memory_took_the_place_of(client: httpx.AsyncClient) -> None:
    old, other = await add(client, "Release day is Tuesday"), await add(client, "Likes tea")
    body = {"answer": "no", "correction": "Release day is Wednesday"}
    judged = (await client.post(f"/api/v1/memories/{old['id']}/validate", json=body)).json()

    for scope in ({}, {"user": "ana"}):
        params = scope | {"superseded_by": judged["correction"]["id"], "status": "all"}
        found = (await client.get("/api/v1/memories", params=params)).json()["memories"]
        assert [each["id"] for each in found] == [old["id"]]
        none = await client.get("/api/v1/memories", params=params | {"superseded_by": other["id"]})
        assert none.json()["memories"] == []
    wrong = await client.get("/api/v1/memories", params={"superseded_by": "nonsense"})
    assert error_of(wrong)["param"] == "superseded_by"


async def test_pages_hold_everything_once(client: httpx.AsyncClient) -> None:
    for part in range(3):
        # The memories of one request have one time: the cursor must tell them apart.
        await client.post(
            "/api/v1/memories", json=[{"user": f"u{i % 2}", "text": f"fact {part} {i}"} for i in range(5)]
        )
    for limit in (1, 3, 7, 1000):
        rows = await all_pages(client, "/api/v1/memories", "memories", limit=limit)
        texts = [f"fact {part} {i}" for part in range(3) for i in range(5)]
        assert sorted(each["text"] for each in rows) == sorted(texts)
        assert [each["created_at"] for each in rows] == sorted((each["created_at"] for each in rows), reverse=True)


async def test_a_change_keeps_what_was_before(client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    made = await add(client, "Ana lives in Lisbon", tags=["home"])
    answer = await client.patch(f"/api/v1/memories/{made['id']}", json={"text": "Ana lives in Porto", "tags": []})

    assert answer.status_code == 200
    assert answer.json()["text"] == "Ana lives in Porto"
    assert answer.json()["tags"] == []
    events = (await client.get(f"/api/v1/memories/{made['id']}/history")).json()["events"]
    assert [each["event"] for each in events] == ["created", "edited"]
    assert events[1]["before"] == {"text": "Ana lives in Lisbon", "tags": ["home"]}
    assert events[1]["after"] == {"text": "Ana lives in Porto", "tags": []}
    assert await count_rows(admin, "embeddings") == 1


async def test_expiry_can_be_set_and_taken_away(client: httpx.AsyncClient) -> None:
    made = await add(client, "a trial", tier=2)
    assert made["expires_at"] is not None
    kept = await client.patch(f"/api/v1/memories/{made['id']}", json={"expires_at": None})
    assert kept.json()["expires_at"] is None
    ended = await client.patch(f"/api/v1/memories/{made['id']}", json={"expires_at": "2099-01-01T00:00:00+02:00"})
    assert ended.json()["expires_at"] == "2098-12-31T22:00:00Z"


async def test_two_memories_cannot_come_to_say_the_same(client: httpx.AsyncClient) -> None:
    one, other = await add(client, "likes tea"), await add(client, "likes coffee")
    answer = await client.patch(f"/api/v1/memories/{other['id']}", json={"text": "Likes tea!"})
    assert answer.status_code == 409
    assert error_of(answer)["type"] == "conflict_error"
    assert (await client.get(f"/api/v1/memories/{other['id']}")).json()["text"] == "likes coffee"

    await client.post(f"/api/v1/memories/{one['id']}/invalidate")
    await add(client, "likes tea")
    assert (await client.post(f"/api/v1/memories/{one['id']}/restore")).status_code == 409


async def test_invalidate_and_restore(client: httpx.AsyncClient) -> None:
    made = await add(client, "works at Acme")
    ended = await client.post(f"/api/v1/memories/{made['id']}/invalidate", json={"reason": "left"})
    assert ended.json()["status"] == "invalidated"
    assert ended.json()["valid_to"] is not None
    assert (await client.get("/api/v1/memories")).json()["memories"] == []
    assert (await client.post(f"/api/v1/memories/{made['id']}/invalidate")).status_code == 409

    back = await client.post(f"/api/v1/memories/{made['id']}/restore")
    assert back.json()["status"] == "active"
    assert back.json()["valid_to"] is None
    assert (await client.post(f"/api/v1/memories/{made['id']}/restore")).status_code == 409
    events = (await client.get(f"/api/v1/memories/{made['id']}/history")).json()["events"]
    assert [(each["event"], each["actor"]) for each in events] == [
        ("created", "api"),
        ("invalidated", "api"),
        ("restored", "api"),
    ]
    assert events[1]["after"] == {"status": "invalidated", "reason": "left"}


async def test_history_pages(client: httpx.AsyncClient) -> None:
    made = await add(client, "v0")
    for i in range(1, 6):
        await client.patch(f"/api/v1/memories/{made['id']}", json={"text": f"v{i}"})
    rows = await all_pages(client, f"/api/v1/memories/{made['id']}/history", "events", limit=2)
    assert [each["after"]["text"] for each in rows] == [f"v{i}" for i in range(6)]


async def test_forgetting_leaves_no_word(client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    secret = "xylophone"
    made = await add(client, f"keeps a {secret}", tags=[secret], metadata={"what": secret})
    await client.patch(f"/api/v1/memories/{made['id']}", json={"text": f"keeps two {secret}s"})
    answer = await client.delete(f"/api/v1/memories/{made['id']}")

    assert answer.status_code == 200
    assert answer.json() == {"id": made["id"], "deleted": True}
    assert (await client.get(f"/api/v1/memories/{made['id']}")).status_code == 404
    assert (await client.patch(f"/api/v1/memories/{made['id']}", json={"text": "x"})).status_code == 404
    assert (await client.post(f"/api/v1/memories/{made['id']}/restore")).status_code == 404
    assert (await client.delete(f"/api/v1/memories/{made['id']}")).status_code == 404
    events = (await client.get(f"/api/v1/memories/{made['id']}/history")).json()["events"]
    assert [each["event"] for each in events] == ["created", "edited", "deleted"]
    assert await find_tables(admin, secret) == set()
    assert await count_rows(admin, "embeddings") == 0
    kept = await read_suppressions(admin)
    assert made["id"] in [str(each["item_id"]) for each in kept]
    assert [(each["reason"], len(each["content_hmac"])) for each in kept] == [("forgotten", 32)] * 2
    assert len({each["content_hmac"] for each in kept}) == 2, "what it said, and what it said before"


async def test_an_edit_tells_no_hash(client: httpx.AsyncClient) -> None:
    made = await add(client, "likes tea")
    await client.patch(f"/api/v1/memories/{made['id']}", json={"text": "likes coffee"})
    events = (await client.get(f"/api/v1/memories/{made['id']}/history")).json()["events"]
    assert (events[1]["before"], events[1]["after"]) == ({"text": "likes tea"}, {"text": "likes coffee"})


async def test_what_was_forgotten_can_be_said_again(client: httpx.AsyncClient) -> None:
    gone = await add(client, "likes tea")
    await client.delete(f"/api/v1/memories/{gone['id']}")
    again = await add(client, "likes tea")
    assert again["created"] is True
    assert again["id"] != gone["id"]


async def test_a_nul_is_replaced(client: httpx.AsyncClient) -> None:
    made = await add(client, "a\0b", metadata={"k\0": ["v\0"]}, tags=["t\0"])
    assert made["text"] == "a\ufffdb"
    assert made["metadata"] == {"k\ufffd": ["v\ufffd"]}
    assert made["tags"] == ["t\ufffd"]
    assert len((await client.get("/api/v1/memories", params={"tag": "t\0"})).json()["memories"]) == 1


async def test_the_user_may_come_from_a_header(client: httpx.AsyncClient) -> None:
    answer = await client.post("/api/v1/memories", json={"text": "x"}, headers=[(b"X-Mneme-User", "Zoë".encode())])
    assert answer.json()["user"] == "Zoë"
    assert (await client.post("/api/v1/memories", json={"text": "x"})).json()["user"] == "local"
    assert len((await client.get("/api/v1/memories", params={"user": "Zoë"})).json()["memories"]) == 1
    assert len((await client.get("/api/v1/memories")).json()["memories"]) == 2


async def test_a_memory_of_another_user_is_not_found(client: httpx.AsyncClient) -> None:
    made = await add(client, "x")
    path = f"/api/v1/memories/{made['id']}"
    assert (await client.get(path, headers={"X-Mneme-User": "bob"})).status_code == 404
    assert (await client.delete(path, headers={"X-Mneme-User": "bob"})).status_code == 404
    assert (await client.get(path, headers=ANA)).status_code == 200


@pytest.mark.parametrize(
    "said", [{"params": {"user": "bob"}}, {"headers": {"X-Mneme-User": "bob"}}], ids=["query", "header"]
)
async def test_anothers_memory_is_not_found_by_its_id(client: httpx.AsyncClient, said: dict[str, Any]) -> None:
    path = f"/api/v1/memories/{(await add(client, 'Ana keeps bees'))['id']}"
    for answer in (
        await client.get(path, **said),
        await client.get(f"{path}/history", **said),
        await client.patch(path, json={"text": "Ana keeps cats"}, **said),
        await client.delete(path, **said),
    ):
        assert answer.status_code == 404
    assert (await client.get(path, params={"user": "ana"})).json()["text"] == "Ana keeps bees"


@cases("moment", ["0", 0, "1", 1.5, " 12 ", "-3", True])
async def test_a_bare_number_is_no_expiry(client: httpx.AsyncClient, moment: object) -> None:
    """It would end the memory in 1970: at once."""
    made = (await client.post("/api/v1/memories", json={"user": "ana", "text": "Likes tea"})).json()
    path = f"/api/v1/memories/{made['id']}"
    refused = await client.patch(path, json={"expires_at": moment})
    assert refused.status_code == 400
    assert "2030-01-31T12:00:00Z" in error_of(refused)["message"]
    assert (await client.get(path)).json()["expires_at"] is None
