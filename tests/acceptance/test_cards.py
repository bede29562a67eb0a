"""Seed 003 through the real command and OpenAI's SDK: cards, voice navigation, a session rebuilt from the API, the persona."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.clients import Api, ask, error_of, prompt_of, sdk
from tests.support.replies import Script, chat_script, reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

TOOLS = {"search": {"type": "product_card", "items": "results", "title": "name"}}
FOUND = {"results": [{"name": "Lamp", "price": 3}, {"name": "Desk"}]}
CARDS: list[list[dict[str, Any]]] = [
    [
        {"type": "product_card", "data": {"sku": "A1", "price": 30}},
        {"type": "comparison_table", "data": {"rows": [["A1", 30], ["B2", 20]]}},
    ],
    [{"type": "chart", "data": {"points": [1, 2.5]}}],
    [{"type": "product_card", "data": {"sku": "C3"}}, {"type": "map", "data": {"at": "Porto"}}],
]


WORKER = True


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"CARD_TOOLS": json.dumps(TOOLS)}


@pytest.fixture(scope="module")
def script() -> Script:
    return chat_script(lambda asked: f"Answer to {asked['messages'][-1]['content'].splitlines()[-1]}")


def calls_tool(name: str, arguments: object) -> Script:
    """An upstream that calls a tool, and answers once it has the result."""

    def answer(asked: dict[str, Any]) -> Any:
        last = asked["messages"][-1]
        if last["role"] == "tool":
            return f"It is {last['content']}"
        call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choices = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
        head = {"id": "c", "object": "chat.completion", "created": 1, "model": "scripted"}
        return reply_json({**head, "choices": choices})

    return chat_script(answer)


def shop(mneme: MnemeServer, api: Api, name: str, who: str) -> None:
    """Three questions through OpenAI's SDK, each with cards that the application showed."""
    with sdk(mneme.url) as client:
        for n, cards in enumerate(CARDS, 1):
            answer = client.chat.completions.create(
                model="scripted",
                messages=[{"role": "user", "content": f"Question {n}"}],
                extra_headers={"x-mneme-session": name, "x-mneme-user": who},
            )
            assert answer.choices[0].message.content == f"Answer to Question {n}"
            added = api.post(f"/sessions/{name}/cards", cards)["cards"]
            assert [(each["question"], each["turn_index"], each["display_order"]) for each in added] == [
                (n, 2 * n, order) for order in range(1, len(cards) + 1)
            ]


def test_the_second_card_from_the_first_question(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    """Seed 003, manual verification 3 and 1: a conversation of three turns, voice navigation, and all of it from the API."""
    api = Api(mneme, user="shopper")
    api.post("/sessions", {"id": "shop", "type": "voice", "metadata": {"till": 4}})
    shop(mneme, api, "shop", "shopper")

    for asked in (
        {"query": "Show me the second card from the first question"},
        {"query": "the second card from two questions ago"},
        {"questions_ago": 2, "order": 2},
    ):
        found = api.get("/sessions/shop/cards/find", **asked)
        assert [each["data"] for each in found["cards"]] == [CARDS[0][1]["data"]]
        assert found["understood"]["question"] == 1
    missing = api.send("GET", "/sessions/shop/cards/find", params={"query": "the second card from question two"})
    assert (missing.status_code, error_of(missing)["message"]) == (404, "Question 2 showed 1 card.")

    assert api.post("/sessions/shop/close", {})["status"] == "closed"
    session = api.session("shop")
    assert (session["type"], session["metadata"], session["message_count"]) == ("voice", {"till": 4}, 6)
    assert session["ended_at"] >= session["last_message_at"] >= session["first_message_at"]
    history = mneme.http.get("/api/history/shop", headers={"x-mneme-user": "shopper"}).json()
    assert history["next"] is None
    assert history["messages"] == api.history("shop")
    rebuilt = [
        (each["turn_index"], each["role"], each["content"], [(card["type"], card["data"]) for card in each["cards"]])
        for each in history["messages"]
    ]
    assert rebuilt == [
        line
        for n, cards in enumerate(CARDS, 1)
        for line in (
            (2 * n - 1, "user", f"Question {n}", []),
            (2 * n, "assistant", f"Answer to Question {n}", [(each["type"], each["data"]) for each in cards]),
        )
    ]
    last = api.get("/sessions/shop/history", last=2)["messages"]
    assert last == history["messages"][-2:]


@pytest.mark.parametrize("history", ["server", "client"])
@pytest.mark.parametrize("who", ["viewer", None])
def test_the_message_alone_brings_the_card(
    mneme: MnemeServer, upstream: ScriptedUpstream, who: str | None, history: str
) -> None:
    """Seed 003, voice navigation through the prompt: what the user asks to see stands before the model, in this turn and (for
    the upstream's cache) where it stood in the next; a user, and a session without one; with and without the history."""
    name = f"seen-{who or 'nobody'}-{history}"
    api = Api(mneme, user=who)
    headers = {"x-mneme-session": name} | ({"x-mneme-user": who} if who is not None else {})
    own: list[Any] = []
    table = 'card 2 of question 1 (comparison_table): {"rows":[["A1",30],["B2",20]]}'

    def say(text: str) -> Any:
        message: Any = {"role": "user", "content": text}
        own.append(message)
        with sdk(mneme.url) as client:
            answer = client.chat.completions.with_raw_response.create(
                model="scripted", messages=own if history == "client" else [message], extra_headers=headers
            )
        own.append({"role": "assistant", "content": answer.parse().choices[0].message.content})
        return answer

    for n, cards in enumerate(CARDS, 1):
        say(f"Question {n}")
        api.post(f"/sessions/{name}/cards", cards)
    assert "card 2" not in prompt_of(upstream.requests[-1])
    shown = say("Show me the second card from the first question")
    assert f"Shown on the user's screen: {table}\n" in prompt_of(upstream.requests[-1])
    assert shown.headers["x-mneme-status"] == "ok"
    (listed,) = api.get(f"/sessions/{name}/cards", question=1, order=2)["cards"]
    account = api.get(f"/calls/{shown.headers['x-mneme-call-id']}/context")["sections"]["cards"]
    assert (account["chosen"], account["dropped"]) == ([listed["id"]], [])
    assert 0 < account["tokens"] <= account["budget"] <= 800

    said = say("Thank you")
    assert prompt_of(upstream.requests[-1]).count(table) == 1
    assert "cards" not in api.get(f"/calls/{said.headers['x-mneme-call-id']}/context")["sections"]
    if who is not None:
        seen = api.post("/context", {"user": who, "session": name, "query": "the third card from question two"})
        assert seen["sections"]["cards"]["chosen"] == []
        seen = api.post("/context", {"user": who, "session": name, "query": "show the last chart again"})
        assert 'card 1 of question 2 (chart): {"points":[1,2.5]}' in str(seen["messages"])


def test_a_model_finds_a_card_with_its_tool(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    api = Api(mneme, user="asker")
    shop(mneme, api, "asked", "asker")
    upstream.script = calls_tool("find_card", {"query": "the second card from the first question"})
    tool = api.get("/cards/tool")
    asked: list[Any] = [{"role": "user", "content": "What did we compare at first?"}]
    headers = {"x-mneme-session": "asked", "x-mneme-user": "asker"}
    with sdk(mneme.url) as client:
        first = client.chat.completions.create(model="scripted", messages=asked, tools=[tool], extra_headers=headers)
        (call,) = first.choices[0].message.tool_calls or []
        assert call.type == "function"
        result = api.post("/sessions/asked/cards/call", {"arguments": call.function.arguments, "tool_call_id": call.id})
        answer = client.chat.completions.create(
            model="scripted", messages=[result], tools=[tool], extra_headers=headers
        )
    shown = json.loads((answer.choices[0].message.content or "").removeprefix("It is "))
    assert [each["data"] for each in shown["cards"]] == [CARDS[0][1]["data"]]
    assert prompt_of(upstream.requests[-1]).count("comparison_table") == 1


@pytest.mark.parametrize(("memory", "taken"), [("on", 2), ("read-only", 0), ("off", 0)])
def test_results_of_configured_tools_become_cards(
    mneme: MnemeServer, upstream: ScriptedUpstream, memory: str, taken: int
) -> None:
    who = f"searcher-{memory}"
    api = Api(mneme, user=who)
    upstream.script = calls_tool("search", {"q": "furniture"})
    headers = {"x-mneme-user": who, "x-mneme-memory": memory}
    transcript: list[Any] = [{"role": "user", "content": "What furniture is there?"}]
    with sdk(mneme.url) as client:
        for result in (json.dumps(FOUND), None):
            raw = client.chat.completions.with_raw_response.create(
                model="scripted", messages=transcript, extra_headers=headers
            )
            message = raw.parse().choices[0].message.model_dump(exclude_none=True)
            if result is not None:
                transcript += [message, {"role": "tool", "tool_call_id": "call_1", "content": result}]
    api.wait_for_quiet()
    cards = api.get("/cards")["cards"]
    assert len(cards) == taken
    if taken:
        found = api.get(f"/sessions/{cards[0]['session_id']}/cards/find", query="the second product from this question")
        (desk,) = found["cards"]
        assert (desk["data"], desk["source"], desk["tool_call_id"]) == (
            {"title": "Desk", "name": "Desk"},
            "tool",
            "call_1",
        )
        history = api.history(cards[0]["session_id"])
        assert [(each["role"], len(each["cards"])) for each in history] == [
            ("user", 0), ("assistant", 0), ("tool", 0), ("assistant", 2),
        ]  # fmt: skip


# --- the persona ------------------------------------------------------------------------------------------------------


def test_a_fact_that_changes_keeps_one_value_and_its_history(mneme: MnemeServer) -> None:
    """Seed 003, automated test 3: "role: Python Developer", then "role: Senior Python Developer"."""
    api = Api(mneme, user="pia")
    at = "/users/pia/facts/role"
    for value, status in (("Python Developer", 201), ("Senior Python Developer", 200)):
        said = api.send("PUT", at, json={"value": value, "category": "professional"})
        assert said.status_code == status, said.text
    facts = api.get("/users/pia/facts")["facts"]
    assert [(each["category"], each["key"], each["value"]) for each in facts] == [
        ("professional", "role", "Senior Python Developer")
    ]
    assert api.send("PATCH", at, json={"confidence": 40}).json()["confidence"] == 40, "update_fact_confidence"
    changes = api.get(f"{at}/history")["changes"]
    assert sorted((each["event"], each["value"], each["confidence"]) for each in changes) == [
        ("changed", "Senior Python Developer", 95),
        ("created", "Python Developer", 95),
        ("rated", None, 40),
    ]
    assert api.get("/users/pia/profile")["profile"] == {"professional": {"role": "Senior Python Developer"}}


def test_what_is_said_in_one_session_is_known_in_the_next(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    """Seed 003, manual verification 2."""
    api = Api(mneme, user="rea")
    ask(mneme, "I'm a React developer", headers={"x-mneme-user": "rea", "x-mneme-session": "rea-1"})
    api.wait_for_quiet()
    (fact,) = api.get("/users/rea/facts")["facts"]
    assert fact["category"] == "professional"
    assert "react developer" in str(fact["value"]).casefold()
    upstream.requests.clear()
    ask(mneme, "What do you know about me?", headers={"x-mneme-user": "rea", "x-mneme-session": "rea-2"})
    assert "react developer" in prompt_of(upstream.requests[-1]).casefold()
