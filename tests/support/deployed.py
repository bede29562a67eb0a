"""The Postgres of `deploy/`, from the embedded one's own programs: its settings, its host rules, its first script."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from app.features.embedded import Account, Binaries, EmbeddedPostgres, unpack

DEPLOY = Path(__file__).parents[2] / "deploy"

SMALLER = {
    # A test's machine is not the one that the file is for; and pg_cron is not among the embedded programs.
    "shared_buffers": "32MB",
    "min_wal_size": "64MB",
    "max_wal_size": "128MB",
    "shared_preload_libraries": "pg_stat_statements",
    "archive_command": "",
    "logging_collector": "on",
    "listen_addresses": "127.0.0.1",
}
OWN = ("hba_file", "cron.", "fsync", "full_page_writes")
"""What is not taken over: places of the image's, pg_cron's, and what costs a test time."""
PASSWORDS = ("mneme_direct", "mneme_pooled", "mneme_monitor", "mneme_replica")

CRON = """
CREATE SCHEMA cron;
CREATE TABLE cron.job_run_details (end_time timestamptz);
CREATE TABLE cron.asked (name text, schedule text, command text, database text, username text);
CREATE FUNCTION cron.schedule_in_database(text, text, text, text, text) RETURNS bigint LANGUAGE sql AS
    $$INSERT INTO cron.asked VALUES ($1, $2, $3, $4, $5); SELECT 1::bigint$$;
"""
"""Stands in for pg_cron: notes what it was asked."""


def conf_settings() -> dict[str, str]:
    """What deploy/postgres/postgresql.conf says."""
    text = (DEPLOY / "postgres" / "postgresql.conf").read_text()
    found = re.findall(r"^([a-z_.]+) = (?:'([^']*)'|(\S+))", text, re.MULTILINE)
    return {name: quoted or plain for name, quoted, plain in found}


class DeployedPostgres:
    """A server in `home` as `deploy/` sets it up, before the first migration. Use as a context manager."""

    def __init__(self, home: Path, **settings: str) -> None:
        taken = {name: value for name, value in conf_settings().items() if not name.startswith(OWN)}
        self.home = home
        self.secrets = home / "secrets"
        self.server = EmbeddedPostgres(home, settings={**taken, **SMALLER, "fsync": "off", **settings})
        self.superuser = ""
        """The DSN of the superuser, whom the image's own host rules keep off the network."""
        self.binaries: Binaries

    @property
    def data(self) -> Path:
        return self.home / "postgres" / "data"

    @property
    def port(self) -> int:
        port = self.server.status().port
        assert port is not None
        return port

    def dsn(self, login: str) -> str:
        return f"postgresql://{login}:{login}-password@127.0.0.1:{self.port}/mneme"

    def __enter__(self) -> DeployedPostgres:
        self.superuser = self.server.start()
        try:
            self.binaries = unpack(Account.for_owner_of(self.home / "postgres"), self.home)
            self._init()
        except BaseException:
            self.server.stop(force=True)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop(force=True)

    def psql(self, *arguments: str, text: str = "") -> str:
        """As superuser. What it printed; fails as it fails."""
        done = subprocess.run(
            [self.binaries.program("psql"), "--no-psqlrc", "--tuples-only", "--no-align", "--quiet",
             "--set=ON_ERROR_STOP=1", *arguments, self.superuser],
            env={**self.binaries.environment(), "MNEME_SECRETS": str(self.secrets)},
            input=text, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _init(self) -> None:
        self.secrets.mkdir()
        for login in PASSWORDS:
            (self.secrets / f"{login}_password").write_text(f"{login}-password")
        script = (DEPLOY / "postgres" / "init" / "10-mneme.sql").read_text()
        cron = "CREATE EXTENSION IF NOT EXISTS pg_cron;"
        assert cron in script
        # The image's superuser is called `postgres`.
        self.psql(text="CREATE ROLE postgres SUPERUSER;" + script.replace(cron, CRON))
        rules = (DEPLOY / "postgres" / "pg_hba.conf").read_text()
        (self.data / "pg_hba.conf").write_text(
            f"local all mneme scram-sha-256\nhost all mneme samenet scram-sha-256\n{rules}"
        )
        self.psql(text="SELECT pg_reload_conf()")
