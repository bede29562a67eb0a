"""A scripted model that works through a session of `agent_work`, as an upstream on a loopback socket.

It knows nothing but its prompt: a question is answered if the words of the answer stand there; else it looks them up with the
memory tools that it is offered, as a model would: by the question, or by the handle that is shown beside what seems to have it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from app.providers.tokens import REPLY_TOKENS, CountCache, TokenCounter
from tests.support.agent_work import Round, Work
from tests.support.replies import Recorded, Reply, reply_events, reply_json

MODEL = "gpt-4o"
"""A name whose tokenizer is known, so that budgets are counted exactly."""
QUERY, RESTORE = "memory_query", "memory_restore"
RESTORES_FIRST = 4
"""Every so many-th question the model wants to see the whole, where it is shown what may have it."""
SEEN_BEFORE = 6
"""Prompts before one that an upstream's cache still holds."""
UNKNOWN = "I could not find that any more."

Way = Literal["prompt", "shortened", "query", "restore", "elsewhere", "nowhere"]
"""How a detail was reached: it stood in a result as it came, in a shortened one, in what the model was told; or not at all."""

_ROUND = re.compile(r"^(?:Work item|Question) (\d+):", re.MULTILINE)
_SHOWN = re.compile(r"<mneme-object \w+ id=([0-9a-f]{8}) L\d(?:/>|>(.*?)</mneme-object>)", re.DOTALL)
_NAMED = re.compile(r"[\w./-]*[\d_/][\w./-]*")
"""What is named in a question: a file, a number, an identifier. With these alone the model asks once more."""
_WORD = re.compile(r"[a-z0-9][a-z0-9_]{2,}")


@dataclass(frozen=True, slots=True)
class Seen:
    """A prompt as it came. `tokens`: of all of it, o200k; `shared`: bytes at its beginning that an earlier one had."""

    round: int
    tokens: int
    size: int
    shared: int
    tools: int


@dataclass
class ScriptedModel:
    """Give it to a `ScriptedUpstream` as its script. `window`: what it says of itself. `ways`: of each question, by its round;
    `asked`: for each look-up by question, the kind of the result and whether what came back had the detail."""

    work: Work
    counter: TokenCounter
    window: int
    prompts: list[Seen] = field(default_factory=list)
    ways: dict[int, Way] = field(default_factory=dict)
    asked: list[tuple[str, bool]] = field(default_factory=list)
    seconds: float = 0.0
    """Spent in here."""
    _counts: CountCache = field(default_factory=CountCache)
    _before: list[bytes] = field(default_factory=list)
    _judged: set[str] = field(default_factory=set)

    def __call__(self, request: Recorded) -> Reply:
        if request.path == "/v1/models":
            entry = {"id": MODEL, "object": "model", "created": 1, "owned_by": "test", "max_model_len": self.window}
            return reply_json({"object": "list", "data": [entry]})
        began = time.perf_counter()
        asked = orjson.loads(request.body)
        messages: list[dict[str, Any]] = asked["messages"]
        number = max(int(each) for text in _said(messages) for each in _ROUND.findall(text))
        found = self.work.rounds[number - 1]
        self._see(asked, number)
        self._judge(messages)
        text, calls = self._does(found, messages, {each["function"]["name"] for each in asked.get("tools") or ()})
        made = _reply(asked, len(self.prompts), text, calls, self.prompts[-1].tokens)
        self.seconds += time.perf_counter() - began
        return made

    def tokens_of(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> int:
        """Of a whole prompt."""
        counts = sum(self._counts.message(each, self.counter) for each in messages)
        return counts + self._counts.tools(tools, self.counter) + REPLY_TOKENS

    def _see(self, asked: dict[str, Any], number: int) -> None:
        messages, tools = asked["messages"], asked.get("tools") or []
        tokens = self.tokens_of(messages, tools)
        prompt = orjson.dumps(tools) + b"".join(map(orjson.dumps, messages))
        shared = max((_shared(each, prompt) for each in self._before), default=0)
        self._before = [*self._before, prompt][-SEEN_BEFORE:]
        self.prompts.append(Seen(number, tokens, len(prompt), shared, len(tools)))

    def _judge(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Whether what it was told when it asked has the detail."""
        for each in messages:
            name = str(each.get("tool_call_id") or "")
            if name.startswith("mem_") and QUERY in name and name not in self._judged:
                self._judged.add(name)
                _, number, step, *_ = name.split("_")
                found = self.work.rounds[int(number) - 1]
                beside = None if found.question else found.steps[int(step)].beside
                fact = found.question or beside
                assert fact is not None, "it asks about nothing else"
                self.asked.append((found.kind or "beside", _has(_text(each), fact.needed)))

    def _does(
        self, found: Round, messages: Sequence[Mapping[str, Any]], tools: set[str]
    ) -> tuple[str | None, list[dict[str, Any]]]:
        """What it says, or what it calls."""
        if found.question is None:
            return self._works(found, messages, tools)
        way = _way(messages, found.question.needed)
        if way is None and (call := self._looks_up(found, messages, tools)) is not None:
            return None, [call]
        self.ways[found.number] = way or "nowhere"
        return (f"It is {', '.join(found.question.needed)}." if way else UNKNOWN), []

    def _works(
        self, found: Round, messages: Sequence[Mapping[str, Any]], tools: set[str]
    ) -> tuple[str | None, list[dict[str, Any]]]:
        made = {int(each.split("_")[2]) for each in _calls_of(messages) if each.startswith(f"call_{found.number}_")}
        step = len(made)
        if step == len(found.steps):
            return found.closing, []
        taken = found.steps[step]
        calls = [
            _call(found.call_id(step, place), each.tool, each.arguments) for place, each in enumerate(taken.results)
        ]
        if taken.beside is not None and QUERY in tools:
            name = f"mem_{found.number}_{step}_{QUERY}"
            calls.insert(1, _call(name, QUERY, {"question": taken.beside.question}))
        return None, calls

    def _looks_up(self, found: Round, messages: Sequence[Mapping[str, Any]], tools: set[str]) -> dict[str, Any] | None:
        """The next call of a memory tool; None where there is nothing more to try."""
        assert found.question is not None
        asked = found.question.question
        tried = sum(each.startswith(f"mem_{found.number}_") for each in _calls_of(messages))
        plans: list[tuple[str, dict[str, Any]]] = [(QUERY, {"question": asked})]
        if (handle := _handle(messages, asked)) is not None:
            first = found.number % RESTORES_FIRST == 0
            plans.insert(0 if first else 1, (RESTORE, {"object_id": handle}))
        if names := " ".join(_NAMED.findall(asked)):
            plans.append((QUERY, {"question": names}))
        if tried >= len(plans) or plans[tried][0] not in tools:
            return None
        name, arguments = plans[tried]
        return _call(f"mem_{found.number}_{tried}_{name}", name, arguments)


# --- reading a prompt -------------------------------------------------------------------------------------------------


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text") or "") for part in content)
    return content or ""


def _said(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What the user says. Mneme's block may quote earlier words of theirs, with lower numbers."""
    return (_text(each) for each in messages if each["role"] == "user")


def _calls_of(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    return [call["id"] for each in messages for call in each.get("tool_calls") or ()]


def _has(text: str, needed: Sequence[str]) -> bool:
    return all(word in text for word in needed)


def _way(messages: Sequence[Mapping[str, Any]], needed: Sequence[str]) -> Way | None:
    found = next((each for each in reversed(messages) if _has(_text(each), needed)), None)
    if found is None:
        return None
    if found["role"] != "tool":
        return "elsewhere"
    name = str(found.get("tool_call_id"))
    if name.startswith("mem_"):
        return "query" if QUERY in name else "restore"
    return "shortened" if _SHOWN.search(_text(found)) else "prompt"


def _handle(messages: Sequence[Mapping[str, Any]], question: str) -> str | None:
    """The handle of what is shown with the most words of the question, rare words first; None where nothing has a rare one."""
    shown = {
        handle: set(_WORD.findall(text.lower())) for each in messages for handle, text in _SHOWN.findall(_text(each))
    }
    asked = set(_WORD.findall(question.lower()))
    many = {word: sum(word in held for held in shown.values()) for word in asked}
    worth = {handle: sum(1 / many[word] for word in asked & held) for handle, held in shown.items() if asked & held}
    return max(worth, key=worth.__getitem__, default=None)


def _shared(one: bytes, other: bytes) -> int:
    """Bytes at the beginning of both."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


# --- answering --------------------------------------------------------------------------------------------------------


def _call(name: str, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": name, "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}


def _reply(
    asked: Mapping[str, Any], number: int, text: str | None, calls: Sequence[dict[str, Any]], prompt: int
) -> Reply:
    said = len((text or "") + json.dumps(list(calls))) // 4
    usage = {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}
    head = {"id": f"chatcmpl-{number}", "created": 1_700_000_000 + number, "model": MODEL}
    finish = "tool_calls" if calls else "stop"
    if not asked.get("stream"):
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message["tool_calls"] = list(calls)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return reply_json({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None if calls else ""}]
    deltas += [{"content": piece} for piece in re.findall(r"\S+\s*", text or "")]
    for index, each in enumerate(calls):
        function = each["function"]
        opened = {"index": index, "id": each["id"], "type": "function"}
        deltas.append({"tool_calls": [{**opened, "function": {"name": function["name"], "arguments": ""}}]})
        half = len(function["arguments"]) // 2
        for piece in (function["arguments"][:half], function["arguments"][half:]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    chunks = [{**head, "choices": [_choice(each, None)]} for each in deltas]
    chunks.append({**head, "choices": [_choice({}, finish)]})
    if (asked.get("stream_options") or {}).get("include_usage"):
        chunks.append({**head, "choices": [], "usage": usage})
    lines = [json.dumps({"object": "chat.completion.chunk", **each}) for each in chunks]
    return reply_events([f"data: {each}\n\n".encode() for each in [*lines, "[DONE]"]])


def _choice(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
