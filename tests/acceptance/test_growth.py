"""Storage grows with the conversation, not with its square: though every request brings the whole transcript."""

from __future__ import annotations

import itertools
from typing import Any

import asyncpg
import pytest

from tests.support.clients import Message, answer_of, ask, assistant, session_of, user
from tests.support.database import connected
from tests.support.replies import Script, chat_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

TURNS = 60
MANY_TURNS = 200
FACTS = 60
"""Things known before, more than a session's blocks have room for."""
SHARE = 4
"""One in so many turns is compared, at the beginning and at the end."""
TOLERANCE = 1.5
"""A last window that cost so many times the first is more than noise; with whole transcripts stored it would be 7 times."""
SLACK = 32
"""Bytes a turn by which a table may grow faster: values whose size varies."""

_TABLES = """
    SELECT c.oid::regclass::text AS table, array_agg(quote_ident(a.attname)) AS columns
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind = 'r' GROUP BY c.oid
"""


async def stored_bytes(admin: asyncpg.Connection[Any]) -> dict[str, int]:
    """The bytes of all column values, as stored, by table (partitions under their parent's name)."""
    sizes: dict[str, int] = {}
    for row in await admin.fetch(_TABLES):
        size = " + ".join(f"COALESCE(pg_column_size({column}), 0)" for column in row["columns"])
        name = row["table"].partition(".")[2]
        sizes[name] = int(await admin.fetchval(f"SELECT COALESCE(sum({size}), 0) FROM {row['table']}"))
    return sizes


@pytest.fixture(scope="module")
def script() -> Script:
    """Answers of one length, each its own."""
    answers = iter(range(10**9))
    return chat_script(lambda asked: f"Answer number {next(answers):06}: " + "plenty of words to store. " * 8)


@pytest.mark.heavy
@pytest.mark.parametrize("turns", [TURNS, MANY_TURNS])
@pytest.mark.parametrize("memory", ["nothing to add", "a block in each turn"])
@pytest.mark.parametrize("managed", ["client", "server"])
async def test_stored_bytes_grow_linearly(
    mneme: MnemeServer, upstream: ScriptedUpstream, module_database: str, managed: str, memory: str, turns: int
) -> None:
    headers, window = {"x-mneme-user": f"{managed}-managed, {memory}, {turns}"}, turns // SHARE
    if memory != "nothing to add":
        for n in range(FACTS):
            ask(mneme, f"My friend number {n} says: question number {n:06} is about house {n}.", headers=headers)
    if managed == "server":
        headers["x-mneme-session"] = "long"
    transcript: list[Message] = []
    marks: list[dict[str, int]] = []
    sessions = set()
    async with connected(module_database) as admin:
        for turn in range(turns + 1):
            if turn in (0, window, turns - window, turns):
                marks.append(await stored_bytes(admin))
            if turn == turns:
                break
            question = user(f"Question number {turn:06}: " + "what else is there to say about it? " * 5)
            answer = ask(mneme, [*transcript, question], headers=headers, model="gpt-4o")
            assert answer.headers["x-mneme-status"] == "ok"
            sessions.add(session_of(answer))
            if managed == "client":
                transcript += [question, assistant(answer_of(answer))]
    assert len(sessions) == 1
    grown = [{name: after[name] - before[name] for name in after} for before, after in itertools.pairwise(marks)]
    first, last = grown[0], grown[2]
    more = {name: (first[name], last[name]) for name in last if last[name] > TOLERANCE * first[name] + SLACK * window}
    assert not more, f"bytes of the first and of the last {window} turns, by table"
