"""A paged session of /v1/messages, over sockets and with Anthropic's own SDK: the model looks something up, then answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.client_envs import Client, install
from tests.support.clients import Api, post
from tests.support.message_legs import Block, asks, event, streamed, text, thinking, use, whole
from tests.support.replay_server import replaying
from tests.support.replies import Recorded, Reply, Script, reply_events, reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

PATH = "/v1/messages"
MARK = {"cache_control": {"type": "ephemeral"}}
TOOLS = [{"name": "list_workers", "input_schema": {"type": "object"}, **MARK}]
QUESTION = "Which limit does worker_119 have?"


def results_of(asked: dict[str, Any]) -> list[Block]:
    """The results in the last message."""
    content = asked["messages"][-1]["content"]
    return [each for each in content if each["type"] == "tool_result"] if isinstance(content, list) else []


def blocks_of(asked: dict[str, Any]) -> list[Block] | None:
    """First a look-up, then what came of it; None: the model is overloaded."""
    last = json.dumps(asked["messages"][-1])
    if "Overload" in json.dumps(asked["messages"]) and results_of(asked):
        return None
    if any("1119" in str(each["content"]) for each in results_of(asked)):
        return [thinking("So it is 1119.", "c2lnMg=="), text("It is 1119.")]
    if "Thank you" in last:
        return [text("You are welcome.")]
    if "limit 7" in last:
        return [text("The other has 7.")]
    own = [use("list_workers", {"cluster": "c9"}, "toolu_own")] if "Compare" in last else []
    assert "memory_query" in [each["name"] for each in asked["tools"]], "nothing was shortened"
    return [thinking("I must look.", "c2lnMQ=="), text("Let me see."), asks("worker_119 limit", "toolu_q"), *own]


def answers(request: Recorded) -> Reply:
    if request.path != PATH:
        return reply_json({"object": "list", "data": [{"id": "m", "object": "model", "max_model_len": 32_000}]})
    asked = request.json()
    blocks = blocks_of(asked)
    if blocks is None:
        overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        return reply_json(overloaded, "529 Overloaded")
    id_ = f"msg_{len(asked['messages'])}"
    if not asked.get("stream"):
        return reply_json(json.loads(whole(blocks, id_=id_)))
    pieces = streamed(blocks, id_=id_).partition(b"event: content_block_stop")
    return reply_events([pieces[0], event("ping"), pieces[1] + pieces[2]])


@pytest.fixture(scope="module")
def script() -> Script:
    return answers


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"PAGING_BUDGET_TOKENS": "4000"}


def listing(what: str) -> str:
    return "\n".join(f"{what}_{n}: queue {n * 7}, host node-{n * 13 % 97}, limit {n + 1000}" for n in range(120))


def transcript(question: str = QUESTION) -> list[Any]:
    """A long listing with a picture beside it, then another; the older one is shown in short."""
    picture = {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}}
    told: list[Any] = [[{**text(listing("worker")), **MARK}, picture], listing("runner")]
    messages: list[Any] = [{"role": "user", "content": "Look at the workers."}]
    for n, content in enumerate(told):
        result = {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": content}
        messages += [
            {"role": "assistant", "content": [use("list_workers", {"cluster": f"c{n}"}, f"toolu_{n}")]},
            {"role": "user", "content": [result]},
        ]
    return [
        *messages,
        {"role": "assistant", "content": "Seen."},
        {"role": "user", "content": [{**text(question), **MARK}]},
    ]


def body(messages: list[Any], *, stream: bool) -> bytes:
    return json.dumps(
        {"model": "m", "max_tokens": 200, "tools": TOOLS, "messages": messages, "stream": stream}
    ).encode()


def sent_to(upstream: ScriptedUpstream) -> list[Any]:
    return [each.json() for each in upstream.requests if each.path == PATH]


def marks(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the `cache_control` marks stand."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [at] if isinstance(value, dict) and "cache_control" in value else []
    return found + [each for name, one in inside for each in marks(one, (*at, name))]


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
def test_a_result_is_shown_shorter_and_looked_up_within_one_answer(
    mneme: MnemeServer, upstream: ScriptedUpstream, stream: bool, tmp_path: Path
) -> None:
    who = f"looks up {stream}"
    given = body(transcript(), stream=stream)
    headers = {"X-Mneme-User": who, "X-Mneme-Paging": "on"}
    answer = post(mneme, given, headers=headers, path=PATH)
    assert (answer.status_code, answer.headers["x-mneme-status"]) == (200, "ok"), answer.text
    assert "zone=" in answer.headers["x-mneme-paging"]
    first, second = sent_to(upstream)
    own = json.loads(given)
    assert first["messages"][2]["content"][0]["content"][0]["text"].startswith("<mneme-object")
    assert first["messages"][2]["content"][0]["content"][1] == own["messages"][2]["content"][0]["content"][1]
    assert first["messages"][5:] == own["messages"][5:]
    assert marks(first) == marks(own)
    assert [each["name"] for each in first["tools"]] == ["list_workers", "memory_query", "memory_restore"]
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert second["messages"][-2]["content"] == [
        thinking("I must look.", "c2lnMQ=="), text("Let me see."), asks("worker_119 limit", "toolu_q"),
    ]  # fmt: skip
    assert b"memory_query" not in answer.content
    assert answer.content.count(b"event: ping") == (2 if stream else 0)
    api = Api(mneme, user=who)
    call, session = answer.headers["x-mneme-call-id"], answer.headers["x-mneme-session-id"]
    assert (api.raw(call), api.request(call)) == (answer.content, given)
    assert json.loads(api.request(call, sent=True)) == first
    legs = api.call(call)["legs"]
    assert len(legs) == 2
    assert [json.loads(api.request(each["id"])) for each in legs] == [first, second]
    assert api.call(call)["usage"]["prompt_tokens"] == 28
    assert api.said(session)[-1] == ("assistant", "Let me see.\nIt is 1119.")
    (fault,) = api.get(f"/sessions/{session}/faults")["faults"]
    assert "1119" in fault["answer"]
    exported = mneme.command(
        "capture", "export", "--out", str(tmp_path / "calls"), "--base", mneme.base_url, "--user", who
    )
    assert exported.returncode == 0, exported.stderr
    with replaying(str(tmp_path / "calls"), "--speed", "0") as url:
        replayed = httpx.post(
            url.removesuffix("/v1") + PATH, content=given, headers={"content-type": "application/json"}
        )
    assert (replayed.status_code, replayed.content) == (200, answer.content)


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_the_sdk(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    client = install(Client("anthropic-python", "Anthropic, Python", "anthropic_paging.py", ("anthropic",)))
    found = client.run(mneme.url, "sdk")
    answer = {
        "id": "msg_7",
        "kinds": ["thinking", "text", "thinking", "text"],
        "signatures": ["c2lnMQ==", "c2lnMg=="],
        "text": "Let me see.It is 1119.",
        "stop": "end_turn",
        "usage": [20, 8, 6],
    }
    assert found["whole"] == answer
    assert found["stream"] == {**answer, "starts": [0, 1, 2, 3]}
    assert found["async"] == {**answer, "heard": answer["text"]}
    last = next(each for each in sent_to(upstream) if "Thank you" in json.dumps(each["messages"][-1]))["messages"]
    assert [each["role"] for each in last[-5:]] == ["user", "assistant", "user", "assistant", "user"]
    assert last[-4]["content"][-1] == asks("worker_119 limit", "toolu_q")
    assert last[-3]["content"][0]["tool_use_id"] == "toolu_q"
    assert last[-3]["content"][0]["content"].startswith("Quoted from this conversation:")
    assert [element["content"][0].get("signature") for element in (last[-4], last[-2])] == ["c2lnMQ==", "c2lnMg=="]
    conversation, tools = found["conversation"], found["tools"]
    assert isinstance(conversation, dict)
    assert conversation["text"] == "You are welcome."
    assert isinstance(tools, dict)
    assert tools["calls"] == [["list_workers", '{"cluster": "c9"}']]
    assert tools["first"]["kinds"] == ["thinking", "text", "tool_use"]
    assert tools["text"] in ("It is 1119.", "The other has 7.")
    back = next(each for each in sent_to(upstream) if "limit 7" in json.dumps(each["messages"][-1]))["messages"]
    assert [each.get("id") for each in back[-2]["content"][2:]] == ["toolu_q", "toolu_own"]
    assert [each["tool_use_id"] for each in back[-1]["content"]] == ["toolu_q", "toolu_own"]
    assert found["refused"] == ["APIStatusError", "overloaded_error", "Overloaded"]
