"""HTTP's own matters."""

from __future__ import annotations

from tests.conformance import samples
from tests.conformance.checks import OPENAI, Area, Seen, check
from tests.conformance.compare import differences, parsed
from tests.conformance.stage import CHAT, UPSTREAM_PREFIX, Stage, final
from tests.support.replies import Reply, Send, chunked, head_of

AREA: Area = "http"


@check("query", "a query string arrives as it was written", "RFC 9110 §4.2.2; RFC 3986 §6")
async def query(stage: Stage, seen: Seen) -> None:
    asked = "?api-version=2024-10-21&a=x%2Fy+z&b=%C3%A9&c&limit=2&a=again"
    done = await stage.exchange(samples.plain(b"{}"), path=f"/files{asked}", method="GET")
    seen.equal("target", f"{UPSTREAM_PREFIX}/files{asked}", done.request.target)


@check("chat-query", "a query string of a chat request does, too", "RFC 9110 §4.2.2")
async def chat_query(stage: Stage, seen: Seen) -> None:
    path = f"{CHAT}?api-version=2024-10-21"
    done = await stage.exchange(samples.plain(samples.ANSWER), samples.ask("Which version?"), path=path)
    seen.equal("target", UPSTREAM_PREFIX + path, done.request.target)


@check("escapes", "percent-encoded paths arrive as they were written", "RFC 3986 §2.2")
async def escapes(stage: Stage, seen: Seen) -> None:
    path = "/models/org%2Ftiny%3Av1"
    done = await stage.exchange(samples.plain(b'{"id": "org/tiny:v1"}'), path=path, method="GET")
    seen.equal("target", UPSTREAM_PREFIX + path, done.request.target)


@check("head", "HEAD is answered with the upstream's headers and no body", "RFC 9110 §9.3.2")
async def head(stage: Stage, seen: Seen) -> None:
    lines = [("content-type", "application/octet-stream"), ("content-length", "1234"), ("etag", '"e1"')]
    done = await stage.exchange(Reply([Send(head_of("200 OK", lines))]), path="/files/file-1/content", method="HEAD")
    seen.equal("method", "HEAD", done.request.method)
    for name, value in lines:
        seen.equal(name, value, done.answered().header(name))


@check("options", "OPTIONS reaches the upstream, whose answer it is", "RFC 9110 §9.3.7")
async def options(stage: Stage, seen: Seen) -> None:
    reply = Reply([Send(head_of("204 No Content", [("allow", "POST, OPTIONS"), ("x-from", "upstream")]))])
    done = await stage.exchange(reply, path=CHAT, method="OPTIONS")
    seen.equal("method", "OPTIONS", done.request.method)
    seen.equal("allow", "POST, OPTIONS", done.answered(204).header("allow"))


@check("methods", "PUT, PATCH and DELETE reach the upstream", "RFC 9110 §9.1")
async def methods(stage: Stage, seen: Seen) -> None:
    for method in ("PUT", "PATCH", "DELETE"):
        body = b"" if method == "DELETE" else b'{"metadata": {"a": 1.0}}'
        done = await stage.exchange(samples.plain(b'{"ok": true}'), body, path="/x/items/1", method=method)
        if not done.requests or done.response.status != 200:
            seen.differs(f"{method} is answered with {done.response.status}")
        else:
            seen.equal(f"{method} body", body, done.request.body)


@check("no-content", "204 arrives without a body", "RFC 9110 §15.3.5")
async def no_content(stage: Stage, seen: Seen) -> None:
    reply = Reply([Send(head_of("204 No Content", [("x-request-id", "req_204")]))])
    done = await stage.exchange(reply, path="/x/items/2", method="DELETE")
    seen.equal("x-request-id", "req_204", done.answered(204).header("x-request-id"))
    seen.equal("content-length", None, done.response.header("content-length"))


@check("not-modified", "304 arrives, and so does what asked for it", "RFC 9110 §15.4.5")
async def not_modified(stage: Stage, seen: Seen) -> None:
    reply = Reply([Send(head_of("304 Not Modified", [("etag", '"e1"')]))])
    done = await stage.exchange(
        reply, path="/files/file-2/content", method="GET", headers=[("if-none-match", '"e1"'), ("accept", "*/*")]
    )
    seen.equal("if-none-match", '"e1"', done.request.header("if-none-match"))
    seen.equal("etag", '"e1"', done.answered(304).header("etag"))


@check("range", "a range is the upstream's to serve", "RFC 9110 §14.2")
async def ranges(stage: Stage, seen: Seen) -> None:
    lines = [("content-type", "application/octet-stream"), ("content-range", "bytes 2-5/10")]
    done = await stage.exchange(
        samples.plain(b"cdef", "206 Partial Content", lines),
        path="/files/file-3/content", method="GET", headers=[("range", "bytes=2-5")],
    )  # fmt: skip
    seen.equal("range", "bytes=2-5", done.request.header("range"))
    seen.equal("body", b"cdef", done.answered(206).body)
    seen.equal("content-range", "bytes 2-5/10", done.response.header("content-range"))


@check(
    "redirect", "a redirect is passed on, not followed: the credentials are for this upstream alone", "RFC 9110 §15.4"
)
async def redirect(stage: Stage, seen: Seen) -> None:
    lines = [samples.JSON, ("location", "http://127.0.0.1:9/v1/elsewhere")]
    done = await stage.exchange(samples.plain(b"{}", "307 Temporary Redirect", lines), samples.ask("Where to?"))
    seen.equal("location", lines[1][1], done.answered(307).header("location"))


@check("created", "other statuses of success arrive as they are", "RFC 9110 §15.3")
async def created(stage: Stage, seen: Seen) -> None:
    done = await stage.exchange(samples.plain(b'{"id": "b"}', "201 Created"), b'{"a": 1}', path="/x/items")
    seen.equal("status", 201, done.response.status)


@check("trailers", "trailers do no harm: the answer before them is whole", "RFC 9110 §6.5")
async def trailers(stage: Stage, seen: Seen) -> None:
    lines = [samples.JSON, ("transfer-encoding", "chunked"), ("trailer", "x-sum")]
    reply = Reply([Send(head_of("200 OK", lines)), Send(chunked(samples.ANSWER)), Send(b"0\r\nx-sum: 1\r\n\r\n")])
    done = await stage.exchange(reply, samples.ask("Is there more behind?"))
    seen.differs(*differences(parsed(samples.ANSWER), parsed(done.answered().body)))
    seen.equal("end", "whole", done.response.ended)


@check("early-hints", "answers that only announce one do no harm", "RFC 9110 §15.2")
async def early_hints(stage: Stage, seen: Seen) -> None:
    hint = head_of("103 Early Hints", [("link", "</style.css>; rel=preload")])
    body = samples.ANSWER
    whole = head_of("200 OK", [samples.JSON, ("content-length", str(len(body)))]) + body
    done = await stage.exchange(Reply([Send(hint), Send(whole)]), samples.ask("Any hint?"))
    seen.differs(*differences(parsed(body), parsed(done.answered().body)))


@check("expect", "a client that waits for `100 Continue` is answered", "RFC 9110 §10.1.1")
async def expect(stage: Stage, seen: Seen) -> None:
    stage.play(samples.plain(samples.ANSWER), CHAT, "POST")
    body = stage.body(samples.ask("May I go on?"))
    async with stage.client() as client:
        lines = stage.lines([("expect", "100-continue"), ("content-length", str(len(body)))], json_body=True)
        await client.send("POST", stage.way.prefix + CHAT, lines)
        first = await client.response("POST")
        seen.equal("first status", 100, first.status)
        if first.status == 100:
            await client.write(body)
            seen.equal("status", 200, (await final(client, "POST")).status)


@check("keep-alive", "a connection serves one request after the other", "RFC 9112 §9.3")
async def keep_alive(stage: Stage, seen: Seen) -> None:
    stage.play(samples.plain(samples.ANSWER), CHAT, "POST")
    async with stage.client() as client:
        for text in ("First?", "Second?"):
            lines = stage.lines([], json_body=True)
            await client.send("POST", stage.way.prefix + CHAT, lines, stage.body(samples.ask(text)))
            seen.equal(f"status of {text}", 200, (await client.response("POST")).status)


@check(
    "upgrade", "an offer to speak HTTP/2 may be ignored, the body may not (Java's own client makes it)", "RFC 9110 §7.8"
)
async def upgrade(stage: Stage, seen: Seen) -> None:
    offer = [("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c"), ("http2-settings", "AAEAAEAAAAIAAAAB")]
    done = await stage.exchange(samples.plain(samples.ANSWER), samples.ask("Upgrade?", '"user": "java"'), headers=offer)
    seen.equal("user", "java", parsed(done.request.body).get("user"))
    seen.equal("status", 200, done.response.status)


@check("large-head", "an answer with 12 kB of headers arrives", OPENAI)
async def large_head(stage: Stage, seen: Seen) -> None:
    lines = [samples.JSON, *((f"x-vendor-{i}", str(i) * 500) for i in range(1, 9)), ("x-policy", "p" * 6000)]
    done = await stage.exchange(samples.plain(samples.ANSWER, headers=lines), samples.ask("So many headers?"))
    for name, value in lines:
        seen.equal(name, value, done.answered().header(name))
