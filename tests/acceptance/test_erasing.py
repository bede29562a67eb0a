"""Erasure through the real server and the real command: nothing of the user is in a dump of the whole database."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from tests.support.clients import Api, ask, assistant, error_of, session_of, user
from tests.support.dump import dump_of, stands_in
from tests.support.replies import Script, chat_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

Word = Callable[[str], str]


@pytest.fixture(scope="module")
def worker() -> bool:
    return True


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"AUTH": "keys"}


@pytest.fixture(scope="module")
def script() -> Script:
    return chat_script(lambda asked: f"Noted: {asked['messages'][-1]['content']}")


def live(server: MnemeServer, key: str, name: str) -> list[str]:
    """A life with Mneme, in words that nobody else has; returns them."""
    words = {
        each: f"{each}qx{name}zvk"
        for each in ("said", "sys", "head", "mem", "mail", "meta", "imp", "app", "ses", "own")
    }
    bearer = {"authorization": f"Bearer {key}", "x-mneme-user": name, "x-own": words["head"]}
    first = ask(
        server, f"I live in {words['said']}, call me {name}.", headers=bearer | {"idempotency-key": words["own"]}
    )
    named = bearer | {"x-mneme-session": words["ses"]}
    ask(server, [{"role": "system", "content": f"Be {words['sys']}."}, user("hi")], headers=named, stream=True)
    ask(server, [user("hi"), assistant("Noted: hi"), user(f"What of {words['said']}?")], headers=named, stream=True)
    ask(server, f"Only captured, {words['said']}", headers=bearer | {"x-mneme-memory": "off"})
    api = Api(server, user=name, key=key)
    api.post("/users", {"id": name, "email": f"{words['mail']}@example.com", "metadata": {"a": words["meta"]}})
    memory = api.post("/memories", {"user": name, "text": f"Likes {words['mem']}."})
    assert memory
    api.post(
        f"/sessions/{words['ses']}/messages",
        {"user": name, "messages": [{"role": "user", "content": f"An {words['app']}."}]},
    )
    line = {"session": "old", "user": name, "role": "user", "content": f"I was in {words['imp']}, my cat is Tom."}
    sent = server.http.post(
        "/api/v1/import", content=json.dumps(line), headers=bearer | {"content-type": "application/x-ndjson"}
    )
    assert sent.is_success, sent.text
    api.wait_for_quiet()
    assert session_of(first)
    # Names come in ids, headers and keys; as a word of its own, so that it is found wherever it stands.
    return [*words.values(), name]


def erase(server: MnemeServer, *options: str) -> dict[str, object]:
    done = server.command("erase", "--json", *options)
    assert done.returncode == 0, done.stderr
    receipt: dict[str, object] = json.loads(done.stdout)
    return receipt


async def test_a_user_is_found_nowhere_in_a_dump_and_all_others_are(
    mneme: MnemeServer, upstream: ScriptedUpstream, module_database: str
) -> None:
    key = mneme.create_key("app", "--tenant", "one")
    mneme.create_key("hers", "--tenant", "one", "--user", "anaqqname")
    hers = live(mneme, key, "anaqqname")
    his = live(mneme, key, "benqqname")
    filled = await dump_of(module_database)
    assert [word for word in (*hers, *his) if not stands_in(word, filled)] == [], "the proof can fail"
    receipt = erase(mneme, "--tenant", "one", "--user", "anaqqname")
    assert {"upstream_calls", "streams", "conversation_history", "memory_store", "api_keys", "users"} <= set(
        receipt["tables"]  # type: ignore[call-overload]  # an object of counts
    )
    emptied = await dump_of(module_database)
    assert [word for word in hers if stands_in(word, emptied)] == []
    assert [word for word in his if not stands_in(word, emptied)] == []
    assert [word for word in hers if word in mneme.log_text()] == []
    assert Api(mneme, user="benqqname", key=key).sessions()
    assert Api(mneme, user="anaqqname", key=key).sessions() == []


async def test_the_door_erases_too_and_the_user_may_come_back(
    mneme: MnemeServer, upstream: ScriptedUpstream, module_database: str
) -> None:
    key = mneme.create_key("app", "--tenant", "two")
    words = live(mneme, key, "cleoqqname")
    api = Api(mneme, user="cleoqqname", key=key)
    answer = api.send("DELETE", "/users/cleoqqname", params={"tombstones": "false"})
    assert answer.status_code == 200, answer.text
    receipt = answer.json()
    assert receipt["rows"] == sum(receipt["tables"].values()) > 20
    assert "cleoqqname" not in answer.text
    emptied = await dump_of(module_database)
    assert [word for word in words if stands_in(word, emptied)] == []
    upstream.requests.clear()
    ask(mneme, "Where do I live?", headers={"authorization": f"Bearer {key}", "x-mneme-user": "cleoqqname"})
    assert b"qxcleoqqname" not in upstream.requests[-1].body
    assert len(api.sessions()) == 1


def test_a_key_of_one_user_erases_that_user_only(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    own = mneme.create_key("own", "--tenant", "three", "--user", "dora")
    refused = Api(mneme, key=own).send("DELETE", "/users/emil")
    assert refused.status_code == 403
    assert error_of(refused)["type"] == "permission_error"
    reader = mneme.create_key("reader", "--tenant", "three", "--scope", "read")
    assert Api(mneme, key=reader).send("DELETE", "/users/dora").status_code == 403
    assert Api(mneme, key=own).send("DELETE", "/users/dora").status_code == 200


def test_the_command_says_what_is_wrong(mneme: MnemeServer) -> None:
    done = mneme.command("erase", "--user", "x", "--tenant", "no such tenant")
    assert (done.returncode, "no such tenant" in done.stderr) == (1, True)
    assert mneme.command("erase").returncode == 2
    mneme.create_key("anyone", "--tenant", "one")
    nothing = mneme.command("erase", "--user", "nobody knows", "--tenant", "one")
    assert (nothing.returncode, "0 rows erased" in nothing.stdout) == (0, True)


def test_storage_is_told(mneme: MnemeServer) -> None:
    key = mneme.create_key("ops")
    told = Api(mneme, key=key).get("/storage")
    assert told["bytes"] == sum(told["groups"].values()) == sum(each["bytes"] for each in told["tables"])
    assert {"captures", "history", "memories", "vectors", "queue", "other"} == set(told["groups"])
    months = {each["month"] for each in told["tables"] if each["group"] == "captures"}
    assert len(months) >= 3
    metrics: httpx.Response = mneme.http.get("/metrics")
    assert 'mneme_storage_bytes{group="captures"}' in metrics.text
    assert 'mneme_schedule_last_run_seconds{task="retention"}' in metrics.text
