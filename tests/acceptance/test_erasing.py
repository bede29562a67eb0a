"""Erasure through the real server and the real command: nothing of the user is in a dump of the whole database."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import UUID

import httpx
import pytest

from tests.support.clients import Api, ask, assistant, error_of, session_of, user
from tests.support.database import connected
from tests.support.dump import dump_of, stands_in
from tests.support.replies import Script, chat_script
from tests.support.rows import count_rows_of_user, fill_table, read_users
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer, wait_until

Word = Callable[[str], str]


WORKER = True


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
        for each in (
            "said",
            "sys",
            "head",
            "mem",
            "mail",
            "meta",
            "imp",
            "app",
            "ses",
            "own",
            "fact",
            "rate",
            "gone",
            "row",
            "card",
        )
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
    shown = {
        "user_message": "Which?",
        "assistant_message": "These.",
        "cards": [{"type": "c", "data": {"of": words["card"]}}],
    }
    api.post(f"/sessions/{words['ses']}/turns", {"user": name, **shown})
    line = {"session": "old", "user": name, "role": "user", "content": f"I was in {words['imp']}, my cat is Tom."}
    sent = server.http.post(
        "/api/v1/import", content=json.dumps(line), headers=bearer | {"content-type": "application/x-ndjson"}
    )
    assert sent.is_success, sent.text
    fact = api.send("PUT", f"/users/{name}/facts/boat", json={"value": {"name": words["fact"]}})
    assert fact.status_code == 201, fact.text
    api.post("/outcomes", {"call": first.headers["x-mneme-call-id"], "score": 1, "comment": f"Said {words['rate']}"})
    for n in range(5):
        ask(server, f"Suggested {words['gone']} post → {300 + n} views", headers=bearer)
    ask(server, f"I moved to {words['gone']}.", headers=bearer)
    api.wait_for_quiet()
    recalled = ask(server, f"Where do I live? I like {words['said']}.", headers=named)
    api.post("/outcomes", {"call": recalled.headers["x-mneme-call-id"], "score": 1})
    assert api.send("DELETE", f"/memories/{memory['id']}").status_code == 200
    api.post("/memories", {"user": name, "text": f"Likes {words['mem']} again."})
    for what in ("end", "consolidate"):
        api.post(f"/sessions/{words['ses']}/{what}", {})
    api.wait_for_quiet()
    assert api.get(f"/sessions/{words['ses']}/working")
    assert session_of(first)
    # Names come in ids, headers and keys; as a word of its own, so that it is found wherever it stands.
    return [*words.values(), name]


TABLES = """
SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'user_id' AND NOT a.attisdropped
WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1
"""
MADE_BY_TIME = {
    "capture_sweeps": ("before", "now()"),
    "compactions": (
        "session_id, summary_id, at, first_turn, last_turn, messages, removed_tokens, summary_tokens, ratio, method",
        "$2, $2, now(), 3, 8, 6, 600, 100, 6, $3",
    ),
    "spend": (
        "day, key_id, session_id, model, calls, prompt_tokens, completion_tokens, cached_tokens, unpriced_tokens,"
        " cost_microcents",
        "'2020-02-02', $2, $2, 'm', 2, 30, 4, 5, 6, 700",
    ),
    "canonical_entities": ("entity_id, entity_type, canonical_name, name_norm", "$3, 'person', $3, $3"),
    "entity_aliases": ("entity_id, alias_norm, alias_text, alias_source", "$3, $3, $3, 'learned'"),
    "memory_conflicts": (
        "conflict_id, conflict_type, conflict_data", "$2, 'memory_vs_memory', jsonb_build_object('said', $3::text)"
    ),
    "memory_commands": (
        "command_id, session_id, mark, kind, scope, outcome, at", "$2, $2, '', 'forget', 'thing', 'done', now()"
    ),
    "paged_sessions": ("session_id", "$2"),
    "insights": (
        "name, domain, title, source, period_days, every_hours, due_at, created_at, updated_at",
        "$3, 'erp', $3, 'SELECT 1 AS value', 7, 6, now(), now(), now()",
    ),
    "spaces": ("name, kind, created_at", "$3, 'team', now()"),
    "space_members": ("space_id, joined_at", "$2, now()"),
    "space_sayings": ("space_id, item_id, item_kind, said_at", "$2, $2, 1, now()"),
    "webhook_outbox": ("message_id, target, event, data", "$2, 'crm', 'memory.created', jsonb_build_object('said', $3::text)"),
    "webhook_degradations": ("call_id, reason, at", "$2, $3, now()"),
    "semantic_objects": (
        "session_id, object_id, ordinal, object_type, kind, content_full, content_hash, stub, parts, accessed_turn, tokens_l0,"
        " tokens_l3, source_turn_start, source_turn_end",
        "$2, $2, 1, 'plan', 'prose', $3, '', $3, '[]', 1, 300, 12, 1, 1",
    ),
    "object_relationships": ("session_id, source_id, target_id, relationship", "$2, $2, $2, 'references'"),
    "fault_history": (
        "session_id, fault_id, fault_type, turn_number, question, answer", "$2, $2, 'micro_fault', 1, $3, $3"
    ),
    "fidelity_transitions": (
        "session_id, object_id, call_id, from_fidelity, to_fidelity, trigger, turn_number, pressure_zone, token_count",
        "$2, $2, $2, 0, 3, 'pressure', 1, 'warning', 8000",
    ),
    "admission_scores": (
        "session_id, admission_id, admitted, score_total, score_type, score_novelty, score_utility, score_recency, threshold,"
        " content_preview",
        "$2, $2, false, 0, 0, 0, 0, 0, 0.4, $3",
    ),
    "phantom_ledger": ("session_id, answer_chain, call_id, hidden", "$2, '', $2, convert_to($3, 'UTF8')"),
    "index_state": ("cut", "'1'"),
}  # fmt: skip
"""What only months, or long sessions, bring about, and how it is put there instead."""
OF_TOMBSTONES = {"erased_users", "erased_contents"}


async def fill_the_rest(dsn: str, name: str) -> None:
    """After this the user has a row in every table that has a `user_id`; a new table that has none fails here."""
    async with connected(dsn) as admin:
        (user,) = await read_users(admin, external_id=name)
        for table, (columns, values) in MADE_BY_TIME.items():
            await fill_table(admin, table, user["user_id"], columns, values, f"rowqx{name}zvk")
        tables = {row["relname"] for row in await admin.fetch(TABLES)}
    # The schedule adds up `spend_entries` in `spend`, and then they are gone.
    empty = tables - await left_of(dsn, user["user_id"]) - {"spend_entries"}
    assert empty == OF_TOMBSTONES, "see that the life above fills it, and that it is erased"


async def left_of(dsn: str, user: UUID) -> set[str]:
    """The tables with rows of a user."""
    async with connected(dsn) as admin:
        return set(await count_rows_of_user(admin, user, besides=()))


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
    for name in ("anaqqname", "benqqname"):
        await fill_the_rest(module_database, name)
    async with connected(module_database) as admin:
        whose = (await read_users(admin, external_id="anaqqname"))[0]["user_id"]
    filled = await dump_of(module_database)
    assert [word for word in (*hers, *his) if not stands_in(word, filled)] == [], "the proof can fail"
    receipt = erase(mneme, "--tenant", "one", "--user", "anaqqname")
    assert {"upstream_calls", "streams", "conversation_history", "memory_store", "api_keys", "users"} <= set(
        receipt["tables"]  # type: ignore[call-overload]  # an object of counts
    )
    assert await left_of(module_database, whose) == OF_TOMBSTONES
    emptied = await dump_of(module_database)
    assert [word for word in hers if stands_in(word, emptied)] == []
    assert [word for word in his if not stands_in(word, emptied)] == []
    files = b"".join(each.read_bytes() for each in mneme.folder.rglob("*") if each.is_file())
    assert [word for word in hers if word.encode() in files or word in mneme.log_text()] == []
    assert Api(mneme, user="benqqname", key=key).sessions()
    assert Api(mneme, user="anaqqname", key=key).sessions() == []


async def test_the_route_erases_too_and_the_user_may_come_back(
    mneme: MnemeServer, upstream: ScriptedUpstream, module_database: str
) -> None:
    key = mneme.create_key("app", "--tenant", "two")
    words = live(mneme, key, "cleoqqname")
    await fill_the_rest(module_database, "cleoqqname")
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
    assert {"captures", "history", "memories", "vectors", "paging", "queue", "other"} == set(told["groups"])
    months = {each["month"] for each in told["tables"] if each["group"] == "captures"}
    assert len(months) >= 3
    ran = 'mneme_schedule_last_run_seconds{task="retention"}'
    wait_until(lambda: ran in mneme.http.get("/metrics").text, "the worker's first look")
    metrics: httpx.Response = mneme.http.get("/metrics")
    assert 'mneme_storage_bytes{group="captures"}' in metrics.text
