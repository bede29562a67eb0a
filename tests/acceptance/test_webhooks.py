"""Webhooks of the real command: to the receiver that docs/how-to/webhooks.md shows, and to one that fails."""

from __future__ import annotations

import ast
import json
import os
import re
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.features.webhooks.delivery import signature
from app.sources import WebhookTarget
from tests.support.clients import ask, user
from tests.support.ports import free_port
from tests.support.replies import reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.server import START_S, MnemeServer, wait_until

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "webhooks.md"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
EVENTS = ["memory.created", "memory.forgotten", "memory.superseded", "user.erased"]


class Documented:
    """The receiver of the page, as it stands there."""

    def __init__(self, said: Path) -> None:
        (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        self.port = free_port()
        self._said = said
        environment = os.environ | {"WEBHOOK_SECRET": SECRET, "PORT": str(self.port)}
        with said.open("w") as out:
            self._process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=out)
        # Whom it finds away, the server leaves alone for a while.
        wait_until(self._listens, "the receiver to listen", START_S)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks"

    def _listens(self) -> bool:
        assert self._process.poll() is None, "the receiver has ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def told(self) -> list[tuple[str, dict[str, Any]]]:
        """All messages so far."""
        *lines, _ = self._said.read_text().split("\n")
        told = [line.partition(" ") for line in lines]
        return [(event, ast.literal_eval(data)) for event, _, data in told]

    def wait_for(self, event: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = []

        def there() -> bool:
            found[:] = [data for name, data in self.told() if name == event]
            return bool(found)

        wait_until(there, f"{event} among {self._said.read_text()}")
        return found[-1]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Documented]:
    documented = Documented(tmp_path_factory.mktemp("receiver") / "said")
    yield documented
    documented.close()


@pytest.fixture(scope="module")
def broken() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream(reply_json({}, "410 Gone")) as upstream:
        yield upstream


WORKER = True


@pytest.fixture(scope="module")
def settings(receiver: Documented, broken: ScriptedUpstream) -> dict[str, str]:
    targets = [
        {"name": "crm", "url": receiver.url, "secret": SECRET, "events": EVENTS, "text": True},
        {"name": "broken", "url": broken.url, "secret": SECRET, "events": ["memory.created"]},
    ]
    return {"WEBHOOKS": json.dumps(targets)}


@pytest.fixture(scope="module")
def created(mneme: MnemeServer, receiver: Documented) -> dict[str, Any]:
    """Return what the receiver is told of a memory of ana's, so that each test runs without the others."""
    wait_until(lambda: 'target="crm"' in mneme.http.get("/metrics").text, "the worker to name the targets")
    ask(mneme, [user("My sister's name is Ottilie.")], headers={"x-mneme-user": "ana"})
    return receiver.wait_for("memory.created")


def test_what_is_learned_and_forgotten_is_told(
    mneme: MnemeServer, receiver: Documented, created: dict[str, Any]
) -> None:
    assert created["user"] == "ana"
    assert created["tenant"] == "local"
    assert "Ottilie" in created["text"]
    gone = mneme.http.delete(f"/api/v1/memories/{created['memory_id']}", headers={"x-mneme-user": "ana"})
    assert gone.status_code in (200, 204)
    forgotten = receiver.wait_for("memory.forgotten")
    assert (forgotten["memory_id"], forgotten["text"]) == (created["memory_id"], None)


def test_a_target_that_fails_ends_in_the_queues_dead_letters_and_is_tried_again(
    mneme: MnemeServer, broken: ScriptedUpstream, created: dict[str, Any]
) -> None:
    def dead() -> list[dict[str, Any]]:
        return [each for each in mneme.http.get("/api/v1/queue/dead").json()["dead"] if each["entrypoint"] == "webhook"]

    wait_until(lambda: bool(dead()), "a dead letter")
    letter = dead()[0]
    assert letter["error"] == "The receiver answered 410."
    assert letter["payload"]["target"] == "broken"
    metrics = mneme.http.get("/metrics").text
    assert re.search(r'mneme_webhooks\{target="broken",what="dead"\} [1-9]', metrics)
    assert re.search(r'mneme_webhooks\{target="crm",what="delivered"\} [1-9]', metrics)
    doctor = mneme.command("doctor").stdout
    assert re.search(r"The webhook broken: 0 delivered, \d+ waiting, [1-9]", doctor)
    broken.script = reply_json({})
    sent = len(broken.requests)
    assert mneme.http.post(f"/api/v1/queue/dead/{letter['id']}/retry").status_code == 200
    broken.wait_until(lambda: len(broken.requests) > sent, "another try")
    again, first = broken.requests[-1], broken.requests[0]
    assert again.header("webhook-id") == first.header("webhook-id")
    assert b"Ottilie" not in first.body + again.body


def test_an_erased_user_is_told_by_id(mneme: MnemeServer, receiver: Documented, created: dict[str, Any]) -> None:
    done = mneme.command("erase", "--tenant", "local", "--user", "ana")
    assert done.returncode == 0, done.stderr
    told = receiver.wait_for("user.erased")
    assert told["user_id"] == created["user_id"]
    assert "user" not in told
    # As docs/how-to/webhooks.md finds whom it is about.
    assert str(uuid.uuid5(uuid.UUID(told["tenant_id"]), "user\0ana")) == told["user_id"]


def test_the_documented_receiver_refuses_what_is_not_signed(receiver: Documented) -> None:
    (key,) = WebhookTarget(name="x", url="http://x/", secret=SECRET, events=["job.dead"]).keys
    body, now = b'{"type": "forged", "data": {}}', int(time.time())

    def sent(at: int, signed: str) -> int:
        headers = {"webhook-id": "msg_1", "webhook-timestamp": str(at), "webhook-signature": signed}
        return httpx.post(receiver.url, content=body, headers=headers, trust_env=False).status_code

    assert sent(now, signature([b"x" * 32], "msg_1", now, body)) == 401
    assert sent(now, "") == 401
    assert sent(now - 400, signature([key], "msg_1", now - 400, body)) == 401
    assert "forged" not in {event for event, _ in receiver.told()}
    assert sent(now, signature([b"o" * 32, key], "msg_1", now, body)) == 204
    assert sent(now, signature([key], "msg_1", now, body)) == 204
    receiver.wait_for("forged")
    assert [event for event, _ in receiver.told()].count("forged") == 1


def test_neither_secrets_nor_urls_are_logged(mneme: MnemeServer, receiver: Documented) -> None:
    logged = mneme.log_text()
    assert SECRET not in logged
    assert receiver.url not in logged
