"""/api/v1/calls over real Postgres."""

from __future__ import annotations

from base64 import b64decode
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import httpx

from app.store import ids
from app.store.turns import TurnStore
from tests.support.calls import CapturedCall, body_after, body_of, capture
from tests.support.rows import suppress, update_rows
from tests.support.wired_api import WiredApi, all_pages, error_of

HI = b'{"role":"user","content":"hi \\u0000 \xc3\xa9"}'
HELLO = b'{ "role" : "assistant","content":"hello", "x":12345678901234567890 }'
BYE = b'{"role":"user","content":"bye"}'


async def test_a_request_comes_back_to_the_byte(client: httpx.AsyncClient, api: WiredApi, turns: TurnStore) -> None:
    now = api.clock.now()
    first_body, first = body_of([HI])
    assert first.resume is not None
    second_body, second = body_after([HI, HELLO, BYE], first.resume)
    sent_body, sent = body_of([HI, HELLO, b'{"role":"user","content":"<memory> bye"}'])
    one = await capture(turns, CapturedCall(now, received=first))
    two = await capture(turns, CapturedCall(now, received=second, sent=sent))
    whole = await capture(turns, CapturedCall(now, body=b"\xff\x00 not json"))

    for call, query, body in (
        (one, {}, first_body),
        (one, {"sent": "true"}, first_body),
        (two, {}, second_body),
        (two, {"sent": "true"}, sent_body),
        (whole, {}, b"\xff\x00 not json"),
        (whole, {"sent": "true"}, b"\xff\x00 not json"),
    ):
        part = "sent" if query else "request"
        assert (await client.get(f"/api/v1/calls/{call}/raw", params={"part": part})).content == body
        answer = await client.get(f"/api/v1/calls/{call}/request", params=query)
        assert answer.status_code == 200, answer.text
        assert answer.content == body
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_request_that_does_not_fit_together_is_not_shown(
    client: httpx.AsyncClient, api: WiredApi, turns: TurnStore, admin: asyncpg.Connection[Any]
) -> None:
    _, recipe = body_of([HI, HELLO])
    call = await capture(turns, CapturedCall(api.clock.now(), received=recipe))
    await update_rows(admin, "message_blobs", {}, body=b"x")
    answer = await client.get(f"/api/v1/calls/{call}/request")
    assert answer.status_code == 500
    assert error_of(answer)["code"] == "capture_mismatch"


async def test_an_answer_comes_back_with_its_events(client: httpx.AsyncClient, api: WiredApi, turns: TurnStore) -> None:
    pieces = [b'data: {"n": %d}\n\n' % i for i in range(5)] + [
        b"data: \xff\xfe\n\n",
        "data: é\n\n".encode(),
        b"data: [DONE]\n\n",
    ]
    offsets = [sum(len(piece) for piece in pieces[:i]) for i in range(len(pieces))]
    events = [(offset, 100 * i) for i, offset in enumerate(offsets)]
    answer = b"".join(pieces)
    call = await capture(turns, CapturedCall(api.clock.now(), answer=answer, events=events))

    raw = await client.get(f"/api/v1/calls/{call}/raw")
    assert raw.content == answer
    assert (await client.get(f"/api/v1/calls/{call}/raw", params={"part": "response"})).content == answer
    for limit in (1, 3, 8, 1000):
        rows = await all_pages(client, f"/api/v1/calls/{call}/events", "events", limit=limit)
        assert [each["seq"] for each in rows] == list(range(8))
        assert [(each["offset"], each["t_us"]) for each in rows] == events
        data = [b64decode(each["data"]) if each["encoding"] == "base64" else each["data"].encode() for each in rows]
        assert data == pieces
    assert [each["encoding"] for each in rows].count("base64") == 1


async def test_an_answer_without_events(client: httpx.AsyncClient, api: WiredApi, turns: TurnStore) -> None:
    call = await capture(turns, CapturedCall(api.clock.now(), answer=b'{"a": 1}'))
    assert (await client.get(f"/api/v1/calls/{call}/events")).json() == {"events": [], "next": None}
    none = await capture(turns, CapturedCall(api.clock.now()))
    for part in ("events", "raw", "context"):
        assert (await client.get(f"/api/v1/calls/{none}/{part}")).status_code == 404


async def test_a_call_is_described(client: httpx.AsyncClient, api: WiredApi, turns: TurnStore) -> None:
    _, recipe = body_of([HI])
    call = await capture(turns, CapturedCall(api.clock.now(), received=recipe, answer=b"12345"))
    found = (await client.get(f"/api/v1/calls/{call}")).json()
    assert found["id"] == call
    assert found["status"] == 200
    assert found["outcome"] == "complete"
    assert found["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "cached_tokens": None, "counted": False}
    assert found["request_headers"] == [["authorization", "***"]]
    assert found["request_sha256"] == recipe.sha256.hex()
    assert found["sent_sha256"] is None
    assert found["response_bytes"] == 5
    assert found["metadata"] == {"n": 1}


async def test_calls_are_listed(client: httpx.AsyncClient, api: WiredApi, turns: TurnStore) -> None:
    await client.post("/api/v1/sessions", json={"user": "ana", "id": "s"})
    session = UUID((await client.get("/api/v1/sessions/s")).json()["id"])
    begin = api.clock.now()
    made = []
    for i in range(6):
        call = CapturedCall(
            begin + timedelta(seconds=i), user=("ana", "bob")[i % 2], model=f"m{i % 3}", status=(200, 429, None)[i % 3],
            session=session if i == 4 else None,
        )  # fmt: skip
        made.append(await capture(turns, call))

    for query, places in (
        ({}, [5, 4, 3, 2, 1, 0]),
        ({"user": "ana"}, [4, 2, 0]),
        ({"model": "m1"}, [4, 1]),
        ({"status": 429}, [4, 1]),
        ({"session": "s"}, [4]),
        ({"since": (begin + timedelta(seconds=4)).isoformat()}, [5, 4]),
        ({"user": "bob", "since": (begin + timedelta(seconds=2)).isoformat()}, [5, 3]),
        ({"user": "bob", "session": str(session)}, None),
    ):
        for limit in (2, 100):
            if places is None:
                assert (await client.get("/api/v1/calls", params=query)).status_code == 404
                continue
            rows = await all_pages(client, "/api/v1/calls", "calls", limit=limit, **query)
            assert [made.index(each["id"]) for each in rows] == places, query
    assert (await client.get("/api/v1/calls", params={"session": "s"})).json()["calls"][0]["session"] == "s"
    assert (await client.get(f"/api/v1/calls/{made[1]}", headers={"X-Mneme-User": "ana"})).status_code == 404
    assert (await client.get(f"/api/v1/calls/{made[1]}", headers={"X-Mneme-User": "bob"})).status_code == 200


async def test_calls_are_found_by_how_they_went(client: httpx.AsyncClient, api: WiredApi, turns: TurnStore) -> None:
    begin = api.clock.now()

    def at(n: int) -> str:
        return (begin + timedelta(seconds=n)).isoformat()

    calls = (
        CapturedCall(begin, latency_ms=100),
        CapturedCall(begin + timedelta(seconds=1), latency_ms=900, tool_calls=2),
        CapturedCall(begin + timedelta(seconds=2), outcome=1, error="it broke off", user="bob"),
        CapturedCall(begin + timedelta(seconds=3), status=None, outcome=4),
        CapturedCall(begin + timedelta(seconds=4), status=429, latency_ms=5),
        CapturedCall(begin + timedelta(seconds=5), outcome=2, latency_ms=950),
    )
    made = [await capture(turns, each) for each in calls]
    for n, labels in ((0, ["golden"]), (2, ["golden", "chess", "chess"]), (5, ["chess"])):
        answer = await client.patch(f"/api/v1/calls/{made[n]}", json={"labels": labels})
        assert answer.status_code == 200, answer.text
        assert answer.json()["labels"] == sorted(set(labels))
    for query, places in (
        ({"until": at(2)}, [1, 0]),
        ({"since": at(1), "until": at(4)}, [3, 2, 1]),
        ({"outcome": "broken"}, [2]),
        ({"outcome": "complete"}, [4, 1, 0]),
        ({"tools": "true"}, [1]),
        ({"tools": "false", "until": at(3)}, [2, 0]),
        ({"has_error": "true"}, [4, 3, 2]),
        ({"has_error": "false"}, [5, 1, 0]),
        ({"min_latency_ms": 900}, [5, 1]),
        ({"label": "golden"}, [2, 0]),
        ({"label": ["golden", "chess"]}, [2]),
        ({"label": "golden", "user": "ana"}, [0]),
        ({"label": "nothing"}, []),
        ({"user": "ana", "has_error": "true", "until": at(4)}, [3]),
    ):
        for limit in (1, 100):
            rows = await all_pages(client, "/api/v1/calls", "calls", limit=limit, **query)
            assert [made.index(each["id"]) for each in rows] == places, query
    found = (await client.get(f"/api/v1/calls/{made[1]}")).json()
    assert (found["labels"], found["tool_calls"]) == ([], 2)
    assert (await client.patch(f"/api/v1/calls/{made[0]}", json={"labels": []})).json()["labels"] == []
    assert (await client.get("/api/v1/calls", params={"label": "golden"})).json()["calls"][0]["id"] == made[2]


async def test_labels_that_are_none(client: httpx.AsyncClient, api: WiredApi, turns: TurnStore) -> None:
    call = await capture(turns, CapturedCall(api.clock.now()))
    path = f"/api/v1/calls/{call}"
    bad: list[Any] = ["x", [""], [" "], ["a\nb"], ["x"] * 33, ["x" * 257]]
    for body in ({}, {"other": 1}, *({"labels": each} for each in bad)):
        answer = await client.patch(path, json=body)
        assert answer.status_code == 400, body
        assert error_of(answer)["type"] == "invalid_request_error"
    assert (await client.patch("/api/v1/calls/nonsense", json={"labels": ["x"]})).status_code == 404
    bob = {"X-Mneme-User": "bob"}
    assert (await client.patch(path, json={"labels": ["x"]}, headers=bob)).status_code == 404
    for query in ({"outcome": "odd"}, {"tools": "perhaps"}, {"min_latency_ms": -1}, {"until": "soon"}, {"label": ""}):
        assert (await client.get("/api/v1/calls", params=query)).status_code == 400, query


async def test_a_context_is_explained(
    client: httpx.AsyncClient, api: WiredApi, turns: TurnStore, admin: asyncpg.Connection[Any]
) -> None:
    body = {
        "user": "ana",
        "messages": [{"role": "user", "content": f"said {i}", "metadata": {"n": i}} for i in range(2)],
    }
    said = [each["id"] for each in (await client.post("/api/v1/sessions/s/messages", json=body)).json()["messages"]]
    known, gone = [
        (await client.post("/api/v1/memories", json={"user": "ana", "text": text})).json()["id"]
        for text in ("known", "gone")
    ]
    await client.delete(f"/api/v1/memories/{gone}")

    audit = {
        "v": 2, "budget": {"window": 8192}, "strategy": "prefill", "signals": ["similarity"], "sessions": ["s"],
        "items": {
            "id": [known, gone, said[1]], "source": ["memory", "memory", "message"], "kind": ["fact", "fact", "message"],
            "tier": [3, 3, None], "score": [0.5] * 3, "values": [[0.25] * 3], "reason": ["chosen", "over_budget", "chosen"],
            "because_of": [None] * 3, "tokens": [3] * 3, "legs": [2] * 3,
            "sources": [[[said[0], 0, 1]], [[said[0], 0, 1]], [[None, 0, 1]]],
        },
    }  # fmt: skip
    call = await capture(turns, CapturedCall(api.clock.now(), audit=audit))
    explained = (await client.get(f"/api/v1/calls/{call}/context")).json()

    assert explained["call_id"] == call
    assert explained["budget"] == {"window": 8192}
    assert explained["strategy"] == "prefill"
    assert [(each["id"], each["text"], each["chosen"]) for each in explained["items"]] == [
        (known, "known", True),
        (gone, None, False),
        (said[1], "said 1", True),
    ]
    assert explained["items"][0]["signals"] == {"similarity": 0.25}
    assert explained["items"][0]["provenance"] == [
        {"session": "s", "message_id": said[0], "turn_index": 1, "metadata": {"n": 0}}
    ]
    assert explained["items"][1]["reason"] == "over_budget"
    await suppress(admin, ids.user_id(ids.LOCAL_TENANT, "ana"), said[1], "erased")
    later = (await client.get(f"/api/v1/calls/{call}/context")).json()
    assert later["items"][2]["text"] is None
    assert later["items"][2]["provenance"][0]["metadata"] == {}


async def test_a_call_of_another_tenant_is_not_there(api: WiredApi, turns: TurnStore) -> None:
    key, row = await api.tenancy.create_key("acme", "k")
    received = body_of([HI])[1]
    names = ("id", "source", "kind", "tier", "score", "values", "reason", "because_of", "tokens", "legs", "sources")
    nothing: dict[str, list[Any]] = {name: [] for name in names}
    audit = {"v": 2, "budget": {}, "strategy": "x", "signals": [], "sessions": [], "items": nothing}
    call = await capture(
        turns,
        CapturedCall(api.clock.now(), received=received, answer=b"data: x\n\n", events=[(0, 1)], audit=audit),
    )
    paths = [f"/api/v1/calls/{call}{part}" for part in ("", "/request", "/raw", "/events", "/context")]
    async with api.client() as own, api.client(key) as other:
        for path in paths:
            assert (await own.get(path)).status_code == 200, path
            assert (await other.get(path)).status_code == 404, path
        assert (await other.get("/api/v1/calls")).json()["calls"] == []
    assert row.tenant_id != ids.LOCAL_TENANT
