"""What the user tells memory to do, in the chat itself: forget, correct, remember, recall."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CommandKind = Literal["forget", "correct", "remember", "recall"]
CommandScope = Literal["thing", "this", "everything"]


@dataclass(frozen=True, slots=True)
class Command:
    """One order to memory, as the user gave it.

    `about`: the user's words for what it is about ("I worked at Acme"); empty where it is about the message itself or
    everything. `scope`: `thing` ("forget that I worked at Acme"), `this` ("don't remember this"), `everything` ("forget
    everything about me"). `replacement`: of `correct`, what is so ("it's ..."), else empty. `language`: as `language_of`
    gives it. `span`: its place (start, end, in characters) in the user's message as it came.
    """

    kind: CommandKind
    about: str
    scope: CommandScope
    replacement: str
    language: str
    span: tuple[int, int]


def commands(text: str) -> tuple[Command, ...]:
    """The commands in a message of the user's, in the order in which they stand; quoted and pasted text gives none."""
    return ()
