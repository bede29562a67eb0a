"""Which conversation a request continues, and what of it is new.

A client sends the whole transcript each time, or a session id and only what is new; both must come out as one session in
which nothing is stored twice. The decision is a plain function (`decide`) over what the store recognised; what it needs of
the stored messages is read by `path.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from app.capture.recipe import Position
from app.context.transcript import Transcript, chain, tail_hash, text_of
from app.errors import NotFound
from app.gateway.identify import Identity
from app.gateway.path import aligned, read_path, repeated, repeated_end, supplied
from app.index.indexes import Fresh
from app.store import ids
from app.store.indexed import NO_INDEX, IndexAsk
from app.store.standing import NOTHING, Standing
from app.store.turns import Recognised, StoredMessage, TurnStore

How = Literal["new", "continue", "branch", "regenerate"]


class Place(Struct, frozen=True):
    """Where a request stands.

    `first_new`: index of the first of the client's messages that is not stored yet. `asked_index`: the turn index of the
    answers to a question that was asked before (a regeneration); None otherwise. `visible_from`: from this turn index on
    the session's messages stand in the prompt already. `start_chain`: the chain hash that the client's messages go on from
    (server-managed). `path`: the session's messages that Mneme has to supply, oldest first; `path_complete`: they are all
    there is before the client's own. `upstream_holds`: the upstream supplies them. `user_id`: whose session it is.
    """

    session_id: UUID
    new: bool
    how: How
    server_managed: bool
    first_new: int
    user_id: UUID
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
    upstream_holds: bool = False
    recognised: Recognised | None = None
    request_known: Position | None = None
    sent_known: Position | None = None
    standing: Standing = NOTHING
    config: Mapping[str, Any] = field(default_factory=dict)
    """The session's own settings."""
    fresh: Fresh | None = None
    """The user's index, where the server has one."""


def question_chain(place: Place, transcript: Transcript) -> bytes:
    """The chain hash up to the last message asked."""
    if not place.server_managed:
        return next((each for each in reversed(transcript.chains) if each is not None), b"")
    links = chain([each for each in transcript.hashes if each is not None], place.start_chain)
    return links[-1] if links else place.start_chain


def is_server_managed(transcript: Transcript, identity: Identity, wanted: str | None) -> bool:
    """Whether Mneme supplies the history: a session id and no answer of the client's own, unless the client says."""
    if identity.session is None:
        return False
    return wanted == "server" if wanted is not None else not transcript.answered


async def reconcile(
    store: TurnStore,
    identity: Identity,
    messages: Sequence[Mapping[str, Any]],
    transcript: Transcript,
    history: str | None,
    now: datetime,
    index: IndexAsk = NO_INDEX,
) -> Place:
    """Find the place of a request: one round trip, and where stored messages are needed a second one that reads them.

    `messages` and `transcript` run along each other. Raises NotFound for the session of another user, StoreUnavailable.
    """
    server = is_server_managed(transcript, identity, history)
    found = await _recognise(store, identity, transcript, index, server=server)
    place = decide(found, identity, messages, transcript, server=server, now=now)
    if not found.known or found.tip_message_id is None:
        return place
    if server:
        path, complete = await read_path(
            store, identity.tenant_id, place.user_id, found, place.parent_message_id or found.tip_message_id
        )
        return with_path(place, path, complete, messages, transcript)
    if place.how == "continue" and place.first_new == 0 and transcript.answered:
        # A named session, and its end is not where the transcript says: perhaps it is further up.
        path, _ = await read_path(store, identity.tenant_id, place.user_id, found, found.tip_message_id)
        return with_overlap(place, path, transcript)
    return place


async def _recognise(
    store: TurnStore, identity: Identity, transcript: Transcript, index: IndexAsk, *, server: bool
) -> Recognised:
    asked = dict[str, Any]()
    if not server:
        chains = transcript.chains
        last = transcript.answered[-1] if transcript.answered else 0
        tail1, tail2 = tails(transcript.roles, transcript.hashes)
        asked = {
            "chains": [each for i in transcript.answered if (each := chains[i]) is not None],
            "question": next((each for each in reversed(chains[:last]) if each is not None), None),
            "whole": next((each for each in reversed(chains) if each is not None), None),
            "tail1": tail1,
            "tail2": tail2,
        }
        if identity.confined and identity.session is None:
            # The sessions of all who are not named lie together, and strangers say the same short things ("thanks"): what
            # is no whole transcript leads to none of them. A repeated Idempotency-Key does: it is the client's own.
            asked |= {"tail1": None, "tail2": None}
            if not transcript.answered and not identity.repeats:
                asked["whole"] = None
    return await store.recognise(
        identity.tenant_id,
        identity.user_id,
        nobody=identity.confined,
        issued=identity.issued,
        named=identity.named,
        retry=identity.retried,
        index=index,
        **asked,
    )


def tails(roles: Sequence[str], hashes: Sequence[bytes | None]) -> tuple[bytes | None, bytes | None]:
    """The hashes of the last one and two answered turns, by which a client that cuts off the head of its transcript is
    found. A first turn that has lost its beginning is none."""
    answered = [i for i, role in enumerate(roles) if role == "assistant"]
    spoken = (role for role, each in zip(roles, hashes, strict=True) if each is not None)
    whole = len(answered) if next(spoken, None) == "user" else len(answered) - 1
    one, two = (tail_hash(hashes, answered, turns) if turns <= whole else None for turns in (1, 2))
    return one, two


def decide(
    found: Recognised,
    identity: Identity,
    messages: Sequence[Mapping[str, Any]],
    transcript: Transcript,
    *,
    server: bool,
    now: datetime,
) -> Place:
    """The place of a request, from what the store recognised. Pure."""
    if found.how == "foreign":
        raise NotFound("There is no such session for this user.", param="X-Mneme-Session")
    if server:
        return server_place(found, identity, transcript, now)
    if found.how == "asked" and found.asked_turn_index is not None:
        only_says = not transcript.answered and identity.session is None and not identity.repeats
        if only_says and found.tip_turn_index > found.asked_turn_index + 1:
            return new_place(found, identity, now, server=False)  # no retry of that: the conversation has gone on since
        return known_place(
            found,
            identity,
            how="regenerate",
            first_new=len(transcript.roles),
            parent_message_id=found.asked_message_id,
            asked_index=found.asked_turn_index + 1,
            visible_from=found.head_visible_from,
        )
    if found.how == "rewritten" and _same_answer(found, text_of(messages[transcript.answered[-1]])):
        return known_place(
            found,
            identity,
            how="continue",
            first_new=transcript.answered[-1] + 1,
            parent_message_id=found.tip_message_id,
            visible_from=found.head_visible_from,
        )
    if found.head_message_id is not None and found.head_position is not None:
        return _after_head(found, identity, transcript, now)
    if found.how == "tail" or (found.how == "named" and _same_tail(found, transcript)):
        at = transcript.answered[-1] + 1
        return known_place(
            found,
            identity,
            how="continue",
            first_new=at,
            parent_message_id=found.tip_message_id,
            visible_from=found.tip_turn_index - _spoken(transcript, at) + 1,
        )
    if found.known and identity.session is not None:
        return known_place(found, identity, how="continue", first_new=0)
    return new_place(found, identity, now, server=False)


def same_answer(stored: str, shown: str) -> bool:
    """Whether what a client sends back as an answer still is the one that was given: all of it, without its white space,
    or a part, as after "stop", or with the thoughts taken out."""
    ours, theirs = "".join(stored.split()), "".join(shown.split())
    short, long = sorted((ours, theirs), key=len)
    return bool(short) and short in long


def _same_answer(found: Recognised, shown: str) -> bool:
    """One that was deleted is not there to be compared with: then whatever follows its question is taken for it."""
    return found.tip_text is None or same_answer(found.tip_text, shown)


def _after_head(found: Recognised, identity: Identity, transcript: Transcript, now: datetime) -> Place:
    """Behind an answer that was given: at the end of the session, or on a branch of it."""
    assert found.head_position is not None, "looked at by the caller"
    at = transcript.answered[found.head_position] + 1
    visible = found.head_visible_from if found.how == "chain" else 1
    if found.head_open or identity.session is not None:
        return known_place(
            found,
            identity,
            how="continue",
            first_new=at,
            parent_message_id=found.head_message_id,
            visible_from=visible,
        )
    assert found.session_id is not None, "a head belongs to a session"
    return replace(
        known_place(
            found, identity, how="branch", first_new=at, parent_message_id=found.head_message_id, visible_from=visible
        ),
        session_id=ids.uuid7(now),
        new=True,
        external_id=None,
        parent_session_id=found.session_id,
        branch_turn_index=found.head_turn_index,
    )


def server_place(found: Recognised, identity: Identity, transcript: Transcript, now: datetime) -> Place:
    """At the end of a session that the client has named, and brings only what is new to."""
    if not found.known:
        return new_place(found, identity, now, server=True)
    asked = next((each for each in reversed(transcript.hashes) if each is not None), None)
    if identity.retried and asked is not None and asked == found.tip_question_hash:
        # The first attempt is stored, with its answer or without: this is another answer to it.
        return known_place(
            found,
            identity,
            how="regenerate",
            server=True,
            first_new=len(transcript.roles),
            parent_message_id=found.tip_question_id,
            asked_index=(found.tip_question_index or 0) + 1,
        )
    return known_place(
        found,
        identity,
        how="continue",
        server=True,
        first_new=0,
        parent_message_id=found.tip_message_id,
        start_chain=found.tip_chain or b"",
    )


def with_path(
    place: Place,
    path: Sequence[StoredMessage],
    complete: bool,
    messages: Sequence[Mapping[str, Any]],
    transcript: Transcript,
) -> Place:
    """A server-managed place with the stored messages that lead to it, but for those that the client sends again."""
    own = [(i, each) for i, each in enumerate(transcript.hashes) if each is not None]
    hashes = [each for _, each in own]
    start, first_new = place.start_chain, place.first_new
    if place.how == "regenerate":
        again = repeated_end(path, hashes)
    else:
        again = repeated(path, hashes) if transcript.answered else 0
        first_new = own[again - 1][0] + 1 if again else first_new
    before = path[: len(path) - again]
    if place.how == "regenerate" or again:
        kept = [each.message_hash for each in before]
        start = (chain([each for each in kept if each], b"") or [b""])[-1] if complete else b""
    shown = supplied(before, messages)
    return replace(
        place,
        path=tuple(shown),
        path_complete=complete and shown == list(before),
        start_chain=start,
        first_new=first_new,
    )


def with_overlap(place: Place, path: Sequence[StoredMessage], transcript: Transcript) -> Place:
    """A named session's place in its stored messages, where the transcript leaves them."""
    own = [(i, each) for i, each in enumerate(transcript.hashes) if each is not None]
    length, end = aligned(path, [each for _, each in own])
    if not length:
        return place
    return replace(
        place,
        first_new=own[length - 1][0] + 1,
        parent_message_id=path[end - 1].message_id,
        visible_from=max(1, path[end - length].turn_index),
    )


def new_place(found: Recognised, identity: Identity, now: datetime, *, server: bool) -> Place:
    """A session that begins with this request; one that the client named has its id from that name."""
    session = (found.session_id if not found.known else None) or identity.named or ids.uuid7(now)
    return Place(
        session_id=session,
        new=True,
        how="new",
        server_managed=server,
        first_new=0,
        user_id=found.user_id or identity.user_id,
        external_id=identity.session,
        retrieval_session=session,
        recognised=None if found.known else found,
        standing=found.standing,
    )


def nowhere(identity: Identity, now: datetime) -> Place:
    """Where a request stands of which nothing can be found out: for a prompt that says so, and nothing else."""
    session = ids.uuid7(now)
    return Place(session, True, "new", False, 0, identity.user_id, retrieval_session=session)


def known_place(found: Recognised, identity: Identity, *, how: How, server: bool = False, **fields: Any) -> Place:
    """A place in a session that was found."""
    assert found.session_id is not None, "a known session has an id"
    fields["visible_from"] = max(1, fields.get("visible_from", 1))
    return Place(
        session_id=found.session_id,
        new=False,
        how=how,
        server_managed=server,
        user_id=found.user_id or identity.user_id,
        external_id=found.external_id,
        retrieval_session=found.session_id,
        ancestors=tuple(session for session, _ in found.ancestors),
        recognised=found,
        request_known=_position(found.request_chain, found.request_count),
        sent_known=_position(found.sent_chain, found.sent_count),
        standing=found.standing,
        config=found.config,
        **fields,
    )


def _position(chain_hash: bytes | None, count: int | None) -> Position | None:
    return Position(chain_hash, count) if chain_hash is not None and count is not None else None


def _same_tail(found: Recognised, transcript: Transcript) -> bool:
    return found.tail1 is not None and found.tail1 == tails(transcript.roles, transcript.hashes)[0]


def _spoken(transcript: Transcript, end: int) -> int:
    """How many of the first `end` messages are part of the conversation (not system messages)."""
    return sum(1 for each in transcript.hashes[:end] if each is not None)
