"""A check: its name, what is right and where that is written, and what was seen."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tests.conformance.stage import Stage

Area = Literal[
    "request", "headers", "response", "stream", "broken", "errors", "disconnect", "messages", "paths", "http"
]
AREAS: dict[Area, str] = {
    "request": "Request bodies, as the upstream got them",
    "headers": "Request headers, as the upstream got them",
    "response": "Answers",
    "stream": "Streams",
    "broken": "Broken answers",
    "errors": "Errors",
    "disconnect": "Clients that go away",
    "messages": "Anthropic's /v1/messages",
    "paths": "Other paths under /v1",
    "http": "HTTP",
}

OPENAI = "OpenAI API reference"
TRANSPARENCY = "byte transparency"
SSE = "WHATWG HTML §9.2"
MOST_TOLD = 6
"""Differences of one check that are told; the rest is counted."""


class Seen:
    """What a check saw. `differences` are against what is right; `notes` are worth telling, and no fault."""

    def __init__(self) -> None:
        self.differences: list[str] = []
        self.notes: list[str] = []

    def differs(self, *what: str) -> None:
        self.differences += what

    def note(self, what: str) -> None:
        self.notes.append(what)

    def equal(self, what: str, right: object, got: object) -> None:
        if right != got:
            self.differs(f"{what}: {short(got)} instead of {short(right)}")


Run = Callable[["Stage", Seen], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """`right`: what must be seen, in a sentence. `source`: the document that says so."""

    name: str
    area: Area
    right: str
    source: str
    run: Run


@dataclass(frozen=True, slots=True)
class Result:
    """What one check saw of one contender."""

    name: str
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        return not self.differences


_checks: list[Check] = []


def check(name: str, right: str, source: str = TRANSPARENCY) -> Callable[[Run], Run]:
    """Makes a function the check `AREA.NAME`, where its module says the area; the order of definition is that of the report."""

    def decorate(run: Run) -> Run:
        module = inspect.getmodule(run)
        assert module is not None
        add(module.AREA, name, right, source, run)
        return run

    return decorate


def add(area: Area, name: str, right: str, source: str, run: Run) -> None:
    """One check more."""
    full = f"{area}.{name}"
    assert full not in {each.name for each in _checks}, full
    _checks.append(Check(full, area, right, source, run))


def all_checks() -> Sequence[Check]:
    """Every check, by area."""
    from tests.conformance import (  # noqa: F401  the modules that define them
        check_broken,
        check_disconnect,
        check_errors,
        check_headers,
        check_http,
        check_messages,
        check_paths,
        check_request,
        check_response,
        check_stream,
    )

    order = list(AREAS)
    return sorted(_checks, key=lambda each: order.index(each.area))


def short(value: object, most: int = 90) -> str:
    """A value in one line."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 3 :]} ({len(text)} characters)"


def told(differences: Sequence[str]) -> list[str]:
    """The differences, as many as can be read."""
    more = len(differences) - MOST_TOLD
    return [*differences[:MOST_TOLD], f"and {more} more"] if more > 0 else list(differences)
