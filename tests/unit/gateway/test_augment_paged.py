"""A prompt that is paged on its way to the upstream; and that what fails there keeps no answer away."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from app.errors import StoreUnavailable, Unavailable
from app.features.paging.pager import is_paged, paging_budget
from app.features.paging.state import Paging
from app.features.paging.values import NOTHING_PAGED, PagingRecord, Zone
from app.gateway.dialects.splice import Insertion
from app.gateway.identify import OnOff
from app.store.tenancy import KeyLimits
from tests.support.journey import user
from tests.support.turns import SESSION, GatewayStage

ON = {"x-mneme-paging": "on"}
LONG = "a text that is shown shorter"
ASKED = [user(LONG), {"role": "assistant", "content": "so"}, user("hi")]


class StubPager:
    """Shows one text shorter. `fail`: raised, or waited for, instead."""

    def __init__(self, fail: BaseException | asyncio.Event | None = None) -> None:
        self.fail = fail
        self.budgets: list[int | None] = []
        self.made: Paging | None = None

    async def page(self, call: Any, chat: Any, place: Any, budget: int | None = None) -> Paging:
        self.budgets.append(budget)
        if isinstance(self.fail, asyncio.Event):
            await asyncio.wait_for(self.fail.wait(), 0.2)
        elif self.fail is not None:
            raise self.fail
        at = chat.body.index(LONG.encode())
        record = PagingRecord(SESSION, 1, Zone.NORMAL, 100, 50, 20)
        self.made = Paging(call.identity.tenant_id, place.user_id, SESSION, 1, 100, NOTHING_PAGED, record)
        self.made.insertions = [Insertion(at, b"short", len(LONG))]
        return self.made


def sent(stage: GatewayStage) -> list[Any]:
    return [each["content"] for each in orjson.loads(stage.upstream.sent[-1])["messages"]]


async def test_what_is_shown_shorter_goes_out_with_memory_and_is_counted() -> None:
    pager = StubPager()
    stage = GatewayStage(pager=pager, paging_budget_tokens=5000)
    answer = await stage.ask(ASKED, headers=ON)
    assert answer.headers["x-mneme-status"] == "ok"
    assert sent(stage) == ["short", "so", "<memory> hi"]
    assert pager.budgets == [5000]
    assert pager.made is not None
    assert (pager.made.record.tokens, pager.made.record.shown_tokens, pager.made.room) == (80, 50, 50), (
        "with 30 of memory"
    )


@pytest.mark.parametrize(
    ("headers", "setting", "paged"),
    [({}, "off", 0), ({}, "on", 1), (ON, "off", 1), ({"x-mneme-paging": "off"}, "on", 0)],
)
async def test_it_is_paged_where_that_is_asked_for(headers: dict[str, str], setting: str, paged: int) -> None:
    pager = StubPager()
    stage = GatewayStage(pager=pager, paging=setting)
    await stage.ask(ASKED, headers=headers)
    assert len(pager.budgets) == paged


@pytest.mark.parametrize(
    ("trouble", "why"), [(StoreUnavailable(), "failed"), (ValueError("a bug"), "failed"), (TimeoutError(), "deadline")]
)
async def test_paging_that_fails_leaves_the_prompt_whole_and_says_so(trouble: Exception, why: str) -> None:
    stage = GatewayStage(pager=StubPager(trouble))
    answer = await stage.ask(ASKED, headers=ON)
    assert (answer.headers["x-mneme-status"], answer.headers["x-mneme-reason"]) == ("degraded", "paging")
    assert sent(stage) == [LONG, "so", "<memory> hi"]
    assert stage.journey.count("mneme_degradations_total", reason="paging") == 1
    compiled = stage.recorder.records[0][2]
    assert compiled is not None
    assert compiled.audit["paging"] == {"reason": why}


async def test_the_time_that_paging_takes_is_not_the_searchs() -> None:
    stage = GatewayStage(pager=StubPager(asyncio.Event()), retrieval_deadline_ms=100)
    answer = await stage.ask(ASKED, headers=ON)
    assert answer.headers["x-mneme-reason"] == "paging"
    assert sent(stage) == [LONG, "so", "<memory> hi"], "memory had all of its own time"


@pytest.mark.parametrize("again", [None, Unavailable("no vector")])
async def test_what_is_paged_stays_so_where_memory_fails(again: Exception | None) -> None:
    stage = GatewayStage(pager=StubPager())
    stage.preparer.fail["compile"] = Unavailable("no vector")
    if again is not None:
        stage.preparer.fail["compile-without-search"] = again
    answer = await stage.ask(ASKED, headers=ON)
    assert answer.headers["x-mneme-reason"] == "embeddings"
    assert sent(stage) == ["short", "so", "hi" if again is not None else "<memory> hi"]


async def test_what_mneme_supplies_is_not_paged_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pager = StubPager()
    stage = GatewayStage(pager=pager)
    place = stage.preparer.place

    async def supplied(*given: Any) -> Any:
        return replace(await place(*given), server_managed=True)

    monkeypatch.setattr(stage.preparer, "place", supplied)
    await stage.ask(ASKED, headers=ON)
    assert pager.budgets == []
    compiled = stage.recorder.records[0][2]
    assert compiled is not None
    assert compiled.audit["paging"] == {"reason": "history-supplied"}


@pytest.mark.parametrize("setting", ["on", "off"])
@pytest.mark.parametrize("key", [None, KeyLimits(), KeyLimits(paging=True), KeyLimits(paging=False)])
@pytest.mark.parametrize("session", [None, "on", "off"])
@pytest.mark.parametrize("header", [None, "on", "off"])
def test_header_then_session_then_key_then_server_say_whether_it_is_paged(
    header: OnOff | None, session: OnOff | None, key: KeyLimits | None, setting: OnOff
) -> None:
    by_key = None if key is None or key.paging is None else "on" if key.paging else "off"
    first = next(each for each in (header, session, by_key, setting) if each is not None)
    config = {} if session is None else {"paging": session}
    assert is_paged(header, config, key, setting) == (first == "on")


def test_the_budget_of_a_session_beats_the_servers() -> None:
    assert paging_budget({}, None) is None
    assert paging_budget({}, 32_000) == 32_000
    assert paging_budget({"paging_budget_tokens": 4_000}, 32_000) == 4_000
    assert paging_budget({"paging_budget_tokens": 4_000}, None) == 4_000
