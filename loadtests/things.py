"""Whether a prompt holds what is tied to the thing that a question names, by what being tied weighs.

`python -m loadtests.things`. Twenty customers with twelve memories each, one of which answers each question; the questions have
other words, and half of the memories have not the customer's name. Beside them stand memories of the same words, about the same
customers and others, tied or not. Printed: of all questions the share whose memory stands in a block of 400, and of 1,500
tokens.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from uuid import UUID

import asyncpg
from msgspec.structs import replace

from app.context.assemble import BlockMeter
from app.context.facts_section import naming
from app.context.pack import pack
from app.context.question import Asked, understand
from app.context.resolution import Entity, Resolution
from app.context.retrieve import Retriever, Scope, Wanted
from app.context.score import AUTO, Profile, QuerySignals, score
from app.providers.embeddings import build_embedder
from app.providers.tokens import STORED_COUNTS, TokenCounter, Tokenizers
from app.server.core import prepare_database
from app.settings import Settings
from app.store import ids
from app.store.pools import halfvec, open_pool, set_codecs
from app.store.queries import Queries
from app.store.turns import TurnStore
from tests.support.indexes import indexes_of
from tests.support.own_postgres import OwnPostgres

BUDGETS = (400, 1500)
WEIGHTS = (None, 0.0, 0.3, 0.6, 0.9, 1.0, 1.2, 1.8)
"""None: the thing is not resolved."""
OTHERS = 600
TENANT, USER = ids.LOCAL_TENANT, UUID(int=2)
NAMES = (
    "Gai Media", "Kestrel Foods", "Borealis Shipping", "Quill Press", "Lumen Dental", "Hargrove Steel", "Tansy Garden",
    "Opal Hotels", "Rook Logistics", "Sable Textiles", "Verdant Farms", "Ironbark Timber", "Pelican Air", "Juniper Books",
    "Castor Pumps", "Delta Bakery", "Ember Gas", "Fathom Diving", "Glacier Water", "Halcyon Spa",
)  # fmt: skip
KNOWN = (
    ("Their accountant is on leave in May", "Who does the books at {}?"),
    ("{} prefers deliveries on Fridays", "When should we bring the goods to {}?"),
    ("The contact there is Ms Okafor, in purchasing", "Whom do I call at {}?"),
    ("They never pay before the last reminder", "Is {} good at settling invoices?"),
    ("{} wants pallets wrapped twice", "How must shipments for {} be packed?"),
    ("The dock is closed in the afternoon", "When can a truck unload at {}?"),
    ("They dislike phone calls, write instead", "What is the best way to reach {}?"),
    ("{} was promised a discount of five per cent", "What price did we offer {}?"),
    ("The founder's daughter takes over next year", "Who will run {}?"),
    ("They had water damage in the warehouse", "What trouble did {} have lately?"),
    ("{} asked for invoices in PDF", "In which format does {} want bills?"),
    ("Parking is only possible behind the building", "Where do visitors of {} leave their car?"),
)
OTHER = (
    "Who does the books varies, said the {} people", "The goods were brought late again by the {} carrier",
    "I called about the invoice, nobody answered", "We settled the invoice of {} yesterday",
    "A truck can unload at the new dock", "The best way to reach the office is by tram",
    "What price should we ask for the {} order?", "Bills are sent in paper format", "Visitors leave their car in the yard",
    "Shipments must be packed in foam", "What trouble we had lately with the printer", "Who will run the team is open",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Memory:
    """`question`: what it answers, about the customer of that number."""

    id: UUID
    text: str
    tied: list[str]
    at: datetime
    customer: int = 0
    question: str | None = None


def memories(now: datetime) -> list[Memory]:
    """All of them; the same each time."""
    chance = random.Random(3)
    made: list[Memory] = []

    def add(text: str, tied: list[str], customer: int = 0, question: str | None = None) -> None:
        at = now - timedelta(days=chance.randint(1, 200), seconds=len(made))
        made.append(Memory(ids.uuid7(at), text, tied, at, customer, question))

    for customer, name in enumerate(NAMES):
        for text, question in KNOWN:
            said = text.format(name) if "{}" in text else f"{text} (file {customer})"
            add(said, [f"customer:{customer}"], customer, question.format(name))
    for number in range(OTHERS):
        text, customer = chance.choice(OTHER), chance.randrange(len(NAMES))
        tied = "{}" in text or chance.random() < 0.3
        add(f"{text.format(NAMES[customer])}, no. {number}", [f"customer:{customer}"] if tied else [])
    return made


async def main() -> None:
    """Fill a database and ask."""
    settings = Settings()
    embedder, counter = build_embedder(settings), Tokenizers().for_model(STORED_COUNTS)
    now = datetime.now(UTC)
    given = memories(now)
    with tempfile.TemporaryDirectory() as home, OwnPostgres(Path(home) / "db") as postgres:
        await prepare_database(settings, postgres.dsn)
        pool = await open_pool(
            postgres.dsn, size=1, timeout_ms=5000, statement_timeout_ms=30_000, statement_cache_size=100, role="mneme_app"
        )  # fmt: skip
        store = TurnStore(pool, Queries.load())
        admin = await asyncpg.connect(postgres.dsn)
        await set_codecs(admin, "public")
        vectors = await embedder.embed([each.text for each in given])
        for each in given:
            await admin.execute(
                "INSERT INTO agent_data.memory_store (memory_id, user_id, tenant_id, memory_tier, memory_scope, kind,"
                " content_text, content_hash, provenance_type, token_count, created_at, confidence, importance, entity_ids)"
                " VALUES ($1, $2, $3, 3, 1, 'fact', $4, sha256(convert_to($4, 'UTF8')), 0, $5, $6, 0.7, 0.3, $7)",
                each.id, USER, TENANT, each.text, counter.count(each.text), each.at, each.tied,
            )  # fmt: skip
        keys = [each.id for each in given]
        await admin.execute(
            "SELECT agent_data.add_vectors($1, $2, $3, 1::smallint, $4, $5, $6)",
            TENANT, USER, await store.space_of(embedder.space), keys, [each.at for each in given],
            [halfvec(each) for each in vectors],
        )  # fmt: skip
        space = await store.space_of(embedder.space)
        retriever = Retriever(store, embedder, counter.count, indexes_of(pool, embedder.dimensions, space, limit=10**8))
        for budget in BUDGETS:
            for weight in WEIGHTS:
                held = [await holds(retriever, counter, each, now, budget, weight) for each in given if each.question]
                print(f"{budget} tokens, weight {weight}: {sum(held) / len(held):.3f} of {len(held)}", flush=True)
        await admin.close()
        await pool.close()
    await embedder.close()


async def holds(
    retriever: Retriever, counter: TokenCounter, memory: Memory, now: datetime, budget: int, weight: float | None
) -> bool:
    """Whether the block for its question has this memory."""
    assert memory.question is not None, "only those are asked for"
    asked: Asked = understand(memory.question, now)
    profile: Profile = AUTO
    if weight is not None:
        name = NAMES[memory.customer]
        asked = naming(asked, [Resolution(name, 0, Entity(f"customer:{memory.customer}", "customer", name))])
        weights: Mapping[str, float] = {**AUTO.weights, "entity_overlap": weight}
        profile = replace(AUTO, weights=MappingProxyType(dict(weights)))
    found, *_ = await retriever.candidates(asked, Scope(TENANT, USER), Wanted(budget), profile)
    scored = score(found, QuerySignals.of(asked), profile, now)
    packed = pack(scored, budget, BlockMeter(counter.count), order=profile.order)
    return any(each.id == memory.id for each in packed.candidates)


if __name__ == "__main__":
    asyncio.run(main())
