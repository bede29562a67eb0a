"""The items of the Responses API as messages in the shape of chat completions, and back.

What a model gave as several items in a row (texts, calls of functions, reasoning) is one message of the assistant: so it is
stored, and so it is recognised when the client sends those items again. Items that nobody knows are no messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_ROLES = frozenset({"user", "system", "developer"})
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


def assistant_of(items: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
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
    return message


def items_of(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages as items of an input."""
    items: list[dict[str, Any]] = []
    custom: set[object] = set()
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role == "tool":
            kind = "custom_tool_call_output" if message.get("tool_call_id") in custom else "function_call_output"
            given = _parts_in(content, "input_text") if isinstance(content, list) else content or ""
            items.append({"type": kind, "call_id": message.get("tool_call_id"), "output": given})
            continue
        text = "output_text" if role == "assistant" else "input_text"
        if isinstance(content, list):
            items.append({"role": role, "content": _parts_in(content, text)})
        elif content or not message.get("tool_calls"):
            refusal = message.get("refusal")
            items.append({"role": role, "content": content or (refusal if isinstance(refusal, str) else "")})
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, Mapping):
                if call.get("type") == "custom":
                    custom.add(call.get("id"))
                items.append(_call_item(call))
    return items


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
        return {"type": "image_url", "image_url": image | _given(part, "detail")}
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
            found.append({"type": "input_image", "image_url": image.get("url")} | _given(image, "detail"))
        elif kind == "file" and isinstance(part.get("file"), Mapping):
            found.append({"type": "input_file", **part["file"]})
        else:
            found.append(part)
    return found


def _given(part: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {name: part[name]} if part.get(name) is not None else {}


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
