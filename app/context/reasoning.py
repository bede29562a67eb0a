"""Separates what a model thought from what it answered, and decides when a thought goes back to its upstream.

Upstreams send reasoning as fields of a message (`reasoning_content`), as parts of its content (`thinking` blocks), as items
beside it, or in its text (`<think>…</think>`). None of it is remembered. All of it is kept beside the message, in the form
in which it came, because many upstreams refuse the results of a tool call whose reasoning is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

import orjson

from app.context.thoughts import split_thought

REASONING = "_reasoning"
"""Key of a message, inside Mneme, for a `ReasoningRecord`; it never goes out."""


class ReasoningRecord(dict[str, Any]):
    """Reasoning as it is kept. The class tells it from what a client sends under the same key."""


FIELDS = (
    "reasoning_content",  # DeepSeek, Kimi, Qwen, GLM
    "reasoning",  # vLLM, Ollama, Groq, OpenRouter
    "reasoning_details",  # OpenRouter, MiniMax
    "reasoning_text",  # GitHub Copilot, with `reasoning_opaque`
    "reasoning_opaque",
    "thinking_blocks",  # LiteLLM
)
"""Fields of a chat message that hold reasoning."""
THOUGHT_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
"""Types of content parts that hold reasoning."""


def is_thought_part(part: object) -> bool:
    """Return whether a part of a content holds reasoning."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    return isinstance(kind, str) and kind in THOUGHT_PARTS


BYTES_PER_TOKEN = 3
"""Bytes of reasoning that are counted as one token of a prompt; English has about four, Chinese three."""

_JOINED = frozenset({"text", "summary", "data", "thinking"})
"""Members of a piece of reasoning that grow from delta to delta; others are replaced."""


def remove_start(parts: Sequence[Any], count: int) -> list[Any]:
    """Remove the first `count` characters from content parts, counted in their texts joined by newlines."""
    remaining: list[Any] = []
    for part in parts:
        text = part if isinstance(part, str) else part.get("text") if isinstance(part, Mapping) else None
        if count <= 0 or not isinstance(text, str):
            remaining.append(part)
            continue
        if len(text) > count:
            remaining.append(text[count:] if isinstance(part, str) else {**part, "text": text[count:]})
        count -= len(text) + 1
    return remaining


# --- as it comes, and as it is kept --------------------------------------------------------------------------------------
#
# Kept reasoning is an object with some of these members:
#   text       what stood in front of the answer, tags included
#   chat       fields of a chat message, as the upstream sent them
#   parts      parts of a chat message's content, which stood before its text
#   messages   blocks of `/v1/messages` in their order, with a placeholder for each text and call between them
#   responses  the same for items of `/v1/responses`

PLACEHOLDER = "_place"
"""Type of the placeholder for a text or a call (`call`: the call's id) in kept blocks and items."""


def merge_pieces(deltas: Iterable[Iterable[Any]]) -> list[Any]:
    """Join the reasoning of several deltas; a piece continues the latest earlier one with its type, index and id."""
    merged: list[Any] = []
    growing: list[dict[str, list[Any]]] = []
    latest: dict[str, int] = {}
    for pieces in deltas:
        begun: dict[str, int] = {}
        for piece in pieces:
            if not isinstance(piece, Mapping):
                merged.append(piece)
                growing.append({})
                continue
            key = f"{piece.get('type')} {piece.get('index')}"
            at = latest.get(key)
            if at is None or not _has_same_id(merged[at], piece):
                begun[key] = at = len(merged)
                merged.append({})
                growing.append({})
            for name, value in piece.items():
                if name in _JOINED and isinstance(value, str | list):
                    growing[at].setdefault(name, []).append(value)
                    merged[at].setdefault(name, value)
                elif value is not None or name not in merged[at]:
                    merged[at][name] = value
        latest |= begun
    for piece, members in zip(merged, growing, strict=True):
        for name, values in members.items():
            if all(isinstance(value, str) for value in values):
                piece[name] = "".join(values)
            elif all(isinstance(value, list) for value in values):
                piece[name] = [item for value in values for item in value]
    return merged


def _has_same_id(earlier: Mapping[str, Any], piece: Mapping[str, Any]) -> bool:
    ids = earlier.get("id"), piece.get("id")
    return ids[0] == ids[1] or None in ids


def keep_places(
    elements: Iterable[Mapping[str, Any]], thoughts: Collection[str], call_key: str
) -> list[dict[str, Any]]:
    """Return the elements with a placeholder for each that holds no reasoning; empty if none of them holds any.

    Args:
        elements: Blocks or items of an answer, in their order.
        thoughts: Types of the elements that hold reasoning.
        call_key: Name of the member that holds a call's id.
    """
    record = [
        dict(element) if str(element.get("type")) in thoughts else _placeholder(element, call_key)
        for element in elements
    ]
    return record if any(element["type"] != PLACEHOLDER for element in record) else []


def _placeholder(element: Mapping[str, Any], call_key: str) -> dict[str, Any]:
    call = element.get(call_key) if element.get("type") != "message" and "text" not in element else None
    if call is None:
        return {"type": PLACEHOLDER}
    return {"type": PLACEHOLDER, "call": call} | ({"id": element["id"]} if call_key != "id" and "id" in element else {})


def fill_places(
    record: Iterable[Mapping[str, Any]], texts: Sequence[dict[str, Any]], calls: Sequence[tuple[object, dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Replace the placeholders of kept blocks or items by texts and calls (by id); those without a placeholder come last."""
    rest = list(texts)
    open_calls = list(calls)
    filled: list[dict[str, Any]] = []
    for element in record:
        if element.get("type") != PLACEHOLDER:
            filled.append(dict(element))
        elif (call := element.get("call")) is None:
            filled += rest
            rest = []
        else:
            item_id = {"id": element["id"]} if "id" in element else {}
            filled += [item_id | item for called, item in open_calls if called == call]
            open_calls = [(called, item) for called, item in open_calls if called != call]
    return [*filled, *rest, *(item for _, item in open_calls)]


def separate(message: Mapping[str, Any], *, cut: bool = True) -> tuple[Mapping[str, Any], dict[str, Any] | None]:
    """Return an assistant's message without its reasoning, and the reasoning as it is kept, or None if it has none.

    Content parts that hold thoughts stay in the content, because they add nothing to a message's text.
    """
    if message.get("role") != "assistant":
        return message, None
    earlier = message.get(REASONING)
    record: dict[str, Any] = dict(earlier) if isinstance(earlier, ReasoningRecord) else {}
    fields = {name: message[name] for name in message if name in FIELDS and message[name] not in (None, [], {})}
    if fields:
        record["chat"] = {**record.get("chat", {}), **fields}
    content = message.get("content")
    calls = bool(message.get("tool_calls") or message.get("function_call"))
    thought = split_thought(_join_texts(content), cut=cut, calls=calls)[0]
    if thought:
        record["text"] = thought
        content = content[len(thought) :] if isinstance(content, str) else remove_start(content or (), len(thought))
    if not record and not any(name in message for name in FIELDS):
        return message, None
    plain = {name: value for name, value in message.items() if name != REASONING and name not in FIELDS}
    if "content" in message:
        plain["content"] = content
    return plain, record or None


def _join_texts(content: object) -> str:
    """Return the texts of a content, a line each, up to its first part that is neither text nor thought."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    texts: list[str] = []
    for part in content:
        text = part if isinstance(part, str) else part.get("text") if isinstance(part, Mapping) else None
        if isinstance(text, str):
            texts.append(text)
        elif not is_thought_part(part):
            break
    return "\n".join(texts)


# --- as it goes back -----------------------------------------------------------------------------------------------------

Form = Literal["chat", "messages", "responses"]


def select_form(record: Mapping[str, Any] | None, form: Form) -> dict[str, Any] | None:
    """Return the members of kept reasoning that an upstream of this dialect understands, or None if there are none."""
    members = ("text", "chat", "parts") if form == "chat" else ("text", form)
    selected = {name: value for name, value in (record or {}).items() if name in members}
    return selected or None


def restore(message: Mapping[str, Any], record: Mapping[str, Any], form: Form) -> dict[str, Any]:
    """Return a message with its reasoning as an upstream of this dialect sent it."""
    restored = dict(message)
    content = restored.get("content")
    if (text := record.get("text")) is not None:
        restored["content"] = (
            [{"type": "text", "text": text}, *content] if isinstance(content, list) else text + (content or "")
        )
    if form != "chat":
        return {**restored, REASONING: ReasoningRecord(record)} if form in record else restored
    if parts := record.get("parts"):
        content = restored.get("content")
        texts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
        restored["content"] = [*parts, *texts]
    return {**restored, **record.get("chat", {})}


def find_elements(message: Mapping[str, Any], form: Form) -> list[Mapping[str, Any]]:
    """Return the kept blocks or items of a message that goes out in this dialect, for `fill_places`; may be empty."""
    record = message.get(REASONING)
    elements: list[Mapping[str, Any]] = record.get(form, []) if isinstance(record, ReasoningRecord) else []
    return elements


def drop_thought_parts(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message without the parts of its content that are reasoning."""
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, list):
        return message
    remaining = [part for part in content if not is_thought_part(part)]
    if len(remaining) == len(content):
        return message
    return {**message, "content": remaining or (None if message.get("tool_calls") else "")}


def find_open_loop(path: Sequence[Mapping[str, Any]], following: Sequence[Mapping[str, Any]]) -> int:
    """Return the index in `path` of the first message of the open tool loop, or `len(path)` if no loop is open.

    Args:
        path: The earlier messages that Mneme supplies.
        following: The client's own messages after `path`. User messages after the last tool result do not end the loop.
    """
    turn = [message for message in following if message.get("role") not in ("system", "developer")]
    results = [n for n, message in enumerate(turn) if message.get("role") in ("tool", "function")]
    if results and all(message.get("role") == "user" for message in turn[results[-1] + 1 :]):
        turn = turn[: results[-1] + 1]
    if any(map(_ends_loop, turn)):
        return len(path)
    return next((n + 1 for n in range(len(path) - 1, -1, -1) if _ends_loop(path[n])), 0)


def _ends_loop(message: Mapping[str, Any]) -> bool:
    """Return whether this is a user's message, or an answer that calls nothing."""
    role = message.get("role")
    return role == "user" or (role == "assistant" and not (message.get("tool_calls") or message.get("function_call")))


def estimate_tokens(record: Mapping[str, Any]) -> int:
    """Return an estimate of the tokens that kept reasoning takes in a prompt, rather too high than too low."""
    return -(-len(orjson.dumps(record, default=str)) // BYTES_PER_TOKEN)
