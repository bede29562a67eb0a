"""Fault 15: of a user who was erased, nothing is found: not in a dump of the whole database, not in the server's folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.support.clients import Api, ask, assistant, session_of, system, user
from tests.support.own_postgres import dump
from tests.support.replies import chat_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

pytestmark = pytest.mark.heavy

WORDS = ("xanthippe", "yolanda", "zenobia")
"""Each says nothing without her own word in it."""
KEPT = "yolanda"


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    def answer(asked: dict[str, object]) -> str:
        """In her own word too."""
        return f"Noted, {next(word for word in WORDS if word in str(asked))}."

    with ScriptedUpstream(chat_script(answer)) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def mneme(
    tmp_path_factory: pytest.TempPathFactory, module_database: str, upstream: ScriptedUpstream
) -> Iterator[MnemeServer]:
    folder = tmp_path_factory.mktemp("mneme")
    with MnemeServer(folder, database=module_database, upstream=upstream.url, worker=True) as server:
        for word in WORDS:
            live(server, word)
        yield server


def live(mneme: MnemeServer, word: str) -> None:
    """Leave a trace wherever a user can leave one."""
    name = f"user-{word}"
    api = Api(mneme, user=name)
    headers = {"x-mneme-user": name}
    told = [system(f"You work for {word}."), user(f"I live in {word}-town and my dog is called {word.title()}.")]
    first = ask(mneme, told, headers={**headers, "idempotency-key": f"key-{word}"}, user=name, metadata={"m": word})
    again = [*told, assistant(first.json()["choices"][0]["message"]["content"]), user(f"And my cat? ({word})")]
    ask(mneme, again, headers=headers, stream=True)
    ask(mneme, f"Something in a session of a name, {word}.", headers={**headers, "x-mneme-session": f"session-{word}"})
    tool = {"type": "function", "function": {"name": f"tool_{word}", "parameters": {}}}
    ask(mneme, f"Call it, {word}.", headers={**headers, "x-test": f"header-{word}"}, tools=[tool])
    mneme.http.post("/v1/embeddings", json={"input": f"embed {word}", "user": name}, headers=headers)
    ask(mneme, f"Without memory, {word}.", headers={**headers, "x-mneme-memory": "off"})
    memory = {"user": name, "text": f"Remembers {word}.", "tags": [word], "metadata": {"of": word}}
    made = api.post("/memories", memory)["id"]
    assert api.send("PATCH", f"/memories/{made}", json={"text": f"Remembers {word} better."}).status_code == 200
    messages = [{"role": "user", "content": f"Appended for {word}."}]
    api.post(f"/sessions/{session_of(first)}/messages", {"messages": messages})
    line = {
        "session": f"old-{word}",
        "user": name,
        "role": "user",
        "content": f"Imported {word}.",
        "metadata": {"w": word},
    }
    imported = mneme.http.post(
        "/api/v1/import", content=json.dumps(line), headers={"content-type": "application/x-ndjson"}
    )
    assert imported.is_success, imported.text
    api.wait_for_quiet()
    # What was learned is now in prompts, compilations and blocks.
    ask(mneme, f"Where do I live, and what is my dog called? ({word})", headers=headers)
    api.wait_for_quiet()


def traces(mneme: MnemeServer, database: str, word: str) -> list[str]:
    """Lines of the dump, and files, that hold the word: plainly or in the hexadecimal that bytes are dumped in."""
    lower = word.encode()
    forms = [form for each in (lower, lower.title(), lower.upper()) for form in (each, each.hex().encode())]
    found = [
        line[:300].decode("utf-8", "replace") for line in dump(database).splitlines() if any(f in line for f in forms)
    ]
    files = [path for path in mneme.folder.rglob("*") if path.is_file()]
    return found + [str(path) for path in files if any(form in path.read_bytes() for form in forms)]


def by_command(mneme: MnemeServer, who: str) -> None:
    done = mneme.command("erase", "--user", who, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def by_route(mneme: MnemeServer, who: str) -> None:
    answer = mneme.http.delete(f"/api/v1/users/{who}")
    assert answer.is_success, answer.text


@pytest.mark.parametrize(("erase", "word"), [(by_command, "xanthippe"), (by_route, "zenobia")])
def test_of_an_erased_user_nothing_is_left(
    mneme: MnemeServer, module_database: str, erase: Callable[[MnemeServer, str], None], word: str
) -> None:
    """And all is left of the others."""
    kept = len(traces(mneme, module_database, KEPT))
    erase(mneme, f"user-{word}")
    assert traces(mneme, module_database, word) == []
    assert len(traces(mneme, module_database, KEPT)) == kept, "someone else has lost something"
    assert Api(mneme, user=f"user-{word}").calls() == []


def test_a_trace_is_seen(mneme: MnemeServer, module_database: str) -> None:
    """What proves that nothing is left does find what is there, in text and in bytes."""
    found = traces(mneme, module_database, KEPT)
    assert len(found) > 20
    assert any(KEPT.encode().hex() in line for line in found)
    assert any(KEPT in line for line in found)
