"""Attempts, fallbacks and breakers over real sockets: what each upstream was asked, and what the caller got."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry

from app.clock import SystemClock
from app.errors import UpstreamSuspended, UpstreamTimeout, UpstreamUnreachable
from app.gateway.forward import BREAKER_FAILURES, Outgoing, RetryPolicy, Sender
from app.gateway.relay import collect
from app.gateway.transport import AiohttpTransport
from app.gateway.upstream import Router, Target, UpstreamRequest, UpstreamResponse
from app.metrics import Metrics
from app.settings import Settings
from tests.support.replies import Fin, Pause, Reply, Rst, Send, Stall, Step, head_of, reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.sockets import eventually

QUICK: dict[str, Any] = {"first_wait_s": 0.001, "longest_wait_s": 0.05}
LIMIT = 10_000


def closed_port() -> str:
    """The base URL of a port where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}/v1"


def refusal(status: str, retry_after: str | None = None) -> Reply:
    headers = [("retry-after", retry_after)] if retry_after is not None else []
    return reply_json({"error": status}, status, headers)


@dataclass
class Bench:
    """A sender in front of some upstreams: the first is asked, the others are its fallbacks, in order."""

    transport: AiohttpTransport
    urls: Sequence[str]
    retry: dict[str, Any] = field(default_factory=dict)
    """Fields of `RetryPolicy`."""
    failures: int = BREAKER_FAILURES
    """How many in a row open a breaker."""
    now: float = 0.0

    def __post_init__(self) -> None:
        names = [f"u{i}" for i in range(len(self.urls))]
        routes: list[dict[str, Any]] = [
            {"name": name, "base_url": url, "models": ["*"], "aliases": {"m": f"m-of-{name}"}}
            for name, url in zip(names, self.urls, strict=True)
        ]
        routes[0]["fallbacks"] = names[1:]
        self.registry = CollectorRegistry()
        settings = Settings(_env_file=None, upstreams=routes)
        self.router = Router.from_settings(settings)
        self.sender = Sender(
            {False: self.transport, True: self.transport},
            self.router,
            Metrics(self.registry),
            SystemClock(),
            retry=RetryPolicy(**QUICK | self.retry),
            breaker_failures=self.failures,
            now=lambda: self.now,
            chance=lambda: 0.5,
        )
        self.asked: list[str] = []

    def outgoing(self, model: str | None = "m", body: bytes | AsyncIterator[bytes] = b"{}") -> Outgoing:
        def build(target: Target) -> UpstreamRequest:
            self.asked.append(target.name)
            return UpstreamRequest("POST", target.url(b"/v1/x", b""), [], body)

        return Outgoing(UUID(int=1), self.router.route(model), model, build, isinstance(body, bytes))

    async def send(self, outgoing: Outgoing | None = None) -> tuple[str, UpstreamResponse, Outgoing]:
        outgoing = outgoing or self.outgoing()
        target, response = await self.sender.send(outgoing)
        return target.name, response, outgoing

    async def status(self) -> tuple[str, int, int]:
        """Who answered with what, after how many attempts."""
        name, response, outgoing = await self.send()
        await collect(response, LIMIT)
        return name, response.status, outgoing.attempts

    def counted(self, upstream: str, result: str) -> float:
        labels = {"upstream": upstream, "result": result}
        return self.registry.get_sample_value("mneme_upstream_attempts_total", labels) or 0.0

    def breaker(self, upstream: str = "u0") -> float | None:
        return self.registry.get_sample_value("mneme_upstream_breaker", {"upstream": upstream})


@pytest.fixture
async def transport() -> AsyncIterator[AiohttpTransport]:
    async with aclosing(AiohttpTransport(connect_timeout_s=5, head_timeout_s=5, idle_timeout_s=5)) as opened:
        yield opened


@pytest.fixture
def upstreams() -> Any:
    running: list[ScriptedUpstream] = []

    def start(script: Any) -> ScriptedUpstream:
        running.append(ScriptedUpstream(script).__enter__())
        return running[-1]

    yield start
    for each in running:
        each.__exit__(None, None, None)


Start = Callable[[Any], ScriptedUpstream]

# --- by default an answer is an answer --------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["429 Too Many Requests", "500 Oops", "502 Bad Gateway", "503 Busy", "400 No"])
async def test_by_default_every_answer_passes(transport: AiohttpTransport, upstreams: Start, status: str) -> None:
    up = upstreams(refusal(status, "0"))
    bench = Bench(transport, [up.url])
    name, response, outgoing = await bench.send()
    assert (name, response.status, outgoing.attempts) == ("u0", int(status[:3]), 1)
    assert (b"retry-after", b"0") in response.headers
    assert await collect(response, LIMIT) == b'{"error": "%s"}' % status.encode()
    assert len(up.requests) == 1
    assert bench.counted("u0", "answered") == 1


@pytest.mark.parametrize("last", [Fin(), Rst()])
async def test_by_default_a_fresh_connection_that_dies_is_not_replaced(
    transport: AiohttpTransport, upstreams: Start, last: Step
) -> None:
    up = upstreams(Reply([last]))
    bench = Bench(transport, [up.url])
    with pytest.raises(UpstreamUnreachable):
        await bench.send()
    assert len(up.requests) == 1
    assert bench.counted("u0", "unreachable") == 1


@pytest.mark.parametrize("last", [Fin(), Rst()])
async def test_a_kept_connection_that_died_is_replaced_and_that_is_seen(
    transport: AiohttpTransport, upstreams: Start, last: Step
) -> None:
    up = upstreams([reply_json(1), Reply([last]), reply_json(2)])
    bench = Bench(transport, [up.url])
    assert await bench.status() == ("u0", 200, 1)
    assert await bench.status() == ("u0", 200, 2)
    assert bench.counted("u0", "stale") == 1
    assert bench.breaker() == 0


async def test_a_half_closed_connection_is_not_used_again(transport: AiohttpTransport, upstreams: Start) -> None:
    up = upstreams(reply_json(1))
    bench = Bench(transport, [up.url])
    await bench.status()
    up.close_idle()
    await eventually(lambda: up.open_connections == 0)
    assert (await bench.status())[:2] == ("u0", 200)
    assert up.connections == 2


async def test_what_breaks_in_its_body_is_never_sent_again(transport: AiohttpTransport, upstreams: Start) -> None:
    half = Reply([Send(head_of("200 OK", [("content-length", "9")]) + b"half"), Pause(0.05), Rst()])
    up, other = upstreams(half), upstreams(reply_json(1))
    bench = Bench(transport, [up.url, other.url], {"attempts": 5})
    name, response, outgoing = await bench.send()
    assert await collect(response, LIMIT) == b"half"
    assert (name, outgoing.attempts, len(up.requests), len(other.requests)) == ("u0", 1, 1, 0)


# --- attempts -----------------------------------------------------------------------------------------------------------


async def test_a_listed_status_is_tried_again(transport: AiohttpTransport, upstreams: Start) -> None:
    up = upstreams([refusal("429 Slow"), refusal("503 Busy", "0.01"), reply_json("ok")])
    bench = Bench(transport, [up.url], {"attempts": 3})
    assert await bench.status() == ("u0", 200, 3)
    assert [each.body for each in up.requests] == [b"{}"] * 3
    assert (bench.counted("u0", "refused"), bench.counted("u0", "answered")) == (2, 1)


async def test_the_last_refusal_is_the_answer(transport: AiohttpTransport, upstreams: Start) -> None:
    up = upstreams([refusal("429 One"), refusal("429 Two")])
    bench = Bench(transport, [up.url], {"attempts": 2})
    _, response, _ = await bench.send()
    assert await collect(response, LIMIT) == b'{"error": "429 Two"}'
    assert bench.counted("u0", "answered") == 1


@pytest.mark.parametrize(
    ("script", "answered"),
    [
        (refusal("500 Oops"), ("u0", 500, 1)),  # no status that is listed
        (refusal("429 Slow", "3600"), ("u0", 429, 1)),  # beyond our patience
        ([Reply([Rst()]), Reply([Fin()]), reply_json(1)], ("u0", 200, 3)),
    ],
)
async def test_what_is_tried_again_where_attempts_are_allowed(
    transport: AiohttpTransport, upstreams: Start, script: Any, answered: tuple[str, int, int]
) -> None:
    assert await Bench(transport, [upstreams(script).url], {"attempts": 3}).status() == answered


async def test_a_body_that_streams_is_sent_once(transport: AiohttpTransport, upstreams: Start) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"once"

    up, other = upstreams(refusal("503 Busy", "0")), upstreams(reply_json(1))
    bench = Bench(transport, [up.url, other.url], {"attempts": 3})
    name, response, outgoing = await bench.send(bench.outgoing(body=body()))
    await collect(response, LIMIT)
    assert (name, response.status, outgoing.attempts) == ("u0", 503, 1)


@pytest.mark.parametrize("where", ["back-off", "head", "fallback"])
async def test_whoever_cancels_cancels_all_of_it(transport: AiohttpTransport, upstreams: Start, where: str) -> None:
    first = refusal("503 Busy") if where != "head" else Reply([Stall()])
    up, other = upstreams(first), upstreams(Reply([Stall()]))
    settings = {"attempts": 2 if where == "back-off" else 1, "first_wait_s": 600.0, "longest_wait_s": 600.0}
    bench = Bench(transport, [up.url, other.url], settings)
    waiting_for = other if where == "fallback" else up
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.send())
        await eventually(lambda: len(waiting_for.requests) == 1)
        if where == "back-off":
            await eventually(lambda: bench.counted("u0", "refused") == 1)
        task.cancel()
    if where != "back-off":
        await eventually(waiting_for.requests[0].peer_closed.is_set)
    assert len(up.requests) == 1
    assert bench.breaker() == 0, "a client that goes is no failure of the upstream's"


# --- fallbacks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first", [refusal("429 Slow", "1"), refusal("502 Bad"), Reply([Rst()]), Reply([Send(b"nonsense\r\n\r\n"), Fin()])]
)
async def test_the_next_one_answers(transport: AiohttpTransport, upstreams: Start, first: Reply) -> None:
    up, other = upstreams(first), upstreams(reply_json("other"))
    bench = Bench(transport, [up.url, other.url])
    target, response = await bench.sender.send(bench.outgoing())
    assert (target.name, target.model_alias, target.stands_in) == ("u1", "m-of-u1", True)
    assert await collect(response, LIMIT) == b'"other"'
    assert (len(up.requests), len(other.requests)) == (1, 1)


ENDLESS = Reply([Send(head_of("503 Busy", [("transfer-encoding", "chunked")])), Stall()])


@pytest.mark.parametrize("attempts", [1, 2])
async def test_an_answer_that_does_not_stand_is_let_go(
    transport: AiohttpTransport, upstreams: Start, attempts: int
) -> None:
    up, other = upstreams(ENDLESS), upstreams(reply_json(1))
    bench = Bench(transport, [up.url, other.url], {"attempts": attempts})
    assert await bench.status() == ("u1", 200, attempts + 1)
    await eventually(lambda: up.open_connections == 0)


async def test_an_answer_that_is_held_is_let_go_when_nobody_waits_any_more(
    transport: AiohttpTransport, upstreams: Start
) -> None:
    up, other = upstreams(ENDLESS), upstreams(Reply([Stall()]))
    bench = Bench(transport, [up.url, other.url])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.send())
        await eventually(lambda: len(other.requests) == 1)
        assert up.open_connections == 1, "should the fallback fail, this is the answer"
        task.cancel()
    await eventually(lambda: up.open_connections == other.open_connections == 0)


async def test_a_chain_is_followed_in_order(transport: AiohttpTransport, upstreams: Start) -> None:
    ups = [upstreams(refusal("503 Busy")), upstreams(Reply([Fin()])), upstreams(reply_json(3))]
    bench = Bench(transport, [closed_port(), *(each.url for each in ups)])
    assert await bench.status() == ("u3", 200, 4)
    assert bench.asked == ["u0", "u1", "u2", "u3"]
    assert (bench.counted("u0", "unreachable"), bench.counted("u1", "refused")) == (1, 1)
    assert (bench.counted("u2", "unreachable"), bench.counted("u3", "answered")) == (1, 1)


async def test_an_answer_beats_an_error(transport: AiohttpTransport, upstreams: Start) -> None:
    up = upstreams(refusal("429 Slow", "7"))
    bench = Bench(transport, [up.url, closed_port()])
    name, response, _ = await bench.send()
    assert (name, response.status) == ("u0", 429)
    assert (b"retry-after", b"7") in response.headers
    assert await collect(response, LIMIT) == b'{"error": "429 Slow"}', "held open, and whole"


async def test_if_nobody_answers_the_first_ones_failure_is_told(transport: AiohttpTransport) -> None:
    first = closed_port()
    with pytest.raises(UpstreamUnreachable, match=first.split(":")[2].split("/")[0]):
        await Bench(transport, [first, closed_port()]).send()


async def test_what_names_no_model_stays_where_it_is(transport: AiohttpTransport, upstreams: Start) -> None:
    up, other = upstreams(refusal("503 Busy")), upstreams(reply_json(1))
    bench = Bench(transport, [up.url, other.url])
    name, response, _ = await bench.send(bench.outgoing(model=None))
    await collect(response, LIMIT)
    assert (name, response.status, len(other.requests)) == ("u0", 503, 0)


async def test_no_head_in_time_leads_to_the_next_one(upstreams: Start) -> None:
    up, other = upstreams(Reply([Stall()])), upstreams(reply_json(1))
    async with aclosing(AiohttpTransport(connect_timeout_s=5, head_timeout_s=0.05, idle_timeout_s=5)) as transport:
        bench = Bench(transport, [up.url, other.url], {"attempts": 3})
        assert await bench.status() == ("u1", 200, 2)
        assert bench.counted("u0", "timeout") == 1


# --- breakers -----------------------------------------------------------------------------------------------------------


async def test_a_breaker_opens_and_closes(transport: AiohttpTransport, upstreams: Start) -> None:
    up = upstreams(Reply([Rst()]))
    bench = Bench(transport, [up.url], failures=2)
    assert bench.breaker() == 0
    for _ in range(2):
        with pytest.raises(UpstreamUnreachable):
            await bench.send()
    assert bench.breaker() == 2
    bench.now = 1.5
    with pytest.raises(UpstreamSuspended) as suspended:
        await bench.send()
    assert (suspended.value.status, suspended.value.retry_after_s) == (503, 4)
    assert suspended.value.body()["error"]["code"] == "upstream_suspended"
    assert len(up.requests) == 2, "not asked at all"
    assert bench.counted("u0", "suspended") == 1
    bench.now = 5.0
    with pytest.raises(UpstreamUnreachable):
        await bench.send()
    assert (bench.breaker(), len(up.requests)) == (2, 3)
    up.script = reply_json(1)
    bench.now = 10.0
    assert await bench.status() == ("u0", 200, 1)
    assert bench.breaker() == 0


async def test_while_it_is_half_open_one_request_goes(transport: AiohttpTransport, upstreams: Start) -> None:
    up = upstreams(Reply([Rst()]))
    bench = Bench(transport, [up.url], failures=1)
    with pytest.raises(UpstreamUnreachable):
        await bench.send()
    bench.now, up.script = 5.0, Reply([Stall()])
    async with asyncio.TaskGroup() as group:
        trial = group.create_task(bench.send())
        await eventually(lambda: len(up.requests) == 2)
        assert bench.breaker() == 1
        with pytest.raises(UpstreamSuspended):
            await bench.send()
        trial.cancel()
    bench.now, up.script = 10.0, reply_json(1)
    assert await bench.status() == ("u0", 200, 1), "a trial that was cancelled blocks nobody"


async def test_an_answer_is_no_failure_whatever_it_says(transport: AiohttpTransport, upstreams: Start) -> None:
    up = upstreams([refusal("429 Slow"), refusal("500 Oops"), refusal("503 Busy"), refusal("400 No")])
    bench = Bench(transport, [up.url], failures=1)
    for status in (429, 500, 503, 400):
        assert (await bench.status())[1] == status
    assert bench.breaker() == 0


async def test_time_outs_open_it_too(upstreams: Start) -> None:
    up = upstreams(Reply([Stall()]))
    async with aclosing(AiohttpTransport(connect_timeout_s=5, head_timeout_s=0.05, idle_timeout_s=5)) as transport:
        bench = Bench(transport, [up.url], failures=1)
        with pytest.raises(UpstreamTimeout):
            await bench.send()
        with pytest.raises(UpstreamSuspended):
            await bench.send()


async def test_an_open_one_leads_to_the_fallback_at_once(transport: AiohttpTransport, upstreams: Start) -> None:
    up, other = upstreams(Reply([Rst()])), upstreams(reply_json(1))
    bench = Bench(transport, [up.url, other.url], failures=1)
    assert await bench.status() == ("u1", 200, 2)
    assert await bench.status() == ("u1", 200, 1)
    assert len(up.requests) == 1


async def test_a_breaker_that_opens_between_attempts_ends_them(transport: AiohttpTransport, upstreams: Start) -> None:
    up = upstreams(Reply([Rst()]))
    bench = Bench(transport, [up.url], {"attempts": 5}, failures=2)
    with pytest.raises(UpstreamUnreachable):
        await bench.send()
    assert len(up.requests) == 2


async def test_it_can_be_switched_off(transport: AiohttpTransport) -> None:
    bench = Bench(transport, [closed_port()], failures=0)
    for _ in range(8):
        with pytest.raises(UpstreamUnreachable):
            await bench.send()
    assert bench.breaker() == 0
