"""Fault 12: two tenants at once on connections that both use, under the same names of users and sessions.

That every table is under row-level security with FORCE, and that the application's role owns nothing, is in
tests/integration/store/test_schema.py; here it is tried on what real traffic has left.
"""

from __future__ import annotations

import itertools
import json
import random
import socket
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import httpx
import pytest

from tests.support.clients import Api, prompt_of, user
from tests.support.database import connected
from tests.support.ledger import CHAT
from tests.support.replies import chat_script
from tests.support.rows import read_rows
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

TAGS = ("quetzalcoatl", "ragnarok")
"""A word that only one tenant ever says."""
USERS = ("ana", "bob")
SESSION = "our session"
AT_ONCE = 8
FACT_NUMBERS = itertools.count()
"""Numbers of the facts, each for one fact of this module: a text that is stated again is "reinforced", not "created"."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream(chat_script(lambda asked: "Noted, and thank you.")) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def mneme(
    tmp_path_factory: pytest.TempPathFactory, module_database: str, upstream: ScriptedUpstream
) -> Iterator[MnemeServer]:
    """One connection for all requests, and one for all jobs."""
    given = {"AUTH": "keys", "POOL_SIZE": "1"}
    folder = tmp_path_factory.mktemp("mneme")
    with MnemeServer(folder, database=module_database, upstream=upstream.url, worker=True, settings=given) as server:
        yield server


class Tenant:
    """Does what its clients may do, and what they may not; every answer is looked through for the other's word."""

    def __init__(self, mneme: MnemeServer, number: int, client: httpx.Client) -> None:
        self.mneme = mneme
        self.own, self.other = TAGS[number], TAGS[1 - number]
        self.key = mneme.create_key("app", "--tenant", f"tenant-{number}")
        self.ids: dict[str, list[str]] = defaultdict(list)
        self.rival: Tenant | None = None
        self._client = client

    def send(self, method: str, path: str, who: str, **given: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.key}", "x-mneme-user": who, **given.pop("headers", {})}
        answer = self._client.request(method, path, headers=headers, **given)
        assert answer.status_code < 500, answer.text
        assert self.other not in answer.text.lower(), f"{method} {path} of {self.own} says: {answer.text}"
        return answer

    def fact(self) -> str:
        """Alike for both but for the tenant's word, so that each finds the other's by word and by vector."""
        n = next(FACT_NUMBERS)
        return (
            f"My locker number {n} is in the {self.own} building, and my dog number {n} is called {self.own.title()}."
        )

    # --- what is done -------------------------------------------------------------------------------------------------

    def tell(self, who: str, **more: Any) -> None:
        self._note("calls", self._chat(who, self.fact(), **more))

    def tell_in_the_session(self, who: str) -> None:
        answer = self._chat(who, self.fact(), headers={"x-mneme-session": SESSION})
        self._note("sessions", answer, "x-mneme-session-id")

    def tell_streaming(self, who: str) -> None:
        self.tell(who, stream=True)

    def question(self, who: str) -> None:
        self._chat(who, f"Where is my locker, and what is my dog called? ({self.own})")

    def _chat(self, who: str, text: str, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        body = {"model": "gpt-4o", "messages": [user(text)], **more}
        return self.send("POST", CHAT, who, json=body, headers=headers or {})

    def go(self, who: str) -> None:
        """Leave in the middle: the one connection is then in the middle of a transaction, perhaps."""
        body = json.dumps({"model": "gpt-4o", "messages": [user(self.fact())]}).encode()
        with closing(socket.create_connection(("127.0.0.1", self.mneme.port))) as sock:
            head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {self.key}\r\nx-mneme-user: {who}\r\n"
            sock.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def search(self, who: str) -> None:
        query = {"user": who, "query": "locker building dog called", "k": 50}
        assert self.send("POST", "/api/v1/memories/search", who, json=query).status_code == 200

    def remember(self, who: str) -> None:
        answer = self.send("POST", "/api/v1/memories", who, json={"user": who, "text": self.fact()})
        assert answer.status_code in (200, 201), answer.text
        self.ids["memories"].append(answer.json()["id"])

    def preview(self, who: str) -> None:
        body = {"user": who, "query": "Where is my locker?"}
        assert self.send("POST", "/api/v1/context", who, json=body).status_code == 200

    def look(self, who: str) -> None:
        for path in ("memories", "sessions", "calls", "users", "queue/dead"):
            assert self.send("GET", f"/api/v1/{path}", who).status_code == 200
        self.send("GET", f"/api/history/{SESSION}", who)

    def believe(self, who: str) -> None:
        """Facts and the profile."""
        fact = f"/api/v1/users/{who}/facts/locker"
        assert self.send("PUT", fact, who, json={"value": self.fact()}).status_code in (200, 201)
        for path in (f"/api/v1/users/{who}/facts", f"{fact}/history", f"/api/v1/users/{who}/profile"):
            assert self.own in self.send("GET", path, who).text.lower()

    def judge(self, who: str) -> None:
        """Outcomes and their report."""
        for call in self.ids["calls"][-1:]:
            body = {"call": call, "score": 1, "comment": self.fact()}
            assert self.send("POST", "/api/v1/outcomes", who, json=body).status_code in (200, 201, 404)
        for path in ("outcomes", "outcomes/report"):
            assert self.send("GET", f"/api/v1/{path}", who).status_code == 200

    def batch(self, who: str) -> None:
        body = {"create": [{"user": who, "text": self.fact()} for _ in range(3)], "delete": self.ids["memories"][:1]}
        done = self.send("POST", "/api/v1/memories/batch", who, json=body)
        assert done.status_code == 200, done.text
        # On one connection, somebody may have to wait for too long.
        busy = [each for each in done.json()["results"][:3] if each["done"] != "created"]
        assert {each["error"]["type"] for each in busy} <= {"service_unavailable"}, busy

    def take_out(self, who: str) -> None:
        answer = self.send("GET", f"/api/v1/users/{who}/export", who)
        assert answer.status_code in (200, 404), answer.text

    def validate(self, who: str) -> None:
        assert self.send("GET", "/api/v1/memories/due", who).status_code == 200
        for memory in self.ids["memories"][-1:]:
            body = {"answer": "no", "correction": self.fact()}
            answer = self.send("POST", f"/api/v1/memories/{memory}/validate", who, json=body)
            assert answer.status_code in (200, 404, 409), answer.text

    def work(self, who: str) -> None:
        """Working memory, summaries, and the work of a session."""
        for session in self.ids["sessions"][-1:]:
            for what in ("working", "summary"):
                self.send("GET", f"/api/v1/sessions/{session}/{what}", who)
            for what in ("end", "compact", "consolidate"):
                self.send("POST", f"/api/v1/sessions/{session}/{what}", who, json={})

    def instruct(self, who: str) -> None:
        body = {"instructions": f"Note every locker of the {self.own} building."}
        assert self.send("PUT", "/api/v1/tenant/instructions", who, json=body).status_code == 200
        assert self.own in self.send("GET", "/api/v1/tenant/instructions", who).text.lower()

    def take_back(self, who: str) -> None:
        """Delete the newest message of the session that both tenants call the same, and what an import brought."""
        line = {"session": f"{SESSION} of {who}", "user": who, "role": "user", "content": self.fact()}
        body = json.dumps(line).encode()
        lines = {"content-type": "application/x-ndjson"}
        assert self.send("POST", "/api/v1/import", who, content=body, headers=lines).status_code == 200
        told = self.send("GET", f"/api/v1/sessions/{SESSION} of {who}/history", who, params={"limit": 1000})
        for message in told.json()["messages"][:-2][:1]:
            path = f"/api/v1/sessions/{SESSION} of {who}/messages/{message['id']}"
            assert self.send("DELETE", path, who).status_code in (200, 404, 503)

    def pry(self, who: str) -> None:
        """Ask for what the other's ids name."""
        assert self.rival is not None
        for kind, more in (("calls", "/raw"), ("calls", "/context"), ("memories", "")):
            for foreign in self.rival.ids[kind][-1:]:
                assert self.send("GET", f"/api/v1/{kind}/{foreign}{more}", who).status_code == 404
        for foreign in self.rival.ids["sessions"][-1:]:
            # As any text, it may name a session of one's own: what comes must only not be the other's.
            self._chat(who, f"What did I say? ({self.own})", headers={"x-mneme-session": foreign})
            self.send("GET", f"/api/v1/sessions/{foreign}/history", who)
        for foreign in self.rival.ids["memories"][-1:]:
            assert self.send("DELETE", f"/api/v1/memories/{foreign}", who).status_code == 404
            assert self.send("PATCH", f"/api/v1/memories/{foreign}", who, json={"text": "mine"}).status_code == 404
            for method, more, body in (
                ("GET", "/history", None),
                ("POST", "/validate", {"answer": "yes"}),
                ("POST", "/invalidate", {}),
            ):
                answer = self.send(method, f"/api/v1/memories/{foreign}{more}", who, json=body)
                assert answer.status_code == 404, answer.text
            done = self.send("POST", "/api/v1/memories/batch", who, json={"delete": [foreign]}).json()
            assert done["failed"] == 1
        for foreign in self.rival.ids["calls"][-1:]:
            outcome = {"call": foreign, "score": -1}
            assert self.send("POST", "/api/v1/outcomes", who, json=outcome).status_code == 404

    def _note(self, kind: str, answer: httpx.Response, header: str = "x-mneme-call-id") -> None:
        if answer.status_code == 200:
            self.ids[kind].append(answer.headers[header])


DEEDS: list[Callable[[Tenant, str], None]] = [
    Tenant.tell,
    Tenant.tell_in_the_session,
    Tenant.tell_streaming,
    Tenant.question,
    Tenant.go,
    Tenant.search,
    Tenant.remember,
    Tenant.preview,
    Tenant.look,
    Tenant.believe,
    Tenant.judge,
    Tenant.batch,
    Tenant.take_out,
    Tenant.validate,
    Tenant.work,
    Tenant.instruct,
    Tenant.take_back,
    Tenant.pry,
]


def hammer(mneme: MnemeServer, rng: random.Random, rounds: int) -> list[Tenant]:
    """Both tenants at once, each deed of each again and again, in an order by chance."""
    with httpx.Client(base_url=mneme.base_url, timeout=60, trust_env=False) as client:
        tenants = [Tenant(mneme, number, client) for number in range(len(TAGS))]
        for tenant in tenants:
            tenant.rival = tenants[1 - tenants.index(tenant)]
        work = [(deed, tenant) for deed in DEEDS for tenant in tenants] * rounds
        rng.shuffle(work)
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for done in [threads.submit(deed, tenant, rng.choice(USERS)) for deed, tenant in work]:
                done.result()
        for tenant in tenants:
            Api(mneme, key=tenant.key).wait_for_quiet()
            for who in USERS:  # and with all that was learned
                for deed in (Tenant.question, Tenant.search, Tenant.preview, Tenant.look, Tenant.pry):
                    deed(tenant, who)
    return tenants


TABLES = """
SELECT c.oid::regclass::text AS name, c.relispartition AS part
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind IN ('r', 'p')
  AND c.relname NOT IN ('api_keys', 'tenants') ORDER BY 1
"""


async def check_rows(dsn: str) -> None:
    """No row of a tenant holds the other's word; as the application's role nobody sees a row that is not theirs."""
    async with connected(dsn) as admin:
        ids = {row["name"]: row["tenant_id"] for row in await read_rows(admin, "tenants")}
        tenants = [ids[f"tenant-{number}"] for number in range(len(TAGS))]
        tables = [(row["name"], row["part"]) for row in await admin.fetch(TABLES)]
        filled = 0
        for (name, part), number in itertools.product(tables, range(len(TAGS))):
            foreign = TAGS[1 - number]
            found = await admin.fetchval(
                f"SELECT count(*) FROM {name} t WHERE tenant_id = $1 AND (t::text ILIKE $2 OR t::text ILIKE $3)",
                tenants[number],
                f"%{foreign}%",
                f"%{foreign.encode().hex()}%",
            )
            assert found == 0, f"{name} holds {foreign!r} in {found} rows of another tenant"
            filled += not part and await admin.fetchval(
                f"SELECT count(*) > 0 FROM {name} WHERE tenant_id = $1", tenants[number]
            )
        assert filled >= 2 * 10, "the traffic has left too little to look at"
        for name, part in tables:
            assert await seen(admin, name, None) == set(), f"{name} shows rows to nobody in particular"
            for tenant in tenants:
                assert await seen(admin, name, tenant) <= (set() if part else {tenant}), name


async def seen(admin: Any, table: str, tenant: Any) -> set[Any]:
    """Whose rows of a table the application's role sees as a tenant; of a table that it may not read, none."""
    async with admin.transaction():
        await admin.execute("SET LOCAL ROLE mneme_app")
        if tenant is not None:
            await admin.execute("SELECT set_config('mneme.tenant', $1, true)", str(tenant))
        if not await admin.fetchval("SELECT has_table_privilege($1, 'SELECT')", table):
            return set()
        return {row["tenant_id"] for row in await admin.fetch(f"SELECT DISTINCT tenant_id FROM {table}")}


def check_prompts(upstream: ScriptedUpstream) -> None:
    prompts = [prompt_of(each).lower() for each in upstream.requests if each.path == CHAT]
    assert any(prompt.count(TAGS[0]) > 3 for prompt in prompts), "nothing was remembered at all"
    for prompt in prompts:
        assert not all(tag in prompt for tag in TAGS), prompt


async def test_two_tenants_never_meet(mneme: MnemeServer, upstream: ScriptedUpstream, module_database: str) -> None:
    hammer(mneme, random.Random(1), rounds=3)
    check_prompts(upstream)
    await check_rows(module_database)


@pytest.mark.heavy
@pytest.mark.timeout(900)
async def test_two_tenants_never_meet_for_long(
    mneme: MnemeServer, upstream: ScriptedUpstream, module_database: str, rng: random.Random
) -> None:
    hammer(mneme, rng, rounds=60)
    check_prompts(upstream)
    await check_rows(module_database)
