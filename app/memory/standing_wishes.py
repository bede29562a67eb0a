"""Finds standing wishes in languages that have no rules of their own: "Rispondi sempre in modo conciso", "いつも敬語で答えて".

The patterns are data: `app/languages/standing_wishes.txt`. A sentence of a short message must fit one as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from app.languages import DEFINITION, expand, sentences
from app.memory.candidate import IMPORTANCE, MemoryCandidate, make_candidate, placed
from app.memory.extract_clauses import masked

FILE = Path(__file__).parents[1] / "languages" / "standing_wishes.txt"
CONFIDENCE = 0.9
"""Confidence (0 to 1) of a wish, as the rules for facts have it."""
MAX_CHARS = 300
"""Most characters of a wish, as many as `extract_grammar.order` allows."""


@cache
def _read_pattern() -> re.Pattern[str]:
    macros: dict[str, str] = {}
    patterns: list[str] = []
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if definition := DEFINITION.fullmatch(line):
            macros[definition[1]] = expand(definition[2], macros)
        else:
            patterns.append(expand(line, macros))
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


def find_standing_wishes(message: str) -> Iterator[MemoryCandidate]:
    """Yield a candidate for each sentence of a message that is a standing wish."""
    text = masked(message)
    for sentence in sentences(text):
        wish = text[sentence.start : sentence.end]
        if sentence.asked or len(wish) > MAX_CHARS or _read_pattern().fullmatch(wish) is None:
            continue
        content = wish[:1].upper() + wish[1:]
        draft = make_candidate(
            content,
            "instruction",
            importance=IMPORTANCE["instruction"],
            confidence=CONFIDENCE,
            tag="instruction",
            value=wish,
        )
        yield from placed([draft], message, sentence.start, sentence.end)
