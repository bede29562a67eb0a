"""Server-sent events, looked at as bytes (WHATWG HTML §9.2).

Nothing here holds a socket or the stream's bytes: `EventParser` says where events begin and end, `EndGuard` which bytes
may be sent on, `fold` what a finished stream of chat completion chunks amounts to. All work is linear in the bytes, for
any chunk boundaries.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct, field

from app.context.reasoning import FIELDS, is_thought_part, merge_pieces
from app.gateway.dialects.splice import parse_object
from app.json_text import BYTE_ORDER_MARK, pair_surrogates, read_json_piece

# One end of line. A lone \r only counts when what follows it is known not to be the \n that belongs to it.
_EOL = rb"(?:\r\n|\n|\r(?!\n))"
_BLANK_LINE = re.compile(_EOL + rb"(?:\r\n|\n|\r)")
_LINES = re.compile(rb"\r\n|\n|\r")
_LONGEST_SPLIT = 2
"""Last bytes of a chunk that a blank line can still be made of: the end of a line and a carriage return."""

DONE = b"[DONE]"
_DONE_LINE = re.compile(rb"(?<![^\r\n])data: ?\[DONE\]")
_DONE_FORMS = (b"data: [DONE]", b"data:[DONE]")
_LF, _CR = b"\n\r"


# --- events --------------------------------------------------------------------------------------------------------------


class EventParser:
    """Finds the events of a stream that arrives in pieces.

    An event is given as the (start, end) offsets of its bytes in the body, its blank line included. Events are
    contiguous and cover the body: a comment such as `: keep-alive` is one too, it only has no data.
    """

    __slots__ = ("_start", "_tail", "size")

    def __init__(self) -> None:
        self.size = 0
        """Bytes seen."""
        self._start = 0
        self._tail = b""

    def feed(self, chunk: bytes) -> list[tuple[int, int]]:
        """The events that end in `chunk`.

        When the chunk ends in a lone carriage return, the event it ends is only given with the next byte, which may
        belong to it.
        """
        base = self.size - len(self._tail)
        data = self._tail + chunk if self._tail else chunk
        self.size += len(chunk)
        events: list[tuple[int, int]] = []
        done = 0
        if b"\r" not in data:
            while (at := data.find(b"\n\n", done)) >= 0:
                done = at + 2
                events.append((self._start, base + done))
                self._start = base + done
        else:
            for blank in _BLANK_LINE.finditer(data):
                if blank.end() == len(data) and data[-1] == _CR:
                    break
                done = blank.end()
                events.append((self._start, base + done))
                self._start = base + done
        self._tail = data[max(done, len(data) - _LONGEST_SPLIT) :]
        return events

    def finish(self) -> tuple[int, int] | None:
        """The last event, if the stream ended without the blank line behind it."""
        last = (self._start, self.size)
        self._start = self.size
        self._tail = b""
        return last if last[0] < last[1] else None


# --- ends ----------------------------------------------------------------------------------------------------------------


class _HeldEnd:
    """Holds back the end of a stream, from the first line of it on.

    A few bytes at the beginning of a line that could still become that line wait too. Nothing else ever does.
    """

    __slots__ = ("_at_line_start", "_held", "ended")

    def __init__(self) -> None:
        self.ended = False
        """All that means something has come."""
        self._held: list[bytes] = []
        self._at_line_start = True

    def rest(self) -> bytes:
        """What is held back; given out once."""
        held = b"".join(self._held)
        self._held.clear()
        return held

    def _begin_of(self, line: re.Pattern[bytes], chunk: bytes) -> int | None:
        found = (each.start() for each in line.finditer(chunk))
        return next((start for start in found if start > 0 or self._at_line_start), None)


class EndGuard(_HeldEnd):
    """Holds back everything from the line `data: [DONE]` on."""

    __slots__ = ()

    def feed(self, chunk: bytes) -> bytes:
        """The bytes that may be sent now."""
        if self.ended:
            self._held.append(chunk)
            return b""
        if self._held:
            chunk = self._held.pop() + chunk
        if not chunk:
            return chunk
        cut = self._begin_of(_DONE_LINE, chunk) if DONE in chunk else None
        if cut is not None:
            self.ended = True
        elif chunk[-1] in (_LF, _CR):
            self._at_line_start = True
            return chunk
        else:
            cut = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
            begins_a_line = cut > 0 or self._at_line_start
            if not begins_a_line or not any(form.startswith(chunk[cut : cut + len(form)]) for form in _DONE_FORMS):
                self._at_line_start = False
                return chunk
        self._at_line_start = True
        self._held.append(chunk[cut:])
        return chunk[:cut]


class LastEvents:
    """Named events that end a stream, beside `error`, and `[DONE]` where a server sends that. Some servers leave an event's
    name out; then it is the first of its data."""

    __slots__ = ("forms", "line", "longest", "marks")

    def __init__(self, names: Sequence[str]) -> None:
        named = [f"event:{space}{name}" for space in (" ", "") for name in (*names, "error")]
        typed = [
            f'data:{space}{{"type":{inner}"{name}"' for space in (" ", "") for inner in ("", " ") for name in names
        ]
        self.forms = (*(each.encode() for each in (*named, *typed)), *_DONE_FORMS)
        """How the first line of the last event begins."""
        self.marks = (*(name.encode() for name in names), DONE, b"event: error", b"event:error")
        """One of these is in it."""
        self.line = re.compile(rb"(?<![^\r\n])(?:" + b"|".join(map(re.escape, self.forms)) + rb")")
        self.longest = max(map(len, self.forms))


class LastEventGuard(_HeldEnd):
    """Holds back the last event of a stream of named events, and what follows; it ends when that event is whole."""

    __slots__ = ("_last", "_lasts")

    def __init__(self, lasts: LastEvents) -> None:
        super().__init__()
        self._lasts = lasts
        self._last: EventParser | None = None

    def feed(self, chunk: bytes) -> bytes:
        """The bytes that may be sent now."""
        if self._last is not None:
            self._hold(chunk)
            return b""
        if self._held:
            chunk = self._held.pop() + chunk
        if not chunk:
            return chunk
        lasts = self._lasts
        cut = self._begin_of(lasts.line, chunk) if any(mark in chunk for mark in lasts.marks) else None
        if cut is not None:
            self._last = EventParser()
            self._hold(chunk[cut:])
            return chunk[:cut]
        cut = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        begins_a_line = cut > 0 or self._at_line_start
        rest = chunk[cut:]
        if begins_a_line and rest and len(rest) < lasts.longest and any(form.startswith(rest) for form in lasts.forms):
            self._held.append(rest)
            self._at_line_start = True
            return chunk[:cut]
        self._at_line_start = not rest
        return chunk

    def _hold(self, chunk: bytes) -> None:
        self._held.append(chunk)
        if self._last is not None and self._last.feed(chunk):
            self.ended = True


def data_of(event: bytes) -> bytes | None:
    """Return the data of one event: its `data` lines, joined by newlines; None when it has none.

    The first event of a stream may have a byte order mark in front.
    """
    if event.startswith(b"data: ") and event.endswith(b"\n\n") and event.count(b"\n") == 2 and b"\r" not in event:
        return event[6:-2]
    lines = []
    for line in _LINES.split(event.removeprefix(BYTE_ORDER_MARK)):
        name, colon, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" ") if colon else b"")
    return b"\n".join(lines) if lines else None


def payloads(body: bytes) -> Iterator[bytes]:
    """The data of every event of a whole body that has any."""
    parser = EventParser()
    for start, end in [*parser.feed(body), parser.finish() or (0, 0)]:
        data = data_of(body[start:end])
        if data is not None:
            yield data


# --- answers -------------------------------------------------------------------------------------------------------------


class Choice(Struct):
    """One answer of several (`n`)."""

    index: int = 0
    role: str | None = None
    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    """As in a whole message: `{"id", "type", "function": {"name", "arguments"}}`."""
    function_call: dict[str, Any] | None = None
    finish_reason: str | None = None
    reasoning_record: dict[str, Any] | None = None
    """The reasoning in the form in which the upstream sent it, see `context.reasoning`."""


class UpstreamAnswer(Struct):
    """What an upstream answered, whether it came as a stream or in one piece."""

    choices: list[Choice] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    model: str | None = None
    id: str | None = None
    created: int | None = None
    error: Any = None
    """The `error` of a body or of an event in mid-stream."""
    done: bool = False
    """`[DONE]` was seen, or the body came in one piece."""
    malformed: int = 0
    """Events that could not be read, and were skipped."""


def fold(events: Iterable[bytes]) -> UpstreamAnswer:
    """Put a stream of chat completion chunks together again. `events` are the data of its events, see `payloads`."""
    answer = UpstreamAnswer()
    choices: dict[int, _Growing] = {}
    chunks, is_invalid = _read_events(events, answer)
    for chunk in chunks:
        if not isinstance(chunk, dict):
            answer.malformed += 1
            continue
        _take_head(answer, chunk)
        parts = chunk.get("choices")
        if not isinstance(parts, list):
            continue
        for part in parts:
            if not isinstance(part, dict):
                answer.malformed += 1
                continue
            index = _index(part, 0)
            if index not in choices:
                choices[index] = _Growing(index)
            choices[index].take(part)
    answer.choices = [choices[index].whole() for index in sorted(choices)]
    if is_invalid:
        pair_answer(answer)
    return answer


def answer_of_json(body: bytes) -> UpstreamAnswer | None:
    """The answer in a chat completion that came in one piece; None when it is not a JSON object."""
    document = parse_object(body)
    if document is None:
        return None
    answer = UpstreamAnswer(done=True)
    _take_head(answer, document)
    parts = document.get("choices")
    for position, part in enumerate(parts if isinstance(parts, list) else ()):
        message = part.get("message") if isinstance(part, dict) else None
        if not isinstance(message, dict):
            answer.malformed += 1
            continue
        choice = _Growing(_index(part, position))
        choice.take({"delta": message, "finish_reason": part.get("finish_reason")})
        answer.choices.append(choice.whole())
    return answer


def pair_answer(answer: UpstreamAnswer) -> None:
    """Turn the lone surrogates of an answer's texts into valid text, once its events are joined (see `read_json_piece`)."""
    for struct in (answer, *answer.choices):
        for name in struct.__struct_fields__:
            if name != "choices":
                setattr(struct, name, pair_surrogates(getattr(struct, name)))


def _read_events(events: Iterable[bytes], answer: UpstreamAnswer) -> tuple[list[Any], bool]:
    """Return the values of all events, and whether any may hold lone surrogates; valid events are read in one call."""
    texts = []
    for data in events:
        if data.strip() == DONE:
            answer.done = True
        else:
            texts.append(data)
    try:
        whole: list[Any] = orjson.loads(b"[" + b",".join(texts) + b"]")
    except orjson.JSONDecodeError:
        whole = []
    if len(whole) == len(texts):  # an event may hold a comma of its own and still make the list valid
        return whole, False
    chunks, is_invalid = [], False
    for data in texts:
        try:
            chunk, has_surrogates = read_json_piece(data)
        except ValueError:
            answer.malformed += 1
            continue
        chunks.append(chunk)
        is_invalid = is_invalid or has_surrogates
    return chunks, is_invalid


def _take_head(answer: UpstreamAnswer, chunk: dict[str, Any]) -> None:
    if answer.id is None and isinstance(chunk.get("id"), str):
        answer.id = chunk["id"]
    if answer.model is None and isinstance(chunk.get("model"), str):
        answer.model = chunk["model"]
    if answer.created is None and isinstance(chunk.get("created"), int):
        answer.created = chunk["created"]
    if isinstance(chunk.get("usage"), dict):
        answer.usage = chunk["usage"]
    if chunk.get("error"):
        answer.error = chunk["error"]


def _index(part: dict[str, Any], otherwise: int) -> int:
    index = part.get("index")
    return index if isinstance(index, int) else otherwise


def _text(value: object) -> str | None:
    """The text of a content: itself, or that of its text parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        texts = [part.get("text") for part in value if isinstance(part, dict)]
        return "".join(text for text in texts if isinstance(text, str))
    return None


def _join_values(values: list[Any]) -> Any:
    """Return the value of a field over all deltas: texts joined, lists merged, otherwise the last value."""
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, list) for value in values):
        return merge_pieces(values)
    return values[-1]


class IndexSlots:
    """Gives each item of a stream a place of its own, even if a server sends one index for several items."""

    __slots__ = ("_newest", "_used")

    def __init__(self) -> None:
        self._newest: dict[int, int] = {}
        self._used: set[int] = set()

    def begin(self, index: int) -> int:
        """Return the place of a new item with this index: the index itself, unless an earlier item has that place."""
        slot = max(self._used) + 1 if index in self._used else index
        self._newest[index] = slot
        self._used.add(slot)
        return slot

    def find(self, index: int) -> int:
        """Return the place of the newest item with this index."""
        return self._newest[index] if index in self._newest else self.begin(index)


CallKey = tuple[int, int]
"""A tool call's own place in its message, and the index that the server gave it, which several calls may share (without one,
its number in the order of arrival)."""


class _RoutedCall(Struct, eq=False):
    """A tool call that has begun, with what `CallRouter` needs to recognise its further pieces."""

    key: CallKey
    index: int | None
    id: str = ""
    name: str = ""
    last_arguments: str = ""


class CallRouter:
    """Finds the tool call to which each piece of a stream belongs.

    OpenAI counts calls by `index` and names each once. Other servers send index 0 for all calls, or none, or repeat id and
    name in every piece, or send no id, or another in every piece.
    """

    __slots__ = ("_calls", "_slots")

    def __init__(self) -> None:
        self._calls: list[_RoutedCall] = []
        self._slots = IndexSlots()

    def route(self, pieces: Sequence[object]) -> list[tuple[CallKey, int, dict[str, Any]]]:
        """Return (call key, position in the delta, piece) for each piece of one delta."""
        touched: set[CallKey] = set()
        routed = []
        for position, piece in enumerate(pieces):
            if isinstance(piece, dict):
                call = self._route_piece(position, piece, touched)
                touched.add(call.key)
                routed.append((call.key, position, piece))
        return routed

    def _route_piece(self, position: int, piece: Mapping[str, Any], touched: Collection[CallKey]) -> _RoutedCall:
        index = piece.get("index")
        index = index if isinstance(index, int) else None
        function = piece.get("function") or piece.get("custom")
        function = function if isinstance(function, dict) else {}
        call_id, name = (value if isinstance(value, str) else "" for value in (piece.get("id"), function.get("name")))
        arguments = function.get("arguments")
        arguments = arguments if isinstance(arguments, str) else ""
        call = self._find_call(index, position, call_id)
        if call is None or _begins_call(call, call_id, name, arguments, is_touched=call.key in touched):
            own_index = len(self._calls) if index is None else index
            call = _RoutedCall((self._slots.begin(own_index), own_index), index)
            self._calls.append(call)
        call.id = call.id or call_id
        if name != call.name:
            call.name += name
        call.last_arguments = arguments or call.last_arguments
        return call

    def _find_call(self, index: int | None, position: int, call_id: str) -> _RoutedCall | None:
        """Return the call with this index and id, else the newest with this index; None where there is none."""
        calls = [call for call in self._calls if call.index == index]
        if index is None and position >= len(calls):
            return None
        same_id = [call for call in calls if call_id and call.id == call_id]
        return (same_id or calls)[-1] if calls else None


def _begins_call(call: _RoutedCall, call_id: str, name: str, arguments: str, *, is_touched: bool) -> bool:
    """Return whether a piece with the index of `call` begins a new call. `is_touched`: its delta had a piece of `call`."""
    if call_id and call.id and call_id != call.id:
        return bool(name) or not arguments  # some servers send arguments with a new id each time, and no name
    if not name:
        return False
    if is_touched and not (call_id and call_id == call.id):
        return True
    is_restart = call.last_arguments.rstrip().endswith("}") and arguments.lstrip().startswith("{")
    return bool(call.last_arguments) and (name != call.name or is_restart)


class _Growing:
    """A choice while its deltas come in. Texts are collected and joined once."""

    __slots__ = ("_calls", "_choice", "_function", "_reasoning", "_router", "_texts")

    def __init__(self, index: int) -> None:
        self._choice = Choice(index)
        self._reasoning: dict[str, list[Any]] = {}
        self._texts: dict[str, list[str]] = {}
        self._router = CallRouter()
        self._calls: dict[CallKey, _GrowingCall] = {}
        self._function: _GrowingCall | None = None

    def take(self, part: dict[str, Any]) -> None:
        reason = part.get("finish_reason")
        if isinstance(reason, str):
            self._choice.finish_reason = reason
        delta = part.get("delta")
        if not isinstance(delta, dict):
            return
        for name in ("content", "refusal"):
            self._take_text(name, delta.get(name))
        thought = delta.get("reasoning")
        self._take_text("reasoning", thought if thought is not None else delta.get("reasoning_content"))
        self._take_reasoning(delta)
        role = delta.get("role")
        if self._choice.role is None and isinstance(role, str):
            self._choice.role = role
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            for key, _, call in self._router.route(calls):
                if key not in self._calls:
                    self._calls[key] = _GrowingCall()
                self._calls[key].take(call)
        function = delta.get("function_call")
        if isinstance(function, dict):
            self._function = self._function or _GrowingCall()
            self._function.take_function(function)

    def _take_text(self, name: str, value: object) -> None:
        text = _text(value)
        if text is not None:
            self._texts.setdefault(name, []).append(text)

    def _take_reasoning(self, delta: dict[str, Any]) -> None:
        """Collect the reasoning of a delta unchanged, because some upstreams want it back."""
        for name in delta:
            if name in FIELDS and delta[name] is not None:
                self._reasoning.setdefault(name, []).append(delta[name])
        content = delta.get("content")
        if isinstance(content, list):
            parts = [part for part in content if is_thought_part(part)]
            if parts:
                self._reasoning.setdefault("content", []).append(parts)

    def _build_record(self) -> dict[str, Any] | None:
        values = {name: _join_values(values) for name, values in self._reasoning.items()}
        parts = values.pop("content", None)
        record = ({"chat": values} if values else {}) | ({"parts": parts} if parts else {})
        return record or None

    def whole(self) -> Choice:
        choice = self._choice
        choice.content, choice.refusal, choice.reasoning = (
            "".join(self._texts[name]) if name in self._texts else None for name in ("content", "refusal", "reasoning")
        )
        choice.reasoning_record = self._build_record()
        choice.tool_calls = [self._calls[key].whole() for key in sorted(self._calls)]
        choice.function_call = self._function.function() if self._function is not None else None
        return choice


class _GrowingCall:
    """A tool call while its deltas come in."""

    __slots__ = ("_arguments", "_name", "_other", "_type", "id")

    def __init__(self) -> None:
        self.id = ""
        self._type = "function"
        self._name = ""
        self._arguments: list[str] = []
        self._other: dict[str, Any] = {}

    def take(self, call: dict[str, Any]) -> None:
        call_id = call.get("id")
        if isinstance(call_id, str) and not self.id:
            self.id = call_id
        if isinstance(call.get("type"), str):
            self._type = call["type"]
        if isinstance(call.get("function"), dict):
            self.take_function(call["function"])
        self._other.update(
            {key: value for key, value in call.items() if key not in ("index", "id", "type", "function")}
        )

    def take_function(self, function: dict[str, Any]) -> None:
        name = function.get("name")
        if isinstance(name, str) and name != self._name:  # some servers repeat it in every delta
            self._name += name
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            self._arguments.append(arguments)

    def function(self) -> dict[str, Any]:
        return {"name": self._name, "arguments": "".join(self._arguments)}

    def whole(self) -> dict[str, Any]:
        call: dict[str, Any] = {"id": self.id, "type": self._type}
        if self._name or self._arguments or self._type == "function":
            call["function"] = self.function()
        return {**call, **self._other}
