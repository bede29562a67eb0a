"""The model of the world of `ui_world`: it answers by what it is asked, and one conversation is an agent's."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from app.providers.tokens import Tokenizers
from tests.support.agent_model import ScriptedModel
from tests.support.agent_work import SYSTEM as AGENT
from tests.support.agent_work import work
from tests.support.replies import Pause, Recorded, Reply, Script, chat_script, reply_json

MODEL = "gpt-4o"
PIECE = 9
"""Characters of a piece of a stream."""
PAUSE_S = 0.012
"""Between them: a stream that can be played."""
PLAIN_BYTES = 320
"""Of messages: more than the question about the contract has by itself."""
ANSWERS = {
    "Gai Media prefers Friday": "Noted: deliveries to Gai Media go out on Fridays.",
    "I work at": "Good to know. I will assume Porto when you ask about distances.",
    "What goes out this week": (
        "Three jobs go out this week:\n\n1. Tuesday: 12 LED panels to Gail Industries.\n2. Wednesday: a PA set to the Casa da "
        "Música.\n3. Friday: flight crates to Gai Media, as they prefer."
    ),
    "prefers Thursday now": "Understood. From now on Gai Media gets its deliveries on Thursdays, not Fridays.",
    "plan the next delivery": (
        "Plan it for Thursday. Gai Media used to take deliveries on Fridays, but you told me that they prefer Thursdays now. "
        "The PA set of SO-1052 is still in fulfilment, so the Thursday after next is the first that is safe."
    ),
    "vegetarian": "Thanks, I will keep that in mind when I suggest places to eat.",
    "lunch": "Try O Vegetariano near the river: no meat on the card, five minutes from the warehouse, and quiet before one.",
    "sister lives in Ghent": "Ghent is lovely. Shall I keep it in mind for the trip?",
    "sister lives in Porto": "Porto it is. I had Ghent in my notes.",
    "whole contract": "The contract runs until the end of March and renews by itself unless it is cancelled a month before.",
    "Tell me about Gai Media": "Gai Media is a customer of ours in entertainment, with orders in September.",
    "payment terms are NET30": "I have noted it, though the records say NET15.",
    "in September 2024": "Twelve LED panels and a PA set, if the records are complete.",
    "terms of Gai Media": "NET15, by the company's records; you had told me NET30.",
    "answer in Portuguese": "Combinado. A partir de agora respondo em português.",
    "meeting room": "Booked: the small room, Monday at ten, for four people.",
    "what do you know": "You coordinate the warehouse, you like short answers, and your release day is Wednesday.",
    "lamps": "Here are three lamps that fit a small stage.",
    "second one": "The Arc 200 weighs 4.1 kg and costs 14 a day; the Halo 90 is lighter, but not as bright.",
}  # fmt: skip


def script() -> Script:
    """The world's upstream: answers by what it is asked; the agent's model for the agent."""
    agent: list[Any] = []
    lock = threading.Lock()

    def answer(asked: dict[str, Any]) -> str | Reply | Sequence[str]:
        said = _last(asked)
        key = max(ANSWERS, key=said.rfind)  # the client's own words stand behind what Mneme adds
        if key == "whole contract" and key in said and _augmented(asked):
            told = {"message": "This model's maximum context length is 900 tokens.", "type": "invalid_request_error"}
            return reply_json(
                {"error": {**told, "param": "messages", "code": "context_length_exceeded"}}, "400 Bad Request"
            )
        if "the night shift" in said:
            told = {"message": "The engine is overloaded. Try again later.", "type": "server_error"}
            return reply_json({"error": {**told, "param": None, "code": "overloaded"}}, "503 Service Unavailable")
        if "find_items" in json.dumps(asked.get("tools") or []) and asked["messages"][-1]["role"] != "tool":
            return _calls_tool("find_items", {"query": "lamps", "stage": "small"})
        text = ANSWERS[key] if key in said else "All right."
        return [text[n : n + PIECE] for n in range(0, len(text), PIECE)]

    plain = chat_script(answer, model=MODEL, max_model_len=128_000)
    assert callable(plain)

    def route(request: Recorded) -> Reply:
        if request.path == "/v1/chat/completions" and AGENT.encode()[:40] in request.body:
            with lock:
                if not agent:
                    agent.append(agent_model())
            made: Reply = agent[0](request)
            return made
        made = plain(request)
        return Reply([Pause(PAUSE_S) if isinstance(each, Pause) else each for each in made.steps])

    return route


def agent_model() -> ScriptedModel:
    counter = Tokenizers().for_model(MODEL)
    made = work(7, counter.count, results=9, tokens=16_000, questions=3, apart=3, giant=4_000, again=1)
    return ScriptedModel(made, counter, 128_000)


def _calls_tool(name: str, arguments: Mapping[str, Any]) -> Reply:
    call = {"id": "call_find_1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choices = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    usage = {"prompt_tokens": 96, "completion_tokens": 18, "total_tokens": 114}
    head = {"id": "chatcmpl-tool", "object": "chat.completion", "created": 1700000000, "model": MODEL}
    return reply_json({**head, "choices": choices, "usage": usage})


def _last(asked: Mapping[str, Any]) -> str:
    """The client's own last words: what Mneme wove in stands before or after them."""
    return json.dumps(
        [each["content"] for each in asked["messages"] if each["role"] == "user"][-1:], ensure_ascii=False
    )


def _augmented(asked: Mapping[str, Any]) -> bool:
    return len(json.dumps(asked["messages"])) > PLAIN_BYTES
