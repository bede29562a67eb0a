"""UI cards over real Postgres: added, listed, found, shown in the history, and gone with what they belong to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import orjson
import pytest

from app.api.common import MAX_CARD_BYTES, MAX_CARDS
from app.features.cards.keeper import TOOL
from app.store import ids
from app.store.sessions import NewSession, Sessions
from app.store.tenancy import UserRef
from tests.support.cases import cases
from tests.support.rows import set_session
from tests.support.wired_api import WiredApi, all_pages, error_of

AT = "/api/v1/sessions/shop"
SHOWN: list[list[dict[str, Any]]] = [
    [
        {"type": "product_card", "data": {"sku": "A1"}},
        {"type": "comparison_table", "data": {"rows": [[1, 2], [3, 4]]}},
    ],
    [{"type": "chart", "data": {"points": [1, 2.5]}}],
    [],
]


async def turn(client: httpx.AsyncClient, n: int, cards: list[dict[str, Any]], at: str = AT) -> dict[str, Any]:
    body = {"user": "ana", "user_message": f"Question {n}", "assistant_message": f"Answer {n}", "cards": cards}
    answer = await client.post(f"{at}/turns", json=body)
    assert answer.status_code == 201, answer.text
    added: dict[str, Any] = answer.json()
    return added


@pytest.fixture
async def shop(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """Three questions: with two cards, with one, with none."""
    for n, cards in enumerate(SHOWN, 1):
        await turn(client, n, cards)
    return client


async def listed(client: httpx.AsyncClient, at: str = AT, **query: Any) -> list[tuple[int, int, int, str]]:
    rows = await all_pages(client, f"{at}/cards", "cards", limit=1, **query)
    return [(each["turn_index"], each["question"], each["display_order"], each["type"]) for each in rows]


async def find(client: httpx.AsyncClient, at: str = AT, **query: Any) -> httpx.Response:
    return await client.get(f"{at}/cards/find", params=query)


# --- adding -----------------------------------------------------------------------------------------------------------


async def test_a_turn_is_a_question_an_answer_and_its_cards(client: httpx.AsyncClient) -> None:
    added = await turn(client, 1, SHOWN[0])
    assert (added["created"], [each["turn_index"] for each in added["messages"]]) == (True, [1, 2])
    question, answer = (await client.get(f"{AT}/history")).json()["messages"]
    assert (question["role"], question["content"], question["cards"]) == ("user", "Question 1", [])
    assert (answer["role"], answer["content"]) == ("assistant", "Answer 1")
    first, second = answer["cards"]
    assert (first["type"], first["data"], first["display_order"]) == ("product_card", {"sku": "A1"}, 1)
    assert (second["type"], second["data"], second["display_order"]) == (
        "comparison_table",
        {"rows": [[1, 2], [3, 4]]},
        2,
    )
    assert first["message_id"] == answer["id"]
    assert (first["source"], first["tool_call_id"], first["question"], first["token_count"]) == ("api", None, 1, 1)


async def test_messages_are_added_with_their_cards(client: httpx.AsyncClient) -> None:
    """Seed 003, append_message(session_id, role, content, ui_cards)."""
    messages = [
        {"role": "system", "content": "Sell."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello", "cards": [SHOWN[0][0] | {"display_order": 5}, SHOWN[1][0]]},
        {"role": "user", "content": "More"},
        {"role": "assistant", "content": "There", "cards": SHOWN[1]},
    ]
    answer = await client.post(f"{AT}/messages", json={"user": "ana", "messages": messages})
    assert answer.status_code == 201, answer.text
    assert await listed(client) == [(3, 1, 5, "product_card"), (3, 1, 6, "chart"), (5, 2, 1, "chart")]


TWO_IN_ONE_PLACE = [SHOWN[0][0] | {"display_order": 1}, SHOWN[1][0] | {"display_order": 1}]


@cases(
    "wrong",
    [
        [{"role": "user", "content": "Hi", "cards": SHOWN[0]}],
        [{"role": "assistant", "content": "Hi", "cards": TWO_IN_ONE_PLACE}],
        [{"role": "assistant", "content": "Hi", "cards": [{"type": "", "data": {}}]}],
        [{"role": "assistant", "content": "Hi", "cards": [{"type": "t" * 101, "data": {}}]}],
        [{"role": "assistant", "content": "Hi", "cards": [{"type": "t", "data": [1]}]}],
        [{"role": "assistant", "content": "Hi", "cards": [{"type": "t", "data": {"x": "y" * MAX_CARD_BYTES}}]}],
        [{"role": "assistant", "content": "Hi", "cards": [{"type": "t", "data": {}}] * (MAX_CARDS + 1)}],
        [{"role": "assistant", "content": "Hi", "cards": [{"type": "t", "data": {}, "display_order": 0}]}],
        [{"role": "assistant", "content": "Hi", "cards": [{"type": "t", "data": {}, "turn": 1}]}],
    ],
)  # fmt: skip
async def test_wrong_cards_leave_no_message(client: httpx.AsyncClient, wrong: list[dict[str, Any]]) -> None:
    answer = await client.post(f"{AT}/messages", json={"user": "ana", "messages": wrong})
    assert answer.status_code in (400, 409), answer.text
    assert error_of(answer)["message"]
    assert (await client.get(AT)).status_code == 404


async def test_a_card_goes_to_the_last_answer_unless_a_turn_is_named(shop: httpx.AsyncClient) -> None:
    last = await shop.post(f"{AT}/cards", json={"type": "map", "data": {"at": "Porto"}})
    assert (last.status_code, last.json()["cards"][0]["turn_index"]) == (201, 6)
    named = await shop.post(f"{AT}/cards", json=[{"type": "map", "data": {}, "turn": 4}, {"type": "form", "data": {}}])
    assert named.status_code == 201
    assert [(each["turn_index"], each["display_order"]) for each in named.json()["cards"]] == [(4, 2), (6, 2)]


async def test_the_same_card_again_changes_nothing_and_another_is_refused(shop: httpx.AsyncClient) -> None:
    card = {"type": "map", "data": {"at": 1}, "turn": 4, "display_order": 7}
    first = await shop.post(f"{AT}/cards", json=card)
    again = await shop.post(f"{AT}/cards", json=card)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["cards"] == [first.json()["cards"][0] | {"created": False}]
    for other in ({"data": {"at": 2}}, {"type": "chart"}):
        before = await listed(shop)
        refused = await shop.post(f"{AT}/cards", json=[{"type": "new", "data": {}}, card | other])
        assert refused.status_code == 409
        assert error_of(refused)["message"] == "Turn 4 shows another card at place 7."
        assert await listed(shop) == before, "all or none"


@pytest.mark.parametrize(
    ("turn_index", "message"),
    [
        (3, "Turn 3 is no answer of this session: cards are shown with answers."),
        (99, "Turn 99 is no answer of this session: cards are shown with answers."),
    ],
)
async def test_a_turn_that_is_no_answer_shows_no_cards(shop: httpx.AsyncClient, turn_index: int, message: str) -> None:
    answer = await shop.post(f"{AT}/cards", json={"type": "map", "data": {}, "turn": turn_index})
    assert (answer.status_code, error_of(answer)["message"]) == (404, message)


async def test_a_session_without_an_answer_shows_no_cards(client: httpx.AsyncClient) -> None:
    card = {"type": "map", "data": {}}
    assert (await client.post(f"{AT}/cards", json=card)).status_code == 404
    await client.post("/api/v1/sessions", json={"user": "ana", "id": "shop"})
    for _ in range(2):
        answer = await client.post(f"{AT}/cards", json=card)
        assert answer.status_code == 404
        assert "Nothing was answered" in error_of(answer)["message"]
        assert await listed(client) == []
        assert error_of(await find(client, query="the last card"))["code"] == "no_card"
        await client.post(f"{AT}/messages", json={"user": "ana", "messages": [{"role": "user", "content": "Hi"}]})


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_cards_are_listed_by_turn_place_question_and_type(shop: httpx.AsyncClient) -> None:
    everything = [(2, 1, 1, "product_card"), (2, 1, 2, "comparison_table"), (4, 2, 1, "chart")]
    assert await listed(shop) == everything
    assert await listed(shop, turn=2) == everything[:2]
    assert await listed(shop, turn=2, order=2) == everything[1:2], "get_ui_card_at_turn(session_id, turn, card_order)"
    assert await listed(shop, question=2) == everything[2:]
    assert await listed(shop, type="chart") == everything[2:]
    assert await listed(shop, type="nothing") == []


async def test_the_last_messages_come_with_their_cards(shop: httpx.AsyncClient) -> None:
    """Seed 003, get_session_history(session_id, last_n)."""
    whole = (await shop.get(f"{AT}/history")).json()
    assert [len(each["cards"]) for each in whole["messages"]] == [0, 2, 0, 1, 0, 0]
    for at in (f"{AT}/history", "/api/history/shop"):
        last = (await shop.get(at, params={"last": 3})).json()
        assert last == {"messages": whole["messages"][3:], "next": None}
    assert (await shop.get(f"{AT}/history", params={"last": 100})).json() == whole
    page = (await shop.get(f"{AT}/history", params={"limit": 2})).json()
    assert page["messages"] == whole["messages"][:2]
    wrong = await shop.get(f"{AT}/history", params={"last": 3, "cursor": page["next"]})
    assert wrong.status_code == 400


async def test_cards_of_all_sessions_are_found_by_what_they_hold(shop: httpx.AsyncClient, api: WiredApi) -> None:
    api.clock.move(timedelta(seconds=1))
    await turn(shop, 1, [{"type": "product_card", "data": {"sku": "A1", "price": 3}}], "/api/v1/sessions/other")
    found = await all_pages(shop, "/api/v1/cards", "cards", limit=1, user="ana", data='{"sku": "A1"}')
    assert [each["data"] for each in found] == [{"sku": "A1", "price": 3}, {"sku": "A1"}]
    assert len(await all_pages(shop, "/api/v1/cards", "cards", user="ana")) == 4
    assert [each["type"] for each in await all_pages(shop, "/api/v1/cards", "cards", user="ana", type="chart")] == [
        "chart"
    ]
    assert await all_pages(shop, "/api/v1/cards", "cards", user="ben", data='{"sku": "A1"}') == []
    for wrong in ("[1]", "no json", "1"):
        assert (await shop.get("/api/v1/cards", params={"data": wrong})).status_code == 400


# --- finding ----------------------------------------------------------------------------------------------------------


@cases(
    ("asked", "types", "understood"),
    [
        ({"query": "Show me the second card from the first question"}, ["comparison_table"], (2, None, 1, None)),
        # Seed 003: MAX(turn) − 2, which is the first of three.
        ({"query": "the second card from two questions ago"}, ["comparison_table"], (2, None, 1, 2)),
        ({"query": "the last chart"}, ["chart"], (-1, "chart", 2, None)),
        ({"query": "all cards from question 1"}, ["product_card", "comparison_table"], (None, None, 1, None)),
        ({"questions_ago": 2, "order": 2}, ["comparison_table"], (2, None, 1, 2)),
        ({"question": 1, "type": "product_card"}, ["product_card"], (None, "product", 1, None)),
        ({"question": -1}, ["chart"], (None, None, 2, None)),
    ],
)
async def test_what_is_meant(
    shop: httpx.AsyncClient, asked: dict[str, Any], types: list[str], understood: tuple[Any, ...]
) -> None:
    answer = await find(shop, **asked)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert [each["type"] for each in found["cards"]] == types
    assert tuple(found["understood"][name] for name in ("order", "type", "question", "questions_ago")) == understood


@cases(
    ("asked", "status", "message"),
    [
        ({"query": "the second card from question 2"}, 404, "Question 2 showed 1 card."),
        ({"questions_ago": 0}, 404, "Question 3 showed no card."),
        ({"query": "What is love?"}, 400, "does not say which card"),
        ({}, 400, "Say which card"),
        ({"query": "the last card", "order": 1}, 400, "not both"),
        ({"question": 1, "questions_ago": 1}, 400, "not both"),
        ({"order": 0}, 400, "counted from 1"),
        ({"query": "x" * 301}, 400, "300"),
    ],
)
async def test_what_cannot_be_found_is_said(
    shop: httpx.AsyncClient, asked: dict[str, Any], status: int, message: str
) -> None:
    answer = await find(shop, **asked)
    assert answer.status_code == status
    assert message in error_of(answer)["message"]


async def test_a_branch_has_the_cards_and_questions_that_it_shares(
    shop: httpx.AsyncClient, api: WiredApi, admin: asyncpg.Connection[Any]
) -> None:
    tenant, user = ids.LOCAL_TENANT, ids.user_id(ids.LOCAL_TENANT, "ana")
    sessions: Sessions = api.sessions
    ref, _ = await sessions.create(tenant, UserRef(user, "ana"), NewSession(external="branch"))
    parent = UUID((await shop.get(AT)).json()["id"])
    # As a transcript that leaves the session after the answer to the second question.
    await set_session(admin, ref.session_id, parent_session_id=parent, branch_turn_index=4, turn_count=4)
    at = "/api/v1/sessions/branch"
    await turn(shop, 3, [{"type": "map", "data": {}}], at)
    assert await listed(shop, at) == [
        (2, 1, 1, "product_card"), (2, 1, 2, "comparison_table"), (4, 2, 1, "chart"), (6, 3, 1, "map"),
    ]  # fmt: skip
    assert [each["type"] for each in (await find(shop, at, query="the first card from two questions ago")).json()["cards"]] == [
        "product_card"
    ]  # fmt: skip
    history = (await shop.get(f"{at}/history")).json()["messages"]
    assert [[card["type"] for card in each["cards"]] for each in history][1::2] == [
        ["product_card", "comparison_table"], ["chart"], ["map"],
    ]  # fmt: skip
    assert await listed(shop) == [(2, 1, 1, "product_card"), (2, 1, 2, "comparison_table"), (4, 2, 1, "chart")]
    # A card added to what is shared is shown in both.
    await shop.post(f"{at}/cards", json={"type": "form", "data": {}, "turn": 4})
    assert (4, 2, 2, "form") in await listed(shop)


# --- a model's tool ---------------------------------------------------------------------------------------------------


async def called(client: httpx.AsyncClient, arguments: str) -> dict[str, Any]:
    answer = await client.post(f"{AT}/cards/call", json={"arguments": arguments, "tool_call_id": "call_1"})
    assert answer.status_code == 200, answer.text
    message = answer.json()
    assert (message["role"], message["tool_call_id"]) == ("tool", "call_1")
    content: dict[str, Any] = orjson.loads(message["content"])
    return content


async def test_a_model_is_given_a_tool_and_its_answer(shop: httpx.AsyncClient) -> None:
    assert (await shop.get("/api/v1/cards/tool")).json() == TOOL
    found = await called(shop, '{"query": "the second card from the first question"}')
    assert found == {
        "cards": [{"question": 1, "order": 2, "type": "comparison_table", "data": {"rows": [[1, 2], [3, 4]]}}]
    }
    assert (await called(shop, '{"questions_ago": 1, "order": 1}'))["cards"][0]["type"] == "chart"


@cases(
    ("arguments", "error"),
    [
        ("{", "not valid JSON"),
        ("", "Say which card"),
        ("[]", "arguments"),
        ('{"order": "second"}', "order: "),
        ('{"colour": "red"}', "colour: "),
        ('{"query": "hello"}', "does not say which card"),
        ('{"query": "card 3 from question 1"}', "Question 1 showed 2 cards."),
        ('{"question": 1, "questions_ago": 2}', "not both"),
    ],
)
async def test_a_models_mistakes_are_told_to_it(shop: httpx.AsyncClient, arguments: str, error: str) -> None:
    assert error in (await called(shop, arguments))["error"]


async def test_a_model_is_given_no_more_than_it_can_take(shop: httpx.AsyncClient) -> None:
    words = " ".join(["word"] * 3000)
    await shop.post(f"{AT}/cards", json=[{"type": "text", "data": {"n": n, "words": words}} for n in range(3)])
    found = await called(shop, '{"question": 3}')
    assert ([each["data"]["n"] for each in found["cards"]], found["left_out"]) == ([0], 2)


# --- whose they are, and their end ------------------------------------------------------------------------------------


async def test_nobody_else_sees_them(shop: httpx.AsyncClient, locked: WiredApi) -> None:
    assert (await shop.get(f"{AT}/cards", params={"user": "ben"})).status_code == 404
    key, _ = await locked.tenancy.create_key("others", "k", scopes=("read",))
    async with locked.client(key) as other:
        assert (await other.get(f"{AT}/cards")).status_code == 404
        assert (await other.post(f"{AT}/cards", json={"type": "t", "data": {}})).status_code == 403
        assert (await other.post(f"{AT}/cards/call", json={"arguments": "{}"})).status_code == 404, "reading is enough"


async def test_deleting_an_answer_takes_its_cards_along(shop: httpx.AsyncClient) -> None:
    history = (await shop.get(f"{AT}/history")).json()["messages"]
    gone = await shop.delete(f"{AT}/messages/{history[1]['id']}")
    assert gone.status_code == 200, gone.text
    assert await listed(shop) == [(4, 2, 1, "chart")], "it still answers the second question"
    assert error_of(await find(shop, query="the first card from question 1"))["message"] == "Question 1 showed no card."
    again = await shop.post(f"{AT}/cards", json={"type": "t", "data": {}, "turn": 2})
    assert again.status_code == 404
    question = await shop.delete(f"{AT}/messages/{history[2]['id']}")
    assert question.status_code == 200
    assert await listed(shop) == [(4, 2, 1, "chart")], "the answer to a deleted question stays"


async def test_erasing_and_exporting_a_user_take_cards_along(shop: httpx.AsyncClient) -> None:
    lines = (await shop.get("/api/v1/users/ana/export")).text.splitlines()
    rows = [each["row"] for each in map(orjson.loads, lines) if each.get("table") == "ui_cards_shown"]
    rows.sort(key=lambda row: (row["turn_index"], row["display_order"]))
    assert [each["card_data"] for each in rows] == [card["data"] for cards in SHOWN for card in cards]
    receipt = (await shop.delete("/api/v1/users/ana")).json()
    assert receipt["tables"]["ui_cards_shown"] == 3
    assert await all_pages(shop, "/api/v1/cards", "cards", user="ana") == []


@cases(
    ("path", "wrong"),
    [
        ("cards", {"turn": 2**40}),
        ("cards", {"turn": -1}),
        ("cards", {"order": 0}),
        ("cards", {"order": 1001}),
        ("cards", {"question": 2**31}),
        ("cards", {"type": "t" * 101}),
        ("cards", {"type": ""}),
        ("cards/find", {"question": 2**40}),
        ("cards/find", {"questions_ago": -1}),
        ("cards/find", {"questions_ago": 2**40}),
        ("cards/find", {"order": 1001}),
        ("history", {"last": 0}),
        ("history", {"last": 1001}),
    ],
)
async def test_numbers_that_cannot_be_are_refused(shop: httpx.AsyncClient, path: str, wrong: dict[str, Any]) -> None:
    answer = await shop.get(f"{AT}/{path}", params=wrong)
    assert (answer.status_code, error_of(answer)["param"]) == (400, next(iter(wrong)))
