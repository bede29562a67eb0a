"""/api/v1/cassettes over real Postgres: what goes in comes out the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import asyncpg
import httpx

from mneme_replay.cassette import Cassette, Response
from mneme_replay.fileformat import document, read, render
from tests.support.cases import cases
from tests.support.cassettes import asking, captured, cassette, streamed, streaming
from tests.support.replies import captured_cases
from tests.support.rows import count_rows
from tests.support.wired_api import WiredApi, error_of

LINES = {"content-type": "application/x-ndjson"}
PATH = "/api/v1/cassettes"


def lines_of(cassettes: Sequence[Cassette]) -> bytes:
    return b"\n".join(json.dumps(document(each)).encode() for each in cassettes)


async def put(client: httpx.AsyncClient, *cassettes: Cassette) -> dict[str, int]:
    answer = await client.post(PATH, content=lines_of(cassettes), headers=LINES)
    assert answer.status_code == 200, answer.text
    done: dict[str, int] = answer.json()
    return done


async def got(client: httpx.AsyncClient, **params: Any) -> list[Cassette]:
    answer = await client.get(PATH, params=params)
    assert answer.status_code == 200, answer.text
    docs = [json.loads(line) for line in answer.content.splitlines()]
    assert docs[-1] == {"end": {"calls": len(docs) - 1}}
    return [read(each, "a") for each in docs[:-1]]


def same(a: Cassette, b: Cassette) -> bool:
    return render(a) == render(b)


async def test_every_capture_of_a_real_server_comes_out_as_it_went_in(client: httpx.AsyncClient) -> None:
    calls = [replace(captured(case), call={"user": "ana", "stream": True}) for case in captured_cases()]
    assert await put(client, *calls) == {"imported": len(calls), "skipped": 0}
    assert await put(client, *calls) == {"imported": 0, "skipped": len(calls)}
    back = {each.id: each for each in await got(client, user="ana")}
    for each in calls:
        assert render(back[each.id]).decode() == render(each).decode()


async def test_calls_are_chosen(client: httpx.AsyncClient) -> None:
    mine = {"user": "ana", "model": "tiny", "session": "s"}
    labelled = cassette(2, call=mine)
    headers = (*labelled.request.headers, ("X-Mneme-Label", "checkout"))
    labelled = replace(labelled, request=replace(labelled.request, headers=headers))
    failed = cassette(
        3, call=mine | {"user": "ben"}, response=None, outcome="failed", error="The upstream did not answer."
    )
    late = replace(cassette(4, call={}), response=replace(streamed(4).response or Response(status=1), status=429))
    await put(client, cassette(1, call=mine), labelled, failed, late)

    async def chosen(**params: Any) -> list[int]:
        return [int(each.id[-12:]) for each in await got(client, **params)]

    assert await chosen() == [1, 2, 3, 4]
    assert await chosen(user="ana") == [1, 2]
    assert await chosen(user="nobody at all") == []
    assert await chosen(label="checkout") == [2]
    assert await chosen(model="tiny") == [1, 2, 3]
    assert await chosen(status=429) == [4]
    assert await chosen(since="2026-05-03T10:00:02Z") == [2, 3, 4]
    assert await chosen(since="2026-05-03T10:00:02Z", until="2026-05-03T10:00:04Z") == [2, 3]
    listed = (await client.get("/api/v1/calls")).json()["calls"]
    first = listed[-1]["id"]
    assert await chosen(call=[first]) == [1]
    assert (await client.patch(f"/api/v1/calls/{first}", json={"labels": ["golden"]})).status_code == 200
    assert await chosen(label="golden") == [1]
    assert await chosen(label=["golden", "checkout"]) == []
    assert error_of(await client.get(PATH, params={"call": "x"}))["type"] == "not_found_error"
    assert error_of(await client.get(PATH, params={"session": "none"}))["type"] == "not_found_error"


async def test_a_copy_for_another_user_is_a_call_of_its_own(client: httpx.AsyncClient) -> None:
    mine, other = streamed(1, call={"user": "ana"}), streamed(1, events=streaming("Edited."), call={"user": "ben"})
    assert await put(client, mine) == {"imported": 1, "skipped": 0}
    for imported in (1, 0):
        assert await put(client, other, mine) == {"imported": imported, "skipped": 2 - imported}
    assert [same(each, mine) for each in await got(client, user="ana")] == [True]
    (copy,) = await got(client, user="ben")
    assert copy.id != mine.id
    assert same(replace(copy, id=mine.id), other)
    assert [each.id for each in await got(client)] == sorted([mine.id, copy.id])
    both = [cassette(2, call={"user": "ana"}), cassette(2, call={"user": "ben"})]
    assert await put(client, *both) == {"imported": 2, "skipped": 0}
    assert await put(client, *both) == {"imported": 0, "skipped": 2}


async def test_labels_are_the_same_wherever_they_come_from(client: httpx.AsyncClient) -> None:
    headers = (("content-type", "application/json"), ("X-Mneme-Label", "checkout, golden"))
    by_header = cassette(1)
    by_header = replace(by_header, request=replace(by_header.request, headers=headers))
    await put(client, by_header, cassette(2, labels=("golden", "größe")), cassette(3))

    async def labelled(*labels: str) -> list[int]:
        calls = (await client.get("/api/v1/calls", params={"label": list(labels)})).json()["calls"]
        exported = [int(each.id[-12:]) for each in await got(client, label=list(labels))]
        assert [int(each["id"][-12:]) for each in reversed(calls)] == exported
        return exported

    assert await labelled("golden") == [1, 2]
    assert await labelled("golden", "checkout") == [1]
    assert await labelled("größe") == [2]
    first, second, third = await got(client)
    assert (first.labels, second.labels, third.labels) == (("checkout", "golden"), ("golden", "größe"), None)
    # What is given afterwards stands in the place of the header's, out and in again.
    assert (await client.patch(f"/api/v1/calls/{first.id}", json={"labels": []})).status_code == 200
    assert await labelled("checkout") == []
    (first, *_) = await got(client)
    assert first.labels == ()


async def test_an_imported_call_is_read_like_any_other(
    client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    events = streaming("Hel", "lo!")
    await put(client, streamed(1, call={"user": "ana", "stream": True}, sent=asking("With memory.")))
    listed = (await client.get("/api/v1/calls", params={"user": "ana"})).json()["calls"]
    assert [(each["outcome"], each["stream"], each["status"]) for each in listed] == [("complete", True, 200)]
    path = f"/api/v1/calls/{listed[0]['id']}"
    assert (await client.get(f"{path}/raw")).content == b"".join(events)
    assert (await client.get(f"{path}/request")).content == asking(stream=True)
    assert (await client.get(f"{path}/request", params={"sent": True})).content == asking("With memory.")
    seen = (await client.get(f"{path}/events")).json()["events"]
    assert [(each["t_us"], each["data"].encode()) for each in seen] == [
        (10_000 * n, each) for n, each in enumerate(events, 1)
    ]
    # It was paid for elsewhere, and nothing is learned from it.
    assert await count_rows(admin, "spend_entries", "conversation_history") == 0


@cases(
    ("line", "told"),
    [
        (b"{", "Line 2 is no JSON"),
        (b"[]", "Line 2: this is no cassette"),
        (b'{"mneme_cassette": 2}', "Line 2: mneme_cassette: it was written by a newer Mneme"),
        (json.dumps(document(cassette(3)) | {"recorded_at": "once"}).encode(), "Line 2: recorded_at"),
        (
            json.dumps(document(cassette(3)) | {"recorded_at": "1066-01-01"}).encode(),
            "is not between 1970 and tomorrow",
        ),
        (json.dumps(document(cassette(3, call={"user": ["ana"]}))).encode(), "Line 2: call.user must be text"),
        (
            json.dumps(document(cassette(3, call={"user": "anonymous"}))).encode(),
            "Line 2: call.user stands for anybody",
        ),
        (json.dumps(document(cassette(3, call={"user": "a\0b"}))).encode(), "Line 2: call.user must be valid Unicode"),
        (json.dumps(document(cassette(3)) | {"id": "\ud800"}).encode(), "Line 2 is no JSON"),
        (json.dumps(document(cassette(3, labels=("a\0b",)))).encode(), "Line 2: labels"),
        (json.dumps(document(cassette(3, labels=("x" * 257,)))).encode(), "Line 2: labels"),
        (json.dumps(document(cassette(3, labels=[str(n) for n in range(33)]))).encode(), "Line 2: labels"),
        (json.dumps(document(cassette(3)) | {"labels": "x"}).encode(), "Line 2: labels: this must be a JSON array"),
        (b"\xff", "Line 2 is no JSON"),
        (b"[" * 100_000, "Line 2 is no JSON"),
    ],
)
async def test_a_bad_line_is_named_and_nothing_is_stored(client: httpx.AsyncClient, line: bytes, told: str) -> None:
    answer = await client.post(PATH, content=lines_of([cassette(1)]) + b"\n" + line, headers=LINES)
    assert answer.status_code == 400
    assert told in error_of(answer)["message"]
    assert await got(client) == []


async def test_a_number_in_a_cassette_is_the_text_of_a_user(client: httpx.AsyncClient) -> None:
    await put(client, cassette(1, call={"user": 7}))
    await put(client, cassette(2, call={"user": "8"}))
    for user, count in (("7", 1), ("8", 1), ("7.0", 0)):
        listed = (await client.get("/api/v1/calls", params={"user": user})).json()["calls"]
        assert len(listed) == count, user


async def test_what_postgres_cannot_keep_is_no_surprise(client: httpx.AsyncClient) -> None:
    call = cassette(1, call={"user": "ana", "model": "a\0b", "session": "\0"}, error="\0")
    assert await put(client, call) == {"imported": 1, "skipped": 0}
    assert len(await got(client)) == 1


async def test_others_see_nothing_of_it(api: WiredApi) -> None:
    async with api.client() as client:
        await put(client, cassette(1, call={"user": "ana"}), cassette(2))
    async with api.client() as client:
        client.headers["x-mneme-user"] = "ben"
        assert await got(client) == []
        answer = await client.post(PATH, content=b"", headers={"content-type": "text/plain"})
        assert error_of(answer)["param"] == "Content-Type"
