"""`mneme serve` and `mneme worker`: the processes that run until they are stopped."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial

import click

from app import logs
from app.console import database, failing_clearly, load_settings
from app.server import collector
from app.settings import LOOPBACK, unknown_names


@click.command()
@click.option("--host", help="Address to listen on (MNEME_HOST, 127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on (MNEME_PORT, 8080).")
@click.option("--workers", type=click.IntRange(1), help="Server processes (MNEME_WORKERS, 1).")
@click.option("--no-worker", is_flag=True, help="Do not start a job worker (MNEME_WORKER=off).")
@failing_clearly
def serve(host: str | None, port: int | None, workers: int | None, no_worker: bool) -> None:
    """Start the proxy, its worker and, without MNEME_DATABASE_URL, the embedded Postgres."""
    collector.hold()
    from app.features import load
    from app.gateway.headers import Redactor
    from app.providers.tokens import Tokenizers
    from app.server.core import prepare_database
    from app.server.supervise import check_upstreams, run
    from app.store.migrate import answers
    from app.store.pools import START_WAIT_S

    settings = load_settings(host=host, port=port, workers=workers, worker="off" if no_worker else None)
    Redactor(settings.redact_paths)  # says what is wrong with them, before anything begins
    Tokenizers(settings.tokenizer_json)  # likewise
    check_upstreams(settings)
    logs.set_up(settings.log_level, settings.log_format)
    for _, each in load(settings):
        each.check()
    log = logging.getLogger("mneme")
    for unknown in unknown_names(os.environ):
        log.warning(unknown.told)
    if settings.auth_mode == "open" and settings.host not in LOOPBACK:
        log.warning("everybody who reaches this address may read all memory: MNEME_AUTH is `open`")

    async def prepare(wait_s: float = START_WAIT_S) -> None:
        await prepare_database(settings, dsn, lambda name: log.info("migrated", extra={"file": name}), wait_s=wait_s)

    with database(settings, log.info) as dsn:
        if settings.database_url is None or asyncio.run(answers(settings.direct(dsn))):
            asyncio.run(prepare())
            run(settings, dsn)
        else:
            run(settings, dsn, partial(prepare, 0.0))


@click.command()
@failing_clearly
def worker() -> None:
    """Run jobs until stopped: embeddings, extraction, the schedule."""
    collector.hold()
    from app.server.worker import run_worker

    settings = load_settings()
    logs.set_up(settings.log_level, settings.log_format)
    asyncio.run(run_worker(settings))
