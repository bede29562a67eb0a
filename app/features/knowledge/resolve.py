"""What a text's mentions mean: the five stages of seed 004 ("Subsystem 1: Entity Resolution"), in its order.

One round trip looks everything up (`EntityStore.look_up`); the business's own database is asked only for what that does not
know. A stage that finds several things equally likely guesses none of them: the mention is ambiguous, with alternatives, and
the user's next message may pick one.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct, field

from app.clock import Clock
from app.context.resolution import EarlierMessage, Resolution, Who
from app.features.knowledge import resolution as rank
from app.features.knowledge.entities import Confidences, EntityStore, LearnedNames, Match
from app.features.knowledge.ontology import Ontology
from app.features.knowledge.resolution import (
    MAX_NAMES,
    WINDOW,
    Antecedent,
    ChosenAlternative,
    Finder,
    FoundEntities,
    FoundRow,
    Meaning,
    Mentions,
    Occurrence,
    RowQuery,
    TextSpan,
    find,
    lessons_of,
    may_pick,
    pick,
    plain,
    refer,
    whole,
)
from app.tasks import Supervisor

# --- lazy discovery in the business's own database -----------------------------------------------------------------------
#
# What it has, and has not, is remembered for a while (seed 004): most words are no thing, every turn.

MAX_WANTED = 8
"""Mentions of a text, and of those before it, that are looked for."""
REMEMBERED_S = 30.0
"""Seconds for which what was found, or not, stands: a row that was just made is found so much later."""
REMEMBERED = 10_000
"""Mentions remembered, some 500 bytes each."""


_Key = tuple[UUID, int, RowQuery]


class Discovery:
    """Asks a `Finder` for what it was not asked just now. A search goes on when those who wait for it do not any more: names
    are slow to find in large tables, and what came of it is there for the next."""

    def __init__(self, finder: Finder | None, clock: Clock) -> None:
        self._finder = finder
        self._clock = clock
        self._known: OrderedDict[_Key, tuple[tuple[FoundRow, ...], datetime]] = OrderedDict()
        self._tasks = Supervisor()
        self._searches: dict[_Key, asyncio.Task[FoundEntities]] = {}

    async def find(
        self, tenant: UUID, version: int, wanted: Sequence[RowQuery], *, until: float | None = None
    ) -> tuple[Mapping[RowQuery, tuple[FoundRow, ...]], bool]:
        """What there is under each, of the first `MAX_WANTED`, and whether a database was away, or not done by `until`
        (monotonic seconds). `version`: of the ontology, by which it is looked for."""
        asked = list(dict.fromkeys(wanted))[:MAX_WANTED]
        if self._finder is None or not asked:
            return {}, False
        now = self._clock.now()
        found: dict[RowQuery, tuple[FoundRow, ...]] = {}
        for each in asked:
            known = self._known.get((tenant, version, each))
            if known is not None and timedelta(0) <= now - known[1] < timedelta(seconds=REMEMBERED_S):
                found[each] = known[0]
        missing = [each for each in asked if each not in found]
        new = [each for each in missing if (tenant, version, each) not in self._searches]
        if new:
            search = self._tasks.spawn(self._search(self._finder, tenant, version, new), "discover")
            self._searches |= dict.fromkeys([(tenant, version, each) for each in new], search)
        searches = {each: self._searches[tenant, version, each] for each in missing}
        if searches:
            left_s = max(0.0, until - time.monotonic()) if until is not None else None
            await asyncio.wait(set(searches.values()), timeout=left_s)
        away = False
        for each, search in searches.items():
            sought = search.result() if search.done() else FoundEntities(away=True)
            found[each] = tuple(row for row in sought.found if row.mention == each.mention)
            away = away or sought.away
        return found, away

    async def _search(self, finder: Finder, tenant: UUID, version: int, wanted: Sequence[RowQuery]) -> FoundEntities:
        """What a database that was away did not say is not remembered."""
        try:
            sought = await finder.find(tenant, wanted)
        finally:
            for each in wanted:
                del self._searches[tenant, version, each]
        for each in wanted if not sought.away else ():
            key = tenant, version, each
            self._known[key] = (tuple(row for row in sought.found if row.mention == each.mention), self._clock.now())
            self._known.move_to_end(key)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return sought


# --- a text --------------------------------------------------------------------------------------------------------------

MAX_EARLIER_CHARS = 600
"""Of each earlier message: what a thing is named by stands there, not the whole of a paste."""
MAX_EARLIER_GRAMS = 2000
"""Stretches of words of all earlier messages together, the latest first."""


class ResolvedText(NamedTuple):
    """What a text's mentions mean, and what that teaches. `away`: the business's own database did not say all that it was
    asked."""

    resolutions: tuple[Resolution, ...] = ()
    lessons: LearnedNames = LearnedNames()
    away: bool = False


class _Text(Struct):
    """A text that is looked at. `distance`: messages ago; 0: it is the new one."""

    said: str
    mentions: Mentions
    distance: int = 0
    role: str = "user"
    hits: list[Occurrence] = field(default_factory=list)

    def free(self, piece: TextSpan) -> bool:
        """Whether nothing was found in these words yet."""
        return not any(piece.overlaps(each.piece) for each in self.hits)

    def clear(self) -> list[Occurrence]:
        """What was found and is one thing."""
        return [each for each in self.hits if each.outcome.clear]


class Resolver:
    """Resolves mentions for the users of all tenants."""

    def __init__(self, store: EntityStore, finder: Finder | None, clock: Clock) -> None:
        """`finder` None: there is no database of the business's own."""
        self._store = store
        self._discovery = Discovery(finder, clock)

    async def resolve_mention(
        self,
        who: Who,
        mention: str,
        recent: Sequence[EarlierMessage],
        ontology: Ontology,
        *,
        now: datetime,
    ) -> Resolution:
        """What `mention`, as a whole, means; without an entity: nothing that is known, or one of the alternatives. What it
        teaches is written."""
        study = await self.study(who, mention, recent, ontology, now=now, mentions=whole(mention, ontology))
        await self._store.teach(who.tenant, who.user, study.lessons, now)
        return study.resolutions[0] if study.resolutions else Resolution(plain(mention), 0, None)

    async def study(
        self,
        who: Who,
        text: str,
        recent: Sequence[EarlierMessage],
        ontology: Ontology,
        *,
        now: datetime,
        until: float | None = None,
        mentions: Mentions | None = None,
    ) -> ResolvedText:
        """What the things are that `text` names, in its order, each once; ambiguous mentions with their alternatives, and none
        that is unknown; and what the text teaches, for `teach`. `recent`: the messages before it, oldest first. `until`:
        monotonic seconds, how long the business's own database may be waited for; what is known without it is told all the
        same. `mentions`: what of the text is looked at; None: all that may name a thing. Raises StoreUnavailable."""
        new = _Text(text, mentions or find(text, ontology))
        earlier = _earlier(new, recent, ontology)
        texts = [new, *earlier]
        sure = await self._store.confidences()
        await self._look_up(who, texts, now, sure)
        away = await self._discover(who, texts, ontology, until, sure)
        choice = _chosen(new, earlier, sure)
        if choice is not None and choice.option.entity not in [each.outcome.best.entity for each in new.clear()]:
            new.hits = [each for each in new.hits if not each.piece.overlaps(choice.piece)] + [
                Occurrence(choice.piece, Meaning("disambiguation", (choice.option,), True))
            ]
        direct = _once(sorted(new.hits, key=lambda each: each.piece.start))
        named = {each.outcome.best.entity.id for each in direct if each.outcome.clear}
        pointing = [
            each for each in _pointing(new, earlier, ontology, sure) if each.entity and each.entity.id not in named
        ]
        resolutions = [*map(_resolution, direct), *{each.entity: each for each in reversed(pointing)}.values()]
        return ResolvedText(
            tuple(sorted(resolutions, key=lambda each: each.start)),
            lessons_of(
                new.hits,
                choice,
                [pointer.entity.id for pointer in pointing if pointer.entity],
                now,
                sure,
                keys={key.piece.norm for key in new.mentions.keys},
            ),
            away,
        )

    async def teach(
        self,
        connection: PoolConnectionProxy[Any],
        who: Who,
        lessons: LearnedNames,
        now: datetime,
        session: UUID | None = None,
    ) -> None:
        """Write what a text teaches in the caller's transaction: once, if that is done once. `session`: where it was said."""
        told = lessons if session is None else lessons.learned_from(session)
        await self._store.teach_in(connection, who.tenant, who.user, told, now)

    async def _look_up(self, who: Who, texts: Sequence[_Text], now: datetime, sure: Confidences) -> None:
        grams, spans, most = set[str](), list[str](), MAX_EARLIER_GRAMS
        for text in texts:
            own = {each.norm for each in text.mentions.grams}
            if text.distance:
                most -= len(own)
                if most < 0:
                    break
            grams |= own
            spans += [each.norm for each in text.mentions.names if len(spans) < 2 * MAX_NAMES]
        exact, near = dict[str, list[Match]](), dict[str, list[Match]]()
        # In order: the same text asks the same.
        for match in await self._store.look_up(who.tenant, who.user, sorted(grams), spans):
            (exact if match.stage in ("name", "alias") else near).setdefault(match.norm, []).append(match)
        for text in texts:
            _take(
                text,
                ((each, rank.known(exact[each.norm], now, sure)) for each in text.mentions.grams if each.norm in exact),
            )
            keys = {each.piece.norm for each in text.mentions.keys}
            spelled = (
                (each, rank.near(each.norm, near[each.norm], sure)) for each in text.mentions.names if each.norm in near
            )
            _take(text, ((piece, outcome) for piece, outcome in spelled if piece.norm not in keys))

    async def _discover(
        self, who: Who, texts: Sequence[_Text], ontology: Ontology, until: float | None, sure: Confidences
    ) -> bool:
        """Identifiers at once, and names that no stage knew (seed 004, "Lazy Entity Discovery"); the new text's first. Whether
        a database was away."""
        if not ontology:
            return False
        asked: list[tuple[_Text, TextSpan, RowQuery]] = []
        for text in texts:
            for key in sorted(text.mentions.keys, key=lambda key: -len(key.piece.text)):
                asked += [(text, key.piece, RowQuery(plain(key.piece.text), key.types))] if text.free(key.piece) else []
            keys = {each.piece.norm for each in text.mentions.keys}
            asked += [
                (text, piece, RowQuery(plain(piece.text), ()))
                for piece in text.mentions.names
                if piece.norm not in keys and text.free(piece)
            ]
        found, away = await self._discovery.find(
            who.tenant, ontology.version, [wanted for _, _, wanted in asked], until=until
        )
        for text, piece, wanted in asked:
            if text.free(piece):
                _take(text, [(piece, rank.discovered(piece.norm, found.get(wanted, ()), sure))])
        return away


def _earlier(text: _Text, recent: Sequence[EarlierMessage], ontology: Ontology) -> list[_Text]:
    """The messages before that matter, the latest first: all, where something points back; else the user's last one, if this
    may be an answer to what was ambiguous in it."""
    last = list(reversed(recent[-WINDOW:]))
    asked = next((n for n, said in enumerate(last) if said.role == "user"), None) if may_pick(text.said) else None
    return [
        _Text(said.text, find(said.text[:MAX_EARLIER_CHARS], ontology), n + 1, said.role)
        for n, said in enumerate(last)
        if text.mentions.pointers or n == asked
    ]


def _take(text: _Text, found: Iterable[tuple[TextSpan, Meaning | None]]) -> None:
    """Keep what does not overlap, the longest words first."""
    for piece, outcome in sorted(found, key=lambda each: (each[0].start - each[0].end, each[0].start)):
        if outcome is not None and text.free(piece):
            text.hits.append(Occurrence(piece, outcome))


def _once(hits: Sequence[Occurrence]) -> list[Occurrence]:
    """Each thing, and each ambiguous mention, as it comes first."""
    found: dict[str, Occurrence] = {}
    for each in hits:
        found.setdefault(each.outcome.best.entity.id if each.outcome.clear else f"? {each.piece.norm}", each)
    return list(found.values())


def _chosen(text: _Text, earlier: Sequence[_Text], sure: Confidences) -> ChosenAlternative | None:
    """Stage 5: what was ambiguous in the user's last message, and is picked now."""
    asked = next((each for each in earlier if each.role == "user"), None)
    for hit in asked.hits if asked is not None else ():
        picked = pick(text.said, hit) if not hit.outcome.clear else None
        # What these words mean by themselves is no choice of another thing.
        if picked is not None and not any(
            each.piece.overlaps(picked.piece) and each.outcome.best.entity != picked.option.entity
            for each in text.clear()
        ):
            return picked._replace(option=picked.option._replace(confidence=sure.choice))
    return None


def _pointing(text: _Text, earlier: Sequence[_Text], ontology: Ontology, sure: Confidences) -> list[Resolution]:
    """Stage 4. What stands right before a name belongs to it: "the customer Gai Media"."""
    pointers = [
        each
        for each in text.mentions.pointers
        if text.free(each.piece) and not any(0 < hit.piece.start - each.piece.end <= 2 for hit in text.hits)
    ]
    if not pointers:
        return []
    antecedents = [
        Antecedent(each.outcome.best.entity, max(1, one.distance), each.piece.start, here=one is text)
        for one in (text, *earlier)
        for each in one.clear()
    ]
    found = []
    for pointer in pointers:
        meant = refer(pointer, antecedents, ontology)
        if meant:
            confidence = rank.coreference_confidence(meant[0].distance, sure)
            found.append(
                Resolution(pointer.piece.text, pointer.piece.start, meant[0].entity, confidence, "coreference")
            )
    return found


def _resolution(hit: Occurrence) -> Resolution:
    mention, start, outcome = plain(hit.piece.text), hit.piece.start, hit.outcome
    if outcome.clear:
        return Resolution(mention, start, outcome.best.entity, outcome.best.confidence, outcome.method)
    return Resolution(mention, start, None, outcome.best.confidence, outcome.method, outcome.options, True)
