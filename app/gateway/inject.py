"""From what the compiler decided to the bytes that go upstream: the client's own body, with insertions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.capture.record import GIVEN
from app.context.assemble import AppendTo, Edit, InsertMessage, Prepend
from app.context.request import PathMessage
from app.dialects.base import Canvas
from app.dialects.splice import Insertion
from app.store.turns import StoredMessage


def outgoing(stored: StoredMessage) -> PathMessage:
    """A stored message as it goes to the upstream again, with what the client's own fields and roles were."""
    given = stored.metadata.get(GIVEN)
    given = given if isinstance(given, dict) else {}
    message: dict[str, Any] = {
        "role": given.get("role", stored.role) if stored.role == "other" else stored.role,
        "content": stored.content_parts if stored.content_parts is not None else stored.content,
    }
    if stored.name:
        message["name"] = stored.name
    if stored.tool_calls:
        message |= _calls(stored.tool_calls)
    if stored.tool_call_id:
        message["tool_call_id"] = stored.tool_call_id
    message |= given.get("fields", {})
    return PathMessage(message, stored.token_count, stored.message_hash, stored.turn_index, stored.message_id)


def _calls(stored: Any) -> dict[str, Any]:
    """Tool calls, or the old `function_call`, which has no id."""
    first = stored[0] if isinstance(stored, list) and len(stored) == 1 else None
    if isinstance(first, Mapping) and "id" not in first and "function" in first:
        return {"function_call": first["function"]}
    return {"tool_calls": stored}


def weave(
    canvas: Canvas,
    edits: Sequence[Edit],
    *,
    lead: int = 0,
    history: Sequence[Mapping[str, Any]] = (),
    held: int = 0,
) -> list[Insertion]:
    """The insertions that turn the client's body into the compiled one.

    `history` goes behind the client's first `lead` messages, unless the upstream puts so many there itself (`held`, where
    nothing can be changed); `edits` count along the list with them in it.
    """
    supplied = [dict(each) for each in history]
    between = held or len(supplied)
    insertions: list[Insertion] = []
    first: list[Mapping[str, Any]] = []
    for edit in edits:
        index = edit.index if isinstance(edit, InsertMessage) else edit.message_index
        inside = index - lead
        behind = index if index < lead else index - between
        if isinstance(edit, InsertMessage):
            message = {"role": edit.role, "content": edit.text}
            if 0 <= inside <= len(supplied):
                # Between the client's and the supplied ones, in one insertion with these: the commas are its own.
                first.append(message) if inside == 0 else supplied.insert(inside, message)
            else:
                insertions += canvas.insert(behind, [message])
        elif 0 <= inside < between:
            if supplied:
                _edit_message(supplied[inside], edit)
        elif isinstance(edit, Prepend):
            insertions += canvas.prepend(behind, edit.text)
        else:
            insertions += canvas.append(behind, edit.text)
    if first or supplied:
        insertions[:0] = canvas.insert(lead, [*first, *supplied])
    return insertions


def _edit_message(message: dict[str, Any], edit: Prepend | AppendTo) -> None:
    content = message.get("content")
    before = isinstance(edit, Prepend)
    if isinstance(content, list):
        part = {"type": "text", "text": edit.text}
        message["content"] = [part, *content] if before else [*content, part]
    else:
        text = content if isinstance(content, str) else ""
        message["content"] = edit.text + text if before else text + edit.text
