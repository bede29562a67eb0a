"""What the Python clients share: the questions, and the telling of what came of them, a line of JSON for each scenario."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections.abc import Callable
from typing import Any

BASE_URL = os.environ["BASE_URL"]
KEY = "sk-test"
SHORT_S = 1.0
"""Seconds until a client that has set itself a time limit gives up."""
TURNS = ("Question 1", "Question 2", "Question 3")
PICTURE = "data:image/png;base64,iVBORw0KGgo="
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
CAT: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def headers(scenario: str, session: bool = False) -> dict[str, str]:
    """Each scenario is a user of its own, and all of a client's calls have its label."""
    prefix = os.environ["USER_PREFIX"]
    named = {"X-Mneme-User": f"{prefix}-{scenario}", "X-Mneme-Label": prefix}
    return {**named, **({"X-Mneme-Session": "mine"} if session else {})}


def run(scenarios: dict[str, Callable[[], Any]]) -> None:
    """Play them all, and tell."""
    for name, play in scenarios.items():
        try:
            result = asyncio.run(play()) if inspect.iscoroutinefunction(play) else play()
            told = {"scenario": name, "result": result}
        except Exception as error:  # noqa: BLE001 - whatever a client raises is what is to be told
            told = {"scenario": name, "raised": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(told), flush=True)


def status_of(error: BaseException) -> int | None:
    """The HTTP status in an error, or in what it was made of."""
    seen: BaseException | None = error
    while seen is not None:
        status = getattr(seen, "status_code", None)
        if isinstance(status, int):
            return status
        seen = seen.__cause__ or seen.__context__
    return None
