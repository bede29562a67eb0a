"""Seed 004's worked example on the running server: the sample's business, its users, and what they say."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import httpx

from tests.support.clients import Api, ask, user
from tests.support.database import connected
from tests.support.sample_domain import SAMPLE, SampleDomain, sample_domain
from tests.support.server import MnemeServer

WHO = "user_123"
ONTOLOGY = str(SAMPLE / "ontology.yaml")
LAST_MONTH = "What did Gai Media order last month?"
"""The seed's own words."""
SEPTEMBER = "What did Gai Media order in September 2024?"
"""The same, whatever day it is."""
UNHURRIED = {
    # A busy machine must change nothing of what is told.
    "RETRIEVAL_DEADLINE_MS": "100000",
    "AUTH": "keys",
}


def domains(**given: tuple[str, Sequence[str]]) -> str:
    """MNEME_DOMAINS: for each domain its DSN and its tenants."""
    return json.dumps(
        {
            name: {"dsn": dsn, "tenants": list(tenants), "statement_timeout_ms": 10_000}
            for name, (dsn, tenants) in given.items()
        }
    )


def last_month() -> tuple[date, date]:
    """First and last day of the month before today (UTC, as the server's users have it)."""
    last = datetime.now(UTC).date().replace(day=1) - timedelta(days=1)
    return last.replace(day=1), last


@contextlib.asynccontextmanager
async def business(server: str) -> AsyncIterator[SampleDomain]:
    """The sample domain, where September's orders were placed again in the month before today: SO-2045 and SO-2052."""
    async with sample_domain(server) as sample:
        first, _ = last_month()
        async with connected(sample.owner) as owner:
            await owner.execute(
                "INSERT INTO domain.sales_orders (so_id, customer_id, sku, status, total_amount, order_date) VALUES"
                " ('SO-2045', 'gai_123', 'LED-PANEL', 'fulfilled', 3500, $1),"
                " ('SO-2052', 'gai_123', 'PA-SET', 'in_fulfillment', 2200, $2)",
                first.replace(day=15), first.replace(day=22),
            )  # fmt: skip
            await owner.execute(
                "INSERT INTO domain.work_orders (wo_id, so_id, invoice_id, status, assigned_to) VALUES"
                " ('WO-601', 'SO-2045', NULL, 'done', 'Ravi'), ('WO-602', 'SO-2045', NULL, 'done', 'Elena'),"
                " ('WO-603', 'SO-2052', NULL, 'in_progress', 'Ravi')"
            )
        yield sample


class Tenant:
    """A tenant of its own, with the sample's ontology, and its users."""

    def __init__(self, mneme: MnemeServer, name: str, ontology: str = ONTOLOGY, *, model: str = "gpt-4o") -> None:
        self.name = name
        self.mneme = mneme
        self.model = model
        self.key = mneme.create_key("app", "--tenant", name)
        done = mneme.command("ontology", "load", ontology, "--tenant", name)
        assert done.returncode == 0, done.stdout + done.stderr

    def api(self, who: str = WHO) -> Api:
        return Api(self.mneme, user=who, key=self.key)

    def headers(self, who: str = WHO, session: str | None = None) -> dict[str, str]:
        named = {"x-mneme-session": session} if session is not None else {}
        return {"authorization": f"Bearer {self.key}", "x-mneme-user": who, **named}

    def chat(self, message: str, session: str, who: str = WHO, **more: Any) -> dict[str, Any]:
        """POST /api/v1/chat; returns when all is learned."""
        body = {"message": message, "user_id": who, "session_id": session, "model": self.model, **more}
        answer = self.mneme.http.post(
            "/api/v1/chat", json=body, headers={"authorization": f"Bearer {self.key}"}, timeout=120
        )
        assert answer.status_code == 200, answer.text
        self.api(who).wait_for_quiet()
        told: dict[str, Any] = answer.json()
        return told

    def completion(self, message: str, session: str, who: str = WHO, **fields: Any) -> httpx.Response:
        """POST /v1/chat/completions."""
        return ask(self.mneme, [user(message)], headers=self.headers(who, session), **{"model": self.model} | fields)

    def explained(self, call: str, who: str = WHO) -> dict[str, Any]:
        """GET /api/v1/calls/{id}/context."""
        return dict(self.api(who).get(f"/calls/{call}/context"))

    def memories(self, who: str = WHO, **query: Any) -> list[dict[str, Any]]:
        return self.api(who).all("/memories", "memories", **query)

    def talk_before(self) -> None:
        """The earlier talk of which the seed knows the alias and the preference."""
        self.chat("Tell me about Gai Media", "before 1")
        self.chat("Remember, Gai Media prefers Friday deliveries", "before 1")
        self.chat("Who is our contact at Gai Media?", "before 2")
        self.chat("As I said, Gai Media prefers Friday deliveries", "before 2")
        self.chat("How is Gai Media doing?", "before 3")


def queried(told: Mapping[str, Any]) -> list[tuple[str, Any, int]]:
    """The domain's queries in an answer of /api/v1/chat: type, span, rows."""
    return [
        (each["query_type"], each["filters"].get("date_range"), each["result_count"])
        for each in told["augmentation"]["domain_queries"]
    ]
