"""The dialect of `/v1/messages` (Anthropic's), which `app.gateway.dialects` finds by its name: `system` beside `messages` of
content blocks; a stream of named events.

A result of a tool is a block of the user's message there, and a message of its own here; so one element may be several
messages. Where text is put before a user's words, results stay in front: the API wants them first. Memory puts nothing into
a block that carries `cache_control`, and no such mark is ever moved or taken away. What a program puts beside its user's
words in `<system-reminder>` (Claude Code: the date, its files of instructions) is not what the user said: it is neither
searched for nor learned from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from app.context.assemble import SEPARATOR
from app.context.reasoning import fill_places, find_elements, keep_places
from app.context.transcript import Transcript
from app.errors import MnemeError
from app.gateway.dialects.base import ChatRequest, Dialect, Guard, is_system, positive
from app.gateway.dialects.splice import (
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
from app.gateway.dialects.sse import Choice, IndexSlots, LastEventGuard, LastEvents, UpstreamAnswer, pair_answer
from app.json_text import read_json, read_json_piece

LAST = LastEvents(("message_stop",))
"""The events that end a stream, beside `error`."""

_FINISHES = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
"""Why a model stopped, as chat completions call it."""
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Types of errors by status; of all others `api_error`."""
_THOUGHTS = frozenset({"thinking", "redacted_thinking"})
"""Blocks that hold reasoning."""
_REMINDER = ("<system-reminder>", "</system-reminder>")
_OF_THE_SYSTEM = (0, 0)
"""The place of the message that `system` is: no element."""


def error_type(status: int) -> str:
    """What this API calls an error with this status."""
    return _ERRORS.get(status, "invalid_request_error" if status < 500 else "api_error")


# --- requests ------------------------------------------------------------------------------------------------------------


def messages_of(element: Mapping[str, Any]) -> list[dict[str, Any]]:
    """An element of `messages` as messages in the shape of chat completions: results of tools first."""
    role, content = element.get("role"), element.get("content")
    if not isinstance(content, list):
        return [{"role": role, "content": content}]
    blocks = [each for each in content if isinstance(each, Mapping)]
    if role == "assistant":
        calls = [_call(each) for each in blocks if each.get("type") == "tool_use"]
        said = [_part(each) for each in blocks if each.get("type") != "tool_use"]
        message: dict[str, Any] = {"role": role, "content": said}
        return [message | {"tool_calls": calls}] if calls else [message]
    results, own = divided(blocks)
    found, rest = [_result(blocks[n]) for n in results], [_part(blocks[n]) for n in own]
    return [*found, {"role": role, "content": rest}] if rest or not found else found


def divided(blocks: Sequence[object]) -> tuple[list[int], list[int]]:
    """Of a user's element: which blocks are results, and which are what the user says."""
    results = [n for n, each in enumerate(blocks) if _is_result(each)]
    others = [n for n, each in enumerate(blocks) if isinstance(each, Mapping) and not _is_result(each)]
    own = [n for n in others if not _is_reminder(blocks[n])]
    return results, own if own or results else others


def elements_of(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages as elements; results of tools in a row are blocks of one."""
    elements: list[dict[str, Any]] = []
    for message in messages:
        role, content = message.get("role"), message.get("content")
        blocks = [_block(each) for each in content] if isinstance(content, list) else []
        if role in ("tool", "function"):
            result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": blocks or content}
            result |= {"is_error": True} if message.get("is_error") is True else {}
            last = elements[-1] if elements else None
            if last is not None and last["role"] == "user" and _only_results(last["content"]):
                last["content"].append(result)
            else:
                elements.append({"role": "user", "content": [result]})
            continue
        calls = [_use(each) for each in message.get("tool_calls") or ()]
        if record := find_elements(message, "messages"):
            texts = blocks or ([{"type": "text", "text": content}] if content else [])
            filled = fill_places(record, texts, [(call["id"], call) for call in calls])
            elements.append({"role": role, "content": filled})
            continue
        if not calls:
            if blocks or content or role != "assistant":  # of an answer without content the API wants to hear nothing
                elements.append({"role": role, "content": blocks or content or ""})
            continue
        said = blocks or ([{"type": "text", "text": content}] if content else [])
        elements.append({"role": role, "content": [*said, *calls]})
    return elements


def _is_reminder(block: object) -> bool:
    """Whether a program says this, and not its user."""
    text = block.get("text") if isinstance(block, Mapping) and block.get("type") == "text" else None
    if not isinstance(text, str):
        return False
    told = text.strip()
    return told.startswith(_REMINDER[0]) and told.endswith(_REMINDER[1])


def _reminders(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What `messages_of` leaves out, for its tokens."""
    contents = (each.get("content") for each in document["messages"] if each.get("role") == "user")
    blocks = (block for content in contents if isinstance(content, list) for block in content)
    return [each for each in blocks if isinstance(each, Mapping) and _is_reminder(each)]


def _only_results(content: object) -> bool:
    return isinstance(content, list) and all(each.get("type") == "tool_result" for each in content)


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block as a part of a chat message; one that has no such form stays as it is."""
    source = block.get("source")
    if block.get("type") == "image" and isinstance(source, Mapping):
        given = [source.get(name) for name in ("type", "url", "media_type", "data")]
        kind, url, media, data = (each if isinstance(each, str) else None for each in given)
        if kind == "base64" and media and data:
            return {"type": "image_url", "image_url": {"url": f"data:{media};base64,{data}"}}
        if kind == "url" and url:
            return {"type": "image_url", "image_url": {"url": url}}
    return {name: value for name, value in block.items() if name != "cache_control"}


def _block(part: object) -> dict[str, Any]:
    """The way back."""
    if not isinstance(part, Mapping):
        return {"type": "text", "text": str(part)}
    image = part.get("image_url")
    if part.get("type") != "image_url" or not isinstance(image, Mapping):
        return dict(part)
    url = str(image.get("url"))
    head, comma, data = url.partition(";base64,")
    if not (comma and head.startswith("data:")):
        return {"type": "image", "source": {"type": "url", "url": url}}
    return {"type": "image", "source": {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}}


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    try:
        arguments = dump(block.get("input") or {}).decode()
    except RecursionError:  # no tool takes what is nested a thousand times
        arguments = "{}"
    function = {"name": block.get("name"), "arguments": arguments}
    return {"id": block.get("id"), "type": "function", "function": function}


def _use(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    try:
        arguments = read_json(function.get("arguments") or "{}")
    except (ValueError, TypeError):
        arguments = None
    tool_input = arguments if isinstance(arguments, dict) else {}  # the API wants an object
    return {"type": "tool_use", "id": call.get("id"), "name": function.get("name"), "input": tool_input}


def _result(block: Mapping[str, Any]) -> dict[str, Any]:
    content = block.get("content")
    parts = [_part(each) for each in content if isinstance(each, Mapping)] if isinstance(content, list) else content
    message = {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": parts}
    return message | {"is_error": True} if block.get("is_error") is True else message


def _read(document: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
    """The messages, and for each the elements that it is made of, from and up to."""
    messages: list[dict[str, Any]] = []
    places: list[tuple[int, int]] = []
    system = document.get("system")
    if system and isinstance(system, str | list):
        content = system if isinstance(system, str) else [_part(each) for each in system if isinstance(each, Mapping)]
        messages.append({"role": "system", "content": content})
        places.append(_OF_THE_SYSTEM)
    for n, element in enumerate(document.get("messages") or ()):
        made = messages_of(element)
        messages += made
        places += [(n, n + 1)] * len(made)
    return messages, places


# --- answers -------------------------------------------------------------------------------------------------------------


class Blocks:
    """The content of a message while it comes in. Texts are collected and joined once."""

    def __init__(self) -> None:
        self._begun: dict[int, dict[str, Any]] = {}
        self._texts: dict[int, dict[str, list[str]]] = {}
        self._citations: dict[int, list[Any]] = {}
        self._slots = IndexSlots()

    def take(self, event: Mapping[str, Any]) -> None:
        index, block, delta = event.get("index"), event.get("content_block"), event.get("delta")
        if not isinstance(index, int):
            return
        if event.get("type") == "content_block_start" and isinstance(block, dict):
            self._begun[self._slots.begin(index)] = block
            return
        index = self._slots.find(index)
        if event.get("type") == "content_block_delta" and isinstance(delta, dict):
            for name in ("text", "partial_json", "thinking", "signature"):
                if isinstance(piece := delta.get(name), str):
                    self._texts.setdefault(index, {}).setdefault(name, []).append(piece)
            if delta.get("type") == "citations_delta":
                self._citations.setdefault(index, []).append(delta.get("citation"))

    def drop(self, index: int) -> None:
        for each in (self._begun, self._texts, self._citations):
            each.pop(index, None)

    def whole(self) -> dict[int, dict[str, Any]]:
        """The blocks as far as they came, by their index, in order."""
        return {n: self._grown(n) for n in sorted({*self._begun, *self._texts, *self._citations})}

    def _grown(self, index: int) -> dict[str, Any]:
        """A block with all that came of it. Arguments that broke off stay a text."""
        texts = {name: "".join(pieces) for name, pieces in self._texts.get(index, {}).items()}
        kind = "thinking" if "thinking" in texts else "tool_use" if "partial_json" in texts else "text"
        made = {"type": kind, **self._begun.get(index, {})}
        for name in ("text", "thinking", "signature"):
            if name in texts:
                made[name] = f"{made.get(name) or ''}{texts[name]}"
        if texts.get("partial_json"):
            try:
                made["input"] = read_json(texts["partial_json"])
            except ValueError:
                made["input"] = texts["partial_json"]
        if found := self._citations.get(index):
            made["citations"] = [*(made.get("citations") or ()), *found]
        return made


def folded(events: Iterable[bytes]) -> tuple[UpstreamAnswer, dict[str, Any]]:
    """A stream put together again (`events`: their data, see `sse.payloads`), and the message as it would have come in one
    piece."""
    answer, blocks = UpstreamAnswer(), Blocks()
    head: dict[str, Any] = {}
    is_invalid = False
    for data in events:
        try:
            event, has_surrogates = read_json_piece(data)
        except ValueError:
            event, has_surrogates = None, False
        is_invalid = is_invalid or has_surrogates
        if not isinstance(event, dict):
            answer.malformed += 1
            continue
        kind = event.get("type")
        if kind == "message_start" and isinstance(event.get("message"), dict):
            head = {**head, **event["message"]}
        elif kind == "message_delta":
            delta = event.get("delta")
            head |= delta if isinstance(delta, dict) else {}
            head["usage"] = told(head.get("usage"), event.get("usage")) or head.get("usage")
        elif kind == "message_stop":
            answer.done = True
        elif kind == "error":
            answer.error = event.get("error")
        else:
            blocks.take(event)
    head["content"] = [*blocks.whole().values()]
    _conclude(answer, head)
    if is_invalid:
        pair_answer(answer)
    return answer, head


def told(before: object, usage: object) -> dict[str, Any]:
    """The usage of a message whose figures were told before, now that further ones are; they grow, and replace the earlier."""
    known = before if isinstance(before, dict) else {}
    return {
        **known,
        **{name: count for name, count in (usage if isinstance(usage, dict) else {}).items() if count is not None},
    }


def _conclude(answer: UpstreamAnswer, message: Mapping[str, Any]) -> None:
    """The one choice that a message is, how it ended, and what it took, by the names of chat completions."""
    given, model, usage = message.get("id"), message.get("model"), message.get("usage")
    answer.id = given if isinstance(given, str) else None
    answer.model = model if isinstance(model, str) else None
    if isinstance(usage, dict) and usage:
        cached = usage.get("cache_read_input_tokens")
        read = [usage.get("input_tokens"), cached, usage.get("cache_creation_input_tokens")]
        answer.usage = {
            "prompt_tokens": sum(each for each in read if isinstance(each, int)),
            "completion_tokens": usage.get("output_tokens"),
            "prompt_tokens_details": {"cached_tokens": cached},
        }
    content, reason = message.get("content"), message.get("stop_reason")
    blocks = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    if not blocks and not isinstance(reason, str):
        return
    texts = [each["text"] for each in blocks if isinstance(each.get("text"), str)]
    thoughts = [each["thinking"] for each in blocks if isinstance(each.get("thinking"), str)]
    choice = Choice(
        role="assistant",
        content="\n".join(texts) if texts else None,  # a line each, as they are when they come back
        reasoning="\n".join(thoughts) if thoughts else None,
        tool_calls=[_call(each) for each in blocks if each.get("type") == "tool_use"],
    )
    record = keep_places(blocks, _THOUGHTS, "id")
    choice.reasoning_record = {"messages": record} if record else None
    choice.finish_reason = _FINISHES.get(reason, reason) if isinstance(reason, str) else None
    answer.choices = [choice]


# --- the dialect ---------------------------------------------------------------------------------------------------------


class MessagesDialect(Dialect):
    """See `base.Dialect`."""

    name: Literal["messages"] = "messages"
    x_api_key = True

    def read(self, body: bytes, document: Mapping[str, Any]) -> ChatRequest | None:
        envelope = scan(body, document)
        if envelope is None or not envelope.messages:
            return None
        messages, places = _read(document)
        model = document.get("model")
        return ChatRequest(
            dialect=self,
            body=body,
            document=document,
            envelope=envelope,
            messages=messages,
            transcript=Transcript.of(messages),
            model=model if isinstance(model, str) else "",
            stream=document.get("stream") is True,
            answer_limit=positive(document.get("max_tokens")),
            places=places,
        )

    def messages(self, document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
        found = document.get("messages")
        whole = isinstance(found, list) and all(isinstance(each, Mapping) for each in found)
        return _read(document)[0] if whole else None

    def schemas(self, document: Mapping[str, Any]) -> list[object]:
        return [each for each in (document.get("tools"), _reminders(document)) if each]

    def canvas(self, chat: ChatRequest) -> _Canvas:
        return _Canvas(chat.body, chat.envelope, chat.places, chat.document)

    def guard(self) -> Guard:
        return LastEventGuard(LAST)

    def fold(self, events: Iterable[bytes]) -> UpstreamAnswer:
        return folded(events)[0]

    def whole(self, body: bytes) -> UpstreamAnswer | None:
        document = parse_object(body)
        if document is None:
            return None
        answer = UpstreamAnswer(done=True, error=document.get("error"))
        _conclude(answer, document)
        return answer

    def refusal(self, error: MnemeError) -> dict[str, Any]:
        return {"type": "error", "error": {"type": error_type(error.status), "message": error.message}}


class _Canvas(Struct, frozen=True):
    body: bytes
    envelope: Envelope
    places: Sequence[tuple[int, int]]
    document: Mapping[str, Any]

    def insert(self, index: int, messages: Sequence[Mapping[str, Any]]) -> list[Insertion]:
        told = [str(each.get("content") or "") for each in messages if is_system(each)]
        made = self._instruct(SEPARATOR.join(told)) if told else []
        rest = elements_of(each for each in messages if not is_system(each))
        if rest:
            at = self.places[index][0] if index < len(self.places) else len(self.envelope.messages)
            made.append(insert_messages(self.envelope, at, rest))
        return made

    def prepend(self, index: int, text: str) -> list[Insertion]:
        first, end = self.places[index]
        if first == end:
            return self._instruct(text, before=True)
        element = self.envelope.messages[first]
        content = element.content(self.body)
        if content.kind == "array":
            blocks = self.document["messages"][first]["content"]
            results = next((n for n, each in enumerate(blocks) if not _is_result(each)), len(blocks))
            if results == len(blocks):
                return self.append(index, text)
            at = [span for _, span in entries(self.body, content.start)][results]
            return [Insertion(at.start, _text_block(text) + b",")]
        made = insert_text(self.body, element, text)
        return [made] if made is not None else []

    def append(self, index: int, text: str) -> list[Insertion]:
        first, end = self.places[index]
        if first == end:
            return self._instruct(text)
        made = append_text(self.body, self.envelope.messages[first], text)
        return [made] if made is not None else []

    def _instruct(self, text: str, *, before: bool = False) -> list[Insertion]:
        """`text` as the end (or the beginning) of `system`, or as all of it."""
        own = self.envelope.members.get("system")
        if own is None:
            return [Insertion(self.body.index(b"{") + 1, b'"system":' + dump(text) + b",")]
        given = self.body[own.start : own.end]
        if given.startswith(b'"'):
            joint = "" if given == b'""' else SEPARATOR
            at, told = (own.start + 1, text + joint) if before else (own.end - 1, joint + text)
            return [Insertion(at, escape(told))]
        if given.startswith(b"["):
            blocks = [span for _, span in entries(self.body, own.start)]
            block = _text_block(text)
            if not blocks:
                return [Insertion(own.start + 1, block)]
            return [Insertion(blocks[0].start, block + b",") if before else Insertion(blocks[-1].end, b"," + block)]
        return [Insertion(own.start, dump(text), own.end - own.start)] if given == b"null" else []


def _is_result(block: object) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "tool_result"


def _text_block(text: str) -> bytes:
    return b'{"type":"text","text":"' + escape(text) + b'"}'


DIALECT = MessagesDialect()
