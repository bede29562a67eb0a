"""Embedders that no turn waits for: a remote one, `minilm` where the extra is installed, and one that is late."""

from __future__ import annotations

import importlib.util
import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import OwnServers
from tests.support.clients import Api, ask, prompt_of
from tests.support.database import connected
from tests.support.replies import Recorded, Reply, Script, Stall, chat_script, reply_json
from tests.support.rows import count_rows, read_rows
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

pytestmark = pytest.mark.heavy

OLD = "wordllama-256-c1"
CHAT = chat_script(lambda asked: "Noted.")
PATIENT = {"RETRIEVAL_DEADLINE_MS": "20000"}
"""Milliseconds: the tests ask for what is found, not for how fast. The real model is loaded at the first text."""
DIMENSIONS = 16
EMBEDDERS = {
    "remote": {"EMBEDDER": "openai", "EMBEDDER_MODEL": "hashed", "EMBEDDER_DIMENSIONS": str(DIMENSIONS)},
    "minilm": {"EMBEDDER": "minilm"},
}
SPACES = {"remote": f"hashed-{DIMENSIONS}", "minilm": "all-minilm-l6-v2-384"}
HAS_EXTRA = importlib.util.find_spec("sentence_transformers") is not None
needs_extra = pytest.mark.skipif(not HAS_EXTRA, reason="needs the extra: pip install 'mneme-proxy[minilm]'")


def embedding(embed: Script) -> Script:
    """Return a script that chats as `CHAT` and answers `/v1/embeddings` as `embed`."""

    def script(request: Recorded) -> Reply:
        answer = embed if request.path == "/v1/embeddings" else CHAT
        assert callable(answer)
        return answer(request)

    return script


def embed_by_hash(request: Recorded) -> Reply:
    """Answer with vectors in which texts with a word in common are near each other."""
    texts = request.json()["input"]
    return reply_json({"data": [{"index": n, "embedding": _vector(text)} for n, text in enumerate(texts)]})


def _vector(text: str) -> list[float]:
    numbers = [0.3] * DIMENSIONS
    for word in text.lower().split():
        numbers[blake2b(word.strip("?.,").encode(), digest_size=1).digest()[0] % DIMENSIONS] += 1.0
    return numbers


async def spaces(dsn: str) -> dict[str, int]:
    """The vectors of each space."""
    async with connected(dsn) as admin:
        rows = await read_rows(admin, "embedding_spaces")
        return {row["name"]: await count_rows(admin, "embeddings", space=row["space"]) for row in rows}


@pytest.mark.parametrize("embedder", ["remote", pytest.param("minilm", marks=needs_extra)])
async def test_turns_get_their_vectors_behind_the_answer_and_are_found_by_them(
    own_server: OwnServers, upstream: ScriptedUpstream, embedder: str, database: str
) -> None:
    upstream.script = embedding(embed_by_hash)
    name = SPACES[embedder]
    server = own_server(upstream.url, worker=True, EMBEDDER_BASE_URL=upstream.url, **EMBEDDERS[embedder], **PATIENT)
    api = Api(server)
    ask(server, "I have a dog named Bolt.", headers={"x-mneme-session": "first"})
    api.wait_for_quiet()
    assert len(api.all("/memories", "memories")) == 1
    assert (await spaces(database))[name] == 3, "the question, the answer, and what was learned"
    created = api.post("/memories", {"text": "Lives in Lisbon"})
    found = {each["id"]: each for each in api.post("/memories/search", {"query": "what dog?"})["items"]}
    assert any("Bolt" in each["text"] and "vector" in each["via"] for each in found.values())
    assert "vector" in found[created["id"]]["via"], "though they have no word in common"
    upstream.requests.clear()
    answer = ask(server, "What is my dog called?", headers={"x-mneme-session": "second"})
    assert (answer.headers["x-mneme-status"], answer.headers.get("x-mneme-reason")) == ("ok", None)
    (chat,) = [request for request in upstream.requests if request.path == "/v1/chat/completions"]
    assert "Bolt" in prompt_of(chat)
    items = api.get(f"/calls/{answer.headers['x-mneme-call-id']}/context")["items"]
    assert any("vector" in each["legs"] for each in items)
    (said,) = [each["what"] for each in findings(server, "ok") if "embedder" in each["what"]]
    assert said == f"The embedder is {name}."


def findings(server: MnemeServer, level: str) -> list[dict[str, Any]]:
    return [each for each in json.loads(server.command("doctor", "--json").stdout) if each["level"] == level]


@pytest.mark.skipif(HAS_EXTRA, reason="the extra is installed")
def test_a_start_without_the_extra_says_how_to_install_it(tmp_path: Path) -> None:
    server = MnemeServer(tmp_path, database=None, upstream=None, settings={"EMBEDDER": "minilm"})
    command = "pip install 'mneme-proxy[minilm]'"
    assert any(command in finding["what"] for finding in findings(server, "error"))
    served = server.command("serve", "--no-worker")
    assert served.returncode == 1
    assert command in served.stderr
    assert "Traceback" not in served.stderr


def test_a_vector_that_is_late_leaves_a_search_by_words(own_server: OwnServers, upstream: ScriptedUpstream) -> None:
    """The remote embedder never answers; six tenths of the deadline are what it is waited for."""
    upstream.script = embedding(lambda request: Reply([Stall()]))
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
