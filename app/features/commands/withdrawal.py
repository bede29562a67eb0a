"""Standing wishes that the user took back, ended by the job that learns from the message."""

from __future__ import annotations

from collections.abc import Sequence

from app.clock import Clock
from app.features.commands.grammar import WITHDRAWS, commands, taken_back
from app.features.commands.store import Doing, Done
from app.jobs.learn import LearnJob, Told
from app.memory.drafts import Draft
from app.memory.extract_clauses import MAX_OWN_WORD
from app.store import ids
from app.store.learning import Effect
from app.store.queries import Queries


async def withdraw(
    sql: Queries, clock: Clock, job: LearnJob, effect: Effect, exchanges: Sequence[Told], statements: Sequence[Draft]
) -> None:
    """End standing wishes that the user took back where no request did it: in what is imported, or was said while memory was
    late. Each is a command that can be undone; one that says something else besides stays, for there is nobody to ask.

    Within a job's effect, after what its messages state is taken in. What was said later, and learned earlier, takes back the
    wishes that are new, too."""
    scope = job.session if job.confined else ids.NIL
    doing = Doing(effect.connection, sql, job.tenant, job.user, scope, clock.now(), None)
    said = {own[0].message_id: (exchange.user_text, own[0].created_at) for exchange, own in exchanges}
    asked = [each.message.created_at for each in statements if each.candidate.kind == "instruction"]
    if asked:
        said |= await doing.said_since(min(asked), MAX_OWN_WORD)
    for message, (text, at) in said.items():
        orders = [each for each in commands(text) if each.kind in WITHDRAWS]
        place = await doing.heeded(message) if orders else None
        if place is None:
            continue
        session, message_hash, done = place
        if done is not None and (done.undone or done.outcome != "done"):
            continue  # what was done about it does to older wishes, too, that were learned since; undone, it does no more
        for order in orders:
            found = taken_back(order.about, await doing.wishes(at), order.language, allows=order.kind == "allow")
            if not found.wishes or not found.clear:
                continue
            items = await doing.end([each.memory_id for each in found.wishes])
            if done is not None:
                await doing.confirmed(done.command_id, (*done.items, *items))
            else:
                new = Done(ids.uuid7(doing.now), order.kind, order.scope, "done", items)
                await doing.note(session, message.bytes, message_hash, new)
