"""The one write of a turn, and the read that recognises a conversation."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from app.capture.facts import Outcome, Usage
from app.context.assemble import Block
from app.index.analyse import pack
from app.store import ids
from tests.support.teller import ANA, NOW, OTHER_TENANT, TENANT, Teller, hash_of, recipe_of, said, talk

S1, S2, S3 = (UUID(int=0x51 + n) for n in range(3))


# --- the write ------------------------------------------------------------------------------------------------------------


async def test_a_turn_that_comes_twice_leaves_one(teller: Teller) -> None:
    call = ids.uuid7(NOW)
    assert await teller.tell(talk("q"), "a", session=S1, call=call)
    assert not await teller.tell(talk("q"), "a", session=S1, call=call)
    assert await teller.places(S1) == [(1, 0, "q"), (2, 0, "a")]
    for table, count in (("upstream_calls", 1), ("session_heads", 2), ("embeddings", 2), ("pgqueuer", 1)):
        assert len(await teller.rows(f"SELECT 1 FROM agent_data.{table}")) == count, table
    session = (await teller.rows("SELECT * FROM agent_data.sessions"))[0]
    assert (session["turn_count"], session["total_prompt_tokens"], session["total_cost_microcents"]) == (2, 10, 3)


async def test_totals_only_grow(teller: Teller) -> None:
    await teller.tell(talk("q"), "a", session=S1)
    await teller.tell(talk("q", "a", "r"), "b", session=S1, new=1, facts={"usage": Usage()})
    session = (await teller.rows("SELECT * FROM agent_data.sessions"))[0]
    assert (session["turn_count"], session["total_prompt_tokens"], session["total_completion_tokens"]) == (4, 10, 5)
    assert (session["head_turn_index"], session["first_message_at"] < session["last_message_at"]) == (4, True)


async def test_a_turn_that_began_before_its_session_was_deleted_is_recorded_as_deleted(teller: Teller) -> None:
    """As one that was under way then, or waited in a spool; its place and its heads stay, so that its transcript is known."""
    await teller.tell(talk("q"), "a", session=S1)
    (was,) = await teller.rows("SELECT created_at FROM agent_data.upstream_calls")
    deleted = was["created_at"] + timedelta(hours=1)
    await teller.admin.execute("UPDATE agent_data.sessions SET deleted_at = $1, ended_at = $1, status = 3", deleted)
    teller.at = deleted - timedelta(minutes=1)
    assert await teller.tell(talk("q", "a", "late"), "b", session=S1, new=1)
    gone = await teller.rows("SELECT * FROM agent_data.conversation_history WHERE turn_index > 2 ORDER BY turn_index")
    assert [(row["content"], row["content_hash"], row["hidden"]) for row in gone] == [(None, None, True)] * 2
    ids_gone = {row["message_id"] for row in gone}
    marked = await teller.rows("SELECT * FROM agent_data.suppressions WHERE reason = 'deleted'")
    assert {row["item_id"] for row in marked} == ids_gone
    for table in ("embeddings", "index_items"):
        rows = await teller.rows(f"SELECT item_id FROM agent_data.{table}")
        assert not ids_gone & {row["item_id"] for row in rows}, table
    assert len(await teller.rows("SELECT 1 FROM agent_data.upstream_calls")) == 2, "the call stays captured"
    assert len(await teller.rows("SELECT 1 FROM agent_data.session_heads")) == 4
    assert len(await teller.rows("SELECT 1 FROM agent_data.pgqueuer")) == 1, "nobody learns from it"
    (session,) = await teller.rows("SELECT * FROM agent_data.sessions")
    assert (session["status"], session["ended_at"]) == (3, deleted)

    teller.at = deleted + timedelta(minutes=1)
    await teller.tell(talk("q", "a", "late", "b", "on"), "c", session=S1, new=1)
    (session,) = await teller.rows("SELECT * FROM agent_data.sessions")
    assert (session["status"], session["ended_at"]) == (1, None)
    assert [text for _, _, text in await teller.places(S1)] == ["q", "a", None, None, "on", "c"]


async def test_siblings_share_a_place(teller: Teller) -> None:
    await teller.tell(talk("q"), "a", "b", session=S1)
    question = (await teller.rows("SELECT message_id FROM agent_data.conversation_history WHERE turn_index = 1"))[0]
    again = {"asked_index": 2, "parent_message_id": question["message_id"]}
    await teller.tell(talk("q"), "c", "d", session=S1, new=0, **again)
    await teller.tell(talk("q", "d", "r"), "e", session=S1, new=1)
    assert await teller.places(S1) == [
        (1, 0, "q"), (2, 0, "a"), (2, 1, "b"), (2, 2, "c"), (2, 3, "d"), (3, 0, "r"), (4, 0, "e"),
    ]  # fmt: skip


async def test_a_late_answer_to_the_last_question_moves_the_end(teller: Teller) -> None:
    await teller.tell(talk("q"), session=S1)
    question = (await teller.rows("SELECT message_id FROM agent_data.conversation_history"))[0]
    await teller.tell(talk("q"), "a", session=S1, new=0, asked_index=2, parent_message_id=question["message_id"])
    await teller.tell(talk("q", "a", "r"), "b", session=S1, new=1)
    assert await teller.places(S1) == [(1, 0, "q"), (2, 0, "a"), (3, 0, "r"), (4, 0, "b")]


async def test_vectors_of_a_user_in_the_graph_enter_it_with_the_turn(teller: Teller) -> None:
    await teller.tell(talk("one"), "two", session=S1)
    await teller.admin.execute("UPDATE agent_data.users SET use_hnsw = true WHERE user_id = $1", ANA)
    await teller.tell(talk("one", "two", "three"), "four", session=S1, new=1)
    entered = await teller.rows(
        "SELECT h.content, e.in_hnsw FROM agent_data.embeddings e"
        " JOIN agent_data.conversation_history h ON h.message_id = e.item_id ORDER BY h.message_id"
    )
    assert [tuple(row.values()) for row in entered] == [("one", False), ("two", False), ("three", True), ("four", True)]


async def test_a_new_session_has_its_user_and_its_ways(teller: Teller) -> None:
    await teller.tell(talk("q"), "a", session=S1, session_name="mine")
    assert [row["external_id"] for row in await teller.rows("SELECT external_id FROM agent_data.users")] == ["ana"]
    routes = await teller.rows("SELECT id, target, kind FROM agent_data.routes ORDER BY id = target")
    assert routes == [
        {"id": ids.route_id(TENANT, "mine"), "target": S1, "kind": "session"},
        {"id": S1, "target": S1, "kind": "session"},
    ]


async def test_system_prompts_are_kept_once(teller: Teller) -> None:
    for session in (S1, S2):
        await teller.tell(talk("q"), "a", session=session, system_prompt="Be kind.")
    assert len(await teller.rows("SELECT 1 FROM agent_data.system_prompts")) == 1


async def test_what_is_hidden_is_not_to_be_found(teller: Teller) -> None:
    await teller.tell(talk("secret"), "answer", session=S1, learn=False)
    rows = await teller.rows("SELECT content, hidden FROM agent_data.conversation_history")
    assert {row["hidden"] for row in rows} == {True}
    assert await teller.rows("SELECT 1 FROM agent_data.embeddings") == []


async def test_messages_are_in_the_index_with_their_terms(teller: Teller) -> None:
    await teller.tell(talk("cats"), "dogs", session=S1)
    await teller.tell(talk("secret"), "answer", session=S2, learn=False)
    rows = await teller.rows(
        "SELECT h.content, i.terms, (SELECT count(*) FROM agent_data.index_log g"
        " WHERE g.user_id = i.user_id AND g.item_id = i.item_id) AS changes FROM agent_data.index_items i"
        " JOIN agent_data.conversation_history h ON h.user_id = i.user_id AND h.message_id = i.item_id ORDER BY h.turn_index"
    )
    assert [tuple(row.values()) for row in rows] == [(text, pack(text), 1) for text in ("cats", "dogs")]


async def test_a_very_long_text_is_stored(teller: Teller) -> None:
    text = " ".join(f"word{n}" for n in range(300_000))
    await teller.tell(talk(text), "a", session=S1)
    row = (await teller.rows("SELECT length(content) AS n FROM agent_data.conversation_history WHERE role = 1"))[0]
    assert row["n"] == len(text)


async def test_requests_at_once_with_the_same_parts_do_not_wait_in_a_circle(teller: Teller) -> None:
    parts = [b"%d" % n * 50 for n in range(40)]
    tellers = [Teller(teller.store, teller.recorder, teller.admin, NOW + timedelta(minutes=n)) for n in range(6)]
    async with asyncio.TaskGroup() as group:
        for n, each in enumerate(tellers):
            order = parts[n:] + parts[:n] if n % 2 else parts[::-1]
            group.create_task(
                each.tell(talk(f"q{n}"), "a", session=UUID(int=n), facts={"request": recipe_of(*order)[1]})
            )
    assert len(await teller.rows("SELECT 1 FROM agent_data.message_blobs")) >= 40


async def test_what_is_asked_to_warm_a_connection_writes_nothing(teller: Teller) -> None:
    await teller.store.warm(None, None)
    assert await teller.rows("SELECT 1 FROM agent_data.sessions") == []


# --- a repeated key -------------------------------------------------------------------------------------------------------


async def test_an_idempotent_call_gives_its_parts_back(teller: Teller) -> None:
    _, received = recipe_of(b"S", b"1", lead=1)
    body, sent = recipe_of(b"S", b"1", b"<2>", lead=1)
    given = {"repeat_key": b"k", "request": received, "sent": sent}
    await teller.tell(talk("q"), "a", session=S1, facts=given)
    found = await teller.store.idempotent(TENANT, ANA, b"k")
    assert found is not None
    assert found.body_parts is not None
    prefix, elements, suffix = found.body_parts
    assert b"".join([prefix, *elements, suffix]) == body
    assert (found.session_id, found.answered) == (S1, True)
    assert found.sha256 == sent.sha256
    for tenant, user, key in (
        (TENANT, ANA, b"other"),
        (TENANT, ids.user_id(TENANT, "bob"), b"k"),
        (OTHER_TENANT, ANA, b"k"),
    ):
        assert await teller.store.idempotent(tenant, user, key) is None


async def test_of_several_calls_under_a_key_the_answered_one_counts(teller: Teller) -> None:
    def given(outcome: Outcome, status: int | None = 200) -> dict[str, Any]:
        return {"repeat_key": b"k", "outcome": outcome, "status": status, "request": recipe_of(b"1")[1]}

    for facts, answered in (
        (given(Outcome.FAILED, None), False),
        (given(Outcome.GONE), False),
        (given(Outcome.COMPLETE, 500), False),
        (given(Outcome.COMPLETE), True),
        (given(Outcome.BROKEN), True),
    ):
        await teller.tell(talk("q"), "a", session=S1, facts=facts)
        found = await teller.store.idempotent(TENANT, ANA, b"k")
        assert found is not None
        assert found.answered is answered
    last = await teller.store.idempotent(TENANT, ANA, b"k")
    assert last is not None
    assert last.call_id == teller.calls[3]


async def test_a_key_that_another_process_answered_meanwhile_adds_no_turn(teller: Teller) -> None:
    """The coalescer of a process does not see the calls of others: six at once, each of a new session of its own."""
    given = {"repeat_key": b"k", "request": recipe_of(b"1")[1]}
    async with asyncio.TaskGroup() as group:
        for n in range(6):
            group.create_task(teller.tell(talk("q"), "a", session=UUID(int=n + 1), facts=given))
    calls = await teller.rows("SELECT session_id FROM agent_data.upstream_calls")
    assert (len(calls), len({row["session_id"] for row in calls})) == (6, 1)
    assert len(await teller.places(calls[0]["session_id"])) == 2
    for table, count in (("sessions", 1), ("conversation_history", 2), ("pgqueuer", 1)):
        assert len(await teller.rows(f"SELECT 1 FROM agent_data.{table}")) == count, table


# --- recognising ------------------------------------------------------------------------------------------------------------


async def test_nothing_known_is_none(teller: Teller) -> None:
    found = await teller.recognise(talk("q", "a", "r"))
    assert (found.how, found.known, found.session_id) == ("none", False, None)


async def test_a_transcript_is_found_at_its_last_answer(teller: Teller) -> None:
    await teller.tell(talk("q"), "a", session=S1, facts={"request": recipe_of(b"1")[1]})
    found = await teller.recognise([said("system", "clock"), *talk("q", "a", "r")])
    assert (found.how, found.session_id, found.head_turn_index, found.head_position) == ("chain", S1, 2, 0)
    assert (found.head_open, found.head_message_id == found.tip_message_id) == (True, True)
    assert found.request_count == 1
    await teller.tell(talk("q", "a", "r"), "b", session=S1, new=1)
    earlier = await teller.recognise(talk("q", "a", "something else"))
    assert (earlier.how, earlier.head_open, earlier.tip_turn_index) == ("chain", False, 4)
    longer = await teller.recognise(talk("q", "a", "not this", "nor this", "new"))
    assert (longer.how, longer.head_position) == ("chain", 0)


async def test_a_question_asked_before_is_found(teller: Teller) -> None:
    await teller.tell(talk("q"), "a", session=S1)
    assert (await teller.recognise(talk("q"))).how == "none", "two conversations may both begin so"
    assert (await teller.recognise(talk("q"), retry=True)).how == "asked"
    assert (await teller.recognise(talk("q"), named=S1)).how == "asked"
    await teller.tell(talk("q", "a", "r"), "b", session=S1, new=1)
    found = await teller.recognise(talk("q", "a", "r"))
    assert (found.how, found.asked_turn_index, found.session_id) == ("asked", 3, S1)


async def test_a_retry_reaches_back_an_hour(teller: Teller) -> None:
    await teller.tell(talk("q"), "a", session=S1)
    await teller.admin.execute("UPDATE agent_data.session_heads SET created_at = now() - interval '61 minutes'")
    assert (await teller.recognise(talk("q"), retry=True)).how == "none"
    assert (await teller.recognise(talk("q"), retry=True, named=S1)).how == "asked"


async def test_an_answer_that_was_deleted_is_found_by_its_question(teller: Teller) -> None:
    await teller.tell(talk("q"), "the answer", session=S1)
    async with teller.admin.transaction():
        await teller.admin.execute("SET LOCAL ROLE mneme_eraser")
        await teller.admin.execute("SELECT set_config('mneme.tenant', $1, true)", str(TENANT))
        await teller.admin.execute(
            "UPDATE agent_data.conversation_history SET content = NULL, is_pruned = true WHERE role = 2"
        )
    found = await teller.recognise(talk("q", "the ans", "r"))
    assert (found.how, found.session_id, found.tip_text) == ("rewritten", S1, None)
    assert (await teller.recognise(talk("q", "the answer", "r"))).how == "chain"


async def test_a_leaf_beside_the_tip_is_open_as_well(teller: Teller) -> None:
    await teller.tell(talk("q"), "a", "b", session=S1)
    assert (await teller.recognise(talk("q", "b", "r"))).head_open
    other = (await teller.rows("SELECT message_id FROM agent_data.conversation_history WHERE content = 'b'"))[0]
    await teller.tell(talk("q", "b", "r"), "c", session=S1, new=1, parent_message_id=other["message_id"])
    assert (await teller.recognise(talk("q", "a", "r"))).head_open
    assert not (await teller.recognise(talk("q", "b", "s"))).head_open


async def test_an_answer_that_was_changed_is_found_by_its_question(teller: Teller) -> None:
    await teller.tell(talk("q"), "the answer", session=S1)
    found = await teller.recognise(talk("q", "the ans", "r"))
    assert (found.how, found.session_id, found.tip_text) == ("rewritten", S1, "the answer")
    await teller.tell(talk("q", "the answer", "r"), "b", session=S1, new=1)
    found = await teller.recognise(talk("q", "the answer", "r", "b, but", "s"))
    assert (found.how, found.tip_text, found.head_position) == ("rewritten", "b", 0)
    # Where the conversation has gone on it is an edit.
    assert (await teller.recognise(talk("q", "the ans", "r"))).how == "none"


async def test_a_cut_transcript_is_found_by_its_tail(teller: Teller) -> None:
    transcript = talk("q1")
    await teller.tell(transcript, "a1", session=S1)
    for n in range(2, 5):
        transcript += [said("assistant", f"a{n - 1}"), said("user", f"q{n}")]
        await teller.tell(transcript, f"a{n}", session=S1, new=1)
    for cut in (2, 3, 4):
        found = await teller.recognise([*transcript[cut:], said("assistant", "a4"), said("user", "next")])
        assert (found.how, found.session_id, found.tip_turn_index) == ("tail", S1, 8)
    wrong = [said("user", "another"), said("assistant", "thing"), *talk("q4", "a4", "next")]
    assert (await teller.recognise(wrong)).how == "none", "the last turn alone is not enough where there are two"


async def test_sessions_by_name_and_by_issued_id(teller: Teller) -> None:
    await teller.tell(talk("q"), "a", session=S1, session_name="mine")
    ways: list[dict[str, Any]] = [{"named": S1}, {"issued": S1}, {"issued": S1, "named": S2}]
    for asked in ways:
        found = await teller.recognise(**asked)
        assert (found.how, found.session_id, found.known, found.external_id) == ("named", S1, True, "mine")
    unknown = await teller.recognise(issued=UUID(int=1), named=S2)
    assert (unknown.how, unknown.session_id, unknown.known) == ("named", S2, False)
    # A transcript counts within the named session only.
    assert (await teller.recognise(talk("q", "a", "r"), named=S2)).how == "named"


async def test_an_issued_id_of_another_user(teller: Teller) -> None:
    bob = ids.user_id(TENANT, "bob")
    await teller.tell(talk("q"), "a", session=S1)
    assert (await teller.recognise(user=bob, issued=S1)).how == "foreign"
    nobody = await teller.recognise(user=ids.nobody(TENANT), nobody=True, issued=S1)
    assert (nobody.how, nobody.user_id, nobody.session_id) == ("named", ANA, S1)
    assert (await teller.recognise(tenant=OTHER_TENANT, user=bob, issued=S1)).how == "none"


async def test_another_tenant_recognises_nothing_even_with_the_users_id(teller: Teller) -> None:
    await teller.tell(talk("q"), "a", session=S1)
    for asked in ({"named": S1}, {}, {"retry": True}):
        found = await teller.recognise(talk("q", "a", "r"), tenant=OTHER_TENANT, **asked)
        assert not found.known
        assert (found.tip_message_id, found.system_prompt, found.blocks) == (None, None, ())
    assert await teller.store.session_messages(OTHER_TENANT, ANA, [(S1, 99)], limit=9) == []


@pytest.mark.parametrize(("reason", "stored"), [("deleted", 0), ("forgotten", 0), ("superseded", 1), ("resent", 1)])
async def test_a_block_that_quotes_what_is_gone_by_now_is_not_stored(teller: Teller, reason: str, stored: int) -> None:
    await teller.admin.execute(
        "INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason) VALUES ($1, $2, $3, $4)",
        ANA, TENANT, UUID(int=9), reason,
    )  # fmt: skip
    block = Block(b"c" * 16, b"m" * 16, None, "the block", (UUID(int=8), UUID(int=9)), 12)
    await teller.tell(talk("q"), "a", session=S1, block=block, epoch=0)
    assert (await teller.rows("SELECT count(*) AS n FROM agent_data.context_blocks"))[0]["n"] == stored


async def test_what_comes_with_a_session(teller: Teller) -> None:
    block = Block(b"c" * 16, b"m" * 16, None, "the block", (UUID(int=8), UUID(int=9)), 12)
    await teller.tell(talk("q"), "a", session=S1, system_prompt="Be kind.", block=block, epoch=0)
    await teller.admin.execute("UPDATE agent_data.sessions SET summary_text = 'so far', summary_token_count = 2")
    found = await teller.recognise(talk("q", "a", "r"))
    assert (found.system_prompt, found.system_prompt_tokens) == ("Be kind.", 2)
    assert (found.summary_text, found.summary_token_count) == ("so far", 2)
    (kept,) = found.blocks
    assert (kept.text, kept.chain_hash, kept.item_ids, kept.token_count) == ("the block", b"c" * 16, block.item_ids, 12)
    assert found.gone_items == frozenset()
    await teller.admin.execute(
        "INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason) VALUES ($1, $2, $3, 'superseded')",
        ANA, TENANT, UUID(int=9),
    )  # fmt: skip
    assert (await teller.recognise(talk("q", "a", "r"))).gone_items == {UUID(int=9)}
    # A new epoch has no blocks yet.
    await teller.tell(talk("q", "a", "r"), "b", session=S1, new=1, epoch=1)
    found = await teller.recognise(named=S1)
    assert (found.blocks, found.block_epoch) == ((), 1)


async def test_a_retry_is_told_the_last_question_answered_or_not(teller: Teller) -> None:
    await teller.tell(talk("q"), "a", session=S1)
    found = await teller.recognise(named=S1, retry=True)
    assert (found.tip_question_hash, found.tip_question_index) == (hash_of(said("user", "q")), 1)
    await teller.tell(talk("r"), session=S1)
    found = await teller.recognise(named=S1, retry=True)
    assert (found.tip_question_hash, found.tip_question_index) == (hash_of(said("user", "r")), 3)
    assert (await teller.recognise(named=S1)).tip_question_id is None


async def test_a_named_session_can_be_built_on(teller: Teller) -> None:
    _, made = recipe_of(b"1", b"2")
    await teller.tell(talk("q"), "a", session=S1, facts={"request": made})
    assert made.resume is not None
    found = await teller.recognise(named=S1)
    assert (found.sent_chain, found.sent_count) == (made.resume.chain, 2)


async def test_the_line_of_a_branch(teller: Teller) -> None:
    await teller.tell(talk("q"), "a", session=S1)
    await teller.tell(talk("x"), "y", session=S2, parent_session_id=S1, branch_turn_index=2)
    await teller.tell(talk("z"), "w", session=S3, parent_session_id=S2, branch_turn_index=1)
    found = await teller.recognise(named=S3)
    assert found.ancestors == ((S2, 1), (S1, 1)), "what the one shares the other has no more of"
    rows = await teller.store.session_messages(TENANT, ANA, [(S3, 99), (S2, 4), (S1, 2)], limit=9)
    assert [(each.turn_index, each.content) for each in rows] == [(3, "w"), (2, "z"), (3, "x"), (1, "q")]
    assert len(await teller.store.session_messages(TENANT, ANA, [(S3, 99), (S2, 99)], limit=3)) == 3


async def test_what_is_hidden_is_read_and_marked(teller: Teller) -> None:
    await teller.tell(talk("q"), "a", session=S1)
    rows = await teller.store.session_messages(TENANT, ANA, [(S1, 99)], limit=9)
    for message, reason in zip(rows, ("forgotten", "superseded"), strict=True):
        await teller.admin.execute(
            "INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason) VALUES ($1, $2, $3, $4)",
            ANA, TENANT, message.message_id, reason,
        )  # fmt: skip
    rows = await teller.store.session_messages(TENANT, ANA, [(S1, 99)], limit=9)
    assert [(each.content, each.hidden) for each in rows] == [("a", True), ("q", False)]
