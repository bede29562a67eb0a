"""What a prompt holds of the topics that a user comes back to."""

from __future__ import annotations

from typing import Any

import asyncpg

from app.context.compile import Compiler
from app.context.request import CompileRequest
from app.context.retrieve import Retriever, Scope
from app.context.transcript import Transcript
from app.features.consolidation.jobs import Consolidator
from app.features.consolidation.store import ConsolidationStore
from app.jobs.learn import Learner, Notes
from app.providers.embeddings import WordLlamaEmbedder
from app.providers.models import ModelRegistry
from app.providers.tokens import CountCache, Tokenizers
from app.store import ids
from app.store.learning import LearningStore
from app.store.pools import Pool
from app.store.turns import TurnStore
from tests.integration.jobs.test_user_work import GARDEN, count, drawn, payload, topic
from tests.support.clock import FakeClock
from tests.support.indexes import indexes_of
from tests.support.jobs import SQL
from tests.support.learning import NOW, TENANT, Talk, by_rules


async def test_a_topic_s_summary_is_in_a_prompt_that_asks_about_it_and_in_no_other(
    pool: Pool, admin: asyncpg.Connection[Any], words: WordLlamaEmbedder, space: int
) -> None:
    clock = FakeClock(NOW)
    learn = Learner(
        LearningStore(pool, SQL), embedder=words, space=space, extract=by_rules, count=count, clock=clock,
        note=Notes(clock),
    )  # fmt: skip
    for n, text in enumerate(GARDEN):
        talk = Talk(name=f"chat-{n % 3}")
        said = await talk.say(pool, text)
        said += await talk.say(pool, "All right.", role="assistant")
        await learn.learn(talk.job(said))
    do = Consolidator(
        ConsolidationStore(pool, SQL, space=space),
        embedder=words,
        space=space,
        count=count,
        clock=clock,
    )
    await do.consolidate(payload(talk))
    (summary,) = topic(await drawn(admin, "summary"))
    retriever = Retriever(TurnStore(pool, SQL), words, count, indexes_of(pool, words.dimensions, space))
    compiler = Compiler(retriever, ModelRegistry(), Tokenizers(), CountCache(), nonce_key=lambda: b"k", memory_cap=1500)
    shown = {}
    for question in ("What do you know about the garden?", "What is the capital of Peru?"):
        messages = [{"role": "user", "content": question}]
        session = ids.session_id(TENANT, talk.user, question)
        asked = CompileRequest(
            scope=Scope(TENANT, talk.user, session=session), session_id=session, new_session=True, messages=messages,
            transcript=Transcript.of(messages), model="gpt-4o", now=NOW, placement="tail",
        )  # fmt: skip
        compiled = await compiler.compile(asked)
        shown[question] = compiled.new_block.text if compiled.new_block is not None else ""
    about, other = shown.values()
    assert summary["content_text"] in about
    assert "garden" not in other.casefold()
