"""Conversations whose earlier messages the upstream holds itself: `previous_response_id`, `conversation`.

The client sends only what is new, and nothing is supplied to it, for the upstream does. What was said is stored all the same,
so the place of the request is found, and its prompt is counted, as if it stood in it. What memory put into it earlier is the
upstream's now: it stays there, and is not put in twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from app.context.request import CompileRequest
from app.context.transcript import SYSTEM_ROLES, Transcript, chain
from app.dialects.responses import mark_of
from app.errors import NotFound
from app.gateway.identify import Identity
from app.gateway.reconcile import Place, known_place, read_path, repeated_end, server_place
from app.store import ids
from app.store.indexed import NO_INDEX, IndexAsk
from app.store.turns import Recognised, StoredMessage, TurnStore


async def reconcile_held(
    store: TurnStore,
    identity: Identity,
    transcript: Transcript,
    follows: str | None,
    now: datetime,
    index: IndexAsk = NO_INDEX,
) -> Place:
    """The place behind the answer whose id is `follows`, else at the end of the session named. Raises NotFound for the session
    of another user, StoreUnavailable."""
    found = await store.recognise(
        identity.tenant_id,
        identity.user_id,
        nobody=identity.confined,
        issued=identity.issued,
        named=identity.named,
        chains=[mark_of(follows)] if follows is not None else [],
        retry=identity.retried,
        index=index,
    )
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
        placed = server_place(found, identity, transcript, now)
        return replace(placed, upstream_holds=True)
    asked = next((each for each in reversed(transcript.hashes) if each is not None), None)
    after = (found.tip_question_index or 0) > (found.head_turn_index or 0)
    if identity.retried and after and asked is not None and asked == found.tip_question_hash:
        return replace(server_place(found, identity, transcript, now), upstream_holds=True)
    place = known_place(
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
    own, path = request.transcript, request.path
    lead = next((i for i, role in enumerate(own.roles) if role not in SYSTEM_ROLES), len(own.roles))
    hashes = [each.message_hash for each in path]
    known = [each for each in hashes if each is not None]
    before: list[bytes | None] = [None] * len(hashes)
    if place.path_complete and len(known) == len(hashes):
        before = [*chain(known)]
    links = iter(chain([each for each in own.hashes[lead:] if each is not None], place.start_chain))
    roles = (*own.roles[:lead], *(str(each.message.get("role")) for each in path), *own.roles[lead:])
    return replace(
        request,
        messages=[*request.messages[:lead], *(each.message for each in path), *request.messages[lead:]],
        transcript=Transcript(
            roles=roles,
            hashes=(*own.hashes[:lead], *hashes, *own.hashes[lead:]),
            chains=(*own.chains[:lead], *before, *(None if h is None else next(links) for h in own.hashes[lead:])),
            answered=tuple(i for i, role in enumerate(roles) if role == "assistant"),
        ),
        path=(),
        path_complete=True,
        server_managed=False,
        start_chain=b"",
        upstream_holds=True,
    )
