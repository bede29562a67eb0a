"""Which conversation a request continues, and what of it is new.

A client sends the whole transcript each time, or a session id and only what is new; both must come out as one session in
which nothing is stored twice. The decision is a plain function (`decide`) over what the store recognised; what it needs of
the stored messages is read by `read_path`. Where the upstream holds the earlier messages itself (`previous_response_id`,
`conversation`), `reconcile_held` finds the place, and what the upstream puts before is counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from app.capture.facts import Position
from app.context.request import CompileRequest
from app.context.retrieve import SharedScope
from app.context.transcript import RESULT_ROLES, Transcript, answer_text, chain, mark_of_answer, tail_hash
from app.errors import NotFound
from app.gateway.identify import Identity
from app.index.indexes import CurrentIndex
from app.store import ids
from app.store.indexed import NO_INDEX, NO_SPACES, IndexAsk, SharedRead, SpacesAsk
from app.store.turns import Recognised, StoredMessage, TurnStore
from app.store.user_profile import NOTHING, Standing

# --- the stored messages that led to a point of a conversation -----------------------------------------------------------

HISTORY_FETCH = 400
"""Messages of a session read for a request: seed 001 §5.2's window of 20 turns twenty times over. Older ones stay reachable
by retrieval; the first turn is always kept."""
MAX_BRANCH_DEPTH = 16
"""Sessions followed upwards from a branch: deeper trees than that are not made by people."""
FIRST_TURN = 32
"""Messages within which a first turn must end to be kept: its tool calls and their results belong to it."""


async def read_path(
    store: TurnStore, tenant: UUID, user: UUID, found: Recognised, last: UUID
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
        while at < len(path) and path[at].role in RESULT_ROLES:
            results.append(path[at])
            at += 1
        if not message.tool_calls:
            shown += [] if message.hidden or message.role in RESULT_ROLES else [message]
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
        if each.get("role") in RESULT_ROLES:
            found.append(each.get("tool_call_id"))
        elif each.get("role") not in ("system", "developer"):
            break
    return found


def _answered(calls: Any, given: Sequence[object]) -> bool:
    """Whether each call has a result; the old form has no ids, and one call."""
    wanted = [call.get("id") if isinstance(call, Mapping) else None for call in calls]
    return all(each in given if each is not None else bool(given) for each in wanted)


# --- the place of a request ----------------------------------------------------------------------------------------------

How = Literal["new", "continue", "branch", "regenerate"]


class Place(Struct, frozen=True):
    """Where a request stands.

    `first_new`: index of the first of the client's messages that is not stored yet. `asked_index`: the turn index of the
    answers to a question that was asked before (a regeneration); None otherwise. `branch_turn_index`: that of the last
    message that a new branch shares with its parent; `recognised` is of the parent then. `visible_from`: from this turn index
    on the session's messages stand in the prompt already. `start_chain`: the chain hash that the client's messages go on from
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
    fresh: CurrentIndex | None = None
    """The user's index, where the server has one."""
    spaces: tuple[SharedRead, ...] = ()
    """The shared spaces that the user may read."""
    shared: tuple[SharedScope, ...] = ()
    """What is asked of them."""


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
    spaces: SpacesAsk = NO_SPACES,
) -> Place:
    """Find the place of a request: one round trip, and where stored messages are needed a second one that reads them.

    `messages` and `transcript` run along each other. Raises NotFound for the session of another user, StoreUnavailable.
    """
    server = is_server_managed(transcript, identity, history)
    found = await _recognise(store, identity, None if server else transcript, index, spaces)
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
    store: TurnStore,
    identity: Identity,
    transcript: Transcript | None,
    index: IndexAsk,
    spaces: SpacesAsk,
    chains: Sequence[bytes] = (),
) -> Recognised:
    """What the store knows of who asks. `transcript`: one that is looked for; else the `chains` are."""
    asked: dict[str, Any] = {"chains": chains} if chains else {}
    if transcript is not None:
        linked = transcript.chains
        last = transcript.answered[-1] if transcript.answered else 0
        tail1, tail2 = tails(transcript.roles, transcript.hashes)
        asked = {
            "chains": [each for i in transcript.answered if (each := linked[i]) is not None],
            "question": next((each for each in reversed(linked[:last]) if each is not None), None),
            "whole": next((each for each in reversed(linked) if each is not None), None),
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
        spaces=spaces,
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
        return _server_place(found, identity, transcript, now)
    if found.how == "asked" and found.asked_turn_index is not None:
        only_says = not transcript.answered and identity.session is None and not identity.repeats
        if only_says and found.tip_turn_index > found.asked_turn_index + 1:
            # No retry of that: the conversation has gone on since.
            return _new_place(found, identity, now, server=False)
        return _known_place(
            found,
            identity,
            how="regenerate",
            first_new=len(transcript.roles),
            parent_message_id=found.asked_message_id,
            asked_index=found.asked_turn_index + 1,
            visible_from=found.head_visible_from,
        )
    # An answer that was deleted is not there to be compared with: then whatever follows its question is taken for it.
    if found.how == "rewritten" and (
        found.tip_text is None or same_answer(found.tip_text, answer_text(messages[transcript.answered[-1]]))
    ):
        return _known_place(
            found,
            identity,
            how="continue",
            first_new=transcript.answered[-1] + 1,
            parent_message_id=found.tip_message_id,
            visible_from=found.head_visible_from,
        )
    if found.head_message_id is not None and found.head_position is not None:
        return _after_head(found, identity, transcript, now)
    cut = found.how == "named" and found.tail1 is not None
    if found.how == "tail" or (cut and found.tail1 == tails(transcript.roles, transcript.hashes)[0]):
        at = transcript.answered[-1] + 1
        return _known_place(
            found,
            identity,
            how="continue",
            first_new=at,
            parent_message_id=found.tip_message_id,
            visible_from=found.tip_turn_index - _spoken(transcript, at) + 1,
        )
    if found.known and identity.session is not None:
        return _known_place(found, identity, how="continue", first_new=0)
    return _new_place(found, identity, now, server=False)


def same_answer(stored: str, shown: str) -> bool:
    """Whether what a client sends back as an answer still is the one that was given: all of it, without its white space,
    or a part, as after "stop", or with the thoughts taken out."""
    ours, theirs = "".join(stored.split()), "".join(shown.split())
    short, long = sorted((ours, theirs), key=len)
    return bool(short) and short in long


def _after_head(found: Recognised, identity: Identity, transcript: Transcript, now: datetime) -> Place:
    """Behind an answer that was given: at the end of the session, or on a branch of it."""
    assert found.head_position is not None, "looked at by the caller"
    at = transcript.answered[found.head_position] + 1
    visible = found.head_visible_from if found.how == "chain" else 1
    place = _known_place(
        found, identity, how="continue", first_new=at, parent_message_id=found.head_message_id, visible_from=visible
    )
    return _or_branch(place, found, identity, now)


def _or_branch(place: Place, found: Recognised, identity: Identity, now: datetime) -> Place:
    """A place behind an answer; on a branch, a session of its own, where that answer is not the last."""
    if found.head_open or identity.session is not None:
        return place
    return replace(
        place,
        how="branch",
        session_id=ids.uuid7(now),
        new=True,
        external_id=None,
        parent_session_id=found.session_id,
        branch_turn_index=found.head_turn_index,
    )


def _server_place(found: Recognised, identity: Identity, transcript: Transcript, now: datetime) -> Place:
    """At the end of a session that the client has named, and brings only what is new to."""
    if not found.known:
        return _new_place(found, identity, now, server=True)
    asked = next((each for each in reversed(transcript.hashes) if each is not None), None)
    if identity.retried and asked is not None and asked == found.tip_question_hash:
        # The first attempt is stored, with its answer or without: this is another answer to it.
        return _known_place(
            found,
            identity,
            how="regenerate",
            server=True,
            first_new=len(transcript.roles),
            parent_message_id=found.tip_question_id,
            asked_index=(found.tip_question_index or 0) + 1,
        )
    return _known_place(
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


def _new_place(found: Recognised, identity: Identity, now: datetime, *, server: bool) -> Place:
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
        spaces=found.shared,
    )


def nowhere(identity: Identity, now: datetime) -> Place:
    """Where a request stands of which nothing can be found out: for a prompt that says so, and nothing else."""
    session = ids.uuid7(now)
    return Place(session, True, "new", False, 0, identity.user_id, retrieval_session=session)


def _known_place(found: Recognised, identity: Identity, *, how: How, server: bool = False, **fields: Any) -> Place:
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
        spaces=found.shared,
        **fields,
    )


def _position(chain_hash: bytes | None, count: int | None) -> Position | None:
    return Position(chain_hash, count) if chain_hash is not None and count is not None else None


def _spoken(transcript: Transcript, end: int) -> int:
    """How many of the first `end` messages are part of the conversation (not system messages)."""
    return sum(1 for each in transcript.hashes[:end] if each is not None)


# --- where the upstream holds the earlier messages -----------------------------------------------------------------------


async def reconcile_held(
    store: TurnStore,
    identity: Identity,
    transcript: Transcript,
    follows: str | None,
    now: datetime,
    index: IndexAsk = NO_INDEX,
    spaces: SpacesAsk = NO_SPACES,
) -> Place:
    """The place behind the answer whose id is `follows`, else at the end of the session named. Raises NotFound for the session
    of another user, StoreUnavailable."""
    chains = [mark_of_answer(follows)] if follows is not None else []
    found = await _recognise(store, identity, None, index, spaces, chains)
    place = decide_held(found, identity, transcript, now)
    own = [each for each in transcript.hashes if each is not None]
    last = place.parent_message_id or (found.tip_message_id if found.known else None)
    if last is None:
        return place
    path, complete = await read_path(store, identity.tenant_id, place.user_id, found, last)
    return with_held(place, path, complete, own)


def decide_held(found: Recognised, identity: Identity, transcript: Transcript, now: datetime) -> Place:
    """The place of a request, from what the store recognised. Pure. An answer that Mneme has not seen begins a session."""
    if found.how == "foreign":
        raise NotFound("There is no such session for this user.", param="X-Mneme-Session")
    if found.head_message_id is None:
        placed = _server_place(found, identity, transcript, now)
        return replace(placed, upstream_holds=True)
    asked = next((each for each in reversed(transcript.hashes) if each is not None), None)
    after = (found.tip_question_index or 0) > (found.head_turn_index or 0)
    if identity.retried and after and asked is not None and asked == found.tip_question_hash:
        return replace(_server_place(found, identity, transcript, now), upstream_holds=True)
    place = _known_place(
        found,
        identity,
        how="continue",
        server=True,
        first_new=0,
        parent_message_id=found.head_message_id,
        visible_from=found.head_visible_from,
        upstream_holds=True,
        start_chain=(found.tip_chain or b"") if found.head_message_id == found.tip_message_id else b"",
    )
    return _or_branch(place, found, identity, now)


def with_held(place: Place, path: Sequence[StoredMessage], complete: bool, own: Sequence[bytes]) -> Place:
    """A place with the stored messages that the upstream holds. Of a question that is asked again they are those before it.
    `own`: the hashes of the client's messages."""
    if place.how == "regenerate":
        path = path[: len(path) - repeated_end(path, own)]
    hashes = [each.message_hash for each in path if each.message_hash is not None]
    start = (chain(hashes) or [b""])[-1] if complete else place.start_chain
    return replace(place, path=tuple(path), path_complete=complete, start_chain=start)


def over_held(request: CompileRequest, place: Place) -> CompileRequest:
    """The request with what the upstream puts before it, as the prompt will be."""
    path, lead = request.path, request.transcript.lead
    return replace(
        request,
        messages=[*request.messages[:lead], *(each.message for each in path), *request.messages[lead:]],
        transcript=request.transcript.with_earlier(
            lead,
            [str(each.message.get("role")) for each in path],
            [each.message_hash for each in path],
            place.start_chain,
            whole=place.path_complete,
        ),
        path=(),
        path_complete=True,
        server_managed=False,
        start_chain=b"",
        upstream_holds=True,
    )
