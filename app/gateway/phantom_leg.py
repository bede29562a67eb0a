"""One leg of a turn while it comes in: its chunks, its tool calls, what it says. See `phantom_stream`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from msgspec import Struct, field

from app.gateway.phantom_tools import MAX_ARGUMENTS_CHARS, Names, PhantomCall
from app.gateway.sse import EventParser

MAX_TEXT_CHARS = 2**20
"""Of what a leg says that is kept for the next request (some 250,000 tokens, longer than any model's answer)."""
THOUGHTS = ("reasoning", "reasoning_content")
"""The names under which upstreams send what a model thinks."""
_SAID = ("content", *THOUGHTS)
_OF_A_CALL = frozenset({"index", "id", "type", "function"})


class Chunk:
    """An event that is a chunk of a chat completion, with the choice that is looked at: the one with index 0."""

    __slots__ = ("at", "data", "delta", "document", "event", "part", "pieces", "reason")

    def __init__(self, event: bytes, data: bytes, document: Mapping[str, Any]) -> None:
        self.event = event
        self.data = data
        self.document = document
        self.at = 0
        self.part: Mapping[str, Any] = {}
        for at, each in enumerate(document["choices"]):
            if isinstance(each, dict) and each.get("index") in (0, None):
                self.at, self.part = at, each
                break
        reason = self.part.get("finish_reason")
        self.reason = reason if isinstance(reason, str) else None
        delta = self.part.get("delta")
        self.delta: Mapping[str, Any] = delta if isinstance(delta, dict) else {}
        self.pieces: Sequence[Piece] = ()


class Call(Struct, eq=False):
    """A tool call while its deltas come in. Of one that is the client's only the place is kept."""

    key: int
    id: str = ""
    name: str = ""
    ours: bool | None = None
    """Whose it is; None while its name is not known."""
    kept: bool = False
    begun: bool = False
    shift: int = 0
    """How many phantom calls stand before it."""
    arguments: StringIO | None = None
    cut: bool = False
    other: dict[str, Any] = field(default_factory=dict)

    def named(self, piece: Mapping[str, Any], names: Names) -> bool:
        """Read what a piece says of the call's name; whether it went on with it."""
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        name = function.get("name")
        grown = isinstance(name, str) and name not in ("", self.name)
        first = not self.name and not grown and not function.get("arguments") and "custom" not in piece
        if grown:
            self.name += str(name)
        if self.name in names:
            self.ours = True
        elif not (grown or first) or function.get("arguments") or not any(n.startswith(self.name) for n in names):
            self.ours = False
        return grown or first

    def take(self, piece: Mapping[str, Any]) -> None:
        """Keep what a piece of a phantom call says."""
        if self.arguments is None:
            self.arguments = StringIO()
        function = piece.get("function")
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(arguments, str):
            room = MAX_ARGUMENTS_CHARS - self.arguments.tell()
            self.arguments.write(arguments[:room])
            self.cut = self.cut or len(arguments) > room
        self.other |= {k: v for k, v in piece.items() if k not in _OF_A_CALL}


Piece = tuple[int, Call, Mapping[str, Any]]
"""One element of a delta's `tool_calls`: its position, its call, itself."""


class Leg:
    """One answer of the upstream while it comes in."""

    def __init__(self) -> None:
        self.parser = EventParser()
        self.held: list[bytes] = []
        self.held_size = 0
        self.fresh = True
        self.unread = False
        """The event that is coming in is passed on unread."""
        self.waiting: list[Chunk] = []
        self.calls: dict[int, Call] = {}
        self.ours: list[Call] = []
        self.theirs = 0
        self.said: dict[str, StringIO] = {}
        self.usage: dict[str, Any] | None = None
        self.finish: str | None = None
        self.followed = False
        """Its end was kept back, for another leg will come."""
        self.failed = False
        self.done = False
        self.closed = False
        self.over = False

    def take(self, delta: Mapping[str, Any]) -> None:
        """Keep what a delta says, for the message of the next request."""
        for name in _SAID:
            text = delta.get(name)
            if text and isinstance(text, str):
                kept = self.said.get(name)
                if kept is None:
                    kept = self.said[name] = StringIO()
                kept.write(text[: MAX_TEXT_CHARS - kept.tell()])

    def pieces(self, delta: Mapping[str, Any]) -> Sequence[Piece]:
        """The calls that a delta has pieces of."""
        given = delta.get("tool_calls")
        if not given or not isinstance(given, list):
            return ()
        return [(n, self.call(n, each), each) for n, each in enumerate(given) if isinstance(each, dict)]

    def call(self, position: int, piece: Mapping[str, Any]) -> Call:
        """The call that a piece belongs to; a new one, if it is its first."""
        given, index = piece.get("id"), piece.get("index")
        key = index if isinstance(index, int) else position
        if not isinstance(index, int) and position in self.calls:  # some servers send none: a new id begins a new call
            known = [at for at, each in self.calls.items() if each.id == given]
            key = known[0] if known else len(self.calls) if given else max(self.calls)
        call = self.calls.get(key)
        if call is None:
            call = self.calls[key] = Call(key)
        if not call.id and isinstance(given, str):
            call.id = given
        return call

    def texts(self) -> dict[str, str]:
        """What was kept of what it says: `content`, and its reasoning under the upstream's own name."""
        return {name: text.getvalue() for name, text in self.said.items()}

    def whole(self) -> tuple[PhantomCall, ...]:
        """The phantom calls in the order of their message. One without an id of its own gets one: its result must name it."""
        made: list[PhantomCall] = []
        used: set[str] = set()
        for position, (_, call) in enumerate(sorted(self.calls.items())):
            if call.kept:
                unique = call.id if call.id and call.id not in used else f"call_phantom_{position}"
                used.add(unique)
                arguments = call.arguments.getvalue() if call.arguments is not None else ""
                made.append(PhantomCall(unique, call.name, arguments, position, call.cut, dict(call.other)))
        return tuple(made)
