"""Faults 6 to 8: clients that go, clients that do not read, upstreams that say strange things.

Each of these is tried on the relay alone in tests/integration/gateway (test_relay_sockets, test_transport), with every
captured answer cut anywhere. Here: on the whole server, with memory and the record.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.store.pools import POOL_NAMES
from tests.acceptance.sdk_upstream import chunk
from tests.support.clients import Api, user
from tests.support.database import connected
from tests.support.jobs import until
from tests.support.ledger import CHAT, DONE
from tests.support.replies import (
    Fin,
    Recorded,
    Reply,
    Rst,
    Send,
    Stall,
    Step,
    chat_script,
    chunked,
    head_of,
    reply_bytes,
    reply_events,
    reply_json,
)
from tests.support.rows import read_calls, read_messages
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.sockets import RawClient, RawResponse, eventually, fetch

CLOSING_S = 1.0
"""docs/explanation/reliability.md, fault 6: the upstream is closed within a second of the client's going."""
BUSY = 5
"""How much longer the short forms give it, for they run beside others on two cores."""
IDLE_S = 3
"""Seconds until a stall is a break: more than a client on a busy machine takes to go."""
POOL = 2


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream(chat_script(lambda asked: "All right.")) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def mneme(
    tmp_path_factory: pytest.TempPathFactory, module_database: str, upstream: ScriptedUpstream
) -> Iterator[MnemeServer]:
    given = {
        "IDLE_TIMEOUT_S": str(IDLE_S),
        "HEAD_TIMEOUT_S": "30",
        "POOL_SIZE": str(POOL),
        "POOL_BACKGROUND_SIZE": str(POOL),
    }
    folder = tmp_path_factory.mktemp("mneme")
    with MnemeServer(folder, database=module_database, upstream=upstream.url, settings=given) as server:
        yield server


@pytest.fixture(autouse=True)
def fresh(upstream: ScriptedUpstream) -> None:
    upstream.requests.clear()


def headers_of(who: str) -> list[tuple[bytes, bytes]]:
    return [(b"content-type", b"application/json"), (b"x-mneme-user", who.encode())]


def body_of(text: str = "Tell me", *, stream: bool = True) -> bytes:
    return json.dumps({"model": "gpt-4o", "messages": [user(text)], "stream": stream}).encode()


def chats(upstream: ScriptedUpstream) -> list[Recorded]:
    return [each for each in upstream.requests if each.path == CHAT]


def begun(*pieces: str, end: list[Step]) -> Reply:
    deltas = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in pieces)]
    return reply_events([chunk("gpt-4o", delta) for delta in deltas], end=end)


# --- 6: a client that goes --------------------------------------------------------------------------------------------

GOING: dict[str, tuple[Reply, bytes | None, str]] = {
    "before the head": (Reply([Stall()]), None, ""),
    "before the first chunk": (reply_events([], end=[Stall()]), b"\r\n\r\n", ""),
    "in mid-stream": (begun("Some ", "words", end=[Stall()]), b"words", "Some words"),
}
"""What the upstream does; what the client has read when it goes; what of the answer is kept."""


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("when", GOING)
async def test_a_client_that_goes(mneme: MnemeServer, upstream: ScriptedUpstream, when: str, how: str) -> None:
    reply, read, kept = GOING[when]
    upstream.script = chat_script(lambda asked: reply)
    who = f"{when}, {how}"
    async with RawClient(mneme.port) as client:
        await client.send("POST", CHAT, headers_of(who), body_of())
        await eventually(lambda: len(chats(upstream)) == 1, "the upstream to be asked")
        if read is not None:
            await client.read_until(read)
        getattr(client, how)()
        async with asyncio.timeout(CLOSING_S * BUSY):
            await eventually(chats(upstream)[0].peer_closed.is_set)
    api = Api(mneme, user=who)
    await eventually(lambda: len(api.calls()) == 1, "the call to be recorded")
    (call,) = api.calls()
    assert call["outcome"] in ("gone", "failed" if read is None else "gone")
    if kept:
        assert api.said(call["session_id"]) == [("user", "Tell me"), ("assistant", kept)]


async def leave(mneme: MnemeServer, number: int) -> None:
    """Ask, and go at one of three points."""
    async with RawClient(mneme.port) as client:
        await client.send("POST", CHAT, headers_of(f"leaver-{number % 7}"), body_of(f"Tell me {number}"))
        if number % 3:
            await client.read_until(b"\r\n\r\n" if number % 3 == 1 else b"words")
        client.reset()


async def leaves_nothing_behind(mneme: MnemeServer, upstream: ScriptedUpstream, database: str, times: int) -> None:
    upstream.script = chat_script(lambda asked: begun("Some ", "words", end=[Stall()]))
    async with RawClient(mneme.port) as warm:
        await warm.send("GET", "/healthz")
        await warm.response()
    files = open_files(mneme)
    for start in range(0, times, 25):
        async with asyncio.TaskGroup() as group:
            for number in range(start, min(start + 25, times)):
                group.create_task(leave(mneme, number))
    await eventually(lambda: all(each.peer_closed.is_set() for each in chats(upstream)), "the upstream to be left")
    await eventually(
        lambda: open_files(mneme) <= files + POOL * len(POOL_NAMES) + 2, f"{open_files(mneme)} files, {files} before"
    )
    async with connected(database) as admin:
        asked = len(chats(upstream))

        async def recorded() -> bool:
            return len([call for call in await read_calls(admin) if call["outcome"] in (1, 2)]) >= asked - times // 3

        async def idle() -> bool:
            return not await admin.fetchval(BUSY_BACKENDS)

        await until(recorded, "all calls are recorded")
        await until(idle, "no connection is in use")
        assert 0 < await admin.fetchval(f"SELECT count(*) {OURS}") <= POOL * len(POOL_NAMES)
        assert len(await read_messages(admin, content="Some words")) >= times // 3
    upstream.script = chat_script(lambda asked: "All right.")
    answer = await fetch(mneme.port, "POST", CHAT, headers_of("stayer"), body_of())
    assert (answer.ended, answer.header("x-mneme-status")) == ("whole", "ok")


OURS = "FROM pg_stat_activity WHERE application_name LIKE 'mneme %' AND datname = current_database()"
BUSY_BACKENDS = f"SELECT count(*) {OURS} AND state <> 'idle'"


def open_files(mneme: MnemeServer) -> int:
    return len(list(Path(f"/proc/{mneme.pid}/fd").iterdir()))


async def test_fifty_clients_that_go_leave_nothing_behind(
    mneme: MnemeServer, upstream: ScriptedUpstream, module_database: str
) -> None:
    await leaves_nothing_behind(mneme, upstream, module_database, 50)


@pytest.mark.heavy
async def test_five_hundred_clients_that_go_leave_nothing_behind(
    mneme: MnemeServer, upstream: ScriptedUpstream, module_database: str
) -> None:
    await leaves_nothing_behind(mneme, upstream, module_database, 500)


# --- 7: a client that does not read -----------------------------------------------------------------------------------

SLOW_EVENT = b"data: " + b"x" * 99_992 + b"\n\n"
SLOW_EVENTS = 1000
BUFFERS_BYTES = 32 * 1024 * 1024
"""What the kernel's buffers on the way may hold together: some 6 MB each where it lets them grow, on both connections, and what
lies between; a third of what each reader is sent."""


class Counted(list[Step]):
    """Steps that know how far they were played."""

    done = 0

    def __iter__(self) -> Iterator[Step]:
        for self.done, step in enumerate(super().__iter__()):
            yield step


async def test_slow_readers_hold_their_upstreams_up_and_nothing_else(
    mneme: MnemeServer, upstream: ScriptedUpstream
) -> None:
    """More slow readers than the pool has connections: the upstream waits, memory stays, and others are served."""
    plays = [Counted([*reply_events([], end=[]).steps, *([Send(chunked(SLOW_EVENT))] * SLOW_EVENTS)]) for _ in range(4)]
    waiting = iter(plays)
    upstream.script = chat_script(lambda asked: Reply(next(waiting)))
    before = memory_of(mneme)
    clients = [RawClient(mneme.port, receive_buffer=4096) for _ in plays]
    try:
        for n, client in enumerate(clients):
            await client.__aenter__()
            await client.send("POST", CHAT, headers_of(f"slow-{n}"), body_of())
            await client.read_until(b"\r\n\r\n")
        last, now = -1, 0
        while last != now or now < len(plays) * 5:  # until nothing moves any more
            await asyncio.sleep(0.3)
            last, now = now, sum(play.done for play in plays)
        assert last * len(SLOW_EVENT) < len(plays) * BUFFERS_BYTES
        assert memory_of(mneme) - before < len(plays) * BUFFERS_BYTES
        upstream.script = chat_script(lambda asked: "All right.")
        for n in range(POOL * 2):
            answer = await fetch(mneme.port, "POST", CHAT, headers_of(f"quick-{n}"), body_of())
            assert (answer.ended, answer.header("x-mneme-status")) == ("whole", "ok")
    finally:
        for client in clients:
            client.reset()
    for n in range(len(plays)):
        api = Api(mneme, user=f"slow-{n}")
        await eventually(lambda api=api: len(api.calls()) == 1, "the call to be recorded")  # type: ignore[misc]  # a bound default


def memory_of(mneme: MnemeServer) -> int:
    """Bytes of memory that the process holds."""
    status = Path(f"/proc/{mneme.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


# --- 8: an upstream that says strange things --------------------------------------------------------------------------

WORDS = [chunk("gpt-4o", {"role": "assistant", "content": ""}), chunk("gpt-4o", {"content": "Grüße, 世界 🌍"})]
LAST = [chunk("gpt-4o", {}, "stop"), DONE]
ERROR = {"error": {"message": "Slow down, please.", "type": "tokens", "param": None, "code": "rate_limit_exceeded"}}
BROKEN = b'data: {"error": {"message": "The engine died.", "type": "server_error", "param": null, "code": 500}}\n\n'
LONG = b"data: " + b"y" * 10_000_000 + b"\n\n"
EVENTS_HEAD = head_of("200 OK", [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])
WHOLE = b"".join(chunked(each) for each in [*WORDS, *LAST])


def whole_in_pieces(*cuts: int) -> Reply:
    return reply_bytes(EVENTS_HEAD + WHOLE + b"0\r\n\r\n", cuts=[len(EVENTS_HEAD) + cut for cut in cuts])


STRANGE: dict[str, Reply] = {
    "429": reply_json(ERROR, "429 Too Many Requests", [("retry-after", "7"), ("x-ratelimit-remaining-requests", "0")]),
    "500": reply_json({"detail": "oh no"}, "500 Internal Server Error"),
    "503 of a load balancer": Reply(
        [
            Send(
                head_of("503 Service Unavailable", [("content-type", "text/html"), ("content-length", "9")]) + b"<h1>no"
            ),
            Send(b"</h"),
        ]
    ),
    "stall": reply_events(WORDS, end=[Stall()]),
    "cut": reply_events(WORDS, end=[Rst()]),
    "closed in the middle of a chunk": reply_events(WORDS, end=[Send(chunked(LAST[0])[:9]), Fin()]),
    "split characters": whole_in_pieces(*(at + 1 for at in range(len(WHOLE)) if WHOLE[at] >= 0xC0)),
    "no [DONE]": reply_events([*WORDS, LAST[0]]),
    "no terminating chunk": reply_events([*WORDS, *LAST], end=[Fin()]),
    "an empty 200": Reply([Send(head_of("200 OK", [("content-type", "application/json"), ("content-length", "0")]))]),
    "an empty stream": reply_events([]),
    "an error in mid-stream": reply_events([*WORDS, BROKEN, DONE]),
    "an error instead of an end": reply_events([*WORDS, BROKEN], end=[Fin()]),
    "a line of 10 MB": reply_events([*WORDS, LONG, *LAST]),
    "half a JSON body": Reply(
        [Send(head_of("200 OK", [("content-type", "application/json"), ("content-length", "100")]) + b'{"id":'), Fin()]
    ),
    "JSON that is none": Reply(
        [Send(head_of("200 OK", [("content-type", "application/json"), ("content-length", "9")]) + b"\xff\xfe{{{{{{{")]
    ),
    "events with CR LF and comments": reply_events(
        [b": ping\r\n\r\n", *(e.replace(b"\n", b"\r\n") for e in WORDS), DONE]
    ),
    "words after [DONE]": reply_events([*WORDS, *LAST, b": bye\n\n"]),
}
UNENDED = {
    "stall",
    "cut",
    "closed in the middle of a chunk",
    "no terminating chunk",
    "an error instead of an end",
    "half a JSON body",
}


@pytest.mark.parametrize("name", STRANGE)
async def test_a_strange_answer_comes_through_as_it_is(
    mneme: MnemeServer, upstream: ScriptedUpstream, name: str
) -> None:
    upstream.script = chat_script(lambda asked: STRANGE[name])
    who = f"strange: {name}"
    answer = await fetch(mneme.port, "POST", CHAT, headers_of(who), body_of())
    if name != "stall":
        check_same(answer, await fetch(upstream.port, "POST", CHAT, headers_of(who), body_of()), name)
    else:
        assert answer.body == b"".join(WORDS)
    assert (answer.ended != "whole") == (name in UNENDED)
    api = Api(mneme, user=who)
    await eventually(lambda: len(api.calls()) == 1, "the call to be recorded")
    assert api.raw(api.calls()[0]["id"]) == answer.body


def check_same(answer: RawResponse, direct: RawResponse, name: str) -> None:
    """As it comes without Mneme: status, headers of the upstream's own, and bytes."""
    assert (answer.status, answer.reason) == (direct.status, direct.reason)
    for header, value in direct.headers:
        if header.lower() not in (b"transfer-encoding", b"connection"):
            assert (header.lower(), value) in [(given.lower(), other) for given, other in answer.headers]
    assert answer.body == direct.body


PIECES = st.lists(
    st.one_of(
        st.text(max_size=20).map(lambda text: chunk("gpt-4o", {"content": text})),
        st.sampled_from([b": comment\n\n", b"\n", b"\r\n", b"event: x\ndata: 1\n\n", b"data: [DONE", b"data: {\n\n"]),
        st.binary(max_size=30),
    ),
    max_size=8,
)


@pytest.mark.parametrize("examples", [30, pytest.param(1000, marks=[pytest.mark.heavy, pytest.mark.timeout(600)])])
def test_where_chunks_end_changes_nothing(mneme: MnemeServer, upstream: ScriptedUpstream, examples: int) -> None:
    """Any stream of bytes, in chunks and in reads that end anywhere, is relayed and kept as it is."""

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=examples < 100,
        suppress_health_check=list(HealthCheck),
    )
    @given(pieces=PIECES, whole=st.booleans(), data=st.data())
    def run(pieces: list[bytes], whole: bool, data: st.DataObject) -> None:
        body = b"".join(pieces) + (DONE if whole else b"")
        cuts = st.lists(st.integers(0, len(body)), max_size=10)
        chunks = [chunked(each) for each in cut_at(body, data.draw(cuts, "chunks")) if each]
        wire = EVENTS_HEAD + b"".join(chunks) + b"0\r\n\r\n"
        reads = data.draw(st.lists(st.integers(0, len(wire)), max_size=10), "reads")
        upstream.script = chat_script(lambda asked: reply_bytes(wire, cuts=reads))
        answer = mneme.http.post(CHAT, content=body_of(), headers={"x-mneme-user": "cutter"})
        assert answer.status_code == 200
        assert answer.content == body
        assert Api(mneme, user="cutter").raw(answer.headers["x-mneme-call-id"]) == body

    run()


def cut_at(data: bytes, places: list[int]) -> list[bytes]:
    return [data[start:end] for start, end in itertools.pairwise([0, *sorted(places), len(data)])]
