"""Peers, with a small program of Python's own in their place."""

from __future__ import annotations

import socket
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from loadtests import peers
from loadtests.peers import PEERS, Peer, PeerFailed
from loadtests.work import CONTENDERS

ECHO = """
import http.server, os, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write((open("config").read() + os.environ.get("MNEME_PORT", "") + os.environ["MINE"]).encode())
    def log_message(self, *given): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


@pytest.fixture
def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Peer:
    monkeypatch.setattr(peers, "FOLDER", tmp_path)
    monkeypatch.setenv("MNEME_PORT", "8080")
    return Peer(
        name="echo",
        version="1",
        install=((sys.executable, "-c", "open('ran', 'a').write('x')"),),
        command=(sys.executable, "-c", ECHO, "{port}"),
        health="/",
        environment={"MINE": "!"},
        files={"config": "up {upstream}"},
    )


def test_every_peer_has_a_contender() -> None:
    assert {name for name, each in CONTENDERS.items() if each.peer} == PEERS.keys()


def test_a_peer_is_installed_once_and_started(peer: Peer, tmp_path: Path, free_port: int) -> None:
    said: list[str] = []
    for _ in range(2):
        peer.installed(said.append)
    assert (said, (peer.folder / "ran").read_text()) == (["installing echo 1"], "x")
    process = peer.start(free_port, "http://up/v1", tmp_path / "log")
    try:
        answer = httpx.get(f"http://127.0.0.1:{free_port}/", trust_env=False)
        assert answer.text == "up http://up/v1!", "with its files and its environment, without Mneme's"
    finally:
        process.kill()
        process.wait()


def test_what_does_not_install_or_start_says_so(peer: Peer, tmp_path: Path, free_port: int) -> None:
    with pytest.raises(PeerFailed, match="cannot be installed"):
        replace(peer, install=((sys.executable, "-c", "raise SystemExit(1)"),)).installed(print)
    peer.installed(print)
    with pytest.raises(PeerFailed, match="become ready"):
        replace(peer, command=(sys.executable, "-c", "raise SystemExit(3)")).start(free_port, "", tmp_path / "log")
