import asyncio
import subprocess
import sys
import time

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from app.errors import NotReady
from app.features import load
from app.features.tracing import provider
from app.features.tracing.provider import Tracing, job_ids
from app.settings import Settings
from tests.support.tables import each_of


@each_of(
    ("payload", "ids"),
    [
        (b'{"tenant": "t", "session": "s", "user": "u", "text": "secret"}', {"mneme.tenant_id": "t", "mneme.session_id": "s"}),
        (b'{"tenant": "t", "session": null}', {"mneme.tenant_id": "t"}),
        (b"[1]", {}),
        (b"no json", {}),
        (b"", {}),
    ],
)  # fmt: skip
def test_a_job_tells_its_ids_and_nothing_else(payload: bytes, ids: dict[str, str]) -> None:
    assert job_ids(payload) == ids


async def test_a_try_of_a_job_is_a_span_and_fails_as_it_did() -> None:
    told, owner = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    owner.add_span_processor(SimpleSpanProcessor(told))

    async def fails(payload: bytes) -> None:
        raise ValueError("what a user wrote")

    handlers = Tracing(owner.get_tracer("test")).handlers({"learn": fails})
    with pytest.raises(ValueError, match="what a user wrote"):
        await handlers["learn"](b"{}")
    (span,) = told.get_finished_spans()
    assert span.attributes is not None
    assert (span.name, span.attributes["error.type"]) == ("process learn", "ValueError")
    assert span.status.status_code is StatusCode.ERROR
    assert "what a user wrote" not in span.to_json()


async def test_without_the_setting_there_is_nothing() -> None:
    assert "tracing" not in dict(load(Settings(otel="off")))


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    # Of OpenTelemetry's API pgqueuer imports a part by itself.
    ours = "each.startswith(('opentelemetry.sdk', 'opentelemetry.exporter', 'app.features.tracing.'))"
    wanted = f"import app.server.main, app.server.worker, sys; print([each for each in sys.modules if {ours}])"
    told = subprocess.run([sys.executable, "-c", wanted], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("app.features.tracing.find_spec", nothing)
    loaded = load(Settings(otel="on"))  # a command that traces nothing goes on
    with pytest.raises(NotReady, match=r"mneme-proxy\[otel\]"):
        dict(loaded)["tracing"].check()


async def test_variables_that_the_sdk_refuses_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "256")
    with pytest.raises(NotReady, match="max_export_batch_size must be less"):
        async with load(Settings(otel="on")).within(lambda each: each.running()):
            pass


async def test_the_end_waits_no_longer_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Hanging(TracerProvider):
        def shutdown(self) -> None:
            asyncio.run_coroutine_threadsafe(over.wait(), loop).result()

    monkeypatch.setattr(provider, "FLUSH_S", 0.05)
    begun = time.monotonic()
    await provider._shut_down(Hanging(shutdown_on_exit=False))
    assert time.monotonic() - begun < 5
    over.set()
