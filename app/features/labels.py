"""`mneme labels`: people's verdicts on learned memories, as labels of the words that the memories were learned from.

A label has the fields of `loadtests/learning/rubric.md` (conversation, message, start, end, kind, subject), who found the
words, and the verdict: `not_true` or `confirmed`. It has the text only with `--text`. No label is stored: they are read from
memories and their history, so that they go with an erased user and a forgotten memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args
from uuid import UUID

import click
import orjson
from msgspec import Struct
from msgspec.structs import asdict

from app.clock import SystemClock
from app.console import failing_clearly, load_settings, with_database
from app.errors import NotFound
from app.memory.tagger import StatementKind, Subject
from app.store import ids
from app.store.kinds import LearnedWay
from app.store.pools import Pool, command_pool
from app.store.queries import Queries
from app.store.tenancy import Tenancy

Verdict = Literal["not_true", "confirmed"]
LabelKind = Literal[StatementKind, "wish"]

PAGE_ROWS = 500
"""Memories that one statement reads."""

_KINDS: Mapping[str, LabelKind] = {"preference": "preference", "instruction": "wish", "event": "plan"}
"""The rubric's kind for a kind of memory; any other memory is a fact."""
_VERDICTS: Mapping[str, Verdict] = {"invalidated": "not_true", "confirmed": "confirmed"}


class WordLabel(Struct, frozen=True):
    """A person's verdict on the words of one message.

    Attributes:
        conversation: The session's id.
        message: The message's number among all turns of the conversation, from 0.
        start, end: The place of the words in the message, in characters.
        subject: None where the memory has no subject.
        at: The time of the verdict.
        text: The words, or None.
    """

    conversation: str
    message: int
    start: int
    end: int
    kind: LabelKind
    subject: Subject | None
    way: LearnedWay
    verdict: Verdict
    message_id: str
    memory_id: str
    at: str
    text: str | None = None


def build_labels(row: Mapping[str, Any], *, with_text: bool) -> list[WordLabel]:
    """Return a label for each source of a memory that names its words. `row`: a row of `labels.page`."""
    tags = [tag for tag in row["tags"] if tag in get_args(StatementKind)]
    subject: Subject | None = None
    if row["subject"] is not None:
        subject = "user" if row["subject"] == "user" else "other"
    return [
        WordLabel(
            conversation=source["session_id"],
            message=max(0, (source["turn_index"] or 1) - 1),
            start=source["span"][0],
            end=source["span"][1],
            kind=tags[0] if source["way"] == "judge" and tags else _KINDS.get(row["kind"], "fact"),
            subject=subject,
            way=source["way"],
            verdict=_VERDICTS[row["event"]],
            message_id=source["message_id"],
            memory_id=str(row["memory_id"]),
            at=row["at"].isoformat(),
            text=source.get("quote") if with_text else None,
        )
        for source in row["sources"] or ()
        if source.get("way") and source.get("span") and source["span"][1] > source["span"][0]
    ]


async def read_labels(
    pool: Pool, sql: Queries, tenant: UUID, user: UUID | None, *, with_text: bool
) -> AsyncIterator[WordLabel]:
    """Yield the labels of a tenant's users, or of one user; each page is read in a transaction of its own."""
    after: tuple[UUID | None, UUID | None] = (None, None)
    while True:
        async with pool.transaction(tenant) as connection:
            rows = await connection.fetch(sql["labels.page"], tenant, user, *after, PAGE_ROWS)
        for row in rows:
            for label in build_labels(row, with_text=with_text):
                yield label
        if len(rows) < PAGE_ROWS:
            return
        after = (rows[-1]["user_id"], rows[-1]["memory_id"])


@click.command()
@click.option("--tenant", default="local", show_default=True, help="Name of the tenant.")
@click.option("--user", help="Of this user only, as the application calls them.")
@click.option("--text", "with_text", is_flag=True, help="With the words themselves.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="A file, in place of standard output.")
@failing_clearly
def labels(tenant: str, user: str | None, with_text: bool, out: Path | None) -> None:
    """Export what people said of learned memories ("Not true", confirmed), as labels: a JSON object a line."""
    settings = load_settings()

    async def read_all(dsn: str) -> list[WordLabel]:
        async with command_pool(settings, dsn) as pool:
            sql = Queries.load()
            tenant_id = await Tenancy(pool, sql, SystemClock()).tenant(tenant)
            if tenant_id is None:
                raise NotFound(f"There is no tenant {tenant}.")
            user_id = None if user is None else ids.user_id(tenant_id, user)
            return [label async for label in read_labels(pool, sql, tenant_id, user_id, with_text=with_text)]

    word_labels = with_database(settings, read_all)
    lines = "".join(f"{orjson.dumps(_to_line(label)).decode()}\n" for label in word_labels)
    if out is None:
        click.echo(lines, nl=False)
    else:
        out.write_text(lines)
        click.echo(f"{len(word_labels)} labels in {out}.", err=True)


def _to_line(label: WordLabel) -> dict[str, Any]:
    return {name: value for name, value in asdict(label).items() if name != "text" or value is not None}
