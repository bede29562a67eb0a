"""Who has what memory, and what they ask: read from a folder of LoCoMo-shaped files (`*_dev.json`), and from our own sentences.

Of each conversation there is the user who has all of it, and users who have a part: one session, four, six turns around an
answer. What the model says must hold for a memory of five messages as for one of a thousand; and a question whose answer lies
in another part is one that memory cannot answer, though it looks like one.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

Kind = Literal["asked", "nothing", "follow_up", "elsewhere"]
"""Memory answers it; nothing would; the conversation alone does; another user's memory would."""
SETS = ("locomo", "beam", "realtalk", "beam500")
NO_ANSWER = 5
"""LoCoMo's category of questions that the conversation does not answer."""
TURN_S = 20
SESSIONS_APART, PARTS_APART, PART = 4, 8, 4
"""Every fourth session is somebody's whole memory, and of every eight sessions four are."""
WINDOWS, BEFORE, AFTER = 10, 2, 4
"""Users of a conversation who have six turns: two before an answer, and four from it on."""
ANSWERED, UNANSWERED = 12, 6
"""Most questions asked of a part that it answers, and that it does not."""
ELSEWHERE = 12
"""Questions of other users of the same set that are asked of each."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question; `evidence`: ids of the messages that answer it."""

    text: str
    kind: Kind
    evidence: frozenset[str] = frozenset()


@dataclass(slots=True)
class Person:
    """A user: lines to import (their metadata has an `id`), and what is asked. `whole`: has all of a conversation."""

    user: str
    set: str
    whole: bool
    lines: list[dict[str, Any]]
    asks: list[Ask] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sentences:
    """`loadtests/worth/sentences.json`."""

    nothing: Sequence[str]
    follow_ups: Sequence[str]
    people: Sequence[Any]

    @classmethod
    def read(cls) -> Sentences:
        told = json.loads((Path(__file__).parent / "sentences.json").read_text())
        return cls(told["nothing"], told["follow_ups"], told["people"])


def people(folder: Path, sentences: Sentences, rng: random.Random) -> list[Person]:
    """All users, with the questions that memory answers or that lie elsewhere; without those of `nothing`."""
    found: list[Person] = []
    for name in SETS:
        conversations = json.loads((folder / f"{name}_dev.json").read_text())
        own = [list(_of(name, each, rng)) for each in conversations]
        whole = [each[0] for each in own]
        for each in whole:
            others = [ask for other in whole if other is not each for ask in other.asks if ask.kind == "asked"]
            each.asks += [Ask(ask.text, "elsewhere") for ask in rng.sample(others, min(ELSEWHERE, len(others)))]
        found += [person for each in own for person in each]
    return found + list(_ours(sentences, rng))


def _of(name: str, told: dict[str, Any], rng: random.Random) -> Iterator[Person]:
    conversation = told["conversation"]
    user = f"{name}-{told['sample_id']}"
    sessions: dict[int, list[dict[str, Any]]] = {}
    for key, turns in conversation.items():
        if (match := re.fullmatch(r"session_(\d+)", key)) and turns:
            sessions[int(match[1])] = list(_turns(conversation, key, turns))
    known = {each["metadata"]["id"] for turns in sessions.values() for each in turns}
    asks = []
    for each in told["qa"]:
        evidence = {one for several in each.get("evidence", []) for one in re.findall(r"D\d+:\d+", several)} & known
        if each["category"] != NO_ANSWER and evidence:
            asks.append(Ask(each["question"], "asked", frozenset(evidence)))

    def person(part: str, chosen: Sequence[tuple[int, dict[str, Any]]]) -> Person:
        whole = part == "all"
        own = f"{user}-{part}"
        lines = [{"user": own, "session": f"{own}-{session}", **turn} for session, turn in chosen]
        has = {turn["metadata"]["id"] for _, turn in chosen}
        answered = [ask for ask in asks if ask.evidence <= has]
        lost = [Ask(ask.text, "elsewhere") for ask in asks if not ask.evidence & has]
        if not whole:
            answered = rng.sample(answered, min(ANSWERED, len(answered)))
        return Person(own, name, whole, lines, answered + rng.sample(lost, min(UNANSWERED, len(lost))))

    numbers = sorted(sessions)
    yield person("all", [(n, turn) for n in numbers for turn in sessions[n]])
    for n in numbers[::SESSIONS_APART] if len(numbers) > SESSIONS_APART else numbers[:1]:
        yield person(f"session{n}", [(n, turn) for turn in sessions[n]])
    for first in range(0, len(numbers) - PART + 1, PARTS_APART):
        part = numbers[first : first + PART]
        yield person(f"part{first}", [(n, turn) for n in part for turn in sessions[n]])
    where = {turn["metadata"]["id"]: (n, at) for n in numbers for at, turn in enumerate(sessions[n])}
    single = [ask for ask in asks if len(ask.evidence) <= 2]
    for number, ask in enumerate(rng.sample(single, min(WINDOWS, len(single)))):
        n, at = where[min(ask.evidence)]
        window = sessions[n][max(0, at - BEFORE) : at + AFTER]
        yield person(f"window{number}", [(n, turn) for turn in window])


def _turns(conversation: dict[str, Any], key: str, turns: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    began = datetime.strptime(conversation[f"{key}_date_time"].upper() + " +0000", "%I:%M %p ON %d %B, %Y %z")
    for number, turn in enumerate(turns):
        picture = f" [image: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
        yield {
            "name": turn["speaker"],
            "role": "user" if turn["speaker"] == conversation["speaker_a"] else "assistant",
            "content": turn["text"] + picture,
            "created_at": (began + timedelta(seconds=TURN_S * number)).isoformat(),
            "metadata": {"id": turn["dia_id"]},
        }


def _ours(sentences: Sentences, rng: random.Random) -> Iterator[Person]:
    """Those of our own sentences: two things said in a session, a session a month."""
    for number, told in enumerate(sentences.people):
        user = f"own-{number}"
        lines = []
        for n, said in enumerate(told["said"]):
            at = f"2026-{1 + n // 2:02}-{10 + n}T10:00:0"
            for role, text, second in (("user", said, 0), ("assistant", "Thanks, I will keep that in mind.", 9)):
                mark = {"id": f"{n}:{second}"}
                lines.append({"user": user, "session": f"{user}-{n // 2}", "role": role, "content": text,
                              "created_at": f"{at}{second}Z", "metadata": mark})  # fmt: skip
        asks = [Ask(text, "asked", frozenset(f"{n}:0" for n in evidence)) for text, evidence in told["asked"]]
        others = [text for other in sentences.people if other is not told for text, _ in other["asked"]]
        asks += [Ask(text, "elsewhere") for text in rng.sample(others, UNANSWERED)]
        yield Person(user, "own", True, lines, asks)
