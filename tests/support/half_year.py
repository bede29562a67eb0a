"""Half a year in the life of somebody who talks to an assistant: facts, changes of mind, habits, passing things, and noise.

Everything goes the way of a real turn but for HTTP: messages into the history, the worker's `learn` job, searches whose
finds are counted as uses, the schedule's sweeps at their cadence, questions about what has grown doubtful and their answers.
`python -m tests.support.half_year docs/pictures/half-year.svg` draws it; with a number of days after it, so many, and with a
parameter of `system_config` and what of its value is to be another after that, with that.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from app.context.compile import Compiler
from app.context.request import CompileRequest, SearchRequest
from app.context.retrieve import Retriever, Scope
from app.context.transcript import Transcript
from app.context.worth import PRICES
from app.jobs.schedule import Schedule, life_ticks
from app.jobs.worker import connector
from app.providers.embeddings import WordLlamaEmbedder
from app.providers.models import ModelRegistry
from app.providers.tokens import CountCache, Tokenizers
from app.sources import Price
from app.store import ids
from app.store.kinds import KINDS
from app.store.pools import Pool, open_pool
from app.store.turns import TurnStore
from app.store.validation import Validation
from tests.support.clock import FakeClock
from tests.support.database import connected, fresh_database, make_template, shared_server
from tests.support.indexes import indexes_of
from tests.support.jobs import SQL
from tests.support.learning import TENANT, Talk, learner
from tests.support.rows import count_use, ensure_space, read_memories, set_config

START = datetime(2031, 1, 6, tzinfo=UTC)
"""A Monday. In the future, so that what is over is gone because it was swept, not because Postgres' own clock is past it."""
DAYS = 180
HOURS_OF_DAY = {0: (9, 18), 1: (12,), 2: (9, 18), 3: (12,), 4: (9, 18), 5: (11,), 6: (20,)}
"""Sessions by day of the week: ten a week."""
ABOUT_HER = ("fact", "preference", "instruction", "correction")
CHOSEN = 2
"""Memories that a question of hers brings into the prompt: few, so that there is something that is not used."""
FOUND = 5
"""Memories that a probe looks among."""
AS_MUCH_AS_FITS = 200
"""Items, of which a block of 1,500 tokens holds fewer."""
USER = "ines"


@dataclass(frozen=True)
class Topic:
    """Something about the persona: a question, and what she says about it on which day, with the memory that it makes. Only
    the last one is true."""

    question: str
    said: tuple[tuple[int, str, str], ...]

    def truth(self, day: int) -> str | None:
        found = [memory for at, _, memory in self.said if at <= day]
        return found[-1] if found else None

    def stale(self, day: int) -> set[str]:
        return {memory for at, _, memory in self.said if at <= day} - {self.truth(day)}

    def stale_words(self, day: int) -> set[str]:
        """What was said, and what was answered to it, before the last time that she said something of it."""
        said = [text for at, text, _ in self.said if at <= day][:-1]
        return set(said) | {answer(text) for text in said}


TOPICS = (
    Topic("Where do I live?", (
        (0, "I live in Porto.", "Lives in Porto"), (40, "I moved to Lisbon.", "Lives in Lisbon"),
        (130, "Actually, I live in Faro now.", "Lives in Faro"))),
    Topic("What do I work as?", (
        (0, "I work as a nurse.", "Works as a nurse"),
        (75, "Actually, I work as a teacher now.", "Works as a teacher"))),
    Topic("Am I vegetarian or pescatarian?", (
        (1, "I'm vegetarian.", "Is vegetarian"), (110, "Actually, I'm pescatarian.", "Is pescatarian"))),
    Topic("What is my favourite colour?", (
        (3, "My favourite colour is green.", "Favourite colour is green"),
        (100, "Actually, my favourite colour is blue.", "Favourite colour is blue"))),
    Topic("What is my sister's name?", (
        (5, "My sister's name is Marta.", "Sister's name is Marta"),
        (20, "Actually, my sister's name is Maria.", "Sister's name is Maria"))),
    Topic("What is my name?", ((0, "My name is Ines.", "Name is Ines"),)),
    Topic("What am I allergic to?", ((2, "I'm allergic to peanuts.", "Is allergic to peanuts"),)),
    Topic("Which pets do I have?", ((4, "I have a dog named Bolt.", "Has a dog named Bolt"),)),
    Topic("When does my passport expire?", (
        (6, "Remember that my passport expires in 2036.", "Passport expires in 2036"),)),
    Topic("Which instrument do I play?", ((12, "I play the guitar.", "Plays the guitar"),)),
    Topic("Where was I born?", ((15, "I was born in Braga.", "Was born in Braga"),)),
    Topic("Which languages do I speak?", ((18, "I speak Portuguese and English.", "Speaks Portuguese and English"),)),
    Topic("What is my wife called?", ((25, "My wife is called Rita.", "Wife's name is Rita"),)),
    Topic("Do I drink tea or coffee?", ((30, "I prefer tea over coffee.", "Prefers tea over coffee"),)),
    Topic("What do I like to do outdoors?", ((33, "I like hiking.", "Likes hiking"),)),
    Topic("How should you write to me?", ((8, "Don't use emojis.", "Don't use emojis"),)),
    Topic("What am I training for?", ((60, "I'm training for a marathon.", "Is training for a marathon"),)),
    Topic("What is my favourite team?", ((92, "My favourite team is Benfica.", "Favourite team is Benfica"),)),
    Topic("What is my brother called?", ((96, "My brother's name is Tiago.", "Brother's name is Tiago"),)),
    Topic("What is my favourite book?", (
        (104, "My favourite book is Dune.", "Favourite book is Dune"),)),
    Topic("What car do I drive?", ((115, "I drive a Fiat Panda.", "Drives a Fiat Panda"),)),
    Topic("Do I smoke?", ((118, "I don't smoke.", "Does not smoke"),)),
    Topic("What is my mother's name?", ((122, "My mother's name is Lurdes.", "Mother's name is Lurdes"),)),
    Topic("What is my favourite film?", (
        (128, "My favourite film is Alien.", "Favourite film is Alien"),)),
    Topic("Which cat do I have?", ((133, "I have a cat named Miso.", "Has a cat named Miso"),)),
    Topic("What is my boss's name?", ((138, "My boss's name is Vera.", "Boss's name is Vera"),)),
    Topic("What is my favourite season?", (
        (142, "My favourite season is autumn.", "Favourite season is autumn"),)),
    Topic("Which games do I like?", ((147, "I like board games.", "Likes board games"),)),
    Topic("When is my birthday?", ((152, "My birthday is on 4 May.", "Birthday is 4 May"),)),
    Topic("When do I usually run?", ((7, "I usually run on Monday mornings.", "Usually runs on Monday mornings"),)),
)  # fmt: skip
_TOLD = frozenset(text for topic in TOPICS for _, text, _ in topic.said)
LAPSED = (
    (10, "I'm learning Italian.", "Is learning Italian"),
    (14, "I like swimming.", "Likes swimming"),
)
"""Said once, and no longer true when she is asked, of which she says nothing before."""
TRIFLES = (
    (2, "My favourite mug is the red one.", "Favourite mug is the red one"),
    (9, "I like crackers.", "Likes crackers"),
    (16, "My favourite font is Garamond.", "Favourite font is Garamond"),
)
"""Said once, of no use to anybody, and she never answers when she is asked."""


def answer(text: str) -> str:
    """What an assistant says: it repeats what it was told."""
    return f"All right, noted that you said: {text}" if text in _TOLD else "All right."


HABIT = "I usually run on Monday mornings."
HABIT_DAYS = range(7, 120, 14)
CHATTER = (
    "This is great, thanks!", "I hate this rain.", "Can you make that shorter?", "Hmm, let me think.", "What a day.",
    "Good morning!", "And what would you do?", "Never mind.", "Is it going to rain tomorrow?", "Ok, go on.",
)  # fmt: skip
BOUGHT = (
    "lamp",
    "chair",
    "kettle",
    "book",
    "scarf",
    "plant",
    "bike pump",
    "jacket",
    "blender",
    "mug",
    "clock",
    "notebook",
)
PASSING = (
    "tides", "sourdough", "tax forms", "lunar eclipses", "typewriters", "glaciers", "tile glue", "opera", "beekeeping",
    "ferries", "crosswords", "solar panels", "vinyl records", "moss", "kites", "origami", "volcanoes", "hot springs",
    "fountain pens", "lighthouses", "compost", "ceramics", "night trains", "saffron", "telescopes",
)  # fmt: skip
RECURRING = "chess openings"
RECURRING_DAYS = range(10, 60)


@dataclass
class Sample:
    """How things stand at the end of a week. `learned`: ever; `stored`: rows that are still there, in force or not."""

    day: int
    learned: int
    stored: int
    in_force: int
    about_her: int
    """Facts and preferences in force, of which seed 001 §7 counts 5 to 10 in the first week."""
    by_tier: dict[int, int]
    missing: list[str]
    stale_found: list[str]
    """Memories, and what was said in conversations and answered there, that present what was true once as if it were now."""


@dataclass
class Story:
    """What came of it."""

    samples: list[Sample] = field(default_factory=list)
    sessions: int = 0
    swept: dict[str, int] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=lambda: {"yes": 0, "no": 0})


class HalfYear:
    """The persona and her assistant."""

    def __init__(
        self, dsn: str, pool: Pool, admin: asyncpg.Connection[Any], words: WordLlamaEmbedder, space: int,
        *, look_every: timedelta = timedelta(days=1), seed: int = 7,
    ) -> None:  # fmt: skip
        self.clock = FakeClock(START)
        self.admin = admin
        self._pool = pool
        self._dice = Random(seed)
        self._times_asked: Counter[UUID] = Counter()
        self._look_every = look_every
        self._looks_next = START
        self._learn = learner(pool, words, space, clock=self.clock)
        connect = connector(dsn, role="mneme_owner", name="mneme schedule")
        self._schedule = Schedule(connect, SQL, self.clock, further=life_ticks(SQL))
        self._validation = Validation(pool, SQL, self.clock, space=space, actor="user")
        self._compiler = Compiler(
            Retriever(
                TurnStore(pool, SQL), words, lambda text: len(text.split()), indexes_of(pool, words.dimensions, space)
            ), ModelRegistry(), Tokenizers(), CountCache(),
            nonce_key=lambda: b"k", memory_cap=1500,
        )  # fmt: skip
        self.user = ids.user_id(TENANT, USER)
        self.story = Story()

    @property
    def day(self) -> int:
        return (self.clock.now() - START).days

    async def live(self, days: int = DAYS) -> Story:
        async with self._pool.transaction(TENANT) as connection:
            await connection.execute(SQL["tenancy.user_ensure"], TENANT, self.user, USER, self.clock.now())
        for day in range(days):
            for hour in HOURS_OF_DAY[(START + timedelta(days=day)).weekday()]:
                await self._until(START + timedelta(days=day, hours=hour))
                await self._session(first=hour == HOURS_OF_DAY[(START + timedelta(days=day)).weekday()][0])
            await self._until(START + timedelta(days=day + 1))
            if (day + 1) % 7 == 0 or day + 1 == days:
                self.story.samples.append(await self._sample())
        return self.story

    async def _until(self, moment: datetime) -> None:
        """Let time pass, with the worker's schedule at work."""
        while self._looks_next <= moment:
            self.clock.move(self._looks_next - self.clock.now())
            self._looks_next += self._look_every
            for name, changed in (await self._schedule.look()).items():
                self.story.swept[name] = self.story.swept.get(name, 0) + changed
        self.clock.move(moment - self.clock.now())

    async def _session(self, *, first: bool) -> None:
        dice, self.story.sessions = self._dice, self.story.sessions + 1
        talk = Talk(USER, f"chat-{self.story.sessions}", begun=self.clock.now())
        lines = [text for topic in TOPICS for at, text, _ in topic.said if at == self.day] if first else []
        lines += [text for at, text, _ in (*LAPSED, *TRIFLES) if first and at == self.day]
        if first and self.day in HABIT_DAYS:
            lines.append(HABIT)
        if dice.random() < 0.4:
            lines.append(f"I bought a {dice.choice(BOUGHT)} yesterday.")
        if dice.random() < 0.35:
            lines.append(f"I might read up on {dice.choice(PASSING)}.")
        if self.day in RECURRING_DAYS:
            lines.append(f"I'm thinking about studying {RECURRING}.")
        lines.append(dice.choice(CHATTER))
        said = []
        for line in lines:
            said += await talk.say(self._pool, line)
            said += await talk.say(self._pool, answer(line), role="assistant", **self._tool())
        await self._learn.learn(talk.job(said))
        for question in [RECURRING] * (self.day in RECURRING_DAYS) + [dice.choice(TOPICS).question]:
            await self._ask(question, talk.session)
        await self._validate()

    def _tool(self) -> dict[str, Any]:
        """What the assistant looked up meanwhile, now and then."""
        if self._dice.random() > 0.3:
            return {}
        arguments = orjson.dumps({"query": f"thing {self._dice.randrange(10**6)}"}).decode()
        call = {"id": "c1", "type": "function", "function": {"name": "web_search", "arguments": arguments}}
        return {"tool_calls": orjson.dumps([call]).decode()}

    async def _ask(self, question: str, session: UUID) -> None:
        """A question whose prompt holds some memories: their use is counted, as the recording of a turn does."""
        found = await self._search(question, CHOSEN, session=session)
        async with self._pool.transaction(TENANT) as connection:
            for item in found.items:
                await count_use(connection, item.candidate.id, self.clock.now(), max(item.score, 0.0))

    async def _search(
        self,
        question: str,
        k: int = FOUND,
        *,
        session: UUID | None = None,
        history: bool = False,
        kinds: Sequence[str] | None = tuple(KINDS),
    ) -> Any:
        scope = Scope(TENANT, self.user, session=session, history=history)
        return await self._compiler.search(
            SearchRequest(scope=scope, query=question, now=self.clock.now(), k=k, kinds=kinds)
        )

    async def _validate(self) -> None:
        """Ask at most one question in a session; she answers every other time, and the fourth time for sure.

        A memory in doubt for which nobody vouches lives for 90 days, in which she is asked four times.
        """
        for due in await self._validation.due(TENANT, self.user, limit=1):
            await self._validation.asked(TENANT, self.user, [due.memory_id])
            trifle = due.content_text in {memory for _, _, memory in TRIFLES}
            self._times_asked[due.memory_id] += 1
            if (self._dice.random() < 0.5 or self._times_asked[due.memory_id] == 4) and not trifle:
                true = due.content_text in {topic.truth(self.day) for topic in TOPICS}
                answer = self._validation.confirm if true else self._validation.deny
                await answer(TENANT, self.user, due.memory_id)
                self.story.answers["yes" if true else "no"] += 1

    async def _sample(self) -> Sample:
        stored = await read_memories(self.admin)
        in_force = [row for row in stored if row["is_active"]]
        by_tier = dict(Counter(row["memory_tier"] for row in in_force))
        missing: list[str] = []
        stale: list[str] = []
        for topic in TOPICS:
            texts = {item.candidate.text for item in (await self._search(topic.question)).items}
            truth = topic.truth(self.day - 1)
            if truth is not None and truth not in texts:
                missing.append(truth)
            stale += texts & {text for each in TOPICS for text in each.stale(self.day - 1)}
            # And all that a prompt would hold, conversations included.
            whole = {
                item.candidate.text for item in (await self._search(topic.question, AS_MUCH_AS_FITS, kinds=None)).items
            }
            stale += whole & {
                text for each in TOPICS for text in each.stale(self.day - 1) | each.stale_words(self.day - 1)
            }
        return Sample(
            day=self.day,
            learned=len(stored) + self.story.swept.get("removal", 0),
            stored=len(stored),
            in_force=len(in_force),
            about_her=sum(row["memory_tier"] >= 3 and row["kind"] in ABOUT_HER for row in in_force),
            by_tier=by_tier,
            missing=missing,
            stale_found=stale,
        )

    async def efficiencies(self, price: Price = "balanced") -> list[dict[str, float]]:
        """Return the figures of `pack.Efficiency` of a prompt for each question that memory answers, each asked in a session of
        its own. `price`: of a token."""
        found = []
        for n, topic in enumerate(TOPICS):
            messages = [{"role": "user", "content": topic.question}]
            session = ids.session_id(TENANT, self.user, f"asked-{n}")
            asked = CompileRequest(
                scope=Scope(TENANT, self.user, session=session), session_id=session, new_session=True, messages=messages,
                transcript=Transcript.of(messages), model="gpt-4o", now=self.clock.now(), placement="tail",
                price=price,
            )  # fmt: skip
            compiled = await self._compiler.compile(asked)
            if compiled.memories:
                found.append({**compiled.audit["eta"], "tokens": compiled.audit["sections"]["memories"]["tokens"]})
        return found

    async def statuses(self, question: str) -> dict[str, str]:
        """What a search with history finds, and its status."""
        found = await self._search(question, history=True)
        return {each.candidate.text: found.statuses.get(each.candidate.id, "active") for each in found.items}


# --- the plot ---------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 360, 50, 40, 20, 150


def plot(samples: Sequence[Sample]) -> str:
    """An SVG of memories over days: all that was ever learned, and what is in force, whole and by tier."""
    lines = {
        "learned in all": ("#999999", [each.learned for each in samples]),
        "stored": ("#8a63a8", [each.stored for each in samples]),
        "in force": ("#1b6ca8", [each.in_force for each in samples]),
        "L3 and L4": ("#2e8b57", [each.by_tier.get(3, 0) + each.by_tier.get(4, 0) for each in samples]),
        "L2": ("#d98032", [each.by_tier.get(2, 0) for each in samples]),
        "L1": ("#b03a48", [each.by_tier.get(1, 0) for each in samples]),
    }
    days, most = samples[-1].day, max(each.learned for each in samples)

    def at(day: int, n: int) -> tuple[float, float]:
        return (
            LEFT + (WIDTH - LEFT - RIGHT) * day / days,
            HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * n / most,
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for n in range(0, most + 1, 50):
        _, y = at(0, n)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e5e5e5"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{n}</text>')
    for day in range(0, days + 1, 30):
        x, y = at(day, 0)
        parts.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{day}</text>')
    for name, (colour, values) in lines.items():
        points = [(LEFT, at(0, 0)[1])] + [at(each.day, n) for each, n in zip(samples, values, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x, y = points[-1]
        parts.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{name} ({values[-1]})</text>')
    parts.append(f'<text x="{(WIDTH - RIGHT + LEFT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">day</text></svg>')
    return "\n".join(parts) + "\n"


async def _main(days: int, changed: Mapping[str, str]) -> tuple[Story, dict[str, dict[str, float]]]:
    with tempfile.TemporaryDirectory() as folder, shared_server(Path(folder)) as server:
        template = await make_template(server, Path(folder))
        async with fresh_database(server, template) as dsn, connected(dsn) as admin:
            words = WordLlamaEmbedder()
            space = await ensure_space(admin, words.space, words.dimensions)
            pool = await open_pool(
                dsn, size=2, timeout_ms=5000, statement_timeout_ms=30_000, statement_cache_size=256, role="mneme_app",
                application_name="half-year",
            )  # fmt: skip
            for key, value in changed.items():
                await set_config(admin, key, orjson.loads(value))
            live = HalfYear(dsn, pool, admin, words, space)
            story = await live.live(days)
            etas = {price: await live.efficiencies(price) for price in PRICES}
            await pool.close()
    return story, {
        price: {name: round(mean(each[name] for each in found), 3) for name in found[0]}
        for price, found in etas.items()
    }


if __name__ == "__main__":
    lived, eta = asyncio.run(
        _main(int(sys.argv[2]) if len(sys.argv) > 2 else DAYS, dict(zip(sys.argv[3::2], sys.argv[4::2], strict=True)))
    )
    Path(sys.argv[1]).write_text(plot(lived.samples))
    for each in lived.samples:
        print(each)
    print(lived.sessions, lived.swept, lived.answers, eta)
