from __future__ import annotations

import importlib.resources
import os
import pwd
from pathlib import Path

import pytest

from app.errors import NotReady
from app.features.embedded import Account, Binaries, account_name, unpack

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without a home."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)


def ourselves() -> Account:
    return Account(os.geteuid(), os.getegid(), switch=False)


@pytest.mark.usefixtures("nowhere")
def test_programs_are_unpacked_below_the_data_where_there_is_no_home(tmp_path: Path) -> None:
    binaries = unpack(ourselves(), tmp_path)
    assert binaries.root.parent == tmp_path / "programs"
    assert binaries.major >= 18
    assert binaries.has_extension("vector")
    assert not binaries.has_extension("no_such_extension")
    assert [path.name for path in (tmp_path / "programs").iterdir()] == [binaries.root.name]
    # A second time they are only looked at; a copy that was cut short is made again.
    before = (binaries.root / "bin" / "postgres").stat()
    assert unpack(ourselves(), tmp_path) == binaries
    assert (binaries.root / "bin" / "postgres").stat() == before
    (binaries.root / "bin" / "postgres").unlink()
    assert unpack(ourselves(), tmp_path) == binaries


def test_programs_that_do_not_run_are_looked_for_in_the_next_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    binaries = unpack(ourselves(), tmp_path / "home")
    assert binaries.root.parent == tmp_path / "cache" / "mneme"
    (binaries.root / "bin" / "postgres").write_text("#!/bin/sh\necho a library is missing; exit 127\n")
    second = unpack(ourselves(), tmp_path / "home")
    assert second.root.parent == tmp_path / "home" / "programs"
    (second.root / "bin" / "postgres").write_text("#!/bin/sh\necho a library is missing; exit 127\n")
    with pytest.raises(NotReady, match=r"cannot run here.*a library is missing.*; .*a library is missing"):
        unpack(ourselves(), tmp_path / "home")


def test_a_platform_without_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.resources, "files", lambda _: tmp_path)
    with pytest.raises(NotReady, match="MNEME_DATABASE_URL"):
        unpack(ourselves(), tmp_path)


def test_our_own_directory_is_ours(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        assert Account.for_owner_of(tmp_path, tmp_path / "missing") == ourselves()


@as_root
def test_root_gives_way_to_the_owner_or_to_nobody(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    assert Account.for_owner_of(tmp_path / "missing") == Account(nobody.pw_uid, nobody.pw_gid, switch=True)
    assert Account.for_owner_of(tmp_path) == Account(nobody.pw_uid, nobody.pw_gid, switch=True)
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 12345, 23456)
    assert Account.for_owner_of(tmp_path, tmp_path / "theirs") == Account(12345, 23456, switch=True)


def test_the_directory_of_another_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = account_name(os.geteuid())
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(NotReady, match=f"belongs to {owner}, and this is uid 54321: .*chown -R 54321"):
        Account.for_owner_of(tmp_path)


@pytest.mark.usefixtures("nowhere")
def test_nothing_of_ours_reaches_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGDATA", "/elsewhere")
    assert "PGDATA" not in Binaries(Path("/programs"), 18, ourselves()).environment()
