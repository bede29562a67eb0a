from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.context.transcript import Transcript, canonical, message_hash
from app.gateway.identify import Identity
from app.gateway.reconcile import (
    Place,
    decide,
    is_server_managed,
    reconcile,
    same_answer,
    tails,
    with_overlap,
    with_path,
)
from app.store.turns import Recognised, StoredMessage
from tests.support.context_samples import tail_of
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TENANT, USER, SESSION = UUID(int=1), UUID(int=2), UUID(int=3)
HEAD, TIP = UUID(int=11), UUID(int=12)
Message = dict[str, Any]


def identity(**given: Any) -> Identity:
    plain: dict[str, Any] = {
        "tenant_id": TENANT,
        "user": "ana",
        "user_id": USER,
        "confined": False,
        "session": None,
        "named": None,
        "issued": None,
        "retry": 0,
        "idempotency_key": None,
    }
    return Identity(**plain | given)


NAMED = identity(session="s", named=SESSION)


def said(role: str, text: str = "") -> Message:
    return {"role": role, "content": text or role}


def talk(turns: int, question: str = "next?") -> list[Message]:
    """That many answered turns and a question."""
    messages = [each for n in range(turns) for each in (said("user", f"q{n}"), said("assistant", f"a{n}"))]
    return [*messages, said("user", question)]


def known(how: str, **given: Any) -> Recognised:
    return Recognised(how, SESSION, True, **given)


def place_of(found: Recognised, messages: Sequence[Message], who: Identity = identity(), **given: Any) -> Place:  # noqa: B008 - a constant
    server = given.pop("server", False)
    return decide(found, who, messages, Transcript.of(messages), server=server, now=NOW)


# --- which way ----------------------------------------------------------------------------------------------------------


@each_of(
    ("session", "answered", "wanted", "server"),
    [
        (None, False, None, False),
        (None, False, "server", False),
        ("s", False, None, True),
        ("s", True, None, False),
        ("s", True, "server", True),
        ("s", False, "client", False),
    ],
)
def test_who_supplies_the_history(session: str | None, answered: bool, wanted: str | None, server: bool) -> None:
    transcript = Transcript.of(talk(int(answered)))
    assert is_server_managed(transcript, identity(session=session), wanted) is server


# --- client-managed -----------------------------------------------------------------------------------------------------


def test_a_new_session_that_was_named_has_its_id_from_its_name() -> None:
    found = Recognised("named", SESSION, False)
    for server in (False, True):
        place = place_of(found, [said("user")], NAMED, server=server)
        assert (place.session_id, place.external_id, place.new) == (SESSION, "s", True)


def chained(**given: Any) -> Recognised:
    plain: dict[str, Any] = {
        "head_message_id": HEAD,
        "head_turn_index": 4,
        "head_position": 1,
        "head_open": True,
        "tip_message_id": HEAD,
        "tip_turn_index": 4,
        "request_chain": b"r",
        "request_count": 3,
    }
    return known("chain", **plain | given)


def test_more_than_one_new_message_is_new() -> None:
    place = place_of(chained(head_position=0), talk(2))
    assert place.first_new == 2


def test_a_session_that_was_named_has_no_branches() -> None:
    found = chained(head_open=False, tip_message_id=TIP, external_id="s")
    place = place_of(found, talk(2), NAMED)
    assert (place.how, place.session_id, place.parent_message_id, place.external_id) == ("continue", SESSION, HEAD, "s")


def test_a_retry_of_a_first_question_is_none_once_the_conversation_went_on() -> None:
    found = known("asked", asked_message_id=HEAD, asked_turn_index=1, tip_turn_index=6)
    place = place_of(found, [said("user", "hi")], identity(retry=1))
    assert (place.how, place.new) == ("new", True)
    assert place.session_id != SESSION
    assert place.recognised is None
    again = place_of(replace(found, tip_turn_index=2), [said("user", "hi")], identity(retry=1))
    assert again.how == "regenerate"


@each_of(
    ("stored", "shown", "same"),
    [
        ("Once upon a time", "Once upon", True),
        ("<think>\nhm\n</think>\n\nFine.", "Fine.", True),
        ("Fine.", "  Fine.\n", True),
        ("Fine.", "Fine. [1]", True),
        ("Fine.", "Terrible.", False),
        ("", "Fine.", False),
        ("Fine.", "", False),
    ],
)
def test_whether_an_answer_is_still_the_one_that_was_given(stored: str, shown: str, same: bool) -> None:
    assert same_answer(stored, shown) is same
    assert same_answer(shown, stored) is same


def test_an_answer_that_was_deleted_is_not_compared_with() -> None:
    found = known("rewritten", tip_message_id=TIP, tip_turn_index=4, tip_text=None, head_visible_from=1)
    place = place_of(found, talk(2))
    assert (place.how, place.first_new, place.parent_message_id) == ("continue", 4, TIP)


def test_an_edited_answer_is_a_branch_where_something_earlier_is_known_and_else_new() -> None:
    found = chained(head_position=0, head_turn_index=2, head_open=False, tip_text="quite another")
    place = place_of(replace(found, how="rewritten"), talk(2))
    assert (place.how, place.first_new, place.branch_turn_index) == ("branch", 2, 2)
    unknown = known("rewritten", tip_message_id=TIP, tip_text="quite another")
    assert place_of(unknown, talk(1)).how == "new"


def test_a_named_session_is_found_by_its_tail_as_well() -> None:
    messages = talk(2)
    tail = tail_of(Transcript.of(messages), 1)
    place = place_of(known("named", tip_message_id=TIP, tip_turn_index=20, tail1=tail), messages, NAMED)
    assert (place.how, place.first_new) == ("continue", 4)


# --- tails ----------------------------------------------------------------------------------------------------------------


def test_a_turn_that_lost_its_beginning_is_no_tail() -> None:
    whole = Transcript.of(talk(3))
    cut = Transcript.of(talk(3)[3:])  # from an answer on
    assert tails(whole.roles, whole.hashes) == (tail_of(whole, 1), tail_of(whole, 2))
    assert tails(cut.roles, cut.hashes) == (tail_of(whole, 1), None)
    last = Transcript.of(talk(3)[5:])
    assert tails(last.roles, last.hashes) == (None, None)
    assert tails((), ()) == (None, None)


@given(st.lists(st.sampled_from(["user", "assistant", "tool"]), max_size=10), st.integers(0, 9))
def test_the_tails_do_not_depend_on_how_much_was_cut_off(roles: list[str], cut: int) -> None:
    messages = [said(role, f"{role} {n}") for n, role in enumerate(["user", *roles])]
    whole, rest = Transcript.of(messages), Transcript.of(messages[cut:])
    for ours, theirs in zip(tails(whole.roles, whole.hashes), tails(rest.roles, rest.hashes), strict=True):
        if theirs is not None and rest.roles[0] == "user" and len(rest.answered) > 2:
            assert ours == theirs


# --- server-managed -----------------------------------------------------------------------------------------------------


def hash_of(message: Message) -> bytes:
    form = canonical(message)
    assert form is not None
    return message_hash(form)


def stored(number: int, message: Message, **given: Any) -> StoredMessage:
    plain: dict[str, Any] = {
        "message_id": UUID(int=number),
        "parent_message_id": UUID(int=number - 1) if number > 1 else None,
        "turn_index": number,
        "sibling": 0,
        "role": message["role"],
        "content": message["content"],
        "message_hash": hash_of(message),
    }
    return StoredMessage(**plain | given)


def path_of(messages: Sequence[Message]) -> list[StoredMessage]:
    return [stored(n, each) for n, each in enumerate(messages, 1)]


def test_a_path_that_is_not_supplied_whole_is_not_complete() -> None:
    found = known("named", tip_message_id=TIP, tip_turn_index=4)
    own = [said("user", "new")]
    place = place_of(found, own, NAMED, server=True)
    path = path_of(talk(2)[:-1])
    path[1] = path[1]._replace(hidden=True)
    full = with_path(place, path, True, own, Transcript.of(own))
    assert [each.turn_index for each in full.path] == [1, 3, 4]
    assert not full.path_complete
    assert not with_path(place, path_of(talk(2)[:-1]), False, own, Transcript.of(own)).path_complete


def test_a_named_transcript_is_laid_over_the_session() -> None:
    own = [said("system"), said("user", "q1"), said("assistant", "changed"), said("user", "new")]
    place = place_of(known("named", tip_message_id=TIP, tip_turn_index=4), own, NAMED)
    assert (place.how, place.first_new, place.parent_message_id) == ("continue", 0, None)
    laid = with_overlap(place, path_of(talk(2)[:-1]), Transcript.of(own))
    assert (laid.first_new, laid.parent_message_id, laid.visible_from) == (2, UUID(int=3), 3)
    assert with_overlap(place, [], Transcript.of(own)) == place


# --- asking the store ---------------------------------------------------------------------------------------------------


class Shelf:
    """A store that recognises what it was told to."""

    def __init__(self, found: Recognised, messages: Sequence[StoredMessage] = ()) -> None:
        self.found = found
        self.messages = list(messages)
        self.asked: list[dict[str, Any]] = []
        self.reads = 0

    async def recognise(self, tenant: UUID, user: UUID, **asked: Any) -> Recognised:
        assert (tenant, user) == (TENANT, USER)
        self.asked.append(asked)
        return self.found

    async def session_messages(self, tenant: UUID, user: UUID, line: Any, *, limit: int) -> list[StoredMessage]:
        self.reads += 1
        return self.messages[::-1]


async def placed(shelf: Shelf, messages: Sequence[Message], who: Identity, history: str | None = None) -> Place:
    return await reconcile(shelf, who, messages, Transcript.of(messages), history, NOW)  # type: ignore[arg-type]  # all it needs of a store


async def test_a_client_managed_request_is_one_look() -> None:
    shelf = Shelf(chained())
    messages = [said("system"), *talk(2)]
    transcript = Transcript.of(messages)
    await placed(shelf, messages, identity(retry=1))
    assert shelf.reads == 0
    asked = shelf.asked[0]
    assert asked["chains"] == [transcript.chains[2], transcript.chains[4]]
    assert asked["question"] == transcript.chains[3]
    assert asked["whole"] == transcript.chains[5]
    assert (asked["tail1"], asked["tail2"]) == (tail_of(transcript, 1), tail_of(transcript, 2))
    assert asked["retry"] is True


async def test_a_server_managed_request_asks_for_its_session_only_and_reads_it() -> None:
    shelf = Shelf(known("named", tip_message_id=UUID(int=2), tip_turn_index=2), path_of(talk(1)[:-1]))
    place = await placed(shelf, [said("user", "new")], NAMED)
    assert [each.content for each in place.path] == ["q0", "a0"]
    assert not {"chains", "whole", "tail1"} & set(shelf.asked[0])
    assert shelf.reads == 1
    empty = Shelf(known("named"))
    assert (await placed(empty, [said("user", "new")], NAMED)).path == ()
    assert empty.reads == 0


async def test_of_strangers_only_whole_transcripts_are_recognised() -> None:
    stranger = identity(confined=True)
    shelf = Shelf(Recognised("none", None, False))
    await placed(shelf, talk(2), stranger)
    assert (shelf.asked[0]["tail1"], shelf.asked[0]["tail2"]) == (None, None)
    assert shelf.asked[0]["whole"] is not None
    await placed(shelf, [said("user", "thanks")], replace(stranger, retry=1))
    assert shelf.asked[1]["whole"] is None
    await placed(shelf, [said("user", "thanks")], replace(stranger, repeats=True))
    assert shelf.asked[2]["whole"] is not None
    assert [each["nobody"] for each in shelf.asked] == [True] * 3
