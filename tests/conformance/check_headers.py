"""What becomes of a request's headers."""

from __future__ import annotations

from tests.conformance import samples
from tests.conformance.checks import OPENAI, Area, Run, Seen, add, check
from tests.conformance.stage import Exchange, Lines, Stage
from tests.support.replies import Recorded

AREA: Area = "headers"

SDK = "the OpenAI SDKs, which send them"
PASSED: dict[str, tuple[str, str, Lines]] = {
    "authorization": ("the client's key goes on to the upstream", OPENAI, [("authorization", "Bearer sk-client-1")]),
    "organization": (
        "organisation and project arrive",
        OPENAI,
        [("openai-organization", "org-1"), ("openai-project", "proj_1"), ("openai-beta", "assistants=v2")],
    ),
    "idempotency-key": (
        "`Idempotency-Key` arrives",
        "IETF draft Idempotency-Key; the OpenAI SDKs, which send it",
        [("idempotency-key", "IDEMPOTENCY")],
    ),
    "request-id": ("`X-Client-Request-Id` arrives", OPENAI, [("x-client-request-id", "c0ffee-1")]),
    "stainless": (
        "the SDK's own headers arrive",
        SDK,
        [("x-stainless-lang", "python"), ("x-stainless-retry-count", "0"), ("x-stainless-read-timeout", "600")],
    ),
    "user-agent": ("`User-Agent` is the client's", "RFC 9110 §10.1.5", [("user-agent", "OpenAI/Python 3.1.0")]),
    "accept": ("`Accept` is the client's", "RFC 9110 §12.5.1", [("accept", "application/json")]),
    "content-type": ("`Content-Type` keeps its parameters", "RFC 9110 §8.3", [("content-type", "application/json; charset=utf-8")]),
    "tracing": (
        "the trace's context arrives",
        "W3C Trace Context",
        [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("tracestate", "a=1"), ("baggage", "k=v")],
    ),
    "others": (
        "headers that nobody knows arrive, as they were written",
        "RFC 9110 §5.1",
        [("x-tenant", "Blue; q=\"1\",  two"), ("x-empty", ""), ("anthropic-version", "2023-06-01"), ("cookie", "a=1; b=2")],
    ),
    "utf-8": ("a value in UTF-8 arrives as its bytes", "RFC 9110 §5.5", [("x-author", "José 👋")]),
}  # fmt: skip
"""Name of a check → what is right, where it is written, and the headers that are to arrive."""

NAMES = sorted({name for _, _, lines in PASSED.values() for name, _ in lines} | {"x-twice"})
"""For proxies that want to be told which headers to pass on."""


async def _asked(stage: Stage, text: str, headers: Lines) -> Exchange:
    return await stage.exchange(samples.plain(samples.ANSWER), samples.ask(text), headers=headers)


def values(request: Recorded, name: str) -> list[str]:
    """All values of a header, in their order."""
    return [value.decode() for given, value in request.headers if given.lower() == name.encode()]


def _passed(name: str, lines: Lines) -> Run:
    async def run(stage: Stage, seen: Seen) -> None:
        # Each request is another one, also for proxies that remember.
        given = [
            (each, value.replace("IDEMPOTENCY", f"key-{id(seen)}-{stage.upstream.connections}"))
            for each, value in lines
        ]
        done = await _asked(stage, f"Does {name} pass?", given)
        for header, value in given:
            got = values(done.request, header)
            if got != [value]:
                seen.differs(f"{header}: {' | '.join(got) or 'missing'} instead of {value}")

    return run


for _name, (_right, _source, _lines) in PASSED.items():
    add(AREA, _name, _right, _source, _passed(_name, _lines))


@check("repeated", "a header given twice arrives with both values, in their order", "RFC 9110 §5.3")
async def repeated(stage: Stage, seen: Seen) -> None:
    done = await _asked(stage, "Twice?", [("x-twice", "one"), ("x-twice", "two")])
    got = [part.strip() for value in values(done.request, "x-twice") for part in value.split(",")]
    seen.equal("x-twice", "one, two", ", ".join(got))


@check("hop-by-hop", "what speaks of the client's own connection stays there", "RFC 9110 §7.6.1")
async def hop_by_hop(stage: Stage, seen: Seen) -> None:
    lines = [("connection", "keep-alive, x-hop"), ("x-hop", "1"), ("te", "trailers"), ("keep-alive", "timeout=5")]
    done = await _asked(stage, "What stays behind?", lines)
    for name in ("x-hop", "keep-alive"):
        if values(done.request, name):
            seen.differs(f"{name} went on to the upstream")


@check("host", "`Host` names the upstream", "RFC 9112 §3.2")
async def host(stage: Stage, seen: Seen) -> None:
    done = await _asked(stage, "Who is the host?", [])
    seen.equal("host", f"127.0.0.1:{stage.upstream.port}", ", ".join(values(done.request, "host")))


@check("framing", "the body has a length or comes in chunks, and not both", "RFC 9112 §6.2")
async def framing(stage: Stage, seen: Seen) -> None:
    done = await _asked(stage, "How long am I?", [])
    both = values(done.request, "content-length") + values(done.request, "transfer-encoding")
    seen.equal("lengths", 1, len(both))
    usual = {
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "accept-encoding",
        "authorization",
        "content-type",
    }
    added = {name.decode("latin-1").lower() for name, _ in done.request.headers} - usual
    if added:
        seen.note(f"headers are added: {', '.join(sorted(added))}")
