"""What becomes of answers that are not whole, or not what they should be."""

from __future__ import annotations

from tests.conformance import samples
from tests.conformance.check_stream import END, SSE_HEAD, streamed
from tests.conformance.checks import OPENAI, TRANSPARENCY, Area, Seen, check, short
from tests.conformance.compare import event_differences, events_of, parsed
from tests.conformance.samples import DONE, EVENTS, FIRST, chunk
from tests.conformance.stage import Exchange, Stage
from tests.support.replies import Fin, Pause, Reply, Rst, Send, head_of

AREA: Area = "broken"

INCOMPLETE = "RFC 9112 §8"
PART = b"".join(EVENTS[:4])
SETTLE_S = 0.1
"""Seconds for what was sent to be passed on before the connection is reset, which may lose what is unread."""


@check("in-band-error", "an error in the middle of a stream arrives as the event that it is", OPENAI)
async def in_band_error(stage: Stage, seen: Seen) -> None:
    error = (
        b'data: {"error": {"message": "Overloaded", "type": "server_error", "param": null, "code": 503, "x": 1.0}}\n\n'
    )
    events = [*EVENTS[:3], error, DONE]
    done = await streamed(stage, "Will it fail midway?", samples.stream(events))
    seen.differs(*event_differences(b"".join(events), done.answered().body))


@check("error-event", "an `event: error` arrives with its name", "WHATWG HTML §9.2")
async def error_event(stage: Stage, seen: Seen) -> None:
    events = [*EVENTS[:3], b'event: error\ndata: {"error": {"message": "gone", "type": "server_error"}}\n\n']
    done = await streamed(stage, "Will it fail by name?", samples.stream(events))
    seen.differs(*event_differences(b"".join(events), done.answered().body))


@check("no-done", "a stream that ends without `[DONE]` ends so")
async def no_done(stage: Stage, seen: Seen) -> None:
    done = await streamed(stage, "Will it say that it is done?", samples.stream(EVENTS[:-1]))
    seen.differs(*event_differences(b"".join(EVENTS[:-1]), done.answered().body))
    seen.equal("end", "whole", done.response.ended)


def _broken_off(seen: Seen, done: Exchange) -> None:
    """What had come has arrived, and the end shows that it is none."""
    seen.differs(*event_differences(PART, done.answered().body))
    if done.response.ended == "whole":
        seen.differs("the answer ends as if it were whole")


@check("cut", "a stream that is cut arrives as far as it came, and does not end as if it were whole", INCOMPLETE)
async def cut(stage: Stage, seen: Seen) -> None:
    _broken_off(seen, await streamed(stage, "Will it be cut?", samples.stream(EVENTS[:4], end=[Fin()])))


@check("reset", "a stream whose connection is reset arrives as far as it came, and does not end well", INCOMPLETE)
async def reset(stage: Stage, seen: Seen) -> None:
    _broken_off(
        seen, await streamed(stage, "Will it be reset?", samples.stream(EVENTS[:4], end=[Pause(SETTLE_S), Rst()]))
    )


@check("short", "an answer shorter than its length is not passed off as whole", INCOMPLETE)
async def short_body(stage: Stage, seen: Seen) -> None:
    head = head_of("200 OK", [samples.JSON, ("content-length", str(len(samples.ANSWER) + 50))])
    done = await stage.exchange(Reply([Send(head + samples.ANSWER), Fin()]), samples.ask("Will you be short?"))
    assert done.request
    if done.response.status == 200 and done.response.ended == "whole":
        seen.differs("the answer ends as if it were whole")


@check("empty-stream", "an empty stream with status 200 arrives as one")
async def empty_stream(stage: Stage, seen: Seen) -> None:
    done = await streamed(stage, "Will it be empty?", samples.chunked_reply(SSE_HEAD, [], END))
    seen.equal("body", b"", done.answered().body)


@check("empty-answer", "an empty body with status 200 arrives as one")
async def empty_answer(stage: Stage, seen: Seen) -> None:
    done = await stage.exchange(samples.plain(b""), samples.ask("Will you say nothing?"))
    seen.equal("body", b"", done.answered().body)


@check("no-json", "a body that is no JSON arrives as it is")
async def no_json(stage: Stage, seen: Seen) -> None:
    body = b"<html>\xff\xfe not JSON</html>"
    done = await stage.exchange(
        samples.plain(body, headers=[("content-type", "text/html")]), samples.ask("Is it JSON?")
    )
    seen.equal("body", body, done.answered().body)
    seen.equal("content-type", "text/html", done.response.header("content-type"))


@check("no-json-event", "an event whose data is no JSON arrives as it is", "WHATWG HTML §9.2")
async def no_json_event(stage: Stage, seen: Seen) -> None:
    events = [FIRST, b"data: upstream says \xc3\xa9 {not json\n\n", *EVENTS[1:]]
    done = await streamed(stage, "Is an event JSON?", samples.stream(events))
    seen.differs(*event_differences(b"".join(events), done.answered().body))


@check("split-utf-8", "a character cut by the end of the answer leaves its bytes", TRANSPARENCY)
async def split_utf_8(stage: Stage, seen: Seen) -> None:
    rest = chunk({"content": "é"}).partition("é".encode())[0] + "é".encode()[:1]
    done = await streamed(stage, "Will a character be cut?", samples.stream([FIRST, rest]))
    got = done.answered().body
    if not got.endswith(rest):
        seen.differs(f"the last bytes are {got[-20:]!r} instead of {rest[-20:]!r}")


@check("long-line", "an event of 10 MB arrives whole")
async def long_line(stage: Stage, seen: Seen) -> None:
    text = "0123456789" * (stage.large // 10)
    big = chunk({"content": text})
    parts = [FIRST, *samples.pieces(big, 256 * 1024), *EVENTS[1:]]
    done = await streamed(stage, "How long is a line?", samples.chunked_reply(SSE_HEAD, parts, END))
    found = [
        each.value for each in events_of(done.answered().body) if each.data is not None and len(each.data) > len(text)
    ]
    texts = [each["choices"][0]["delta"]["content"] == text for each in found if isinstance(each, dict)]
    if texts != [True]:
        seen.differs(f"{len(done.response.body)} bytes, without the event whole")


@check(
    "no-answer", "an upstream that hangs up without an answer is a 502, in OpenAI's shape of errors", "RFC 9110 §15.6.3"
)
async def no_answer(stage: Stage, seen: Seen) -> None:
    done = await stage.exchange(Reply([Fin()]), samples.ask("Will you hang up?"))
    assert done.request
    seen.equal("status", 502, done.response.status)
    _openai_error(seen, done)


@check("no-http", "an upstream that speaks no HTTP is a 502, in OpenAI's shape of errors", "RFC 9110 §15.6.3")
async def no_http(stage: Stage, seen: Seen) -> None:
    done = await stage.exchange(Reply([Send(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), Fin()]), samples.ask("Do you speak HTTP?"))
    assert done.request
    seen.equal("status", 502, done.response.status)
    _openai_error(seen, done)


def _openai_error(seen: Seen, done: Exchange) -> None:
    error = parsed(done.response.body)
    told = error.get("error") if isinstance(error, dict) else None
    if not (isinstance(told, dict) and isinstance(told.get("message"), str) and "type" in told):
        seen.differs(f"no error in OpenAI's shape: {short(done.response.body)}")
