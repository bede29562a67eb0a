"""What the tools take, ask for and show; the API behind them is a stand-in."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from app.features.mcp.server import MAX_SHOWN_CHARS, TOOLS, CallerApi, ToolRefused
from tests.support.tables import each_of

BY_NAME = {each.name: each for each in TOOLS}
MEMORY = {"id": "m1", "kind": "fact", "text": "A boat.", "status": "active", "tags": [], "created_at": "2026-01-01"}
FACT = {
    "key": "boat",
    "category": "personal",
    "value": "Halcyon",
    "confidence": 95,
    "said_at": "2026-01-01",
    "id": "f1",
}

Answer = Callable[[httpx.Request], Any]


class WiredApi:
    """Notes what it is asked. `answers`: by method and path."""

    def __init__(self, answers: dict[str, Any], *, user: str | None = "ana/b", status: int = 200) -> None:
        self.asked: list[httpx.Request] = []
        self._answers = answers
        self._user = user
        self._status = status

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode().partition("?")[0].removeprefix("/api/v1")
        if path == "/me":
            return httpx.Response(200, json={"user": self._user})
        self.asked.append(request)
        found = self._answers.get(f"{request.method} {path}")
        if found is None:
            return httpx.Response(404, json={"error": {"message": f"There is no {path}."}})
        return httpx.Response(self._status, json=found)

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        async with httpx.AsyncClient(transport=httpx.MockTransport(self), base_url="http://mneme") as client:
            return await BY_NAME[tool].call(CallerApi(client, [(b"x-mneme-key", b"k")]), arguments)

    def body(self) -> Any:
        return json.loads(self.asked[-1].content)


def test_every_schema_is_one_that_a_model_can_read() -> None:
    assert len(BY_NAME) == len(TOOLS) == 9
    for tool in TOOLS:
        schema = tool.schema()
        assert set(schema) <= {"type", "properties", "required", "additionalProperties"}
        assert len(tool.description) > 40
        for name, each in schema["properties"].items():
            assert each.get("description"), (tool.name, name)
            assert not {"title", "anyOf"} & set(each), (tool.name, name)
            assert each.get("default", "") is not None
    assert BY_NAME["search"].schema()["required"] == ["query"]
    assert BY_NAME["search"].schema()["properties"]["session"]["type"] == "string"
    assert [each.name for each in TOOLS if each.destroys] == ["forget"]


@each_of(
    ("tool", "arguments", "said"),
    [
        ("search", {}, "query: Field required"),
        ("search", {"query": "x", "user": "ben"}, "user: Extra inputs are not permitted"),
        ("search", {"query": "\ud800"}, "cannot be said in JSON"),
        ("memories", {"tag": "\udfff"}, "cannot be said in JSON"),
        ("forget", {"fact": "\ud800"}, "cannot be said in JSON"),
        ("search", {"query": "x", "limit": 0}, "limit: "),
        ("correct", {}, "`memory`, `fact`"),
        ("correct", {"memory": "m", "value": 1}, "`value` goes with `fact`"),
        ("correct", {"fact": "f", "text": "x"}, "`text` goes with `memory`"),
        ("forget", {"memory": "m", "message": "n"}, "only one"),
        ("forget", {"message": "n"}, "`session`"),
        ("correct", {"fact": "f", "value": {"a": ["\ud800"]}}, "cannot be said in JSON"),
        ("correct", {"fact": "f", "value": 1 << 70}, "cannot be said in JSON"),
    ],
)
async def test_wrong_arguments_are_told_and_ask_for_nothing(tool: str, arguments: dict[str, Any], said: str) -> None:
    api = WiredApi({})
    with pytest.raises(ToolRefused) as refused:
        await api.call(tool, **arguments)
    assert said in refused.value.message
    assert not api.asked


async def test_every_request_is_about_the_connections_user() -> None:
    api = WiredApi({"GET /memories": {"memories": [MEMORY], "next": None}})
    assert await api.call("memories", kind="fact") == {
        "memories": [
            {
                "memory": "m1",
                "kind": "fact",
                "text": "A boat.",
                "status": "active",
                "tags": [],
                "created_at": "2026-01-01",
            }
        ],
        "next": None,
    }
    (asked,) = api.asked
    assert dict(asked.url.params) == {"kind": "fact", "limit": "20", "user": "ana/b"}
    assert asked.headers["x-mneme-key"] == "k"
    with pytest.raises(ToolRefused, match="Say whose memory"):
        await WiredApi({}, user=None).call("memories")


async def test_names_of_any_text_stay_in_their_segment() -> None:
    api = WiredApi({"PUT /users/ana%2Fb/facts/..%2F%3Fx%23": FACT})
    assert await api.call("correct", fact="../?x#", value="Halcyon") == {
        "fact": "boat", "category": "personal", "value": "Halcyon", "confidence": 95, "said_at": "2026-01-01",
    }  # fmt: skip
    assert api.body() == {"value": "Halcyon"}
    assert unquote(api.asked[0].url.path).endswith("/../?x#")


async def test_what_is_found_has_the_id_that_can_be_corrected_or_forgotten() -> None:
    words = MEMORY | {"id": "p1", "kind": "passage", "score": 0.51239}
    words["provenance"] = [{"message_id": None}, {"message_id": "n1", "session": "s"}]
    memory = MEMORY | {"score": 1, "provenance": [{"message_id": "n1", "session": "s"}], "status": "superseded"}
    api = WiredApi({"POST /memories/search": {"items": [words, memory]}})
    first, second = (await api.call("search", query="boat", outdated=True))["items"]
    assert first == {
        "message": "n1", "session": "s", "kind": "passage", "text": "A boat.", "said_at": "2026-01-01", "score": 0.512,
    }  # fmt: skip
    assert (second["memory"], second["status"]) == ("m1", "superseded")
    assert api.body() == {"query": "boat", "k": 10, "history": True}


async def test_a_memory_that_is_just_wrong_has_no_heir() -> None:
    api = WiredApi({"POST /memories/m1/validate": {"memory": MEMORY | {"status": "invalidated"}, "correction": None}})
    told = await api.call("correct", memory="m1")
    assert (told["was"]["status"], told["now"]) == ("invalidated", None)
    assert api.body() == {"answer": "no"}


async def test_nothing_known_of_a_user_is_no_error() -> None:
    assert await WiredApi({}).call("facts") == {"facts": [], "next": None}
    with pytest.raises(ToolRefused, match="There is no /sessions"):
        await WiredApi({}).call("sessions")


async def test_recent_is_the_session_spoken_in_last() -> None:
    sessions = [
        {"id": "empty", "last_message_at": None, "created_at": "2026-02-03"},
        {"id": "new", "last_message_at": "2026-02-02", "created_at": "2026-02-02"},
        {"id": "old", "last_message_at": "2026-02-04", "created_at": "2026-01-01"},
    ]
    parts = [{"type": "text", "text": "See:"}, {"type": "image_url", "image_url": {"url": "data:…"}}, "there"]
    rows = [
        {"id": "n1", "role": "user", "created_at": "2026-02-04", "content": parts},
        {"id": "n2", "role": "assistant", "created_at": "2026-02-04", "content": None},
        {"id": "n3", "role": "tool", "created_at": "2026-02-04", "content": "x" * (MAX_SHOWN_CHARS + 7)},
    ]
    api = WiredApi({"GET /sessions": {"sessions": sessions}, "GET /sessions/old/history": {"messages": rows}})
    told = await api.call("recent", limit=3)
    assert told["session"] == "old"
    assert [each["text"] for each in told["messages"]] == ["See:\n[image_url]\nthere", "", "x" * MAX_SHOWN_CHARS]
    assert told["messages"][2]["left_out_chars"] == 7
    assert api.asked[-1].url.params["last"] == "3"
    assert await WiredApi({"GET /sessions": {"sessions": []}}).call("recent") == {"session": None, "messages": []}


async def test_a_stranger_in_the_servers_place_is_told() -> None:
    def page(request: httpx.Request) -> httpx.Response:
        return httpx.Response(502, text="<html>Bad gateway</html>")

    async with httpx.AsyncClient(transport=httpx.MockTransport(page), base_url="http://elsewhere") as client:
        with pytest.raises(ToolRefused, match="elsewhere answered with HTTP 502"):
            await CallerApi(client, []).whose()
