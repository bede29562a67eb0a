"""The pytest plugin as a fresh project uses it: its own folder, its own pytest, no server, no database, no network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mneme_replay.files import load, write
from tests.support.cassettes import asking, cassette, streamed, streaming
from tests.support.projects import FIVE_LINES, Project
from tests.support.replies import Recorded, Reply, Stall, chat_script, reply_events, reply_json
from tests.support.scripted import ScriptedUpstream

KEY = "sk-proj-" + "a1B2" * 8

SUITE = """
import asyncio
import os
import pytest
from openai import APIConnectionError, AsyncOpenAI, NotFoundError, OpenAI


def said(client, text, **options):
    answer = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": text}], **options)
    if options.get("stream"):
        return "".join(each.choices[0].delta.content or "" for each in answer if each.choices)
    return answer.choices[0].message.content


def test_one(mneme_replay):
    client = OpenAI(base_url=mneme_replay.base_url, api_key=mneme_replay.api_key, max_retries=0)
    assert said(client, "one") == "You said one"
    assert said(client, "one", stream=True) == "You said one"


def test_environment(mneme_replay):
    assert said(OpenAI(max_retries=0), "two") == "You said two"
    assert os.environ["OPENAI_BASE_URL"] == mneme_replay.base_url


@pytest.mark.parametrize("text", ["a/b", "a-b", "größe"])
def test_each(mneme_replay, text):
    assert said(OpenAI(max_retries=0), text) == f"You said {text}"


def test_async(mneme_replay):
    async def all_of_them():
        async with AsyncOpenAI(max_retries=0) as client:
            async def one(n):
                answer = await client.chat.completions.create(
                    model="tiny", messages=[{"role": "user", "content": f"number {n}"}]
                )
                return answer.choices[0].message.content
            return await asyncio.gather(*(one(n) for n in range(8)))
    assert asyncio.run(all_of_them()) == [f"You said number {n}" for n in range(8)]
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project that has a package of the name `app`, as many do."""
    made = Project(tmp_path)
    made.write("pyproject.toml", "[tool.pytest.ini_options]\n")
    made.write("app/__init__.py", "")
    return made


def test_five_lines_as_the_readme_has_them(project: Project, upstream: ScriptedUpstream) -> None:
    upstream.script = chat_script(lambda asked: "Hello, and welcome!")
    project.write("test_greeting.py", FIVE_LINES)
    project.run(failed=1)
    project.run("--mneme-record=once", passed=1, MNEME_RECORD_UPSTREAM=upstream.url, OPENAI_API_KEY=KEY)
    assert upstream.requests[-1].body.startswith(b"{")
    assert (b"authorization", f"Bearer {KEY}".encode()) in [(n.lower(), v) for n, v in upstream.requests[-1].headers]
    assert project.cassettes == ["cassettes/test_greeting/test_greeting/001-chat-completions.json"]
    assert KEY not in (project.folder / project.cassettes[0]).read_text()
    project.run(passed=1)


@pytest.mark.heavy
def test_recorded_once_and_replayed_for_ever(project: Project, upstream: ScriptedUpstream) -> None:
    upstream.script = chat_script(lambda asked: f"You said {asked['messages'][-1]['content']}")
    project.write("test_suite.py", SUITE)
    options = ("--mneme-upstream", upstream.url)
    told = project.run("-k", "test_one", failed=1)
    assert "No cassette answers POST /v1/chat/completions: there are none." in told
    assert project.cassettes == []
    project.run("--mneme-record=once", *options, passed=6)
    recorded = {each: (project.folder / each).read_bytes() for each in project.cassettes}
    assert len(recorded) == 2 + 1 + 3 + 8
    asked = len(upstream.requests)
    # Without an upstream, in several processes, in any order; recording `once` has nothing to do any more.
    for arguments in (("-n", "2"), ("--mneme-record=once", *options), ("--mneme-record=new", *options)):
        project.run(*arguments, passed=6)
    assert len(upstream.requests) == asked
    assert {each: (project.folder / each).read_bytes() for each in project.cassettes} == recorded
    # All anew: the same names.
    project.run("--mneme-record=all", *options, "-n", "2", passed=6)
    assert project.cassettes == sorted(recorded)
    assert len(upstream.requests) == 2 * asked


@pytest.mark.heavy
def test_what_is_missing_is_recorded_and_what_failed_is_not(project: Project, upstream: ScriptedUpstream) -> None:
    upstream.script = chat_script(lambda asked: f"You said {asked['messages'][-1]['content']}")
    options = ("--mneme-upstream", upstream.url)
    head = SUITE.partition("def test_one")[0]
    test = "def test_it(mneme_replay):\n    client = OpenAI(max_retries=0)\n    said(client, 'one')\n"
    project.write("test_it.py", head + test + "    assert False\n")
    project.run("--mneme-record=once", *options, failed=1)
    assert project.cassettes == []
    project.write("test_it.py", head + test)
    project.run("--mneme-record=once", *options, passed=1)
    project.write("test_it.py", head + test + "    said(client, 'two')\n")
    told = project.run("--mneme-record=once", *options, failed=1)
    assert '-      "content": "one",\n' in told.replace("E   ", "").replace("          ", "      ") or '"two"' in told
    project.run("--mneme-record=new", *options, passed=1)
    assert [each.rpartition("/")[2] for each in project.cassettes] == [
        "001-chat-completions.json",
        "002-chat-completions.json",
    ]
    assert len(upstream.requests) == 3
    project.run(passed=1)


@pytest.mark.heavy
def test_a_miss_that_the_code_swallows_fails_the_test(project: Project) -> None:
    head = SUITE.partition("def test_one")[0]
    swallowing = (
        "def test_it(mneme_replay):\n    try:\n        said(OpenAI(max_retries=0), 'one')\n    except NotFoundError:\n"
        "        pass\n"
    )
    project.write("test_it.py", head + swallowing)
    told = project.run(passed=1, errors=1)
    assert "pytest --mneme-record=new records what is missing" in told
    project.write("test_it.py", head + swallowing + "    assert False\n")  # and trips over it later
    told = project.run(failed=1)
    assert told.count("No cassette answers POST /v1/chat/completions") == 1
    assert "pytest --mneme-record=new records what is missing" in told
    project.write("test_it.py", head + "@pytest.mark.mneme(misses='allow')\n" + swallowing)
    project.run(passed=1)


def test_markers_choose_cassettes_matching_and_reuse(project: Project) -> None:
    write(project.folder / "shared", [("a.json", cassette(1)), ("b.json", streamed(2))])
    head = SUITE.partition("def test_one")[0]
    project.write(
        "tests/test_it.py",
        head
        + """
@pytest.mark.mneme(cassettes="../shared", reuse="again", match="prompt")
def test_again(mneme_replay):
    client = OpenAI(max_retries=0)
    assert [said(client, "Say hello.") for _ in range(3)] == ["Hello!"] * 3
    assert said(client, "Say hello.", temperature=1.5, stream=True) == "Hello!"
    assert mneme_replay.plays == 4
    assert not mneme_replay.unplayed

@pytest.mark.mneme(cassettes=["../shared"], match="sequence")
def test_in_turn(mneme_replay):
    assert said(OpenAI(max_retries=0), "whatever") == "Hello!"
    assert len(mneme_replay.unplayed) == 1

@pytest.mark.mneme(cassettes="../shared", match="odd")
def test_odd(mneme_replay):
    pass
""",
    )
    told = project.run(passed=2, errors=1)
    assert "A matching is one of strict, normalised, prompt, sequence, not 'odd'." in told


def test_in_process_through_respx(project: Project) -> None:
    events = streamed(2)
    broken = streamed(3, asking("Break.", stream=True), streaming("Hel", "lo!")[:-1], outcome="broken")
    write(project.folder / "shared", [("a.json", cassette(1)), ("b.json", events), ("c.json", broken)])
    project.write(
        "test_it.py",
        SUITE.partition("def test_one")[0]
        + """
import httpx
import respx

pytestmark = pytest.mark.mneme(cassettes="shared", reuse="again")

def test_sync(mneme_cassette):
    with respx.mock() as router:
        mneme_cassette.add_routes(router, "https://api.openai.com/v1")
        with httpx.Client() as http:
            client = OpenAI(api_key="none", http_client=http, max_retries=0)
            assert said(client, "Say hello.") == "Hello!"
            assert said(client, "Say hello.", stream=True) == "Hello!"
            with pytest.raises(APIConnectionError):
                said(client, "Break.", stream=True)

@pytest.mark.mneme(cassettes="shared", misses="allow")
def test_async(mneme_cassette):
    async def run():
        with respx.mock() as router:
            mneme_cassette.add_routes(router, "http://llm.test/prefix/v1")
            async with httpx.AsyncClient() as http:
                client = AsyncOpenAI(base_url="http://llm.test/prefix/v1", api_key="none", http_client=http, max_retries=0)
                stream = await client.chat.completions.create(
                    model="tiny", messages=[{"role": "user", "content": "Say hello."}], stream=True
                )
                assert "".join([e.choices[0].delta.content or "" async for e in stream if e.choices]) == "Hello!"
                with pytest.raises(NotFoundError, match="No cassette answers"):
                    await client.models.list()
    asyncio.run(run())
""",
    )
    project.run(passed=2)


IMPATIENT = """
import httpx
import respx
from openai import APITimeoutError

@pytest.mark.mneme(cassettes="calls", reuse="again")
def test_waiting(mneme_replay):
    with OpenAI(max_retries=0, timeout=0.3) as client, pytest.raises(APITimeoutError):
        said(client, "wait")

@pytest.mark.mneme(cassettes="calls", reuse="again")
def test_leaving(mneme_replay):
    with OpenAI(max_retries=0) as client:
        answer = client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "leave"}], stream=True, timeout=20
        )
        with answer as stream:
            assert next(stream).choices[0].delta.content == "Hel"
"""
IN_PROCESS = """
@pytest.mark.mneme(cassettes="calls", reuse="again")
def test_in_process(mneme_cassette):
    with respx.mock() as router, httpx.Client() as http:
        mneme_cassette.add_routes(router, "https://api.openai.com/v1")
        client = OpenAI(api_key="none", http_client=http, max_retries=0)
        with pytest.raises(APITimeoutError):
            said(client, "wait")
        with pytest.raises(APITimeoutError):
            said(client, "leave", stream=True)
"""


@pytest.mark.heavy
def test_a_client_that_gives_up_is_recorded_and_gives_up_again(project: Project, upstream: ScriptedUpstream) -> None:
    """The relay keeps back one piece: the second of the two lets the first go out."""
    pieces = [f'data: {{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}\n\n' for text in ("Hel", "lo")]

    def script(request: Recorded) -> Reply:
        asked = request.json()["messages"][0]["content"]
        return Reply([Stall()]) if asked == "wait" else reply_events([each.encode() for each in pieces], end=[Stall()])

    upstream.script = script
    head = SUITE.partition("def test_one")[0] + IMPATIENT
    project.write("test_it.py", head)
    project.run("--mneme-record=new", "--mneme-upstream", upstream.url, passed=2)
    for each in upstream.requests:
        assert each.peer_closed.wait(20)
    calls = load([project.folder / "calls"])
    assert [(each.outcome, each.response is None) for each in calls] == [("gone", True), ("gone", False)]
    assert calls[0].call["latency_ms"] > 0
    project.write("test_it.py", head + IN_PROCESS)
    upstream.requests.clear()
    project.run(passed=3)
    assert not upstream.requests


@pytest.mark.heavy
def test_keys_and_named_values_stay_out_of_recordings(project: Project, upstream: ScriptedUpstream) -> None:
    upstream.script = reply_json(
        {"id": "1", "choices": [{"index": 0, "message": {"role": "assistant", "content": KEY}}]}
    )
    project.write("pyproject.toml", '[tool.pytest.ini_options]\nmneme_redact = ["$.user"]\n')
    head = SUITE.partition("def test_one")[0]
    test = "def test_it(mneme_replay):\n    said(OpenAI(max_retries=0), 'one', user='ana')\n"
    project.write("test_it.py", head + test)
    told = project.run("--mneme-record=once", "--mneme-upstream", upstream.url, passed=1, errors=1)
    assert "response.body has sk-pro…" in told
    assert project.cassettes == []
    upstream.script = chat_script(lambda asked: "Fine.")
    project.run("--mneme-record=once", "--mneme-upstream", upstream.url, passed=1)
    (call,) = load([project.folder / "cassettes"])
    assert json.loads(call.request.body)["user"] == "***"
    assert call.redacted == ("$.user",)
    project.run(passed=1)


def test_a_damaged_cassette_is_named_with_its_line(project: Project) -> None:
    project.write("cassettes/test_it/test_it/a.json", '{\n  "mneme_cassette": 1,\n  "id": 3\n}')
    project.write("test_it.py", "def test_it(mneme_replay):\n    pass\n")
    assert "a.json:" in project.run(errors=1)


def test_other_sessions_pay_nothing(project: Project) -> None:
    project.write(
        "test_it.py",
        "import sys\ndef test_it():\n    heavy = {'httpx', 'uvicorn', 'fastapi', 'mneme_replay.session', 'asyncpg', 'numpy'}\n"
        "    assert not heavy & set(sys.modules)\n",
    )
    project.run("-p", "no:schemathesis", "-p", "no:hypothesispytest", "-p", "no:respx", passed=1, loaded=False)
