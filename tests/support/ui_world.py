"""A world to look at: three users of a rental company's assistant, what they said, what was learned of it, and what went wrong.

    python -m tests.support.ui_world                       # a server of its own, until Ctrl-C
    python -m tests.support.ui_world --domain              # one that knows the business's own database, too
    python -m tests.support.ui_world http://127.0.0.1:8080 # a running one, whose upstream is http://127.0.0.1:8977/v1

All through the server's routes and `/v1`; nothing is random. With the DSN of the server's database (`--database`) some of it
is also put into the past, and a job is a dead letter: no route does that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import click
import httpx

from app.features.embedded import EmbeddedPostgres
from tests.support.agent_client import play
from tests.support.sample_domain import ONTOLOGY_YAML, SampleDomain, sample_domain
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer, wait_until
from tests.support.ui_world_model import MODEL, agent_model
from tests.support.ui_world_model import script as script
from tests.support.ui_world_past import behind
from tests.support.worked_example import domains

UPSTREAM_PORT = 8977
"""Where the world's model listens when it is started by hand."""
SYSTEM = "You are the assistant of Northlight Rentals, which rents stages, light and sound. Be brief and concrete."
QUIET_S = 60.0
AGENT_BUDGET = 8_000
"""Tokens of the agent's prompts."""
SETTINGS = {
    "CARD_TOOLS": json.dumps({"find_items": {"type": "product_card", "items": "items", "title": "name"}}),
    "MODEL_WINDOWS": json.dumps({MODEL: 128_000}),
}
"""Of a server that is to show all of it."""

ANA, BRUNO, CHIARA = "ana", "bruno", "chiara"

CARDS = [
    {"type": "product_card", "data": {"title": "Halo 90", "subtitle": "LED spot, 90 W", "price": "9 a day"}},
    {"type": "product_card", "data": {"title": "Arc 200", "subtitle": "LED wash, 200 W", "price": "14 a day"}},
    {"type": "chart", "data": {"title": "Brightness, lux at 5 m", "points": [["Halo 90", 900], ["Arc 200", 2100]]}},
]
MEMORIES: tuple[tuple[str, dict[str, Any]], ...] = (
    (ANA, {"text": "The loading bay in Matosinhos closes at 18:00", "kind": "fact", "tier": 2, "tags": ["warehouse"]}),
    (ANA, {"text": "Always send the packing list as a PDF", "kind": "instruction", "tier": 3, "tags": ["documents"]}),
    (ANA, {"text": "Gai Media's stage is 12 by 8 metres", "kind": "fact", "tier": 3, "tags": ["gai-media"]}),
    (BRUNO, {"text": "Prefers trains to planes below 600 km", "kind": "preference", "tier": 3, "tags": ["travel"]}),
    (CHIARA, {"text": "The staging database is reset every night at 02:00", "kind": "fact", "tier": 2}),
    (CHIARA, {"text": "Release day is Wednesday", "kind": "fact", "tier": 3, "tags": ["release"]}),
)  # fmt: skip
PAST: tuple[tuple[int, str, str, str], ...] = (
    (41, CHIARA, "user", "I coordinate the releases of the label service, and I like short answers."),
    (41, CHIARA, "assistant", "Short answers it is."),
    (40, CHIARA, "user", "My favourite editor is Helix."),
    (40, CHIARA, "assistant", "Noted."),
    (33, ANA, "user", "My manager is Duarte, and my phone is off on Sundays."),
    (33, ANA, "assistant", "I will leave you alone on Sundays."),
    (20, BRUNO, "user", "I drive the small van, and I am allergic to peanuts."),
    (20, BRUNO, "assistant", "No peanuts, then."),
)


@dataclass
class World:
    """What a test needs to know of what was made; ids by what they are."""

    base: str
    calls: dict[str, str] = field(default_factory=dict)
    sessions: dict[str, str] = field(default_factory=dict)
    memories: dict[str, str] = field(default_factory=dict)
    conflict: str = ""
    entity: str = ""


def fill(base: str, *, database: str | None = None, domain: bool = False) -> World:
    """Tell a running server everything. `database`: its DSN, as superuser; `domain`: it has the sample's as `erp`."""
    world = World(base)
    with httpx.Client(base_url=base, timeout=60, trust_env=False) as http:
        teller = _Teller(http, world)
        if domain:
            teller.send("PUT", "/ontology/erp", {"source": ONTOLOGY_YAML})
            wait_until(lambda: teller.finds("Gai Media Entertainment"), "the ontology to count", seconds=QUIET_S)
        _said_before(teller)
        _noted(teller)
        _named(teller)
        _talks(teller)
        _shown(teller)
        _knowledge(teller)
        _agent(teller)
        teller.quiet()
        _keys(teller)
        _judged(teller)
    if database is not None:
        behind(database, world.sessions["lunch"])
    return world


# --- what is told ------------------------------------------------------------------------------------------------------


def _said_before(teller: _Teller) -> None:
    today = datetime.now(UTC).replace(hour=9, minute=30, second=0, microsecond=0)
    lines = [
        {
            "session": f"{who}-{days}",
            "user": who,
            "role": role,
            "content": text,
            "created_at": (today - timedelta(days=days, seconds=-n)).isoformat(),
            "metadata": {"source": "archive"},
        }
        for n, (days, who, role, text) in enumerate(PAST)
    ]
    body = "\n".join(json.dumps(each) for each in lines)
    answer = teller.http.post("/api/v1/import", content=body, headers={"content-type": "application/x-ndjson"})
    assert answer.is_success, answer.text
    teller.quiet()


def _noted(teller: _Teller) -> None:
    for who, memory in MEMORIES:
        made = teller.send("POST", "/memories", {"user": who, **memory})
        teller.world.memories[memory["text"]] = made["id"]
    for who, name, category, value in (
        (ANA, "role", "work", "dispatcher"),
        (ANA, "language", "preferences", "English"),
        (ANA, "language", "preferences", "Portuguese"),
        (BRUNO, "licence", "work", "B96, trailers up to 4.25 t"),
        (CHIARA, "time_zone", "personal", "Europe/Rome"),
    ):
        teller.send("PUT", f"/users/{who}/facts/{name}", {"value": value, "category": category})


def _talks(teller: _Teller) -> None:
    monday = teller.talk(ANA, "monday-planning")
    monday.say("Remember that Gai Media prefers Friday deliveries.")
    monday.say("I work at Northlight Rentals, and I live in Porto.")
    monday.say("What goes out this week?", name="week", stream=True, label="golden")
    change = teller.talk(ANA, "delivery-change")
    change.say("No, Gai Media prefers Thursday now.", name="correction")
    plan = teller.talk(ANA, "next-week")
    plan.say("When should I plan the next delivery to Gai Media?", name="why", stream=True, label="golden")
    teller.world.calls["stream"] = teller.world.calls["why"]
    plan.say("How are they staffed on the night shift?", name="error", fails=True)
    again = teller.talk(ANA, "contract")
    again.say("What does the whole contract with Gai Media say about its end?", name="degraded")
    lunch = teller.talk(BRUNO, "lunch")
    lunch.say("I am vegetarian, and I live in Matosinhos.")
    lunch.say("Where can I have lunch before the tour?", name="lunch", stream=True)
    family = teller.talk(BRUNO, "family")
    family.say("My sister lives in Ghent.")
    family.say("My sister lives in Porto.")
    office = teller.talk(CHIARA, "office")
    office.say("Please always answer in Portuguese.")
    office.say("Book a meeting room for Monday at ten, for four.")
    office.say("And what do you know about me?", stream=True)
    office.branch(4)
    office.say("Book a meeting room for Tuesday at nine instead.")
    if teller.known("erp"):
        terms = teller.talk(ANA, "terms")
        terms.say("Tell me about Gai Media.")
        terms.say("Remember, Gai Media's payment terms are NET30.")
        terms.say("What did Gai Media order in September 2024?", name="domain", stream=True)
        terms.say("What are the payment terms of Gai Media?", name="conflict")


def _shown(teller: _Teller) -> None:
    teller.send("POST", "/sessions", {"id": "lamp-shopping", "user": BRUNO, "type": "voice", "metadata": {"till": 4}})
    shop = teller.talk(BRUNO, "lamp-shopping")
    shop.say("Which lamps fit a small stage?", name="cards")
    teller.send("POST", f"/sessions/lamp-shopping/cards?user={BRUNO}", CARDS)
    shop.say("How bright is the second one?", stream=True)
    tools = teller.talk(BRUNO, "catalogue")
    tool = {"type": "function", "function": {"name": "find_items", "parameters": {"type": "object", "properties": {}}}}
    tools.say("Find lamps in the catalogue.", name="tool", tools=[tool])


def _named(teller: _Teller) -> None:
    """Things that are known by hand; with the domain, Gai Media is one of its customers."""
    if not teller.known("erp"):
        teller.send("POST", "/entities", {"key": "gai_123", "type": "customer", "name": "Gai Media"})
    entity = teller.send(
        "POST",
        "/entities",
        {
            "key": "casa_da_musica",
            "type": "venue",
            "name": "Casa da Música",
            "properties": {"city": "Porto", "seats": 1238},
        },
    )
    teller.world.entity = entity["id"]
    for alias in ("Casa", "the concert hall"):
        teller.send("POST", f"/entities/{entity['id']}/aliases", {"alias": alias})
    teller.send("POST", "/entities", {"key": "super_bock", "type": "venue", "name": "Super Bock Arena"})
    teller.send(
        "POST",
        "/entities",
        {"key": "duarte", "type": "person", "name": "Duarte Reis", "properties": {"role": "manager"}},
    )


def _knowledge(teller: _Teller) -> None:
    found = teller.get("/conflicts", status="open")["conflicts"]
    assert found, "two places of one sister were no conflict"
    teller.world.conflict = found[0]["id"]


def _agent(teller: _Teller) -> None:
    config = {"paging": "on", "paging_budget_tokens": AGENT_BUDGET}
    teller.send("POST", "/sessions", {"id": "label-service", "user": CHIARA, "config": config})
    model = agent_model()
    headers = {"x-mneme-user": CHIARA, "x-mneme-session": "label-service", "x-mneme-paging": "on"}
    played = play(teller.world.base, model.work, model, headers=headers, between=teller.quiet)
    teller.world.sessions["label-service"] = played.session_id
    held = teller.get("/objects", session="label-service", headers={"x-mneme-user": CHIARA})["objects"]
    if held:
        teller.send("POST", f"/objects/{held[0]['id']}/pin?session=label-service", {}, {"x-mneme-user": CHIARA})


def _keys(teller: _Teller) -> None:
    for body in (
        {
            "name": "planning app",
            "limits": {"requests_per_minute": 600, "money_budget_usd": 25, "money_period": "month"},
        },
        {"name": "dashboard", "scopes": ["read"]},
        {"name": "ana's phone", "user": ANA, "scopes": ["proxy", "read"]},
    ):
        teller.send("POST", "/keys", body)
    gone = teller.send("POST", "/keys", {"name": "old laptop"})
    teller.send("DELETE", f"/keys/{gone['id']}")


def _judged(teller: _Teller) -> None:
    teller.send("POST", "/outcomes", {"call": teller.world.calls["why"], "outcome": "positive"})
    known = teller.get("/memories", user=ANA, limit=1000)["memories"]
    teller.world.memories["corrected"] = next(each["id"] for each in known if "prefers Thursday" in each["text"])


# --- how it is told ----------------------------------------------------------------------------------------------------


class _Teller:
    """The API, as whoever runs the application has them."""

    def __init__(self, http: httpx.Client, world: World) -> None:
        self.http = http
        self.world = world

    def send(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        answer = self.http.request(method, f"/api/v1{path}", json=body, headers=headers)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def get(self, path: str, *, headers: Mapping[str, str] | None = None, **query: Any) -> Any:
        answer = self.http.get(f"/api/v1{path}", params=query, headers=headers)
        assert answer.is_success, f"GET {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def known(self, domain: str) -> bool:
        return domain in json.dumps(self.get("/ontology"))

    def finds(self, mention: str) -> bool:
        """Whether it means a thing to Ana; of the business's rows so soon as its ontology counts everywhere."""
        asked = {"mention": mention, "user": ANA}
        return self.send("POST", "/entities/resolve", asked)["canonical_entity_id"] is not None

    def quiet(self) -> None:
        """Until all is learned that was said."""
        until = time.monotonic() + QUIET_S
        while True:
            queue = self.get("/queue")
            if queue["queued"] == 0 and queue["running"] == 0:
                return
            assert time.monotonic() < until, queue
            time.sleep(0.02)

    def talk(self, who: str, session: str) -> _Talk:
        return _Talk(self, who, session)


class _Talk:
    """A conversation whose client keeps its transcript."""

    def __init__(self, teller: _Teller, who: str, session: str) -> None:
        self._teller = teller
        self._headers = {"x-mneme-user": who, "x-mneme-session": session}
        self._name = session
        self._messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]

    def branch(self, keep: int) -> None:
        """Go on from an earlier place, the first `keep` messages after the system's, in a session that nobody named."""
        del self._messages[1 + keep :]
        del self._headers["x-mneme-session"]
        self._name = f"{self._name}, a branch"

    def say(
        self, text: str, *, name: str = "", stream: bool = False, label: str = "", fails: bool = False, **fields: Any
    ) -> None:
        """One turn; returns when it is learned. `name`: of the call in the world."""
        self._messages.append({"role": "user", "content": text})
        body: dict[str, Any] = {"model": MODEL, "messages": self._messages, **fields}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        headers = self._headers | ({"x-mneme-label": label} if label else {})
        answer = self._teller.http.post("/v1/chat/completions", json=body, headers=headers)
        assert answer.is_success != fails, answer.text
        world = self._teller.world
        if name:
            world.calls[name] = answer.headers["x-mneme-call-id"]
        world.sessions[self._name] = answer.headers.get("x-mneme-session-id", "")
        if fails:
            self._messages.pop()
            return
        message = _streamed(answer.text) if stream else answer.json()["choices"][0]["message"]
        self._messages.append({each: message[each] for each in ("role", "content", "tool_calls") if message.get(each)})
        self._teller.quiet()


def _streamed(text: str) -> dict[str, Any]:
    chunks = [json.loads(each[6:]) for each in text.split("\n\n") if each.startswith("data: {")]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return {"role": "assistant", "content": "".join(each.get("content") or "" for each in deltas)}


@click.command()
@click.argument("base", required=False)
@click.option("--database", help="The DSN of the server's database, as superuser.")
@click.option("--domain", is_flag=True, help="The server has (or gets) the sample domain as `erp`.")
@click.option("--port", default=0, help="Of the server of its own.")
def main(base: str | None, database: str | None, domain: bool, port: int) -> None:
    """Fill a running server, or one of its own, which runs until Ctrl-C."""
    for each in (signal.SIGINT, signal.SIGTERM):  # a shell's background jobs ignore Ctrl-C
        signal.signal(each, lambda *_: sys.exit(0))
    with ScriptedUpstream(script(), port=UPSTREAM_PORT if base else 0) as upstream:
        if base is not None:
            fill(base, database=database, domain=domain)
            return
        folder = Path(tempfile.mkdtemp(prefix="mneme-world-"))
        own = ("--port", str(port)) if port else ()
        postgres = EmbeddedPostgres(folder / ".mneme")
        dsn = postgres.start()
        with contextlib.ExitStack() as stack:
            stack.callback(postgres.stop)
            known = SETTINGS | (stack.enter_context(_business(dsn)) if domain else {})
            server = stack.enter_context(
                MnemeServer(folder, database=None, upstream=upstream.url, worker=True, settings=known, arguments=own)
            )
            fill(server.base_url, database=dsn, domain=domain)
            sys.stdout.write(f"{server.base_url}/ui\n")
            sys.stdout.flush()
            threading.Event().wait()


def with_business(sample: SampleDomain) -> dict[str, str]:
    """The settings of a server that has it as `erp`, however busy the machine is."""
    return {"DOMAINS": domains(erp=(sample.dsn, ["local"])), "RETRIEVAL_DEADLINE_MS": "100000"}


@contextlib.contextmanager
def _business(server: str) -> Iterator[dict[str, str]]:
    """The sample domain beside the server's own database, and the settings that name it."""
    made = sample_domain(server)
    with asyncio.Runner() as runner:
        sample = runner.run(made.__aenter__())
        try:
            yield with_business(sample)
        finally:
            with contextlib.suppress(OSError, asyncpg.PostgresError):  # Ctrl-C ends the database, too
                runner.run(made.__aexit__(None, None, None))


if __name__ == "__main__":
    main()
