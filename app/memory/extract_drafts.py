"""Candidates of an exchange in the making, and those that its tool calls give."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from app.memory.candidate import Candidate, Exchange, Kind, Provenance
from app.memory.extract_grammar import capital, words
from app.memory.secrets import looks_secret
from app.memory.text import normalise

MAX_TOOL_CALLS = 4
"""Of one exchange that are remembered; an agent's loop has its own history."""
EXPLICIT_IMPORTANCE = 0.9
EXPLICIT_CONFIDENCE = 0.95
"""Of what the user asks to remember, at least."""
TOOL_IMPORTANCE = 0.3
TOOL_CONFIDENCE = 0.7

PROVENANCE: Mapping[Kind, Provenance] = {
    "preference": Provenance.PREFERENCE,
    "fact": Provenance.FACT,
    "instruction": Provenance.INSTRUCTION,
    "correction": Provenance.CORRECTION,
    "event": Provenance.USER_STATED,
    "tool_outcome": Provenance.TOOL_OUTPUT,
}
"""Kind of statement → `provenance_type` of seed 000 §2.2. What the user asks to remember is `user_stated`."""


def make_draft(
    content: str, kind: Kind, *, importance: float, confidence: float, tag: str, value: str = "", **more: Any
) -> Candidate:
    """A candidate that does not know yet where it was said."""
    return Candidate(
        normalise(capital(content)),
        kind,
        PROVENANCE[kind],
        "",
        (0, 0),
        confidence,
        importance,
        entity_ids=entities(content, value),
        tags=(tag,),
        **more,
    )


# --- entities ---------------------------------------------------------------------------------------------------------

_NAME_RUN = re.compile(r"(?<!^)\b[A-Z][\w&'-]*(?: (?:of |de |the )?[A-Z][\w&'-]*)*")
_NOUN = re.compile(r"[a-z][a-z-]{2,}")
_ENTITIES = 5


def entities(content: str, value: str) -> tuple[str, ...]:
    """Ids of what a statement is about, as in seed 001 §4.2 ("blog", "posts"): names, else the words of its value."""
    runs = [match[0] for match in _NAME_RUN.finditer(content) if match.start() > 0]
    if not runs:
        plain = words("pointing") | words("small") | words("not_entities")
        runs = [word for word in _NOUN.findall(value.lower()) if word not in plain]
    slugs = (re.sub(r"[^\w]+", "-", run.lower().removesuffix("'s")).strip("-") for run in runs)
    return tuple(dict.fromkeys(slug for slug in slugs if slug))[:_ENTITIES]


# --- tool calls -------------------------------------------------------------------------------------------------------

_ARGUMENTS = 4
_ARGUMENT_CHARS = 60


def tool_candidates(exchange: Exchange) -> list[Candidate]:
    """What was done with tools (seed 001 §4.2: an episode of what was done), name and short arguments only."""
    found = []
    for call in list(exchange.tool_calls)[:MAX_TOOL_CALLS]:
        body = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(body, Mapping) or not isinstance(body.get("name"), str) or not body["name"]:
            continue
        arguments = _arguments(body.get("arguments"))
        told = ", ".join(f"{key} {value}" for key, value in arguments[:_ARGUMENTS])
        content = f"Used the tool {body['name']}" + (f" with {told}" if told else "")
        draft = make_draft(
            content, "tool_outcome", importance=TOOL_IMPORTANCE, confidence=TOOL_CONFIDENCE, tag="tool", value=told
        )
        found.append(replace(draft, secret=looks_secret("; ".join(f"{key}: {value}" for key, value in arguments))))
    return found


def _arguments(raw: Any) -> list[tuple[str, str]]:
    try:
        values = json.loads(raw) if isinstance(raw, str) else raw
    except ValueError:
        return []
    if not isinstance(values, Mapping):
        return []
    plain = [(str(key), str(value)) for key, value in values.items() if isinstance(value, str | int | float)]
    return [(key, " ".join(value.split())) for key, value in plain if 0 < len(value) <= _ARGUMENT_CHARS]
