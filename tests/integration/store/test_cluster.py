from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.errors import NotReady
from app.features import embedded as embedded
from app.features.embedded import (
    SERVER_SETTINGS,
    Account,
    Binaries,
    make_cluster,
    server_settings,
    unpack,
    write_private,
)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder that the server's account can write."""
    home = tmp_path / "postgres"
    home.mkdir()
    Account.for_owner_of(home).own(home)
    return home


@pytest.fixture
def binaries(home: Path) -> Binaries:
    return unpack(Account.for_owner_of(home), home)


def test_a_system_that_does_not_know_the_first_locale(
    home: Path, binaries: Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "CTYPES", ("xx_XX.UTF-8", "C"))
    (home / "init-left").mkdir()
    make_cluster(binaries, home)
    assert {path.name for path in home.iterdir() if path.name != "programs"} == {"data", "password"}
    assert (home / "data").stat().st_mode & 0o777 == 0o700


@as_root
def test_an_account_without_a_name(home: Path, binaries: Binaries) -> None:
    os.chown(home, 54321, 54321)
    with pytest.raises(NotReady, match="uid 54321 has none"):
        make_cluster(replace(binaries, account=Account(54321, 54321, switch=True)), home)
    assert not (home / "data").exists()


def test_what_initdb_says_is_passed_on(home: Path, binaries: Binaries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "CTYPES", ("xx_XX.UTF-8",))
    with pytest.raises(NotReady, match=r"could not be made, initdb failed: .*invalid locale name"):
        make_cluster(binaries, home)
    assert not (home / "data").exists()


def test_a_file_system_without_sockets_is_served_by_tcp_only(
    home: Path, binaries: Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "run").mkdir()
    assert server_settings(binaries, home / "run")["unix_socket_directories"] == "../run"
    assert list((home / "run").iterdir()) == []

    class NoSockets(socket.socket):
        def bind(self, address: object) -> None:
            raise PermissionError(str(address))

    monkeypatch.setattr(socket, "socket", NoSockets)
    assert server_settings(binaries, home / "run")["unix_socket_directories"] == ""


def test_durability_is_no_matter_of_taste() -> None:
    assert {SERVER_SETTINGS[name] for name in ("fsync", "full_page_writes", "synchronous_commit")} == {"on"}
    # The DETAIL of an error quotes users' texts.
    assert SERVER_SETTINGS["log_error_verbosity"] == "terse"


def test_small_files_are_private_and_whole(tmp_path: Path) -> None:
    ourselves = Account(os.geteuid(), os.getegid(), switch=False)
    path = tmp_path / "password"
    (tmp_path / "password.new").write_text("left by a run that was cut short")
    write_private(path, "first", ourselves)
    write_private(path, "second", ourselves)
    assert path.read_text() == "second"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["password"]
