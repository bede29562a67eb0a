"""While Postgres is away answers go on and end; what they said is in Postgres when it is back, once and in order."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import Api, Message, assistant, user
from tests.support.outage import give_back, make_read_only, take_away
from tests.support.replies import Recorded, Reply, Script, Send, Stall, chat_script
from tests.support.responses import asked_last, responses_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.sockets import RawClient, RawResponse, eventually, fetch

CHAT = "/v1/chat/completions"
DONE = b"data: [DONE]\n\n"
CANARY = "sk-canary-7d1f0c9a"
SHORT = {"RETRIEVAL_DEADLINE_MS": "500"}
"""Milliseconds: what is waited for in these tests is an outage."""

StartServer = Callable[..., MnemeServer]


def said(asked: Any) -> list[str]:
    """The upstream's answer: the last question, and that it was heard."""
    messages = asked["messages"] if isinstance(asked, dict) else asked.json()["messages"]
    return ["You said: ", str(messages[-1]["content"]).rsplit("\n", 1)[-1]]


def stalling(stalls: threading.Event) -> Script:
    """Answers, and stops after three pieces of a chat's while `stalls` is set."""
    whole = chat_script(said)
    assert callable(whole)

    def script(request: Recorded) -> Reply:
        reply = whole(request)
        if request.path == CHAT and stalls.is_set():
            return Reply([*[each for each in reply.steps if isinstance(each, Send)][:3], Stall()])
        return reply

    return script


async def ask(mneme: MnemeServer, messages: Sequence[Message], who: str, **headers: str) -> RawResponse:
    lines = [(b"content-type", b"application/json"), (b"x-mneme-user", who.encode())]
    lines += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    lines += [(b"authorization", f"Bearer {CANARY}".encode()), (b"x-api-key", CANARY.encode())]
    body = json.dumps({"model": "gpt-4o", "messages": list(messages), "stream": True}).encode()
    return await fetch(mneme.port, "POST", CHAT, lines, body)


def spool_of(mneme: MnemeServer) -> Path:
    return mneme.folder / ".mneme" / "spool"


def waiting(mneme: MnemeServer) -> list[Path]:
    return sorted((spool_of(mneme) / "turns").glob("*/*"))


async def drained(mneme: MnemeServer) -> None:
    await eventually(lambda: not list((spool_of(mneme) / "turns").iterdir()), "the spool to be empty")


def metric(mneme: MnemeServer, name: str) -> float:
    lines = [line for line in mneme.http.get("/metrics").text.splitlines() if line.startswith(name + " ")]
    return float(lines[0].rpartition(" ")[2]) if lines else 0.0


async def everything_said(mneme: MnemeServer, who: str) -> list[list[tuple[str, Any]]]:
    """What each session of a user holds, the first session first."""
    api = Api(mneme, user=who)
    sessions = await asyncio.to_thread(api.sessions)
    return [await asyncio.to_thread(api.said, each["id"]) for each in reversed(sessions)]


def talk(turns: int, before: str = "") -> list[Message]:
    """The transcript of a conversation whose last question is yet to be answered."""
    messages: list[Message] = []
    for n in range(1, turns + 1):
        messages += [user(f"{before}question {n}"), assistant(f"You said: {before}question {n}")]
    return messages[:-1]


def story(turns: int, before: str = "") -> list[tuple[str, Any]]:
    messages = [*talk(turns, before), assistant(f"You said: {before}question {turns}")]
    return [(each["role"], each["content"]) for each in messages]


async def test_a_conversation_that_goes_on_through_an_outage(own_server: StartServer, database: str) -> None:
    """Five turns, of which the database missed three; two users at once, who send their whole transcripts."""
    with ScriptedUpstream(chat_script(said)) as upstream:
        mneme = own_server(upstream.url, **SHORT)
        ledger = []
        for turn in range(1, 6):
            if turn == 2:
                await take_away(database)
            if turn == 5:
                await give_back(database)
            for who in ("ana", "ben"):
                answer = await ask(mneme, talk(turn, f"{who}'s "), who, x_mneme_label=f"golden, turn {turn}")
                assert answer.ended == "whole"
                assert answer.body.endswith(DONE)
                ledger.append(answer.header("x-mneme-call-id"))
                if turn in (2, 3, 4):
                    assert answer.header("x-mneme-status") == "degraded"
            if turn == 4:
                assert len(waiting(mneme)) == 6
                assert CANARY.encode() not in b"".join(
                    each.read_bytes() for each in spool_of(mneme).rglob("*/*") if each.is_file()
                )
                assert await asyncio.to_thread(metric, mneme, 'mneme_spool_calls_total{event="kept"}') == 6
        await drained(mneme)
        for who in ("ana", "ben"):
            assert await everything_said(mneme, who) == [story(5, f"{who}'s ")]
        calls = [each["id"] for who in ("ana", "ben") for each in await asyncio.to_thread(Api(mneme, user=who).calls)]
        assert sorted(calls) == sorted(str(each) for each in ledger)
        call = await asyncio.to_thread(Api(mneme, user="ana").call, str(ledger[2]))
        assert (call["outcome"], call["status"], call["labels"]) == ("complete", 200, ["golden", "turn 2"])
        assert len(await asyncio.to_thread(Api(mneme, user="ana").calls, label="golden")) == 5
        events = await asyncio.to_thread(Api(mneme, user="ana").stream, str(ledger[2]))
        assert events.endswith(DONE)
        assert await asyncio.to_thread(metric, mneme, 'mneme_spool_calls_total{event="drained"}') >= 6


@pytest.mark.heavy
async def test_answers_that_follow_each_other_by_their_ids_go_on_too(own_server: StartServer, database: str) -> None:
    """The Responses API: who follows whom is found when what waited is stored."""
    with ScriptedUpstream(responses_script(lambda asked: "You said: " + asked_last(asked))) as upstream:
        mneme = own_server(upstream.url, **SHORT)
        lines = [(b"content-type", b"application/json"), (b"x-mneme-user", b"ana")]
        follows = None
        for n in range(4):
            if n == 1:
                await take_away(database)
            asked = {"model": "gpt-4o", "input": f"Question {n}", "stream": True, "previous_response_id": follows}
            answer = await fetch(mneme.port, "POST", "/v1/responses", lines, json.dumps(asked).encode())
            assert answer.ended == "whole"
            assert b"event: response.completed" in answer.body
            follows = json.loads(answer.body.split(b"data: ")[1].splitlines()[0])["response"]["id"]
        assert len(waiting(mneme)) == 3
        await give_back(database)
        await drained(mneme)
        told = [
            each for n in range(4) for each in (("user", f"Question {n}"), ("assistant", f"You said: Question {n}"))
        ]
        assert await everything_said(mneme, "ana") == [told]


async def test_what_is_deleted_does_not_come_back_with_what_waits(own_server: StartServer, database: str) -> None:
    """A call waits that sends a message again, which is deleted as soon as the database is back: before or after the drain."""
    with ScriptedUpstream(chat_script(said)) as upstream:
        mneme = own_server(upstream.url, **SHORT)
        await ask(mneme, talk(1), "ana")
        await take_away(database)
        assert DONE in (await ask(mneme, talk(2), "ana")).body
        assert waiting(mneme)
        await give_back(database)
        api = Api(mneme, user="ana")

        def shown() -> str:
            (session,) = api.sessions()
            (asked, *_) = api.history(session["id"])
            return f"/sessions/{session['id']}/messages/{asked['id']}"

        path = await asyncio.to_thread(shown)
        assert (await asyncio.to_thread(api.send, "DELETE", path)).status_code == 200
        await drained(mneme)
        assert await everything_said(mneme, "ana") == [story(2)[1:]]


@pytest.mark.heavy
async def test_sessions_that_the_server_keeps_go_on_too(own_server: StartServer, database: str) -> None:
    """By the client's name for a session, and by the id that Mneme gave it."""
    with ScriptedUpstream(chat_script(said)) as upstream:
        mneme = own_server(upstream.url, **SHORT)
        first = await ask(mneme, [user("question 1")], "ben")
        issued = first.header("x-mneme-session-id")
        assert issued is not None
        await ask(mneme, [user("question 1")], "ana", x_mneme_session="trip")
        await take_away(database)
        for turn in (2, 3, 4):
            for who, session in (("ana", "trip"), ("ben", issued)):
                answer = await ask(mneme, [user(f"question {turn}")], who, x_mneme_session=session)
                assert answer.ended == "whole"
        await give_back(database)
        await drained(mneme)
        for who, session in (("ana", "trip"), ("ben", issued)):
            answer = await ask(mneme, [user("question 5")], who, x_mneme_session=session)
            assert answer.header("x-mneme-status") == "ok"
            assert await everything_said(mneme, who) == [story(5)]


@pytest.mark.heavy
async def test_a_turn_that_comes_before_the_drain_is_through_joins_behind_it(
    own_server: StartServer, database: str
) -> None:
    """Reads work and writes do not: what comes next must not be placed before what waits."""
    with ScriptedUpstream(chat_script(said)) as upstream:
        mneme = own_server(upstream.url, **SHORT)
        await make_read_only(database, yes=True)
        for turn in (1, 2, 3):
            answer = await ask(mneme, talk(turn), "ana")
            assert answer.ended == "whole"
        assert len(waiting(mneme)) == 3
        await make_read_only(database, yes=False)
        for turn in (4, 5):
            assert (await ask(mneme, talk(turn), "ana")).ended == "whole"
        await drained(mneme)
        assert await everything_said(mneme, "ana") == [story(5)]


# --- kill -9 ----------------------------------------------------------------------------------------------------------------


async def test_a_server_that_is_killed_in_mid_stream_leaves_no_half_turn(
    own_server: StartServer, database: str
) -> None:
    """A turn whose end its client never saw is gone; the client asks again, and its conversation is whole."""
    stalls = threading.Event()
    with ScriptedUpstream(stalling(stalls)) as upstream:
        mneme = own_server(upstream.url, **SHORT)
        assert (await ask(mneme, talk(1), "ana")).ended == "whole"
        stalls.set()
        async with RawClient(mneme.port) as client:
            body = json.dumps({"model": "gpt-4o", "messages": talk(2), "stream": True}).encode()
            await client.send("POST", CHAT, [(b"x-mneme-user", b"ana"), (b"authorization", CANARY.encode())], body)
            await client.read_until(b"You said: ")
            files = [path for path in spool_of(mneme).rglob("*") if path.is_file() and path.name != "lock"]
            assert files == [], "nothing of a call that runs is on the disk"
            mneme.kill9()
        stalls.clear()
        await asyncio.to_thread(mneme.restart)
        assert await everything_said(mneme, "ana") == [story(1)]
        assert (await ask(mneme, talk(2), "ana")).ended == "whole"
        await drained(mneme)
        assert await everything_said(mneme, "ana") == [story(2)]
        calls = await asyncio.to_thread(Api(mneme, user="ana").calls)
        assert [call["outcome"] for call in calls] == ["complete"] * 2


async def test_a_server_that_is_killed_without_a_database_stores_it_later(
    own_server: StartServer, database: str
) -> None:
    with ScriptedUpstream(chat_script(said)) as upstream:
        mneme = own_server(upstream.url, **SHORT)
        await take_away(database)
        ledger = []
        for turn in (1, 2, 3):
            answer = await ask(mneme, talk(turn), "ana")
            assert answer.ended == "whole"
            ledger.append(str(answer.header("x-mneme-call-id")))
        mneme.kill9()
        files = {each: each.read_bytes() for each in waiting(mneme)}
        await give_back(database)
        await asyncio.to_thread(mneme.restart)
        await drained(mneme)
        # As if it had been killed again, between the commit and the file's end.
        for path, content in files.items():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        await drained(mneme)
        assert await everything_said(mneme, "ana") == [story(3)]
        assert sorted(each["id"] for each in await asyncio.to_thread(Api(mneme, user="ana").calls)) == sorted(ledger)
        calls = await asyncio.to_thread(Api(mneme, user="ana").calls)
        assert {each["outcome"] for each in calls} == {"complete"}


# --- two at once --------------------------------------------------------------------------------------------------------------


@pytest.mark.heavy
async def test_two_servers_on_one_spool(own_server: StartServer, database: str, tmp_path: Path) -> None:
    """One conversation whose turns come to either of them, in an outage; then one is killed, and the other stores what it
    had put into the spool."""
    shared = {**SHORT, "SPOOL_DIR": str(tmp_path / "spool")}
    with ScriptedUpstream(chat_script(said)) as upstream:
        one, other = own_server(upstream.url, **shared), own_server(upstream.url, **shared)
        turns = tmp_path / "spool" / "turns"
        await take_away(database)
        for turn in range(1, 7):
            answer = await ask((one, other)[turn % 2], talk(turn), "ana")
            assert answer.ended == "whole"
        assert len(list(turns.glob("*/*"))) == 6
        await give_back(database)
        await eventually(lambda: not list(turns.iterdir()), "the spool to be empty")
        assert await everything_said(one, "ana") == [story(6)]

        await take_away(database)
        assert (await ask(other, [user("And now?")], "ben")).ended == "whole"
        other.kill9()
        await give_back(database)
        await eventually(lambda: not list(turns.iterdir()), "the spool to be empty")
        assert await everything_said(one, "ben") == [[("user", "And now?"), ("assistant", "You said: And now?")]]
        (call,) = await asyncio.to_thread(Api(one, user="ben").calls)
        assert call["outcome"] == "complete"


@pytest.mark.heavy
async def test_several_server_processes_share_the_spool(own_server: StartServer, database: str) -> None:
    with ScriptedUpstream(chat_script(said)) as upstream:
        mneme = own_server(upstream.url, **SHORT, WORKERS="2")
        # One that is starting still needs the database, and takes the others with it when it cannot.
        await eventually(lambda: mneme.log_text().count("Application startup complete") == 2, "both processes to be up")
        await take_away(database)
        for turn in range(1, 5):
            assert (await ask(mneme, talk(turn), "ana")).ended == "whole"
        await give_back(database)
        await drained(mneme)
        assert (await ask(mneme, talk(5), "ana")).ended == "whole"
        await drained(mneme)
        assert await everything_said(mneme, "ana") == [story(5)]


# --- erasure ----------------------------------------------------------------------------------------------------------------


async def test_of_an_erased_user_nothing_comes_out_of_the_spool(own_server: StartServer, database: str) -> None:
    """The folder has nothing of what waits and what was set aside, and nothing comes back."""
    with ScriptedUpstream(chat_script(said)) as upstream:
        mneme = own_server(upstream.url, **SHORT)
        await take_away(database)
        for who in ("ana", "ben"):
            for turn in (1, 2):
                assert (await ask(mneme, talk(turn, f"{who}'s "), who)).ended == "whole"
        aside = next(each for each in waiting(mneme) if b"ana's" in each.read_bytes())
        grave = spool_of(mneme) / "dead" / aside.parent.name
        grave.mkdir()
        aside.rename(grave / aside.name)
        mneme.kill9()

        def hers() -> list[Path]:
            return [each for each in spool_of(mneme).rglob("*") if each.is_file() and b"ana's" in each.read_bytes()]

        assert {each.relative_to(spool_of(mneme)).parts[0] for each in hers()} == {"turns", "dead"}
        await give_back(database)
        done = await asyncio.to_thread(mneme.command, "erase", "--user", "ana", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["tables"]["spool"] == 2
        assert hers() == []
        await asyncio.to_thread(mneme.restart)
        await drained(mneme)
        assert await everything_said(mneme, "ben") == [story(2, "ben's ")]
        assert await everything_said(mneme, "ana") == []
        assert await asyncio.to_thread(Api(mneme, user="ana").calls) == []


# --- redaction --------------------------------------------------------------------------------------------------------------


@pytest.mark.heavy
async def test_what_is_redacted_is_not_in_the_spool_and_the_conversation_is_one(
    own_server: StartServer, database: str
) -> None:
    """Its place is found by what was really said, though that is nowhere on the disk."""
    paths = ["$.messages[*].content", "$.choices[*].message.content", "$.choices[*].delta.content", "$.metadata.ssn"]
    settings = {"REDACT_PATHS": json.dumps(paths), "REDACT_HEADERS": '["x-patient"]'}
    secret = "secretqx"
    with ScriptedUpstream(chat_script(said)) as upstream:
        mneme = own_server(upstream.url, **SHORT, **settings)
        for turn in (1, 2, 3, 4):
            if turn == 2:
                await take_away(database)
            if turn == 4:
                await give_back(database)
            answer = await ask(mneme, talk(turn, f"{secret} "), "ana", x_patient=secret)
            assert answer.ended == "whole"
            assert secret.encode() in answer.body
            if turn == 3:
                assert len(waiting(mneme)) == 2
                files = b"".join(each.read_bytes() for each in spool_of(mneme).rglob("*") if each.is_file())
                assert secret.encode() not in files
        await drained(mneme)
        (session,) = await everything_said(mneme, "ana")
        assert [role for role, _ in session] == ["user", "assistant"] * 4
        assert {char for _, content in session for char in content} == {"*"}


# --- limits -----------------------------------------------------------------------------------------------------------------


async def test_a_full_spool_ends_no_answer_and_says_so(own_server: StartServer, database: str) -> None:
    with ScriptedUpstream(chat_script(said)) as upstream:
        mneme = own_server(upstream.url, **SHORT, SPOOL_MAX_BYTES="6000")
        await take_away(database)
        ended = [(await ask(mneme, [user(f"question {n} {'x' * 800}")], "ana")).ended for n in range(6)]
        assert ended[0] == "whole"
        assert ended[-1] != "whole"
        kept = ended.count("whole")
        assert kept == len(waiting(mneme))
        assert await asyncio.to_thread(metric, mneme, 'mneme_spool_calls_total{event="refused"}') == 6 - kept
        await give_back(database)
        await drained(mneme)
        assert len(await everything_said(mneme, "ana")) == kept


async def test_what_is_bare_leaves_no_trace_and_what_is_captured_alone_does(
    own_server: StartServer, database: str
) -> None:
    with ScriptedUpstream(chat_script(said)) as upstream:
        mneme = own_server(upstream.url, **SHORT)
        await take_away(database)
        bare = await ask(mneme, [user("nobody heard")], "ana", x_mneme_memory="off", x_mneme_capture="off")
        assert bare.ended == "whole"
        assert not waiting(mneme)
        assert not any(b"nobody heard" in each.read_bytes() for each in spool_of(mneme).rglob("*") if each.is_file())
        captured = await ask(mneme, [user("captured")], "ana", x_mneme_memory="off")
        remembered = await ask(mneme, [user("remembered")], "ana", x_mneme_capture="off")
        listing = await fetch(mneme.port, "GET", "/v1/models", [(b"x-mneme-user", b"ana")])
        assert {captured.ended, remembered.ended, listing.ended} == {"whole"}
        await give_back(database)
        await drained(mneme)
        api = Api(mneme, user="ana")
        assert await everything_said(mneme, "ana") == [[("user", "remembered"), ("assistant", "You said: remembered")]]
        assert b"captured" in await asyncio.to_thread(api.request, str(captured.header("x-mneme-call-id")))
        assert len(await asyncio.to_thread(api.calls)) >= 2


async def test_limits_keep_nothing_that_was_said(own_server: StartServer, database: str) -> None:
    """A key's rate and budget count calls of which nothing is to be kept: on no disk, and not stopped by a full spool."""
    with ScriptedUpstream(chat_script(said)) as upstream:
        mneme = own_server(upstream.url, **SHORT, SPOOL_MAX_BYTES="10")
        key = await asyncio.to_thread(mneme.create_key, "counted", "--rpm", "1000", "--no-capture")

        async def whisper() -> str:
            said = await ask(mneme, [user("nobody heard")], "ana", x_mneme_memory="off", x_mneme_key=key)
            files = [each for each in spool_of(mneme).rglob("*") if each.is_file()]
            assert not any(b"nobody heard" in each.read_bytes() for each in files)
            return said.ended

        assert await whisper() == "whole"
        await take_away(database)
        assert (await ask(mneme, [user("too much")], "ana")).ended != "whole", "the spool is full, and Postgres away"
        assert await whisper() == "whole"
        await give_back(database)


async def test_the_doctor_says_what_waits(own_server: StartServer, database: str) -> None:
    with ScriptedUpstream(chat_script(said)) as upstream:
        mneme = own_server(upstream.url, **SHORT)
        await take_away(database)
        await ask(mneme, [user("hi")], "ana")
        found = await asyncio.to_thread(mneme.command, "doctor", "--json")
        assert "1 call waits in the spool" in found.stdout
        await give_back(database)
        await drained(mneme)
        found = await asyncio.to_thread(mneme.command, "doctor", "--json")
        assert "The spool is empty" in found.stdout


@pytest.mark.heavy
async def test_what_memory_is_told_to_do_is_said_to_be_not_done(own_server: StartServer, database: str) -> None:
    order = [user("Please forget that I live in Lisbon.")]
    with ScriptedUpstream(chat_script(lambda _: "All right.")) as upstream:
        mneme = own_server(upstream.url, **SHORT)

        def sent() -> str:
            return str(upstream.requests[-1].json()["messages"][-1]["content"])

        await ask(mneme, [user("I live in Lisbon.")], "ana")
        await take_away(database)
        answered = await ask(mneme, order, "ana")
        assert answered.body.endswith(DONE)
        assert "could not do now" in sent()
        await give_back(database)
        await drained(mneme)
        api = Api(mneme, user="ana")
        known = await asyncio.to_thread(api.get, "/memories")
        assert [each["text"] for each in known["memories"]] == ["Lives in Lisbon"]
        await ask(mneme, order, "ana")
        assert "has just forgotten" in sent()
