"""What was paged then, shown again: byte for byte, whatever became of its objects since; and what is lost is said."""

from __future__ import annotations

from app.context.transcript import Transcript
from app.features.paging.body import HiddenLegs, keys_of
from app.features.paging.tools import PhantomCall
from app.gateway.addon import PartAgain
from app.gateway.prepare import unwoven
from tests.support.paging import MODEL, SESSION, TENANT, USER, Asked, Desk, Message
from tests.unit.paging.made import PROSE, called, said, user

QUERY = PhantomCall("q1", "memory_query", '{"question": "Which?"}')
MESSAGE = {"role": "assistant", "content": None, "tool_calls": [QUERY.as_sent()]}


def session(count: int) -> list[Message]:
    messages = [user("Begin."), said("I begin."), user("Go on.")]
    for i in range(count):
        text = f"Report {i} of the harbour.\n\n" + "\n".join(f"Basin {i}.{n}: {PROSE}" for n in range(20))
        messages += called("Fetch", {"url": f"https://harbour.example/{i}"}, text, f"c{i}")
    return messages


async def again(desk: Desk, asked: Asked) -> PartAgain:
    return await desk.pager.again(TENANT, USER, SESSION, asked.chat, MODEL, asked.paging.explained)


async def test_every_request_of_a_session_is_shown_again_as_it_was() -> None:
    desk = Desk(budget=10_000)
    first = session(0)
    (key,) = (key for key, at in keys_of(Transcript.of(first)).items() if at == 1)
    desk.shelf.hidden[key] = HiddenLegs((MESSAGE, {"role": "tool", "tool_call_id": "q1", "content": "told"})).as_json()
    asked = []
    for i in range(14):
        asked.append(await desk.ask(session(i)))
        if i == 9:
            desk.shelf.restored = frozenset(each.id for each in asked[-1].paging.objects[:1])
    assert any(each.paging.record.transitions for each in asked)
    assert any(each.paging.explained["exchanges"] for each in asked)
    for each in asked:
        found = await again(desk, each)
        assert unwoven(each.chat, None, found.insertions) == each.body
        assert list(found.costs) == list(each.paging.costs or ())
        assert list(found.schemas) == list(each.paging.schemas)
        assert found.notes == []


async def test_calls_that_were_answered_since_were_not_answered_then() -> None:
    desk = Desk()
    answer = {"role": "assistant", "content": None, "tool_calls": [PhantomCall("c9", "Read", "{}").as_sent()]}
    messages = [user("q"), answer, user("Not yet.")]
    (key,) = keys_of(Transcript.of(messages))
    pending = HiddenLegs(beside=(QUERY,))
    desk.shelf.hidden[key] = pending.as_json()
    asked = await desk.ask(messages)
    desk.shelf.hidden[key] = pending.answered(["told"]).as_json()
    assert unwoven(asked.chat, None, (await again(desk, asked)).insertions) == asked.body


async def test_what_is_not_stored_any_more_is_said() -> None:
    desk = Desk(budget=10_000)
    asked = await desk.ask(session(8))
    lost = next(each.id for each in asked.paging.objects if each.fidelity > 0)
    del desk.shelf.objects[lost]
    found = await again(desk, asked)
    assert found.notes == ["Of the objects that were shown shorter 1 are not stored any more."]
    assert unwoven(asked.chat, None, found.insertions) != asked.body
