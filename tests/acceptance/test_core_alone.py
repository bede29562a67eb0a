"""The core without a single feature: none can be imported, and it serves, streams, remembers and learns all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.features import FEATURES, ROUTES
from tests.support.clients import MODEL, Api, answer_of, ask, prompt_of, sdk, user
from tests.support.database import connected
from tests.support.forking import run, start
from tests.support.rows import delete_rows, insert_row
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

PROGRAM = "tests.support.core_alone"


@pytest.fixture(scope="module")
def mneme(
    tmp_path_factory: pytest.TempPathFactory, module_database: str, module_upstream: ScriptedUpstream
) -> Iterator[MnemeServer]:
    folder = tmp_path_factory.mktemp("mneme")
    with MnemeServer(folder, database=module_database, upstream=module_upstream.url, program=PROGRAM) as server:
        yield server


def test_it_serves_and_remembers_over_two_chats(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    headers = {"x-mneme-user": "ines"}
    assert answer_of(ask(mneme, "I live in Lisbon.", headers=headers)) == "All right."
    upstream.requests.clear()
    answer_of(ask(mneme, "Where do I live?", headers=headers))
    assert "Lisbon" in prompt_of(upstream.requests[-1]).rpartition("</mneme-memory")[0]
    assert [each["text"] for each in Api(mneme, user="ines").get("/memories")["memories"]] == ["Lives in Lisbon"]


def test_it_streams(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    with sdk(mneme.url) as client:
        messages: Any = [user("Hello.")]
        chunks: Any = client.chat.completions.create(model=MODEL, messages=messages, stream=True)
        assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices) == "All right."


def test_nobody_does_what_memory_is_told(mneme: MnemeServer) -> None:
    headers = {"x-mneme-user": "uma"}
    ask(mneme, "I live in Oslo.", headers=headers)
    answer = ask(mneme, "Forget that I live in Oslo.", headers=headers)
    assert (answer_of(answer), answer.headers["x-mneme-status"]) == ("All right.", "ok")
    api = Api(mneme, user="uma")
    assert [each["text"] for each in api.get("/memories")["memories"]] == ["Lives in Oslo"]
    assert (api.get("/me")["user"], api.get("/me")["commands"]) == ("uma", [])


def test_other_dialects_pass_as_they_are(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    for path, asked in (
        ("/v1/responses", {"model": MODEL, "input": "Where do I live?"}),
        ("/v1/messages", {"model": MODEL, "max_tokens": 9, "messages": [user("Where do I live?")]}),
    ):
        mneme.http.post(path, json=asked, headers={"x-mneme-user": "ines"})
        assert upstream.requests[-1].json() == asked


def test_what_asks_to_be_paged_goes_on_whole(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "c1", "content": "a line of a log that nobody needs\n" * 9000}
    messages = [
        user("Read it."), {"role": "assistant", "content": None, "tool_calls": [call]}, result,
        *[{"role": "assistant", "content": "Read."}, user("And now?")] * 6,
    ]  # fmt: skip
    answer = ask(mneme, messages, headers={"x-mneme-user": "ida", "x-mneme-paging": "on"})
    assert answer_of(answer) == "All right."
    assert answer.headers["x-mneme-status"] == "ok"
    assert "x-mneme-paging" not in answer.headers
    sent = upstream.requests[-1].json()["messages"]
    assert [each["content"] for each in sent if each["role"] == "tool"] == [result["content"]]


def test_what_features_have_is_not_there(mneme: MnemeServer) -> None:
    assert mneme.http.get("/healthz").json() == {"status": "alive"}
    assert mneme.http.get("/readyz").json()["ready"]
    shown = mneme.http.get("/metrics").text
    assert "mneme_webhooks" not in shown
    assert "mneme_refusals" not in shown
    assert "mneme_compaction" not in shown
    for path in (
        "/ui",
        "/mcp",
        "/api/v1/entities",
        "/api/v1/ontology",
        "/api/v1/spend",
        "/api/v1/cards",
        "/api/v1/objects",
        "/api/v1/sessions/talk/summary",
        "/api/v1/cassettes",
        "/api/v1/users/ines/export",
        "/api/v1/outcomes",
        "/api/v1/calls/a-call/replay",
        "/api/v1/calls",
        "/api/v1/chat",
        "/api/v1/context",
        "/api/v1/conflicts",
        "/api/v1/overview",
        "/api/v1/users/ines/facts",
        "/api/v1/commands",
    ):
        assert mneme.http.get(path).status_code == 404
    absent = {each["feature"] for each in mneme.said("a feature is not there")}
    assert absent == {*FEATURES, *ROUTES} - {"mcp", "tracing"}, "these two are not asked for"


def test_a_session_goes_without_cards(mneme: MnemeServer) -> None:
    api = Api(mneme, user="eva")
    turn = {"user_message": "Which lamps?", "assistant_message": "These."}
    shown = api.send("POST", "/sessions/lamps/turns", json=turn | {"cards": [{"type": "lamp", "data": {}}]})
    assert (shown.status_code, shown.json()["error"]["code"]) == (400, "cards_not_kept")
    assert api.get("/sessions")["sessions"] == []
    api.post("/sessions/lamps/turns", turn)
    assert [each["cards"] for each in api.history("lamps")] == [[], []]


def test_its_worker_learns(mneme: MnemeServer) -> None:
    api = Api(mneme, user="ben")
    worker = start(["worker"], environment=mneme.environment, folder=mneme.folder, program=PROGRAM)
    try:
        api.post("/sessions/talk/messages", {"messages": [user("I live in Porto.")]})
        api.post("/sessions/gerede/messages", {"messages": [user("Ich arbeite bei Siemens in Berlin.")]})
        api.wait_for_quiet()
    finally:
        worker.terminate()
        assert worker.wait(20) == 0
    assert [each["text"] for each in api.get("/memories")["memories"]] == [
        "Ich arbeite bei Siemens in Berlin",
        "Lives in Porto",
    ]


def test_a_feature_that_the_settings_name_has_to_be_there(mneme: MnemeServer) -> None:
    done = run(["serve"], environment=mneme.environment | {"MNEME_UI": "on"}, folder=mneme.folder, program=PROGRAM)
    assert done.returncode != 0
    assert "MNEME_UI: this installation has no app.features.ui." in done.stderr
    nowhere = {name: value for name, value in mneme.environment.items() if name != "MNEME_UPSTREAM_BASE_URL"}
    done = run(["serve"], environment=nowhere, folder=mneme.folder, program=PROGRAM)
    told = "Set MNEME_UPSTREAM_BASE_URL: this installation has no app.features.simulated."
    assert (done.returncode, done.stderr) == (1, f"Error: {told}\n")
    done = run(["doctor"], environment=nowhere, folder=mneme.folder, program=PROGRAM)
    assert done.returncode == 1
    assert f"✗ There is no upstream.\n    {told}" in done.stdout
    helper = {"MNEME_HELPER_BASE_URL": "http://127.0.0.1:9/v1", "MNEME_HELPER_MODEL": "small"}
    for given, name in (
        ({"MNEME_SPOOL_DIR": "spool"}, "spool"),
        ({"MNEME_ARCHIVE_DIR": "archive"}, "archive"),
        (helper, "helper"),
        ({"MNEME_DATABASE_MEMORY_URL": mneme.environment["MNEME_DATABASE_URL"]}, "replicas"),
    ):
        done = run(["serve"], environment=mneme.environment | given, folder=mneme.folder, program=PROGRAM)
        told = f"Error: {next(iter(given))}: this installation has no app.features.{name}.\n"
        assert (done.returncode, done.stderr) == (1, told)
    done = run(["doctor"], environment=mneme.environment | helper, folder=mneme.folder, program=PROGRAM)
    assert done.returncode == 1
    assert "✗ MNEME_HELPER_BASE_URL: this installation has no app.features.helper." in done.stdout
    environment = mneme.environment | {"MNEME_EMBEDDER": "minilm"}
    done = run(["migrate"], environment=environment, folder=mneme.folder, program=PROGRAM)
    assert done.returncode == 1
    assert "MNEME_EMBEDDER=minilm: this installation has no app.features.minilm." in done.stderr
    environment = mneme.environment | {"MNEME_HELPER_BASE_URL": "http://127.0.0.1:9/v1", "MNEME_HELPER_MODEL": "m"}
    done = run(["worker"], environment=environment, folder=mneme.folder, program=PROGRAM)
    assert done.returncode == 1
    assert "MNEME_HELPER_BASE_URL: this installation has no app.features.helper." in done.stderr


async def test_nobody_is_erased_while_archives_are_out_of_reach(mneme: MnemeServer, module_database: str) -> None:
    async with connected(module_database) as admin:
        await insert_row(admin, "history_archives", part="p", month="202501", remainder=0, state="detached")
        command = ["erase", "--user", "eva"]
        done = run(command, environment=mneme.environment, folder=mneme.folder, program=PROGRAM)
        assert (done.returncode, "this installation has no app.features.archive" in done.stderr) == (1, True)
        await delete_rows(admin, "history_archives")
    done = run(command, environment=mneme.environment, folder=mneme.folder, program=PROGRAM)
    assert (done.returncode, done.stderr) == (0, "")


def test_nobody_is_erased_while_a_spool_is_out_of_reach(mneme: MnemeServer, tmp_path: Path) -> None:
    environment, command = mneme.environment | {"MNEME_DATA_DIR": str(tmp_path)}, ["erase", "--user", "eva"]
    call = tmp_path / "spool" / "turns" / "a" / "call"
    call.parent.mkdir(parents=True)
    (tmp_path / "spool" / "lock").touch()
    call.touch()
    done = run(command, environment=environment, folder=mneme.folder, program=PROGRAM)
    assert (done.returncode, "this installation has no app.features.spool" in done.stderr) == (1, True)
    call.unlink()
    done = run(command, environment=environment, folder=mneme.folder, program=PROGRAM)
    assert (done.returncode, done.stderr) == (0, "")


def test_commands_say_what_is_not_there(mneme: MnemeServer) -> None:
    for command, feature in (
        (("ontology", "--help"), "knowledge"),
        (("replay", "--help"), "replay"),
        (("export", "--help"), "transfer"),
        (("capture", "--help"), "transfer"),
        (("mcp", "--help"), "mcp"),
        (("archive", "list"), "archive"),
        (("conflicts", "list"), "conflicts"),
        (("reembed", "--status"), "reembed"),
        (("keys", "spend"), "limits"),
        (("eval", "--help"), "consolidation"),
    ):
        done = run(command, environment=mneme.environment, folder=mneme.folder, program=PROGRAM)
        assert (done.returncode, done.stderr) == (1, f"Error: This installation has no app.features.{feature}.\n")
    done = run(["--help"], environment=mneme.environment, folder=mneme.folder, program=PROGRAM)
    assert (" doctor " in done.stdout, " archive " in done.stdout, " ontology " in done.stdout) == (True, False, False)
    without = {name: value for name, value in mneme.environment.items() if name != "MNEME_DATABASE_URL"}
    done = run(["migrate"], environment=without, folder=mneme.folder, program=PROGRAM)
    assert "this installation has no app.features.embedded." in done.stderr
    done = run(["keys", "list"], environment=mneme.environment, folder=mneme.folder, program=PROGRAM)
    assert done.returncode == 0
    done = run(["doctor"], environment=mneme.environment, folder=mneme.folder, program=PROGRAM)
    assert "✓ Stored: captures" in done.stdout
    assert "Paging" not in done.stdout
    assert "✓ This installation does without knowledge, paging, " in done.stdout
    assert (
        ", responses, messages, multilingual, helper, minilm, embedded, simulated, reembed, evaluate, labels."
        in done.stdout
    )
    assert "! There is no spool: while Postgres is away, answers do not end." in done.stdout
    done = run(["doctor"], environment=without, folder=mneme.folder, program=PROGRAM)
    assert done.returncode == 1
    assert "Set MNEME_DATABASE_URL: this installation has no app.features.embedded." in done.stdout
