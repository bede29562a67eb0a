"""Fault 15, in the processes: of a user who was erased no server keeps a vector or a word in its memory.

The index holds an item's vector as whole numbers, and the hashes of all words in their order (`app.index.user_index`). Both
are looked for in all anonymous memory of the servers' and workers' processes, also in what is free there: it holds what it held
until something else is written over it. Of what only passed through (texts, and what the database sent) copies may linger in
free memory, which Python does not wipe: how many is printed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from app.index.analyse import asked
from app.index.user_index import ItemRow, UserIndex
from tests.support.clients import Api, ask
from tests.support.database import connected
from tests.support.replies import chat_script
from tests.support.rows import read_index_of_user
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

pytestmark = pytest.mark.heavy

ERASED, KEPT = "xanthippe", "yolanda"
TURNS = 12
WITHIN_S = 5.0

Servers = Sequence[MnemeServer]


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream(chat_script(lambda asked: "Noted.")) as upstream:
        yield upstream


@pytest.fixture
def servers(tmp_path: Path, module_database: str, upstream: ScriptedUpstream) -> Iterator[Servers]:
    def server(name: str) -> MnemeServer:
        return MnemeServer(tmp_path / name, database=module_database, upstream=upstream.url, worker=True)

    with server("one") as one, server("two") as two:
        yield one, two


def say(server: MnemeServer, who: str, text: str, session: str) -> None:
    answer = ask(server, text, headers={"x-mneme-user": who, "x-mneme-session": f"{who}-{session}"})
    assert answer.headers["x-mneme-status"] == "ok"


def live(server: MnemeServer, who: str) -> None:
    """A dozen talks, of which one has a word that nobody else has."""
    for n in range(TURNS):
        garden = f"a garden of {who}" if n == TURNS // 2 else "no garden"
        say(server, who, f"House {n * n + 17} of {who[0]} street has {garden}, and {n} windows.", str(n))
    Api(server, user=who).wait_for_quiet()


async def held(database: str, who: str) -> dict[str, bytes]:
    """What an index has of the one message, and so what to look for; and what the database sends of it."""
    async with connected(database) as admin:
        rows = await read_index_of_user(admin, who)
    (row,) = (row for row in rows if who in (row["content"] or ""))
    assert all(each["terms"] for each in rows), "a server has made the terms of all"
    (alone,) = UserIndex.of([ItemRow(row["place"], row["vector"], row["terms"])], row["dimensions"])._base.vectors
    words = UserIndex.of([ItemRow(each["place"], b"", each["terms"]) for each in rows], 0)._base.hashes
    (term,) = asked(who)
    at = int(np.searchsorted(words, np.uint64(term.hashes[0])))
    assert words[at] == term.hashes[0]
    return {
        "vector": alone.tobytes(),
        "words": words[max(0, at - 1) : at + 2].astype("<u8").tobytes(),
        "one word": words[at : at + 1].astype("<u8").tobytes(),
        "stored vector": row["vector"][4:],
    }


def copies(servers: Servers, wanted: Mapping[str, bytes], *names: str) -> dict[str, int]:
    """How many there are of each in the processes of these servers."""
    found = dict.fromkeys(names or wanted, 0)
    for server in servers:
        for pid in (server.pid, *server.workers):
            for part in anonymous(pid):
                for name in found:
                    found[name] += part.count(wanted[name])
    return found


def anonymous(pid: int) -> Iterator[bytes]:
    """The memory of a process that is of no file and may be written, region by region."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, _, _, file, *_ = line.split()
            if rights == "rw-p" and file == "0":
                begin, end = (int(each, 16) for each in span.split("-"))
                try:
                    memory.seek(begin)
                    yield memory.read(end - begin)
                except OSError:  # it was given back meanwhile
                    continue


async def test_no_process_has_a_vector_or_a_word_of_an_erased_user(servers: Servers, module_database: str) -> None:
    one, two = servers
    for who in (KEPT, ERASED):
        live(one, who)
    # What was said is read by servers that nobody said it to: as they start, and as they are asked.
    for server in servers:
        server.terminate()
        server.wait()
        server.restart()
        for n in range(3):
            for who in (KEPT, ERASED):
                say(server, who, f"What of street {who[0]}, and number {n}?", "again")
    gone, kept = await held(module_database, ERASED), await held(module_database, KEPT)
    before = copies(servers, gone)
    assert min(before["vector"], before["words"]) >= len(servers), f"an index that is there is not seen: {before}"
    assert two.http.delete(f"/api/v1/users/{ERASED}").is_success
    began = time.monotonic()
    while any((left := copies(servers, gone, "vector", "words")).values()):
        assert time.monotonic() - began < WITHIN_S, f"{left} of {before}"
    took = time.monotonic() - began
    print(f"before {before}, after {took:.1f} s {copies(servers, gone)}")
    assert copies(servers, kept, "vector", "words")["vector"] > 0, "someone else has lost something"
