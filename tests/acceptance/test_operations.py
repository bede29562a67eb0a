"""The commands of docs/how-to/operations.md, as they stand there, against the Postgres of `deploy/` and a running Mneme."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from tests.support.clients import Api, ask, assistant, user
from tests.support.database import connected, with_database
from tests.support.deployed import DEPLOY, OWN, SMALLER, DeployedPostgres, conf_settings
from tests.support.ports import free_port
from tests.support.replies import chat_script
from tests.support.rows import count_rows, delete_rows, read_rows
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer, wait_until

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "operations.md").read_text()
BLOCK = re.compile(r"^<!-- (run|not run): (.+?) -->\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = {name: text for how, name, text in BLOCK.findall(PAGE) if how == "run"}
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Deployment:
    """A server on the deployment's Postgres, and the folders that the page speaks of."""

    postgres: DeployedPostgres
    mneme: MnemeServer
    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        return {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.postgres.port),
            "PGUSER": "mneme",
            "PGPASSFILE": str(self.folder / "pgpass"),
            "BACKUP": str(self.folder / "backup"),
            "ARCHIVE": str(self.folder / "archive"),
            "RESTORED": str(self.folder / "restored"),
            "CONFIG": str(self.folder / "postgresql.conf"),
        }

    def run(self, name: str, **further: str) -> str:
        """A block of the page, whose programs are Postgres'. What it printed."""
        binaries = self.postgres.binaries
        environment = binaries.environment() | self.variables | further
        environment["PATH"] = f"{binaries.root / 'bin'}:{os.defpath}"
        return _bash(BLOCKS[name], self.folder, environment, **binaries.account.options())

    def run_mneme(self, name: str, **further: str) -> str:
        """A block of the page that runs `mneme`, with the server's settings."""
        bin_ = self.folder / "bin"
        bin_.mkdir(exist_ok=True)
        (bin_ / "mneme").write_text(f'#!/bin/sh\nexec {sys.executable} -m app.cli "$@"\n')
        (bin_ / "mneme").chmod(0o755)
        environment = self.mneme.environment | further
        environment["PATH"] = f"{bin_}:{environment['PATH']}"
        return _bash(BLOCKS[name], self.mneme.folder, environment)


def _bash(script: str, cwd: Path, environment: dict[str, str], **options: object) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        **options,  # type: ignore[call-overload]
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    return str(done.stdout)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    # Postgres' account may enter no folder of pytest's, where that is root's.
    folder = Path(tempfile.mkdtemp(prefix="mneme-operations-"))
    folder.chmod(0o755)
    archive = conf_settings()["archive_command"].replace("/archive/", f"{folder}/archive/")
    try:
        with (
            DeployedPostgres(folder / "postgres", archive_command=archive, fsync="on") as postgres,
            ScriptedUpstream(chat_script(lambda asked: "All right.")) as upstream,
        ):
            for name in ("backup", "archive"):
                (folder / name).mkdir()
            lines = [f"127.0.0.1:*:*:{login}:{login}-password" for login in ("mneme_replica", "mneme_direct")]
            password = (postgres.home / "postgres" / "password").read_text()
            (folder / "pgpass").write_text("\n".join([*lines, f"127.0.0.1:*:*:mneme:{password}"]))
            (folder / "pgpass").chmod(0o600)
            taken = {name: value for name, value in conf_settings().items() if not name.startswith(OWN)} | SMALLER
            settings = taken | {"unix_socket_directories": "", "logging_collector": "off"}
            (folder / "postgresql.conf").write_text(
                "".join(f"{name} = '{value}'\n" for name, value in settings.items())
            )
            for path in (folder, *folder.iterdir()):
                if path.name != "postgres":
                    postgres.binaries.account.own(path)
            with MnemeServer(
                tmp_path_factory.mktemp("mneme"),
                database=postgres.dsn("mneme_pooled"),
                upstream=upstream.url,
                worker=False,
                settings={"DATABASE_DIRECT_URL": postgres.dsn("mneme_direct"), "SPOOL_DIR": str(folder / "spool")},
            ) as mneme:
                yield Deployment(postgres, mneme, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_every_command_of_the_page_is_run_here_or_says_why_not() -> None:
    assert PAGE.count("```sh") == len(BLOCK.findall(PAGE))
    source = Path(__file__).read_text()
    assert BLOCKS
    for name in BLOCKS:
        assert re.search(rf'\.run(_mneme)?\(\s*"{name}"', source), f"nothing runs {name}"


def test_every_alert_is_told_of() -> None:
    alerts = re.findall(r"alert: (\w+)", (DEPLOY / "prometheus" / "rules.yml").read_text())
    assert len(alerts) == len(set(alerts)) > 20
    assert not [alert for alert in alerts if f"`{alert}`" not in PAGE]
    assert not set(re.findall(r"`((?:Mneme|Postgres|Pgbouncer)[A-Z]\w+)`", PAGE)) - set(alerts)


@pytest.mark.heavy
async def test_a_moment_before_a_mistake_is_brought_back(deployment: Deployment) -> None:
    server, postgres = deployment.mneme, deployment.postgres
    ask(server, "said before the base backup", user="ana")
    deployment.run("base-backup")
    ask(server, "said after the base backup", user="ana")
    async with connected(postgres.superuser) as admin:
        before = await count_rows(admin, "conversation_history")
        until = await admin.fetchval("SELECT clock_timestamp()::text")
        # The mistake; what was said is append-only but for a superuser who insists.
        await admin.execute("SET session_replication_role = replica")
        await delete_rows(admin, "conversation_history")
        filed = await admin.fetchval("SELECT pg_walfile_name(pg_switch_wal())")
        assert await count_rows(admin, "conversation_history") == 0
    wait_until(lambda: (deployment.folder / "archive" / filed).exists(), "the segment to be archived")
    port = str(free_port())
    restored = deployment.folder / "restored"
    try:
        deployment.run("restore", UNTIL=until, PORT=port)
        told = deployment.run("restored", PORT=port)
    finally:
        postgres.binaries.run("pg_ctl", "-D", str(restored), "--mode=immediate", "stop", cwd=Path("/"))
    assert before == 4
    assert re.search(r"^\s*4 \| ", told, re.MULTILINE), told
    deployment.run("archive-clean")
    assert (deployment.folder / "archive" / filed).exists(), "what the backup needs stays"


@pytest.mark.heavy
async def test_a_dump_into_another_database(deployment: Deployment) -> None:
    said = [user("I am vegetarian."), assistant("All right."), user("Suggest a restaurant.")]
    ask(deployment.mneme, said[:1], user="leo")
    deployment.run("dump")
    deployment.run("restore-dump")
    name = "mneme_restored"
    async with (
        connected(deployment.postgres.superuser) as before,
        connected(with_database(deployment.postgres.superuser, name)) as after,
    ):
        tables = [
            row["t"] for row in await before.fetch("SELECT oid::regclass::text AS t FROM pg_class WHERE relkind IN ('r', 'p')"
                                                   " AND NOT relispartition AND relnamespace = 'agent_data'::regnamespace")
        ]  # fmt: skip
        assert len(tables) > 30
        for table in tables:
            assert await after.fetchval(f"SELECT count(*) FROM {table}") == await before.fetchval(
                f"SELECT count(*) FROM {table}"
            )
    # A server on the copy goes on with the conversation.
    folder = deployment.mneme.folder / "restored"
    dsn = with_database(deployment.postgres.superuser, name)
    with MnemeServer(folder, database=dsn, upstream=None) as other:
        answer = ask(other, said, user="leo")
        assert answer.headers["x-mneme-status"] == "ok"
        assert len(Api(other, user="leo").sessions()) == 1


@pytest.mark.heavy
def test_an_upgrade_that_has_nothing_to_do(deployment: Deployment) -> None:
    told = deployment.run_mneme("migrate")
    assert "Up to date." in told
    assert "keeps what it acknowledges" in told


@pytest.mark.heavy
def test_a_key_is_replaced(deployment: Deployment) -> None:
    made = deployment.mneme.command("keys", "create", "my-app", "--json")
    old = json.loads(made.stdout)
    told = deployment.run_mneme("api-key", OLD_KEY_ID=old["id"])
    assert "Revoked." in told
    new = (deployment.mneme.folder / "new.key").read_text().strip()
    listed = json.loads(deployment.mneme.command("keys", "list", "--json").stdout)
    assert {row["name"]: row["revoked_at"] is None for row in listed} == {"my-app": False, "my-app-2": True}
    settings = {"AUTH": "keys", "DATABASE_DIRECT_URL": deployment.postgres.dsn("mneme_direct")}
    with MnemeServer(
        deployment.mneme.folder / "keyed",
        database=deployment.postgres.dsn("mneme_pooled"),
        upstream=None,
        settings=settings,
    ) as server:
        codes = [
            server.http.get("/api/v1/queue", headers={"Authorization": f"Bearer {key}"}).status_code
            for key in (old["key"], new)
        ]
    assert codes == [401, 200]


@pytest.mark.heavy
async def test_the_delimiters_secret_is_replaced(deployment: Deployment) -> None:
    said = [user("I live in Lisbon."), assistant("All right."), user("Where do I live?")]
    first = ask(deployment.mneme, said[:1], user="mia")
    async with connected(deployment.postgres.superuser) as admin:
        before = await read_rows(admin, "system_config")
        deployment.run("nonce")
        after = await read_rows(admin, "system_config")
    changed = {row["value"] for row in before} - {row["value"] for row in after}
    assert len(changed) == 1, "that one, and no other"
    deployment.mneme.stop()
    deployment.mneme.restart()
    second = ask(deployment.mneme, said, user="mia")
    assert second.headers["x-mneme-status"] == "ok"
    assert second.headers["x-mneme-session-id"] == first.headers["x-mneme-session-id"]


@pytest.mark.heavy
async def test_what_fills_the_disk_is_told(deployment: Deployment) -> None:
    told = deployment.run("disk")
    assert "agent_data.upstream_calls" in told or "agent_data.index_items" in told
    assert "last_archived_wal" in told


@pytest.mark.heavy
def test_captures_go(deployment: Deployment) -> None:
    assert "would be dropped" in deployment.run_mneme("retention", MNEME_CAPTURE_DAYS="1")


@pytest.mark.heavy
def test_calls_that_were_set_aside_are_tried_again(deployment: Deployment) -> None:
    spool = deployment.folder / "spool"
    (spool / "dead" / "u-1").mkdir(parents=True)
    (spool / "dead" / "u-1" / "1-a").write_bytes(b"kept")
    other = Deployment(deployment.postgres, deployment.mneme, deployment.folder)
    deployment.mneme.stop()
    try:
        other.run_mneme("spool-again", MNEME_SPOOL_DIR=str(spool))
        assert (spool / "turns" / "u-1" / "1-a").read_bytes() == b"kept"
        assert list((spool / "dead").iterdir()) == []
        shutil.rmtree(spool / "turns" / "u-1")
        other.run_mneme("spool-again", MNEME_SPOOL_DIR=str(spool))  # nothing to do is no error
    finally:
        deployment.mneme.restart()


@pytest.mark.heavy
async def test_a_password_is_replaced(deployment: Deployment) -> None:
    """Last: the server of this module has the old one, and goes on with what is open."""
    new = deployment.folder / "new-password"
    new.write_text("another-password")
    deployment.postgres.binaries.account.own(new)
    deployment.run("password", NEW_PASSWORD_FILE=str(new))
    old = deployment.postgres.dsn("mneme_pooled")
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(old)
    async with connected(old.replace("mneme_pooled-password", "another-password")) as connection:
        assert await connection.fetchval("SELECT current_user::text") == "mneme_app"
    assert ask(deployment.mneme, "Are you still there?", user="ana").headers["x-mneme-status"] == "ok"
