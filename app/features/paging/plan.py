"""The decision on one prompt, from what is stored and said to what is recorded of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.features.paging.explanation import explained
from app.features.paging.fidelity import Decision, Moment, decide
from app.features.paging.prompt import PagedRequest, ReceivedRequest, Where, heard
from app.features.paging.segment import Segmentation
from app.features.paging.state import Paging
from app.features.paging.tools import Declined, ToolInsertion
from app.features.paging.values import Fault, FaultType, Fidelity, Paged, Relationship, SemanticObject

LEFT_OUT = "left_out"
"""In a row of the ledger: the exchange is not shown any more."""


class TranscriptObjects(NamedTuple):
    """A transcript taken apart. `objects`: all that are known, in order; `where`: of those that it has; `costs`: tokens of each
    message as it came."""

    made: Segmentation
    objects: Sequence[SemanticObject]
    where: Where
    costs: Sequence[int]


class FixedTokens(NamedTuple):
    """Tokens of a prompt beside its messages. `schemas`: the client's, and what opens the answer; `tools`: ours; `memory`: the
    room that is left for it."""

    schemas: int
    tools: int
    memory: int


class Plan(Struct):
    """A decision under way. `measured`: tokens of objects as they are shown now; `left`: exchanges that are left out from now
    on, by the index of their answer."""

    page: ReceivedRequest
    relations: Sequence[Relationship]
    moment: Moment
    measured: Mapping[UUID, int]
    decision: Decision
    left: Mapping[int, Mapping[str, Any]]

    def size(self, made: SemanticObject, level: Fidelity) -> int:
        return _size(self.page, self.measured, made, level)

    def dearer(self, tokens: int) -> bool:
        """Decide once more, now that it is known what the prompt came to. False: there is nothing more to gain."""
        more = tokens - self.decision.tokens
        if tokens <= self.moment.budget or more <= 0 or not self.decision.transitions:
            return False
        self.moment = replace(self.moment, other_tokens=self.moment.other_tokens + more)
        self.decision = decide(self.page.objects, self.relations, self.moment, self.size)
        return True


def plan(
    page: ReceivedRequest,
    state: Paged,
    taken: TranscriptObjects,
    faults: Sequence[Fault],
    budget: int,
    beside: FixedTokens,
    measured: Mapping[UUID, int],
) -> Plan:
    """The first decision. `faults`: of calls that were answered just now."""
    relations = [*state.relationships, *taken.made.relationships]
    said = heard(page.chat, page.objects, relations, frozenset(each.id for each in taken.made.objects))
    # What was asked back just now stands in full at its place as well.
    asked = frozenset(
        each.object_id
        for each in faults
        if each.object_id is not None and each.pin and each.fault_type == FaultType.FULL_RESTORE
    )
    whole = sum(page.size(each, Fidelity.FULL) for each in page.objects)
    other = sum(page.costs) - whole + sum(page.added.values()) + sum(beside)
    moment = Moment(
        page.turn,
        budget,
        other,
        zone=state.zone,
        relevance=said.relevance,
        accessed=said.accessed,
        restored=state.restored | asked,
        raised=state.raised,
        released=state.released,
        goal_changed=said.goal_changed,
    )
    made = Plan(page, relations, moment, measured, _decide(page, relations, moment, measured), {})
    before = other + sum(made.size(each, each.fidelity) for each in page.objects)
    if left := page.to_go(before, budget, state.zone, made.decision):
        made.left = {at: {**page.hidden[at].as_json(), LEFT_OUT: True} for at in left}
        made.moment = replace(moment, other_tokens=other - sum(page.added[at] for at in left))
        made.page = page.without(left)
        made.decision = _decide(made.page, relations, made.moment, measured)
    return made


def fill(
    paging: Paging,
    made: Plan,
    taken: TranscriptObjects,
    shown: Sequence[SemanticObject],
    drawn: PagedRequest,
    offered: ToolInsertion | Declined,
    beside: FixedTokens,
    window: int,
) -> None:
    """What was decided, as the rest of the call needs it. `shown`: the objects whose place may change, as they are shown."""
    page, decision, moment = made.page, made.decision, made.moment
    needed = paging.state.offered or any(each.fidelity > Fidelity.FULL for each in shown)
    insertions, ours = list(drawn.insertions), 0
    if isinstance(offered, ToolInsertion) and needed:
        insertions += offered.insertions
        paging.names, paging.schemas, ours = offered.names, [offered.tools], beside.tools
    elif isinstance(offered, Declined) and needed:
        paging.declined = offered.reason
    now = {each.id: each for each in shown}
    paging.objects = [
        now.get(each.id) or replace(each, fidelity=Fidelity.FULL) for each in taken.objects if each.id in taken.where
    ]
    paging.insertions, paging.costs, paging.window = insertions, drawn.costs, window
    paging.scale = page.scale
    paging.saved = sum(page.costs) - sum(drawn.costs)
    chains = page.chat.transcript.chains
    left = {chain: row for at, row in made.left.items() if (chain := chains[at]) is not None}
    wanted = moment.restored | moment.raised | moment.released
    paging.record = replace(
        paging.record,
        turn=page.turn,
        zone=decision.zone,
        tokens=sum(page.costs) + beside.schemas,
        shown_tokens=sum(drawn.costs) + beside.schemas + ours,
        offered=paging.names is not None or paging.state.offered,
        marks=taken.made.marks,
        objects=tuple(now.get(each.id, each) for each in taken.made.objects),
        relationships=taken.made.relationships,
        admissions=taken.made.admissions,
        transitions=decision.transitions,
        pinned=decision.pinned,
        uses=moment.accessed,
        heard=frozenset(each for each in wanted if each in now),
        hidden={**paging.record.hidden, **left},
    )
    paging.room = max(0, paging.budget - paging.record.shown_tokens)
    exchanges = [(at, each.told is not None) for at, each in sorted(page.hidden.items())]
    paging.explained = explained(paging.record, shown, exchanges, paging.names, paging.declined)


def _decide(
    page: ReceivedRequest, relations: Sequence[Relationship], moment: Moment, measured: Mapping[UUID, int]
) -> Decision:
    return decide(page.objects, relations, moment, lambda made, level: _size(page, measured, made, level))


def _size(page: ReceivedRequest, measured: Mapping[UUID, int], made: SemanticObject, level: Fidelity) -> int:
    """Tokens of an object: as it is shown now they are known, else estimated."""
    if level == made.fidelity and level != Fidelity.FULL and (known := measured.get(made.id)) is not None:
        return known
    return page.size(made, level)
