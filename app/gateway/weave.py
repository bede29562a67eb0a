"""From what the compiler decided to the bytes that go upstream: the client's own body, with insertions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.context.assemble import AppendTo, Edit, InsertMessage, Prepend
from app.context.compile import PathMessage
from app.gateway.splice import Envelope, Insertion, append_text, insert_messages, insert_text, replace_value
from app.store.turns import StoredMessage


def outgoing(stored: StoredMessage) -> PathMessage:
    """A stored message as it goes to the upstream again."""
    message: dict[str, Any] = {
        "role": stored.role,
        "content": stored.content_parts if stored.content_parts is not None else stored.content,
    }
    if stored.name:
        message["name"] = stored.name
    if stored.tool_calls:
        message["tool_calls"] = stored.tool_calls
    if stored.tool_call_id:
        message["tool_call_id"] = stored.tool_call_id
    return PathMessage(message, stored.token_count, stored.message_hash, stored.turn_index)


def weave(
    body: bytes,
    envelope: Envelope,
    edits: Sequence[Edit],
    *,
    lead: int = 0,
    history: Sequence[Mapping[str, Any]] = (),
    system_prompt: str | None = None,
    model: str | None = None,
) -> list[Insertion]:
    """The insertions that turn the client's body into the compiled one.

    `history` goes behind the client's first `lead` messages, and `system_prompt` (a session's own, where the client sent
    none) before everything; `edits` count along the list with `history` in it. `model`: another name for the model.
    """
    supplied = [dict(each) for each in history]
    inside: list[Insertion] = []
    own: dict[int, list[Mapping[str, Any]]] = {}
    for edit in edits:
        index = edit.index if isinstance(edit, InsertMessage) else edit.message_index
        if isinstance(edit, InsertMessage):
            message = {"role": edit.role, "content": edit.text}
            if lead <= index <= lead + len(supplied):
                own.setdefault(-1, []).append(message)
            else:
                own.setdefault(index - len(supplied) if index > lead else index, []).append(message)
        elif lead <= index < lead + len(supplied):
            _edit_message(supplied[index - lead], edit)
        else:
            at = envelope.messages[index if index < lead else index - len(supplied)]
            change = insert_text if isinstance(edit, Prepend) else append_text
            insertion = change(body, at, edit.text)
            if insertion is not None:
                inside.append(insertion)
    block = [*own.pop(-1, []), *supplied]
    if system_prompt is not None:
        if lead == 0:
            block.insert(0, {"role": "system", "content": system_prompt})
        else:
            own.setdefault(0, []).insert(0, {"role": "system", "content": system_prompt})
    insertions = [insert_messages(envelope, index, messages) for index, messages in own.items()]
    if block:
        insertions.append(insert_messages(envelope, lead, block))
    insertions += inside
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
