"""A conversation with a customer. What was said in earlier ones is known through Mneme, which the base URL names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from openai import APIError, OpenAI, RateLimitError

from support_desk.orders import LOOK_UP, look_up

MODEL = os.environ.get("SUPPORT_DESK_MODEL", "gpt-4o-mini")
MANNER = "You are the support desk of a small chocolate shop. Answer in one or two friendly sentences."
MOST_LOOKUPS = 3
"""Rounds of tool calls for one question; then the desk gives up."""


class DeskClosed(Exception):
    """The customer gets no answer now; the message is for the customer."""


class Desk:
    """Use as a context manager. OPENAI_BASE_URL and OPENAI_API_KEY say where the model is, as for any OpenAI client."""

    def __init__(self, customer: str) -> None:
        # All that Mneme needs to know: whose memory it is.
        self._client = OpenAI(default_headers={"X-Mneme-User": customer})
        self._customer = customer
        self._messages: list[Any] = [{"role": "system", "content": MANNER}]

    def __enter__(self) -> Desk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def answer(self, question: str) -> str:
        """The answer, after whatever was to be looked up. Raises DeskClosed."""
        self._messages.append({"role": "user", "content": question})
        for _ in range(MOST_LOOKUPS + 1):
            message = self._ask()
            self._messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return message.content or ""
            for call in message.tool_calls:
                told = look_up(call.function.arguments, self._customer)
                self._messages.append({"role": "tool", "tool_call_id": call.id, "content": told})
        raise DeskClosed("That needs a closer look. A colleague will write to you.")

    def stream(self, question: str) -> Iterator[str]:
        """The answer, piece by piece, without looking anything up. Raises DeskClosed, also in the middle."""
        self._messages.append({"role": "user", "content": question})
        said = ""
        try:
            with self._client.chat.completions.create(model=MODEL, messages=self._messages, stream=True) as stream:
                for chunk in stream:
                    piece = (chunk.choices[0].delta.content or "") if chunk.choices else ""
                    said += piece
                    if piece:
                        yield piece
        except APIError as error:
            raise DeskClosed("We were cut off. Please ask again.") from error
        self._messages.append({"role": "assistant", "content": said})

    def _ask(self) -> Any:
        try:
            answer = self._client.chat.completions.create(
                model=MODEL,
                messages=self._messages,
                tools=[LOOK_UP],  # type: ignore[list-item]  # a plain mapping
            )
        except RateLimitError as error:
            raise DeskClosed("There is a queue at the desk. Please try again in a minute.") from error
        except APIError as error:
            raise DeskClosed("The desk is closed for the moment.") from error
        return answer.choices[0].message
