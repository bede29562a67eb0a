"""Whatever is done with spaces and users, no prompt has what its user may not read: random deeds against a model of who may."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any, NamedTuple

import pytest

from tests.acceptance.test_spaces import say
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

USERS = ("ana", "bob", "eve", "zoe")
NAMES = ("ops", "sales", "lab")
THINGS = ("billing service", "search cluster", "garden gate", "coffee machine")
DEEDS = 120
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


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_crosses_under_random_deeds(mneme: MnemeServer, upstream: ScriptedUpstream, seed: int) -> None:
    rng, world, api = random.Random(seed), World(), mneme.http
    spaces = [f"{name}{seed}" for name in NAMES]
    users = [f"{name}{seed}" for name in USERS]
    talks: dict[str, list[Any]] = {}
    done: Counter[str] = Counter()
    crossed: list[Any] = []
    weights = {"say": 5, "share": 6, "ask": 10, "create": 2, "join": 6, "leave": 3, "erase user": 1, "erase space": 0.7}
    for n in range(DEEDS):
        (deed,) = rng.choices(list(weights), list(weights.values()))
        user, space, thing = rng.choice(users), rng.choice(spaces), rng.choice(THINGS)
        there, word = space in world.members, f"kw{seed}{n:04}x"
        if deed == "say":
            say(mneme, f"The code word of the {thing} is {word}.", user=user)
            world.told[word] = Told(user, None)
        elif deed == "share":
            if not there or user not in world.members[space]:
                before = len(upstream.requests)
                status = refused(mneme, f"The code word of the {thing} is {word}.", user, space)
                assert (status, len(upstream.requests)) == (404, before)
                deed = "share, refused"
            else:
                say(mneme, f"The code word of the {thing} is {word}.", user=user, space=space)
                world.told[word] = Told(user, space)
        elif deed == "ask":
            # A new conversation, or one that goes on: what stands in its prompts may be nobody's any more.
            asked = talks.get(user, []) if rng.random() < 0.5 else []
            asked = [*asked[-6:], {"role": "user", "content": f"What is the code word of the {thing}?"}]
            say(mneme, asked, user=user)
            talks[user] = [*asked, {"role": "assistant", "content": "All right."}]
            seen = set(WORD.findall(upstream.requests[-1].body.decode()))
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
    print(dict(done))
    assert crossed == []
    assert min(done["recalled of others"], done["recalled of one's own"]) > 10, "what nobody sees cannot cross"


def refused(mneme: MnemeServer, text: str, user: str, space: str) -> int:
    return mneme.http.post(
        "/v1/chat/completions",
        json={"model": "gpt-4o", "messages": [{"role": "user", "content": text}]},
        headers={"X-Mneme-User": user, "X-Mneme-Space": space},
    ).status_code
