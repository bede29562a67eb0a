"""Many users' memories and messages, written straight into the tables: the rows that turns and the worker leave, in minutes.

Texts, vectors and token counts are made in a process of their own while Postgres stores those made before. Indexes that are
slow to grow are taken away meanwhile and built again at the end, from their own definitions.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg

from app.providers.embeddings import WordLlamaEmbedder
from app.providers.tokens import Tokenizers
from app.store import ids
from app.store.pools import halfvec
from loadtests.fill import SESSION, STEP
from loadtests.prose import Prose

Connection = asyncpg.Connection

MONTHS = 6
"""Over which the messages of a user are spread: as many partitions of the history hold them."""
PART_ROWS = 20_000
"""Rows made and stored at once, some 30 MB."""
COUNTED_BY = "gpt-4o"
"""A model of the tokenizer by which stored texts are counted."""
STAGING_COLUMNS = (
    "user_id", "external_id", "item_id", "item_kind", "session_id", "session_name", "turn_index", "role", "at", "tokens",
    "content", "content_hash", "source_id", "vector",
)  # fmt: skip
STAGING = """
CREATE UNLOGGED TABLE IF NOT EXISTS public.bench_rows (
    user_id uuid, external_id text, item_id uuid, item_kind smallint, session_id uuid, session_name text, turn_index integer,
    role smallint, at timestamptz, tokens integer, content text, content_hash bytea, source_id uuid, vector halfvec);
SET synchronous_commit = off;
SET maintenance_work_mem = '1GB';
"""
SLOW = """
SELECT c.relname AS name, replace(pg_get_indexdef(c.oid), ' ON ONLY ', ' ON ') AS definition
FROM pg_class c JOIN pg_am a ON a.oid = c.relam
WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind = 'I' AND NOT c.relispartition
  AND (a.amname IN ('gin', 'hnsw') OR c.relname LIKE 'embeddings%') AND NOT EXISTS (
      SELECT FROM pg_constraint k WHERE k.conindid = c.oid)
"""
PARTITIONS = "SELECT agent_data.ensure_history_partitions($1, $2)"
STORE = """
INSERT INTO agent_data.users (user_id, tenant_id, external_id)
SELECT DISTINCT user_id, $1::uuid, external_id FROM public.bench_rows ON CONFLICT DO NOTHING;

INSERT INTO agent_data.sessions (
    session_id, user_id, tenant_id, external_id, created_at, expires_at, turn_count, first_message_at, last_message_at)
SELECT session_id, user_id, $1::uuid, session_name, min(at), now() + interval '90 days', count(*), min(at), max(at)
FROM public.bench_rows WHERE item_kind = 0 GROUP BY session_id, user_id, session_name;

INSERT INTO agent_data.embeddings (user_id, tenant_id, space, item_id, item_kind, item_at, in_hnsw, vector)
SELECT user_id, $1::uuid, $2::smallint, item_id, item_kind, at,
       satisfies_hash_partition('agent_data.embeddings'::regclass, $3::integer, $4::integer, user_id), vector
FROM public.bench_rows;

WITH history AS (
    INSERT INTO agent_data.conversation_history (
        message_id, session_id, user_id, tenant_id, turn_index, role, content, content_hash, message_hash, token_count,
        created_at)
    SELECT item_id, session_id, user_id, $1::uuid, turn_index, role, content, content_hash, substring(content_hash FOR 16),
           tokens, at
    FROM public.bench_rows WHERE item_kind = 0
), memories AS (
    INSERT INTO agent_data.memory_store (
        memory_id, user_id, tenant_id, session_id, memory_tier, memory_scope, kind, content_text, content_hash,
        provenance_type, provenance_turn_id, provenance_turn_index, source_message_ids, sources, token_count, created_at)
    SELECT item_id, user_id, $1::uuid, session_id, 3, 1, 'fact', content, content_hash, 0, source_id, turn_index,
           ARRAY[source_id], jsonb_build_array(jsonb_build_object(
               'session', session_name, 'session_id', session_id, 'message_id', source_id, 'turn_index', turn_index)),
           tokens, at
    FROM public.bench_rows WHERE item_kind = 1
)
SELECT;

TRUNCATE public.bench_rows;
"""


class Person(NamedTuple):
    """A user to make: how many memories, and messages in sessions of ten turns."""

    name: str
    memories: int
    messages: int

    @property
    def user_id(self) -> UUID:
        return ids.user_id(ids.LOCAL_TENANT, self.name)


@dataclass(frozen=True, slots=True)
class Graph:
    """Whose vectors enter the HNSW graph: all of one of the `partitions` of the table."""

    partitions: int
    partition: int


Row = tuple[Any, ...]


class Maker:
    """Makes rows; one in each process that does so."""

    def __init__(self) -> None:
        self._embedder = WordLlamaEmbedder()
        self._count = Tokenizers(None).for_model(COUNTED_BY).count

    def rows(self, person: Person, now: datetime) -> list[Row]:
        """A user's rows, in the order of `STAGING_COLUMNS`; the same texts for the same name."""
        talk = Prose(person.name)
        messages = list(self._messages(person, talk, now))
        memories = list(self._memories(person, talk, messages))
        rows = messages + memories
        vectors = self._embedder.embed_now([row[10] for row in rows])
        return [(*row, halfvec(vector)) for row, vector in zip(rows, vectors, strict=True)]

    def _messages(self, person: Person, talk: Prose, now: datetime) -> Iterator[Row]:
        sessions = -(-person.messages // SESSION)
        apart = timedelta(days=30 * MONTHS) / max(1, sessions)
        for n in range(person.messages):
            number, place = divmod(n, SESSION)
            name = f"{person.name}-{number}"
            at = now - (sessions - number) * apart + place * STEP
            text = talk.answered() if place % 2 else talk.said()
            session = ids.session_id(ids.LOCAL_TENANT, person.user_id, name)
            yield self._row(person, ids.uuid7(at), 0, (session, name, place + 1, 1 + place % 2), at, text, None)

    def _memories(self, person: Person, talk: Prose, messages: Sequence[Row]) -> Iterator[Row]:
        told: set[str] = set()
        for n in range(person.memories):
            while (text := talk.stated()) in told:  # there is but one active memory of a text
                pass
            told.add(text)
            source = messages[2 * n % len(messages)]
            yield self._row(person, ids.uuid7(source[8]), 1, (*source[4:7], None), source[8], text, source[2])

    def _row(
        self, person: Person, item: UUID, kind: int, place: Row, at: datetime, text: str, source: UUID | None
    ) -> Row:
        tokens, digest = self._count(text), hashlib.sha256(text.encode()).digest()
        return (person.user_id, person.name, item, kind, *place, at, tokens, text, digest, source)


def _make(people: Sequence[Person], now: datetime) -> list[Row]:
    """In the process that makes rows."""
    maker = Maker()
    return [row for person in people for row in maker.rows(person, now)]


def parts(people: Sequence[Person], rows: int = PART_ROWS) -> Iterator[list[Person]]:
    """People cut into parts of some `rows` each; nobody is cut in two."""
    part: list[Person] = []
    for person in people:
        part.append(person)
        if sum(each.memories + each.messages for each in part) >= rows:
            yield part
            part = []
    if part:
        yield part


async def prepare(connection: Connection, now: datetime) -> None:
    """Once, before anybody is stored: the staging table, and partitions for the months that the messages fall in."""
    await connection.execute(STAGING)
    await connection.set_type_codec("halfvec", encoder=bytes, decoder=bytes, format="binary")
    await connection.execute("SET ROLE mneme_owner")
    await connection.fetchval(PARTITIONS, (now - timedelta(days=31 * (MONTHS + 1))).date(), now.date())
    await connection.execute("RESET ROLE")


@asynccontextmanager
async def without_slow_indexes(connection: Connection, say: Callable[[str], None]) -> AsyncIterator[None]:
    """Take the slow indexes away for as long as the block runs, and build them again."""
    slow = await connection.fetch(SLOW)
    for index in slow:
        await connection.execute(f"DROP INDEX agent_data.{index['name']}")
    yield
    for index in slow:
        say(f"building {index['name']}")
        await connection.execute(index["definition"])
    say("vacuuming")
    await connection.execute("VACUUM (ANALYZE)")


async def store(
    connection: Connection,
    people: Sequence[Person],
    space: int,
    graph: Graph,
    executor: Executor,
    stored: Callable[[int], None],
) -> None:
    """Store people; `stored` is told how many of them are, part by part."""
    loop, now, left = asyncio.get_running_loop(), datetime.now(UTC), parts(people)
    arguments = (ids.LOCAL_TENANT, space, graph.partitions, graph.partition)
    ahead = [(part, loop.run_in_executor(executor, _make, part, now)) for part in islice(left, 2)]
    while ahead:
        part, made = ahead.pop(0)
        rows = await made
        ahead += [(more, loop.run_in_executor(executor, _make, more, now)) for more in islice(left, 1)]
        await connection.copy_records_to_table(
            "bench_rows", records=rows, columns=STAGING_COLUMNS, schema_name="public"
        )
        for statement, own in statements(STORE, arguments):
            await connection.execute(statement, *own)
        stored(len(part))


def statements(script: str, arguments: Sequence[object]) -> list[tuple[str, Sequence[object]]]:
    """A script cut into its statements, each with the arguments that it names: $1, or $1 to $4."""
    cut = [each for each in script.split(";\n") if each.strip()]
    named = [max((n for n in range(1, len(arguments) + 1) if f"${n}" in each), default=0) for each in cut]
    return [(each, arguments[:last]) for each, last in zip(cut, named, strict=True)]


def crowd(first: int, memories: int, each: int, messages: int) -> list[Person]:
    """Users with `each` memories and `messages` messages, so many that they have `memories` in all."""
    return [Person(f"crowd-{first + n}", each, messages) for n in range(-(-memories // each))]
