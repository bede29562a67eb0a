"""Faults 10 and 11: workers that are killed or frozen in the middle of a job, and listeners that are lost.

Leases, retries and deaf listeners are tried one by one in tests/integration/jobs; here with the real worker process, which
a helper LLM holds in the middle of a job.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from app.jobs.worker import JOB_ATTEMPTS
from tests.support.chaos_server import ChaosServer
from tests.support.clients import Api, ask
from tests.support.forking import start
from tests.support.jobs import until
from tests.support.own_postgres import WORKER
from tests.support.replies import Recorded, Reply, Stall, Until, chat_script, reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer, runs, wait_until
from tests.support.sockets import eventually

SAID = "I moved house, my new home is Porto, by the way."
LEASE_S = 1.0
ITEM = {
    "message": 1,
    "text": "Lives in Porto",
    "kind": "fact",
    "quote": "my new home is Porto",
    "confidence": 0.9,
    "subject": "user",
    "predicate": "lives_in",
    "object": "Porto",
    "entities": ["Porto"],
}
LEARNED = reply_json(
    {"choices": [{"message": {"content": json.dumps({"additions": [ITEM]})}, "finish_reason": "stop"}]}
)


@pytest.fixture(scope="module")
def helper() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream(LEARNED) as helper:
        yield helper


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, helper: ScriptedUpstream) -> Iterator[ChaosServer]:
    given = {"HELPER_BASE_URL": helper.url, "HELPER_MODEL": "helper", "JOB_LEASE_S": str(LEASE_S)}
    # A job that waits for its helper must not be what ends first.
    given |= {"HELPER_TIMEOUT_S": "60"}
    with ChaosServer(tmp_path_factory.mktemp("stage"), worker=True, settings=given) as stage:
        stage.upstream.script = chat_script(lambda asked: "All right.")
        wait_until(lambda: len(stage.server.workers) == 1, "the worker to start")
        yield stage


def say(stage: ChaosServer, who: str, text: str = SAID) -> Api:
    assert ask(stage.server, text, headers={"x-mneme-user": who}).status_code == 200
    return Api(stage.server, user=who)


def learned(api: Api) -> list[str]:
    return [each["text"] for each in api.all("/memories", "memories")]


def only_the_first_waits(helper: ScriptedUpstream, go: threading.Event) -> list[Recorded]:
    """Hold the helper's first answer until `go`; the requests are noted in the list."""
    asked: list[Recorded] = []

    def answer(request: Recorded) -> Reply:
        asked.append(request)
        return Reply([Until(go), *LEARNED.steps]) if len(asked) == 1 else LEARNED

    helper.script = answer
    return asked


# --- 10: the worker ----------------------------------------------------------------------------------------------------


@pytest.mark.heavy
async def test_a_worker_killed_in_its_job(stage: ChaosServer, helper: ScriptedUpstream) -> None:
    go = threading.Event()
    asked = only_the_first_waits(helper, go)
    api = say(stage, "killed")
    await eventually(lambda: len(asked) == 1, "the job to begin")
    (worker,) = stage.server.workers
    os.kill(worker, signal.SIGKILL)
    await eventually(lambda: len(asked) == 2, "the job to begin again")
    api.wait_for_quiet()
    go.set()
    assert learned(api) == ["Lives in Porto"]


@pytest.mark.heavy
async def test_a_worker_frozen_past_its_lease(stage: ChaosServer, helper: ScriptedUpstream) -> None:
    """Another one does its job; when it thaws, its own end of the job is refused and nothing is learned twice."""
    await eventually(lambda: len(stage.server.workers) == 1, "the worker to start")
    go = threading.Event()
    asked = only_the_first_waits(helper, go)
    api = say(stage, "frozen")
    await eventually(lambda: len(asked) == 1, "the job to begin")
    (zombie,) = stage.server.workers
    os.kill(zombie, signal.SIGSTOP)
    try:
        with other_worker(stage.server):
            await eventually(lambda: len(asked) == 2, "another worker to take the job")
            api.wait_for_quiet()
            assert learned(api) == ["Lives in Porto"]
    finally:
        os.kill(zombie, signal.SIGCONT)
        go.set()
    told = "a job has no effect: it had it before, or its user is gone"
    await eventually(lambda: bool(stage.server.said(told)), "the zombie to end its job")
    assert runs(zombie)
    api.wait_for_quiet()
    assert learned(api) == ["Lives in Porto"]
    (memory,) = api.all("/memories", "memories")
    assert [each["event"] for each in history_of(api, memory["id"])] == ["created"]


def history_of(api: Api, memory: str) -> list[dict[str, Any]]:
    return [dict(each) for each in api.get(f"/memories/{memory}/history")["events"]]


class other_worker:  # noqa: N801 - a context manager that reads like a function
    """A second `mneme worker` beside the server's own."""

    def __init__(self, server: MnemeServer) -> None:
        self._server = server

    def __enter__(self) -> None:
        self._process = start(["worker"], environment=self._server.environment, folder=self._server.folder)

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)


@pytest.mark.heavy
async def test_an_llm_that_is_away_is_asked_again(stage: ChaosServer, helper: ScriptedUpstream) -> None:
    """Nothing of its answer is told, and no dead letter is left."""
    helper.requests.clear()
    helper.script = reply_json({"error": "canary of the helper"}, "500 Internal Server Error")
    api = say(stage, "away")
    await eventually(lambda: bool(stage.server.said("the helper LLM is away")), "the LLM to fail")
    helper.script = LEARNED
    api.wait_for_quiet()
    assert "canary" not in stage.server.log_text()
    assert learned(api) == ["Lives in Porto"]


@pytest.mark.heavy
async def test_a_job_that_ends_its_worker_each_time_is_held(stage: ChaosServer, helper: ScriptedUpstream) -> None:
    """Hold a job after five tries, such as one that makes its process run out of memory; other jobs are done meanwhile."""
    workers: list[int] = []

    def kill_worker(request: Recorded) -> Reply:
        if "poison" not in request.body.decode():
            return LEARNED
        workers.extend(stage.server.workers)
        os.kill(workers[-1], signal.SIGKILL)
        return Reply([Stall()])

    helper.script = kill_worker
    poison = say(stage, "poison", "My moped runs on poison, by the way.")
    other = say(stage, "beside")
    await asyncio.to_thread(
        wait_until, lambda: bool(poison.get("/queue/dead")["dead"]), "the job to be held", seconds=90
    )
    assert len(set(workers)) == JOB_ATTEMPTS
    (dead,) = poison.get("/queue/dead")["dead"]
    assert (dead["attempts"], dead["error"]) == (JOB_ATTEMPTS, "its worker ended or stood still")
    assert learned(other) == ["Lives in Porto"]
    helper.script = LEARNED
    poison.post(f"/queue/dead/{dead['id']}/retry", {})
    poison.wait_for_quiet()


# --- 11: the listener ----------------------------------------------------------------------------------------------------


LISTENER = r"^(LISTEN|SELECT pg_notify)\M"
"""The last statement of a connection that listens: it began so, or its worker tried whether it still brings anything."""


async def listens(stage: ChaosServer) -> bool:
    return len(await stage.postgres.backends(WORKER, query=LISTENER)) == 1


@pytest.mark.heavy
@pytest.mark.parametrize("how", ["loudly", "silently"])
async def test_a_listener_that_is_lost(stage: ChaosServer, helper: ScriptedUpstream, how: str) -> None:
    """Loudly: its connection is ended. Silently: it stays open, and brings nothing."""
    helper.script = LEARNED
    await until(lambda: listens(stage), "a listener")
    if how == "loudly":
        assert await stage.postgres.terminate_backends(WORKER, query=LISTENER) == 1
    else:
        assert await stage.postgres.freeze_backends(WORKER, query=LISTENER) == 1
    api = say(stage, how)
    # Nothing tells a listener that is found again what it has missed: what is done now was polled.
    wait_until(lambda: learned(api) == ["Lives in Porto"], "the job to be done")
    stage.postgres.thaw()
