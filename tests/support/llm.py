"""What tests of the helper LLM share: one that answers what a test tells it, over HTTP, and a learner that asks it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import orjson

from app.features.helper import HelperClient, read_exchanges
from app.jobs.learn import Learner
from app.jobs.learn_llm import LlmLearner
from app.providers.helper import HelperEndpoint
from app.store.helper_usage import HelperUsage
from app.store.pools import Pool
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.learning import NOW

URL = "http://helper.test/v1"
TOKENS = 1_000
"""What each call says that it took."""


def completion(content: object) -> httpx.Response:
    """Return a chat completion with this content, as JSON unless it is text."""
    text = content if isinstance(content, str) else orjson.dumps(content).decode()
    choices = [{"message": {"content": text}, "finish_reason": "stop"}]
    return httpx.Response(200, json={"choices": choices, "usage": {"total_tokens": TOKENS}})


def stated(text: str, quote: str, message: int = 1, **other: Any) -> dict[str, Any]:
    """Return an item of an answer."""
    return {"message": message, "text": text, "quote": quote, "kind": "fact", **other}


@dataclass
class ScriptedLlm:
    """Answers by a function of the conversation that it is shown; `failures` come first. `asked`: all conversations;
    `requests`: their whole bodies."""

    answer: Callable[[dict[str, Any]], dict[str, Any]] = field(default=lambda _: {})
    failures: list[httpx.Response | Exception] = field(default_factory=list)
    meanwhile: Callable[[], Awaitable[None]] | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        body = orjson.loads(request.content)
        self.requests.append(body)
        user = body["messages"][1]["content"]
        conversation = orjson.loads(user.removeprefix("<conversation>\n").removesuffix("\n</conversation>"))
        self.asked.append(conversation)
        if self.meanwhile is not None:
            await self.meanwhile()
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return failure
        return completion(self.answer(conversation))


def note_id(conversation: dict[str, Any], text: str) -> str:
    """Return the id of the note with this text."""
    return next(str(note["id"]) for note in conversation["notes"] if note["text"] == text)


def llm_learner(pool: Pool, learner: Learner, *, tokens_per_day: int = 0, timeout_s: float = 5.0) -> LlmLearner:
    """Return what asks the LLM at `URL`."""
    usage = HelperUsage(pool, SQL, FakeClock(NOW), tokens_per_day=tokens_per_day)
    client = HelperClient(HelperEndpoint(URL, "helper", None), timeout_s=timeout_s, budget=usage)
    return LlmLearner(learner, partial(read_exchanges, client), usage)
