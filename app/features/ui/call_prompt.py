"""A prompt as it was received and as it was sent: the same messages, and what Mneme put between. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from app.context.assemble import neutralise
from app.dialects.registry import dialect_of

Mark = Literal["own", "added", "removed"]

SHOWN_MESSAGES = 60
"""Messages of a prompt that a page shows; those that Mneme touched, and the last ones, first of all."""
SHOWN_CHARS = 12_000
"""Of one piece of a message, characters; the rest is in the download."""
COMPARED_LINES = 400
"""Most lines of a text that are compared line by line: that takes some 30 ms."""
FOLDED_CHARS = 1_200
"""From which on a text is folded."""
_MEMORY = re.compile(r"- \[[a-z_]+\] (.*) \(\d{4}-\d\d-\d\d(?:, confidence [\d.]+)?\)\Z")
_TURN = re.compile(r"[^:\n]{1,32}: (.*)\Z")


class PromptLine(NamedTuple):
    """A line of what was added; `item`: id of the candidate that it quotes."""

    text: str
    item: str | None = None


class PromptPiece(Struct, frozen=True):
    """A part of a message. `removed`: the client sent it, the upstream did not get it. `chars`: with what is not shown."""

    mark: Mark
    text: str
    chars: int
    lines: list[PromptLine] = field(default_factory=list)

    @property
    def folded(self) -> bool:
        return len(self.text) > FOLDED_CHARS and self.mark != "added"

    @property
    def rest(self) -> int:
        """Characters that are not shown."""
        return self.chars - len(self.text)


class Shown(Struct, frozen=True):
    """A message. `mark` added: all of it is Mneme's."""

    place: int
    role: str
    mark: Mark
    pieces: Sequence[PromptPiece]
    calls: str = ""

    @property
    def touched(self) -> bool:
        return self.mark != "own" or any(each.mark != "own" for each in self.pieces)


class Prompt(Struct, frozen=True):
    """`messages`: those that are shown; `omitted`: how many are not. `fields`: what else differs: name, received, sent."""

    messages: Sequence[Shown]
    omitted: int
    total: int
    fields: Sequence[tuple[str, str, str]] = ()
    added: int = 0
    """Characters that Mneme added."""

    @property
    def quoted(self) -> set[str]:
        """Ids of the candidates that lines of it quote."""
        lines = (line for each in self.messages for piece in each.pieces for line in piece.lines)
        return {line.item for line in lines if line.item is not None}


class _Message(Struct):
    role: str
    text: str
    calls: str


def read(body: bytes) -> dict[str, Any] | None:
    """A JSON object; None: it is none, or nested deeper than it can be compared and written (254 levels)."""
    try:
        found = orjson.loads(body)
        orjson.dumps(found)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    return found if isinstance(found, dict) else None


def messages_of(document: Mapping[str, Any] | None, path: str) -> list[Mapping[str, Any]]:
    """The messages of a request, in the shape of chat completions; none where it has none."""
    dialect = dialect_of("POST", path.partition("?")[0])
    if document is None or dialect is None:
        return []
    try:
        return [each for each in dialect.messages(document) or () if isinstance(each, Mapping)]
    except (KeyError, TypeError, ValueError, AttributeError):  # bodies of anything
        return []


def text_of(content: object) -> str:
    """Of a message's content what is text, and of the rest what it is."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return _json(content)
    parts = []
    for each in content:
        if isinstance(each, Mapping) and isinstance(each.get("text"), str):
            parts.append(each["text"])
        else:
            kind = each.get("type") if isinstance(each, Mapping) else None
            parts.append(f"[{kind or 'part'}: {len(_json(each)):,} characters]")
    return "\n\n".join(parts)


def last_said(messages: Sequence[Mapping[str, Any]], role: str = "user") -> str | None:
    """The last message's text of that role."""
    return next((text_of(each.get("content")) for each in reversed(messages) if each.get("role") == role), None)


def compare(
    received: Sequence[Mapping[str, Any]], sent: Sequence[Mapping[str, Any]], quoted: Mapping[str, str] | None = None
) -> Prompt:
    """What was sent, message by message, each marked with what it was received as. `quoted`: neutralised texts of candidates,
    with their ids.

    Aligned from the end, for what Mneme supplies stands before what the client said.
    """
    was, now = [_message(each) for each in received], [_message(each) for each in sent]
    pairs: list[tuple[_Message | None, _Message]] = []
    left, spare = len(was), max(0, len(now) - len(was))
    for each in reversed(now):
        one = was[left - 1] if left else None
        if one is not None and (_alike(one, each) or not spare):
            pairs.append((one, each))
            left -= 1
        else:
            pairs.append((None, each))
            spare -= 1
    pairs.reverse()
    made = [_shown(place, one, each, quoted or {}) for place, (one, each) in enumerate(pairs, 1)]
    made = [*(_gone(each) for each in was[:left]), *made]
    _each_once(made)
    added = sum(piece.chars for each in made for piece in each.pieces if piece.mark == "added")
    kept = _most_telling(made)
    return Prompt(kept, len(made) - len(kept), len(made), added=added)


def other_fields(received: Mapping[str, Any] | None, sent: Mapping[str, Any] | None) -> list[tuple[str, str, str]]:
    """Fields beside the messages that Mneme changed: name, as received, as sent."""
    if received is None or sent is None:
        return []
    names = [name for name in {**received, **sent} if name not in ("messages", "input")]
    return [
        (
            name[:100],
            _json(received[name])[:SHOWN_CHARS] if name in received else "–",
            _json(sent.get(name))[:SHOWN_CHARS],
        )
        for name in names
        if received.get(name) != sent.get(name)
    ]


def with_fields(prompt: Prompt, fields: Sequence[tuple[str, str, str]]) -> Prompt:
    """With what `other_fields` found."""
    return replace(prompt, fields=fields)


def _most_telling(made: Sequence[Shown]) -> list[Shown]:
    if len(made) <= SHOWN_MESSAGES:
        return list(made)
    last = range(len(made) - SHOWN_MESSAGES // 3, len(made))
    touched = [n for n, each in enumerate(made) if each.touched and n not in last][-SHOWN_MESSAGES // 3 :]
    first = [n for n in range(len(made)) if n not in last and n not in touched]
    chosen = {*last, *touched, *first[: SHOWN_MESSAGES - len(last) - len(touched)]}
    return [each for n, each in enumerate(made) if n in chosen]


def _alike(one: _Message, other: _Message) -> bool:
    return one.role == other.role and one.calls == other.calls and one.text in other.text


def _message(given: Mapping[str, Any]) -> _Message:
    calls = given.get("tool_calls") or given.get("function_call")
    return _Message(str(given.get("role") or "?")[:40], text_of(given.get("content")), _json(calls) if calls else "")


def _shown(place: int, was: _Message | None, now: _Message, quoted: Mapping[str, str]) -> Shown:
    calls = now.calls[:SHOWN_CHARS]
    if was is None:
        return Shown(place, now.role, "added", [_piece("added", now.text, quoted)] if now.text else [], calls)
    return Shown(place, now.role, "own", _differing(was.text, now.text, quoted), calls)


def _gone(was: _Message) -> Shown:
    return Shown(0, was.role, "removed", [_piece("removed", was.text, {})], was.calls[:SHOWN_CHARS])


def _differing(was: str, now: str, quoted: Mapping[str, str]) -> list[PromptPiece]:
    """`now`, cut into what it was and what was added; between a common beginning and end what was removed."""
    if was == now:
        parts: list[tuple[Mark, str]] = [("own", now)]
    elif was and (at := now.rfind(was)) >= 0:
        parts = [("added", now[:at]), ("own", was), ("added", now[at + len(was) :])]
    else:
        head = _common(was, now)
        tail = _common(was[head:][::-1], now[head:][::-1])
        parts = _by_lines(was, now, head, tail) or [
            ("own", now[:head]),
            ("removed", was[head : len(was) - tail]),
            ("added", now[head : len(now) - tail]),
            ("own", now[len(now) - tail :]),
        ]
    return [_piece(mark, text, quoted) for mark, text in parts if text]


def _by_lines(was: str, now: str, head: int, tail: int) -> list[tuple[Mark, str]] | None:
    """The same for texts of many lines: which are new, which are gone. None: it would be no clearer, or take long."""
    head = now.rfind("\n", 0, head) + 1
    end = now.find("\n", len(now) - tail)
    tail = len(now) - end - 1 if end >= 0 else 0
    one = was[head : len(was) - tail].splitlines(keepends=True)
    other = now[head : len(now) - tail].splitlines(keepends=True)
    if not 1 < max(len(one), len(other)) <= COMPARED_LINES:
        return None
    parts: list[tuple[Mark, str]] = [("own", now[:head])]
    for kind, i, j, m, n in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if kind == "equal":
            parts.append(("own", "".join(other[m:n])))
        else:
            parts += [("removed", "".join(one[i:j])), ("added", "".join(other[m:n]))]
    return [*parts, ("own", now[len(now) - tail :])]


def _common(one: str, other: str) -> int:
    """Characters that both begin with; by halves, for texts of megabytes."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _piece(mark: Mark, text: str, quoted: Mapping[str, str]) -> PromptPiece:
    cut = text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS]
    lines = [PromptLine(each, _quotes(each, quoted)) for each in cut.strip("\n").split("\n")] if mark == "added" else []
    return PromptPiece(mark, cut, len(text), lines)


def _each_once(made: Sequence[Shown]) -> None:
    """A candidate is led to from where it stands first: ids are there once."""
    seen: set[str] = set()
    for piece in (piece for each in made for piece in each.pieces):
        for n, line in enumerate(piece.lines):
            if line.item is not None and line.item in seen:
                piece.lines[n] = PromptLine(line.text)
            elif line.item is not None:
                seen.add(line.item)


def _quotes(line: str, quoted: Mapping[str, str]) -> str | None:
    found = _MEMORY.match(line) or _TURN.match(line)
    return quoted.get(found[1]) if found and quoted else None


def quotable(items: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Texts of the candidates that stand in the prompt, in this turn's block or an earlier one, with their ids."""
    stand = [each for each in items if each["chosen"] or each["reason"] == "visible"]
    return {neutralise(each["text"]): str(each["id"]) for each in stand if each.get("text")}


def _json(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()
