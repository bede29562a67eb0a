"""Cassettes and replays on the real server, against cases made from their schemas: none is a surprise, and what is taken comes
out again as it went in."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.result import Ok

from mneme_replay import bodies
from mneme_replay.fileformat import BadCassette, document, read
from tests.support.cassettes import captured, cassette
from tests.support.clients import MODEL, ask, call_of
from tests.support.replies import Recorded, Reply, Script, captured_cases, chat_script, reply_json
from tests.support.responses import responses_script
from tests.support.server import MnemeServer

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(1800)]

EXAMPLES = 400
"""Cases for each operation; for the import, ten times as many."""
LINES = "application/x-ndjson"
AT = datetime(2026, 6, 1, tzinfo=UTC)
"""When cassettes are said to have been recorded: later than those that they are made from."""
ERROR = {"message", "type", "param", "code"}
SCHEMA = Path(__file__).parents[2] / "mneme_replay" / "cassette.schema.json"
NO_HTTP = "Invalid HTTP request received."
"""What the HTTP server says of a header that is none: no request reaches Mneme."""
PATHS = r"^/api/v1/(cassettes|calls)"


@pytest.fixture(scope="module")
def script() -> Script:
    chat, responses = chat_script(lambda asked: "All right."), responses_script(lambda asked: "Well.")
    scripts = {"/v1/chat/completions": chat, "/v1/responses": responses}
    refusal = reply_json({"error": {"message": "no"}}, "400 Bad Request")

    def answer(request: Recorded) -> Reply:
        wanted = scripts.get(request.path, refusal)
        reply = wanted(request) if callable(wanted) else wanted
        assert isinstance(reply, Reply)
        return reply

    return answer


@pytest.fixture(scope="module")
def calls(mneme: MnemeServer) -> list[str]:
    """Ids of calls to be read and replayed: chat, a stream, a follow-up, an error, a response, and imported ones."""
    headers = {"x-mneme-user": "ana", "x-mneme-session": "s"}
    made = [call_of(ask(mneme, f"What is {n}?", headers=headers, stream=n == 1)) for n in range(3)]
    with httpx.Client(base_url=mneme.base_url, headers=headers, timeout=30) as client:
        made.append(call_of(client.post("/v1/responses", json={"model": MODEL, "input": "Hi."})))
        made.append(call_of(client.post("/v1/embeddings", content=b"{")))
        given = [cassette(n, call={"user": "ana"}) for n in range(2)]
        lines = "\n".join(json.dumps(document(each)) for each in given)
        answer = client.post("/api/v1/cassettes", content=lines, headers={"content-type": LINES})
        assert answer.json() == {"imported": 2, "skipped": 0}
    return [*made, *(each.id for each in given)]


def as_lines(_: schemathesis.SerializationContext, value: Any) -> bytes:
    return json.dumps(value, default=str).encode()


def run(examples: int, strategy: Any, check: Any) -> None:
    @given(case=strategy)
    @settings(
        max_examples=examples,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    def each(case: Any) -> None:
        check(case)

    each()


def test_no_case_is_a_surprise(mneme: MnemeServer, calls: list[str]) -> None:
    """Half of the cases are about a call that is there."""
    schemathesis.serializer(LINES)(as_lines)
    schema = schemathesis.openapi.from_url(f"{mneme.base_url}/openapi.json").include(path_regex=PATHS)
    chance, statuses = random.Random(EXAMPLES), dict[str, dict[int, int]]()
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        counted = statuses.setdefault(operation.label, {})

        def check(case: Any, counted: dict[int, int] = counted) -> None:
            if "call_id" in (case.path_parameters or {}) and chance.random() < 0.5:
                case.path_parameters["call_id"] = chance.choice(calls)
            # Whoever has a wrong key sees nothing: that is tried elsewhere.
            for name in [each for each in case.headers if each.lower() in ("authorization", "x-mneme-key")]:
                del case.headers[name]
            answer = case.call()
            if answer.text == NO_HTTP:
                return
            counted[answer.status_code] = counted.get(answer.status_code, 0) + 1
            assert answer.status_code < 500, f"{answer.text} for {case.as_curl_command()}"
            if answer.status_code >= 400:
                assert set(answer.json()["error"]) == ERROR, answer.text
            else:
                case.validate_response(
                    answer, checks=[schemathesis.checks.CHECKS.get_one("response_schema_conformance")]
                )

        wrong = operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)
        run(EXAMPLES, wrong | operation.as_strategy(), check)
    print(f"\n{sum(sum(each.values()) for each in statuses.values())} cases: {statuses}")
    assert len(statuses) >= 10
    assert 200 in statuses["POST /api/v1/calls/{call_id}/replay"]


def cassettes_schema(url: str) -> Any:
    """An API of one operation, whose body is a cassette as its JSON Schema has it."""
    text = SCHEMA.read_text().replace("#/$defs/", "#/components/schemas/")
    told = json.loads(text)
    parts = told.pop("$defs")
    told.pop("$schema")
    body = {"required": True, "content": {LINES: {"schema": told}}}
    answers = {"200": {"description": "Taken."}, "400": {"description": "Refused."}}
    operation = {"requestBody": body, "responses": answers}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "cassettes", "version": "1"},
        "servers": [{"url": url}],
        "paths": {"/api/v1/cassettes": {"post": operation}},
        "components": {"schemas": parts},
    }
    return schemathesis.openapi.from_dict(document)


SEEDS = [document(captured(case)) for case in captured_cases()[:12]] + [document(cassette(7, call={"user": "x"}))]


def test_what_is_taken_comes_out_as_it_went_in(mneme: MnemeServer) -> None:
    """Cassettes made by their schema, and real ones of which a part was put in the place of another's."""
    schemathesis.serializer(LINES)(as_lines)
    (found,) = cassettes_schema(mneme.base_url).get_all_operations()
    operation = found.ok()
    chance, counted = random.Random(EXAMPLES), {"made": 0, "taken": 0, "refused": 0}
    client = httpx.Client(base_url=mneme.base_url, timeout=30)

    def check(case: Any) -> None:
        doc = case.body
        if isinstance(doc, dict) and chance.random() < 0.7:
            seed = chance.choice(SEEDS)
            names = chance.sample(sorted(seed.keys() | doc.keys()), chance.randint(0, 2))
            doc = {**seed, **{name: doc[name] for name in names if name in doc}}
        counted["made"] += 1
        at = AT + timedelta(seconds=counted["made"])
        if isinstance(doc, dict) and chance.random() < 0.9:
            doc |= {"id": f"fuzz-{chance.random()}", "recorded_at": at.isoformat()}
        try:
            line = json.dumps(doc).encode()
        except (TypeError, ValueError):
            return
        answer = client.post("/api/v1/cassettes", content=line, headers={"content-type": LINES})
        assert answer.status_code in (200, 400), f"{answer.status_code} {answer.text} for {line!r}"
        if answer.status_code == 400:
            counted["refused"] += 1
            assert set(answer.json()["error"]) == ERROR, answer.text
            return
        counted["taken"] += 1
        wanted = read(bodies.parse_json(line.decode()), "sent")
        if not answer.json()["imported"] or wanted.recorded_at != at.isoformat():
            return
        span = {"since": at.isoformat(), "until": (at + timedelta(seconds=1)).isoformat()}
        exported = client.get("/api/v1/cassettes", params=span)
        back, end = (json.loads(each) for each in exported.content.split(b"\n")[:-1])
        assert end == {"end": {"calls": 1}}, exported.text
        try:
            got = read(back, "back")
        except BadCassette as error:
            raise AssertionError(f"{error} for {line!r}") from error
        for name in ("id", "outcome", "request", "sent", "response", "redacted"):
            assert getattr(got, name) == getattr(wanted, name), f"{name} for {line!r}"
        assert (got.labels or ()) == tuple(sorted(set(wanted.labels or ()))), line

    wrong = operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)
    try:
        run(EXAMPLES * 10, wrong | operation.as_strategy(), check)
    finally:
        client.close()
    print(f"\n{counted}")
    assert min(counted.values()) > EXAMPLES
