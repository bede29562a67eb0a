"""Traces of the real command, as a collector of OTLP over HTTP gets them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import OwnServers
from tests.support.clients import ask, sdk, user
from tests.support.otlp import OtlpReceiver, Told
from tests.support.replies import chat_script, reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

ROOT = "POST /v1/chat/completions"
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECRET = "sk-very-secret-key"
SAID = "My sister Ottilie lives in Ravensburg."
STOPS_S = 15.0
"""Far more than FLUSH_S, far less than the exporter's own patience."""


@pytest.fixture(scope="module")
def collector() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


WORKER = True


@pytest.fixture(scope="module")
def settings(collector: OtlpReceiver) -> Iterator[dict[str, str]]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in telling(collector).items():
            patch.setenv(name, value)
        patch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-collector-key=abc")
        patch.setenv("OTEL_SERVICE_NAME", "memory")
        yield {"OTEL": "on"}


def telling(collector: OtlpReceiver) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}


def children(spans: list[Told], of: Told) -> list[str]:
    return [each.name for each in sorted(spans, key=lambda each: each.begin) if each.parent == of.id]


def one(spans: list[Told], name: str) -> Told:
    (found,) = [each for each in spans if each.name == name]
    return found


def test_a_request_is_one_trace_from_the_caller_to_the_upstream(
    mneme: MnemeServer, upstream: ScriptedUpstream, collector: OtlpReceiver
) -> None:
    client = sdk(mneme.url, key=SECRET)
    given = {
        "traceparent": f"00-{TRACE}-{CALLER}-01",
        "tracestate": "vendor=kept",
        "x-mneme-user": "ottilie@example.org",
    }
    answer = client.with_options(default_headers=given).chat.completions.with_raw_response.create(
        model="scripted", messages=[{"role": "user", "content": SAID}], stream=True, extra_query={"token": SECRET}
    )
    call_id, session = answer.headers["x-mneme-call-id"], answer.headers["x-mneme-session-id"]
    list(answer.parse())
    spans = collector.trace(ROOT, **{"mneme.call_id": call_id})
    root = one(spans, ROOT)
    assert (root.trace, root.parent, root.kind, root.failed) == (TRACE, CALLER, "server", False)
    assert root.attributes["http.response.status_code"] == 200
    assert root.attributes["mneme.session_id"] == session
    assert root.attributes["mneme.memory"] == "ok"
    assert root.resource["service.name"] == "memory"
    top = children(spans, root)
    assert top == ["authenticate", "identify", "remember", "chat scripted", "relay", "record"]
    assert children(spans, one(spans, "remember")) == ["reconcile", "compile"]

    asked = one(spans, "chat scripted")
    assert asked.kind == "client"
    assert asked.attributes["gen_ai.operation.name"] == "chat"
    assert asked.attributes["gen_ai.request.model"] == asked.attributes["gen_ai.response.model"] == "scripted"
    assert asked.attributes["gen_ai.usage.output_tokens"] > 0
    assert 0 < asked.attributes["gen_ai.response.time_to_first_chunk"] < 10
    assert asked.attributes["server.port"] == upstream.port
    sent = dict(upstream.requests[-1].headers)
    assert sent[b"traceparent"].decode() == f"00-{TRACE}-{asked.id}-01"
    assert sent[b"tracestate"] == b"vendor=kept"

    for span in spans:
        assert root.begin <= span.begin <= span.end <= root.end
    assert collector.headers[-1]["x-collector-key"] == "abc"


def test_nothing_of_what_was_said_and_no_key_is_told(collector: OtlpReceiver) -> None:
    assert collector.raw
    told = b"".join(collector.raw)
    for word in ("Ottilie", "Ravensburg", "sister", SECRET, "All right", "ottilie@example.org"):
        assert word.encode() not in told


def test_without_a_caller_of_its_own_a_request_begins_a_trace(
    mneme: MnemeServer, upstream: ScriptedUpstream, collector: OtlpReceiver
) -> None:
    call = ask(mneme, [user("Hello")]).headers["x-mneme-call-id"]
    root = one(collector.trace(ROOT, **{"mneme.call_id": call}), ROOT)
    assert root.parent == ""
    assert dict(upstream.requests[-1].headers)[b"traceparent"].decode().split("-")[1] == root.trace


def test_what_a_caller_does_not_sample_is_not_told_but_carried(
    mneme: MnemeServer, upstream: ScriptedUpstream, collector: OtlpReceiver
) -> None:
    trace = "1" * 32
    ask(mneme, [user("Unseen")], headers={"traceparent": f"00-{trace}-{CALLER}-00"})
    carried = dict(upstream.requests[-1].headers)[b"traceparent"].decode()
    assert carried.startswith(f"00-{trace}-")
    assert carried.endswith("-00")
    call = ask(mneme, [user("Seen")]).headers["x-mneme-call-id"]
    collector.trace(ROOT, **{"mneme.call_id": call})
    assert trace not in {each.trace for each in collector.spans}


def test_what_is_refused_and_what_passes_through(
    mneme: MnemeServer, upstream: ScriptedUpstream, collector: OtlpReceiver
) -> None:
    upstream.script = reply_json({"error": {"message": "no"}}, "503 Service Unavailable")
    assert mneme.http.post("/v1/embeddings?key=hidden", json={"input": "x", "model": "m"}).status_code == 503
    spans = collector.trace("POST", **{"url.path": "/v1/embeddings"})
    root = next(each for each in spans if each.kind == "server")
    assert root.failed
    assert root.attributes["error.type"] == "503"
    sent = next(each for each in spans if each.kind == "client")
    assert (sent.name, sent.failed) == ("POST", True)
    assert "gen_ai.operation.name" not in sent.attributes
    assert b"hidden" not in b"".join(collector.raw)


@pytest.mark.heavy
def test_jobs_of_the_worker_are_traces_of_their_own(
    mneme: MnemeServer, upstream: ScriptedUpstream, collector: OtlpReceiver
) -> None:
    call = ask(mneme, [user("I am allergic to peanuts.")]).headers["x-mneme-call-id"]
    request = one(collector.trace(ROOT, **{"mneme.call_id": call}), ROOT)
    spans = collector.trace("process learn", **{"mneme.session_id": request.attributes["mneme.session_id"]})
    (job,) = spans
    assert (job.kind, job.parent, job.failed) == ("consumer", "", False)
    assert job.attributes["messaging.destination.name"] == "learn"
    assert job.resource["service.instance.id"] != request.resource["service.instance.id"]


@pytest.mark.heavy
@pytest.mark.parametrize("answers", [None, 500])
def test_a_collector_that_fails_keeps_nobody_waiting(
    own_server: OwnServers, monkeypatch: pytest.MonkeyPatch, answers: int | None
) -> None:
    with OtlpReceiver(answers) as receiver, ScriptedUpstream(chat_script(lambda asked: "Yes.")) as upstream:
        small = {"OTEL_BSP_MAX_QUEUE_SIZE": "64", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "8"}
        for name, value in (telling(receiver) | small).items():
            monkeypatch.setenv(name, value)
        server = own_server(upstream.url, OTEL="on")
        for number in range(20):
            assert ask(server, [user(f"Question {number}")]).headers["x-mneme-status"] == "ok"
        begun = time.monotonic()
        os.kill(server.pid, signal.SIGTERM)
        assert server.wait() == 0
        assert time.monotonic() - begun < STOPS_S


def test_off_by_default_nothing_is_told_or_changed(own_server: OwnServers, monkeypatch: pytest.MonkeyPatch) -> None:
    with OtlpReceiver() as receiver, ScriptedUpstream(chat_script(lambda asked: "Yes.")) as upstream:
        for name, value in telling(receiver).items():
            monkeypatch.setenv(name, value)
        server = own_server(upstream.url)
        given = f"00-{TRACE}-{CALLER}-01"
        ask(server, [user("Hello")], headers={"traceparent": given})
        assert dict(upstream.requests[-1].headers)[b"traceparent"].decode() == given
        server.stop()
        assert receiver.raw == []
