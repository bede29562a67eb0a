"""From what the compiler decided to the bytes that go upstream: the client's own body, with insertions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.capture.record import GIVEN
from app.context.assemble import AppendTo, Edit, InsertMessage, Prepend
from app.context.compile import PathMessage
from app.gateway.splice import Envelope, Insertion, append_text, insert_messages, insert_text, replace_value
from app.store.turns import StoredMessage


def outgoing(stored: StoredMessage) -> PathMessage:
    """A stored message as it goes to the upstream again, with what the client's own fields and roles were."""
    given = stored.metadata.get(GIVEN)
    given = given if isinstance(given, Mapping) else {}
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
    return PathMessage(message, stored.token_count, stored.message_hash, stored.turn_index)


def _calls(stored: Any) -> dict[str, Any]:
    """Tool calls, or the old `function_call`, which has no id."""
    first = stored[0] if isinstance(stored, list) and len(stored) == 1 else None
    if isinstance(first, Mapping) and "id" not in first and "function" in first:
        return {"function_call": first["function"]}
    return {"tool_calls": stored}


def weave(
    body: bytes,
    envelope: Envelope,
    edits: Sequence[Edit],
    *,
    lead: int = 0,
    history: Sequence[Mapping[str, Any]] = (),
    model: str | None = None,
) -> list[Insertion]:
    """The insertions that turn the client's body into the compiled one.

    `history` goes behind the client's first `lead` messages; `edits` count along the list with `history` in it. `model`:
    another name for the model.
    """
    supplied = [dict(each) for each in history]
    insertions: list[Insertion] = []
    first: list[Mapping[str, Any]] = []
    for edit in edits:
        index = edit.index if isinstance(edit, InsertMessage) else edit.message_index
        inside = index - lead
        behind = index if index < lead else index - len(supplied)
        if isinstance(edit, InsertMessage):
            message = {"role": edit.role, "content": edit.text}
            if 0 <= inside <= len(supplied):
                # Between the client's and the supplied ones, in one insertion with these: the commas are its own.
                first.append(message) if inside == 0 else supplied.insert(inside, message)
            else:
                insertions.append(insert_messages(envelope, behind, [message]))
        elif 0 <= inside < len(supplied):
            _edit_message(supplied[inside], edit)
        else:
            change = insert_text if isinstance(edit, Prepend) else append_text
            insertion = change(body, envelope.messages[behind], edit.text)
            if insertion is not None:
                insertions.append(insertion)
    if first or supplied:
        insertions.insert(0, insert_messages(envelope, lead, [*first, *supplied]))
    if model is not None and (renamed := replace_value(envelope, "model", model)) is not None:
        insertions.append(renamed)
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
