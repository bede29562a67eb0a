"""The shipped encodings: offline, verified, without a trace in the process."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
from pathlib import Path

import pytest
import tiktoken.load

from app.errors import NotReady
from app.providers import encodings

ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(tiktoken.load, "read_file", refuse)


@pytest.mark.parametrize(("name", "tokens"), [("o200k_base", [24912, 2375]), ("cl100k_base", [15339, 1917])])
def test_loads_offline_and_leaves_nothing_behind(name: str, tokens: list[int], no_network: None) -> None:
    before = dict(os.environ)
    encoding = encodings.load(name)
    assert encoding.name == name
    assert encoding.encode("hello world") == tokens  # the ids that tiktoken's own tests expect
    assert dict(os.environ) == before
    assert tiktoken.load.load_tiktoken_bpe.__module__ == "tiktoken.load"


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base"])
def test_file_names_are_those_of_tiktokens_cache(
    name: str, no_network: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Who sets TIKTOKEN_CACHE_DIR to our folder gets the same encoding from tiktoken itself, without a download."""
    for file in encodings.FOLDER.iterdir():
        if not file.suffix and file.is_file():
            shutil.copy(file, tmp_path)  # tiktoken would delete a file whose hash is wrong
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    theirs = tiktoken.get_encoding(name)
    text = "Olá, 世界! def f(x): return x**2  # naïve"
    assert theirs.encode_ordinary(text) == encodings.load(name).encode_ordinary(text)


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / hashlib.sha1(ADDRESS.format("cl100k_base").encode()).hexdigest()
    file.write_bytes((encodings.FOLDER / file.name).read_bytes() + b"\n")
    with pytest.raises(NotReady, match="not the one"):
        encodings.load("cl100k_base", tmp_path)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="missing"):
        encodings.load("o200k_base", tmp_path)
