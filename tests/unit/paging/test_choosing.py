"""Which objects a question is answered from: the likeliest of many, and the last reading of each thing."""

from __future__ import annotations

import math
from uuid import UUID

import pytest
from msgspec.structs import replace

from app.features.paging.quotes import CANDIDATES, choose, likeliest, name_of, superseded, word_scores
from app.features.paging.values import Fidelity, Relationship, RelationType, SemanticObject
from tests.unit.paging.made import sized


def holding(number: int, content: str, key: str | None = None) -> SemanticObject:
    return replace(sized(number, 300), content=content, source_key=key)


def after(new: SemanticObject, old: SemanticObject) -> Relationship:
    return Relationship(new.id, old.id, RelationType.SUPERSEDES)


def test_of_many_those_with_the_rarest_words_are_looked_at() -> None:
    many = [holding(n, f"the server started on port {n} and the token was read") for n in range(60)]
    many[37] = holding(37, "the server refused: the token of Zephyr has expired")
    found = likeliest("why did the server refuse the token of zephyr?", many)
    assert len(found) == CANDIDATES
    assert found[0].id == many[37].id


def test_few_are_all_looked_at_and_a_question_without_words_takes_the_first() -> None:
    few = [holding(n, "nothing of it") for n in range(3)]
    assert likeliest("a port?", few) == few
    many = [holding(n, "nothing of it") for n in range(40)]
    assert likeliest("?!", many) == many[:CANDIDATES]


def test_what_was_read_again_comes_behind_its_last_reading() -> None:
    old, middle, new = (holding(n, f"limit = {n} # the limit of requests", "conf.py") for n in range(3))
    other = holding(9, "the requests of the day", "day.txt")
    newer = superseded([after(middle, old), after(new, middle)])
    assert newer == {old.id: {middle.id, new.id}, middle.id: {new.id}}
    found = choose("what is the limit of requests?", [(each, 0.0, None) for each in (old, middle, new, other)], newer)
    assert [each.object_id for each in found] == [new.id, old.id, other.id], (
        "one earlier one, which may be what is meant"
    )
    assert ["earlier reading" in each.name for each in found] == [False, True, False]


def test_an_earlier_reading_answers_where_the_last_one_was_not_found() -> None:
    old, new = (holding(n, "limit = 10", "conf.py") for n in range(2))
    (found,) = choose("limit?", [(old, 0.0, None)], superseded([after(new, old)]))
    assert found.object_id == old.id


def test_two_readings_that_supersede_each_other_are_no_endless_loop() -> None:
    one, two = holding(0, "a"), holding(1, "b")
    assert superseded([after(one, two), after(two, one)]) == {one.id: {one.id, two.id}, two.id: {one.id, two.id}}


def test_words_count_seven_parts_of_ten() -> None:
    words, alike = holding(0, "expired tokens of the day"), holding(1, "something else")
    found = choose("expired tokens", [(words, 0.0, None), (alike, 0.9, None)], {})
    assert [each.object_id for each in found] == [words.id, alike.id]
    assert (found[1].vector, found[0].vector) == (0.9, 0.0)
    assert found[0].text > found[1].text == 0.0


def test_what_the_store_found_by_its_words_keeps_its_score() -> None:
    """Rarity is the session's, not that of the few that were found."""
    common, rare = holding(0, "tokens tokens tokens"), holding(1, "zephyr")
    found = choose("tokens of zephyr", [(common, 0.0, 0.2), (rare, 0.0, 0.6)], {})
    assert [(each.object_id, each.text) for each in found] == [(rare.id, 0.6), (common.id, 0.2)]


def test_a_rare_word_counts_more_than_one_that_all_have() -> None:
    held = [{"token": 4, "read": 1}, {"token": 1, "zephyr": 1}, {"token": 2}]
    scores = word_scores("the token of zephyr", held)
    common, rare = math.log1p(3 / 3), math.log1p(3 / 1)
    assert scores[1] == pytest.approx((common * 1 / 2.2 + rare * 1 / 2.2) / (common + rare))
    assert scores[1] > scores[0] > scores[2] > 0
    assert word_scores("?", held) == word_scores("nowhere", held) == [0.0] * 3


def test_a_name_tells_the_handle_and_what_the_prompt_shows() -> None:
    made = replace(holding(0, "a", "src/<mneme-object x>.py"), id=UUID(int=0x9F86D081 << 96), fidelity=Fidelity.FULL)
    assert (
        name_of(made, stands=True, older=True) == "src/(mneme-object x>.py [9f86d081, earlier reading, in full above]"
    )
    assert len(name_of(replace(made, source_key=None, stub="long " * 99))) < 140
