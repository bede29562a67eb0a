"""What ended, what became doubtful, and what is denied in other words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
import pytest

from app.jobs.learn import Learner
from app.memory.candidate import Ended, MemoryCandidate, Provenance, SourceExchange, Triple
from app.providers.embeddings import WordLlamaEmbedder
from app.store.pools import Pool
from app.store.validation import Validation
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.learning import NOW, TENANT, Talk, learner, memories, taught, texts
from tests.support.rows import age_memories, read_conflicts, read_facts

WORKS = MemoryCandidate(
    "Works as a data engineer at Acme", "fact", Provenance.FACT, "", (0, 0), 0.9, 0.5,
    triple=Triple("user", "occupation", "a data engineer at Acme"),
)  # fmt: skip
COMMUTES = MemoryCandidate(
    "Commutes by tram", "fact", Provenance.FACT, "", (0, 0), 0.9, 0.5, triple=Triple("user", "commute", "by tram")
)
MARIA = MemoryCandidate(
    "Wife works at Acme", "fact", Provenance.FACT, "", (0, 0), 0.9, 0.5, triple=Triple("wife", "works_at", "Acme")
)
LEFT = MemoryCandidate(
    "No longer works at Acme", "correction", Provenance.CORRECTION, "", (0, 0), 0.9, 0.5,
    triple=Triple("user", "not_works_at", "Acme"), ends=(Ended("user", "works_at", "Acme"),), doubts=("commute",),
)  # fmt: skip
SAYS = {"I work": WORKS, "By tram": COMMUTES, "My wife": MARIA, "I left": LEFT}


def scripted(says: Mapping[str, MemoryCandidate]) -> Any:
    async def extract(exchange: SourceExchange) -> Sequence[MemoryCandidate]:
        return [each for begin, each in says.items() if exchange.user_text.startswith(begin)]

    return extract


@pytest.fixture
def learn(pool: Pool, words: WordLlamaEmbedder, space: int) -> Learner:
    return learner(pool, words, space, extract=scripted(SAYS))


async def test_what_ended_is_closed_and_told(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I work there", "My wife works there, too")
    await taught(learn, pool, talk, "I left")
    assert await texts(admin) == ["Wife works at Acme", "No longer works at Acme"]
    (was,) = await memories(admin, status="superseded")
    (left,) = await memories(admin, content_text=LEFT.content)
    assert (was["superseded_by"], was["valid_to"]) == (left["memory_id"], left["stated_at"])
    facts = await read_facts(admin)
    assert [each["fact_key"] for each in facts] == ["wife.works_at"]
    (logged,) = await read_conflicts(admin)
    assert (logged["conflict_type"], "close_earlier" in logged["resolution_outcome"]) == ("temporal", True)


async def test_what_was_said_later_is_not_ended_by_what_was_said_before(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I left")
    await taught(learn, pool, talk, "I work there again")
    assert "Works as a data engineer at Acme" in await texts(admin)


async def test_what_became_doubtful_is_asked_about_until_the_user_has_spoken(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "By tram")
    await taught(learn, pool, talk, "I left")
    (tram,) = await memories(admin, predicate="commute")
    assert tram["status"] == "aging"
    validation = Validation(pool, SQL, FakeClock(NOW), space=None)
    assert [each.content_text for each in await validation.due(TENANT, talk.user, limit=5)] == ["Commutes by tram"]
    await age_memories(admin, NOW)
    assert (await memories(admin, predicate="commute"))[0]["status"] == "aging", "no sweep ends this doubt"
    await validation.confirm(TENANT, talk.user, tram["memory_id"])
    (logged,) = await read_conflicts(admin)
    assert (logged["resolved_at"] is not None, logged["resolution_strategy"]) == (True, "ask_user")


@pytest.mark.parametrize(
    ("said", "in_force"),
    [
        (["I work as a data engineer at Acme in Porto", "I left Acme"], ["Works as a data engineer", "Left Acme"]),
        (
            ["I work at Acme in Porto", "We moved to Berlin last month. And I left Acme."],
            ["Lives in Berlin", "Left Acme"],
        ),
        (["I work at Acme in Porto", "I work in Porto", "I left Acme"], ["Works in Porto", "Left Acme"]),
        (["I work at Acme in Porto", "I work at Globex"], ["Works at Globex"]),
        (["I work at Acme in Porto", "I work at Globex since May 2026"], ["Works at Globex"]),
        (["I work at Acme in Porto", "I work at Globex in Berlin"], ["Works at Globex", "Works in Berlin"]),
        (["I work at Acme in Porto", "I work at Globex in Porto"], ["Works at Globex", "Works in Porto"]),
        (["I work at Acme in Porto", "I left Globex"], ["Works at Acme", "Works in Porto", "Left Globex"]),
    ],
)
async def test_what_belonged_to_what_ended_ends_with_it(
    pool: Pool,
    admin: asyncpg.Connection[Any],
    words: WordLlamaEmbedder,
    space: int,
    said: list[str],
    in_force: list[str],
) -> None:
    do, talk = learner(pool, words, space), Talk()
    for each in said:
        await taught(do, pool, talk, each)
    assert sorted(await texts(admin)) == sorted(in_force)
    facts = await read_facts(admin)
    assert ("work_location" in {each["fact_key"] for each in facts}) == any("Works in" in each for each in in_force)


@pytest.mark.parametrize(
    ("before", "after", "in_force", "strategy"),
    [
        (
            "Wants meetings on Friday afternoons",
            "Never wants meetings on Friday afternoons",
            ["Never wants meetings on Friday afternoons"],
            "trust_recent",
        ),
        (
            "The garage door code has 4 digits",
            "The garage door code has 6 digits",
            ["The garage door code has 4 digits", "The garage door code has 6 digits"],
            "both",
        ),
    ],
)
async def test_a_denial_in_other_words_stands_against_what_it_denies(
    pool: Pool,
    admin: asyncpg.Connection[Any],
    words: WordLlamaEmbedder,
    space: int,
    before: str,
    after: str,
    in_force: list[str],
    strategy: str,
) -> None:
    says = {
        name: MemoryCandidate(text, "fact", Provenance.FACT, "", (0, 0), 0.9, 0.5)
        for name, text in (("First", before), ("Then", after))
    }
    do, talk = learner(pool, words, space, extract=scripted(says)), Talk()
    await taught(do, pool, talk, "First")
    await taught(do, pool, talk, "Then")
    assert await texts(admin) == in_force
    (logged,) = await read_conflicts(admin)
    assert (logged["conflict_type"], logged["resolution_strategy"]) == ("memory_vs_memory", strategy)


@pytest.mark.parametrize(
    ("wish", "back", "stands"),
    [
        ("Always answer me in bullet points.", "Stop answering in bullet points.", "Never answer in bullet points"),
        ("Always use emojis.", "Stop using emojis.", "Never use emojis"),
        ("Always answer me in bullet points.", "No more bullet points please", None),
        ("Never suggest cilantro.", "You can suggest cilantro again.", None),
        ("No more bullet points please", "Always answer me in bullet points.", "Always answer me in bullet points"),
        (
            "Always answer in French and cite your sources.",
            "You don't have to cite your sources any more.",
            "Always answer in French and cite your sources",
        ),
    ],
)
async def test_a_wish_is_taken_back(
    pool: Pool,
    admin: asyncpg.Connection[Any],
    words: WordLlamaEmbedder,
    space: int,
    wish: str,
    back: str,
    stands: str | None,
) -> None:
    do, talk = learner(pool, words, space), Talk()
    await taught(do, pool, talk, wish)
    await taught(do, pool, talk, back)
    assert await texts(admin) == ([stands] if stands else [])
