"""`mneme doctor`: looks at everything that Mneme stands on, and says how to mend what is wrong."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import click
from msgspec.structs import asdict

from app.console import database, failing_clearly, read_settings, show
from app.errors import MnemeError, NotReady
from app.features import BY_NAME, Finding, load
from app.gateway.transport import AiohttpTransport
from app.gateway.upstream import Router, Target, UpstreamRequest, find_helper_endpoint
from app.optional import is_there
from app.providers.embeddings import build_embedder
from app.providers.tokens import Tokenizers
from app.server.supervise import ITSELF, asked_of_itself
from app.settings import LOOPBACK, Settings, find_removed_settings, unknown_names
from app.store.migrate import administration, careless, lacking, missing, pending
from app.store.queries import Queries
from app.store.retention import MB, by_group, storage_of
from app.store.tuning import parameters_of, wrong_with

_LITTLE_DISK = 1 << 30
"""Bytes of free disk below which a warning is due: Postgres panics when its disk is full."""
ASK_S = 5.0
"""Seconds that an upstream has to answer the doctor."""
UNUSED_DAYS = 30
"""Days of statistics from which an index that was not read counts as unused: a month has all that is rare."""
UNUSED_BYTES = 64 * MB
"""Smaller ones cost next to nothing."""


def examine(settings: Settings) -> list[Finding]:
    """Everything, in the order in which it is needed."""
    found = [*_names(), *_disk(settings), *_access(settings), *_providers(settings), *_helper(settings)]
    found += asyncio.run(_upstreams(settings))
    try:
        with database(settings, lambda _: None) as dsn:
            found += asyncio.run(_database(settings, settings.direct(dsn)))
            return found + asyncio.run(_features(settings, settings.direct(dsn)))
    except MnemeError as error:
        found.append(Finding("error", "The embedded Postgres does not start.", error.message))
    return found + asyncio.run(_features(settings, None))


def _names() -> Iterator[Finding]:
    for removed in find_removed_settings(os.environ):
        yield Finding("error", removed.message, "No command and no server starts with it.")
    for unknown in unknown_names(os.environ):
        yield Finding("warning", unknown.told, "Take it away, or write it as docs/reference/settings.md does.")


def _disk(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < _LITTLE_DISK:
        yield Finding("warning", f"Only {free >> 20} MiB are free on {folder}.", "Make room, or set MNEME_DATA_DIR.")
    else:
        yield Finding("ok", f"{free >> 30} GiB are free for the data.")


def _access(settings: Settings) -> Iterator[Finding]:
    if settings.auth_mode == "open" and settings.host not in LOOPBACK:
        yield Finding(
            "error",
            f"Everybody who reaches {settings.host} may read all memory: MNEME_AUTH is `open`.",
            "Set MNEME_AUTH=keys and make keys with `mneme keys create`.",
        )
    else:
        yield Finding("ok", f"Authentication is `{settings.auth_mode}` on {settings.host}.")
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            yield Finding(
                "warning",
                f"Port {settings.port} is not free ({error.strerror}).",
                "Fine if that is Mneme itself; else set MNEME_PORT.",
            )
        else:
            yield Finding("ok", f"Port {settings.port} is free.")


def _providers(settings: Settings) -> Iterator[Finding]:
    try:
        Tokenizers(settings.tokenizer_json).warm()
        yield Finding("ok", "The token encodings are whole.")
    except (OSError, ValueError, MnemeError) as error:
        yield Finding("error", f"Tokens cannot be counted: {error}", "Check MNEME_TOKENIZER_JSON, or install again.")
    try:
        embedder = build_embedder(settings)
        yield Finding("ok", f"The embedder is {embedder.space}.")
    except (OSError, ValueError, MnemeError) as error:
        yield Finding("error", f"The embedder cannot be loaded: {error}", "See MNEME_EMBEDDER, or install again.")


def _helper(settings: Settings) -> Iterator[Finding]:
    try:
        endpoint = find_helper_endpoint(settings)
    except NotReady as error:
        yield Finding("error", "The helper LLM cannot be asked.", error.message)
        return
    if endpoint is None:
        what = "Rules learn alone: from real conversations they take a small part of what users say of themselves."
        yield Finding(
            "ok",
            what,
            "MNEME_HELPER_MODEL names a model of the upstream that learns as well (docs/how-to/helper-llm.md).",
        )
        return
    budget = (
        f"{settings.helper_tokens_per_day:,} tokens a day" if settings.helper_tokens_per_day else "no limit of tokens"
    )
    yield Finding("ok", f"{endpoint.model} at {endpoint.base_url} learns, with {budget}.")
    if endpoint.api_key is None and endpoint.upstream is not None:
        what = "The helper LLM is asked without a key: clients bring the upstream's, and Mneme has none."
        yield Finding("warning", what, "If the upstream asks for one, set MNEME_HELPER_API_KEY.")


async def _upstreams(settings: Settings) -> list[Finding]:
    try:
        router = Router.from_settings(settings)
    except NotReady as error:
        return [Finding("error", "There is no upstream.", error.message)]
    transport = AiohttpTransport(connect_timeout_s=ASK_S, head_timeout_s=ASK_S, idle_timeout_s=ASK_S)
    try:
        itself = asked_of_itself(settings)
        return [
            Finding("error", f"{target.name} ({target.base_url}) is this server itself.", ITSELF)
            if target.base_url in itself
            else await _upstream(transport, target)
            for target in router.targets
        ]
    finally:
        await transport.aclose()


async def _upstream(transport: AiohttpTransport, target: Target) -> Finding:
    if target.simulated:
        return Finding(
            "warning",
            "No upstream is configured: a simulated one answers.",
            "Set MNEME_UPSTREAM_BASE_URL (and MNEME_UPSTREAM_API_KEY), or OPENAI_API_KEY.",
        )
    headers = [(b"authorization", b"Bearer " + target.api_key.encode())] if target.api_key else []
    try:
        response = await transport.send(UpstreamRequest("GET", f"{target.base_url}/models", headers))
        await response.aclose()
    except MnemeError as error:
        return Finding(
            "error", f"{target.name} ({target.base_url}): {error.message}", "Check the URL, and that it runs."
        )
    if response.status in (401, 403) and target.api_key:
        return Finding("error", f"{target.name} refuses the key ({response.status}).", "Check MNEME_UPSTREAM_API_KEY.")
    if response.status == 404 and not urlsplit(target.base_url).path:
        told = f"{target.name} answers at {target.base_url}, but has no {target.base_url}/models."
        return Finding("warning", told, f"A base URL mostly ends in /v1: is {target.base_url}/v1 meant?")
    if response.status >= 500:
        told = f"{target.name} answers at {target.base_url} with {response.status}."
        return Finding("warning", told, "See its log, or what stands before it.")
    return Finding("ok", f"{target.name} answers at {target.base_url}.")


async def _database(settings: Settings, dsn: str) -> list[Finding]:
    try:
        connection = await asyncpg.connect(dsn, timeout=ASK_S)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
        return [Finding("error", f"The database cannot be reached: {error}", "Check MNEME_DATABASE_URL.")]
    try:
        found = [Finding("error", text) for text in await missing(connection)]
        if wanted := await administration(connection):
            told = "An administrator has to do something once, for this login may not."
            found.append(Finding("error", told, f"In this database they run: {'; '.join(wanted)};"))
        embedded = settings.database_url is None
        mend = "Stop the server and start it with `mneme serve`." if embedded else "Set it to on."
        found += [
            Finding("error", f"Postgres runs with {name} off: what is acknowledged may be lost.", mend)
            for name in await careless(connection)
        ]
        try:
            waiting = await pending(connection)
        except NotReady as error:
            return [*found, Finding("error", "The schema does not fit this Mneme.", error.message)]
        stored = [] if waiting else await storage_of(connection, Queries.load())
        if not waiting:
            found += await _parameters(connection)
            found += await _indexes(connection)
    finally:
        await connection.close()
    found = found or [Finding("ok", "The database has all that is needed, and keeps what it acknowledges.")]
    if waiting:
        told = f"{len(waiting)} steps of the schema wait to be applied, from {waiting[0].name} on."
        found.append(Finding("warning", told, "Run `mneme migrate`; `mneme serve` does it by itself."))
    groups = by_group(stored)
    told = ", ".join(f"{group} {size / MB:,.0f} MB" for group, size in sorted(groups.items()))
    return [*found, Finding("ok", f"Stored: {told}.")] if groups else found


async def _parameters(connection: asyncpg.Connection[Any]) -> list[Finding]:
    """Parameters that an operator changed, and with which nothing starts."""
    return [
        Finding("error", f"{line}.", "Set it right as mneme_owner: docs/reference/system-config.md.")
        for line in wrong_with(await parameters_of(connection, Queries.load()))
    ]


async def _indexes(connection: asyncpg.Connection[Any]) -> list[Finding]:
    """Large indexes that nothing has read for long: they cost each write, and may be another version's."""
    return [
        Finding(
            "warning",
            f"The index {row['name']} ({row['bytes'] / MB:,.0f} MB) was read by nothing in {row['days']} days.",
            "See that no standby reads it and nothing rare needs it; then it may be dropped.",
        )
        for row in await connection.fetch(Queries.load()["retention.unused_indexes"], UNUSED_DAYS, UNUSED_BYTES)
    ]


async def _features(settings: Settings, dsn: str | None) -> list[Finding]:
    """What each feature has found. `dsn`: a direct way to the database; None: there is none."""
    try:
        features = load(settings)
    except NotReady as error:
        return [Finding("error", error.message, "Take the setting away, or install what it needs.")]
    try:
        fits = dsn is not None and await lacking(dsn, None) is None
    except NotReady:  # told already
        fits = False
    absent = [*features.absent, *(each for each in BY_NAME if not is_there(each))]
    found = [Finding("ok", f"This installation does without {', '.join(absent)}.")] if absent else []
    if "spool" in features.absent:
        found.append(Finding("warning", "There is no spool: while Postgres is away, answers do not end."))
    for name, each in features:
        try:
            found += await each.findings(dsn if fits else None)
        except MnemeError as error:
            found.append(Finding("error", f"What there is of {name} cannot be looked at: {error.message}"))
    return found


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def doctor(as_json: bool) -> None:
    """Find what is wrong with this installation, and say how to mend it."""
    findings = examine(read_settings(check_removed=False))

    def text() -> None:
        for each in findings:
            mark = {"ok": "✓", "warning": "!", "error": "✗"}[each.level]
            click.echo(f"{mark} {each.what}")
            if each.mend:
                click.echo(f"    {each.mend}")

    show([asdict(each) for each in findings], as_json, text)
    if any(each.level == "error" for each in findings):
        raise SystemExit(1)
