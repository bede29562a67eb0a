"""Which conversation a request continues, and what of it is new.

A client sends the whole transcript each time, or a session id and only what is new; both must come out as one session in
which nothing is stored twice. The decision is a plain function (`place`) over what the store recognised (`recognise`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from app.capture.recipe import Position
from app.context.transcript import Transcript, chain
from app.errors import NotFound
from app.gateway.identify import Identity
from app.store import ids
from app.store.turns import Recognised, StoredMessage, TurnStore

HISTORY_FETCH = 400
"""Messages of a session read for a server-managed request: seed 001 §5.2's window of 20 turns twenty times over. Older ones
stay reachable by retrieval; the first turn is always kept."""

MAX_BRANCH_DEPTH = 16
"""Sessions followed upwards from a branch: deeper trees than that are not made by people."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request stands.

    `first_new`: index of the first of the client's messages that is not stored yet. `asked_index`: the turn index of the
    answers to a question that was answered before (a regeneration); None otherwise. `visible_from`: from this turn index on
    the session's messages stand in the prompt already. `start_chain`: the chain hash that the client's messages go on from
    (server-managed). `path`: the session's messages that Mneme has to supply, oldest first.
    """

    session_id: UUID
    new: bool
    how: Literal["new", "continue", "branch", "regenerate"]
    server_managed: bool
    first_new: int
    external_id: str | None = None
    parent_session_id: UUID | None = None
    branch_turn_index: int | None = None
    parent_message_id: UUID | None = None
    asked_index: int | None = None
    visible_from: int = 1
    ancestors: tuple[UUID, ...] = ()
    retrieval_session: UUID | None = None
    start_chain: bytes = b""
    path: tuple[StoredMessage, ...] = ()
    path_complete: bool = True
    recognised: Recognised | None = None
    request_known: Position | None = None
    sent_known: Position | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def is_server_managed(transcript: Transcript, identity: Identity, wanted: str | None) -> bool:
    """Whether Mneme supplies the history: a session id and no answer of the client's own, unless the client says."""
    if identity.session is None:
        return False
    return wanted == "server" if wanted is not None else not transcript.answered


async def reconcile(
    store: TurnStore, identity: Identity, transcript: Transcript, history: str | None, now: datetime
) -> Place:
    """Find the place of a request: one round trip, and for server-managed history a second one that reads it.

    Raises NotFound for the session of another user, StoreUnavailable.
    """
    server = is_server_managed(transcript, identity, history)
    heads = [transcript.chains[i] for i in transcript.answered]
    whole = next((each for each in reversed(transcript.chains) if each is not None), None)
    found = await store.recognise(
        identity.tenant_id,
        identity.user_id,
        issued=identity.issued,
        named=identity.named,
        chains=[] if server else [each for each in heads if each is not None],
        whole=None if server else whole,
        tail1=None if server else transcript.tail(1),
        tail2=None if server else transcript.tail(2),
        retry=identity.retried or identity.idempotency_key is not None,
    )
    place = decide(found, identity, transcript, server, now)
    if server and found.known and found.tip_message_id is not None:
        path, complete = await _read_path(store, identity, found, place.parent_message_id)
        place = _with_path(place, path, complete)
    return place


def decide(found: Recognised, identity: Identity, transcript: Transcript, server: bool, now: datetime) -> Place:
    """The place of a request, from what the store recognised. Pure."""
    if found.how == "foreign":
        raise NotFound("There is no such session for this user.", param="X-Mneme-Session")
    if server:
        return _server_place(found, identity, transcript)
    if found.how == "asked" and found.asked_turn_index is not None:
        return _known(
            found,
            how="regenerate",
            first_new=len(transcript.roles),
            parent_message_id=found.asked_message_id,
            asked_index=found.asked_turn_index + 1,
            visible_from=found.asked_turn_index - _spoken(transcript, len(transcript.roles)) + 1,
        )
    if found.how == "chain" and found.head_position is not None and found.head_turn_index is not None:
        at = transcript.answered[found.head_position]
        visible = found.head_turn_index - _spoken(transcript, at + 1) + 1
        if found.head_message_id == found.tip_message_id or identity.session is not None:
            return _known(
                found, how="continue", first_new=at + 1, parent_message_id=found.head_message_id, visible_from=visible
            )
        assert found.session_id is not None, "a head belongs to a session"
        return Place(
            session_id=ids.uuid7(now),
            new=True,
            how="branch",
            server_managed=False,
            first_new=at + 1,
            parent_session_id=found.session_id,
            branch_turn_index=found.head_turn_index,
            parent_message_id=found.head_message_id,
            visible_from=visible,
            retrieval_session=found.session_id,
            ancestors=_ancestors(found),
            recognised=found,
            request_known=_position(found.request_chain, found.request_count),
            sent_known=_position(found.sent_chain, found.sent_count),
        )
    if found.how == "tail" or (found.how == "named" and found.tail1 is not None and found.tail1 == transcript.tail(1)):
        at = transcript.answered[-1] + 1
        return _known(
            found,
            how="continue",
            first_new=at,
            parent_message_id=found.tip_message_id,
            visible_from=found.tip_turn_index - _spoken(transcript, at) + 1,
        )
    return _known(found, how="continue", first_new=0) if found.known else _new(found, identity, now)


def _server_place(found: Recognised, identity: Identity, transcript: Transcript) -> Place:
    if not found.known:
        return _new(found, identity, None, server=True)
    asked = next((each for each in reversed(transcript.hashes) if each is not None), None)
    if identity.retried and asked is not None and asked == found.tip_question_hash:
        # The first attempt was answered, or cut off: its question is stored, this is another answer to it.
        return _known(
            found,
            how="regenerate",
            server=True,
            first_new=len(transcript.roles),
            parent_message_id=found.tip_question_id,
            asked_index=found.tip_turn_index,
        )
    return _known(
        found,
        how="continue",
        server=True,
        first_new=0,
        parent_message_id=found.tip_message_id,
        start_chain=found.tip_chain or b"",
    )


def _new(found: Recognised, identity: Identity, now: datetime | None, *, server: bool = False) -> Place:
    """A session that begins with this request; one that the client named has its id from that name."""
    session = found.session_id or identity.named
    if session is None:
        assert now is not None, "a session without a name gets its id from the clock"
        session = ids.uuid7(now)
    return Place(
        session_id=session,
        new=True,
        how="new",
        server_managed=server,
        first_new=0,
        external_id=identity.session,
        retrieval_session=session,
        recognised=found,
    )


def _known(found: Recognised, *, how: Literal["continue", "regenerate"], server: bool = False, **fields: Any) -> Place:
    assert found.session_id is not None, "a known session has an id"
    fields["visible_from"] = max(1, fields.get("visible_from", 1))
    return Place(
        session_id=found.session_id,
        new=False,
        how=how,
        server_managed=server,
        external_id=found.external_id,
        retrieval_session=found.session_id,
        ancestors=_ancestors(found),
        recognised=found,
        request_known=_position(found.request_chain, found.request_count),
        sent_known=_position(found.sent_chain, found.sent_count),
        **fields,
    )


def _ancestors(found: Recognised) -> tuple[UUID, ...]:
    return (found.parent_session_id,) if found.parent_session_id is not None else ()


def _position(chain_hash: bytes | None, count: int | None) -> Position | None:
    return Position(chain_hash, count) if chain_hash is not None and count is not None else None


def _spoken(transcript: Transcript, end: int) -> int:
    """How many of the first `end` messages are part of the conversation (not system messages)."""
    return sum(1 for each in transcript.hashes[:end] if each is not None)


async def _read_path(
    store: TurnStore, identity: Identity, found: Recognised, last: UUID | None
) -> tuple[list[StoredMessage], bool]:
    """The messages that led to `last`, oldest first, and whether they reach back to the beginning."""
    rows: dict[UUID, StoredMessage] = {}
    session, before = found.session_id, found.tip_turn_index + 2
    parents = [(found.parent_session_id, found.branch_turn_index)]
    for _ in range(MAX_BRANCH_DEPTH):
        if session is None or len(rows) >= HISTORY_FETCH:
            break
        limit = HISTORY_FETCH - len(rows)
        fetched = await store.session_messages(
            identity.tenant_id, identity.user_id, session, before=before, limit=limit
        )
        rows.update({each.message_id: each for each in fetched})
        parent, branched = parents.pop() if parents else (None, None)
        session, before = parent, (branched or 0) + 1
    path: list[StoredMessage] = []
    at = last
    while at is not None and (row := rows.get(at)) is not None:
        path.append(row)
        at = row.parent_message_id
    complete = at is None
    if not complete and found.session_id is not None:
        # The first turn is always kept: it says what the conversation is about (seed 001 §5.2).
        first = await store.session_messages(identity.tenant_id, identity.user_id, found.session_id, before=3, limit=4)
        have = {each.message_id for each in path}
        path += [each for each in first if each.message_id not in have and each.sibling == 0]
    path.reverse()
    return path, complete


def _with_path(place: Place, path: Sequence[StoredMessage], complete: bool) -> Place:
    from dataclasses import replace

    start = place.start_chain
    if place.asked_index is not None:
        # A second answer to a stored question: the chain goes on from that question.
        hashes = [each.message_hash for each in path if each.message_hash is not None]
        start = chain(hashes)[-1] if hashes and complete else b""
    return replace(place, path=tuple(path), path_complete=complete, start_chain=start)
