"""Prepares what the first requests after a start would wait for: the rules of each language, and the writing of a turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from uuid import uuid4

from app.capture.facts import AnsweredChoice, CallFacts, CompileFacts, Exchange, NewTurnMessage, Outcome, make
from app.capture.record import Recorder
from app.context.transcript import Transcript
from app.languages import heard
from app.memory.candidate import SourceExchange, guessed
from app.memory.commands import commands
from app.memory.extract import extract
from app.providers.embeddings import NoEmbedder
from app.server.core import WARM_CONNECTIONS, Core
from app.store import ids
from app.store.records import TurnRecord, batch
from app.store.turns import TurnStore
from app.tasks import FailOpen

STATEMENTS = (
    "I have a dog.",
    "Ich habe einen Hund und wohne in Köln.",
    "Tengo un perro y vivo en Madrid.",
    "J'ai un chien et j'habite à Lyon.",
    "Eu tenho um cão e moro em Lisboa.",
    "我住在北京，我有一只狗。",
)
"""A statement in each language that has rules."""
COMMANDS = (
    "Forget that I have a dog.",
    "Vergiss, dass ich einen Hund habe.",
    "Olvida que tengo un perro.",
    "Oublie que j'ai un chien.",
    "Esquece que eu tenho um cão.",
    "忘记我有一只狗。",
)
"""A command in each of these languages."""

log = logging.getLogger("mneme")


def read_sentence(text: str, now: datetime) -> None:
    """Run the rules that read each message, so that those of the text's language are loaded and compiled."""
    extract(SourceExchange(text, now))
    commands(text)
    guessed(text)
    heard(text)


async def rehearse_languages(now: datetime) -> None:
    """Read each of `STATEMENTS` and `COMMANDS` in a thread, some 25 ms of CPU and 0.4 MB for a language. A failure is
    logged, and ends nothing but the rehearsal."""
    with FailOpen(log.warning, "the rules of languages are prepared with the first message in each"):
        for sentence in (*STATEMENTS, *COMMANDS):
            await asyncio.to_thread(read_sentence, sentence, now)


# --- the writing of a turn -----------------------------------------------------------------------------------------------
# A connection's first turn takes 50 ms instead of 5: asyncpg looks up the types of its rows, and Postgres plans what
# `record_turns` runs. A connection keeps both when the transaction is rolled back.


class RollbackStore(TurnStore):
    """A store that writes turns and rolls them back, so that no row, job or notification is left."""

    async def record_many(self, turns: Sequence[TurnRecord]) -> bool:
        async with self._pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                return bool(await connection.fetchval(self._sql["turns.record_turns"], *batch(turns)))
            finally:
                await transaction.rollback()


def build_turn(now: datetime) -> tuple[CallFacts, Exchange, CompileFacts]:
    """Return a first turn of a user and a session whose ids nobody else has."""
    tenant, user, session = ids.LOCAL_TENANT, uuid4(), uuid4()
    messages = [{"role": role, "content": STATEMENTS[0]} for role in ("user", "assistant")]
    transcript = Transcript.of(messages)
    question_hash, answer_hash = (digest or b"" for digest in transcript.hashes)
    question_chain, answer_chain = (digest or b"" for digest in transcript.chains)
    body = b'{"messages":[{}]}'
    call = CallFacts(
        ids.uuid7(now), tenant, user, now, "POST", "/v1/chat/completions", "", Outcome.COMPLETE, "ok",
        request=make(body, 13, [(13, 15)]), session_id=session,
    )  # fmt: skip
    exchange = Exchange(
        session, str(user), [NewTurnMessage(messages[0], question_hash)],
        [AnsweredChoice(messages[1], answer_hash, "stop")], question_chain, (None, None), [answer_chain], now, now,
    )  # fmt: skip
    return call, exchange, CompileFacts({}, None)


async def rehearse_recording(core: Core) -> None:
    """Write a turn on each connection that the start has opened, and roll it back. A failure is logged, and ends nothing but
    the rehearsal."""
    embedder = core.embedder if core.embedder.local else NoEmbedder()
    store = RollbackStore(core.pools.write, core.queries)
    recorder = Recorder(store, embedder, core.counts, core.counter)
    turns = [build_turn(core.clock.now()) for _ in range(WARM_CONNECTIONS)]
    with FailOpen(log.warning, "the first turns are written more slowly"):
        await asyncio.gather(*(recorder.record(*turn) for turn in turns))
