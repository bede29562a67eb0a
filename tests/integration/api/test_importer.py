"""POST /api/v1/import over real Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import orjson

from app.features.transfer import routes as import_export
from tests.support.rows import count_rows, read_index_items, read_jobs
from tests.support.wired_api import WiredApi, all_pages, error_of

NDJSON = {"Content-Type": "application/x-ndjson"}
BEGAN = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)


def line(session: str, i: int, **fields: Any) -> dict[str, Any]:
    role = ("user", "assistant")[i % 2]
    at = (BEGAN + timedelta(seconds=20 * i)).isoformat()
    return {
        "session": session,
        "user": "ana",
        "role": role,
        "content": f"{session} says {i}",
        "created_at": at,
    } | fields


def text(lines: list[dict[str, Any]]) -> bytes:
    return b"\n".join(orjson.dumps(each) for each in lines)


async def send(client: httpx.AsyncClient, body: bytes | AsyncIterator[bytes]) -> dict[str, int]:
    answer = await client.post("/api/v1/import", content=body, headers=NDJSON)
    assert answer.status_code == 200, answer.text
    told: dict[str, int] = answer.json()
    return told


async def test_conversations_come_in_with_their_own_times(
    client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    lines = [line("a", i, name="Ana", metadata={"dia_id": f"D1:{i}"}) for i in range(6)]
    lines += [line("b", i, user="bob") for i in range(3)]
    # Interleaved sessions keep their own order.
    told = await send(client, text(lines[::2] + lines[1::2]))
    assert told == {"imported": 9, "duplicates": 0, "sessions": 2, "users": 2}

    rows = await all_pages(client, "/api/v1/sessions/a/history", "messages")
    expected = [*lines[:6:2], *lines[1:6:2]]
    assert [each["content"] for each in rows] == [each["content"] for each in expected]
    assert [each["turn_index"] for each in rows] == [1, 2, 3, 4, 5, 6]
    assert [each["metadata"] for each in rows] == [each["metadata"] for each in expected]
    assert [datetime.fromisoformat(each["created_at"]).isoformat() for each in rows] == [
        each["created_at"] for each in expected
    ]
    assert {each["name"] for each in rows} == {"Ana"}
    session = (await client.get("/api/v1/sessions/a")).json()
    assert session["first_message_at"] == "2023-05-08T13:56:00Z"
    assert session["created_at"] == "2023-05-08T13:56:00Z"
    assert (await client.get("/api/v1/sessions/b")).json()["user"] == "bob"
    assert await count_rows(admin, "embeddings") == 9
    # An index without the terms takes ten times as long to load, in the first request after an import.
    assert all(item["terms"] for item in await read_index_items(admin))


async def test_the_same_file_twice_adds_nothing(client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    lines = [line(session, i) for session in ("a", "b") for i in range(5)]
    await send(client, text(lines))
    jobs = await count_rows(admin, "pgqueuer")
    before = await all_pages(client, "/api/v1/sessions/a/history", "messages")

    assert await send(client, text(lines)) == {"imported": 0, "duplicates": 10, "sessions": 2, "users": 1}
    assert await send(client, text([*lines, line("a", 5)])) == {
        "imported": 1,
        "duplicates": 10,
        "sessions": 2,
        "users": 1,
    }
    assert await count_rows(admin, "pgqueuer") == jobs + 1
    after = await all_pages(client, "/api/v1/sessions/a/history", "messages")
    assert after[:5] == before
    assert after[5]["turn_index"] == 6
    assert after[5]["parent_id"] == before[4]["id"]


async def test_people_do_say_the_same_twice(client: httpx.AsyncClient) -> None:
    same = line("a", 0, content="yes")
    assert (await send(client, text([same, same, same])))["imported"] == 3
    assert (await send(client, text([same, same, same])))["duplicates"] == 3


async def test_lines_without_a_time(client: httpx.AsyncClient, api: WiredApi) -> None:
    lines = [line("a", i, created_at=None, content=("yes", "no")[i % 2]) for i in range(5)]
    lines[3]["created_at"] = "2024-01-01T00:00:00Z"
    assert (await send(client, text(lines)))["imported"] == 5
    rows = await all_pages(client, "/api/v1/sessions/a/history", "messages")
    times = [datetime.fromisoformat(each["created_at"]) for each in rows]
    assert times[0] == api.clock.now()
    assert times[1] == times[0] + timedelta(milliseconds=1)
    assert times[4] == datetime(2024, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)

    api.clock.move(timedelta(hours=1))
    assert await send(client, text(lines)) == {"imported": 0, "duplicates": 5, "sessions": 1, "users": 1}
    assert (await send(client, text([*lines, line("a", 5, created_at=None)])))["imported"] == 1


async def test_wrong_lines_are_named_and_nothing_is_stored(
    client: httpx.AsyncClient, api: WiredApi, admin: asyncpg.Connection[Any]
) -> None:
    ahead = (api.clock.now() + timedelta(days=2)).isoformat()
    wrong = [
        b"{", b"[]", b"null", b"\xff", b'{"a": "\\ud800"}', b"[" * 3000,
        orjson.dumps(line("a", 0, role="king")), orjson.dumps(line("", 0)), orjson.dumps(line("a", 0, created_at="soon")),
        orjson.dumps(line("a", 0, created_at=ahead)), orjson.dumps(line("a", 0, created_at="1969-07-20")),
        orjson.dumps(line("a", 0, content=7)), orjson.dumps(line("a", 0, metadata=[])), orjson.dumps(line("a", 0, extra=1)),
        orjson.dumps({key: value for key, value in line("a", 0).items() if key != "session"}),
        orjson.dumps(line("s" * 600, 0)),
    ]  # fmt: skip
    good = orjson.dumps(line("a", 1))
    body = b"\n".join([good, b"", *wrong, good])
    answer = await client.post("/api/v1/import", content=body, headers=NDJSON)

    assert answer.status_code == 400
    error_of(answer)
    errors = answer.json()["errors"]
    assert [each["line"] for each in errors] == list(range(3, 3 + len(wrong)))
    assert all(each["error"] for each in errors)
    assert "role" in errors[6]["error"]
    assert await count_rows(admin, "sessions", "users") == 0


async def test_the_user_may_come_from_the_header(client: httpx.AsyncClient) -> None:
    lines = [{key: value for key, value in line("a", i).items() if key != "user"} for i in range(2)]
    answer = await client.post("/api/v1/import", content=text(lines), headers=NDJSON | {"X-Mneme-User": "zoe"})
    assert answer.json()["imported"] == 2
    assert (await client.get("/api/v1/sessions/a")).json()["user"] == "zoe"


async def test_lines_come_in_pieces(client: httpx.AsyncClient) -> None:
    lines = [line("a", i, content="ü" * i) for i in range(1, 8)]
    body = b"\xef\xbb\xbf" + b"\r\n\r\n".join(orjson.dumps(each) for each in lines) + b"\r\n"
    for size in (1, 7, 100):

        async def pieces(size: int = size) -> AsyncIterator[bytes]:
            for at in range(0, len(body), size):
                yield body[at : at + size]

        told = await send(client, pieces())
        assert told["imported"] + told["duplicates"] == 7
    assert len(await all_pages(client, "/api/v1/sessions/a/history", "messages")) == 7


async def test_nothing_is_an_import_too(client: httpx.AsyncClient) -> None:
    for body in (b"", b"\n\n \r\n"):
        assert await send(client, body) == {"imported": 0, "duplicates": 0, "sessions": 0, "users": 0}


async def test_too_many_lines(client: httpx.AsyncClient, monkeypatch: Any) -> None:
    monkeypatch.setattr(import_export, "MAX_LINES", 3)
    answer = await client.post("/api/v1/import", content=text([line("a", i) for i in range(4)]), headers=NDJSON)
    assert answer.status_code == 413
    assert (await client.get("/api/v1/sessions")).json()["sessions"] == []


async def test_long_sessions_are_learned_in_batches(client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    lines = [line("long", i) for i in range(450)] + [line("short", i) for i in range(3)]
    assert (await send(client, text(lines)))["imported"] == 453
    payloads = [orjson.loads(job["payload"]) for job in await read_jobs(admin)]
    assert [len(each["messages"]) for each in payloads] == [200, 200, 50, 3]
    assert [each["session_name"] for each in payloads] == ["long"] * 3 + ["short"]
    rows = await all_pages(client, "/api/v1/sessions/long/history", "messages", limit=1000)
    assert [each["content"] for each in rows] == [f"long says {i}" for i in range(450)]
    assert [each["parent_id"] for each in rows[1:]] == [each["id"] for each in rows[:-1]]
    assert [each for payload in payloads[:3] for each in payload["messages"]] == [each["id"] for each in rows]
    assert payloads[1]["from"] == rows[200]["created_at"].replace("Z", "+00:00")
    assert payloads[1]["to"] == rows[399]["created_at"].replace("Z", "+00:00")


async def test_tool_calls_and_parts_are_kept(client: httpx.AsyncClient) -> None:
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}]
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    await send(client, text([
        line("a", 0, content=parts), line("a", 1, content=None, tool_calls=calls),
        line("a", 2, role="tool", content="7", tool_call_id="c"),
    ]))  # fmt: skip
    rows = await all_pages(client, "/api/v1/sessions/a/history", "messages")
    assert rows[0]["content"] == parts
    assert rows[1]["tool_calls"] == calls
    assert rows[2]["tool_call_id"] == "c"


async def test_a_line_is_known_again_wherever_it_stands(client: httpx.AsyncClient) -> None:
    lines = [line("a", i) for i in range(3)]
    await send(client, text([*lines, lines[2]]))  # said twice at the same time: two messages
    earlier = line("a", -1)
    told = await send(client, text([earlier, *lines, lines[2]]))
    assert (told["imported"], told["duplicates"]) == (1, 4)
