"""The bodies of /api/v1/entities."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from app.api.common import Model, Name, Text, clean
from app.knowledge.mentions import MAX_MENTION_CHARS, normalise

MAX_TYPE_CHARS = 64
MAX_ID_CHARS = 256
"""Of `type:key`: three of them are a key of an index, in bytes."""
MAX_PROPERTY_BYTES = 32_768
"""Longest properties, bytes of JSON: as long as a memory may be."""


def _spoken(text: str) -> str:
    if not normalise(text):
        raise ValueError("must hold a letter or a digit")
    return clean(text)


def _visible(text: str) -> str:
    if re.search(r"[\s\x00-\x1f\x7f]", text):
        raise ValueError("must hold no white space and no control characters")
    return clean(text)


Kind = Annotated[str, StringConstraints(pattern=rf"^[a-z][a-z0-9_]{{0,{MAX_TYPE_CHARS - 1}}}$")]
Spoken = Annotated[str, StringConstraints(min_length=1, max_length=MAX_MENTION_CHARS), AfterValidator(_spoken)]
"""A name or an alias: longer ones are not compared whole."""
Key = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_ID_CHARS - MAX_TYPE_CHARS - 1), AfterValidator(_visible)
]
KindQuery = Annotated[Kind | None, Query(alias="type", description="Of this type only.")]
WordsQuery = Annotated[Name | None, Query(alias="query", description="Whose name holds these words.")]


class EntityIn(Model):
    """A thing, made by hand: it needs no row in any database."""

    type: Kind = Field(description="Lower case, such as `customer`.")
    name: Spoken
    key: Key | None = Field(
        None, description="With the type it makes the id, `customer:gai_123`; else made of the name."
    )
    user: Name | None = Field(None, description="Whose it is; else it is the whole tenant's.")
    properties: dict[str, Any] = Field({})


class EntityChange(Model):
    """What is not named stays."""

    name: Spoken | None = None
    properties: dict[str, Any] | None = None


class EntityOut(BaseModel):
    """A thing. `user`: whose it is; null: the whole tenant's. `external_ref`: its row in a database of the business's own."""

    id: str
    type: str
    name: str
    user: str | None
    external_ref: dict[str, Any]
    properties: dict[str, Any]
    last_referenced: datetime | None
    created_at: datetime
    updated_at: datetime


class EntityPage(BaseModel):
    entities: list[EntityOut]
    next: str | None


class EntityDeleted(BaseModel):
    id: str
    deleted: bool


class AliasIn(Model):
    """What a thing is called, too."""

    alias: Spoken
    user: Name | None = Field(None, description="By whom; else by the whole tenant.")


class AliasOut(BaseModel):
    """What a thing is called. `user`: by whom; null: by the whole tenant. `confidence`: as stored; it fades while unused."""

    id: UUID
    alias: str
    user: str | None
    source: Literal["exact", "fuzzy", "learned", "user_stated", "domain_db"]
    confidence: float
    use_count: int
    metadata: dict[str, Any]
    created_at: datetime
    last_used_at: datetime


class AliasPage(BaseModel):
    aliases: list[AliasOut]
    next: str | None


class AliasDeleted(BaseModel):
    id: UUID
    deleted: bool


class ResolveIn(Model):
    """A mention, and where it stands. The last ten messages of `session`, and `text`, serve for "they" and "the second one"."""

    mention: Name
    user: Name | None = None
    session: Name | None = None
    text: Text | None = Field(None, description="The message that it stands in.")


class AlternativeOut(BaseModel):
    canonical_entity_id: str
    canonical_name: str
    confidence: float


class ResolutionOut(BaseModel):
    """What a mention means (seed 004); without an id: nothing that is known, or one of the alternatives."""

    canonical_entity_id: str | None
    canonical_name: str | None
    confidence: float
    resolution_method: str | None
    alternatives: list[AlternativeOut]
    requires_disambiguation: bool


class ChooseIn(Model):
    """Which thing the user meant."""

    mention: Spoken
    entity: Name = Field(description="The id of the thing.")
    user: Name | None = None
