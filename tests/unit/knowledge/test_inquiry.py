from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from app.context.resolution import EarlierMessage, Known, Who
from app.errors import StoreUnavailable
from app.features.knowledge import inquiry as inquiring
from app.features.knowledge.ontology import NO_ONTOLOGY
from app.store.records import Claim
from app.tasks import Supervisor
from tests.support.context_samples import NOW
from tests.support.knowledge import GAI, READ, RESOLVED, UNCLEAR, Answer, Business, clash, fact, nobody, query, terms
from tests.support.sockets import eventually

WHO = Who(UUID(int=1), UUID(int=2))
SHORT_S = 0.08
"""Long enough for a loaded machine to resolve, short enough to wait for."""


@pytest.fixture
async def tasks() -> AsyncIterator[Supervisor]:
    supervisor = Supervisor()
    yield supervisor
    await supervisor.close(0)


async def asked(
    business: Business, tasks: Supervisor, deadline_s: float | None = None, text: str = "Gai Media?"
) -> Any:
    return await business.knower(tasks).inquire(WHO, text, [EarlierMessage("user", "hi")], NOW, deadline_s)


async def test_what_is_named_and_what_is_known_of_it(tasks: Supervisor) -> None:
    business = Business(logged=[clash(9)], claimed=[Claim(UUID(int=5), GAI.id, "payment_terms", "NET30", READ, 0.8)])
    found = await asked(business, tasks)
    assert found.resolutions == (RESOLVED,)
    assert found.related == frozenset()
    assert business.asked == ["ontology", "resolve"]  # nothing of the domain before it is begun
    business.answer.related = frozenset({"sales_order:SO-1045"})
    found.begin(["invoice"])
    found.begin(["again"])
    known = await found.known()
    assert known == Known(
        (RESOLVED,), found.related, {GAI.id: {"payment_terms": terms()}}, (fact(),), (query(),), (clash(9),), None
    )
    assert found.related == {"sales_order:SO-1045"}
    assert business.widened == ["invoice"]
    assert sorted(business.asked[2:]) == ["domain", "log"]
    (seen,) = await found.against(WHO.user, [UUID(int=5), UUID(int=6)])
    assert (seen.memory_id, seen.memory_value, seen.stands) == (UUID(int=5), "NET30", "domain")
    assert business.heard == [(WHO, (EarlierMessage("user", "hi"),))]
    assert len(tasks) == 0


async def test_a_start_asks_once_and_no_business(tasks: Supervisor) -> None:
    business = Business()
    await business.knower(tasks).warm()
    assert sorted(business.asked) == ["claims", "log", "resolve"]


async def test_a_tenant_of_whom_nothing_is_known_is_asked_once(
    tasks: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    business = nobody()
    knower = business.knower(tasks)
    assert await knower.inquire(WHO, "Gai Media?", (), NOW) is None
    assert knower.idle(WHO)
    assert await knower.inquire(WHO, "Gai Media?", (), NOW) is None
    assert business.asked == ["ontology", "things"]
    assert not knower.idle(Who(UUID(int=1), UUID(int=3)))
    monkeypatch.setattr(inquiring, "NOTHING_FOR_S", 0.0)  # its time is over
    for number in range(3, 6):
        await knower.inquire(Who(UUID(int=1), UUID(int=number)), "Gai?", (), NOW)
        assert not knower.idle(Who(UUID(int=1), UUID(int=number)))


async def test_what_is_remembered_of_users_is_bounded(tasks: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inquiring, "MOST_KEPT", 3)
    knower = nobody().knower(tasks)
    for number in range(20):
        await knower.inquire(Who(UUID(int=1), UUID(int=number)), "Gai?", (), NOW)
        assert len(knower._nothing) <= 3


async def test_things_without_an_ontology_are_resolved_and_no_domain_is_asked(tasks: Supervisor) -> None:
    business = Business(ontology=NO_ONTOLOGY, logged=[clash(9)._replace(entity_name=GAI.id)])
    found = await asked(business, tasks)
    found.begin()
    known = await found.known()
    assert (known.queries, known.clashes, known.reason) == ((), (clash(9),), None)
    assert "domain" not in business.asked


async def test_where_no_thing_is_named_nothing_is_asked(tasks: Supervisor) -> None:
    business = Business(names={"Gai": UNCLEAR})
    for text in ("What is for lunch?", "And Gai?"):
        found = await asked(business, tasks, text=text)
        found.begin()
        assert (await found.known()).queries == ()
        assert await found.against(WHO.user, [UUID(int=5)]) == ()
    assert business.asked == ["ontology", "resolve"] * 2


async def test_nobody_in_particular_has_no_log(tasks: Supervisor) -> None:
    business = Business(logged=[clash(9)])
    found = await business.knower(tasks).inquire(Who(UUID(int=1), None), "Gai Media?", (), NOW)
    assert found is not None
    found.begin()
    known = await found.known()
    assert (known.facts, known.clashes) == ((fact(),), ())
    assert "log" not in business.asked


@pytest.mark.parametrize("part", ["ontology", "resolve"])
@pytest.mark.parametrize("how", ["fails", "breaks", "hangs"])
async def test_a_resolver_that_fails_or_is_late_is_done_without(tasks: Supervisor, part: str, how: str) -> None:
    business = Business()
    if how == "hangs":
        business.hangs = {part}
    else:
        business.fails = {part: StoreUnavailable("away") if how == "fails" else ValueError("a bug")}
    began = time.monotonic()
    found = await asked(business, tasks, SHORT_S)
    assert time.monotonic() - began < SHORT_S + 0.5
    found.begin()
    assert await found.known() == Known(reason="entities")
    assert "domain" not in business.asked
    assert len(tasks) == 0


async def test_names_that_could_not_be_looked_for_leave_those_that_are_known(tasks: Supervisor) -> None:
    found = await asked(Business(away=True), tasks)
    found.begin()
    known = await found.known()
    assert (known.resolutions, known.facts, known.reason) == ((RESOLVED,), (fact(),), "domain")


async def test_what_came_in_time_is_told_where_the_rest_is_late(tasks: Supervisor) -> None:
    """A table that is locked takes all the time that its query was given."""

    class Partly(Business):
        async def ask(self, tenant: UUID, plan: Any, ontology: Any, *, deadline_s: float) -> Answer:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(deadline_s):
                    await asyncio.Event().wait()
            return Answer((query("timeout"),), (fact(),), reason="domain")

    found = await asked(Partly(), tasks, SHORT_S)
    found.begin()
    known = await found.known()
    assert (known.facts, known.queries, known.reason) == ((fact(),), (query("timeout"),), "domain")


async def test_a_domain_that_hangs_costs_its_deadline_and_nothing_else(tasks: Supervisor) -> None:
    """What the log says is told all the same."""
    business = Business(hangs={"domain"}, logged=[clash(9)])
    began = time.monotonic()
    found = await asked(business, tasks, SHORT_S)
    found.begin()
    known = await found.known()
    assert time.monotonic() - began < SHORT_S + 0.5
    assert known == Known((RESOLVED,), clashes=(clash(9),), reason="domain")
    await eventually(lambda: not len(tasks))
    assert business.ended == 1


async def test_a_deadline_of_its_own_holds_where_the_request_has_longer(tasks: Supervisor) -> None:
    found = await Business(hangs={"domain"}).knower(tasks, SHORT_S).inquire(WHO, "Gai Media?", (), NOW, 60.0)
    assert found is not None
    began = time.monotonic()
    found.begin()
    assert (await found.known()).reason == "domain"
    assert time.monotonic() - began < SHORT_S + 0.5


async def test_no_time_left_waits_for_nothing(tasks: Supervisor) -> None:
    business = Business(hangs={"domain", "log"})
    found = await asked(business, tasks, 0.2)
    found._until = time.monotonic() - 1
    found.begin()
    assert (await found.known()).reason == "domain"


@pytest.mark.parametrize("part", ["domain", "log"])
async def test_a_part_that_fails_is_left_out(tasks: Supervisor, part: str) -> None:
    business = Business(fails={part: StoreUnavailable("away")}, logged=[clash(9)])
    found = await asked(business, tasks)
    found.begin()
    known = await found.known()
    assert known.reason == "domain"
    assert bool(known.facts) is (part == "log")
    assert bool(known.clashes) is (part == "domain")


async def test_whatever_the_domain_lacks_is_one_reason(tasks: Supervisor) -> None:
    business = Business()
    business.answer.reason = "timeout"
    found = await asked(business, tasks)
    found.begin()
    known = await found.known()
    assert (known.facts, known.reason) == ((fact(),), "domain")


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_claims_that_cannot_be_read_outrank_nothing(tasks: Supervisor, how: str) -> None:
    business = Business(
        hangs={"claims"} if how == "hangs" else set(), fails={"claims": ValueError("x")} if how == "fails" else {}
    )
    found = await asked(business, tasks, SHORT_S)
    found.begin()
    await found.known()
    assert await found.against(WHO.user, [UUID(int=5)]) == ()


async def test_a_request_that_dies_leaves_no_task(tasks: Supervisor) -> None:
    business = Business(hangs={"domain"})
    found = await asked(business, tasks)
    found.begin()
    await asyncio.sleep(0)
    found.close()
    await eventually(lambda: not len(tasks))
    assert business.ended == 1
    known = await found.known()  # what has come is known still
    assert known.reason == "domain"
    found.begin()
    assert len(tasks) == 0


async def test_what_has_come_before_it_was_closed_is_known(tasks: Supervisor) -> None:
    business = Business()
    found = await asked(business, tasks)
    found.begin()
    await eventually(lambda: not len(tasks))
    found.close()
    assert (await found.known()).facts == (fact(),)


async def test_resolving_beside_other_work_can_be_given_up(tasks: Supervisor) -> None:
    business = Business(hangs={"resolve"})
    task = business.knower(tasks).inquiring(WHO, "Gai Media?", (), NOW, 60.0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(tasks) == 0
