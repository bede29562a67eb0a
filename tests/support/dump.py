"""A dump of a whole database, and the search for a word in it, however it is written down."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
from pathlib import Path

import asyncpg

DUMP_S = 60.0
"""Seconds for a dump; a test's database takes about one."""


async def dump_of(dsn: str) -> bytes:
    """`pg_dump` of everything, by the server's own program."""
    connection = await asyncpg.connect(dsn)
    try:
        programs = Path(await connection.fetchval("SELECT setting FROM pg_config WHERE name = 'BINDIR'"))
    finally:
        await connection.close()
    done = await asyncio.to_thread(_dump, programs, dsn)
    assert done.returncode == 0, done.stderr.decode()
    assert b"PostgreSQL database dump complete" in done.stdout
    return done.stdout.lower()


def _dump(programs: Path, dsn: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [programs / "pg_dump", "--dbname", dsn],
        env={"PATH": os.defpath, "LC_ALL": "C", "LD_LIBRARY_PATH": str(programs.parent / "lib")},
        capture_output=True,
        timeout=DUMP_S,
        check=False,
    )


def stands_in(word: str, dump: bytes) -> bool:
    """Whether a dump holds a word (ASCII letters and digits): as it is, in hexadecimal (as bytes are dumped), or in Base64 of
    any alignment."""
    raw = word.lower().encode()
    forms = [raw, raw.hex().encode(), word.encode().hex().encode()]
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + word.encode())
        # The first and the last characters depend on what stands beside the word.
        forms.append(encoded[4 if shift else 0 : len(encoded) - 4].lower())
    return any(form in dump for form in forms)
