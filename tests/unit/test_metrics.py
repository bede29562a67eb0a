"""What is counted, in one process and in several."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry

from app.metrics import ETA_BUCKETS, STAGE_BUCKETS_S, Exposition, Metrics, process_registry

CHILD = """
import sys
from pathlib import Path
from prometheus_client import CollectorRegistry
from app.metrics import Exposition, Metrics, forget_ended
forget_ended(Path(sys.argv[1]))
metrics = Metrics(CollectorRegistry())
metrics.request("chat", "complete", "ok")
metrics.stage("compile", 0.01)
metrics.queue(queued=int(sys.argv[2]), running=0, dead=0)
metrics.pool("main", {"used": 2})
if sys.argv[3] == "show":
    sys.stdout.buffer.write(Exposition(CollectorRegistry(), Path(sys.argv[1])).render(None)[0])
"""


def shown(registry: CollectorRegistry) -> str:
    return Exposition(registry).render(None)[0].decode()


def test_everything_is_counted() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    for _ in range(2):
        metrics.request("chat", "complete", "ok")
    metrics.stage("compile", 0.012)
    metrics.degraded("store")
    metrics.tokens(prompt=100, completion=7)
    metrics.tokens(prompt=1, injected=20)
    metrics.cost("a", 150_000_000, priced=True)
    metrics.cost("a", 0, priced=False)
    metrics.graph_recall(0.97)
    metrics.observe_utilisation(0.06, 0.95)
    metrics.observe_utilisation(None, None)
    metrics.queue(queued=3, running=1, dead=2)
    metrics.pool("main", {"idle": 5, "used": 3})
    metrics.attempt("a", "unreachable")
    for state in ("closed", "open", "half_open"):
        metrics.breaker("a", state)
    metrics.tasks(7)
    metrics.paged("warning", avoided=900, legs=2)
    metrics.paged("normal", avoided=0)
    metrics.fault("micro_fault", "answered", 0.012)
    text = shown(registry)
    for line in (
        'mneme_upstream_attempts_total{result="unreachable",upstream="a"} 1.0',
        'mneme_upstream_breaker{upstream="a"} 1.0',
        'mneme_requests_total{kind="chat",memory="ok",outcome="complete"} 2.0',
        'mneme_stage_seconds_bucket{le="0.015",stage="compile"} 1.0',
        'mneme_stage_seconds_bucket{le="0.01",stage="compile"} 0.0',
        'mneme_degradations_total{reason="store"} 1.0',
        'mneme_tokens_total{kind="prompt"} 101.0',
        'mneme_tokens_total{kind="completion"} 7.0',
        'mneme_tokens_total{kind="injected"} 20.0',
        'mneme_context_utilisation_bucket{le="0.1"} 1.0',
        'mneme_context_utilisation_bucket{le="0.05"} 0.0',
        "mneme_context_utilisation_count 1.0",
        'mneme_context_attained_bucket{le="0.96"} 1.0',
        'mneme_context_attained_bucket{le="0.94"} 0.0',
        'mneme_cost_dollars_total{upstream="a"} 1.5',
        'mneme_unpriced_calls_total{upstream="a"} 1.0',
        'mneme_graph_recall_bucket{le="0.98"} 1.0',
        'mneme_graph_recall_bucket{le="0.96"} 0.0',
        'mneme_queue_jobs{state="queued"} 3.0',
        'mneme_queue_jobs{state="dead"} 2.0',
        'mneme_pool_connections{pool="main",state="used"} 3.0',
        "mneme_event_loop_tasks 7.0",
        'mneme_paging_prompts_total{zone="warning"} 1.0',
        'mneme_paging_prompts_total{zone="normal"} 1.0',
        "mneme_paging_avoided_tokens_total 900.0",
        "mneme_paging_legs_total 2.0",
        'mneme_paging_faults_total{kind="micro_fault",result="answered"} 1.0',
        'mneme_stage_seconds_bucket{le="0.015",stage="fault"} 1.0',
    ):
        assert line in text


def test_two_of_them_do_not_meet() -> None:
    one, other = CollectorRegistry(), CollectorRegistry()
    Metrics(one).degraded("x")
    Metrics(other)
    assert 'reason="x"' not in shown(other)


def test_the_bars_are_borders_of_buckets() -> None:
    assert {0.015, 0.05} <= set(STAGE_BUCKETS_S)
    assert 0.92 in ETA_BUCKETS
    assert list(STAGE_BUCKETS_S) == sorted(STAGE_BUCKETS_S)


def test_a_process_tells_of_itself() -> None:
    text = shown(process_registry())
    assert "process_resident_memory_bytes" in text
    assert "python_gc_collections_total" in text


def test_openmetrics_where_it_is_asked_for() -> None:
    exposition = Exposition(CollectorRegistry())
    assert exposition.render("application/openmetrics-text; version=1.0.0")[1].startswith(
        "application/openmetrics-text"
    )
    assert exposition.render(None)[1].startswith("text/plain")
    assert exposition.render("image/png")[1].startswith("text/plain")


def test_processes_are_added_up(tmp_path: Path) -> None:
    def run(queued: int, then: str) -> str:
        command = [sys.executable, "-c", CHILD, str(tmp_path), str(queued), then]
        environment = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout

    for queued in (7, 5):
        run(queued, "end")
    text = run(3, "show")
    assert 'mneme_requests_total{kind="chat",memory="ok",outcome="complete"} 3.0' in text
    assert 'mneme_stage_seconds_count{stage="compile"} 3.0' in text
    assert 'mneme_queue_jobs{state="queued"} 3.0' in text, "the newest look counts"
    # Those that have ended are taken out of the sum over living processes.
    assert 'mneme_pool_connections{pool="main",state="used"} 2.0' in text
