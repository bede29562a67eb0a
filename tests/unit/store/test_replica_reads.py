"""When a standby may answer, and who is asked where it may not; standbys and primary stand in here."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, cast
from uuid import UUID

import pytest

from app.errors import StoreUnavailable
from app.features.replicas import BUSY, FAILURES, OPEN_S, FromReplicas, Replica, hosts_of
from app.store.pools import Pool
from app.store.queries import Queries
from tests.support.tables import each_of

TENANT, USER = UUID(int=1), UUID(int=2)
SQL = Queries({"a.read": "SELECT 1", "replicas.marks": "marks", "replicas.marked": "x __read__ y"})
WAIT_S = 5.0


class Server:
    """Both a pool and its one connection. `marks`: None where nothing is marked."""

    def __init__(self, name: str, marks: list[int] | None) -> None:
        self.name = name
        self.marks = marks
        self.standby = False
        self.rows = True
        self.fails: Exception | None = None
        self.holds: asyncio.Event | None = None
        self.expired = 0

    @contextlib.asynccontextmanager
    async def acquire(self) -> AsyncIterator[Server]:
        if self.holds is not None:
            await self.holds.wait()
        if self.fails is not None:
            raise self.fails
        yield self

    async def failed_over(self) -> None:
        self.expired += 1

    async def close(self) -> None:
        """Nothing is open."""

    async def fetch(self, statement: str, *arguments: Any) -> list[dict[str, Any]]:
        if statement == "SELECT 1":
            return [{"from": self.name}] if self.rows else []
        assert statement == "x SELECT 1 y"
        if self.marks is None:
            return []
        there = True if self.rows else None
        return [{"from": self.name if self.rows else None, "there": there, "marks": self.marks}]

    async def fetchrow(self, statement: str, *arguments: Any) -> dict[str, Any] | None:
        assert arguments[:2] == (TENANT, USER)
        if statement != "marks":
            return (await self.fetch(statement))[0]
        return {"marks": self.marks, "standby": self.standby} if self.marks is not None else None


class Stage:
    def __init__(self, *standbys: Server, primary: list[int] | None, wait_s: float = WAIT_S) -> None:
        self.now = 0.0
        self.primary = Server("primary", primary)
        replicas = [Replica(each.name, cast(Pool, each)) for each in standbys]
        self.told = Counter[str]()
        self.reads = FromReplicas(
            "memory", cast(Pool, self.primary), replicas, SQL, wait_s=wait_s, clock=lambda: self.now
        )
        self.reads.meter = lambda pool, server, result: self.told.update([f"{server} {result}"])

    async def ask(self) -> str:
        row = await self.reads.one("a.read", TENANT, USER)
        assert row is not None
        return str(row["from"])


SAME = [4, 2, 21, 1]
"""An epoch, and the number, sum and exclusive or of the marks since."""


async def test_a_standby_with_the_same_marks_answers() -> None:
    stage = Stage(Server("one", SAME), primary=SAME)
    assert await stage.ask() == "one"
    assert stage.told == {"one replica": 1}


@each_of("seen", [[3, 2, 21, 1], [5, 2, 21, 1], [4, 1, 21, 1], [4, 2, 20, 1], [4, 2, 21, 2]])
async def test_one_with_others_does_not(seen: list[int]) -> None:
    """As many, but others: commits may become visible in another order than they are written."""
    stage = Stage(Server("one", seen), primary=SAME)
    assert await stage.ask() == "primary"
    assert stage.told == {"one behind": 1}


async def test_no_rows_are_an_answer_too() -> None:
    standby = Server("one", SAME)
    standby.rows = False
    stage = Stage(standby, primary=SAME)
    assert await stage.reads.one("a.read", TENANT, USER) is None
    assert list(await stage.reads.many("a.read", TENANT, USER)) == []
    assert stage.told == {"one replica": 2}


async def test_where_nothing_is_marked_nothing_is_believed() -> None:
    stage = Stage(Server("one", None), primary=None)
    assert await stage.ask() == "primary"
    fresh = Stage(Server("one", None), primary=SAME)  # the standby does not know of it yet
    assert await fresh.ask() == "primary"
    assert (stage.told, fresh.told) == ({"one unmarked": 1}, {"one behind": 1})


async def test_a_user_with_very_many_marks_is_read_from_the_primary() -> None:
    full, more = (
        Stage(Server("one", marks), primary=marks) for marks in ([1, count, 5, 5] for count in (BUSY, BUSY + 1))
    )
    assert (await full.ask(), await more.ask()) == ("one", "primary")
    assert more.told == {"one busy": 1}


async def test_standbys_take_turns() -> None:
    stage = Stage(Server("one", SAME), Server("two", SAME), primary=SAME)
    assert [await stage.ask() for _ in range(4)] == ["one", "two"] * 2


async def test_one_that_fails_is_left_alone_for_a_while_and_then_tried_again() -> None:
    away = Server("one", SAME)
    away.fails = StoreUnavailable("away")
    stage = Stage(away, primary=SAME)
    assert [await stage.ask() for _ in range(FAILURES + 2)] == ["primary"] * (FAILURES + 2)
    assert stage.told == {"one failed": FAILURES, "primary suspended": 2}
    away.fails = None
    stage.now += OPEN_S
    assert [await stage.ask() for _ in range(2)] == ["one", "one"]


async def test_the_other_goes_on() -> None:
    away, there = Server("one", SAME), Server("two", SAME)
    away.fails = StoreUnavailable("away")
    stage = Stage(away, there, primary=SAME)
    answers = [await stage.ask() for _ in range(20)]
    assert answers.count("primary") == FAILURES
    assert set(answers[2 * FAILURES :]) == {"two"}


async def test_one_that_is_late_is_not_waited_for() -> None:
    slow = Server("one", SAME)
    slow.holds = asyncio.Event()
    stage = Stage(slow, primary=SAME, wait_s=0.01)
    assert await stage.ask() == "primary"
    assert stage.told == {"one late": 1}
    slow.holds.set()
    await stage.reads.close()


async def test_a_primary_that_is_none_any_more_is_not_believed() -> None:
    stage = Stage(Server("one", SAME), primary=SAME)
    stage.primary.standby = True
    with pytest.raises(StoreUnavailable):
        await stage.ask()
    assert stage.primary.expired == 1


async def test_without_the_primary_there_is_no_answer() -> None:
    """What was forgotten just before would come up again."""
    stage = Stage(Server("one", SAME), primary=SAME)
    stage.primary.fails = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await stage.ask()


@each_of(
    ("dsn", "found"),
    [
        (
            "postgresql://u:p%2F@a:1,b:2/m?x=1",
            [("a:1", "postgresql://u:p%2F@a:1/m?x=1"), ("b:2", "postgresql://u:p%2F@b:2/m?x=1")],
        ),
        ("postgresql://a/m", [("a", "postgresql://a/m")]),
        ("postgresql://u:p@[::1]:5,b/m", [("[::1]:5", "postgresql://u:p@[::1]:5/m"), ("b", "postgresql://u:p@b/m")]),
        (
            "postgresql:///m?host=/run/a,b&port=1,2",
            [("/run/a:1", "postgresql:///m?host=%2Frun%2Fa&port=1"), ("b:2", "postgresql:///m?host=b&port=2")],
        ),
        ("postgresql:///m", [("", "postgresql:///m")]),
    ],
)
def test_a_dsn_of_several_hosts_is_one_for_each(dsn: str, found: list[tuple[str, str]]) -> None:
    assert hosts_of(dsn) == found
