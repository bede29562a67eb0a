"""Whatever is done with spaces and users, no prompt has what its user may not read: random deeds against a model of who may."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import httpx
import pytest

from app.tasks import Supervisor
from tests.acceptance.conftest import OwnServers
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

USERS = ("ana", "bob", "eve", "zoe")
NAMES = ("ops", "sales", "lab")
THINGS = ("billing service", "search cluster", "garden gate", "coffee machine")
DEEDS = 100
ROUNDS = 8
"""How often each joins and leaves while others do."""
WORD = re.compile(r"\bkw\d+x\b")


@pytest.fixture(scope="module")
def worker() -> bool:
    """What is learned of it crosses nowhere, either."""
    return True


class Told(NamedTuple):
    """A code word, and where it was said."""

    user: str
    space: str | None


class World:
    """Who may read what, as it should be."""

    def __init__(self) -> None:
        self.members: dict[str, set[str]] = {}
        self.told: dict[str, Told] = {}

    def may_read(self, user: str) -> set[str]:
        return {
            word
            for word, (by, space) in self.told.items()
            if (by == user if space is None else user in self.members.get(space, ()))
        }

    def forget(self, user: str | None = None, space: str | None = None) -> None:
        gone = [word for word, each in self.told.items() if each.user == user or (space and each.space == space)]
        for word in gone:
            del self.told[word]


SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.heavy) for seed in range(2, 8))]


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_crosses_under_random_deeds(mneme: MnemeServer, upstream: ScriptedUpstream, seed: int) -> None:
    rng, world, api = random.Random(seed), World(), mneme.http
    spaces = [f"{name}{seed}" for name in NAMES]
    users = [f"{name}{seed}" for name in USERS]
    talks: dict[str, list[Any]] = {}
    done: Counter[str] = Counter()
    crossed: list[Any] = []
    weights = {
        "say": 4,
        "share": 9,
        "ask": 12,
        "create": 3,
        "join": 5,
        "leave": 2,
        "erase user": 0.4,
        "erase space": 0.3,
    }
    deeds = ["create"] * 9 + ["join"] * 12 + rng.choices(list(weights), list(weights.values()), k=DEEDS)
    for n, deed in enumerate(deeds):
        user, space, thing = rng.choice(users), rng.choice(spaces), rng.choice(THINGS)
        if deed == "share" and rng.random() < 0.8:  # mostly where they may
            user, space = rng.choice(
                [(u, s) for s in spaces for u in sorted(world.members.get(s, ()))] or [(user, space)]
            )
        there, word = space in world.members, f"kw{seed}{n:04}x"
        if deed == "say":
            assert say(mneme, f"The code word of the {thing} is {word}.", user) == 200
            world.told[word] = Told(user, None)
        elif deed == "share":
            if not there or user not in world.members[space]:
                assert say(mneme, f"The code word of the {thing} is {word}.", user, space) == 404
                assert word.encode() not in b"".join(each.body for each in upstream.requests)
                deed = "share, refused"
            else:
                assert say(mneme, f"The code word of the {thing} is {word}.", user, space) == 200
                world.told[word] = Told(user, space)
        elif deed == "ask":
            # A new conversation, or one that goes on: what stands in its prompts may be nobody's any more.
            asked = talks.get(user, []) if rng.random() < 0.5 else []
            asked = [*asked[-6:], {"role": "user", "content": f"What is the code word of the {thing}?"}]
            assert say(mneme, asked, user) == 200
            talks[user] = [*asked, {"role": "assistant", "content": "All right."}]
            seen = set(WORD.findall(upstream.requests[-1].body.decode()))
            done["readable"] += len(world.may_read(user))
            crossed += [(n, user, each, world.told.get(each)) for each in seen - world.may_read(user)]
            done["recalled of one's own"] += sum(world.told[each].space is None for each in seen if each in world.told)
            done["recalled of others"] += sum(world.told[each].user != user for each in seen if each in world.told)
        elif deed == "create":
            assert api.post("/api/v1/spaces", json={"name": space}).status_code == (200 if there else 201)
            world.members.setdefault(space, set())
        elif deed == "join":
            answer = api.put(f"/api/v1/spaces/{space}/members/{user}")
            assert answer.status_code == (200 if there else 404), answer.text
            if there:
                world.members[space].add(user)
        elif deed == "leave":
            api.delete(f"/api/v1/spaces/{space}/members/{user}")
            if there:
                world.members[space].discard(user)
        elif deed == "erase user":
            answer = api.delete(f"/api/v1/users/{user}")
            assert answer.status_code in (200, 404), answer.text
            world.forget(user=user)
            for members in world.members.values():
                members.discard(user)
        else:
            answer = api.delete(f"/api/v1/spaces/{space}")
            assert answer.status_code == (200 if there else 404), answer.text
            world.members.pop(space, None)
            world.forget(space=space)
        done[deed] += 1
    assert crossed == [], dict(done)
    assert min(done["recalled of others"], done["recalled of one's own"]) > 0, f"the proof can fail: {dict(done)}"


def say(mneme: MnemeServer, said: str | list[Any], user: str, space: str | None = None) -> int:
    messages = [{"role": "user", "content": said}] if isinstance(said, str) else said
    headers = {"X-Mneme-User": user} | ({"X-Mneme-Space": space} if space else {})
    return mneme.http.post(
        "/v1/chat/completions", json={"model": "gpt-4o", "messages": messages}, headers=headers
    ).status_code


async def test_nothing_crosses_to_whoever_leaves_while_others_ask(
    own_server: OwnServers, upstream: ScriptedUpstream
) -> None:
    """Deeds at the same moment, on two servers: what a request brings that was sent after its user had left is nothing of the
    space's, whoever asks, joins and leaves meanwhile."""
    servers = [own_server(upstream.url) for _ in range(2)]
    rng = random.Random(8)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=each.base_url, timeout=30)) for each in servers
        ]
        one = clients[0]
        await one.post("/api/v1/spaces", json={"name": "ops"})
        await one.put("/api/v1/spaces/ops/members/ana")
        for n, thing in enumerate(THINGS):
            said = {
                "model": "gpt-4o",
                "messages": [{"role": "user", "content": f"The code word of the {thing} is kw{n}x."}],
            }
            told = await one.post(
                "/v1/chat/completions", json=said, headers={"X-Mneme-User": "ana", "X-Mneme-Space": "ops"}
            )
            assert told.status_code == 200
        asked: dict[str, bool] = {}
        tasks = Supervisor()

        async def asks(user: str, mark: str, allowed: bool) -> None:
            body = {
                "model": "gpt-4o",
                "messages": [{"role": "user", "content": f"{mark}: {rng.choice(THINGS)}, its code word?"}],
            }
            answer = await rng.choice(clients).post("/v1/chat/completions", json=body, headers={"X-Mneme-User": user})
            assert answer.status_code == 200, answer.text
            asked[mark] = allowed

        async def leave(member: str) -> None:
            assert (await rng.choice(clients).delete(member)).is_success

        async def lives(user: str) -> None:
            member = f"/api/v1/spaces/ops/members/{user}"
            for n in range(ROUNDS):
                assert (await rng.choice(clients).put(member)).is_success
                # While it ends, either may be; before it, all is there; after it is acknowledged, nothing.
                await asks(user, f"{user}-in-{n}.", True)
                leaving = tasks.spawn(leave(member), "leave")
                during = [tasks.spawn(asks(user, f"{user}-between-{n}-{k}.", True), "ask") for k in range(2)]
                await leaving
                await asks(user, f"{user}-out-{n}.", False)
                await asyncio.gather(*during)

        await asyncio.gather(*(lives(user) for user in ("bob", "eve", "zoe")))
    read, crossed = 0, list[str]()
    for request in upstream.requests:
        if not request.path.endswith("/chat/completions"):
            continue
        said = request.json()["messages"][-1]["content"]
        mark = said.rsplit("\n", 1)[-1].partition(":")[0]  # the question itself: memory may quote an earlier one
        if mark in asked and WORD.search(request.body.decode()):
            read += asked[mark]
            crossed += [] if asked[mark] else [mark]
    assert crossed == []
    assert len(asked) == 3 * ROUNDS * 4
    assert read > ROUNDS, "the proof can fail"
