"""Which statements say the same or deny each other, and which memories a statement concerns."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import numpy as np
import pytest

from app.jobs.learn_llm import NEAR
from app.memory.compare import concerned, contrast, says_same
from app.memory.drafts import known_item
from app.memory.text import content_hash
from app.providers.embeddings import WordLlamaEmbedder
from app.store.kinds import LearnedKind
from app.store.learning import Member
from tests.unit.memory.duplicates import other, same
from tests.unit.memory.test_memory_ingest import candidate, draft, known

TAU = 0.9


@pytest.mark.parametrize(
    ("new", "old", "cosine", "same"),
    [
        ("Likes tea", "likes tea.", None, True),
        ("Likes hiking", "Loves hiking", 0.95, True),
        ("Likes hiking", "Loves hiking", 0.85, False),
        ("Cite your sources", "Always cite your sources", 0.85, True),
        ("Prefers posts under 800 words", "Prefers posts under 500 words", 0.99, False),
        ("Runs a small bakery", "Runs a small brewery", 0.95, False),
    ],
)
def test_by_their_words(new: str, old: str, cosine: float | None, same: bool) -> None:
    assert says_same(draft(candidate(new)), known_item(known(old)), cosine, TAU) is same
    assert says_same(draft(candidate(old)), known_item(known(new)), cosine, TAU) is same


@pytest.mark.parametrize(("kind", "same"), [("preference", True), ("event", False)])
def test_only_of_one_class(kind: LearnedKind, same: bool) -> None:
    assert says_same(draft(candidate("Likes hiking")), known_item(known("Loves hiking", kind=kind)), 0.95, TAU) is same


def test_by_their_triples() -> None:
    said = draft(candidate("Home is in Lisbon", triple=("user", "lives_in", "Lisbon")))
    claim: dict[str, Any] = {"subject_entity_id": "user", "predicate": "lives_in"}
    assert says_same(said, known_item(known("Lives in Lisbon", object_value="Lisbon", **claim)), None, TAU)
    assert not says_same(said, known_item(known("Home is in Lissabon", object_value="Porto", **claim)), 0.99, TAU)


def member(number: int, root: int, text: str, predicate: str | None = None, value: str | None = None) -> Member:
    subject = "user" if predicate else None
    return Member(UUID(int=number), UUID(int=root), text, content_hash(text), "fact", subject, predicate, value)


def test_only_what_a_statement_may_change_is_held() -> None:
    said = [draft(candidate("Lives in Porto", triple=("user", "lives_in", "Porto"))), draft(candidate("Likes hiking"))]
    members = [
        member(1, 1, "Lives in Lisbon", "lives_in", "Lisbon"),
        member(2, 1, "Home is in Lisbon", "lives_in", "Lisbon"),
        member(3, 3, "Does not live in Porto", "not_lives_in", "Porto"),
        member(4, 4, "Loves hiking"),
        member(5, 5, "Likes swimming"),
        member(6, 6, "Lives with a cat"),
    ]
    near = {0: {UUID(int=6): 0.85}, 1: {UUID(int=4): 0.95, UUID(int=5): 0.89}}
    assert {each.int for each in concerned(said, members, near, TAU)} == {1, 3, 4}


# --- whether one text denies another ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "how"),
    [
        ("Wants meetings on Friday", "Never wants meetings on Friday", "denied"),
        ("Likes early meetings", "Hates early meetings", "denied"),
        ("Answers should be long", "Answers should be short", "denied"),
        ("Has 2 cats", "Has 3 cats", "changed"),
        ("Wants no sugar in tea", "Wants no milk in tea", None),
        ("Has 2 cats", "Has 3 dogs", None),
        ("Drinks tea", "Drinks coffee", None),
        ("Likes tea", "Likes tea a lot", None),
        ("Las respuestas deben ser largas", "Las respuestas deben ser cortas", "denied"),
        ("Quiere las reuniones el viernes", "No quiere las reuniones el viernes", "denied"),
        ("Quiere té con azúcar", "Quiere té sin azúcar", "denied"),
        ("Las respuestas deben ser largas", "Las respuestas deben ser amables", None),
        ("Die Antworten sollen lang sein", "Die Antworten sollen kurz sein", "denied"),
        ("Mag Treffen am Freitag", "Mag keine Treffen am Freitag", "denied"),
        ("Die Antworten sollen lang sein", "Die Antworten sollen freundlich sein", None),
        ("Les réponses doivent être longues", "Les réponses doivent être courtes", "denied"),
        ("Il veut des réunions le vendredi", "Il ne veut pas de réunions le vendredi", "denied"),
        ("As respostas devem ser longas", "As respostas devem ser curtas", "denied"),
        ("Quer reuniões na sexta", "Não quer reuniões na sexta", "denied"),
        ("喜欢长的回答", "喜欢短的回答", "denied"),
        ("喜欢周五开会", "不喜欢周五开会", "denied"),
        ("家里有2只猫", "家里有3只猫", "changed"),
        ("喜欢喝茶", "喜欢喝咖啡", None),
    ],
)
def test_one_text_denies_another(one: str, other: str, how: str | None) -> None:
    assert contrast(one, other) == how
    assert contrast(other, one) == how


# --- what no rule compares: the helper LLM is shown it ------------------------------------------------------------------

CONTRADICTIONS = (
    ("Is vegetarian", "The steak I grilled for my birthday was my favourite meal ever"),
    ("Is vegetarian", "Favourite meal is the steak grilled for the birthday"),
    ("I'm a vegetarian", "Loves eating ribs at the barbecue"),
    ("Does not drink alcohol", "Has a glass of red wine with every dinner"),
    ("Lives in Lisbon", "Walks to the office in Berlin from home every morning"),
    ("Has no pets", "The cat wakes them up at five"),
    ("Is single", "Celebrated the tenth wedding anniversary with the wife"),
    ("Is afraid of flying", "Enjoys taking the plane every week for work"),
    ("Cannot drive", "Drives to work every day"),
    ("Is allergic to peanuts", "Eats peanut butter toast for breakfast"),
    ("Hates running", "Trains for a marathon and enjoys every run"),
    ("Works night shifts", "Starts work every morning at nine"),
    ("Has never been abroad", "Spent last summer in Japan"),
    ("Is an only child", "Has a sister who lives in Porto"),
    ("Is unemployed", "Works as a nurse at the hospital"),
    ("Doesn't own a car", "Parks the Volvo in the garage at home"),
    ("Prefers short answers", "Wants every answer explained in depth"),
)
"""In unlike words: what the rules say nothing of. Our own sentences."""


def test_the_bound_lets_most_contradictions_through_and_few_strangers() -> None:
    """How `NEAR` was found: each sentence with its contradiction, and with all others."""
    embedder = WordLlamaEmbedder()
    earlier, later = (embedder.embed_now([pair[n] for pair in CONTRADICTIONS]) for n in (0, 1))
    cosines = earlier @ later.T
    own = np.eye(len(CONTRADICTIONS), dtype=bool)
    assert (cosines[own] > NEAR).sum() >= 12
    assert (cosines[~own] > NEAR).mean() < 0.2


def test_what_the_rules_call_a_denial() -> None:
    """Without a helper: none of those that say the same, of those that differ in a word the one that denies, and of what
    contradicts in unlike words nothing."""
    assert [pair for pair in same() if contrast(*pair)] == []
    assert [pair for pair in other() if contrast(*pair)] == [("Wants short answers", "Wants long answers")]
    assert (len(same()), len(other()), len(CONTRADICTIONS)) == (96, 578, 17)
    assert [pair for pair in CONTRADICTIONS if contrast(*pair) == "denied"] == []
