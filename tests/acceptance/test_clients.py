"""The clients that people use, each as it is installed today: the same scenarios, over Mneme and a scripted upstream.

Run by `make test-all`. `MNEME_CLIENTS_TABLE=docs/clients.md` writes down what came of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import sdk_upstream
from tests.support import client_table
from tests.support.client_envs import Client, Installed, install
from tests.support.clients import Api
from tests.support.replies import Recorded, Reply, Script
from tests.support.responses import asked_last, responses_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer, wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

TEXT = "Olá, größe 你好 🙂!"
CLIENTS = [
    Client("openai-python", "OpenAI, Python", "openai_python.py", ("openai",)),
    Client("openai-node", "OpenAI, Node", "openai_node.mjs", ("openai", "zod")),
    Client("curl", "curl", "curl.sh"),
    Client("langchain", "LangChain (`langchain-openai`)", "langchain_openai_client.py", ("langchain-openai",)),
    Client("vercel-ai", "Vercel AI SDK", "vercel_ai.mjs", ("ai", "@ai-sdk/openai-compatible", "@ai-sdk/openai", "zod")),
    Client("pydantic-ai", "Pydantic AI", "pydantic_ai_client.py", ("pydantic-ai-slim[openai]",)),
    Client("llamaindex", "LlamaIndex (`OpenAILike`)", "llamaindex_client.py", ("llama-index-llms-openai-like",)),
    # Its calls with tools import `mcp`, which it does not ask for.
    Client("litellm", "LiteLLM", "litellm_client.py", ("litellm", "mcp")),
]


@pytest.fixture(scope="module")
def script() -> Script:
    responses = responses_script(lambda asked: "You said: " + asked_last(asked).rsplit("\n", 1)[-1])
    assert callable(responses)

    def script(request: Recorded) -> Reply:
        return responses(request) if request.path == "/v1/responses" else sdk_upstream.script(request)

    return script


@pytest.fixture(scope="module", params=CLIENTS, ids=[each.name for each in CLIENTS])
def installed(request: pytest.FixtureRequest) -> Installed:
    return install(request.param)


@pytest.fixture(scope="module")
def results(installed: Installed, mneme: MnemeServer) -> Iterator[dict[str, object]]:
    """What the client said of each scenario; what the tests found goes into the table."""
    found = installed.run(mneme.url, installed.client.name)
    yield found
    where = os.environ.get("MNEME_CLIENTS_TABLE")
    if where:
        client_table.write(
            Path(where), installed.client.shown, installed.version, _passed.pop(installed.client.name, {})
        )


_passed: dict[str, dict[str, str]] = {}


@pytest.fixture
def passed(installed: Installed) -> Callable[[str, str], None]:
    """Says what is to stand in the table for a scenario."""

    def told(scenario: str, cell: str) -> None:
        _passed.setdefault(installed.client.name, {})[scenario] = cell

    return told


def api_of(mneme: MnemeServer, installed: Installed, scenario: str) -> Api:
    return Api(mneme, user=f"{installed.client.name}-{scenario}")


def request_of(upstream: ScriptedUpstream, installed: Installed, api: Api) -> Recorded:
    """The request that went upstream for the only call of a user."""
    (call,) = api.calls()
    sent = api.request(call["id"], sent=True)
    return next(each for each in upstream.requests if each.body == sent)


EXPECTED: dict[str, Any] = {
    "chat": TEXT,
    "tools": [["weather", {"city": "Lisbon"}], ["weather", {"city": "Porto"}]],
    "structured": {"name": "Minka", "age": 3},
    "timeout": True,
    "image": TEXT,
    "responses": ["You said: Question 1", "You said: Question 2"],
}


@pytest.mark.parametrize("scenario", client_table.SCENARIOS)
def test_a_client_works_unchanged(
    installed: Installed,
    results: dict[str, object],
    mneme: MnemeServer,
    module_upstream: ScriptedUpstream,
    passed: Callable[[str, str], None],
    scenario: str,
) -> None:
    if scenario not in results and scenario in client_table.NOT_OFFERED.get(installed.client.name, ()):
        passed(scenario, "·")
        pytest.skip(f"{installed.client.shown} has no such thing")
    result: Any = results[scenario]
    api = api_of(mneme, installed, scenario)
    if scenario in EXPECTED:
        assert result == EXPECTED[scenario]
    if scenario in ("stream", "asynchronous"):
        assert result["text"] == TEXT
        assert result["pieces"] > 1
    elif scenario == "error":
        assert result["status"] == 429
        assert "This is 429 Too Many Requests." in result["message"]
    elif scenario == "abort":
        assert result == "Hel"
        wait_until(lambda: [each["outcome"] for each in api.calls()] == ["gone"], "the call to be recorded as left")
        assert request_of(module_upstream, installed, api).peer_closed.wait(20)
    elif scenario == "image":
        sent = request_of(module_upstream, installed, api).body
        assert b"data:image/png;base64,iVBORw0KGgo=" in sent
    if scenario in ("turns", "session", "responses"):
        (session,) = api.sessions()
        turns = 2 if scenario == "responses" else 3
        told = api.said(session["id"])
        assert [role for role, _ in told] == ["user", "assistant"] * turns
        assert [content for role, content in told if role == "user"] == [f"Question {n + 1}" for n in range(turns)]
    if scenario in ("chat", "stream", "asynchronous", "tools", "structured", "image"):
        (session,) = api.sessions()
        assert [role for role, _ in api.said(session["id"])] == ["user", "assistant"]
    passed(scenario, "yes")
