"""`mneme sweep`, the worker's own sweeps as /metrics shows them, and the question that an old memory leads to."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.clients import Api
from tests.support.database import connected
from tests.support.server import MnemeServer, wait_until

SWEEPS = ("promotion", "demotion", "aging", "decay", "prune", "removal", "expiry", "aliases")


@pytest.fixture(scope="module")
def worker() -> bool:
    return True


def test_the_workers_sweeps_are_seen_in_the_metrics(mneme: MnemeServer) -> None:
    _wait_for_the_worker(mneme)


def _wait_for_the_worker(mneme: MnemeServer) -> None:
    """Until it has swept what there was at its start."""

    def shown() -> bool:
        text = mneme.http.get("/metrics").text
        figures = [
            f'mneme_schedule_{what}{{task="{name}"}}' for what in ("changed", "last_run_seconds") for name in SWEEPS
        ]
        return all(figure in text for figure in figures)

    wait_until(shown, "every sweep has run once")


async def test_an_old_memory_is_swept_asked_about_and_confirmed(
    mneme: MnemeServer, api: Api, module_database: str
) -> None:
    _wait_for_the_worker(mneme)
    made = api.post("/memories", {"text": "Lives in Lisbon"})
    assert api.get("/memories/due") == {"memories": []}
    long_ago = datetime.now(UTC) - timedelta(days=100)
    async with connected(module_database) as admin:
        await admin.execute(
            "UPDATE agent_data.memory_store SET created_at = $1, last_validated_at = $1, confidence = 0.85", long_ago
        )
    done = mneme.command("sweep", "aging", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"sweep": "aging", "changed": 1}
    assert mneme.command("sweep", "aging").stdout == "aging: 0 changed.\n"
    assert api.get(f"/memories/{made['id']}")["status"] == "aging"

    (due,) = api.get("/memories/due")["memories"]
    assert due["id"] == made["id"]
    assert due["question"].endswith(" that says “Lives in Lisbon”; is that still right?")
    judged = api.post(f"/memories/{made['id']}/validate", {"answer": "no", "correction": "Lives in Faro"})
    assert judged["memory"]["superseded_by"] == judged["correction"]["id"]
    assert [each["text"] for each in api.all("/memories", "memories")] == ["Lives in Faro"]


def test_sweeps_can_be_run_by_hand_while_the_worker_runs(mneme: MnemeServer) -> None:
    for name in ("promotion", "decay"):
        done = mneme.command("sweep", name)
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{name}: 0 changed.\n"
