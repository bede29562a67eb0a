"""/api/v1/ontology: what the tables of a tenant's domains mean (seed 004, table 8). /api/v1/entities: the things that are
spoken of, what they are called, and what a mention means."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import orjson
from fastapi import APIRouter, Path, Query
from msgspec import Struct
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from app.api.common import (
    DEFAULT_PAGE,
    Cursor,
    Limit,
    Model,
    Name,
    Segment,
    Text,
    UserName,
    clean,
    decode_cursor,
    paged,
)
from app.api.intake import IntakeCheck
from app.api.scope import Admitted, CallerScope, Gate, session_of
from app.api.tenant import check_admin
from app.clock import Clock
from app.context.resolution import EarlierMessage, Resolution, Who
from app.errors import BadRequest, Forbidden, NotFound
from app.features.knowledge.entities import EntityStore, StoredAlias, StoredEntity, UsedAlias
from app.features.knowledge.ontologies import OntologyStore, rows_of
from app.features.knowledge.ontology import Ontology
from app.features.knowledge.ontology_yaml import MAX_BYTES, MAX_NAME_BYTES, read
from app.features.knowledge.resolution import MAX_MENTION_CHARS, WINDOW, chosen, normalise, stated
from app.features.knowledge.resolve import Resolver
from app.store.ids import NIL, issued
from app.store.sessions import Sessions
from app.store.tenancy import UserRef

# --- /api/v1/ontology ----------------------------------------------------------------------------------------------------

MAX_ERRORS_TOLD = 5
"""Errors of a file that one answer tells; the command `mneme ontology check` tells all."""

_Domain = Annotated[str, Path(pattern=r"^[a-z][a-z0-9_-]*$", max_length=MAX_NAME_BYTES)]
_Source = Annotated[Text, StringConstraints(min_length=1, max_length=MAX_BYTES)]


class OntologyIn(Model):
    """An ontology's YAML: docs/reference/domain.md has every key."""

    source: _Source = Field(description="Begins with `domain: erp`.")


class FindingOut(BaseModel):
    level: Literal["error", "warning"]
    line: int
    column: int
    message: str


class LoadedOut(BaseModel):
    """`version`: from 1, one more with each load. `findings`: what is doubtful in the file."""

    domain: str
    version: int
    types: int
    relations: int
    findings: list[FindingOut]


class RelationOut(BaseModel):
    """As seed 004's table 8 has it."""

    from_entity_type: str
    relation_type: str
    to_entity_type: str
    cardinality: str
    relation_semantics: str
    join_spec: dict[str, Any]
    constraints: dict[str, Any]


class DomainOut(BaseModel):
    domain: str
    version: int
    loaded_at: datetime
    source: str
    types: list[dict[str, Any]]
    relations: list[RelationOut]


class OntologyOut(BaseModel):
    domains: list[DomainOut]


class Removed(BaseModel):
    domain: str
    removed: bool


def ontology_router(gate: Gate, store: OntologyStore) -> APIRouter:
    routes = _OntologyRoutes(store)
    router = gate.router("knowledge")
    router.add_api_route("/ontology", routes.get, methods=["GET"], response_model=OntologyOut)
    router.add_api_route("/ontology/{domain}", routes.put, methods=["PUT"], response_model=LoadedOut)
    router.add_api_route("/ontology/{domain}", routes.delete, methods=["DELETE"], response_model=Removed)
    return router


class _OntologyRoutes(Struct, frozen=True):
    store: OntologyStore

    async def get(self, scope: Admitted) -> OntologyOut:
        """Read the ontologies of the tenant's domains, with the YAML of each. Not with a key made for one user."""
        if scope.confined is not None:
            raise Forbidden("This key was made for one user, and this is the tenant's.")
        rows = await self.store.read(scope.tenant)
        return OntologyOut(
            domains=[
                DomainOut(
                    **each._asdict(),
                    types=[dict(spec) for spec in rows.types if spec["domain"] == each.domain],
                    relations=[RelationOut(**row._asdict()) for row in rows.relations if row.domain == each.domain],
                )
                for each in await self.store.sources(scope.tenant)
            ]
        )

    async def put(self, scope: Admitted, domain: _Domain, body: OntologyIn) -> LoadedOut:
        """Load a domain's ontology in the place of its former one, with a key that may manage the tenant. A file with an error
        is refused whole, with the line. It counts within seconds; whether the tables are there is looked at by
        `mneme ontology check`."""
        check_admin(scope)
        reading = await asyncio.to_thread(read, body.source)  # a large file takes a while
        if reading.draft is None:
            told = "; ".join(
                f"line {each.line}, column {each.column}: {each.message}" for each in reading.errors[:MAX_ERRORS_TOLD]
            )
            more = len(reading.errors) - MAX_ERRORS_TOLD
            told += f"; and {more} more" if more > 0 else ""
            raise BadRequest(f"The ontology is wrong: {told}.", param="source", code="bad_ontology")
        draft = reading.draft
        if draft.domain != domain:
            raise BadRequest(f"The file is of the domain {draft.domain}, not of {domain}.", param="source")
        types, relations = rows_of(draft)
        version = await self.store.load(scope.tenant, domain, body.source, types, relations)
        findings = [FindingOut(**each._asdict()) for each in reading.findings]
        return LoadedOut(domain=domain, version=version, types=len(types), relations=len(relations), findings=findings)

    async def delete(self, scope: Admitted, domain: _Domain) -> Removed:
        """Take a domain's ontology away: from then on nothing is asked there."""
        check_admin(scope)
        if not await self.store.remove(scope.tenant, domain):
            raise NotFound("There is no ontology of this domain.")
        return Removed(domain=domain, removed=True)


# --- /api/v1/entities ----------------------------------------------------------------------------------------------------

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
    user: UserName | None = Field(None, description="Whose it is; else it is the whole tenant's.")
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
    user: UserName | None = Field(None, description="By whom; else by the whole tenant.")


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
    user: UserName | None = None
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
    user: UserName | None = None


_KEY = re.compile(r"\W+")
OntologyOf = Callable[[UUID], Awaitable[Ontology]]


def entities_router(
    gate: Gate,
    entities: EntityStore,
    resolver: Resolver,
    sessions: Sessions,
    clock: Clock,
    intake_check: IntakeCheck,
    ontology_of: OntologyOf,
) -> APIRouter:
    routes = _EntityRoutes(entities, resolver, sessions, clock, intake_check, ontology_of)
    router = gate.router("entities")
    one, aliases = "/entities/{entity_id}", "/entities/{entity_id}/aliases"
    router.add_api_route("/entities", routes.listing, methods=["GET"], response_model=EntityPage)
    router.add_api_route("/entities", routes.create, methods=["POST"], response_model=EntityOut, status_code=201)
    router.add_api_route("/entities/resolve", routes.resolve, methods=["POST"], response_model=ResolutionOut)
    router.add_api_route("/entities/choose", routes.choose, methods=["POST"], response_model=AliasOut)
    router.add_api_route(one, routes.get, methods=["GET"], response_model=EntityOut)
    router.add_api_route(one, routes.change, methods=["PATCH"], response_model=EntityOut)
    router.add_api_route(one, routes.delete, methods=["DELETE"], response_model=EntityDeleted)
    router.add_api_route(aliases, routes.aliases, methods=["GET"], response_model=AliasPage)
    router.add_api_route(aliases, routes.add_alias, methods=["POST"], response_model=AliasOut, status_code=201)
    router.add_api_route(
        f"{aliases}/{{alias_id}}", routes.delete_alias, methods=["DELETE"], response_model=AliasDeleted
    )
    return router


class _EntityRoutes(Struct, frozen=True):
    entities: EntityStore
    resolver: Resolver
    sessions: Sessions
    clock: Clock
    intake_check: IntakeCheck
    ontology_of: OntologyOf

    async def listing(
        self,
        scope: Admitted,
        kind: KindQuery = None,
        words: WordsQuery = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> EntityPage:
        """List things, by id: the tenant's, and those of a user who is named."""
        (after,) = decode_cursor(cursor, (str,)) or (None,)
        named = scope.named()
        rows = await self.entities.page(
            scope.tenant,
            named.id if named else None,
            kind=kind,
            words=normalise(words) if words is not None else None,
            after=after,
            limit=limit + 1,
        )
        page, following = paged(rows, limit, lambda row: (row.entity_id,))
        return EntityPage(entities=[_out(row, named) for row in page], next=following)

    async def create(self, scope: Admitted, body: EntityIn) -> EntityOut:
        """Make a thing by hand: a user's own, or the whole tenant's. 409: there is one of that id."""
        named = scope.named(body.user)
        self.intake_check.check(body.name, param="name")
        norm = normalise(body.name)
        entity = f"{body.type}:{body.key or _KEY.sub('_', norm)}"
        _check_properties(body.properties)
        row = await self.entities.create(scope.tenant, named, entity, body.type, body.name, norm, body.properties)
        return _out(row, named)

    async def get(self, scope: Admitted, entity_id: Segment) -> EntityOut:
        """Read a thing."""
        named = scope.named()
        return _out(await self._one(scope, entity_id, named), named)

    async def change(self, scope: Admitted, entity_id: Segment, body: EntityChange) -> EntityOut:
        """Give a thing another name, other properties. What has a row gets its row's name again when it is next found there.
        403: it is the whole tenant's, and the key is one user's."""
        named = scope.named()
        row = await self._mine(scope, entity_id, named)
        _check_properties(body.properties or {})
        self.intake_check.check(body.name or "", param="name")
        norm = normalise(body.name) if body.name is not None else None
        if not await self.entities.change(scope.tenant, row.user_id, entity_id, body.name, norm, body.properties):
            raise NotFound("There is no such thing.")
        return _out(await self._one(scope, entity_id, named), named)

    async def delete(self, scope: Admitted, entity_id: Segment) -> EntityDeleted:
        """Take a thing away, and what it was called. What was remembered of it stays; what has a row is found there again."""
        row = await self._mine(scope, entity_id, scope.named())
        if not await self.entities.delete(scope.tenant, row.user_id, entity_id):
            raise NotFound("There is no such thing.")
        return EntityDeleted(id=entity_id, deleted=True)

    async def aliases(
        self, scope: Admitted, entity_id: Segment, limit: Limit = DEFAULT_PAGE, cursor: Cursor = None
    ) -> AliasPage:
        """List what a thing is called: by the tenant, and by a user who is named."""
        after = decode_cursor(cursor, (str, UUID))
        named = scope.named()
        await self._one(scope, entity_id, named)
        user = named.id if named else None
        rows = await self.entities.aliases(scope.tenant, user, entity_id, after=after, limit=limit + 1)
        page, following = paged(rows, limit, lambda row: (row.alias_norm, row.user_id))
        return AliasPage(aliases=[_alias(row, named) for row in page], next=following)

    async def add_alias(self, scope: Admitted, entity_id: Segment, body: AliasIn) -> AliasOut:
        """Say what a thing is called, too: by a user, or by the whole tenant. Of a user it is then what these words mean."""
        named = scope.named(body.user)
        self.intake_check.check(body.alias, param="alias")
        taught = stated(
            body.alias, entity_id, own=named is not None, confidence=(await self.entities.confidences()).alias
        )
        return await self._state(scope, named, taught)

    async def delete_alias(self, scope: Admitted, entity_id: Segment, alias_id: Segment) -> AliasDeleted:
        """Take an alias away. 403: it is the whole tenant's, and the key is one user's."""
        named = scope.named()
        alias = issued(alias_id)
        owner = await self.entities.owner_of_alias(scope.tenant, named.id if named else None, entity_id, alias)
        if alias is None or owner is None:
            raise NotFound("There is no such alias.")
        _check_owner(scope, owner)
        if not await self.entities.delete_alias(scope.tenant, owner, entity_id, alias):
            raise NotFound("There is no such alias.")
        return AliasDeleted(id=alias, deleted=True)

    async def resolve(self, scope: Admitted, body: ResolveIn) -> ResolutionOut:
        """Say what a mention means, for a user, and learn from it: what the business's own database has under it becomes known,
        and what was nearly right an alias."""
        user = scope.user(body.user)
        recent: list[EarlierMessage] = []
        if body.session is not None:
            session = await session_of(self.sessions, scope.tenant, body.session, user.id)
            if session is None:
                raise NotFound("There is no such session.", param="session")
            said = await self.entities.recent(scope.tenant, user.id, session.session_id, WINDOW)
            recent = [EarlierMessage(*each) for each in said]
        if body.text is not None:
            recent.append(EarlierMessage("user", body.text))
        who, ontology = Who(scope.tenant, user.id), await self.ontology_of(scope.tenant)
        found = await self.resolver.resolve_mention(who, body.mention, recent, ontology, now=self.clock.now())
        return _resolved(found)

    async def choose(self, scope: Admitted, body: ChooseIn) -> AliasOut:
        """Say which thing a user means by a mention: it means that from now on."""
        self.intake_check.check(body.mention, param="mention")
        sure = await self.entities.confidences()
        taught = chosen(body.mention, body.entity, [], self.clock.now(), sure)
        return await self._state(scope, scope.user(body.user), taught, param="entity")

    async def _state(
        self, scope: CallerScope, user: UserRef | None, taught: UsedAlias, param: str | None = None
    ) -> AliasOut:
        found = await self.entities.state(scope.tenant, user, taught)
        if found is None:
            raise NotFound("There is no such thing.", param=param)
        return _alias(found, user)

    async def _one(self, scope: CallerScope, entity: str, user: UserRef | None) -> StoredEntity:
        found = await self.entities.one(scope.tenant, user.id if user else None, entity)
        if found is None:
            raise NotFound("There is no such thing.")
        return found

    async def _mine(self, scope: CallerScope, entity: str, user: UserRef | None) -> StoredEntity:
        found = await self._one(scope, entity, user)
        _check_owner(scope, found.user_id)
        return found


def _check_owner(scope: CallerScope, owner: UUID) -> None:
    if owner == NIL and scope.confined is not None:
        raise Forbidden("This key was made for one user, and this is the whole tenant's.")


def _check_properties(properties: dict[str, Any]) -> None:
    if len(orjson.dumps(properties)) > MAX_PROPERTY_BYTES:
        raise BadRequest(f"Properties have at most {MAX_PROPERTY_BYTES} bytes.", param="properties")


def _owner(owner: UUID, user: UserRef | None) -> str | None:
    return user.external if user is not None and owner == user.id else None


def _out(row: StoredEntity, user: UserRef | None) -> EntityOut:
    return EntityOut(
        id=row.entity_id,
        type=row.entity_type,
        name=row.canonical_name,
        user=_owner(row.user_id, user),
        external_ref=row.external_ref,
        properties=row.properties,
        last_referenced=row.last_referenced,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _alias(row: StoredAlias, user: UserRef | None) -> AliasOut:
    return AliasOut(
        id=row.alias_id,
        alias=row.alias_text,
        user=_owner(row.user_id, user),
        source=row.alias_source,
        confidence=row.confidence,
        use_count=row.use_count,
        metadata=row.metadata,
        created_at=row.created_at,
        last_used_at=row.last_used_at,
    )


def _resolved(found: Resolution) -> ResolutionOut:
    return ResolutionOut(
        canonical_entity_id=found.entity.id if found.entity else None,
        canonical_name=found.entity.name if found.entity else None,
        confidence=found.confidence,
        resolution_method=found.method,
        alternatives=[
            AlternativeOut(
                canonical_entity_id=each.entity.id, canonical_name=each.entity.name, confidence=each.confidence
            )
            for each in found.alternatives
        ],
        requires_disambiguation=found.requires_disambiguation,
    )
