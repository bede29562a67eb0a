"""What becomes of a statement that was found: repeated, refined, corrected, in conflict, or new (seeds 000 §5.4, 004).

    new statement ── what was said before and says the same (same words; same triple; cosine > τ, or one gist, and one claim)
          │               one of them says more ──> it is kept as another wording of that memory, which it reinforces
          │               it says more than they ──> it takes their place, and goes on with what they had gathered
          └── nothing like it ──> it is kept: L1 for a day, or L2, L3, L4 where the user said so
    then ── its triple, or its words, against those of other memories (seed 004): a correction, or the winner of a conflict,
            ends the others
         ── what it says is not so any more is closed, with the statement in its place; what it makes doubtful is in doubt until
            the user has spoken

In force is what nothing that was ever said says better: of like statements the one of the highest `rank`, of contrary ones the
one said last. Neither depends on the order in which statements arrive, only on what they are and when they were said.
Plain computation over plain values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from app.memory.candidate import Provenance, ends_with, vouched
from app.memory.claims import (
    AUTHORITY,
    SHIPPED,
    ClaimSide,
    TripleRelation,
    Trust,
    confirmed,
    ends,
    prefer,
    relation,
    replaces,
)
from app.memory.compare import opposed, says_same
from app.memory.drafts import (
    SEMANTIC,
    SESSION,
    Draft,
    IngestItem,
    StatementPlace,
    known_item,
    like,
    logged_side,
    member_item,
    new_row,
    reinforcement,
    shown,
)
from app.store.learning import (
    MAX_SOURCES,
    Changes,
    Contradiction,
    DoubtedMemory,
    HistoryEvent,
    KnownMemory,
    Member,
    Superseded,
)

LOCAL, GLOBAL = 0, 1
"""`memory_scope` of seed 000 §2.2."""

REPEATED = 0.05
"""What saying it again adds to a memory's importance (seed 001 §4.3)."""

MERGED, CORRECTED, CONFLICT = "merged", "corrected", "conflict"
"""How a memory is superseded: by one that says the same better, by a correction, by the other side of a conflict."""


class Ingest:
    """Takes statements in, one after the other, and says at the end what is to be written."""

    def __init__(
        self,
        place: StatementPlace,
        known: Sequence[KnownMemory],
        members: Sequence[Member],
        near: Mapping[int, Mapping[UUID, float]],
        *,
        threshold: float,
        now: datetime,
        ttl: Mapping[int, timedelta],
        new_id: Callable[[], UUID],
        trust: Trust = SHIPPED,
    ) -> None:
        """`known`: memories in force. `members`: other wordings of them. `near`: for each statement, by its place among them,
        the cosines of those of both that are not far from it. `threshold`: cosine above which two statements are near.
        `ttl`: life by tier (seed 000 §5.1); what has none has no end."""
        self._place = place
        self._threshold = threshold
        self._now = now
        self._ttl = ttl
        self._new_id = new_id
        self._trust = trust
        self._events: list[HistoryEvent] = []
        self._conflicts: list[Contradiction] = []
        self._superseded: dict[UUID, Superseded] = {}
        self._ended: list[UUID] = []
        self._doubted: dict[UUID, DoubtedMemory] = {}
        self._near = near
        self._items: dict[UUID, IngestItem] = {each.memory_id: known_item(each) for each in known}
        for each in members:
            if each.root in self._items and each.memory_id not in self._items:
                self._items[each.memory_id] = member_item(each)

    def take_all(self, statements: Sequence[Draft], *, without: Collection[int] = frozenset()) -> Changes:
        """Return what to write for all of them. `without`: the places of statements that were forgotten or denied."""
        for n, draft in enumerate(statements):
            if n not in without:
                self._take(n, draft)
        items = self._items.values()
        return Changes(
            new=[
                new_row(each, each.draft, self._superseded.get(each.id), self._trust)
                for each in items
                if each.draft is not None
            ],
            reinforced=[
                reinforcement(each, self._trust)
                for each in items
                if each.draft is None and each.times and each.heir is None
            ],
            superseded=[each for key, each in self._superseded.items() if self._items[key].draft is None],
            events=self._events,
            conflicts=self._conflicts,
            ended=self._ended,
            doubted=[each for key, each in self._doubted.items() if self._items[key].heir is None],
        )

    def _take(self, n: int, draft: Draft) -> None:
        if draft.guess and any(
            each.heir is None and not each.guess and vouched(draft.text, each.text) for each in self._items.values()
        ):
            return  # it is known already, and better
        alike = self._alike(n, draft)
        above = [each for each in alike if each.rank >= draft.rank]
        if above:
            best = max(above, key=lambda each: each.rank)
            kept = self._root(best)
            assert kept is not None, "only what is in force, or merged into that, is looked at"
            witness = draft.message.message_id not in (*kept.source_message_ids, *kept.added_ids)
            said_so = any(each.content_hash == draft.content_hash for each in alike)
            variant = None if said_so else self._variant(draft, kept)
            if witness:  # else the same message was understood a second time: nobody said it again
                self._repeat(draft, kept, variant)
        else:
            kept = self._keep(draft)
            below = [each for each in alike if each.heir is None]
            for old in below:
                self._absorb(old, kept)
            if not below:
                self._tell(kept, "created", None, shown(kept))
        if draft.guess:  # nobody vouches for it: it contradicts nothing
            return
        self._vouch(draft, kept)
        self._settle(n, draft, kept)
        self._end(draft, kept)
        self._doubt(draft, kept)

    def _vouch(self, draft: Draft, kept: IngestItem) -> None:
        """A guess that the user states at last goes on as what was stated."""
        for item in list(self._items.values()):
            other = item.guess and item.heir is None and kept.heir is None and item.id != kept.id
            if other and vouched(item.text, draft.text):
                self._absorb(item, kept)

    # --- what says the same ---

    def _alike(self, n: int, draft: Draft) -> list[IngestItem]:
        """Everything in force, or merged into what is, that says the same; not more than one memory's wordings apart."""
        near = self._near.get(n, {})
        return [
            item
            for item in self._items.values()
            if self._root(item) is not None and says_same(draft, item, near.get(item.id), self._threshold)
        ]

    def _root(self, item: IngestItem) -> IngestItem | None:
        """The memory in force that speaks for this one; None: it was set right, and nothing does."""
        for _ in range(len(self._items)):
            if item.heir is None:
                return item
            if item.how != MERGED or item.heir not in self._items:
                return None
            item = self._items[item.heir]
        return None

    # --- what is kept of it ---

    def _keep(self, draft: Draft) -> IngestItem:
        candidate, message, tier = draft.candidate, draft.message, draft.tier
        base = draft.believed(self._trust)
        item = IngestItem(
            id=self._new_id(),
            text=draft.text,
            rank=draft.rank,
            gist=draft.gist,
            content_hash=draft.content_hash,
            kind=candidate.kind,
            triple=candidate.triple,
            tier=tier,
            scope=self._scope(tier),
            session_id=self._place.session_id,
            importance=candidate.importance,
            confidence=base,
            provenance=candidate.provenance_type,
            expires_at=self._expiry(tier),
            validated=draft.stated,
            valid_from=draft.valid_from,
            valid_to=candidate.until,
            dated=candidate.since is not None,
            stated_at=message.created_at,
            sources=[self._source(draft)],
            source_message_ids=[message.message_id],
            draft=draft,
            speaker=candidate.speaker,
        )
        self._items[item.id] = item
        return item

    def _variant(self, draft: Draft, root: IngestItem) -> IngestItem:
        """Another wording of a memory: kept, because what comes later may be near this one and not near that one, and so that
        forgetting the memory forgets all its wordings."""
        item = self._keep(draft)
        self._supersede(item, root, MERGED, self._now)
        return item

    def _absorb(self, old: IngestItem, item: IngestItem) -> None:
        """The more specific text wins and goes on with what the older one had gathered (seed 001 §4.3)."""
        item.tier = max(item.tier, old.tier)
        item.scope = max(item.scope, self._shared(old))
        item.expires_at = _later(item.expires_at, old.expires_at) if item.tier < SEMANTIC else None
        # Another wording of the same message says more, but is no second witness.
        witness = not set(item.source_message_ids) & {*old.source_message_ids, *old.added_ids}
        item.importance = min(1.0, max(item.importance, old.importance) + REPEATED * witness)
        item.confidence = confirmed(
            old.confidence, old.confirmations, item.confidence, item.confirmations + int(witness), self._trust
        )
        item.validated = item.validated or old.validated
        item.domain = item.domain or old.domain
        item.dated = item.dated or old.dated
        item.access_count += old.access_count + old.times + int(witness)
        item.reinforcement_count += old.confirmations + int(witness)
        item.valid_from = min(item.valid_from, old.valid_from)
        item.stated_at = max(item.stated_at, old.stated_at)
        item.triple = item.triple or old.triple
        if witness:
            item.sources = (old.sources + old.added)[: MAX_SOURCES - len(item.sources)] + item.sources
            kept_ids = (old.source_message_ids + old.added_ids)[: MAX_SOURCES - len(item.source_message_ids)]
            item.source_message_ids = kept_ids + item.source_message_ids
        else:
            # For a message that both have as a source, the source of the new wording replaces the earlier one.
            source_by_message = {str(source["message_id"]): source for source in item.sources}
            item.sources = [
                source_by_message.get(str(source["message_id"]), source) for source in old.sources + old.added
            ]
            item.source_message_ids = old.source_message_ids + old.added_ids
        self._tell(item, "merged", {"memory_id": old.id, "text": old.text}, shown(item))
        self._supersede(old, item, MERGED, self._now)

    def _repeat(self, draft: Draft, item: IngestItem, variant: IngestItem | None) -> None:
        item.confidence = confirmed(item.confidence, item.confirmations, draft.believed(self._trust), 1, self._trust)
        item.times += 1
        item.tier = max(item.tier, draft.tier)
        item.scope = max(self._shared(item), self._scope(draft.tier))
        item.expires_at = _later(item.expires_at, self._expiry(draft.tier)) if item.tier < SEMANTIC else None
        item.importance = min(1.0, max(item.importance, draft.candidate.importance) + REPEATED)
        item.validated = item.validated or draft.stated
        item.valid_from = min(item.valid_from, draft.valid_from)
        item.stated_at = max(item.stated_at, draft.message.created_at)
        item.added.append(self._source(draft))
        item.added_ids.append(draft.message.message_id)
        told = {"message_id": draft.message.message_id} | ({"variant": variant.id} if variant is not None else {})
        self._tell(item, "reinforced", None, told)

    # --- what is contrary to it ---

    def _settle(self, n: int, draft: Draft, kept: IngestItem) -> None:
        """Every memory that is contrary to this one, by its triple or by its words, ends, or ends it (seed 004: conflict and
        correction)."""
        said = draft.candidate.triple or kept.triple
        near = self._near.get(n, {})
        for item in list(self._items.values()):
            if kept.heir is not None:
                return
            if item.heir is not None or item.id == kept.id or item.guess or not like(kept.kind, item.kind):
                continue
            how = opposed(draft, item, near.get(item.id))
            if how == "denied":
                self._contradict(draft, kept, item)
            elif how == "changed" and kept.draft is draft:
                self._log(draft, kept, item, "both", None)
            if how is not None or said is None:
                continue
            found = relation(said, item.triple)
            # Of what was over before, a correction of now says nothing.
            past = item.valid_to is not None and item.valid_to <= kept.valid_from
            if draft.corrects and replaces(said, item.triple) and item.stated_at <= draft.stated_at and not past:
                self._supersede(item, kept, CORRECTED, _closed(item, kept))
            elif found is TripleRelation.BESIDE and item.corrects and item.stated_at >= draft.stated_at:
                self._supersede(kept, item, CORRECTED, _closed(kept, item))  # the correction was learned before it
            elif found is TripleRelation.BESIDE and kept.draft is draft:
                self._log(draft, kept, item, "both", None)
            elif found is TripleRelation.CONFLICT:
                self._contradict(draft, kept, item)

    def _end(self, draft: Draft, kept: IngestItem) -> None:
        """What the statement says is not so any more, and was said before, is closed: it was right until then."""
        for ended in draft.candidate.ends:
            for item in list(self._items.values()):
                if item.heir is not None or item.id == kept.id or not ends(ended, item.triple):
                    continue
                if item.stated_at > draft.stated_at or kept.heir is not None:
                    continue
                for each in (item, *self._said_with(item)):
                    until = each.valid_to or ended.since or draft.stated_at
                    self._log(draft, kept, each, "both", kept.id, temporal=True, until=until)
                    self._supersede(each, kept, CONFLICT, until)
                    self._ended.append(each.id)

    def _said_with(self, ended: IngestItem) -> list[IngestItem]:
        """What was said in one breath with what ended, belongs to it, and was not said again since: the city of a job."""
        if ended.triple is None:
            return []
        names, breaths = ends_with(ended.triple.predicate), _breaths(ended)
        return [
            each
            for each in self._items.values()
            if each.heir is None
            and each.id != ended.id
            and each.triple is not None
            and each.triple.subject == ended.triple.subject
            and each.triple.predicate in names
            and _breaths(each) <= breaths
        ]

    def _doubt(self, draft: Draft, kept: IngestItem) -> None:
        """What the statement makes doubtful is left to the user: it is in doubt until he says that it still is so."""
        for item in self._items.values():
            triple = item.triple
            if triple is None or triple.subject != "user" or triple.predicate not in draft.candidate.doubts:
                continue
            if item.heir is not None or item.id == kept.id or item.draft is not None or item.id in self._doubted:
                continue
            if item.stated_at < draft.stated_at:
                conflict = self._log(draft, kept, item, "ask_user", None)
                self._doubted[item.id] = DoubtedMemory(item.id, conflict, draft.message.message_id)
                after = {"status": "aging", "doubted_by": draft.message.message_id}
                self._tell(item, "aging", {"status": "active"}, after)

    def _contradict(self, draft: Draft, kept: IngestItem, item: IngestItem) -> None:
        if (turns := _in_turn(kept, item)) is not None:
            earlier, later = turns
            if earlier.valid_to is None:
                self._overrule(draft, later, earlier, "both", temporal=True)
            elif kept.draft is draft:
                self._log(draft, later, earlier, "both", later.id, temporal=True)
            return
        stands, strategy = prefer(_side(kept), _side(item))
        winner, loser = (kept, item) if stands else (item, kept)
        if winner.corrects and strategy == "trust_recent":
            self._supersede(loser, winner, CORRECTED, _closed(loser, winner))
        else:
            self._overrule(draft, winner, loser, strategy)

    def _overrule(
        self, draft: Draft, winner: IngestItem, loser: IngestItem, strategy: str, *, temporal: bool = False
    ) -> None:
        """End the loser of a conflict, and what belongs to it."""
        belongs = self._said_with(loser)
        for each in (loser, *belongs):
            self._log(draft, winner, each, strategy, winner.id, temporal=temporal)
            self._supersede(each, winner, CONFLICT, _closed(each, winner))
        self._ended += [each.id for each in belongs]
        if winner.triple is None or loser.triple is None or winner.triple.predicate != loser.triple.predicate:
            self._ended.append(loser.id)  # "hates" takes the place of "loves", but its fact has another key

    def _log(
        self,
        draft: Draft,
        one: IngestItem,
        other: IngestItem,
        strategy: str,
        winner: UUID | None,
        *,
        temporal: bool = False,
        until: datetime | None = None,
    ) -> UUID:
        """Log that two contradict each other; the log's id. `until`: when the other one ended."""
        sides = [logged_side(each) for each in (one, other)]
        subject = one.triple.subject if one.triple else None
        outcome: dict[str, Any] | None = None
        if temporal:
            outcome = {"action": "close_earlier", "later": one.id, "earlier": other.id}
            outcome["valid_to"] = until or _closed(other, one)
        elif winner is not None:
            outcome = {"action": "supersede_memory", "winner": winner, "superseded": other.id}
        kind = "temporal" if temporal else "memory_vs_db" if strategy == "trust_db" else "memory_vs_memory"
        conflict = self._new_id()
        self._conflicts.append(
            Contradiction(
                conflict,
                draft.message.message_id,
                kind,
                {"conflict_type": kind, "subject": subject, "memories": sides},
                strategy,
                outcome,
                [one.id, other.id],
                self._place.session_id,
                subject if subject is not None and ":" in subject else None,
            )
        )
        return conflict

    def _supersede(self, old: IngestItem, heir: IngestItem, how: str, valid_to: datetime) -> None:
        old.heir, old.how = heir.id, how
        self._superseded[old.id] = Superseded(old.id, heir.id, how, valid_to)
        if how == MERGED:
            for each in self._superseded.values():  # the wordings of what is merged are wordings of its heir
                if each.heir == old.id and each.how == MERGED:
                    self._superseded[each.memory_id] = each._replace(heir=heir.id)
                    self._items[each.memory_id].heir = heir.id
        if old.draft is None or how != MERGED:
            self._tell(old, "superseded", {"status": "active"}, {"status": "superseded", "superseded_by": heir.id})

    def _scope(self, tier: int) -> int:
        return LOCAL if tier == SESSION or self._place.confined else GLOBAL

    def _shared(self, item: IngestItem) -> int:
        """What is said in two sessions belongs to both: it is no longer the first one's alone."""
        elsewhere = item.session_id != self._place.session_id and not self._place.confined
        return GLOBAL if elsewhere else item.scope

    def _expiry(self, tier: int) -> datetime | None:
        """Seed 000 §5.1. Counted from when it was learned, not from when it was said: imports are old."""
        life = self._ttl.get(tier)
        return self._now + life if life is not None else None

    def _source(self, draft: Draft) -> dict[str, Any]:
        message = draft.message
        return {
            "session": self._place.name,
            "session_id": self._place.session_id,
            "message_id": message.message_id,
            "turn_index": message.turn_index,
            "quote": draft.candidate.quote,
            "span": draft.candidate.span,
            "way": draft.candidate.way,
            "created_at": message.created_at,
            "metadata": message.metadata,
        }

    def _tell(self, item: IngestItem, event: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        self._events.append(HistoryEvent(item.id, event, before, after))


def _breaths(item: IngestItem) -> frozenset[tuple[str, str]]:
    """The clauses that say it, each by its message and its words."""
    return frozenset((str(each["message_id"]), each.get("quote") or "") for each in (*item.sources, *item.added))


def _side(item: IngestItem) -> ClaimSide:
    authority = AUTHORITY.get(Provenance(item.provenance), 0)
    return ClaimSide(item.domain, item.stated_at, authority, round(item.confidence, 4), item.text)


def _in_turn(one: IngestItem, other: IngestItem) -> tuple[IngestItem, IngestItem] | None:
    """The earlier and the later of two that were both right, each in its time, by their own words: "until May", "since June".
    None: their times overlap, as far as anybody said."""
    for earlier, later in ((one, other), (other, one)):
        if earlier.valid_to is not None and earlier.valid_to <= later.valid_from:
            return earlier, later
        if later.dated and earlier.valid_to is None and earlier.stated_at <= later.valid_from:
            return earlier, later
    return None


def _closed(loser: IngestItem, winner: IngestItem) -> datetime:
    """When the loser ceased to be so: where it says so itself, else where the winner begins. What was said of it later ended it
    only then."""
    if loser.valid_to is not None:
        return loser.valid_to
    return winner.valid_from if winner.valid_from >= loser.valid_from else winner.stated_at


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    """None is never."""
    return None if one is None or other is None else max(one, other)
