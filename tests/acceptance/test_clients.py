"""The clients that people use, each as it is installed today: the same scenarios, over Mneme and a scripted upstream, then over
the calls that were recorded by it: from `mneme replay serve` itself, and from another Mneme that has this for its upstream.

Run by `make test-all`. `MNEME_CLIENTS_TABLE=docs/how-to/clients.md` writes down what came of it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import sdk_upstream
from tests.support import client_table
from tests.support.client_envs import Client, Installed, install
from tests.support.clients import Api
from tests.support.database import fresh_database
from tests.support.replay_server import replaying
from tests.support.replies import Recorded, Reply, Script
from tests.support.responses import asked_last, responses_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer, wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

TEXT = "Olá, größe 你好 🙂!"
QUESTIONS = ["Question 1", "Question 2", "Question 3"]
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
def passed(installed: Installed) -> Iterator[dict[str, dict[str, str]]]:
    """What is to stand in the table for a scenario, over each way; what is not there failed."""
    found: dict[str, dict[str, str]] = {way: {} for way in ("Mneme", *client_table.REPLAYS)}
    yield found
    where = os.environ.get("MNEME_CLIENTS_TABLE")
    if where:
        cells = found.pop("Mneme")
        cells |= {way: client_table.share(cells, passed) for way, passed in found.items()}
        client_table.write(Path(where), installed.client.shown, installed.version, cells)


@pytest.fixture(scope="module")
def results(installed: Installed, mneme: MnemeServer) -> dict[str, object]:
    """What the client said of each scenario."""
    return installed.run(mneme.url, installed.client.name)


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
    "abort": "Hel",
    "image": TEXT,
    "responses": ["You said: Question 1", "You said: Question 2"],
}


def check_told(scenario: str, result: Any) -> None:
    """What a client says of a scenario, whatever it was played against."""
    if scenario in EXPECTED:
        assert result == EXPECTED[scenario]
    elif scenario in ("stream", "asynchronous"):
        assert result["text"] == TEXT
        assert result["pieces"] > 1
    elif scenario == "error":
        assert result["status"] == 429
        assert "This is 429 Too Many Requests." in result["message"]
    else:
        assert isinstance(result, int), result
        assert result >= len(QUESTIONS)


def check_remembered(scenario: str, api: Api) -> None:
    """What Mneme has of a scenario."""
    if scenario == "abort":
        wait_until(lambda: [each["outcome"] for each in api.calls()] == ["gone"], "the call to be recorded as left")
    elif scenario in ("turns", "session", "responses"):
        (session,) = api.sessions()
        questions = QUESTIONS[:2] if scenario == "responses" else QUESTIONS
        told = api.said(session["id"])
        assert [role for role, _ in told] == ["user", "assistant"] * len(questions)
        assert [content for role, content in told if role == "user"] == questions
    elif scenario not in ("error", "timeout"):
        (session,) = api.sessions()
        assert [role for role, _ in api.said(session["id"])] == ["user", "assistant"]


def skip_what_is_not_there(installed: Installed, scenario: str, results: dict[str, object]) -> None:
    if scenario not in results and scenario in client_table.NOT_OFFERED.get(installed.client.name, ()):
        pytest.skip(f"{installed.client.shown} has no such thing")


@pytest.mark.parametrize("scenario", client_table.SCENARIOS)
def test_a_client_works_unchanged(
    installed: Installed,
    results: dict[str, object],
    mneme: MnemeServer,
    module_upstream: ScriptedUpstream,
    passed: dict[str, dict[str, str]],
    scenario: str,
) -> None:
    passed["Mneme"][scenario] = client_table.NONE
    skip_what_is_not_there(installed, scenario, results)
    del passed["Mneme"][scenario]
    api = api_of(mneme, installed, scenario)
    check_told(scenario, results[scenario])
    check_remembered(scenario, api)
    if scenario == "abort":
        assert request_of(module_upstream, installed, api).peer_closed.wait(20)
    elif scenario == "image":
        assert b"data:image/png;base64,iVBORw0KGgo=" in request_of(module_upstream, installed, api).body
    passed["Mneme"][scenario] = "yes"


# --- from what was recorded -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cassettes(
    installed: Installed, results: dict[str, object], mneme: MnemeServer, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The client's calls, exported. Each scenario made as many as it has turns."""
    turns = {"turns": len(QUESTIONS), "session": len(QUESTIONS), "responses": 2}
    for scenario in results:
        api, expected = api_of(mneme, installed, scenario), turns.get(scenario, 1)
        wait_until(lambda api=api, n=expected: len(api.calls()) == n, f"{scenario} to be recorded")  # type: ignore[misc]
    folder = tmp_path_factory.mktemp("cassettes")
    options = ("--base", mneme.base_url, "--label", installed.client.name)
    done = mneme.command("capture", "export", "--out", str(folder), *options)
    assert done.returncode == 0, done.stderr
    assert len(list(folder.glob("*.json"))) == sum(turns.get(scenario, 1) for scenario in results)
    return folder


@pytest.fixture(scope="module")
def replayed(installed: Installed, cassettes: Path) -> dict[str, object]:
    """What the client says of the replay server. Each cassette is played once, and none is missed."""
    missed: list[str] = []
    with replaying(str(cassettes), "--once", heard=missed) as url:
        found = installed.run(url, installed.client.name)
    assert not missed, "".join(missed)
    return found


@pytest.mark.parametrize("scenario", client_table.SCENARIOS)
def test_a_client_works_with_what_was_recorded_of_it(
    installed: Installed, replayed: dict[str, object], passed: dict[str, dict[str, str]], scenario: str
) -> None:
    skip_what_is_not_there(installed, scenario, replayed)
    check_told(scenario, replayed[scenario])
    passed["replay"][scenario] = "yes"


@pytest.fixture(scope="module")
async def other_database(postgres_server: str, database_template: str) -> AsyncIterator[str]:
    """For the Mneme that has nothing but recordings behind it."""
    async with fresh_database(postgres_server, database_template) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def over_replay(
    installed: Installed, cassettes: Path, other_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[MnemeServer, dict[str, object]]]:
    """A Mneme before the replay server, and what the client says of it. What it sends has memory in it, with a nonce of its
    own: so the cassettes go by their order."""
    folder = tmp_path_factory.mktemp("over-replay")
    with (
        replaying(str(cassettes), "--once", "--match", "sequence") as url,
        MnemeServer(folder, database=other_database, upstream=url) as server,
    ):
        yield server, installed.run(server.url, installed.client.name)


@pytest.mark.parametrize("scenario", client_table.SCENARIOS)
def test_a_client_works_with_a_mneme_over_recordings(
    installed: Installed,
    over_replay: tuple[MnemeServer, dict[str, object]],
    passed: dict[str, dict[str, str]],
    scenario: str,
) -> None:
    server, found = over_replay
    skip_what_is_not_there(installed, scenario, found)
    check_told(scenario, found[scenario])
    check_remembered(scenario, api_of(server, installed, scenario))
    passed["Mneme over replay"][scenario] = "yes"
