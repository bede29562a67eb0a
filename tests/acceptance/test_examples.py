"""The sample project in examples/: its own tests, offline, by replay; and its recordings made anew, as its README says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mneme_replay.cassette import Cassette
from mneme_replay.files import load
from tests.acceptance.conftest import OwnServers
from tests.support.projects import ROOT, Project, clean

EXAMPLE = ROOT / "examples" / "support-desk"
TESTS = 13

pytestmark = pytest.mark.heavy

OFFLINE = """
import socket

_connect = socket.socket.connect

def connect(self, address):
    assert self.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "::1"), f"a test reaches out to {address}"
    return _connect(self, address)

socket.socket.connect = connect
"""


def tree(folder: Path) -> dict[str, bytes]:
    """All cassettes."""
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("tests/cassettes/**/*.json")}


@pytest.fixture
def desk(tmp_path: Path) -> Project:
    """The example, in a folder of its own, where no test reaches another machine."""
    folder = tmp_path / "support-desk"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.egg-info"))
    project = Project(folder, path=[folder, tmp_path])
    (tmp_path / "offline.py").write_text(OFFLINE)
    return project


def test_its_tests_pass_offline(desk: Project) -> None:
    before = tree(desk.folder)
    assert len(before) > TESTS
    desk.run("-p", "offline", passed=TESTS)
    desk.run("-p", "offline", "-n", "2", passed=TESTS)
    assert tree(desk.folder) == before == tree(EXAMPLE)


def test_a_prompt_that_was_changed_is_shown(desk: Project) -> None:
    code = (desk.folder / "support_desk" / "desk.py").read_text()
    desk.write("support_desk/desk.py", code.replace("one or two friendly sentences", "one friendly sentence"))
    for test in ("test_a_question_is_answered", "test_a_question_from_the_command_line and whole"):
        told = desk.run("-p", "offline", "-k", test, failed=1)
        assert re.search(r'^(E +)?-\s+"content": ".* in one or two friendly sentences\."', told, re.MULTILINE), told
        assert re.search(r'^(E +)?\+\s+"content": ".* in one friendly sentence\."', told, re.MULTILINE), told


def test_no_cassette_holds_a_key_or_a_machine() -> None:
    told = b"".join(tree(EXAMPLE).values()).decode()
    assert "authorization" in told
    assert set(re.findall(r'\["authorization", "([^"]*)"\]', told)) == {"***"}
    assert not re.search(r"/home/|/root/|/tmp/|/work/", told)


@pytest.fixture
def stand_in() -> Iterator[str]:
    """The example's own server of answers; its base URL."""
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLE / "stand_in.py"), "--port", "0"], env=clean(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def said(cassette: Cassette) -> Any:
    """What an answer says: without ids, times, and the names of the headers' makers."""
    assert cassette.response is not None
    body = cassette.response.body
    if body.startswith(b"{"):
        answer = json.loads(body)
        return answer.get("error") or answer["choices"]
    return body


@pytest.mark.heavy
def test_it_is_recorded_anew(desk: Project, stand_in: str, own_server: OwnServers) -> None:
    mneme = own_server(stand_in)
    before = {name: load([desk.folder / name])[0] for name in tree(desk.folder)}
    desk.run("-p", "offline", "--mneme-record=all", "--mneme-upstream", mneme.url, passed=TESTS)
    after = {name: load([desk.folder / name])[0] for name in tree(desk.folder)}
    assert after.keys() == before.keys()
    assert not {each.id for each in after.values()} & {each.id for each in before.values()}
    in_turn = [name for name in before if "triage" not in name]  # letters arrive in any order
    for name in in_turn:
        assert json.loads(after[name].request.body) == json.loads(before[name].request.body), name
        assert said(after[name]) == said(before[name]), name
    desk.run("-p", "offline", passed=TESTS)
    # And what a changed prompt lacks.
    code = (desk.folder / "support_desk" / "desk.py").read_text()
    desk.write("support_desk/desk.py", code.replace("one or two friendly sentences", "one friendly sentence"))
    desk.run("-p", "offline", "--mneme-record=new", "--mneme-upstream", mneme.url, passed=TESTS)
    desk.run("-p", "offline", passed=TESTS)
