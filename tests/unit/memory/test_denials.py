"""Statements from old words do not bring back what was denied."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from app.memory.candidate import MemoryCandidate, Provenance, Triple
from app.memory.denials import find_denied
from app.memory.drafts import Draft, make_drafts
from app.memory.text import content_hash
from app.store.learning import DeniedMemory, Member, SourceMessage
from tests.support.tables import each_of

SAID_AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
MESSAGE = "My wife Ana is a nurse and I live in Porto near the river."
CLAUSE = "I live in Porto near the river"
HOME = Triple("user", "lives_in", "Porto")


def make_draft(text: str, quote: str, triple: Triple | None = None, *, message: int = 1, later_h: int = 0) -> Draft:
    at = SAID_AT + timedelta(hours=later_h)
    source = SourceMessage(UUID(int=message), 1, "user", MESSAGE, [], at, {})
    start = MESSAGE.find(quote)
    span = (start, start + len(quote)) if start >= 0 else (0, len(quote))
    candidate = MemoryCandidate(text, "fact", Provenance.FACT, quote, span, 0.9, 0.7, triple=triple)
    (draft,) = make_drafts([(candidate, source)], len, store_secrets=False)
    return draft


def make_denied(text: str, quote: str, triple: Triple | None = None) -> DeniedMemory:
    start = MESSAGE.index(quote)
    source: dict[str, Any] = {"message_id": str(UUID(int=1)), "quote": quote, "span": [start, start + len(quote)]}
    return DeniedMemory(
        SAID_AT + timedelta(hours=1),
        text,
        content_hash(text),
        triple.subject if triple else None,
        triple.predicate if triple else None,
        triple.value if triple else None,
        [source],
    )


DENIED = make_denied("Lives in Porto", CLAUSE, HOME)


@each_of(
    "draft, denied, refused",
    [
        (make_draft("Lives in Porto", CLAUSE, HOME), DENIED, True),
        (make_draft("lives in porto", "I'm in Porto", message=2), DENIED, True),
        (make_draft("Has a home in Porto", "Porto", Triple("user", "lives_in", "Porto"), message=2), DENIED, True),
        (make_draft("At home by a river", CLAUSE), DENIED, True),
        (make_draft("At home by a river", CLAUSE.upper(), message=2), DENIED, True),
        (make_draft("Resides in Porto", "in Porto", Triple("user", "resides_in", "Porto")), DENIED, True),
        (make_draft("Porto is home", "Porto"), DENIED, True),
        (make_draft("Lives in Porto", CLAUSE, HOME, later_h=2), DENIED, False),
        (make_draft("Wife's name is Ana", MESSAGE[:-1], Triple("wife", "name", "Ana")), DENIED, False),
        (make_draft("Wife is a nurse", "My wife Ana is a nurse"), DENIED, False),
        (make_draft("At home by a river", "my house by the river", message=2), DENIED, False),
        (make_draft("Lives in Braga", CLAUSE, Triple("user", "lives_in", "Braga")), DENIED, False),
        (make_draft("Likes tea", ""), DENIED, False),
        (make_draft("At home by a river", CLAUSE), make_denied("Lives in Porto", CLAUSE), True),
    ],
)
def test_old_words_do_not_bring_back_what_was_denied(draft: Draft, denied: DeniedMemory, refused: bool) -> None:
    assert find_denied([draft], [denied], []) == (frozenset({0}) if refused else frozenset())


def test_a_wording_in_force_of_the_same_clause_stays() -> None:
    draft = make_draft("At home by a river", CLAUSE)
    member = Member(UUID(int=5), UUID(int=5), draft.text, draft.content_hash, "fact", None, None, None)
    assert find_denied([draft], [DENIED], [member]) == frozenset()
    again = make_draft("Lives in Porto", CLAUSE, HOME)
    home = Member(UUID(int=6), UUID(int=6), again.text, again.content_hash, "fact", "user", "lives_in", "Porto")
    assert find_denied([again], [DENIED], [home]) == frozenset({0}), "said again since, it does not begin earlier"
