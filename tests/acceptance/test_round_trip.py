"""Recorded through Mneme, exported, replayed: every byte and every border between pieces, of all that a vLLM was seen to send.

That it is also in time is measured by `python -m loadtests.replaying`. With MNEME_TEST_VLLM_URL (see test_vllm.py) the same
is done with a vLLM that runs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from mneme_replay.cassette import Cassette
from mneme_replay.files import load
from tests.support.cassettes import captured
from tests.support.clients import Api
from tests.support.replay_server import replaying
from tests.support.round_trip import (
    Made,
    beside,
    captured_calls,
    captured_script,
    live_calls,
    make,
    play_all,
    port_of,
)
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer, wait_until

URL = os.environ.get("MNEME_TEST_VLLM_URL", "")


@pytest.fixture(scope="module")
def worker() -> bool:
    return True  # what is imported is learned by it


def exported(mneme: MnemeServer, user: str, made: Sequence[Made], folder: Path) -> list[Cassette]:
    """The cassettes of a user's calls, once all are recorded."""
    api = Api(mneme, user=user)
    wait_until(lambda: len(api.calls()) == len(made), "all calls to be recorded")
    done = mneme.command("capture", "export", "--out", str(folder), "--base", mneme.base_url, "--user", user)
    assert done.returncode == 0, done.stderr
    cassettes = load([folder])
    assert [each.id for each in cassettes] == [each.id for each in made]
    return cassettes


async def assert_equal_when_played(cassettes: Sequence[Cassette], made: Sequence[Made], folder: Path) -> int:
    """In the order of the recording, and by several clients at once; how many pieces were compared."""
    calls = [each.call for each in made]
    pieces = 0
    for clients in (1, 8):
        with replaying(str(folder), "--speed", "0", "--match", "strict", "--once") as url:
            played = await play_all(port_of(url), calls, clients)
        compared = beside(cassettes, played, made)
        assert [told for each in compared for told in (*each.bytes, *each.chunks)] == []
        assert len({each.header("x-mneme-cassette") for each in played}) == len(cassettes), "each was played once"
        pieces = sum(each.pieces for each in compared)
    return pieces


@pytest.mark.heavy
async def test_all_captures_come_back_as_they_were(
    mneme: MnemeServer, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    # No capture asks for anything that was said before: what stands in all of them is what was asked for always.
    api = Api(mneme, user="captured")
    api.post(
        "/sessions/before/messages", {"messages": [{"role": "user", "content": "Always answer me in bullet points."}]}
    )
    api.wait_for_quiet()
    at = ""
    upstream.script = captured_script(lambda: at)
    made = []
    for call in captured_calls():
        at = call.name
        made.append(await make(mneme.port, call, [(b"x-mneme-user", b"captured")]))
    cassettes = exported(mneme, "captured", made, tmp_path / "calls")
    for cassette, each in zip(cassettes, made, strict=True):
        was = captured(each.call.name)
        assert (cassette.request.body, cassette.outcome) == (was.request.body, was.outcome), each.call.name
        assert cassette.response is not None
        assert was.response is not None
        assert (cassette.response.status, cassette.response.body) == (was.response.status, was.response.body)
    assert any(each.sent for each in cassettes), "memory was in some of them"
    assert await assert_equal_when_played(cassettes, made, tmp_path / "calls") > 100


@pytest.mark.heavy
@pytest.mark.skipif(not URL, reason="MNEME_TEST_VLLM_URL names no vLLM")
async def test_a_session_with_a_real_vllm_comes_back_as_it_was(
    tmp_path: Path, module_database: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with MnemeServer(tmp_path_factory.mktemp("live"), database=module_database, upstream=URL) as served:
        made = [await make(served.port, each, [(b"x-mneme-user", b"live")]) for each in live_calls()]
        cassettes = exported(served, "live", made, tmp_path / "calls")
    assert {each.outcome for each in cassettes} == {"complete", "gone"}
    assert {each.request.path for each in cassettes} >= {
        "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/models",
    }  # fmt: skip
    statuses = {each.response.status for each in cassettes if each.response is not None}
    assert statuses >= {200, 400, 404}
    assert any(each.sent for each in cassettes)
    assert await assert_equal_when_played(cassettes, made, tmp_path / "calls") > 20
