"""Sessions on the page, over real Postgres: the list, a conversation with all that happened to it, objects, cards, actions."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest
from fastapi import APIRouter

from app.features.paging.store import PagingStore
from app.features.paging.values import Fidelity, Zone
from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries
from tests.support.paged import fault, made, moved, record
from tests.support.rows import insert_row, read_messages, set_session, update_rows
from tests.support.talk_pages import Form, Shown, Visitor, visiting
from tests.support.wired_api import WiredApi, build_api, make_space

HOSTILE = '"><script>alert(1)</script>\u202e' + "long" * 500
ANA = ids.user_id(ids.LOCAL_TENANT, "ana")


@pytest.fixture
async def wired(pool: Pool, admin: asyncpg.Connection[Any], database: str) -> WiredApi:
    return await build_api(pool, await make_space(admin), dsn=database)


@pytest.fixture
async def api(wired: WiredApi) -> AsyncIterator[httpx.AsyncClient]:
    async with wired.client() as client:
        yield client


@pytest.fixture
async def visitor(wired: WiredApi) -> AsyncIterator[Visitor]:
    async with visiting(wired) as visitor:
        yield visitor


async def say(api: httpx.AsyncClient, session: str, *messages: dict[str, Any], user: str = "ana") -> dict[str, Any]:
    answer = await api.post(f"/api/v1/sessions/{session}/messages", json={"user": user, "messages": list(messages)})
    assert answer.status_code == 201, answer.text
    added: dict[str, Any] = answer.json()
    return added


def asked(text: str, answer: str, **given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"role": "user", "content": text}, {"role": "assistant", "content": answer} | given


async def test_the_list_is_filtered_searched_and_paged(
    visitor: Visitor, api: httpx.AsyncClient, admin: asyncpg.Connection[Any], wired: WiredApi
) -> None:
    empty = await visitor.look("sessions")
    assert "No conversations yet" in empty.text
    assert "curl http://mneme/v1/chat/completions" in empty.text
    for n in range(52):
        wired.clock.move(timedelta(seconds=1))
        made = await api.post("/api/v1/sessions", json={"user": f"user {n % 2}", "id": f"talk-{n:02}"})
        assert made.status_code == 201
    await api.post("/api/v1/sessions/talk-51/close", params={"user": "user 1"})
    await update_rows(admin, "sessions", {"external_id": "talk-07"}, summary_text="A trip to Lisbon was planned.")
    first = await visitor.look("sessions")
    assert [f"talk-{n:02}" in first.links for n in (51, 2, 1)] == [True, True, False]
    rest = await visitor.look(first.links["Next page"])
    assert "talk-01" in rest.links
    assert "talk-02" not in rest.links
    of_one = await visitor.look("sessions?user=user+1&status=closed")
    assert "talk-51" in of_one.links
    assert "talk-49" not in of_one.links
    found = await visitor.look("sessions?user=user+1&query=Lisbon")
    assert "talk-07" in found.links
    assert "A trip to Lisbon was planned." in found.text
    assert "No session was about that" in (await visitor.look("sessions?user=user+0&query=Lisbon")).text
    assert "No session is like that" in (await visitor.look("sessions?user=nobody+here")).text
    assert (await visitor.look("sessions?status=odd", status=400)).tags.count("h1") == 1


async def test_a_conversation_shows_calls_of_tools_pictures_and_cards(visitor: Visitor, api: httpx.AsyncClient) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "find_items", "arguments": '{"q":"lamps"}'}}
    picture = {"type": "image_url", "image_url": {"url": "https://pictures.example/lamp.png"}}
    added = await say(
        api,
        "shop",
        {"role": "user", "content": [{"type": "text", "text": "Like this one?"}, picture]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": '{"items":["Halo 90"]}', "tool_call_id": "c1"},
        {"role": "assistant", "content": "Halo 90.", "cards": [{"type": "product_card", "data": {"title": "Halo 90"}}]},
    )
    page = await visitor.look("sessions/shop")
    for said in (
        "Like this one?",
        "https://pictures.example/lamp.png",
        "Calls find_items",
        "Result of find_items",
        "Halo 90.",
    ):
        assert said in page.text
    assert "product_card card 1" in page.text
    assert "img" not in page.html.split("<main")[1], "a picture is named, not loaded"
    assert [f"m-{each['id']}" in page.ids for each in added["messages"]] == [True] * 4
    cards = await visitor.look("sessions/shop/cards")
    assert cards.links["question 1, card 1"].endswith(f"#m-{added['messages'][3]['id']}")
    one = await visitor.look("sessions/shop/cards?query=the+first+card+from+the+first+question")
    assert "Understood: card 1 of question 1." in one.text
    assert (
        "Question 1 showed 1 card"
        in (await visitor.look("sessions/shop/cards?query=card+4+from+question+1", status=400)).text
    )
    assert "No card of this type" in (await visitor.look("sessions/shop/cards?type=chart")).text


async def test_a_long_conversation_begins_with_its_end(visitor: Visitor, api: httpx.AsyncClient) -> None:
    added = await say(api, "long", *({"role": "user", "content": f"line {n:03}"} for n in range(1, 121)))

    def shown(page: Shown) -> tuple[int, int]:
        numbers = [int(each) for each in re.findall(r"line (\d{3})", page.text)]
        assert numbers == sorted(numbers)
        return numbers[0], numbers[-1]

    end = await visitor.look("sessions/long")
    assert shown(end) == (71, 120)
    middle = await visitor.look(end.links["Earlier messages"])
    assert shown(middle) == (21, 70)
    first = await visitor.look(middle.links["Earlier messages"])
    assert shown(first) == (1, 20)
    assert "Earlier messages" not in first.links
    assert shown(await visitor.look(first.links["Later messages"])) == (21, 70)
    assert "deleted here" not in first.text + middle.text + end.text
    around = await visitor.look("sessions/long?turn=40")
    assert shown(around) == (15, 64)
    assert f"m-{added['messages'][39]['id']}" in around.ids
    assert shown(await visitor.look("sessions/long?turn=110")) == (71, 120)


async def test_a_deleted_message_leaves_a_gap(visitor: Visitor, api: httpx.AsyncClient) -> None:
    await say(api, "talk", *asked("My PIN is secret", "Noted."), *asked("And now?", "Nothing."))
    page = await visitor.look("sessions/talk")
    form = page.form("/delete")
    gone = await visitor.press(form, "Delete this message")
    assert "The message is deleted; no memory came from it alone." in gone.text
    assert "1 message deleted here" in gone.text
    assert "My PIN is secret" not in gone.text
    assert "Noted." in gone.text
    last = await visitor.press(
        [each for each in gone.forms if each.action.endswith("/delete")][-1], "Delete this message"
    )
    assert last.text.count("1 message deleted here") == 2, "at the end, too"
    refused = await visitor.press(form, "Delete this message", csrf="another", status=403)
    assert "too old" in refused.text
    assert "There is no such message" in (await visitor.press(form, "Delete this message", status=404)).text


async def test_a_session_is_deleted_and_in_no_list_until_it_goes_on(
    visitor: Visitor, api: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    for name in ("talk", "other"):
        await say(api, name, *asked("My PIN is secret", "Noted."))
    page = await visitor.look("sessions/talk")
    form = _with(page, "Delete this session")
    gone = await visitor.press(form, "Delete this session")
    assert "The session is deleted, with 2 messages; no memory came from it alone." in gone.text
    assert ("talk" in gone.links, "other" in gone.links) == (False, True)
    assert "talk" not in (await visitor.look("sessions")).links
    left = await visitor.look("sessions/talk")
    assert "2 messages deleted here" in left.text
    assert "My PIN is secret" not in left.text
    again = await visitor.press(_with(left, "Delete this session"), "Delete this session")
    assert "The session is deleted, with 0 messages" in again.text
    assert "too old" in (await visitor.press(form, "Delete this session", csrf="another", status=403)).text
    await say(api, "talk", *asked("Hello again", "Hello."))
    assert "talk" in (await visitor.look("sessions")).links


async def test_what_a_session_knows_of_itself(
    visitor: Visitor, api: httpx.AsyncClient, admin: asyncpg.Connection[Any], wired: WiredApi
) -> None:
    added = await say(api, "talk", *asked("A room, please.", "Shall I book the small room?"))
    page = await visitor.look("sessions/talk")
    assert "None: one is written when" in page.text
    assert page.links["Shall I book the small room?"] == f"#m-{added['messages'][1]['id']}"
    await update_rows(admin, "sessions", {}, summary_text="A room was wanted.", metadata='{"till": 4}')
    now = wired.clock.now()
    await insert_row(
        admin, "compactions", user_id=ANA, tenant_id=ids.LOCAL_TENANT, session_id=UUID(added["session_id"]),
        summary_id=ids.uuid7(now), at=now, first_turn=3, last_turn=9, messages=7, removed_tokens=4000, summary_tokens=500,
        ratio=8, method="extractive",
    )  # fmt: skip
    page = await visitor.look("sessions/talk")
    for said in (
        "A room was wanted.",
        "1 compaction, 8.0 tokens for each that stayed",
        "3–9",
        "4,000 → 500",
        '"till": 4',
    ):
        assert said in page.text


async def test_siblings_and_branches(
    visitor: Visitor, api: httpx.AsyncClient, admin: asyncpg.Connection[Any], wired: WiredApi
) -> None:
    trunk = await say(api, "trunk", *asked("First?", "One."), *asked("Second?", "Two."))
    made = (await api.post("/api/v1/sessions", json={"user": "ana", "id": "branch"})).json()
    parent = UUID(trunk["session_id"])
    await set_session(admin, UUID(made["id"]), parent_session_id=parent, branch_turn_index=2, turn_count=2)
    await say(api, "branch", *asked("Otherwise?", "Three."))
    (row,) = await read_messages(admin, message_id=UUID(trunk["messages"][1]["id"]))
    again = {"message_id": ids.uuid7(wired.clock.now()), "sibling": 1, "content": "One again."}
    await insert_row(admin, "conversation_history", **(row | again))
    page = await visitor.look("sessions/trunk")
    assert "1 other message in the same place: answered again" in page.text
    assert "One." in page.text
    assert "One again." in page.text
    assert page.links["branch"] == f"/ui/sessions/{made['id']}"
    assert "A branch leaves here: branch" in page.text
    child = await visitor.look("sessions/branch")
    assert "Shared with trunk" in child.text
    assert "Here this branch leaves trunk" in child.text
    assert "Second?" not in child.text
    assert "deleted here" not in child.text
    assert (await visitor.look("sessions")).text.count("branch branch") == 1


async def test_what_can_be_done_with_a_session(visitor: Visitor, api: httpx.AsyncClient, wired: WiredApi) -> None:
    await say(api, "talk", *asked("I am vegetarian.", "Noted."))
    page = await visitor.look("sessions/talk")
    compacted = await visitor.press(_with(page, "Compact now"), "Compact now", target_tokens="100")
    assert "The session waits for its compaction." in compacted.text
    assert (
        "is a number"
        in (await visitor.press(_with(page, "Compact now"), "Compact now", target_tokens="x", status=400)).text
    )
    drawn = await visitor.press(_with(page, "Draw together what was said"), "Draw together what was said")
    assert "waits to be drawn together" in drawn.text
    ended = await visitor.press(_with(page, "End it"), "End it")
    assert "The session is ended" in ended.text
    assert (await api.get("/api/v1/sessions/talk")).json()["status"] == "closed"
    objects = await visitor.look("sessions/talk/objects")
    assert "This session is not paged" in objects.text
    on = await visitor.press(_with(objects, "Turn it on"), "Turn it on")
    assert "Paging of this session: on" in on.text
    assert (await api.get("/api/v1/sessions/talk")).json()["config"] == {"paging": "on"}
    back = await visitor.press(_with(on, "As key and server say"), "As key and server say")
    assert "as key and server say" in back.text
    assert "There is no such action" in (await visitor.press(_with(page, "End it"), do="explode", status=400)).text
    assert (await visitor.look("sessions/none", status=404)).tags.count("h1") == 1


def _with(page: Shown, button: str) -> Form:
    return next(each for each in page.forms if button in each.buttons)


async def test_objects_are_read_asked_and_steered(
    visitor: Visitor, api: httpx.AsyncClient, wired: WiredApi, pool: Pool
) -> None:
    session = (await api.post("/api/v1/sessions", json={"user": "ana", "id": "agent"})).json()["id"]
    store = PagingStore(pool, Queries.load(), wired.clock)
    auth = made(UUID(session), "auth", "import jwt\n\n\ndef check(token):\n    return Response(401, 'TOKEN_EXPIRED')\n")
    await store.keep(
        ids.LOCAL_TENANT,
        ANA,
        ids.uuid7(wired.clock.now()),
        record(UUID(session), auth, zone=Zone.WARNING, shown_tokens=7_800),
    )
    changes = record(
        UUID(session), turn=4, transitions=(moved(auth, Fidelity.STUB, turn=4),), faults=(fault(7, auth),)
    )  # fmt: skip
    await store.keep(ids.LOCAL_TENANT, ANA, ids.uuid7(wired.clock.now() + timedelta(seconds=1)), changes)
    page = await visitor.look("sessions/agent/objects")
    for said in (
        "78 % of 10,000 tokens as sent; zone warning",
        "warning from 75 %",
        "src/auth.py",
        "One line",
        "where?",
        "In full → one line",
    ):
        assert said in page.text
    assert "svg" in page.tags
    at = f"sessions/{session}/objects"
    pinned = await visitor.press(_with(page, "Pin"), "Pin")
    assert "Pinned: shown shorter only when all others are." in pinned.text
    assert "Unpin" in pinned.text
    assert "src/auth.py" in (await visitor.look(f"{at}?pinned=true&fidelity=3&type=file_context")).text
    assert "No object" in (await visitor.look(f"{at}?pinned=false")).text
    one = await visitor.look(f"{at}/{auth.id}")
    assert "TOKEN_EXPIRED" in one.text
    assert "shown now" in one.text
    answered = await visitor.press(_with(one, "Ask"), "Ask", question="What does an expired token return?")
    assert "Answered; the answer stands below." in answered.text
    assert "Asked: What does an expired token return?" in answered.text
    released = await visitor.press(_with(one, "Release"), "Release")
    assert "Released" in released.text
    restored = await visitor.press(_with(one, "Restore"), "Restore")
    assert "next: in full" in restored.text
    assert "There is no such object" in (await visitor.look(f"{at}/{session}", status=404)).text


async def test_hostile_words_stay_words(visitor: Visitor, api: httpx.AsyncClient) -> None:
    call = {"id": "x", "type": "function", "function": {"name": HOSTILE[:200], "arguments": HOSTILE}}
    card = {"type": HOSTILE[:90], "data": {HOSTILE: HOSTILE}}
    await say(
        api, "a%2F%22%3Cb%3E%20%F0%9F%98%80",
        {"role": "user", "content": HOSTILE, "name": "n"},
        {"role": "assistant", "content": HOSTILE, "tool_calls": [call], "cards": [card]},
        {"role": "tool", "content": HOSTILE, "tool_call_id": "x"},
        user='<b>"ana"/é',
    )  # fmt: skip
    listed = await visitor.look("sessions")
    href = listed.links['a/"<b> 😀']
    for path in (href, f"{href}/cards", f"{href}/objects"):
        page = await visitor.look(path)
        assert "<script>alert" not in page.html
        assert "<b>" not in page.html
    assert (await visitor.look(href)).text.count("<script>alert(1)</script>") >= 3


async def test_places_beyond_all_numbers_are_none(visitor: Visitor, api: httpx.AsyncClient) -> None:
    await say(api, "one", *asked("Tea or coffee?", "Tea."))
    for name in ("before", "turn"):
        for place in ("9" * 9, "9" * 5000, "-1", "²"):
            assert (await visitor.look(f"sessions/one?user=ana&{name}={place}")).text
    page = await visitor.look("sessions/one?user=ana")
    form = next(each for each in page.forms if "target_tokens" in each.fields)
    await visitor.press(form, next(iter(form.buttons), None), status=400, target_tokens="9" * 5000)


async def test_a_session_where_nothing_consolidates(
    pool: Pool, admin: asyncpg.Connection[Any], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.wired_api._routers", {})
    monkeypatch.setattr("tests.support.wired_api.consolidation_router", lambda *_: APIRouter())
    wired = await build_api(pool, await make_space(admin), dsn=database)
    async with wired.client() as api, visiting(wired) as visitor:
        await say(api, "talk", *asked("Hello.", "Hello to you."))
        shown = await visitor.look("sessions/talk?user=ana")
    assert "Hello to you." in shown.text
    assert "Close only" in shown.text
    for missing in ("<h2>Summary</h2>", 'value="end"', 'value="compact"', 'value="consolidate"'):
        assert missing not in shown.html
