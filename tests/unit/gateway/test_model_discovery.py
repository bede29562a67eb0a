from __future__ import annotations

import json
from typing import Any

import pytest

from app.errors import UpstreamUnreachable
from app.gateway import model_discovery
from app.gateway.model_discovery import LIST_LIMIT, ModelDiscovery
from app.gateway.upstream import Target, UpstreamBroke
from app.providers.models import ModelRegistry
from app.tasks import Supervisor
from tests.support.journey import Reply, ScriptedTransport
from tests.support.sockets import eventually
from tests.support.tables import each_of

TARGET = Target("up", "http://up/v1", None, None, "tail")
HEADERS = [
    (b"Authorization", b"Bearer k"),
    (b"OpenAI-Organization", b"o"),
    (b"content-type", b"application/json"),
    (b"cookie", b"c"),
    (b"accept-encoding", b"identity"),
]


def listing(*models: Any) -> Reply:
    return Reply(chunks=[json.dumps({"object": "list", "data": list(models)}).encode()])


def discovery_of(reply: Reply | Exception) -> tuple[ModelDiscovery, ScriptedTransport, ModelRegistry, Supervisor]:
    transport, models, tasks = ScriptedTransport(lambda asked: reply), ModelRegistry(default_window=111), Supervisor()
    return ModelDiscovery({False: transport, True: transport}, models, tasks), transport, models, tasks


async def test_windows_are_learned_beside_the_request() -> None:
    discovery, transport, models, tasks = discovery_of(listing({"id": "llama", "max_model_len": 2048}))
    discovery.notice(TARGET, lambda: HEADERS)
    assert transport.requests == [], "the request does not wait for it"
    await eventually(lambda: not len(tasks))
    assert models.window("llama") == 2048
    sent = transport.requests[0]
    assert (sent.method, sent.url, sent.body) == ("GET", "http://up/v1/models", b"")
    assert [name for name, _ in sent.headers] == [b"Authorization", b"OpenAI-Organization", b"accept-encoding"]
    assert transport.closed == 1


async def test_an_upstream_is_asked_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    discovery, transport, _, tasks = discovery_of(listing())
    for target in (TARGET, TARGET, Target("other", "http://other/v1", None, None, "tail")):
        discovery.notice(target, lambda: HEADERS)
    await eventually(lambda: not len(tasks))
    assert [each.url for each in transport.requests] == ["http://up/v1/models", "http://other/v1/models"]
    monkeypatch.setattr(model_discovery, "AGAIN_S", 0.0)
    discovery.notice(Target("third", "http://third/v1", None, None, "tail"), lambda: HEADERS)
    discovery.notice(Target("third", "http://third/v1", None, None, "tail"), lambda: HEADERS)
    await eventually(lambda: not len(tasks))
    assert len(transport.requests) == 4


@each_of(
    "reply",
    [
        UpstreamUnreachable("no"),
        Reply(chunks=[UpstreamBroke("in the middle")]),
        Reply(status=401, chunks=[b'{"error": {}}']),
        Reply(chunks=[b"<html>"]),
        Reply(chunks=[b"[]"]),
        Reply(chunks=[b'{"data": 3}']),
        Reply(chunks=[b'{"data": [', b"1" * (LIST_LIMIT + 1)]),
        listing(None, 3, {"id": 5, "max_model_len": 1}, {"id": "m"}, {"id": "m", "max_model_len": "big"}),
    ],
)
async def test_whatever_comes_back_does_no_harm(reply: Reply | Exception) -> None:
    discovery, _, models, _ = discovery_of(reply)
    await discovery.ask(TARGET, [])
    assert models.window("m") == 111
