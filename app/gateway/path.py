"""The stored messages that led to a point of a conversation, and how a client's own lie over them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from app.store.turns import Recognised, StoredMessage

HISTORY_FETCH = 400
"""Messages of a session read for a request: seed 001 §5.2's window of 20 turns twenty times over. Older ones stay reachable
by retrieval; the first turn is always kept."""

MAX_BRANCH_DEPTH = 16
"""Sessions followed upwards from a branch: deeper trees than that are not made by people."""

FIRST_TURN = 32
"""Messages within which a first turn must end to be kept: its tool calls and their results belong to it."""

_RESULTS = frozenset({"tool", "function"})


class Messages(Protocol):
    """Reads stored messages: `TurnStore` as they are, `ReplayStore` as they were."""

    async def session_messages(
        self, tenant: UUID, user: UUID, line: Sequence[tuple[UUID, int]], *, limit: int
    ) -> list[StoredMessage]: ...


async def read_path(
    store: Messages, tenant: UUID, user: UUID, found: Recognised, last: UUID
) -> tuple[list[StoredMessage], bool]:
    """The messages that led to `last`, oldest first, and whether they reach back to the beginning; where they do not, the
    first turn and a suffix that begins with a question. Raises StoreUnavailable."""
    assert found.session_id is not None, "a known session has an id"
    end = max(found.tip_turn_index, found.tip_question_index or 0)
    line = [(found.session_id, end + 1), *((each, turn + 1) for each, turn in found.ancestors[:MAX_BRANCH_DEPTH])]
    stored = await store.session_messages(tenant, user, line, limit=HISTORY_FETCH)
    rows = {each.message_id.bytes: each for each in stored}  # to hash a UUID takes three times as long
    path: list[StoredMessage] = []
    at: UUID | None = last
    while at is not None and (row := rows.pop(at.bytes, None)) is not None:
        path.append(row)
        at = row.parent_message_id
    path.reverse()
    if at is None:
        return path, True
    root = line[-1][0]
    begun = await store.session_messages(tenant, user, [(root, FIRST_TURN + 1)], limit=2 * FIRST_TURN)
    start = next((i for i, each in enumerate(path) if each.role == "user"), len(path))
    return first_turn(begun, {each.message_id for each in path}) + path[start:], False


def first_turn(rows: Sequence[StoredMessage], others: Collection[UUID]) -> list[StoredMessage]:
    """A conversation's first question and all up to the second, of messages that come newest first; nothing where the end
    of it is not among them, or it is among the `others`."""
    told = [each for each in reversed(rows) if each.sibling == 0]
    questions = [i for i, each in enumerate(told) if each.role == "user"]
    if len(questions) < 2 or any(each.message_id in others for each in told[: questions[1]]):
        return []
    return told[: questions[1]]


def repeated(path: Sequence[StoredMessage], hashes: Sequence[bytes]) -> int:
    """How many messages at the end of the path the client's begin with."""
    known = [each.message_hash for each in path]
    for length in range(min(len(known), len(hashes)), 0, -1):
        if known[-length:] == list(hashes[:length]):
            return length
    return 0


def repeated_end(path: Sequence[StoredMessage], hashes: Sequence[bytes]) -> int:
    """How many messages at the end of the path the client's end with."""
    length = 0
    while length < min(len(path), len(hashes)) and path[-1 - length].message_hash == hashes[-1 - length]:
        length += 1
    return length


def aligned(path: Sequence[StoredMessage], hashes: Sequence[bytes]) -> tuple[int, int]:
    """How many of the client's first messages stand one after the other in the path, and where in it they end: the longest
    such stretch, of equals the latest."""
    best = (0, 0)
    for begin in range(len(path)):
        length = 0
        while length < min(len(hashes), len(path) - begin) and path[begin + length].message_hash == hashes[length]:
            length += 1
        if length and length >= best[0]:
            best = (length, begin + length)
    return best


def supplied(path: Sequence[StoredMessage], following: Sequence[Mapping[str, Any]]) -> list[StoredMessage]:
    """The messages of a path that go to the upstream again: not what is hidden, and no tool call without its results, nor
    results without their call, which upstreams refuse. `following`: the client's own messages, which may bring results."""
    shown: list[StoredMessage] = []
    at = 0
    while at < len(path):
        message, at = path[at], at + 1
        results: list[StoredMessage] = []
        while at < len(path) and path[at].role in _RESULTS:
            results.append(path[at])
            at += 1
        if not message.tool_calls:
            shown += [] if message.hidden or message.role in _RESULTS else [message]
            continue
        results = [each for each in results if not each.hidden]
        given: list[object] = [each.tool_call_id for each in results]
        if at == len(path):
            given += _results_of(following)
        if not message.hidden and _answered(message.tool_calls, given):
            shown += [message, *results]
        elif not message.hidden and message.content:
            shown.append(message._replace(tool_calls=None))
    return shown


def _results_of(messages: Sequence[Mapping[str, Any]]) -> list[object]:
    """The calls that the client's first messages bring results of."""
    found: list[object] = []
    for each in messages:
        if each.get("role") in _RESULTS:
            found.append(each.get("tool_call_id"))
        elif each.get("role") not in ("system", "developer"):
            break
    return found


def _answered(calls: Any, given: Sequence[object]) -> bool:
    """Whether each call has a result; the old form has no ids, and one call."""
    wanted = [call.get("id") if isinstance(call, Mapping) else None for call in calls]
    return all(each in given if each is not None else bool(given) for each in wanted)
