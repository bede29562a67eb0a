"""An agent's loop over plain HTTP, and what it may expect: an answer is one answer, and shows nobody else's call."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from tests.support.agent_model import MODEL, UNKNOWN, ScriptedModel
from tests.support.agent_results import Result
from tests.support.agent_work import SYSTEM, TOOLS, Round, Work

PATH = "/v1/chat/completions"
FOREIGN = (b"memory_query", b"memory_restore", b"mem_", b"mneme-object")
"""What no answer may show."""
TIMEOUT_S = 60.0

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of the client's. `ms`: until the end of the answer, without what the model took; `legs`: requests that the
    upstream got for it; `bare_tokens`: of the prompt as the client wrote it."""

    round: int
    ms: float
    overhead_ms: float
    legs: int
    bare_tokens: int
    status: str
    reason: str | None


@dataclass
class Session:
    """A session that was played. `wrong`: what an answer had that it must not have."""

    messages: list[Message]
    turns: list[Turn]
    wrong: list[str]
    session_id: str = ""


def play(
    base_url: str,
    work: Work,
    model: ScriptedModel,
    *,
    headers: Mapping[str, str],
    between: Callable[[], None] = lambda: None,
    say: Callable[[str], None] = lambda told: None,
) -> Session:
    """Work through all of it; every second request is a stream. `between`: after each answer, for a real model takes its
    time."""
    results = {
        each.call_id(step, place): result
        for each in work.rounds
        for step, taken in enumerate(each.steps)
        for place, result in enumerate(taken.results)
    }
    played = Session([{"role": "system", "content": SYSTEM}], [], [])
    with httpx.Client(base_url=base_url, headers=dict(headers), timeout=TIMEOUT_S, trust_env=False) as client:
        for each in work.rounds:
            say(f"round {each.number} of {len(work.rounds)}")
            played.messages.append({"role": "user", "content": each.said})
            while (answer := _turn(client, each, played, model)).get("tool_calls"):
                played.messages += [_result(call["id"], results) for call in answer["tool_calls"]]
                between()
            between()
    return played


def expected(work: Work, ways: Mapping[int, str] | None = None) -> list[Message]:
    """The client's transcript as it is without paging. `ways`: how questions were answered, by round; "nowhere": they were
    not."""
    messages: list[Message] = [{"role": "system", "content": SYSTEM}]
    for each in work.rounds:
        messages.append({"role": "user", "content": each.said})
        for step, taken in enumerate(each.steps):
            calls = [
                {
                    "id": each.call_id(step, place),
                    "type": "function",
                    "function": {"name": one.tool, "arguments": json.dumps(one.arguments)},
                }
                for place, one in enumerate(taken.results)
            ]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            messages += [
                {"role": "tool", "tool_call_id": call["id"], "content": one.text}
                for call, one in zip(calls, taken.results, strict=True)
            ]
        told = each.closing if each.question is None else f"It is {', '.join(each.question.needed)}."
        if (ways or {}).get(each.number) == "nowhere":
            told = UNKNOWN
        messages.append({"role": "assistant", "content": told})
    return messages


def _result(name: str, results: Mapping[str, Result]) -> Message:
    return {"role": "tool", "tool_call_id": name, "content": results[name].text}


def _turn(client: httpx.Client, each: Round, played: Session, model: ScriptedModel) -> Message:
    stream = len(played.turns) % 2 == 1
    body: dict[str, Any] = {"model": MODEL, "messages": played.messages, "tools": TOOLS}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    data = orjson.dumps(body)
    thought, legs = model.seconds, len(model.prompts)
    began = time.perf_counter()
    answer = client.post(PATH, content=data, headers={"content-type": "application/json"})
    took = time.perf_counter() - began - (model.seconds - thought)
    assert answer.status_code == 200, f"round {each.number}: {answer.status_code} {answer.text}"
    found = answer.headers
    played.session_id = found.get("x-mneme-session-id", played.session_id)
    played.turns.append(
        Turn(
            round=each.number,
            ms=1000 * took,
            overhead_ms=float(found.get("x-mneme-overhead-ms", "nan")),
            legs=len(model.prompts) - legs,
            bare_tokens=model.tokens_of(played.messages, TOOLS),
            status=found.get("x-mneme-status", "none"),
            reason=found.get("x-mneme-reason"),
        )
    )
    played.wrong += [f"round {each.number}: {word.decode()}" for word in FOREIGN if word in answer.content]
    message = _of_stream(answer.content, each, played.wrong) if stream else answer.json()["choices"][0]["message"]
    kept = {"role": "assistant", "content": message.get("content") or None}
    if message.get("tool_calls"):
        kept["tool_calls"] = message["tool_calls"]
    played.messages.append(kept)
    return kept


def _of_stream(data: bytes, each: Round, wrong: list[str]) -> Message:
    """The message that a stream comes to; adds to `wrong` what is not one coherent answer."""
    lines = [event.removeprefix(b"data: ") for event in data.split(b"\n\n") if event]
    chunks = [orjson.loads(line) for line in lines[:-1]]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    ends = [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
    calls: list[Message] = []
    for part in [part for delta in deltas for part in delta.get("tool_calls") or ()]:
        if part["index"] == len(calls):
            calls.append({"id": part["id"], "type": "function", "function": {"name": "", "arguments": ""}})
        for name, value in (part.get("function") or {}).items():
            calls[part["index"]]["function"][name] += value
    usage = [chunk for chunk in chunks if chunk.get("usage")]
    told: Sequence[tuple[str, bool]] = (
        ("no [DONE] at the end", lines[-1] != b"[DONE]"),
        ("more than one id", len({(chunk["id"], chunk["created"]) for chunk in chunks}) != 1),
        ("more than one role", sum("role" in delta for delta in deltas) != 1),
        ("not one finish reason", ends != [("tool_calls" if calls else "stop")]),
        ("not one usage, in the end", [bool(each.get("usage")) for each in chunks[-1:]] != [True] or len(usage) != 1),
    )
    wrong += [f"round {each.number}: {what}" for what, so in told if so]
    return {"content": "".join(delta.get("content") or "" for delta in deltas), "tool_calls": calls}
