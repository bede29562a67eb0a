"""What is known of the things that a request names, as a prompt is told it: plain values, and the ports of who knows it
(`app/features/knowledge`; `Feature.knower`).

`Knows` begins an `Inquiry`: what the mentions mean is there before memory is searched; `known` comes when the business's own
database has answered, or its time is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol
from uuid import UUID

from app.memory.episodes import SoughtRows

if TYPE_CHECKING:
    from asyncio import Task

Method = Literal["exact", "known_alias", "fuzzy", "coreference", "disambiguation", "domain_db"]
"""By which of the five stages of seed 004 a mention was resolved; `domain_db`: found in the business's own database."""


class Entity(NamedTuple):
    """A thing. `id`: "customer:gai_123"."""

    id: str
    type: str
    name: str


class Alternative(NamedTuple):
    """A thing that a mention may mean."""

    entity: Entity
    confidence: float


class Resolution(NamedTuple):
    """What a mention means. `entity` None: nothing that is known, or (`requires_disambiguation`) one of `alternatives`, best
    first. `start`: where it stands in the text, characters. `confidence` 0..1, as seed 004 has it for each stage."""

    mention: str
    start: int
    entity: Entity | None
    confidence: float = 0.0
    method: Method | None = None
    alternatives: tuple[Alternative, ...] = ()
    requires_disambiguation: bool = False


class RowValue(NamedTuple):
    """What a row says where a memory may say something: `field` of `table`, at `queried_at`. `changed_at`: when the row itself
    says that it was last changed; None: it does not say."""

    domain: str
    table: str
    field: str
    value: str
    strategy: str
    queried_at: datetime
    changed_at: datetime | None = None


class DomainQuery(NamedTuple):
    """A query of the business's own database. `query_type`: the type of things that were asked for; `entity`: from which;
    `error`: why there is no answer (timeout, unreachable, changed …). `findings`: rows that are not as the ontology says."""

    domain: str
    query_type: str
    entity: str
    table: str
    filters: Mapping[str, Any]
    result_count: int
    took_ms: float
    error: str | None = None
    findings: tuple[str, ...] = ()


class DomainFact(NamedTuple):
    """What the business's own database says, as lines of a prompt. `subject`: what it is about, the same whenever that is asked
    again ("erp/customer:gai_123/sales_order"); `entity`: the thing."""

    subject: str
    entity: str
    query_type: str
    text: str


class Clash(NamedTuple):
    """Two sides that differ (seed 004, table 9). Of a memory: `memory_id`, `memory_value`, `memory_at`, `memory_confidence`; of
    the other side: `row`, or, memory against memory, `other_id`, `other_value` and `other_at`. `strategy`: how it is decided;
    `stands`: which side is authoritative (None: nobody decided). `conflict_id`: its number in the log, once it has one."""

    conflict_type: Literal["memory_vs_memory", "memory_vs_db", "temporal"]
    entity_id: str
    entity_name: str
    predicate: str
    memory_id: UUID | None
    memory_value: str
    memory_at: datetime
    memory_confidence: float
    row: RowValue | None
    strategy: str
    stands: Literal["domain", "memory", "other", "both"] | None
    other_id: UUID | None = None
    other_value: str | None = None
    other_at: datetime | None = None
    conflict_id: UUID | None = None
    since: datetime | None = None


class Known(NamedTuple):
    """All that is known of the things that a request names. `related`: ids of what the ontology leads to from them. `rows`: by
    entity and predicate. `clashes`: those in the log, open or lately resolved. `reason`: why it is poorer than it should be, as
    `x-mneme-reason` calls it ("domain")."""

    resolutions: tuple[Resolution, ...] = ()
    related: frozenset[str] = frozenset()
    rows: Mapping[str, Mapping[str, RowValue]] = MappingProxyType({})
    facts: tuple[DomainFact, ...] = ()
    queries: tuple[DomainQuery, ...] = ()
    clashes: tuple[Clash, ...] = ()
    reason: str | None = None


NOTHING_KNOWN = Known()


class Inquiry(Protocol):
    """What is being found out for one request. Nothing here raises."""

    @property
    def resolutions(self) -> Sequence[Resolution]:
        """What the mentions of the request mean: known at once."""

    @property
    def related(self) -> frozenset[str]:
        """Ids of the things that the ontology leads to, as far as they are known by now."""

    def begin(self, widened: Sequence[str] = (), rows: Sequence[SoughtRows] = ()) -> None:
        """Ask the business's own database and the log of conflicts, beside whatever else is done. `widened`: words that habits
        add to those of the request; `rows`: what else they have looked for there."""

    async def known(self) -> Known:
        """All of it, in time, with what there is; of what was not begun, what the mentions mean."""

    async def against(self, user: UUID, memories: Sequence[UUID]) -> Sequence[Clash]:
        """Which of these memories of a user what `known` brought contradicts."""

    def close(self) -> None:
        """Nobody waits any more; what has come stays known."""


# --- who is asked --------------------------------------------------------------------------------------------------------

RECENT = 10
"""Messages before the question that tell what "they" means (seed 004, stage 4)."""


class Who(NamedTuple):
    """Whose names count. `user` None: nobody's (a confined session), only what the whole tenant knows."""

    tenant: UUID
    user: UUID | None


class EarlierMessage(NamedTuple):
    """A message before the one that is resolved."""

    role: str
    text: str


class Knows(Protocol):
    """Begins inquiries."""

    def idle(self, who: Who) -> bool:
        """Whether it is known that there is nothing to know: then nobody need be asked."""

    async def warm(self) -> None:
        """Ask what questions ask, of nobody, so that the first request need not wait for it. Raises StoreUnavailable."""

    def inquiring(
        self, who: Who, text: str, recent: Sequence[EarlierMessage], now: datetime, deadline_s: float | None = None
    ) -> Task[Inquiry | None]:
        """`inquire` beside other work; whoever begins it waits for it, or cancels it."""

    async def inquire(
        self, who: Who, text: str, recent: Sequence[EarlierMessage], now: datetime, deadline_s: float | None = None
    ) -> Inquiry | None:
        """What the mentions of `text` mean, and on request more; None: nothing is known of anything. `deadline_s`: seconds for
        all of it. Raises nothing."""
