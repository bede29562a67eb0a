"""Cookies: signed, short of life, and a secret that processes share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.errors import NotReady
from app.features.ui.visit import Cookies, SignedIn, shared_secret
from app.settings import Settings
from tests.support.tables import each_of

SECRET = "s" * 32
CHANGES = (lambda c: c[:-1], lambda c: "x" + c, lambda c: c.swapcase(), lambda _: "", lambda _: "a.b.c")


def test_what_was_written_is_read_by_whoever_has_the_secret() -> None:
    made, cookie = Cookies(SECRET, 60).write("ab")
    assert Cookies(SECRET, 60).read(cookie) == made == SignedIn("ab", made.token)
    assert Cookies("t" * 32, 60).read(cookie) is None


@each_of("change", CHANGES)
def test_a_changed_cookie_is_none(change: Callable[[str], str]) -> None:
    _, cookie = Cookies(SECRET, 60).write("ab")
    assert Cookies(SECRET, 60).read(change(cookie)) is None
    assert Cookies(SECRET, 60).read(None) is None


def test_a_notice_is_no_sign_in_and_the_reverse() -> None:
    cookies = Cookies(SECRET, 60)
    made, cookie = cookies.write(None)
    assert cookies.read(cookies.notice("hello")) is None
    assert cookies.noticed(cookie) is None
    assert cookies.noticed(cookies.notice("hello")) == "hello"
    assert cookies.write(None)[0].token != made.token


def test_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    cookies = Cookies(SECRET, 60)
    _, cookie = cookies.write("ab")
    now = time.time()
    monkeypatch.setattr("itsdangerous.timed.time.time", lambda: now + 59)
    assert cookies.read(cookie) is not None
    monkeypatch.setattr("itsdangerous.timed.time.time", lambda: now + 62)
    assert cookies.read(cookie) is None


def test_all_processes_have_one_secret_that_only_the_owner_reads(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: shared_secret(folder), range(16)))
    assert len(found) == 1
    assert len(found.pop()) >= 32
    assert [each.name for each in folder.iterdir()] == ["ui-secret"]
    assert os.stat(folder / "ui-secret").st_mode & 0o777 == 0o600


def test_a_folder_without_a_secret_is_said(tmp_path: Path) -> None:
    (tmp_path / "ui-secret").write_text("")
    with pytest.raises(NotReady, match="delete it"):
        shared_secret(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotReady, match="MNEME_UI_SECRET"):
        shared_secret(tmp_path / "file")


def test_a_secret_that_is_guessed_is_refused() -> None:
    with pytest.raises(ValidationError, match="at least 16"):
        Settings(ui_secret="short", _env_file=None)
    assert Settings(ui_secret="", _env_file=None).ui_secret is None
