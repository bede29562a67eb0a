"""The answer of `POST /api/v1/chat` (seed 004, stage 7), from a call's explanation. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from app.context.candidates import Candidate
from app.store.learned import Made, Said

MemoryType = Literal["semantic", "episodic", "procedural", "summary"]
"""The four of seed 004."""

MEMORY_TYPES: Mapping[str, MemoryType] = {
    "fact": "semantic",
    "preference": "semantic",
    "instruction": "semantic",
    "correction": "semantic",
    "pattern": "semantic",
    "episode": "episodic",
    "event": "episodic",
    "tool_outcome": "episodic",
    "turn": "episodic",
    "message": "episodic",
    "passage": "episodic",
    "procedure": "procedural",
    "summary": "summary",
    "entity_profile": "summary",
}
"""Of every kind. What was said word for word is an episode; the views of the seed (`sql/schema/016_views.sql`) divide alike."""

SUMMARY_CHARS = 200
"""Characters of a question that the summary of its episode quotes."""
_SAID = {
    "question": "User asked",
    "request": "User requested",
    "statement": "User stated",
    "correction": "User corrected",
    "confirmation": "User confirmed",
}


class Answer(BaseModel):
    content: str | None = Field(description="Null where the model gave no text.")
    role: str


class Retrieved(BaseModel):
    """A memory in the prompt. `relevance_score`: its part of the best score, 0..1. `confidence`: of what was learned; raw turns
    have none."""

    memory_id: str = Field(description="`semantic:<id>`, `episodic:<id>` (of a turn: of its message) …")
    memory_type: MemoryType
    summary: str
    relevance_score: float
    confidence: float | None = None
    created_at: datetime


class Queried(BaseModel):
    """A query of the business's own database. `error`: why there is no answer."""

    query_type: str
    entity: str
    filters: dict[str, Any]
    result_count: int
    error: str | None = None


class Augmentation(BaseModel):
    retrieved_memories: list[Retrieved]
    domain_queries: list[Queried]


class Created(BaseModel):
    memory_id: str
    memory_type: MemoryType
    summary: str


class Meant(BaseModel):
    canonical_id: str
    canonical_name: str
    confidence: float


class ResolvedOut(BaseModel):
    """What a mention means. With `requires_disambiguation` it is one of `alternatives`, and nobody knows which."""

    mention: str
    canonical_id: str | None
    canonical_name: str | None
    confidence: float
    method: str | None
    requires_disambiguation: bool | None = None
    alternatives: list[Meant] | None = None


class ChatMetadata(BaseModel):
    """`learning`: whether `memories_created` is all there is (done), the worker is not there yet (pending), or nothing is
    learned from this call (off). `reason`: why memory was not whole, as `x-mneme-reason` has it."""

    processing_time_ms: int = Field(description="Until the answer was there and stored.")
    retrieval_count: int
    extraction_count: int
    llm_model: str
    query_type: str
    call_id: UUID
    session_id: UUID | None
    learning: Literal["done", "pending", "off"]
    status: str
    reason: str | None


class ChatOut(BaseModel):
    """The answer with its explanation. `conflicts`: as `GET /api/v1/calls/{id}/context` has them; null: none."""

    response: Answer
    augmentation: Augmentation
    memories_created: list[Created]
    entities_resolved: list[ResolvedOut]
    conflicts: list[dict[str, Any]] | None
    metadata: ChatMetadata


def retrieved(explained: Mapping[str, Any], considered: Iterable[Candidate]) -> list[dict[str, Any]]:
    """The memories in the prompt, as quotations or as facts about the user, best first; `explained` as `audit.expand`
    makes it."""
    known = {(str(each.id), each.span): each for each in considered}
    facts = (explained.get("sections") or {}).get("facts") or {}
    told = {str(each) for each in facts.get("memories") or () if each is not None}
    chosen = [each for each in explained.get("items") or () if each["chosen"] or each["id"] in told]
    best = max([1.0, *(each["score"] for each in chosen)])  # weights need not sum to 1
    shown = []
    for item in chosen:
        candidate = known.get((item["id"], _span(item)))
        if candidate is None:
            continue
        kind = MEMORY_TYPES[candidate.kind]
        own: dict[str, Any] = {
            "memory_id": f"{kind}:{item['id']}",
            "memory_type": kind,
            "summary": candidate.text,
            "relevance_score": round(min(max(item["score"] / best, 0.0), 1.0), 4),
            "created_at": candidate.created_at,
        }
        if candidate.source == "memory":
            own["confidence"] = round(candidate.confidence, 4)
        shown.append(own)
    return sorted(shown, key=lambda each: -each["relevance_score"])


def _span(item: Mapping[str, Any]) -> tuple[int, int] | None:
    span = item["provenance"][0].get("span") if item["provenance"] else None
    return (span[0], span[1]) if span is not None else None


def domain_queries(explained: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The queries of the business's own database."""
    names = ("query_type", "entity", "filters", "result_count")
    return [
        {name: each[name] for name in names} | ({"error": each["error"]} if each.get("error") else {})
        for each in (explained.get("domain") or {}).get("queries") or ()
    ]


def entities_resolved(explained: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the mentions mean; of those that may mean several things, which."""
    shown = []
    for each in explained.get("entities") or ():
        unsure = each.get("requires_disambiguation")
        if each["canonical_id"] is None and not unsure:
            continue
        told = {name: each[name] for name in ("mention", "canonical_id", "canonical_name", "confidence", "method")}
        if unsure:
            told |= {"requires_disambiguation": True, "alternatives": each["alternatives"]}
        shown.append(told)
    return shown


def memories_created(message: str, said: Said | None, made: Made | None) -> list[dict[str, Any]]:
    """What was learned from a turn: its episode, and the memories that it gave."""
    if said is None or made is None:
        return []
    created = []
    if made.event_type is not None and said.question is not None:
        words = " ".join(message.split())
        quoted = words if len(words) <= SUMMARY_CHARS else words[:SUMMARY_CHARS] + "…"
        summary = f"{_SAID.get(made.event_type, 'User said')}: {quoted}"
        created.append(_created("episodic", said.question, summary))
    return created + [_created(MEMORY_TYPES[each.kind], each.memory_id, each.text) for each in made.memories]


def _created(kind: MemoryType, identity: UUID, summary: str) -> dict[str, Any]:
    return {"memory_id": f"{kind}:{identity}", "memory_type": kind, "summary": summary}


def first_choice(document: object) -> tuple[dict[str, Any], str] | None:
    """(content and role, model) of a chat completion; None where it is none."""
    if not isinstance(document, Mapping):
        return None
    choices = document.get("choices")
    first = choices[0] if isinstance(choices, Sequence) and choices else None
    message = first.get("message") if isinstance(first, Mapping) else None
    if not isinstance(message, Mapping):
        return None
    content, role, model = message.get("content"), message.get("role"), document.get("model")
    if not isinstance(content, str):
        content = message.get("refusal") if isinstance(message.get("refusal"), str) else None
    return (
        {"content": content, "role": role if isinstance(role, str) else "assistant"},
        model if isinstance(model, str) else "",
    )
