"""The dialect of `/v1/responses` (found by its name): `instructions` and `input`, a text or a list of items; a stream of named
events.

With `previous_response_id` or `conversation` the upstream itself holds what was said before: then memory knows the
conversation too, and nothing of it is supplied twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from app.context.assemble import SEPARATOR
from app.context.reasoning import REASONING, ReasoningRecord, fill_places, find_elements, keep_places
from app.context.transcript import SYSTEM_ROLES, Transcript, mark_of_answer
from app.gateway.dialects.base import NAMING, ChatRequest, Dialect, Guard, positive
from app.gateway.dialects.splice import (
    ByteSpan,
    Envelope,
    Insertion,
    append_text,
    dump,
    entries,
    escape,
    insert_messages,
    insert_text,
    parse_object,
    scan,
)
from app.gateway.dialects.sse import DONE, Choice, IndexSlots, LastEventGuard, LastEvents, UpstreamAnswer, pair_answer
from app.json_text import read_json, read_json_piece
from mneme_replay.paths import MASK

# --- requests ------------------------------------------------------------------------------------------------------------

_ROLES = frozenset({"user", "system", "developer"})
_THOUGHTS = frozenset({"reasoning"})
"""Items that hold reasoning."""
_PLAIN = frozenset({"input_text", "output_text", "text"})


def messages_of(items: Sequence[Any]) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
    """The messages in a list of items, and for each the items that it is made of, from and up to."""
    messages: list[dict[str, Any]] = []
    places: list[tuple[int, int]] = []
    said: list[Mapping[str, Any]] = []
    begun = 0
    for n, item in enumerate(items):
        message = _message(item) if isinstance(item, Mapping) else None
        if message is None:
            if not said:
                begun = n
            said.append(item if isinstance(item, Mapping) else {})
            continue
        _take_answer(said, begun, messages, places)
        said = []
        messages.append(message)
        places.append((n, n + 1))
    _take_answer(said, begun, messages, places)
    return messages, places


def _take_answer(
    items: Sequence[Mapping[str, Any]],
    begun: int,
    messages: list[dict[str, Any]],
    places: list[tuple[int, int]],
) -> None:
    """What the assistant said in these items, if anything."""
    message = assistant_of(items) if items else None
    if message is not None:
        messages.append(message)
        places.append((begun, begun + len(items)))


def assistant_of(items: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """One message of what a model gave in these items; None where it neither said nor called anything."""
    parts: list[Any] = []
    calls: list[dict[str, Any]] = []
    refusals: list[str] = []
    spoken = False
    for item in items:
        if item.get("role") == "assistant":
            spoken = True
            content = item.get("content")
            for part in content if isinstance(content, list) else [content]:
                refusal = part.get("refusal") if isinstance(part, Mapping) else None
                if isinstance(refusal, str):
                    refusals.append(refusal)
                elif part is not None:
                    parts.append(_part(part))
        elif (call := _call(item)) is not None:
            calls.append(call)
    if not spoken and not calls:
        return None
    message: dict[str, Any] = {"role": "assistant", "content": _content(parts)}
    if refusals:
        message["refusal"] = "\n".join(refusals)
    if calls:
        message["tool_calls"] = calls
    if record := keep_places(items, _THOUGHTS, "call_id"):
        message[REASONING] = ReasoningRecord(responses=record)
    return message


def items_of(messages: Iterable[Mapping[str, Any]], *, stores: bool = True) -> list[dict[str, Any]]:
    """Return messages as items of an input. `stores`: the upstream keeps its answers, so that it knows an item by its id."""
    items: list[dict[str, Any]] = []
    custom: set[object] = set()
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role == "tool":
            kind = "custom_tool_call_output" if message.get("tool_call_id") in custom else "function_call_output"
            output = _parts_in(content, "input_text") if isinstance(content, list) else content or ""
            items.append({"type": kind, "call_id": message.get("tool_call_id"), "output": output})
            continue
        text = "output_text" if role == "assistant" else "input_text"
        texts: list[dict[str, Any]] = []
        if isinstance(content, list):
            texts.append({"role": role, "content": _parts_in(content, text)})
        elif content or not message.get("tool_calls"):
            refusal = message.get("refusal")
            texts.append({"role": role, "content": content or (refusal if isinstance(refusal, str) else "")})
        tool_calls = message.get("tool_calls")
        calls = [call for call in (tool_calls if isinstance(tool_calls, list) else ()) if isinstance(call, Mapping)]
        custom.update(call.get("id") for call in calls if call.get("type") == "custom")
        called = [(call.get("id"), _call_item(call)) for call in calls]
        record = [item for item in find_elements(message, "responses") if stores or not _is_reference(item)]
        items += fill_places(record, texts, called)
    return items


def _is_reference(item: Mapping[str, Any]) -> bool:
    """Return whether an item of reasoning is nothing but an id, which only the upstream that stored it can resolve."""
    return item.get("type") in _THOUGHTS and not (item.get("encrypted_content") or item.get("content"))


def _message(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """The message that an item of the client's is; None for what a model gave, and for what nobody knows."""
    role, kind = item.get("role"), item.get("type", "message")
    if kind == "message":
        if not isinstance(role, str) or role not in _ROLES:
            return None
        content = item.get("content")
        return {
            "role": role,
            "content": _content([_part(each) for each in content]) if isinstance(content, list) else content,
        }
    if isinstance(kind, str) and kind.endswith("_output"):
        output = item.get("output")
        content = _content([_part(each) for each in output]) if isinstance(output, list) else output
        if isinstance(content, Mapping):
            content = [content]
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": content}
    return None


def _content(parts: Sequence[Any]) -> Any:
    """A text where there is but one."""
    if len(parts) == 1:
        only = parts[0]
        if isinstance(only, str):
            return only
        if isinstance(only, Mapping) and only.get("type") == "text":
            return only.get("text")
    return list(parts) if parts else None


def _part(part: Any) -> Any:
    """A part of a content as chat completions have it; as it is, where they have none like it."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, Mapping):
        return part
    kind = part.get("type")
    if kind in _PLAIN and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        image = {"url": part["image_url"]}
        return {"type": "image_url", "image_url": image | _detail(part)}
    if kind == "input_file":
        return {"type": "file", "file": {k: v for k, v in part.items() if k != "type" and v is not None}}
    return part


def _parts_in(parts: Sequence[Any], text: str) -> list[Any]:
    """Parts of a chat message as those of an item; `text`: what a text is called there."""
    found: list[Any] = []
    for part in parts:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text":
            found.append({"type": text, "text": part.get("text")})
        elif kind == "image_url" and isinstance(part.get("image_url"), Mapping):
            image = part["image_url"]
            found.append({"type": "input_image", "image_url": image.get("url")} | _detail(image))
        elif kind == "file" and isinstance(part.get("file"), Mapping):
            found.append({"type": "input_file", **part["file"]})
        else:
            found.append(part)
    return found


def _detail(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"detail": part["detail"]} if part.get("detail") is not None else {}


def _call(item: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = item.get("type")
    if kind == "function_call":
        called = {"name": item.get("name"), "arguments": item.get("arguments")}
        return {"id": item.get("call_id"), "type": "function", "function": called}
    if kind == "custom_tool_call":
        return {
            "id": item.get("call_id"),
            "type": "custom",
            "custom": {"name": item.get("name"), "input": item.get("input")},
        }
    return None


def _call_item(call: Mapping[str, Any]) -> dict[str, Any]:
    if call.get("type") == "custom" and isinstance(call.get("custom"), Mapping):
        custom = call["custom"]
        return {
            "type": "custom_tool_call",
            "call_id": call.get("id"),
            "name": custom.get("name"),
            "input": custom.get("input") or "",
        }
    function = call.get("function")
    function = function if isinstance(function, Mapping) else {}
    return {
        "type": "function_call",
        "call_id": call.get("id"),
        "name": function.get("name"),
        "arguments": function.get("arguments") or "{}",
    }


# --- answers -------------------------------------------------------------------------------------------------------------

LAST = LastEvents(("response.completed", "response.failed", "response.incomplete"))
"""The events that end a stream; each holds the whole response."""


def _take_head(answer: UpstreamAnswer, response: Mapping[str, Any]) -> None:
    given, model, created = response.get("id"), response.get("model"), response.get("created_at")
    answer.id = given if isinstance(given, str) else answer.id
    answer.model = model if isinstance(model, str) else answer.model
    answer.created = int(created) if isinstance(created, int | float) else answer.created
    usage = response.get("usage")
    if isinstance(usage, dict):
        # By the names of chat completions, which the accountant reads.
        answer.usage = {
            "prompt_tokens": usage.get("input_tokens"),
            "completion_tokens": usage.get("output_tokens"),
            "prompt_tokens_details": usage.get("input_tokens_details"),
        }
    if response.get("error"):
        answer.error = response["error"]


def _conclude(answer: UpstreamAnswer, items: list[dict[str, Any]], response: Mapping[str, Any]) -> None:
    """The one choice that a response is, and how it ended."""
    status = response.get("status")
    message = assistant_of(items)
    if message is None and not items and status not in ("completed", "incomplete"):
        return
    message = message or {}
    choice = Choice(
        content=_text(message.get("content")),
        refusal=message.get("refusal"),
        reasoning=_thoughts(items),
        tool_calls=message.get("tool_calls", []),
        reasoning_record=message.get(REASONING),
    )
    if status == "completed":
        choice.finish_reason, answer.done = "tool_calls" if choice.tool_calls else "stop", True
    elif status == "incomplete":
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, Mapping) else None
        choice.finish_reason = "length" if reason == "max_output_tokens" else str(reason or "incomplete")
    elif status == "cancelled":
        choice.finish_reason = "abort"
    answer.choices = [choice]


def _text(content: Any) -> str | None:
    """The texts of several parts, a line each, as they are when they come back."""
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "\n".join(text for text in texts if isinstance(text, str)) if texts else None
    return content if isinstance(content, str) else None


def _thoughts(items: Iterable[Mapping[str, Any]]) -> str | None:
    texts = [
        part["text"]
        for item in items
        if item.get("type") == "reasoning"
        for part in (*_dicts(item.get("summary")), *_dicts(item.get("content")))
        if isinstance(part.get("text"), str)
    ]
    return "\n".join(texts) if texts else None


def _dicts(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


_DELTAS = {
    "response.output_text.delta": "output_text",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "reasoning_text",
    "response.reasoning_summary_text.delta": "summary_text",
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
}


class _Growing:
    """The items of a stream while they come in. Texts are collected and joined once, and only for what broke off."""

    __slots__ = ("_begun", "_done", "_slots", "_texts", "response")

    def __init__(self) -> None:
        self.response: Mapping[str, Any] = {}
        """The latest that was told of the whole."""
        self._begun: dict[int, dict[str, Any]] = {}
        self._done: dict[int, dict[str, Any]] = {}
        self._texts: dict[int, dict[tuple[str, int], list[str]]] = {}
        self._slots = IndexSlots()

    def take(self, event: Mapping[str, Any]) -> None:
        kind, index = event.get("type"), event.get("output_index")
        if not isinstance(index, int):
            return
        item, delta = event.get("item"), event.get("delta")
        if kind == "response.output_item.added" and isinstance(item, dict):
            self._begun[self._slots.begin(index)] = item
            return
        index = self._slots.find(index)
        if kind == "response.output_item.done" and isinstance(item, dict):
            if index in self._done and item.get("id") != self._done[index].get("id"):
                index = self._slots.begin(event["output_index"])
            self._done[index] = item
        elif isinstance(kind, str) and kind in _DELTAS and isinstance(delta, str):
            part = event.get("content_index", event.get("summary_index"))
            place = (_DELTAS[kind], part if isinstance(part, int) else 0)
            self._texts.setdefault(index, {}).setdefault(place, []).append(delta)

    def items(self) -> list[dict[str, Any]]:
        """The items as far as they came; where none did, those of the whole response."""
        indexes = sorted({*self._begun, *self._done, *self._texts})
        if not indexes:
            return _dicts(self.response.get("output"))
        return [self._done.get(index) or self._broken_off(index) for index in indexes]

    def _broken_off(self, index: int) -> dict[str, Any]:
        texts = {place: "".join(pieces) for place, pieces in self._texts.get(index, {}).items()}
        item = dict(self._begun.get(index, {}))
        parts: list[dict[str, Any]] = []
        for (kind, _), text in sorted(texts.items(), key=lambda each: each[0][1]):
            if kind in ("arguments", "input"):
                item = {"type": "function_call" if kind == "arguments" else "custom_tool_call"} | item | {kind: text}
            elif kind in ("reasoning_text", "summary_text"):
                parts.append({"type": kind, "text": text})
                item = {"type": "reasoning"} | item | {"content": parts}
            else:
                parts.append({"type": kind, "text" if kind == "output_text" else kind: text})
                item = {"type": "message", "role": "assistant"} | item | {"content": parts}
        return item


# --- the dialect ---------------------------------------------------------------------------------------------------------

_OF_THE_INSTRUCTIONS = (0, 0)
"""The place of the message that `instructions` are: no item."""


class ResponsesDialect(Dialect):
    """See `base.Dialect`."""

    name: Literal["responses"] = "responses"
    naming = NAMING | {"conversation"}

    def session(self, document: Mapping[str, Any]) -> str | None:
        """The upstream's conversation: by its id, or as `{"id": …}`."""
        given = document.get("conversation")
        named = given.get("id") if isinstance(given, Mapping) else given
        return named if isinstance(named, str) and named else None

    def unfit(self, document: Mapping[str, Any]) -> str | None:
        """What runs in the background has no answer yet when the call ends."""
        return "background" if document.get("background") is True else None

    def read(self, body: bytes, document: Mapping[str, Any]) -> ChatRequest | None:
        envelope = self._scan(body, document)
        if envelope is None:
            return None
        messages, places = _read(document)
        if not any(each != _OF_THE_INSTRUCTIONS for each in places):
            return None
        model, follows = document.get("model"), document.get("previous_response_id")
        follows = follows if isinstance(follows, str) and follows else None
        return ChatRequest(
            dialect=self,
            body=body,
            document=document,
            envelope=envelope,
            messages=messages,
            transcript=Transcript.of(messages),
            model=model if isinstance(model, str) else "",
            stream=document.get("stream") is True,
            answer_limit=positive(document.get("max_output_tokens")),
            places=places,
            upstream_holds=follows is not None or self.session(document) is not None,
            follows=follows,
        )

    def messages(self, document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
        return _read(document)[0]

    def scan(self, body: bytes) -> Envelope | None:
        document = read_json(body)
        return self._scan(body, document) if isinstance(document, dict) else None

    def elements(self, document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        given = document.get("input")
        return given if isinstance(given, list) else []

    def schemas(self, document: Mapping[str, Any]) -> list[object]:
        text = document.get("text")
        form = text.get("format") if isinstance(text, Mapping) else None
        schema = form if isinstance(form, Mapping) and form.get("type") not in (None, "text") else None
        return [each for each in (document.get("tools"), schema) if each]

    def canvas(self, chat: ChatRequest) -> _Canvas:
        return _Canvas(chat.body, chat.envelope, chat.places, stores=chat.document.get("store") is not False)

    def guard(self) -> Guard:
        return LastEventGuard(LAST)

    def fold(self, events: Iterable[bytes]) -> UpstreamAnswer:
        """Items are believed as they came one by one: the response in the last event lacks them, or most of their text, on some
        servers. It is what counts for all else."""
        answer, growing = UpstreamAnswer(), _Growing()
        is_invalid = False
        for data in events:
            if data.strip() == DONE:
                answer.done = True
                continue
            try:
                event, has_surrogates = read_json_piece(data)
            except ValueError:
                event, has_surrogates = None, False
            is_invalid = is_invalid or has_surrogates
            if not isinstance(event, dict):
                answer.malformed += 1
                continue
            response = event.get("response")
            if isinstance(response, dict):
                growing.response = response
                _take_head(answer, response)
            elif event.get("type") == "error" or event.get("error"):
                answer.error = event.get("error") or {name: event.get(name) for name in ("code", "message", "param")}
            else:
                growing.take(event)
        _conclude(answer, growing.items(), growing.response)
        if is_invalid:
            pair_answer(answer)
        return answer

    def whole(self, body: bytes) -> UpstreamAnswer | None:
        document = parse_object(body)
        if document is None:
            return None
        answer = UpstreamAnswer()
        _take_head(answer, document)
        _conclude(answer, _dicts(document.get("output")), document)
        return answer

    def mark(self, chat: ChatRequest, answer: UpstreamAnswer) -> bytes | None:
        """Of what the upstream is not to store, no request can say that it follows it."""
        if answer.id is None or answer.id == MASK or chat.document.get("store") is False:
            return None
        return mark_of_answer(answer.id)

    def _scan(self, body: bytes, document: Mapping[str, Any]) -> Envelope | None:
        return _scan_text(body) if isinstance(document.get("input"), str) else scan(body, document, "input")


def _read(document: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
    given = document.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    messages, places = messages_of(items if isinstance(items, list) else ())
    instructions = document.get("instructions")
    if isinstance(instructions, str):
        messages.insert(0, {"role": "system", "content": instructions})
        places.insert(0, _OF_THE_INSTRUCTIONS)
    return messages, places


def _scan_text(body: bytes) -> Envelope:
    """Of a request whose input is a text, which has no elements."""
    members: dict[str, ByteSpan] = {str(name): span for name, span in entries(body, body.index(b"{"))}
    return Envelope([], 0, 0, members)


class _Canvas(Struct, frozen=True):
    body: bytes
    envelope: Envelope
    places: Sequence[tuple[int, int]]
    stores: bool = True

    @property
    def _text(self) -> ByteSpan | None:
        """Where the input lies, if it is a text."""
        return None if self.envelope.array_end else self.envelope.members["input"]

    def insert(self, index: int, messages: Sequence[Mapping[str, Any]]) -> list[Insertion]:
        text = self._text
        if text is None:
            at = self.places[index][0] if index < len(self.places) else len(self.envelope.messages)
            return [insert_messages(self.envelope, at, items_of(messages, stores=self.stores))]
        if all(each.get("role") in SYSTEM_ROLES for each in messages):
            return self._instruct(SEPARATOR.join(str(each.get("content") or "") for each in messages))
        before = (
            b"["
            + b"".join(dump(item) + b"," for item in items_of(messages, stores=self.stores))
            + b'{"role":"user","content":'
        )
        return [Insertion(text.start, before), Insertion(text.end, b"}]")]

    def prepend(self, index: int, text: str) -> list[Insertion]:
        return self._write(index, text, before=True)

    def append(self, index: int, text: str) -> list[Insertion]:
        return self._write(index, text, before=False)

    def _write(self, index: int, text: str, *, before: bool) -> list[Insertion]:
        first, end = self.places[index]
        own = self.envelope.members["instructions"] if first == end else self._text
        if own is not None:
            return [Insertion(own.start + 1 if before else own.end - 1, escape(text))]
        item = self.envelope.messages[first if before else end - 1]
        made = (insert_text if before else append_text)(self.body, item, text, "input_text")
        return [made] if made is not None else []

    def _instruct(self, text: str) -> list[Insertion]:
        """`text` as the end of the instructions, or as all of them."""
        own = self.envelope.members.get("instructions")
        if own is None:
            at = self.body.index(b"{") + 1
            return [Insertion(at, b'"instructions":' + dump(text) + b",")]
        if self.body[own.start : own.start + 1] == b'"':
            return [Insertion(own.end - 1, escape(SEPARATOR + text))]
        if self.body[own.start : own.end] == b"null":
            return [Insertion(own.start, dump(text), own.end - own.start)]
        return []


DIALECT = ResponsesDialect()
