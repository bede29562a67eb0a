"""Made-up users."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.store import ids
from loadtests.crowd import MONTHS, STAGING_COLUMNS, STORE, Maker, Person, crowd, parts, statements

NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def maker() -> Maker:
    return Maker()


def test_a_user_has_what_was_asked_for(maker: Maker) -> None:
    rows = [dict(zip(STAGING_COLUMNS, row, strict=True)) for row in maker.rows(Person("u", 60, 50), NOW)]
    messages, memories = ([each for each in rows if each["item_kind"] == kind] for kind in (0, 1))
    assert (len(messages), len(memories)) == (50, 60)
    assert {each["user_id"] for each in rows} == {ids.user_id(ids.LOCAL_TENANT, "u")}
    assert len({each["item_id"] for each in rows}) == 110
    assert len({each["content"] for each in memories}) == 60
    assert [each["turn_index"] for each in messages[:21]] == [*range(1, 21), 1]
    assert {each["role"] for each in messages} == {1, 2}
    assert {each["source_id"] for each in memories} <= {each["item_id"] for each in messages}
    assert all(NOW - timedelta(days=30 * MONTHS) <= each["at"] <= NOW for each in rows)
    assert all(len(each["vector"]) == 4 + 2 * 256 and each["tokens"] > 0 for each in rows)


def test_the_same_name_says_the_same(maker: Maker) -> None:
    def texts(name: str) -> list[str]:
        return [row[STAGING_COLUMNS.index("content")] for row in maker.rows(Person(name, 5, 5), NOW)]

    assert texts("u") == texts("u") != texts("v")


def test_a_crowd_has_as_many_memories_as_asked() -> None:
    people = crowd(7, 2500, 1000, 200)
    assert [each.name for each in people] == ["crowd-7", "crowd-8", "crowd-9"]
    assert crowd(7, 0, 1000, 200) == []


def test_parts_hold_whole_people() -> None:
    people = [Person(str(n), 60, 40) for n in range(5)]
    cut = list(parts(people, rows=200))
    assert [len(each) for each in cut] == [2, 2, 1]
    assert [each for part in cut for each in part] == people


def test_each_statement_gets_the_arguments_that_it_names() -> None:
    found = statements(STORE, ("a", "b", "c", "d"))
    assert [len(arguments) for _, arguments in found] == [1, 1, 4, 1, 0]
    assert found[-1][0].strip() == "TRUNCATE public.bench_rows"
