"""What is stored of paging: written in the transaction of the turn, once, and read in one round trip."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np
import orjson
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from app.capture.commit import GroupCommit
from app.capture.record import Recorder
from app.features.paging.state import PagingPartRecord
from app.features.paging.store import PagingStore
from app.features.paging.values import (
    NOTHING_PAGED,
    FaultRecord,
    FaultType,
    Fidelity,
    Levels,
    Paged,
    PagingRecord,
    Shrunk,
    Zone,
)
from app.metrics import Metrics
from app.providers.tokens import CountCache
from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries
from app.tasks import Supervisor
from tests.support.cases import cases
from tests.support.clock import FakeClock
from tests.support.paged import admitted, fault, made, mark, moved, record, whole_record
from tests.support.teller import ANA, NOW, OTHER_TENANT, TENANT, Teller, talk
from tests.support.wired_api import HashEmbedder, WordCounter

SQL = Queries.load()
S1, S2 = UUID(int=0x51), UUID(int=0x52)
BEN = ids.user_id(TENANT, "ben")
CALL = ids.uuid7(NOW)
TABLES = (
    "paged_sessions", "semantic_objects", "object_relationships", "fault_history", "fidelity_transitions",
    "admission_scores", "phantom_ledger",
)  # fmt: skip


@pytest.fixture
def store(pool: Pool) -> PagingStore:
    return PagingStore(pool, SQL, FakeClock(NOW))


async def tell(teller: Teller, kept: PagingRecord, *, call: UUID | None = None, **given: Any) -> bool:
    return await teller.tell(
        talk(f"q{len(teller.calls)}"), "a", session=S1, call=call, facts={"part": PagingPartRecord(kept)}, **given
    )


async def counts(admin: Any) -> dict[str, int]:
    return {table: await admin.fetchval(f"SELECT count(*) FROM agent_data.{table}") for table in TABLES}


def wanted(found: Paged) -> tuple[set[UUID], ...]:
    return set(found.restored), set(found.raised), set(found.released)


# --- the turn's own transaction ------------------------------------------------------------------------------------------


async def test_what_a_turn_changes_is_read_by_the_next(teller: Teller, store: PagingStore) -> None:
    assert await store.read(TENANT, ANA, S1) == NOTHING_PAGED
    one, two = made(S1, "one"), made(S1, "two")
    kept = whole_record(S1)
    assert await tell(teller, kept)
    found = await store.read(TENANT, ANA, S1, chains=[mark(f"{S1}answer")])
    assert (found.zone, found.offered, found.marks) == (kept.zone, True, kept.marks)
    assert found.objects == (
        replace(one, content="", fidelity=Fidelity.STUB, micro_fault_count=1),
        replace(two, content="", access_count=1),
    )
    assert found.relationships == kept.relationships
    assert found.asked == {one.id: (FaultRecord(1, "where?"),)}
    assert found.hidden == kept.hidden
    assert (await store.read(TENANT, ANA, S1)).hidden == {}, "of those answers that were asked for"
    session = dict((await teller.rows("SELECT * FROM agent_data.paged_sessions"))[0])
    assert (session["tokens"], session["shown_tokens"], session["avoided_tokens"]) == (8_000, 5_000, 3_000 + 295)


async def test_a_call_that_comes_twice_changes_nothing(teller: Teller, admin: Any) -> None:
    assert await tell(teller, whole_record(S1), call=CALL)
    before = [dict(row) for row in await admin.fetch("SELECT * FROM agent_data.semantic_objects ORDER BY ordinal")]
    assert not await tell(teller, whole_record(S1, turn=9), call=CALL)
    assert await counts(admin) == {
        "paged_sessions": 1, "semantic_objects": 2, "object_relationships": 1, "fault_history": 1,
        "fidelity_transitions": 1, "admission_scores": 3, "phantom_ledger": 1,
    }  # fmt: skip
    after = [dict(row) for row in await admin.fetch("SELECT * FROM agent_data.semantic_objects ORDER BY ordinal")]
    assert after == before
    assert await admin.fetchval("SELECT avoided_tokens FROM agent_data.paged_sessions") == 3_295


async def test_what_cannot_be_stored_takes_its_turn_along_and_no_other(teller: Teller, admin: Any) -> None:
    """The group is taken apart: the one that is wrong fails alone, whole."""
    tasks = Supervisor()
    group = GroupCommit(teller.store, tasks, Metrics(CollectorRegistry()), turns=64, queue=64, timeout_s=5.0)
    recorder = Recorder(teller.store, HashEmbedder(), CountCache(), WordCounter(), group)
    many = Teller(teller.store, recorder, teller.admin)
    sessions = [UUID(int=0x70 + n) for n in range(5)]
    wrong = record(sessions[2], made(sessions[2], "x"), zone="nowhere")

    async def one(session: UUID) -> Any:
        kept = wrong if session == sessions[2] else whole_record(session)
        try:
            return await many.tell(talk("q"), "a", session=session, facts={"part": PagingPartRecord(kept)})
        except asyncpg.CheckViolationError as error:
            return type(error)

    async with asyncio.TaskGroup() as running:
        told = [running.create_task(one(each)) for each in sessions]
    await group.close(5.0)
    await tasks.close(5.0)
    assert [each.result() for each in told] == [True, True, asyncpg.CheckViolationError, True, True]
    kept = {row["session_id"] for row in await admin.fetch("SELECT session_id FROM agent_data.paged_sessions")}
    assert kept == set(sessions) - {sessions[2]}
    turns = {row["session_id"] for row in await admin.fetch("SELECT session_id FROM agent_data.upstream_calls")}
    assert turns == kept


async def test_two_requests_of_one_session_at_once_lose_nothing(teller: Teller, store: PagingStore, admin: Any) -> None:
    """Both have read the same; each brings objects of its own and one that the other has, too."""
    shared = made(S1, "shared")
    await tell(teller, record(S1, shared))
    own = [[made(S1, f"{n}-{i}") for i in range(8)] for n in range(4)]

    async def one(n: int) -> bool:
        kept = record(
            S1, *own[n], *own[(n + 1) % 4][:4],
            transitions=(moved(shared, Fidelity.STUB), *(moved(each, Fidelity.STUB) for each in own[n][::-1])),
            uses=frozenset({shared.id}),
        )  # fmt: skip
        return await teller.tell(talk(f"at once {n}"), "a", session=S1, facts={"part": PagingPartRecord(kept)})

    async with asyncio.TaskGroup() as running:
        told = [running.create_task(one(n)) for n in range(4)]
    assert all(each.result() for each in told)
    found = await store.read(TENANT, ANA, S1)
    everything = {shared.id, *(each.id for some in own for each in some)}
    assert {each.id for each in found.objects} == everything
    assert len(found.marks) == len(everything)
    ordinals = [
        row["ordinal"] for row in await admin.fetch("SELECT ordinal FROM agent_data.semantic_objects ORDER BY 1")
    ]
    assert len(set(ordinals)) == len(ordinals)
    assert next(each for each in found.objects if each.id == shared.id).access_count == 4
    assert await admin.fetchval("SELECT octet_length(marks) FROM agent_data.paged_sessions") == 16 * len(everything)


async def test_a_turn_goes_on_from_what_was_stored(teller: Teller, store: PagingStore, admin: Any) -> None:
    one, two = made(S1, "one"), made(S1, "two")
    await tell(teller, record(S1, one, turn=1, offered=True))
    again = record(
        S1, two, turn=2, zone=Zone.CRITICAL, tokens=9_000, shown_tokens=6_000,
        transitions=(moved(one, Fidelity.EVICTED, turn=2), moved(two, Fidelity.STUB, turn=2)), pinned=frozenset({two.id}),
        uses=frozenset({one.id}),
    )  # fmt: skip
    await tell(teller, again)
    found = await store.read(TENANT, ANA, S1)
    assert (found.zone, found.offered) == (Zone.CRITICAL, True), "offered once, offered ever after"
    assert found.objects == (
        replace(one, content="", fidelity=Fidelity.EVICTED, access_count=1, last_accessed=2),
        replace(two, content="", fidelity=Fidelity.STUB, pinned=True, pin_reason="restored"),
    )
    rows = await admin.fetch(
        "SELECT object_id, from_fidelity, to_fidelity, trigger, pressure_zone, turn_number FROM agent_data.fidelity_transitions"
        " ORDER BY to_fidelity"
    )
    assert [tuple(row) for row in rows] == [
        (two.id, 0, 3, "pressure", "warning", 2), (one.id, 0, 4, "pressure", "warning", 2)
    ]  # fmt: skip


# --- faults ---------------------------------------------------------------------------------------------------------------


async def test_faults_ask_the_next_decision_for_something_and_are_heard_once(
    teller: Teller, store: PagingStore, admin: Any
) -> None:
    back, short, more, told, idle = (made(S1, n) for n in ("back", "short", "more", "told", "idle"))
    full = FaultType.FULL_RESTORE
    faults = (
        fault(1, back, None, fault_type=full, pin=True),
        fault(2, short, None, fault_type=full),  # did not fit: only its beginning was shown
        fault(3, more, fault_type=FaultType.ENTROPY_TRIGGERED, raises=True),
        fault(4, told, "again?", pin=True),
        fault(5, None, "nobody knows?"),
        fault(6, back, "and this?", raises=True),
    )
    await tell(teller, record(S1, back, short, more, told, idle, faults=faults))
    found = await store.read(TENANT, ANA, S1)
    assert wanted(found) == ({back.id}, {more.id}, set())
    assert {each.source_key: (each.fault_count, each.micro_fault_count, each.pinned) for each in found.objects} == {
        "src/back.py": (1, 1, True), "src/short.py": (1, 0, False), "src/more.py": (0, 1, False),
        "src/told.py": (0, 1, True), "src/idle.py": (0, 0, False),
    }  # fmt: skip
    assert found.objects[0].pin_reason == f"fault {back.content_hash.hex()}"
    assert found.asked == {
        more.id: (FaultRecord(1, "where?"),), told.id: (FaultRecord(1, "again?"),), back.id: (FaultRecord(1, "and this?"),)
    }  # fmt: skip
    await admin.execute("UPDATE agent_data.semantic_objects SET wanted = 'release' WHERE object_id = $1", idle.id)
    assert (await store.read(TENANT, ANA, S1)).released == {idle.id}
    await tell(teller, record(S1, turn=2, heard=frozenset({back.id, idle.id})))
    found = await store.read(TENANT, ANA, S1)
    assert wanted(found) == (set(), {more.id}, set())


async def test_what_is_asked_in_the_turn_that_hears_an_earlier_wish_is_wanted_then(
    teller: Teller, store: PagingStore
) -> None:
    one = made(S1, "one")
    await tell(teller, record(S1, one, faults=(fault(1, one, None, fault_type=FaultType.FULL_RESTORE, pin=True),)))
    again = fault(2, one, raises=True)
    await tell(teller, record(S1, turn=2, heard=frozenset({one.id}), faults=(again,)))
    found = await store.read(TENANT, ANA, S1)
    assert wanted(found) == (set(), {one.id}, set())


async def test_only_the_questions_of_the_last_turns_count(teller: Teller, store: PagingStore) -> None:
    one = made(S1, "one")
    for turn in (1, 2, 12):
        await tell(teller, record(S1, one, turn=turn, faults=(fault(turn, one, f"at {turn}?", turn=turn),)))
    assert (await store.read(TENANT, ANA, S1)).asked == {}.fromkeys([one.id], (FaultRecord(12, "at 12?"),))


async def test_an_exchange_that_is_completed_later_is_replaced(teller: Teller, store: PagingStore, admin: Any) -> None:
    chain = mark("answer")
    pending = {"legs": [], "beside": [{"id": "c"}], "told": None}
    await tell(teller, record(S1, hidden={chain: pending}), call=CALL)
    done = pending | {"told": {"c": "it is \ud800 so"}}
    await tell(teller, record(S1, turn=2, hidden={chain: done}))
    assert (await store.read(TENANT, ANA, S1, chains=[chain, mark("other")])).hidden == {chain: done}
    assert await admin.fetchval("SELECT call_id FROM agent_data.phantom_ledger") == CALL, (
        "of the answer that it is behind"
    )


# --- texts ----------------------------------------------------------------------------------------------------------------


async def test_a_text_of_each_level(teller: Teller, store: PagingStore) -> None:
    one, two = made(S1, "one"), made(S1, "two")
    await tell(teller, record(S1, one, two))
    await store.store_levels(TENANT, ANA, [Levels(one.id, Shrunk("detailed", 9), Shrunk("compact", 2))], {}, None)
    for level, text in zip(Fidelity, (one.content, "detailed", "compact", one.stub, None), strict=True):
        assert await store.texts(TENANT, ANA, {one.id: level}) == ({one.id: text} if text else {})
    assert await store.texts(TENANT, ANA, {two.id: Fidelity.DETAILED, one.id: Fidelity.COMPACT}) == {one.id: "compact"}
    assert await store.texts(TENANT, ANA, {}) == {}
    assert await store.contents(TENANT, ANA, S1, [one.id, two.id, UUID(int=1)]) == {
        one.id: one.content, two.id: two.content
    }  # fmt: skip
    for tenant, user, session in ((OTHER_TENANT, ANA, S1), (TENANT, BEN, S1), (TENANT, ANA, S2)):
        assert await store.contents(tenant, user, session, [one.id]) == {}
        assert await store.read(tenant, user, session) == NOTHING_PAGED
        assert await store.search(tenant, user, session, "content", None, None, 3) == []
    assert await store.texts(OTHER_TENANT, ANA, {one.id: Fidelity.FULL}) == {}


async def test_levels_are_made_once(teller: Teller, store: PagingStore) -> None:
    one, two = made(S1, "one"), made(S1, "two")
    await tell(teller, record(S1, one, two, transitions=(moved(one, Fidelity.DETAILED),)))
    assert [each.id for each in await store.unshrunk(TENANT, ANA, S1, 1)] == [one.id]
    (whole, _) = await store.unshrunk(TENANT, ANA, S1, 9)
    assert whole == replace(one, fidelity=Fidelity.DETAILED)
    detailed, compact = Shrunk("in short", 90, ("bodies",), ("names",)), Shrunk("shorter", 15, ("names",), ())
    levels = [Levels(one.id, detailed, compact, ("for bodies",)), Levels(two.id, None, None)]
    await store.store_levels(TENANT, ANA, levels, {}, None)
    assert await store.unshrunk(TENANT, ANA, S1, 9) == []
    await store.store_levels(TENANT, ANA, [Levels(one.id, Shrunk("other words", 3), None)], {}, None)
    found = (await store.read(TENANT, ANA, S1)).objects
    assert (found[0].detailed, found[0].compact) == (detailed, replace(compact, text="")), "only what is shown is read"
    assert (found[0].fault_when, found[1].detailed, found[1].compact) == (("for bodies",), None, None)


# --- search ---------------------------------------------------------------------------------------------------------------


async def test_levels_that_a_request_made_stay_and_the_job_adds_the_rest(
    teller: Teller, store: PagingStore, admin: Any
) -> None:
    read = made(S1, "one")
    levels = Levels(read.id, Shrunk("Own detail", 40, ("the rest",), ("names",)), Shrunk("Own", 9), ("you need more",))
    await tell(teller, record(S1, read, turn=1, zone=Zone.NORMAL, levels=(levels,)))
    (found,) = (await store.read(TENANT, ANA, S1)).objects
    assert found.detailed is not None
    assert (found.detailed.tokens, found.detailed.losses, found.fault_when) == (40, ("the rest",), ("you need more",))
    assert not found.shrunk
    queued = await admin.fetchval("SELECT count(*) FROM agent_data.pgqueuer WHERE entrypoint = 'shrink'")
    assert queued == 1, "vectors and words are the job's, though the prompt is normal again"
    (waiting,) = await store.unshrunk(TENANT, ANA, S1, 4)
    assert (waiting.detailed, waiting.compact) == (levels.detailed, levels.compact)

    later = Levels(read.id, Shrunk("Another detail", 50), None)
    await tell(teller, record(S1, turn=2, levels=(later,)))
    await store.store_levels(TENANT, ANA, [later], {}, None)
    texts = await store.texts(TENANT, ANA, {read.id: Fidelity.DETAILED})
    assert texts == {read.id: "Own detail"}, "what is shown is never made anew"
    (found,) = (await store.read(TENANT, ANA, S1)).objects
    assert found.shrunk
    assert found.compact is not None


async def test_words_and_likeness_find_evicted_objects_too(teller: Teller, store: PagingStore, admin: Any) -> None:
    auth = made(S1, "auth", "def check(token):\n    raise AuthError(TOKEN_EXPIRED)  # HTTP 401")
    money = made(S1, "money", "def convertCurrency(amount, rate):\n    return amount * rate")
    await tell(teller, record(S1, auth, money, transitions=(moved(auth, Fidelity.EVICTED),)))
    (first, second) = await store.search(TENANT, ANA, S1, "What is raised for expired tokens?", None, None, 3)
    assert (first.object, first.vector) == (replace(auth, fidelity=Fidelity.EVICTED), 0.0)
    # token twice, expire once, raise once: (2/3.2 + 1/2.2 + 1/2.2) / 3
    assert first.text == pytest.approx((2 / 3.2 + 2 / 2.2) / 3)
    assert (second.object.id, second.text) == (money.id, 0.0)
    (found, *_) = await store.search(TENANT, ANA, S1, "currency conversion", None, None, 1)
    assert found.object.id == money.id
    east, north = np.array([1, 0, 0, 0], np.float32), np.array([0, 1, 0, 0], np.float32)
    await store.store_levels(TENANT, ANA, [], {auth.id: north, money.id: (east + north) / np.sqrt(2)}, 1)
    assert (await store.search(TENANT, ANA, S1, "token", east, 1, 1))[0].object.id == auth.id, (
        "0.7 · 0.625 > 0.3 · 0.707"
    )
    hits = await store.search(TENANT, ANA, S1, "nothing of this", east, 1, 2)
    assert [(each.object.id, round(each.vector, 3)) for each in hits] == [(money.id, 0.707), (auth.id, 0.0)]
    assert [each.vector for each in await store.search(TENANT, ANA, S1, "token", east, 2, 2)] == [0.0, 0.0], (
        "another space"
    )
    levels = [Levels(each.id, None, None) for each in (auth, money)]
    before = await store.search(TENANT, ANA, S1, "expired tokens", None, None, 2)
    await store.store_levels(TENANT, ANA, levels, {}, None)
    assert await store.search(TENANT, ANA, S1, "expired tokens", None, None, 2) == before, "with their words kept ready"


async def test_rare_words_and_those_of_the_key_lead(teller: Teller, store: PagingStore) -> None:
    """A word counts by ln(1 + objects / objects that have it); one of the key counts as said twice."""
    common = "the port of the server " * 9
    many = [made(S1, f"m{n}", common) for n in range(2)]
    rare = made(S1, "rare", "the port is in staging", source_key=None)
    named = made(S1, "named", "a port", source_key="deploy/staging-eu.yaml")
    await tell(teller, record(S1, *many, rare, named))
    hits = await store.search(TENANT, ANA, S1, "Which port has staging?", None, None, 4)
    once, twice, often = 1 / 2.2, 2 / 3.2, 9 / 10.2
    port, staging = np.log(1 + 4 / 4), np.log(1 + 4 / 2)
    whole = port + staging
    assert [(each.object.id, pytest.approx(each.text)) for each in hits] == [
        (named.id, (port * once + staging * twice) / whole),
        (rare.id, (port * once + staging * once) / whole),
        (many[1].id, port * often / whole),
        (many[0].id, port * often / whole),
    ]


@cases("question", ["", "the of and", "'; \\ & | ! <-> :*", "\0 \ud800", "x" * 5000, "(" * 300])
async def test_any_question_is_one(teller: Teller, store: PagingStore, question: str) -> None:
    await tell(teller, record(S1, made(S1, "one")))
    assert [each.text for each in await store.search(TENANT, ANA, S1, question, None, None, 3)] == [0.0]


# --- what Postgres does not take -------------------------------------------------------------------------------------------


async def test_whatever_a_tool_gives_is_stored(teller: Teller, store: PagingStore) -> None:
    wild = "nul \0 lone \ud800 \udfff pair \U0001f600 end"
    odd = made(
        S1, "odd", wild, stub=f"Read {wild}", source_tool=wild, source_key=wild, key_entities=(wild,), tags=("a", wild)
    )  # fmt: skip
    long = made(S1, "long", "".join(f"w{n} " for n in range(1_500_000)) + wild)
    assert len(long.content) > 10_000_000
    kept = record(
        S1, odd, long, admissions=(admitted(odd, wild), admitted(None, wild)),
        faults=(fault(1, odd, wild, answer=wild),),
        hidden={mark("a"): {"legs": [{"role": "tool", "content": wild}], "beside": [], "told": None}},
    )  # fmt: skip
    assert await tell(teller, kept)
    plain = "nul \ufffd lone \ufffd \ufffd pair \U0001f600 end"
    contents = await store.contents(TENANT, ANA, S1, [odd.id, long.id])
    assert contents[odd.id] == plain
    assert contents[long.id] == long.content[: -len(wild)] + plain
    assert len(contents[odd.id]) == len(wild), "places stay where they are"
    found = await store.read(TENANT, ANA, S1, chains=[mark("a")])
    assert found.hidden[mark("a")]["legs"][0]["content"] == wild
    assert found.objects[0].stub == f"Read {plain}".replace("nul \ufffd", "nul "), "as it was shown"
    assert found.asked[odd.id][0].question == plain
    assert (await store.search(TENANT, ANA, S1, "w77", None, None, 1))[0].object.id == long.id
    level = Shrunk(wild, 5, (wild,), (wild,))
    await store.store_levels(
        TENANT, ANA, [Levels(odd.id, level, level, (wild,)), Levels(long.id, None, None)], {}, None
    )
    assert (await store.texts(TENANT, ANA, {odd.id: Fidelity.DETAILED}))[odd.id] == plain.replace("nul \ufffd", "nul ")


# --- beside a turn ----------------------------------------------------------------------------------------------------------


async def test_what_is_kept_by_itself_decides_nothing(teller: Teller, store: PagingStore, admin: Any) -> None:
    """A first request of a long session that was segmented too late; a question through the API."""
    one, two = made(S1, "one"), made(S1, "two")
    await store.keep(TENANT, ANA, CALL, record(S1, one, zone=Zone.NORMAL))
    assert (await store.read(TENANT, ANA, S1)).objects == (replace(one, content=""),)
    await tell(teller, record(S1, zone=Zone.WARNING, turn=3, tokens=7_000, shown_tokens=6_000))
    late = record(S1, one, two, turn=1, tokens=1, shown_tokens=0, faults=(fault(1, one),))
    await store.keep(TENANT, ANA, None, late)
    found = await store.read(TENANT, ANA, S1)
    assert found.zone == Zone.WARNING
    assert [each.id for each in found.objects] == [one.id, two.id]
    assert found.asked == {one.id: (FaultRecord(1, "where?"),)}
    row = dict(await admin.fetchrow("SELECT turn, tokens, avoided_tokens FROM agent_data.paged_sessions"))
    assert row == {"turn": 3, "tokens": 7_000, "avoided_tokens": 1_000 + 295}


async def test_of_an_erased_user_nothing_is_kept(store: PagingStore, admin: Any, teller: Teller) -> None:
    await admin.execute(
        "INSERT INTO agent_data.erased_users (user_id, tenant_id, erasure_id, erased_before) VALUES ($1, $2, $3, 'infinity')",
        ANA, TENANT, S1,
    )  # fmt: skip
    await store.keep(TENANT, ANA, CALL, whole_record(S1))
    assert await tell(teller, whole_record(S1)) is False
    assert sum((await counts(admin)).values()) == 0


async def test_what_was_deleted_meanwhile_is_not_written_down(teller: Teller, store: PagingStore, admin: Any) -> None:
    await admin.execute(
        "INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason, created_at)"
        " VALUES ($1, $2, $3, 'deleted', $4)",
        ANA, TENANT, S1, NOW.replace(year=NOW.year + 1),
    )  # fmt: skip
    await tell(teller, whole_record(S1))
    found = await counts(admin)
    assert [found[each] for each in ("semantic_objects", "fault_history", "admission_scores", "phantom_ledger")] == [
        0
    ] * 4
    assert len((await store.read(TENANT, ANA, S1)).marks) == 2


# --- jobs -------------------------------------------------------------------------------------------------------------------


@cases(("zone", "wanted"), [(Zone.NORMAL, 0), (Zone.CAUTION, 1), (Zone.EMERGENCY, 1)])
async def test_under_pressure_levels_are_asked_for_once(teller: Teller, admin: Any, zone: Zone, wanted: int) -> None:
    one = made(S1, "one")
    for turn in (1, 2):
        await tell(teller, record(S1, one, turn=turn, zone=zone))
    rows = await admin.fetch("SELECT payload, dedupe_key FROM agent_data.pgqueuer WHERE entrypoint = 'shrink'")
    assert len(rows) == wanted
    for row in rows:
        assert row["dedupe_key"] == f"shrink:{S1}"
        assert orjson.loads(row["payload"]) == {"tenant": str(TENANT), "user": str(ANA), "session": str(S1)}


async def test_where_all_levels_are_made_none_are_asked_for(teller: Teller, store: PagingStore, admin: Any) -> None:
    one = made(S1, "one")
    await tell(teller, record(S1, one))
    await store.store_levels(TENANT, ANA, [Levels(one.id, None, None)], {}, None)
    await tell(teller, record(S1, turn=2, zone=Zone.CRITICAL))
    assert await admin.fetchval("SELECT count(*) FROM agent_data.pgqueuer WHERE entrypoint = 'shrink'") == 0


# --- settings of a session --------------------------------------------------------------------------------------------------


async def test_the_settings_of_a_session_come_with_it(teller: Teller, admin: Any) -> None:
    await teller.tell(talk("q"), "a", session=S1)
    assert (await teller.recognise(talk("q", "a", "r"))).config == {}
    config = {"paging": "on", "paging_budget_tokens": 32_000}
    await admin.execute("UPDATE agent_data.sessions SET config = $1", orjson.dumps(config).decode())
    assert (await teller.recognise(talk("q", "a", "r"))).config == config
    assert (await teller.recognise(talk("new"))).config == {}
    await teller.tell(talk("other"), "b", session=S2, parent_session_id=S1, branch_turn_index=1)
    assert (await teller.recognise([], named=S2)).config == config, "a branch goes on as its parent"
