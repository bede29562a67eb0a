"""What of a call's paging is stored, and how it waits on disk until it is."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import orjson
import pytest
from msgspec.structs import replace

from app.context.transcript import Transcript
from app.features.paging.body import BLOCKS, HiddenLegs
from app.features.paging.segment import marks
from app.features.paging.state import Paging
from app.features.paging.tools import PhantomCall
from app.features.paging.values import NOTHING_PAGED, Fidelity, ObjectSpan, PagingRecord, Relationship, RelationType
from app.gateway.dialects.base import ChatRequest
from app.gateway.dialects.chat import CHAT
from app.gateway.headers import Redactor
from tests.support.paged import admitted, fault, made, mark, moved, record, whole_record

SESSION, TENANT, USER = UUID(int=1), UUID(int=2), UUID(int=3)
CHAIN = mark("answer")
NO_REDACTOR = Redactor()
EXCHANGE = HiddenLegs(
    legs=(
        {"role": "assistant", "content": "hm", "tool_calls": [{"id": "c1"}]},
        {"role": "tool", "content": "told \ud800"},
    ),
    beside=(PhantomCall("c2", "memory_query", '{"question": "x"}', 1),),
)
MESSAGES = [
    {"role": "user", "content": "read both"},
    {"role": "tool", "content": "open", "tool_call_id": "a"},
    {"role": "tool", "content": "secret", "tool_call_id": "b"},
]


def chat(messages: list[dict[str, Any]] = MESSAGES) -> ChatRequest:
    body = orjson.dumps({"model": "m", "messages": messages, "user": "ana"})
    read = CHAT.read(body, orjson.loads(body))
    assert read is not None
    return read


def paging(**given: Any) -> Paging:
    whole = whole_record(SESSION)
    plain: dict[str, Any] = {
        "tenant_id": TENANT, "user_id": USER, "session_id": SESSION, "turn": 4, "budget": 9_000, "state": NOTHING_PAGED,
        "record": replace(whole, faults=()), "faults": list(whole.faults), "hidden": EXCHANGE,
    }  # fmt: skip
    return Paging(**plain | given)


def recorded(given: Paging, chain: bytes | None, redactor: Redactor = NO_REDACTOR) -> PagingRecord:
    return given.recorded(chat(), chain, redactor).record


def test_the_record_has_the_faults_and_the_exchange_behind_the_answer() -> None:
    given = paging()
    found = recorded(given, CHAIN)
    assert found.faults == tuple(given.faults)
    assert found.hidden == {**given.record.hidden, CHAIN: EXCHANGE.as_json()}


@pytest.mark.parametrize(("chain", "hidden"), [(None, EXCHANGE), (CHAIN, HiddenLegs())])
def test_without_an_answer_or_an_exchange_the_ledger_gets_nothing_new(chain: bytes | None, hidden: HiddenLegs) -> None:
    given = paging(hidden=hidden)
    assert recorded(given, chain).hidden == given.record.hidden


def test_a_call_that_waits_on_disk_comes_back_with_its_paging() -> None:
    given = paging()
    kept = orjson.loads(orjson.dumps(given.frozen(chat(), Redactor())))
    assert Paging.thawed(kept, TENANT, USER) == given
    assert recorded(Paging.thawed(kept, TENANT, USER), CHAIN) == recorded(given, CHAIN)


def test_what_no_disk_takes_is_replaced() -> None:
    wild = made(SESSION, "wild", "a \ud800 and \0 b")
    kept = orjson.loads(orjson.dumps(paging(record=record(SESSION, wild)).frozen(chat(), Redactor())))
    assert Paging.thawed(kept, TENANT, USER).record.objects[0].content == "a \ufffd and \ufffd b"


@pytest.mark.parametrize(
    "kept", [{}, {"session": "x"}, {"session": str(SESSION), "turn": 1, "record": {}, "hidden": None}]
)
def test_what_mneme_has_not_written_is_refused(kept: dict[str, Any]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Paging.thawed(kept, TENANT, USER)


# --- values that are not to be stored -----------------------------------------------------------------------------------


def redacted_case() -> tuple[Paging, dict[str, Any]]:
    """Two objects, each in a message of its own."""
    found = [each for each in marks(Transcript.of(MESSAGES)) if each is not None]
    one, two = (
        made(SESSION, n, t, parts=(ObjectSpan(m, 0, 6),))
        for n, t, m in (("a", "open", found[1]), ("b", "secret", found[2]))
    )
    kept = record(
        SESSION, one, two,
        relationships=(Relationship(two.id, one.id, RelationType.REFERENCES),),
        admissions=(admitted(one), admitted(two), admitted(None, "secret")),
        transitions=(moved(one, Fidelity.STUB), moved(two, Fidelity.STUB)),
        uses=frozenset({one.id, two.id}), pinned=frozenset({two.id}),
    )  # fmt: skip
    return paging(record=kept, faults=[fault(1, two, answer="secret")]), {"one": one, "two": two}


def test_of_a_message_that_may_not_be_stored_there_is_no_object() -> None:
    given, objects = redacted_case()
    found = recorded(given, CHAIN, Redactor(["$.messages[2].content"]))
    one = objects["one"]
    assert found.objects == (one,)
    assert found.relationships == ()
    assert found.admissions == (admitted(one),)
    assert [each.object_id for each in found.transitions] == [one.id]
    assert found.uses == {one.id}
    assert found.pinned == frozenset()
    assert [(each.question, each.answer, each.avoided_tokens) for each in found.faults] == [(None, None, 295)]
    assert found.hidden == {}
    assert "secret" not in str(given.frozen(chat(), Redactor(["$.messages[2].content"])))


def test_an_exchange_that_says_what_may_not_be_stored_is_not_kept() -> None:
    given, objects = redacted_case()
    found = recorded(given, CHAIN, Redactor(["$.choices[*].message.content"]))
    assert found.objects == tuple(objects.values())
    assert found.hidden == {}


@pytest.mark.parametrize("path", ["$.content[*].thinking", "$.messages[*].content[*].thinking", "$.delta.thinking"])
def test_thinking_that_may_not_be_stored_is_not_kept_with_an_exchange(path: str) -> None:
    legs = ({"role": "assistant", "content": "Hm.", BLOCKS: [{"type": "thinking", "thinking": "secret"}]},)
    given = paging(hidden=HiddenLegs(legs))
    assert CHAIN in recorded(given, CHAIN).hidden
    assert recorded(given, CHAIN, Redactor(["$.content[*].text"])).hidden
    assert recorded(given, CHAIN, Redactor([path])).hidden == {}


def test_a_value_beside_the_messages_takes_nothing_away() -> None:
    given, _ = redacted_case()
    assert recorded(given, CHAIN, Redactor(["$.user"])) == recorded(given, CHAIN)
