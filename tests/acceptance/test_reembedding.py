"""`mneme reembed` and `mneme export` beside a running server, as an operator runs them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import OwnServers
from tests.support.clients import Api, ask, prompt_of
from tests.support.database import connected
from tests.support.replies import Recorded, Reply, Stall, chat_script, reply_json
from tests.support.rows import read_embeddings, read_memories, read_messages, read_rows
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

DIMENSIONS = 16
OLD, NEW = "wordllama-256-c1", f"static-{DIMENSIONS}"
CHAT = chat_script(lambda asked: "Noted.")


def answers(request: Recorded) -> Reply:
    """Chat, and vectors in which texts with a word in common are near each other."""
    if request.path != "/v1/embeddings":
        assert callable(CHAT)
        return CHAT(request)
    texts = json.loads(request.body)["input"]
    return reply_json({"data": [{"index": n, "embedding": _vector(text)} for n, text in enumerate(texts)]})


def _vector(text: str) -> list[float]:
    out = [0.001] * DIMENSIONS
    for word in text.lower().split():
        out[blake2b(word.strip("?.,").encode(), digest_size=1).digest()[0] % DIMENSIONS] += 1.0
    return out


@pytest.fixture
def new_settings(upstream: ScriptedUpstream) -> dict[str, str]:
    return {
        "EMBEDDER": "openai",
        "EMBEDDER_BASE_URL": upstream.url,
        "EMBEDDER_MODEL": "static",
        "EMBEDDER_DIMENSIONS": str(DIMENSIONS),
    }


def done(server: MnemeServer, *arguments: str) -> dict[str, Any]:
    ran = server.command(*arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


async def lacking(dsn: str, space: str) -> list[str]:
    """What was said or learned and has no vector in a space."""
    async with connected(dsn) as admin:
        numbers = [row["space"] for row in await read_rows(admin, "embedding_spaces", name=space)]
        embedded = {row["item_id"] for row in await read_embeddings(admin) if row["space"] in numbers}
        said = [row for row in await read_messages(admin, hidden=False) if row["role"] in (1, 2)]
        learned = [row for row in await read_memories(admin) if row["status"] != "forgotten"]
    items = [(row["message_id"], row["content"]) for row in said if re.search(r"[^\W\d_]", row["content"] or "")]
    items += [(row["memory_id"], row["content_text"]) for row in learned]
    return [text for item, text in items if item not in embedded]


@pytest.mark.heavy
async def test_the_embedder_changes_while_turns_are_answered_and_learned(
    own_server: OwnServers, upstream: ScriptedUpstream, new_settings: dict[str, str], database: str, tmp_path: Path
) -> None:
    upstream.script = answers
    server = own_server(upstream.url, worker=True)
    api = Api(server)
    ask(server, "My boat is called Estrela.", headers={"x-mneme-session": "first"})
    api.wait_for_quiet()
    (tmp_path / "new").mkdir()
    command = MnemeServer(tmp_path / "new", database=database, upstream=upstream.url, settings=new_settings)

    asking, asked = threading.Event(), list[int]()

    def keep_asking() -> None:
        while not asking.is_set():
            n = len(asked)
            answer = ask(server, f"I have a dog named Bolt{n}.", headers={"x-mneme-session": f"s{n}"})
            assert answer.headers["x-mneme-status"] == "ok"
            found = api.post("/memories/search", {"query": "What is my boat called?"})["items"]
            assert any("Estrela" in each["text"] for each in found)
            asked.append(answer.status_code)

    thread = threading.Thread(target=keep_asking)
    thread.start()
    try:
        first = done(command, "reembed")
    finally:
        asking.set()
        thread.join()
    assert asked, "the server answered meanwhile"
    assert set(asked) == {200}
    assert first["embedded"] > 3
    api.wait_for_quiet()
    assert len(api.all("/memories", "memories")) > 1, "learned meanwhile"
    refused = command.command("reembed", "--drop", NEW)
    assert refused.returncode == 1
    assert "the settings name" in refused.stderr
    server.stop()

    later = own_server(upstream.url, worker=True, **new_settings)
    second = done(command, "reembed")
    assert second["left"] == 0
    assert await lacking(database, NEW) == []
    spaces = {each["name"]: each["vectors"] for each in done(command, "reembed", "--status")["spaces"]}
    assert spaces[NEW] >= spaces[OLD] > 0
    upstream.requests.clear()
    ask(later, "What is my boat called?")
    prompts = [each for each in upstream.requests if each.path == "/v1/chat/completions"]
    assert "Estrela" in prompt_of(prompts[-1])
    assert done(command, "reembed", "--drop", OLD) == {"dropped": OLD, "vectors": spaces[OLD]}
    assert [each["name"] for each in done(command, "reembed", "--status")["spaces"]] == [NEW]


@pytest.mark.heavy
@pytest.mark.parametrize(
    "ending", [pytest.param(signal.SIGINT, id="interrupted"), pytest.param(signal.SIGKILL, id="killed")]
)
def test_what_was_stopped_in_the_middle_goes_on(
    own_server: OwnServers,
    upstream: ScriptedUpstream,
    new_settings: dict[str, str],
    database: str,
    tmp_path: Path,
    ending: signal.Signals,
) -> None:
    server, lines = own_server(upstream.url), 600
    said = [{"session": "s", "user": "ana", "role": "user", "content": f"Turn number {n}"} for n in range(lines)]
    body = "\n".join(json.dumps(each) for each in said)
    sent = server.http.post("/api/v1/import", content=body, headers={"content-type": "application/x-ndjson"})
    assert sent.status_code == 200, sent.text
    (tmp_path / "new").mkdir()
    command = MnemeServer(tmp_path / "new", database=database, upstream=upstream.url, settings=new_settings)
    stuck = threading.Event()

    def stalling(request: Recorded) -> Reply:
        if len([each for each in upstream.requests if each.path == "/v1/embeddings"]) <= 2:  # a trial, and a batch
            return answers(request)
        stuck.set()
        return Reply([Stall()])

    upstream.requests.clear()
    upstream.script = stalling
    # Where the tests run in the background of a shell, SIGINT is ignored, and a child would inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "reembed"],
            cwd=tmp_path / "new",
            env=command.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        upstream.wait_until(stuck.is_set, "the second batch is asked for")
        process.send_signal(ending)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode != 0
    assert b"Traceback" not in told
    upstream.script = answers
    again = done(command, "reembed")
    assert (again["embedded"], again["left"]) == (lines - 256, 0)


@pytest.mark.heavy
def test_a_user_is_exported_and_imported_again(
    own_server: OwnServers, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.script = answers
    server = own_server(upstream.url)
    headers = {"x-mneme-session": "s", "x-mneme-user": "ana/1"}
    ask(server, "My boat is called Estrela.", headers=headers)
    base, file = server.base_url, tmp_path / "ana.jsonl"
    told = done(server, "export", "--user", "ana/1", "--base", base, "--out", str(file))
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert told["lines"] == len(rows)
    assert (rows[0]["export"]["user"], rows[-1]["end"]["conversation_history"]) == ("ana/1", 2)
    assert not list(tmp_path.glob("*.part"))
    plain = server.command("export", "--user", "ana/1", "--messages", "--base", base)
    assert plain.returncode == 0, plain.stderr
    again = tmp_path / "again.jsonl"
    again.write_text(plain.stdout.replace("ana/1", "copy"))
    assert done(server, "import", str(again), "--base", base)["imported"] == 2
    assert Api(server, user="copy").said("s")[0] == ("user", "My boat is called Estrela.")
    for wrong in (["--user", "who"], ["--user", "ana/1", "--out", str(tmp_path / "no" / "folder")]):
        failed = server.command("export", *wrong, "--base", base)
        assert failed.returncode == 1
        assert "Traceback" not in failed.stderr
