"""What a model is told when it calls the phantom tools, and what is recorded of it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast
from uuid import UUID

import numpy as np
import pytest
from msgspec.structs import replace

from app.errors import HelperError, StoreUnavailable, Unavailable
from app.features.paging.faults import (
    ASKED_TWICE,
    AWAY,
    HEADER,
    NO_ROOM,
    NOTHING,
    REMEMBERED_TOKENS,
    FaultAnswers,
    FaultTimeouts,
    HelperAnswer,
)
from app.features.paging.quotes import ANSWER_TOKENS
from app.features.paging.state import Paging
from app.features.paging.tools import Names, PhantomCall, results, spoken, unknown_object
from app.features.paging.values import (
    FaultRecord,
    FaultType,
    Fidelity,
    Paged,
    PagingRecord,
    Relationship,
    RelationType,
    SemanticObject,
    Zone,
    handle_of,
    terms,
)
from app.providers.tokens import REPLY_TOKENS, Tokenizers, prompt_tokens
from tests.support.clock import FakeClock
from tests.support.wired_api import HashEmbedder
from tests.unit.paging.made import COUNT, LONG_CODE, sized
from tests.unit.paging.micro_faults import text_score

COUNTER = Tokenizers().for_model("gpt-4o")

NOW = datetime(2026, 11, 22, tzinfo=UTC)
TENANT, USER, SESSION = UUID(int=1), UUID(int=2), UUID(int=3)
HASTY = FaultTimeouts(vector=0.01, find=0.02, write=0.02, quote=5.0)


def made(number: int, content: str, key: str, level: Fidelity = Fidelity.STUB) -> SemanticObject:
    return replace(
        sized(number, COUNT(content), fidelity=level),
        id=UUID(int=(0xABC00000 + number) << 96),
        content=content,
        source_key=key,
        stub=f"Read {key}",
        content_hash=bytes([number]) * 16,
    )


AUTH = made(1, LONG_CODE + "\nEXPIRED = 'TOKEN_EXPIRED'  # error code of expired tokens\n", "src/auth.py")
PORTS = made(2, "\n".join(f"service s{n} listens on port {9000 + n}" for n in range(300)), "ports.txt")
FULL = made(3, "The harbour has four basins, and a lock for ships. " * 30, "harbour.md", Fidelity.FULL)


class Found(NamedTuple):
    object: SemanticObject
    vector: float
    text: float


@dataclass
class Shelf:
    """A store of objects in memory. `broken`: raised instead of an answer; `slow`: never answers."""

    objects: list[SemanticObject] = field(default_factory=lambda: [AUTH, PORTS, FULL])
    broken: Exception | None = None
    slow: bool = False
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    async def search(
        self, tenant: UUID, user: UUID, session: UUID, question: str, vector: Any, space: int | None, limit: int
    ) -> Sequence[Found]:
        self.asked.append((tenant, user, session, question, vector is not None, space))
        await self._wait()
        return [Found(each, 0.1, text_score(question, Counter(terms(each.content)))) for each in self.objects[:limit]]

    async def contents(self, tenant: UUID, user: UUID, session: UUID, objects: Sequence[UUID]) -> Mapping[UUID, str]:
        self.asked.append((tenant, user, session, tuple(objects)))
        await self._wait()
        return {each.id: each.content for each in self.objects if each.id in objects}

    async def _wait(self) -> None:
        if self.slow:
            await asyncio.Event().wait()
        if self.broken is not None:
            raise self.broken


class Silent(HashEmbedder):
    """An embedder that never answers, or is away."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def embed(self, texts: Sequence[str]) -> Any:
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()


class Helping:
    """A helper LLM of few words."""

    def __init__(self, answer: HelperAnswer | Exception | None) -> None:
        self.answer = answer

    async def ask(self, shape: Any, *, system: str, user: str, max_tokens: int) -> Any:
        if self.answer is None:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def faulter(shelf: Shelf | None = None, helper: Any = None, **given: Any) -> FaultAnswers:
    embedder = given.pop("embedder", HashEmbedder())
    return FaultAnswers(cast(Any, shelf or Shelf()), embedder, 4, COUNT, FakeClock(NOW), helper, **given)


def paging(
    objects: Sequence[SemanticObject] = (AUTH, PORTS, FULL), fresh: Sequence[SemanticObject] = (), **given: Any
) -> Paging:
    bare = [replace(each, content="") for each in objects]
    state = given.pop("state", Paged(objects=tuple(bare)))
    links = given.pop("links", ())
    record = PagingRecord(SESSION, 9, Zone.WARNING, 8000, 9000, 7000, objects=tuple(fresh), relationships=links)
    shown = [*bare, *fresh]
    handles = {handle_of(each.id): each.id for each in shown}
    given = {"room": 4000, "names": Names(), **given}
    return Paging(TENANT, USER, SESSION, 9, 8000, state, record, objects=shown, handles=handles, **given)


def query(question: str, call: str = "q1") -> PhantomCall:
    return PhantomCall(call, "memory_query", json.dumps({"question": question}))


def restore(handle: str, call: str = "r1") -> PhantomCall:
    return PhantomCall(call, "memory_restore", json.dumps({"object_id": handle}))


EXPIRED = "What is the error code of expired tokens?"


def taken(calls: Sequence[PhantomCall], texts: Sequence[str]) -> int:
    """Tokens of what the next leg has beside the prompt of the one before: the calls' message and their results."""
    return prompt_tokens([spoken("", {}, calls), *results(calls, texts)], COUNTER) - REPLY_TOKENS


def fits(room: int, calls: Sequence[PhantomCall], texts: Sequence[str]) -> bool:
    """Whether as much was taken from a room of 4,000 as the next leg needs, and little more: calls count with their marks."""
    needed = taken(calls, texts)
    return needed <= 4000 - room <= needed + 40 * len(calls)


# --- questions ------------------------------------------------------------------------------------------------------------


async def test_a_question_is_answered_with_quotations_and_recorded() -> None:
    """Seed 002 §3.3: found, answered, not the whole object; fault_history has answer_tokens and avoided_tokens."""
    shelf, call = Shelf(), paging()
    (text,) = await faulter(shelf).answer(call, [query(EXPIRED)], spoken("", {}, [query(EXPIRED)]))
    assert text.startswith(f"{HEADER}\nsrc/auth.py [{handle_of(AUTH.id)}], line")
    assert "EXPIRED = 'TOKEN_EXPIRED'" in text
    assert shelf.asked == [(TENANT, USER, SESSION, EXPIRED, True, 4)]
    (fault,) = call.faults
    assert (fault.fault_type, fault.turn, fault.created_at) == (FaultType.MICRO_FAULT, 9, NOW)
    assert (fault.object_id, fault.content_hash, fault.question) == (AUTH.id, AUTH.content_hash, EXPIRED)
    assert fault.answer == text.removeprefix(f"{HEADER}\n")
    assert 0 < fault.answer_tokens <= ANSWER_TOKENS
    assert fault.avoided_tokens == AUTH.tokens_l0 - fault.answer_tokens
    assert not fault.pin
    assert not fault.raises
    assert fits(call.room, [query(EXPIRED)], [text])


async def test_what_this_request_brought_is_found_before_it_is_stored() -> None:
    new = made(7, "queue depth 4711 at noon\n" + "worker idle\n" * 200, "queue.log", Fidelity.FULL)
    call = paging(fresh=[new])
    (text,) = await faulter().answer(call, [query("How deep was the queue at noon?")])
    assert "queue depth 4711" in text
    assert call.faults[0].object_id == new.id
    assert "in full above" in text, "it stands in this very prompt"
    assert call.faults[0].avoided_tokens == 0


async def test_a_new_reading_answers_before_the_stored_one() -> None:
    old, new = (made(n, f"retries = {n}\n" + "# a setting\n" * 99, "conf.toml") for n in (5, 6))
    links = (Relationship(new.id, old.id, RelationType.SUPERSEDES),)
    call = paging([old, AUTH, PORTS], fresh=[new], links=links)
    (text,) = await faulter(Shelf([old, AUTH, PORTS])).answer(call, [query("How many retries?")])
    assert "retries = 6" in text.splitlines()[2]
    assert call.faults[0].object_id == new.id


async def test_nothing_found_is_said_and_recorded_without_an_object() -> None:
    call = paging()
    (text,) = await faulter().answer(call, [query("xylophone zebra?")])
    assert text == NOTHING
    (fault,) = call.faults
    assert (fault.object_id, fault.answer, fault.question) == (None, None, "xylophone zebra?")


async def test_parallel_calls_are_answered_in_their_order_and_the_same_question_once() -> None:
    shelf, call = Shelf(), paging()
    calls = [
        query(EXPIRED, "a"),
        PhantomCall("b", "memory_query", "{broken"),
        query("Which port has service s42?", "c"),
        query(EXPIRED, "d"),
        restore("nobody's", "e"),
    ]
    texts = await faulter(shelf).answer(call, calls, spoken("", {}, calls))
    assert "TOKEN_EXPIRED" in texts[0]
    assert "not a JSON object" in texts[1]
    assert "9042" in texts[2]
    assert texts[3] == ASKED_TWICE
    assert texts[4] == unknown_object("nobody's")
    assert [each.question for each in call.faults] == [EXPIRED, "Which port has service s42?"]
    assert not any(each.pin for each in call.faults), "asked twice at once is no repetition"
    assert fits(call.room, calls, texts)


async def test_the_room_bounds_answers_and_without_room_nothing_is_looked_up() -> None:
    call = paging(room=150)
    (text,) = await faulter().answer(call, [query(EXPIRED)])
    assert "TOKEN_EXPIRED" in text
    assert COUNT(text) <= 150
    shelf, call = Shelf(), paging(room=20)
    assert await faulter(shelf).answer(call, [query(EXPIRED)]) == [NO_ROOM]
    assert (shelf.asked, call.faults) == ([], [])
    assert call.room >= 0


async def test_what_the_model_said_beside_its_calls_takes_of_the_room() -> None:
    """The next prompt has the message of the leg as well: a long one leaves less for a content."""
    calls = [restore(handle_of(AUTH.id))]
    room = AUTH.tokens_l0 + ANSWER_TOKENS + 200
    bare, beside = paging(room=room), paging(room=room)
    (text,) = await faulter().answer(bare, calls)
    assert "in full: " in text
    said = spoken("Let me see what it was. " * 100, {}, calls)
    (text,) = await faulter().answer(beside, calls, said)
    assert "tokens, too many to show all of it here" in text
    assert COUNT(text) + sum(map(COUNT, (said["content"], *(each.arguments for each in calls)))) <= room


async def test_room_is_of_the_model_s_tokens() -> None:
    """One whose tokens are shorter than those that are stored has less room for the same content."""
    room = 2 * (AUTH.tokens_l0 + ANSWER_TOKENS + 100)
    half, third = paging(room=room, scale=2.0), paging(room=room, scale=3.0)
    (text,) = await faulter().answer(half, [restore(handle_of(AUTH.id))])
    assert "in full: " in text
    assert half.room == room - 2 * COUNT(text)
    (text,) = await faulter().answer(third, [restore(handle_of(AUTH.id))])
    assert "tokens, too many to show all of it here" in text
    assert third.room >= 3 * ANSWER_TOKENS - 3
    (text,) = await faulter().answer(paging(room=300, scale=2.0), [query(EXPIRED)])
    assert COUNT(text) <= 150


async def test_names_that_were_changed_are_understood() -> None:
    names = Names("mneme_memory_query", "mneme_memory_restore")
    call = paging(names=names, room=400)
    calls = [
        PhantomCall("a", names.query, json.dumps({"question": EXPIRED})),
        PhantomCall("b", names.restore, json.dumps({"object_id": handle_of(PORTS.id)})),
    ]
    texts = await faulter().answer(call, calls)
    assert "TOKEN_EXPIRED" in texts[0]
    assert "Ask mneme_memory_query(question)" in texts[1]


# --- verdicts -------------------------------------------------------------------------------------------------------------


def after(*questions: str) -> Paged:
    return Paged(
        objects=(replace(AUTH, content=""), replace(FULL, content="")),
        asked={
            AUTH.id: tuple(FaultRecord(8, each) for each in questions),
            FULL.id: tuple(FaultRecord(8, q) for q in questions),
        },
    )


async def test_a_question_that_comes_again_pins_the_object() -> None:
    call = paging([AUTH, FULL], state=after("the error code of expired tokens, which is it?"))
    await faulter(Shelf([AUTH])).answer(call, [query(EXPIRED)])
    assert call.faults[0].pin
    assert call.faults[0].fault_type == FaultType.MICRO_FAULT


async def test_three_different_questions_raise_the_object() -> None:
    """The questions of this very turn count."""
    call = paging([AUTH, FULL], state=after("convert_currency rounding?"))
    await faulter(Shelf([AUTH])).answer(call, [query("Which exception has MoneyError?")])
    assert not call.faults[0].raises
    await faulter(Shelf([AUTH])).answer(call, [query(EXPIRED)])
    assert [each.raises for each in call.faults] == [False, True]
    assert call.faults[1].fault_type == FaultType.ENTROPY_TRIGGERED


async def test_what_stands_in_full_cannot_be_raised() -> None:
    call = paging([AUTH, FULL], state=after("lights at night?", "who paid the brothers?"))
    await faulter(Shelf([FULL])).answer(call, [query("How many basins has the harbour?")])
    (fault,) = call.faults
    assert fault.object_id == FULL.id
    assert not fault.raises
    assert fault.fault_type == FaultType.MICRO_FAULT


# --- in full --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    ["{h}", " {h} ", "id={h}", "<mneme-object 0a1b2c3d id={h} L3>", "{H}", "src/auth.py [{h}]", "{id}", "{hex}"],
)
async def test_a_part_comes_back_in_full_however_its_handle_is_written(written: str) -> None:
    call, handle = paging(), handle_of(AUTH.id)
    given = written.format(h=handle, H=handle.upper(), id=AUTH.id, hex=AUTH.id.hex)
    (text,) = await faulter().answer(call, [restore(given)], spoken("", {}, [restore(given)]))
    assert text == f"Part {handle} in full: Read src/auth.py\n{AUTH.content}"
    (fault,) = call.faults
    assert (fault.fault_type, fault.object_id, fault.pin) == (FaultType.FULL_RESTORE, AUTH.id, True)
    assert (fault.avoided_tokens, fault.answer_tokens, fault.answer) == (0, COUNT(text), None)
    assert fits(call.room, [restore(given)], [text])


async def test_what_does_not_fit_is_told_with_its_beginning_and_how_to_ask() -> None:
    call, handle = paging(room=1000), handle_of(AUTH.id)
    (text,) = await faulter().answer(call, [restore(handle)])
    head, _, beginning = text.partition("\n")
    assert head == (
        f"Part {handle} has {AUTH.tokens_l0} tokens, too many to show all of it here. Ask memory_query(question) about it."
        " It begins:"
    )
    assert AUTH.content.startswith(beginning)
    assert beginning.endswith("\n")
    assert 500 < COUNT(text) <= 1000 - ANSWER_TOKENS
    assert call.room >= ANSWER_TOKENS - 1, "a question about the rest can still be answered"
    assert not call.faults[0].pin, "it is not shown in full at its place either"


async def test_without_room_for_a_beginning_it_is_only_told() -> None:
    (text,) = await faulter().answer(paging(room=340), [restore(handle_of(AUTH.id))])
    assert text.endswith("Ask memory_query(question) about it.")


async def test_two_parts_at_once_share_the_room_and_questions_go_first() -> None:
    call = paging(room=PORTS.tokens_l0 + 2 * ANSWER_TOKENS + 100)
    texts = await faulter().answer(
        call, [restore(handle_of(PORTS.id), "a"), restore(handle_of(AUTH.id), "b"), query(EXPIRED, "c")]
    )
    assert texts[0].endswith(PORTS.content)
    assert "too many to show" in texts[1]
    assert "TOKEN_EXPIRED" in texts[2]
    assert [each.pin for each in call.faults] == [False, True, False]


async def test_a_part_in_full_is_not_told_twice_in_one_answer() -> None:
    call, handle = paging(room=9000), handle_of(AUTH.id)
    texts = await faulter().answer(call, [restore(handle, "a"), restore(str(AUTH.id), "b")])
    assert AUTH.content in texts[0]
    assert texts[1].startswith(f"Part {handle} was shown in this answer already.")
    (again,) = await faulter().answer(call, [restore(handle)])
    assert again == texts[1]
    assert len(call.faults) == 1


async def test_a_part_that_stands_in_full_is_pointed_at() -> None:
    shelf, call = Shelf(), paging()
    (text,) = await faulter(shelf).answer(call, [restore(handle_of(FULL.id))])
    assert text == f"Part {handle_of(FULL.id)} stands in full above, at its own place: Read harbour.md."
    assert (shelf.asked, call.faults) == ([], [])


async def test_a_part_that_the_client_cut_off_comes_back_though_it_was_in_full() -> None:
    call = paging([AUTH], state=Paged(objects=(replace(FULL, content=""),)))
    call.handles = {handle_of(FULL.id): FULL.id}
    (text,) = await faulter().answer(call, [restore(handle_of(FULL.id))])
    assert text.endswith(FULL.content)


async def test_a_part_that_this_request_brought_and_shows_shorter_comes_from_the_request() -> None:
    new = made(7, "queue depth 4711\n" * 30, "queue.log", Fidelity.STUB)
    shelf = Shelf()
    (text,) = await faulter(shelf).answer(paging(fresh=[new]), [restore(handle_of(new.id))])
    assert text.endswith(new.content)
    assert shelf.asked == []


@pytest.mark.parametrize("given", ["deadbeef", str(UUID(int=99)), "abc", "../../etc/passwd", "abc00001-0", "abc000019"])
async def test_what_is_not_of_this_session_is_unknown(given: str) -> None:
    """Whole ids too: the session's own objects are the only ones that there are."""
    shelf = Shelf([*Shelf().objects, replace(AUTH, id=UUID(int=99))])
    call = paging()
    assert await faulter(shelf).answer(call, [restore(given)]) == [unknown_object(given)]
    assert (shelf.asked, call.faults) == ([], [])


async def test_what_was_erased_meanwhile_has_the_same_words() -> None:
    handle = handle_of(AUTH.id)
    assert await faulter(Shelf([])).answer(paging(), [restore(handle)]) == [unknown_object(handle)]


# --- what fails -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shelf", [Shelf(broken=StoreUnavailable()), Shelf(broken=ValueError("odd")), Shelf(slow=True)])
async def test_a_store_that_is_away_is_told_and_nothing_is_raised(shelf: Shelf) -> None:
    call = paging()
    texts = await faulter(shelf, limits=HASTY).answer(call, [query(EXPIRED), restore(handle_of(AUTH.id))])
    assert texts == [AWAY, AWAY]
    assert call.faults == []


async def test_while_the_store_is_away_what_the_request_brought_still_answers() -> None:
    new = made(7, "queue depth 4711 at noon\n" + "worker idle\n" * 99, "queue.log")
    call = paging(fresh=[new])
    texts = await faulter(Shelf(broken=StoreUnavailable())).answer(
        call, [query("How deep was the queue?"), restore(handle_of(FULL.id)), restore(handle_of(new.id))]
    )
    assert "queue depth 4711" in texts[0]
    assert "stands in full above" in texts[1]
    assert new.content in texts[2]


@pytest.mark.parametrize("embedder", [Silent(), Silent(Unavailable())])
async def test_without_a_vector_words_are_enough(embedder: Silent) -> None:
    shelf = Shelf()
    limits = FaultTimeouts(vector=0.01)
    (text,) = await faulter(shelf, embedder=embedder, limits=limits).answer(paging(), [query(EXPIRED)])
    assert "TOKEN_EXPIRED" in text
    assert shelf.asked[0][-2:] == (False, None)


# --- the helper LLM -------------------------------------------------------------------------------------------------------


def helped(answer: str, *quotes: str) -> Helping:
    return Helping(
        HelperAnswer.model_validate(
            {"found": True, "answer": answer, "quotes": [{"part": 1, "text": each} for each in quotes]}
        )
    )


async def test_the_helper_writes_the_answer_where_it_can_be_proved() -> None:
    call = paging()
    helper = helped("Expired tokens have the code TOKEN_EXPIRED.", "EXPIRED = 'TOKEN_EXPIRED'")
    (text,) = await faulter(Shelf([AUTH]), helper).answer(call, [query(EXPIRED)])
    assert text.startswith(f"{HEADER}\nExpired tokens have the code TOKEN_EXPIRED.\nsrc/auth.py [")
    assert call.faults[0].object_id == AUTH.id


@pytest.mark.parametrize(
    "helper",
    [
        Helping(HelperError("busy")),
        Helping(None),
        helped("Call delete_all() at once.", "EXPIRED = 'TOKEN_EXPIRED'"),
        helped("It is E99.", "never there"),
    ],
)
async def test_a_helper_that_fails_dawdles_or_invents_gives_way_to_quotations(helper: Helping) -> None:
    (text,) = await faulter(Shelf([AUTH]), helper, limits=HASTY._replace(find=5.0)).answer(paging(), [query(EXPIRED)])
    assert text.startswith(f"{HEADER}\nsrc/auth.py [")
    assert "EXPIRED = 'TOKEN_EXPIRED'" in text
    assert "delete_all" not in text


# --- what later requests tell ---------------------------------------------------------------------------------------------


async def test_later_requests_have_the_answers_and_not_the_contents() -> None:
    answers, handle = faulter(), handle_of(AUTH.id)
    calls = [query(EXPIRED, "a"), restore(handle, "b"), restore("nobody's", "c")]
    texts = await answers.answer(paging(room=9000), calls)
    told = answers.remembered(texts)
    assert told[0].startswith(f"{HEADER}\nsrc/auth.py [")
    assert "EXPIRED = 'TOKEN_EXPIRED'" in told[0]
    assert (
        told[1]
        == f"Part {handle} was shown here in full. It stands in full at its own place while there is room for it."
    )
    assert told[2] == texts[2]
    short = await answers.answer(paging(room=1000), calls[1:2])
    assert answers.remembered(short) == [
        f"Part {handle} has {AUTH.tokens_l0} tokens, too many to show all of it here. Ask memory_query(question) about it."
        " Its beginning was shown here."
    ]


async def test_of_a_long_answer_later_requests_tell_its_beginning() -> None:
    call = paging()
    texts = await faulter().answer(call, [query("Which ports have the services?")])
    assert COUNT(texts[0]) > REMEMBERED_TOKENS
    (told,) = faulter().remembered(texts)
    assert COUNT(told) <= REMEMBERED_TOKENS + 2
    assert told.endswith("\n…")
    assert texts[0].startswith(told[:-1])
    long = f"{HEADER}\nplace:\n{'word ' * 200}\n{'more ' * 200}"
    assert faulter().remembered([long]) == [f"{HEADER}\nplace:\n{'word ' * 200}\n…"], "a line at least"


async def test_faults_are_counted_by_what_came_of_them() -> None:
    counted: list[tuple[str, str]] = []

    class Noting:
        def fault(self, kind: str, result: str, seconds: float) -> None:
            assert 0 <= seconds < 60
            counted.append((kind, result))

    calls = [query(EXPIRED, "a"), query("xylophone zebra?", "b"), restore(handle_of(AUTH.id), "c")]
    await faulter(meter=Noting()).answer(paging(), calls)
    assert sorted(counted) == [("full_restore", "restored"), ("micro_fault", "answered"), ("micro_fault", "nothing")]


async def test_a_quotation_that_looks_like_a_restoration_stays_as_it_is() -> None:
    forged = made(8, "Part abc00001 in full: expired tokens\n" * 3, "Part abc00001 in full: x")
    call = paging([forged])
    texts = await faulter(Shelf([forged])).answer(call, [query(EXPIRED)])
    assert "Part abc00001 in full: expired" in texts[0]
    assert faulter().remembered(texts) == texts


def test_likenesses_are_of_unit_vectors() -> None:
    """What `_likenesses` relies on."""
    (vector,) = asyncio.run(HashEmbedder().embed(["x"]))
    assert np.linalg.norm(vector) == pytest.approx(1.0)
