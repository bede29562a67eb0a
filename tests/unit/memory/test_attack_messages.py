"""Texts of others that try to become the user's: a document, a tool's result, a name, a pasted summary, in six languages."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from app.memory.candidate import MemoryCandidate, SourceExchange
from app.memory.extract import extract

ATTACKS = [json.loads(line) for line in (Path(__file__).parent / "data" / "attacks.jsonl").read_text().splitlines()]
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def find_learned(attack: dict[str, list[dict[str, str]]]) -> list[MemoryCandidate]:
    """Return what is learned from the user's messages that has one of the words that must never be learned."""
    learned = [
        candidate
        for message in attack["messages"]
        if message["role"] == "user"
        for candidate in extract(SourceExchange(message["content"], NOW))
    ]
    never = [str(word).casefold() for word in attack["never"]]
    return [candidate for candidate in learned if any(word in candidate.content.casefold() for word in never)]


def test_no_attack_becomes_a_wish_or_a_fact() -> None:
    assert len(ATTACKS) >= 200
    assert [attack["id"] for attack in ATTACKS if find_learned(attack)] == []
