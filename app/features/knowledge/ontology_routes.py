"""/api/v1/ontology: what the tables of a tenant's domains mean (seed 004, table 8)."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field, StringConstraints

from app.api.common import Model, Text
from app.api.scope import Admitted, Gate
from app.api.tenant import check_admin
from app.errors import BadRequest, Forbidden, NotFound
from app.features.knowledge.ontologies import rows_of
from app.features.knowledge.ontology_store import OntologyStore
from app.features.knowledge.ontology_yaml import MAX_BYTES, read
from app.features.knowledge.yaml_nodes import MAX_NAME_BYTES, YamlFinding

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
    """The routes of /api/v1/ontology."""
    routes = _Routes(store)
    router = gate.router("knowledge")
    router.add_api_route("/ontology", routes.get, methods=["GET"], response_model=OntologyOut)
    router.add_api_route("/ontology/{domain}", routes.put, methods=["PUT"], response_model=LoadedOut)
    router.add_api_route("/ontology/{domain}", routes.delete, methods=["DELETE"], response_model=Removed)
    return router


class _Routes:
    def __init__(self, store: OntologyStore) -> None:
        self._store = store

    async def get(self, scope: Admitted) -> OntologyOut:
        """Read the ontologies of the tenant's domains, with the YAML of each. Not with a key made for one user."""
        if scope.confined is not None:
            raise Forbidden("This key was made for one user, and this is the tenant's.")
        rows = await self._store.read(scope.tenant)
        return OntologyOut(
            domains=[
                DomainOut(
                    **each._asdict(),
                    types=[dict(spec) for spec in rows.types if spec["domain"] == each.domain],
                    relations=[RelationOut(**row._asdict()) for row in rows.relations if row.domain == each.domain],
                )
                for each in await self._store.sources(scope.tenant)
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
        version = await self._store.load(scope.tenant, domain, body.source, types, relations)
        findings = [_finding(each) for each in reading.findings]
        return LoadedOut(domain=domain, version=version, types=len(types), relations=len(relations), findings=findings)

    async def delete(self, scope: Admitted, domain: _Domain) -> Removed:
        """Take a domain's ontology away: from then on nothing is asked there."""
        check_admin(scope)
        if not await self._store.remove(scope.tenant, domain):
            raise NotFound("There is no ontology of this domain.")
        return Removed(domain=domain, removed=True)


def _finding(finding: YamlFinding) -> FindingOut:
    return FindingOut(**finding._asdict())
