"""An embedder that no turn waits for: `MNEME_EMBEDDER=minilm` with a tiny model, and a remote one that is late."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import OwnServers
from tests.support.bert import WIDE, make_model
from tests.support.clients import Api, ask, prompt_of
from tests.support.database import connected
from tests.support.replies import Recorded, Reply, Stall, chat_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

pytestmark = pytest.mark.heavy

OLD = "wordllama-256-c1"
CHAT = chat_script(lambda asked: "Noted.")
PATIENT = {"RETRIEVAL_DEADLINE_MS": "20000"}
"""Milliseconds: the tests ask for what is found, not for how fast."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def minilm(model: Path) -> dict[str, str]:
    return {"EMBEDDER": "minilm", "EMBEDDER_FOLDER": str(model)} | PATIENT


async def spaces(dsn: str) -> dict[str, int]:
    """The vectors of each space."""
    async with connected(dsn) as admin:
        rows = await admin.fetch(
            "SELECT s.name, s.dimensions, count(e.item_id) AS many FROM agent_data.embedding_spaces s"
            " LEFT JOIN agent_data.embeddings e USING (space) GROUP BY 1, 2"
        )
    assert all(row["dimensions"] == WIDE for row in rows if row["name"] != OLD)
    return {row["name"]: row["many"] for row in rows}


async def test_turns_get_their_vectors_behind_the_answer_and_are_found_by_them(
    own_server: OwnServers, upstream: ScriptedUpstream, minilm: dict[str, str], database: str
) -> None:
    server = own_server(upstream.url, worker=True, **minilm)
    api = Api(server)
    ask(server, "I have a dog named Bolt.", headers={"x-mneme-session": "first"})
    api.wait_for_quiet()
    assert len(api.all("/memories", "memories")) == 1
    (name,) = [each for each in await spaces(database) if each != OLD]
    assert (await spaces(database))[name] == 3, "the question, the answer, and what was learned"
    created = api.post("/memories", {"text": "Lives in Lisbon"})
    found = {each["id"]: each for each in api.post("/memories/search", {"query": "what dog?"})["items"]}
    assert any("Bolt" in each["text"] and "vector" in each["via"] for each in found.values())
    assert "vector" in found[created["id"]]["via"], "though they have no word in common"
    upstream.requests.clear()
    answer = ask(server, "What is my dog called?", headers={"x-mneme-session": "second"})
    assert (answer.headers["x-mneme-status"], answer.headers.get("x-mneme-reason")) == ("ok", None)
    assert "Bolt" in prompt_of(upstream.requests[-1])
    items = api.get(f"/calls/{answer.headers['x-mneme-call-id']}/context")["items"]
    assert any("vector" in each["legs"] for each in items)
    (said,) = [each["what"] for each in findings(server, "ok") if "embedder" in each["what"]]
    assert said == f"The embedder is {name}."


async def test_from_the_static_vectors_to_these_and_back_to_one_space(
    own_server: OwnServers, upstream: ScriptedUpstream, minilm: dict[str, str], database: str, tmp_path: Path
) -> None:
    server = own_server(upstream.url, worker=True)
    ask(server, "I have a dog named Bolt.", headers={"x-mneme-session": "first"})
    Api(server).wait_for_quiet()
    (tmp_path / "new").mkdir()
    command = MnemeServer(tmp_path / "new", database=database, upstream=upstream.url, settings=minilm)
    done = json.loads(command.command("reembed", "--json").stdout)
    assert (done["embedded"], done["left"]) == (3, 0)
    before = await spaces(database)
    assert set(before.values()) == {3}
    server.stop()
    later = own_server(upstream.url, worker=True, **minilm)
    dropped = command.command("reembed", "--drop", OLD, "--json")
    assert dropped.returncode == 0, dropped.stderr
    assert await spaces(database) == {name: 3 for name in before if name != OLD}
    upstream.requests.clear()
    ask(later, "What is my dog called?")
    assert "Bolt" in prompt_of(upstream.requests[-1])
    (found, *_) = Api(later).post("/memories/search", {"query": "the dog"})["items"]
    assert "vector" in found["via"]


def findings(server: MnemeServer, level: str) -> list[dict[str, Any]]:
    return [each for each in json.loads(server.command("doctor", "--json").stdout) if each["level"] == level]


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_a_folder_without_its_files_is_one_clear_line(tmp_path: Path, file: str) -> None:
    folder = make_model(tmp_path / "model")
    (folder / file).write_bytes(b"version https://git-lfs.github.com/spec/v1")
    settings = {"EMBEDDER": "minilm", "EMBEDDER_FOLDER": str(folder)}
    server = MnemeServer(tmp_path, database=None, upstream=None, settings=settings)
    assert any(str(folder / file) in each["what"] for each in findings(server, "error"))
    served = server.command("serve", "--no-worker")
    assert served.returncode == 1
    assert str(folder / file) in served.stderr
    assert "Traceback" not in served.stderr


def test_a_vector_that_is_late_leaves_a_search_by_words(own_server: OwnServers, upstream: ScriptedUpstream) -> None:
    """The remote embedder never answers; six tenths of the deadline are what it is waited for."""

    def answers(request: Recorded) -> Reply:
        if request.path == "/v1/embeddings":
            return Reply([Stall()])
        assert callable(CHAT)
        return CHAT(request)

    upstream.script = answers
    server = own_server(upstream.url, EMBEDDER="openai", EMBEDDER_BASE_URL=upstream.url, RETRIEVAL_DEADLINE_MS="1500")
    said = json.dumps({"session": "s", "role": "user", "content": "My boat is called Estrela."})
    sent = server.http.post("/api/v1/import", content=said, headers={"content-type": "application/x-ndjson"})
    assert sent.status_code == 200, sent.text
    answer = ask(server, "What is my boat called?", headers={"x-mneme-session": "second"})
    assert (answer.headers["x-mneme-status"], answer.headers["x-mneme-reason"]) == ("degraded", "embeddings")
    asked = [each for each in upstream.requests if each.path == "/v1/chat/completions"]
    assert "Estrela" in prompt_of(asked[-1])
    account = Api(server).get(f"/calls/{answer.headers['x-mneme-call-id']}/context")
    assert (account["status"], account["reason"]) == ("degraded", "embeddings")
    assert {channel for each in account["items"] for channel in each["legs"]} >= {"text"}
