import asyncio
import time
from collections.abc import MutableMapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer, set_span_in_context
from prometheus_client import CollectorRegistry

from app.features.tracing.provider import STAGES, Stage, TracedGateway, TracingMetrics, carried, nested
from app.gateway.relay import Message


@pytest.fixture
def told() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(told: InMemorySpanExporter) -> Tracer:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(told))
    return provider.get_tracer("test")


def test_stages_lie_in_those_around_them() -> None:
    stages = [
        Stage(5, 9, "compile"),
        Stage(0, 10, "remember"),
        Stage(1, 4, "reconcile"),
        Stage(6, 8, "domain"),
        Stage(11, 12, "record"),
    ]
    assert [(each.name, parent) for each, parent in nested(stages)] == [
        ("remember", None),
        ("reconcile", 0),
        ("compile", 0),
        ("domain", 2),
        ("record", None),
    ]


def test_of_two_that_overlap_neither_lies_in_the_other() -> None:
    assert [parent for _, parent in nested([Stage(0, 5, "a"), Stage(3, 8, "b")])] == [None, None]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda ab: Stage(min(ab), max(ab), "x"))))
def test_every_stage_stands_once_and_within_its_parent(stages: list[Stage]) -> None:
    found = nested(stages)
    assert sorted(each for each, _ in found) == sorted(stages)
    for place, (stage, parent) in enumerate(found):
        if parent is not None:
            assert parent < place
            assert found[parent][0].begin <= stage.begin <= stage.end <= found[parent][0].end


def test_a_request_carries_one_traceparent(tracer: Tracer) -> None:
    span = tracer.start_span("x", context=Context())
    given = [(b"TraceParent", b"00-1-2-00"), (b"tracestate", b"a=b"), (b"accept", b"*/*")]
    made = dict(carried(given, set_span_in_context(span)))
    assert list(made) == [b"accept", b"traceparent"]
    assert format(span.get_span_context().span_id, "016x") in made[b"traceparent"].decode()


async def requested(tracer: Tracer, work: Any, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    async def application(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        await work()
        await send({"type": "http.response.start", "status": 401, "headers": []})

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        pass

    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": headers or []}
    await TracedGateway(application, tracer)(scope, receive, send)


async def test_what_a_task_tells_after_the_end_is_not_heard(tracer: Tracer, told: InMemorySpanExporter) -> None:
    meter = TracingMetrics(CollectorRegistry())
    over = asyncio.Event()
    late: list[asyncio.Task[None]] = []

    async def later() -> None:
        await over.wait()
        meter.stage("late", 0.1)

    async def work() -> None:
        meter.stage("compile", 0.001)
        meter.stage("overhead", 0.001)
        late.append(asyncio.get_running_loop().create_task(later()))

    await requested(tracer, work)
    over.set()
    await late[0]
    meter.stage("of nobody", 0.1)
    assert [span.name for span in told.get_finished_spans()] == ["compile", "POST /v1/chat/completions"]
    root = told.get_finished_spans()[-1]
    assert root.attributes is not None
    assert root.attributes["http.response.status_code"] == 401
    assert root.status.is_unset  # a refusal is the client's own mistake


async def test_a_stage_that_is_told_late_holds_what_it_began_with(tracer: Tracer, told: InMemorySpanExporter) -> None:
    meter = TracingMetrics(CollectorRegistry())

    async def work() -> None:
        began = time.perf_counter_ns() - 10_000_000
        meter.stage("reconcile", 0.001, began + 1000)
        meter.stage("remember", 0.002, began)  # 8 ms after its end: others had the processor

    await requested(tracer, work)
    spans = {span.name: span for span in told.get_finished_spans()}
    outer = spans["remember"].get_span_context()
    inner = spans["reconcile"].parent
    assert outer is not None
    assert inner is not None
    assert inner.span_id == outer.span_id


async def test_a_request_has_no_end_of_spans(tracer: Tracer, told: InMemorySpanExporter) -> None:
    meter = TracingMetrics(CollectorRegistry())

    async def work() -> None:
        for _ in range(STAGES * 2):
            meter.stage("fault", 0.0)

    await requested(tracer, work)
    assert len(told.get_finished_spans()) == STAGES + 1


@pytest.mark.parametrize(
    "parent",
    [
        b"",
        b"rubbish",
        b"\xff\\u1",
        b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01",
        b"ff-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01",
    ],
)
async def test_a_traceparent_that_is_none_begins_a_trace(
    tracer: Tracer, told: InMemorySpanExporter, parent: bytes
) -> None:
    async def work() -> None:
        pass

    await requested(tracer, work, [(b"traceparent", parent)])
    assert told.get_finished_spans()[-1].parent is None
