"""The commands, as an operator types them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from app.cli import main
from app.store.pools import START_WAIT_S
from tests.support.database import connected
from tests.support.rows import create_pre_release
from tests.support.scripted import ScriptedUpstream
from tests.support.server import STOP_S, MnemeServer, wait_until


def every(command: click.Command, *names: str) -> Iterator[list[str]]:
    """The words of this command, and of each below it."""
    yield list(names)
    for name, each in getattr(command, "commands", {}).items():
        yield from every(each, *names, name)


def test_the_command_explains_itself(mneme: MnemeServer) -> None:
    done = mneme.command("--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: " in done.stdout
    assert set(main.commands) <= set(done.stdout.split())


@pytest.mark.parametrize("command", list(every(main)), ids=" ".join)
def test_every_command_explains_itself(command: list[str]) -> None:
    done = CliRunner().invoke(main, [*command, "--help"], prog_name="mneme")
    assert done.exit_code == 0, done.output
    assert f"Usage: {' '.join(['mneme', *command])} " in done.stdout
    assert "--help" in done.stdout


def test_wrong_use_exits_with_2_and_says_why(mneme: MnemeServer) -> None:
    done = mneme.command("serve", "--port", "x")
    assert done.returncode == 2
    assert "Error: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("wrong", [["nonsense"], ["keys", "revoke", "no-id"], ["import", "gone"]])
def test_so_does_that_of_any_command(wrong: list[str]) -> None:
    done = CliRunner().invoke(main, wrong)
    assert done.exit_code == 2
    assert isinstance(done.exception, SystemExit)
    assert "Error: " in done.stderr


def test_a_wrong_setting_is_wrong_use(tmp_path: Path) -> None:
    server = MnemeServer(tmp_path, database=None, upstream=None, settings={"PORT": "many"})
    done = server.command("migrate")
    assert done.returncode == 2
    assert "MNEME_PORT" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("toml", "settings"), [("port = = 1", {}), ("", {"UPSTREAMS": "no json"})])
def test_settings_that_cannot_be_read_are_wrong_use(tmp_path: Path, toml: str, settings: dict[str, str]) -> None:
    (tmp_path / "mneme.toml").write_text(toml)
    done = MnemeServer(tmp_path, database=None, upstream=None, settings=settings).command("migrate")
    assert done.returncode == 2
    assert "Error: " in done.stderr
    assert "Traceback" not in done.stderr


REMOVED = [
    ({"MNEME_KEY_CACHE_S": "5"}, "", "", "MNEME_KEY_CACHE_S in the environment"),
    ({"mneme_pool_timeout_ms": "5"}, "", "", "mneme_pool_timeout_ms in the environment"),
    ({"MNEME_DIVERSITY": ""}, "", "", "MNEME_DIVERSITY in the environment"),
    ({}, "export MNEME_RETRY_STATUSES='[503]'\n", "", "MNEME_RETRY_STATUSES in .env"),
    ({}, "", 'capture_off_tenants = ["x"]\n', "capture_off_tenants in mneme.toml"),
    ({}, "", "History_Turns = 20\n", "History_Turns in mneme.toml"),
    ({}, "MNEME_JOB_ATTEMPTS=1\n", "port = 0\n[breaker_failures]\nx = 1\n", "breaker_failures in mneme.toml"),
]
"""The environment, `.env`, mneme.toml, and what is said."""


@pytest.mark.parametrize("command", ["migrate", "keys list"])
@pytest.mark.parametrize(("environment", "dotenv", "toml", "named"), REMOVED, ids=[named for *_, named in REMOVED])
def test_a_removed_setting_is_wrong_use_and_nothing_is_opened(
    environment: dict[str, str],
    dotenv: str,
    toml: str,
    named: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _configure(environment, dotenv, toml, tmp_path, monkeypatch)
    result = CliRunner().invoke(main, command.split())
    assert result.exit_code == 2, result.output
    assert f"{named} is no setting any more: " in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == [".env", "mneme.toml"], "nothing was begun"


@pytest.mark.parametrize(("environment", "dotenv", "toml", "named"), REMOVED, ids=[named for *_, named in REMOVED])
def test_the_doctor_reports_a_removed_setting(
    environment: dict[str, str], dotenv: str, toml: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _configure(environment, dotenv, toml, tmp_path, monkeypatch)
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 1, result.output
    assert f"✗ {named} is no setting any more: " in result.output


def _configure(
    environment: dict[str, str], dotenv: str, toml: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.upper().startswith("MNEME_")]:
        monkeypatch.delenv(name)
    for name, value in ({"MNEME_DATABASE_URL": "postgresql://u:p@127.0.0.1:1/x"} | environment).items():
        monkeypatch.setenv(name, value)
    (folder / ".env").write_text(dotenv)
    (folder / "mneme.toml").write_text(toml)
    monkeypatch.chdir(folder)


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_removed_setting_stops_what_would_run_on(tmp_path: Path, command: str) -> None:
    server = MnemeServer(tmp_path, database=None, upstream=None, settings={"KEY_CACHE_S": "0"})
    result = server.command(command)
    assert result.returncode == 2
    assert (
        "MNEME_KEY_CACHE_S in the environment is no setting any more: a checked key stays valid for 10 s"
        in result.stderr
    )
    assert "Traceback" not in result.stderr
    assert not (tmp_path / ".mneme").exists()


@pytest.mark.parametrize("command", [["migrate"], ["doctor"], ["keys", "list"]], ids=" ".join)
def test_a_database_that_cannot_be_reached_is_one_line(
    tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = "postgresql://u:p@127.0.0.1:1/x"
    for name, value in MnemeServer(tmp_path, database=nobody, upstream=None).environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("app.store.pools.AGAIN_S", 2 * START_WAIT_S)  # the next look would come too late
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1, result.output
    assert "The database cannot be reached" in result.output
    assert "Traceback" not in result.output


OLD_FILES = {
    "before the baseline": "(1, '001_foundation.sql', NULL), (50, '050_fetching.sql', NULL)",
    "another baseline": "(1, '001_base.sql', '\\x00'), (2, '002_history.sql', '\\x00')",
}


@pytest.mark.parametrize("age", OLD_FILES)
@pytest.mark.parametrize("command", ["migrate", "serve", "worker", "keys list", "keys create mine"])
async def test_a_database_of_a_pre_release_is_refused(
    empty_database: str, tmp_path: Path, command: str, age: str
) -> None:
    async with connected(empty_database) as admin:
        await create_pre_release(admin, OLD_FILES[age])
        done = await asyncio.to_thread(
            MnemeServer(tmp_path, database=empty_database, upstream=None).command, *command.split()
        )
        assert done.returncode == 1, done.stderr
        assert "mneme export --user NAME --messages --out FILE" in done.stderr
        assert "mneme import FILE" in done.stderr
        assert "Traceback" not in done.stderr
        assert (
            await admin.fetchval("SELECT count(*) FROM pg_class WHERE relnamespace = 'agent_data'::regnamespace") == 1
        )


def test_a_worker_that_waits_for_the_database_ends_when_it_is_told_to(tmp_path: Path) -> None:
    nobody = "postgresql://u:p@127.0.0.1:1/x"
    server = MnemeServer(tmp_path, database=nobody, upstream=None)
    worker = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "worker"], env=server.environment, cwd=tmp_path, stderr=subprocess.PIPE
    )
    try:
        assert worker.stderr is not None
        assert b"waiting for the database" in worker.stderr.readline()
        worker.send_signal(signal.SIGTERM)
        _, rest = worker.communicate(timeout=STOP_S)
        assert (worker.returncode, rest) == (0, b"")
    finally:
        worker.kill()
        worker.wait()


def test_a_port_that_is_taken_is_a_failure(mneme: MnemeServer) -> None:
    done = mneme.command("serve", "--port", str(mneme.port), "--no-worker")
    assert done.returncode == 1, done.stderr
    assert "Error: The server cannot start" in done.stderr


def test_keys_are_made_listed_and_revoked(mneme: MnemeServer) -> None:
    made = json.loads(mneme.command("keys", "create", "test", "--user", "ana", "--days", "3", "--json").stdout)
    assert made["key"].startswith("mneme_")
    listed = mneme.command("keys", "list", "--json").stdout
    assert made["key"] not in listed
    row = next(each for each in json.loads(listed) if each["id"] == made["id"])
    assert (row["name"], row["user"], row["revoked_at"]) == ("test", "ana", None)
    assert made["key"].startswith(row["hint"])
    assert mneme.command("keys", "revoke", made["id"]).returncode == 0
    rows = json.loads(mneme.command("keys", "list", "--json").stdout)
    assert next(each for each in rows if each["id"] == made["id"])["revoked_at"] is not None
    unknown = mneme.command("keys", "revoke", "00000000-0000-0000-0000-000000000009")
    assert (unknown.returncode, "no key" in unknown.stderr) == (1, True)


def test_migrate_has_nothing_left_to_do(mneme: MnemeServer) -> None:
    done = mneme.command("migrate", "--json")
    assert json.loads(done.stdout) == {"applied": []}


def test_a_doctor_finds_a_good_installation_good(mneme: MnemeServer) -> None:
    findings = json.loads(mneme.command("doctor", "--json").stdout)
    # The tests' own Postgres runs without fsync: just what the doctor must not overlook.
    errors = [each["what"] for each in findings if each["level"] == "error"]
    assert any("fsync" in each for each in errors)
    assert [each for each in errors if "may be lost" not in each] == []
    assert any("answers at" in each["what"] for each in findings)
    assert any(each["what"].startswith("Paging is off unless") for each in findings)


def test_a_doctor_finds_what_is_wrong_and_says_how_to_mend_it(tmp_path: Path, unused_tcp_port: int) -> None:
    nowhere = f"http://127.0.0.1:{unused_tcp_port}/v1"
    database = f"postgresql://nobody@127.0.0.1:{unused_tcp_port}/none"
    settings = {"HOST": "0.0.0.0", "AUTH": "open", "PAGING": "on", "PAGING_BUDGET_TOKENS": "32000"}
    server = MnemeServer(tmp_path, database=database, upstream=nowhere, settings=settings)
    done = server.command("doctor", "--json")
    errors = {each["what"]: each["mend"] for each in json.loads(done.stdout) if each["level"] == "error"}
    assert done.returncode == 1
    assert len(errors) == 3, errors
    assert all(errors.values())
    text = server.command("doctor")
    assert (text.returncode, "Traceback" in text.stderr) == (1, False)
    assert "MNEME_AUTH=keys" in text.stdout
    assert "Paging is on, within 32,000 tokens, but this server starts no worker" in text.stdout.replace("\n", " ")


def test_a_file_of_conversations_is_imported_once(mneme: MnemeServer, tmp_path: Path) -> None:
    file = tmp_path / "past.jsonl"
    lines = [
        {"session": f"s{n // 4}", "user": "imported", "role": ("user", "assistant")[n % 2], "content": f"line {n}",
         "created_at": f"2025-03-0{1 + n // 4}T10:00:0{n % 4}Z"}
        for n in range(12)
    ]  # fmt: skip
    file.write_text("\n".join(map(json.dumps, lines)))
    first = json.loads(mneme.command("import", str(file), "--base", mneme.base_url, "--json").stdout)
    again = json.loads(mneme.command("import", str(file), "--base", mneme.base_url, "--json").stdout)
    assert (first["imported"], first["duplicates"]) == (12, 0)
    assert (again["imported"], again["duplicates"]) == (0, 12)


def test_a_bad_line_is_named(mneme: MnemeServer, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"session": "s", "user": "u", "role": "user", "content": "fine"}\n{"session": "s"}\n')
    done = mneme.command("import", str(file), "--base", mneme.base_url)
    assert done.returncode == 1
    assert "Error: " in done.stderr
    assert "Traceback" not in done.stderr


def test_an_import_goes_to_the_port_of_the_settings(
    mneme: MnemeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "one.jsonl"
    file.write_text('{"session": "s", "user": "by-port", "role": "user", "content": "hi"}\n')
    monkeypatch.setitem(mneme._environment, "MNEME_PORT", str(mneme.port))
    done = mneme.command("import", str(file), "--json")
    assert (done.returncode, json.loads(done.stdout)["imported"]) == (0, 1)


def test_importing_into_nothing_says_so(mneme: MnemeServer, tmp_path: Path, unused_tcp_port: int) -> None:
    file = tmp_path / "past.jsonl"
    file.write_text("{}\n")
    done = mneme.command("import", str(file), "--base", f"http://127.0.0.1:{unused_tcp_port}")
    assert done.returncode == 1
    assert "mneme serve" in done.stderr


@pytest.mark.heavy
def test_the_embedded_postgres_outlives_a_killed_server_and_is_stopped_by_a_stopped_one(
    tmp_path: Path, module_upstream: ScriptedUpstream
) -> None:
    with MnemeServer(tmp_path, database=None, upstream=module_upstream.url, worker=True) as server:
        asked = {"model": "m", "messages": [{"role": "user", "content": "My boat is called Maria."}]}
        call = server.http.post("/v1/chat/completions", json=asked).headers["x-mneme-call-id"]
        record = tmp_path / ".mneme" / "postgres" / "server.json"
        first = json.loads(record.read_text())
        workers = server.workers
        assert len(workers) == 1
        server.kill9()
        assert alive(first["pid"])
        # The worker is nobody's child now, and ends by itself.
        wait_until(lambda: not any(alive(pid) for pid in workers), "the orphaned worker to end")

        server.restart()
        assert json.loads(record.read_text()) == first, "the running server was found and used again"
        assert server.http.get(f"/api/v1/calls/{call}").status_code == 200
        server.terminate()
        assert server.wait() == 0
        assert not alive(first["pid"])


@pytest.mark.heavy
def test_an_embedded_postgres_that_dies_is_started_again(tmp_path: Path, module_upstream: ScriptedUpstream) -> None:
    asked = {"model": "m", "messages": [{"role": "user", "content": "My boat is called Maria."}]}
    with MnemeServer(tmp_path, database=None, upstream=module_upstream.url) as server:
        call = server.http.post("/v1/chat/completions", json=asked).headers["x-mneme-call-id"]
        record = tmp_path / ".mneme" / "postgres" / "server.json"
        os.kill(json.loads(record.read_text())["pid"], signal.SIGQUIT)
        server.wait_for_log("the embedded Postgres has died; starting it again")
        wait_until(lambda: server.http.get("/readyz").status_code == 200, "the database to be back")
        assert server.http.get(f"/api/v1/calls/{call}").status_code == 200


def test_a_worker_that_dies_is_started_again(tmp_path: Path, database: str, module_upstream: ScriptedUpstream) -> None:
    with MnemeServer(tmp_path, database=database, upstream=module_upstream.url, worker=True) as server:
        (before,) = server.workers
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: server.workers - {before} != set(), "another worker")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/status")
    return not (status.exists() and "State:\tZ" in status.read_text())
