"""The business's own database of the tests: examples/sample-domain, in a database of its own, and the role that reads it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from app.features.knowledge.ontology import Ontology
from app.features.knowledge.ontology_yaml import read
from tests.support.database import connected, fresh_database

SAMPLE = Path(__file__).parents[2] / "examples" / "sample-domain"
ONTOLOGY_YAML = (SAMPLE / "ontology.yaml").read_text()
READER, PASSWORD = "mneme_reader", "change-me"


class SampleDomain(NamedTuple):
    """`dsn`: as the reader, which can write nothing; `owner`: as superuser, to change what is there."""

    dsn: str
    owner: str


def sample_ontology(version: int = 1) -> Ontology:
    """The sample's ontology."""
    draft = read(ONTOLOGY_YAML).draft
    assert draft is not None
    return Ontology(draft.types, draft.relations, version)


@contextlib.asynccontextmanager
async def sample_domain(server: str) -> AsyncIterator[SampleDomain]:
    """A fresh sample domain on the server of this DSN (`postgres_server`, a superuser's); dropped at the end."""
    async with fresh_database(server) as owner:
        async with connected(owner) as admin:
            await admin.execute((SAMPLE / "schema.sql").read_text())
            await admin.execute((SAMPLE / "data.sql").read_text())
            await _reader(admin)
        parts = urlsplit(owner)
        host = parts.netloc.rpartition("@")[2]
        yield SampleDomain(urlunsplit(parts._replace(netloc=f"{READER}:{PASSWORD}@{host}")), owner)


async def _reader(admin: asyncpg.Connection[asyncpg.Record]) -> None:
    """Runs role.sql; the role is the server's, so another test may have made it already."""
    create, _, rest = (SAMPLE / "role.sql").read_text().partition(";")
    with _alone():
        if not await admin.fetchval("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", READER):
            await admin.execute(create)
            # The role is the server's: all tests that run at once share its connections.
            await admin.execute(f"ALTER ROLE {READER} CONNECTION LIMIT -1")
        await admin.execute(rest)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One worker at a time: two at once would both make the role."""
    with open(Path(tempfile.gettempdir()) / f"mneme-tests-role-{os.geteuid()}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
