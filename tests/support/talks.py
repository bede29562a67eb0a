"""Conversations that were had on a `ReplayStage`, and what went upstream for each of their turns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.features.facts import Facts
from app.features.replay.recompile import Recompiled
from app.features.replay.routes import compare
from app.memory.text import content_hash
from app.store.memories import MemoryChange, MemoryText
from app.store.tenancy import UserRef
from tests.support.journey import Answer, Message, assistant, system, user
from tests.support.replaying import ANA, TENANT, ReplayStage

FACTS = (
    "Ana plays chess on Mondays.",
    "Ana's chess club is in Graz.",
    "Ana prefers the Sicilian in chess.",
    "Ana drinks tea while she plays chess.",
)


QUESTIONS = ("What about my chess?", "Where is the chess club?", "And the tea?", "Which chess opening do I prefer?")


async def client_managed(stage: ReplayStage) -> list[tuple[Answer, bytes]]:
    transcript: list[Message] = [system("Be brief.")]
    made = []
    for question in QUESTIONS:
        transcript.append(user(question))
        answer = await stage.ask(transcript)
        made.append((answer, stage.sent()))
        transcript.append(assistant(answer.text))
    return made


async def server_managed(stage: ReplayStage) -> list[tuple[Answer, bytes]]:
    made = []
    for n, question in enumerate(QUESTIONS):
        said = [user(question)] if n else [system("Be brief."), user(question)]
        answer = await stage.ask(said, session="s")
        made.append((answer, stage.sent()))
    return made


@dataclass
class Talk:
    """A conversation that was had, and what went upstream for each turn."""

    stage: ReplayStage
    memories: list[UUID]
    turns: list[tuple[Answer, bytes]]

    async def exact(self) -> None:
        for answer, sent in self.turns:
            again = await self.stage.again(answer)
            assert again.body == sent
            assert again.identical
            assert again.notes == []


def difference(again: Recompiled) -> dict[str, Any]:
    return compare(again.before, json.loads(json.dumps(again.compilation.audit, default=str)), again.fates)


def change_of(text: str) -> MemoryChange:
    """An edited text, as the route makes one."""
    return MemoryChange(text=MemoryText(text, content_hash(text), len(text.split()), None))


async def know(facts: Facts, key: str, value: str) -> UUID:
    fact, _ = await facts.put(TENANT, UserRef(ANA, "local"), key, value, category=None, confidence=90)
    return fact.id
