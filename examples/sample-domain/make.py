"""Makes the sample domain: a database `erp` beside Mneme's own, and a role that can only read it. Prints the setting.

    python examples/sample-domain/make.py

Run it where `mneme serve` runs: it uses the same settings, and the embedded Postgres where no other is configured. Run
again, it makes everything anew.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import click

from app.console import load_settings, with_database

HERE = Path(__file__).parent
DATABASE, ROLE = "erp", "mneme_reader"
SCHEMA, DATA, GRANTS = ((HERE / f"{name}.sql").read_text() for name in ("schema", "data", "role"))


async def make(server: str) -> str:
    """The DSN of the role, in a fresh database on the server of this DSN, which must be one that may make both."""
    password = secrets.token_hex(16)
    parts = urlsplit(server)
    admin = await asyncpg.connect(server)
    try:
        await admin.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        await admin.execute(f"DROP ROLE IF EXISTS {ROLE}")
        await admin.execute(f"CREATE DATABASE {DATABASE}")
    finally:
        await admin.close()
    business = await asyncpg.connect(urlunsplit(parts._replace(path=f"/{DATABASE}")))
    try:
        await business.execute(SCHEMA)
        await business.execute(DATA)
        await business.execute(GRANTS.replace("change-me", password))
    finally:
        await business.close()
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{ROLE}:{password}@{host}", path=f"/{DATABASE}"))


if __name__ == "__main__":
    dsn = with_database(load_settings(), make)
    click.echo(f"MNEME_DOMAINS='{json.dumps({'erp': {'dsn': dsn}})}'")
