"""Requests whose earlier messages the upstream holds itself: where they stand, and what their prompt is counted as."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from app.context.request import CompileRequest
from app.context.retrieve import Scope
from app.context.transcript import Transcript, chain
from app.errors import NotFound
from app.gateway.identify import Identity
from app.gateway.prepare import outgoing
from app.gateway.reconcile import Place, decide_held, over_held, with_held
from app.store.turns import Recognised, StoredMessage

NOW = datetime(2026, 11, 1, tzinfo=UTC)
TENANT, USER, SESSION, QUESTION, ANSWER, LATER = (UUID(int=n) for n in range(1, 7))
NEXT = Transcript.of([{"role": "user", "content": "next"}])


def who(**more: Any) -> Identity:
    given: dict[str, Any] = {
        "tenant_id": TENANT, "user": "ana", "user_id": USER, "confined": False, "session": None, "named": None,
        "issued": None, "retry": 0, "idempotency_key": None,
    }  # fmt: skip
    return Identity(**given | more)


def found(**more: Any) -> Recognised:
    given: dict[str, Any] = {
        "how": "chain", "session_id": SESSION, "known": True, "user_id": USER, "tip_message_id": ANSWER, "tip_turn_index": 2,
        "tip_chain": b"tip", "head_message_id": ANSWER, "head_turn_index": 2, "head_position": 0, "head_open": True,
    }  # fmt: skip
    return Recognised(**given | more)


def stored(message: UUID, role: str, text: str) -> StoredMessage:
    hashed = Transcript.of([{"role": role, "content": text}]).hashes[0]
    return StoredMessage(message, None, 1, 0, role, text, message_hash=hashed)


def request_of(messages: list[Any], path: Sequence[StoredMessage]) -> CompileRequest:
    scope = Scope(TENANT, USER, confine=None, session=SESSION)
    return CompileRequest(
        scope, SESSION, False, messages, Transcript.of(messages), "gpt-4o", NOW, "tail",
        path=[outgoing(each) for each in path], server_managed=True,
    )  # fmt: skip


PATH = [stored(QUESTION, "user", "first"), stored(ANSWER, "assistant", "Hello.")]
HASHES = [each.message_hash for each in PATH if each.message_hash is not None]


def test_what_follows_the_newest_answer_goes_on() -> None:
    place = decide_held(found(), who(), NEXT, NOW)
    assert (place.how, place.session_id, place.parent_message_id) == ("continue", SESSION, ANSWER)
    assert place.upstream_holds
    assert place.server_managed
    placed = with_held(place, PATH, True, [])
    assert placed.start_chain == chain(HASHES)[-1]
    assert with_held(place, PATH, False, []).start_chain == b"tip"


def test_what_follows_an_earlier_answer_is_a_branch() -> None:
    place = decide_held(found(head_open=False, tip_message_id=LATER, tip_turn_index=4), who(), NEXT, NOW)
    assert (place.how, place.parent_session_id, place.branch_turn_index) == ("branch", SESSION, 2)
    assert place.session_id != SESSION
    assert place.new
    assert place.parent_message_id == ANSWER
    assert place.start_chain == b"", "the newest answer is not the one that it follows"


def test_an_answer_that_nobody_has_seen_begins_a_session() -> None:
    place = decide_held(Recognised("none", None, False), who(), NEXT, NOW)
    assert (place.how, place.new, place.upstream_holds) == ("new", True, True)
    named = decide_held(found(how="named", head_message_id=None), who(session="s"), NEXT, NOW)
    assert (named.how, named.session_id, named.start_chain) == ("continue", SESSION, b"tip")
    with pytest.raises(NotFound):
        decide_held(Recognised("foreign", None, False), who(), NEXT, NOW)


def test_a_retry_asks_the_same_question_again() -> None:
    asked = {"tip_question_id": LATER, "tip_question_hash": NEXT.hashes[0], "tip_question_index": 3}
    place = decide_held(found(head_open=False, tip_message_id=LATER, **asked), who(retry=1), NEXT, NOW)
    assert (place.how, place.asked_index, place.parent_message_id) == ("regenerate", 4, LATER)
    again = [*PATH, stored(LATER, "user", "next")]
    placed = with_held(place, again, True, [each for each in NEXT.hashes if each is not None])
    assert list(placed.path) == PATH
    # The same words, asked before the answer that it follows, are another question.
    earlier = asked | {"tip_question_index": 1}
    assert decide_held(found(**earlier), who(retry=1), NEXT, NOW).how == "continue"


def test_a_prompt_is_counted_with_what_the_upstream_puts_before_it() -> None:
    place = with_held(decide_held(found(), who(), NEXT, NOW), PATH, True, [])
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "next"}]
    request = request_of(messages, place.path)
    whole = over_held(request, place)
    told = [messages[0], {"role": "user", "content": "first"}, {"role": "assistant", "content": "Hello."}, messages[1]]
    assert list(whole.messages) == told
    assert whole.transcript == Transcript.of(told), "as if the client had sent it all"
    assert not whole.path
    assert not whole.server_managed
    assert whole.upstream_holds


def test_what_is_not_known_to_its_beginning_has_no_chain() -> None:
    place: Place = with_held(decide_held(found(), who(), NEXT, NOW), PATH, False, [])
    whole = over_held(request_of([{"role": "user", "content": "next"}], place.path), place)
    assert whole.transcript.chains[:2] == (None, None)
    assert whole.transcript.chains[2] == chain([NEXT.hashes[0] or b""], b"tip")[0]
