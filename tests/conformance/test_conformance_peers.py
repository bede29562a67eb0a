"""The other proxies: installed, started, and tried for real. What differs there is theirs; that the suite runs is ours."""

from __future__ import annotations

import pytest

from loadtests.peers import PeerFailed
from tests.conformance.checks import all_checks
from tests.conformance.contenders import CONTENDERS, opened
from tests.conformance.runner import run
from tests.conformance.stage import Stage
from tests.support.replies import reply_json
from tests.support.scripted import ScriptedUpstream

PEERS = [name for name in CONTENDERS if name != "none" and not name.startswith("mneme")]
pytestmark = [pytest.mark.heavy, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("name", PEERS)
async def test_a_peer_is_tried(name: str) -> None:
    with ScriptedUpstream(reply_json({})) as upstream:
        try:
            with opened(name, upstream.url) as way:
                results = await run(Stage(upstream, way), all_checks())
        except PeerFailed as error:
            if "cannot be installed" not in str(error):
                raise
            pytest.skip(str(error))
    assert any(each.same for each in results), "it passes nothing on: it was not set up"
