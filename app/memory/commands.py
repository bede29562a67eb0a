"""What the user tells memory to do in the chat. A feature reads it (`app/features/commands`); without it, nothing does."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from app.optional import imported

CommandKind = Literal["forget", "correct", "remember", "recall", "stop", "allow"]
CommandScope = Literal["thing", "this", "everything"]


class Command(Struct, frozen=True):
    """One order to memory, as the user gave it.

    `about`: the user's words for what it is about ("I worked at Acme"); empty where it is about the message itself or
    everything. `scope`: `thing` ("forget that I worked at Acme"), `this` ("don't remember this"), `everything` ("forget
    everything about me"). `replacement`: of `correct`, what is so ("it's ..."), else empty. `language`: as `language_of`
    gives it. `span`: its place (start, end, in characters) in the user's message as it came. `plain`: it is meant as one for
    certain; one that asks to forget and stands after or beside something else is not, and may be of the moment.
    """

    kind: CommandKind
    about: str
    scope: CommandScope
    replacement: str
    language: str
    span: tuple[int, int]
    plain: bool = True


def commands(text: str) -> tuple[Command, ...]:
    """The commands in a message of the user's, in the order in which they stand; quoted and pasted text gives none."""
    grammar = imported("commands.grammar")
    found: tuple[Command, ...] = grammar.commands(text) if grammar is not None else ()
    return found
