"""app/features/webhooks/delivery.py against an outbox in memory and receivers on loopback."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest
from msgspec.structs import replace
from pydantic import ValidationError

from app.clock import SystemClock
from app.errors import StoreUnavailable
from app.features.webhooks.delivery import (
    CONCURRENCY,
    FAILURES,
    OPEN_S,
    RETRIES_S,
    Deliverer,
    TargetFigures,
    WaitingMessage,
    WebhookSender,
    body_of,
    signature,
)
from app.settings import Settings
from app.sources import WebhookTarget
from app.store.ids import NIL
from tests.support.jobs import until as holds
from tests.support.replies import Reply, Send, Stall, reply_bytes, reply_json
from tests.support.scripted import ScriptedUpstream

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _nothing_failed(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert "webhooks failed" not in caplog.text


def target(name: str = "crm", url: str = "http://127.0.0.1:1/", **fields: Any) -> WebhookTarget:
    told = {"name": name, "url": url, "secret": SECRET, "events": ["memory.created"], **fields}
    return WebhookTarget.model_validate(told)


def waiting(**fields: Any) -> WaitingMessage:
    told = WaitingMessage(
        UUID(int=1),
        "local",
        UUID(int=2),
        "ana",
        "memory.created",
        UUID(int=3),
        {"kind": "fact", "tier": 3},
        AT,
        1,
        None,
    )
    return replace(told, **fields)


class Memory:
    """An outbox in memory. `refuses`: what becomes of a message cannot be noted."""

    def __init__(self, messages: Mapping[str, Sequence[WaitingMessage]]) -> None:
        self.due = {name: list(each) for name, each in messages.items()}
        self.done: list[tuple[str, str, object]] = []
        self.configured: list[Any] = []
        self.refuses = False

    async def configure(self, targets: Sequence[Any]) -> list[str]:
        before, self.configured = self.configured, list(targets)
        return [each for each in before if each not in targets]

    async def figures(self) -> list[TargetFigures]:
        return [TargetFigures(each, 0, 0, 0, 1, None) for each in self.configured]

    async def claim(self, target: str, limit: int, lease: timedelta, *, text: bool) -> list[WaitingMessage]:
        found, self.due[target] = self.due[target][:limit], self.due[target][limit:]
        return found

    async def delivered(self, target: str, message: WaitingMessage) -> None:
        self._note("delivered", target, None)

    async def later(self, target: str, message: WaitingMessage, wait: timedelta) -> None:
        self._note("later", target, wait.total_seconds())

    async def bury(self, target: str, message: WaitingMessage, error: str) -> None:
        self._note("buried", target, error)

    async def tell_degraded(self, before: datetime, examples: int) -> int:
        return 0

    def _note(self, what: str, target: str, more: object) -> None:
        if self.refuses:
            raise StoreUnavailable
        self.done.append((what, target, more))


@asynccontextmanager
async def delivering(
    outbox: Memory,
    targets: Sequence[WebhookTarget] | None,
    *,
    attempts: int = 10,
    timeout_s: float = 5.0,
    open_s: float = OPEN_S,
) -> AsyncIterator[None]:
    post, stop = WebhookSender(timeout_s), asyncio.Event()
    deliverer = Deliverer(
        outbox,  # type: ignore[arg-type]
        targets,
        post,
        SystemClock(),
        attempts=attempts,
        summary_s=60,
        poll_s=0.01,
        open_s=open_s,
    )
    task = asyncio.get_running_loop().create_task(deliverer.run(stop))
    try:
        yield
    finally:
        stop.set()
        await task
        await post.close()


async def until(outbox: Memory, count: int) -> None:
    await holds(lambda: len(outbox.done) >= count)


# --- what is sent ------------------------------------------------------------------------------------------------------


def test_the_signature_is_that_of_the_specifications_own_example() -> None:
    """The vector that the libraries of Standard Webhooks test themselves with."""
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    made = signature([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_while_a_secret_changes_both_sign() -> None:
    both = target(secret=f"whsec_{base64.b64encode(b'n' * 32).decode()} {SECRET}")
    made = signature(both.keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}').split(" ")
    assert len(made) == 2
    assert made[1] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_message_has_ids_and_text_only_where_it_is_asked_for() -> None:
    told = waiting(text="Ana likes tea")
    assert orjson.loads(body_of(told, text=False)) == {
        "type": "memory.created",
        "timestamp": "2026-03-04T05:06:07+00:00",
        "data": {
            "tenant": "local", "kind": "fact", "tier": 3, "user": "ana", "user_id": str(UUID(int=2)),
            "memory_id": str(UUID(int=3)),
        },
    }  # fmt: skip
    assert orjson.loads(body_of(told, text=True))["data"]["text"] == "Ana likes tea"
    assert orjson.loads(body_of(replace(told, text=None), text=True))["data"]["text"] is None
    of_nobody = replace(told, event="request.degraded", user_id=NIL, user=None, subject=None, data={"requests": 3})
    assert orjson.loads(body_of(of_nobody, text=True))["data"] == {"tenant": "local", "requests": 3}


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "ftp://x/"}, {"url": "http:///path"}, {"url": "http://[::1/"}, {"url": "http://x:99999/"},
        {"secret": "plain"}, {"secret": "whsec_c2hvcnQ="}, {"secret": ""},
        {"secret": "whsec_!!!"}, {"events": []}, {"events": ["memory.dreamt"]}, {"name": "Not a name"}, {"more": 1},
    ],
)  # fmt: skip
def test_targets_that_are_none_are_refused_and_not_quoted(wrong: dict[str, Any]) -> None:
    fields = {"name": "crm", "url": "http://u:hidden@x/", "secret": SECRET, "events": ["job.dead"]} | wrong
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate({"webhooks": [fields]})
    assert SECRET not in str(refused.value)


def test_two_targets_of_one_name_are_refused() -> None:
    with pytest.raises(ValidationError, match="same name"):
        Settings(webhooks=[target(), target()])


# --- how it is sent ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        (reply_json({}, "500 Internal Server Error"), "later"),
        (reply_json({}, "302 Found", [("location", "http://127.0.0.1:1/elsewhere")]), "later"),
        (reply_json({}, "410 Gone"), "buried"),
        (reply_bytes(b"no HTTP at all\r\n\r\n"), "later"),
        (Reply((Send(b"HTTP/1.1 200 OK\r\n"), Stall())), "later"),
    ],
)  # fmt: skip
async def test_what_is_not_taken_waits_and_a_redirect_is_not_followed(reply: Reply, what: str) -> None:
    outbox = Memory({"crm": [waiting()]})
    with ScriptedUpstream(reply) as receiver:
        async with delivering(outbox, [target(url=f"{receiver.url}/hook")], timeout_s=0.3):
            await until(outbox, 1)
        assert len(receiver.requests) == 1
    assert outbox.done[0][0] == what


@pytest.mark.parametrize("attempts", [1, 2, 9])
async def test_each_wait_is_the_specifications(attempts: int) -> None:
    outbox = Memory({"crm": [waiting(attempts=attempts)]})
    async with delivering(outbox, [target()]):
        await until(outbox, 1)
    ((what, _, wait_s),) = outbox.done
    assert what == "later"
    assert wait_s == pytest.approx(RETRIES_S[attempts - 1], rel=0.11)


async def test_a_receiver_may_ask_for_a_longer_wait() -> None:
    outbox = Memory({"crm": [waiting()]})
    with ScriptedUpstream(reply_json({}, "429 Too Many Requests", [("retry-after", "77")])) as receiver:
        async with delivering(outbox, [target(url=receiver.url)]):
            await until(outbox, 1)
    assert outbox.done == [("later", "crm", 77.0)]


async def test_after_its_last_try_it_is_a_dead_letter_that_quotes_nothing() -> None:
    outbox = Memory({"crm": [waiting(attempts=3)]})
    with ScriptedUpstream(reply_json({"secret": "words"}, "500 Internal Server Error")) as receiver:
        async with delivering(outbox, [target(url=receiver.url)], attempts=3):
            await until(outbox, 1)
    assert outbox.done == [("buried", "crm", "The receiver answered 500.")]


async def test_a_slow_target_holds_back_no_other() -> None:
    outbox = Memory({"slow": [waiting() for _ in range(20)], "quick": [waiting() for _ in range(20)]})
    with ScriptedUpstream(Reply((Stall(),))) as stuck, ScriptedUpstream(reply_json({})) as receiver:
        targets = [target("slow", stuck.url), target("quick", receiver.url)]
        async with delivering(outbox, targets, timeout_s=1.0):
            await until(outbox, 20)
            assert [each[1] for each in outbox.done[:20]] == ["quick"] * 20
            assert len(stuck.requests) <= 4, "no more at once"


async def test_a_target_that_is_away_is_left_alone_and_found_again() -> None:
    outbox = Memory({"crm": [waiting(message_id=uuid4()) for _ in range(40)]})
    with ScriptedUpstream(reply_json({}, "500 Internal Server Error")) as receiver:
        async with delivering(outbox, [target(url=receiver.url)]):
            await holds(lambda: len(outbox.done) >= FAILURES)
            left = len(outbox.due["crm"])
        assert left == len(outbox.due["crm"]) >= 40 - FAILURES - CONCURRENCY, "nobody was asked while it was left alone"
        receiver.script = reply_json({})
        async with delivering(outbox, [target(url=receiver.url)], open_s=0.05):
            await holds(lambda: not outbox.due["crm"] and len(outbox.done) == 40)
    assert [what for what, _, _ in outbox.done].count("delivered") == left


async def test_a_target_that_came_back_is_found_by_one_message() -> None:
    outbox = Memory({"crm": [waiting(message_id=uuid4()) for _ in range(40)]})
    with ScriptedUpstream(reply_json({}, "500 Internal Server Error")) as receiver:
        async with delivering(outbox, [target(url=receiver.url)], open_s=0.1):
            await holds(lambda: len(outbox.done) >= FAILURES)
            receiver.script = reply_json({})
            await holds(lambda: len(outbox.done) == 40)


async def test_what_cannot_be_noted_is_left_to_its_lease() -> None:
    outbox = Memory({"crm": [waiting(), waiting()]})
    outbox.refuses = True
    with ScriptedUpstream(reply_json({})) as receiver:
        async with delivering(outbox, [target(url=receiver.url)]):
            await holds(lambda: len(receiver.requests) == 2)
            outbox.refuses = False
            outbox.due["crm"] = [waiting()]
            await until(outbox, 1)


async def test_with_an_empty_list_nobody_is_told_any_more(caplog: pytest.LogCaptureFixture) -> None:
    outbox = Memory({})
    outbox.configured = ["before"]
    async with delivering(outbox, []):
        await holds(lambda: outbox.configured == [])
    (record,) = caplog.records
    assert (record.levelname, vars(record)["targets"]) == ("WARNING", ["before"])


async def test_a_worker_without_the_setting_takes_nobody_away_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    outbox = Memory({})
    outbox.configured = ["before"]
    async with delivering(outbox, None):
        await holds(lambda: bool(caplog.records))
    assert outbox.configured == ["before"]
    (record,) = caplog.records
    assert (record.levelname, vars(record)["targets"]) == ("WARNING", ["before"])
    assert "MNEME_WEBHOOKS is not set" in record.message
