"""`mneme capture` and `mneme replay serve`: what was recorded through Mneme is played without it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from openai import APITimeoutError, NotFoundError, OpenAI

from mneme_replay.fileformat import document
from mneme_replay.files import load, write
from tests.support.cassettes import cassette
from tests.support.clients import Api, ask
from tests.support.forking import run
from tests.support.replay_server import replaying
from tests.support.replies import (
    Reply,
    Stall,
    chat_script,
)
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer, wait_until

MODEL = "tiny"
ROOT = Path(__file__).parents[2]


def refused(*arguments: str) -> str:
    """What a command that fails says."""
    done = run(arguments, environment=os.environ, folder=ROOT)
    assert done.returncode in (1, 2), done.stderr
    return done.stderr


def exported(mneme: MnemeServer, folder: Path, *arguments: str) -> Sequence[Path]:
    done = mneme.command("capture", "export", "--out", str(folder), "--base", mneme.base_url, *arguments)
    assert done.returncode == 0, done.stderr
    return sorted(folder.glob("*.json"))


def test_what_was_recorded_is_played_without_mneme(
    mneme: MnemeServer, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.script = chat_script(lambda asked: f"You said: {asked}. Größe 🙂!")
    client = OpenAI(base_url=mneme.url, api_key="sk-none", default_headers={"x-mneme-user": "ana"}, max_retries=0)
    ask(mneme, "I live in Lisbon.", headers={"x-mneme-user": "ana"})
    questions = ["Where do I live?", "Größe?"]

    def answers(asking_: OpenAI) -> list[str]:
        said = []
        for text in questions:
            whole = asking_.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": text}])
            said.append(whole.choices[0].message.content or "")
            stream = asking_.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": text}], stream=True
            )
            said.append("|".join(each.choices[0].delta.content or "" for each in stream if each.choices))
        return said

    recorded = answers(client)
    files = exported(mneme, tmp_path / "calls", "--user", "ana", "--har", str(tmp_path / "calls.har"))
    assert len(files) == 5
    assert len(json.loads((tmp_path / "calls.har").read_text())["log"]["entries"]) == 5
    # Both the request of the client and the one with memory in it are there.
    calls = load([tmp_path / "calls"])
    assert b"Lisbon" in (calls[1].sent or b"")
    assert b"Lisbon" not in calls[1].request.body
    with replaying(str(tmp_path / "calls")) as url:
        assert answers(OpenAI(base_url=url, api_key="sk-none", max_retries=0)) == recorded
        with pytest.raises(NotFoundError) as caught:
            OpenAI(base_url=url, api_key="sk-none", max_retries=0).chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "Where do I work?"}]
            )
    assert '-      "content": "Where do I live?",\n+      "content": "Where do I work?",' in str(caught.value.message)


@pytest.mark.heavy
def test_a_client_that_gave_up_gives_up_again(mneme: MnemeServer, upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.script = Reply([Stall()])

    def gives_up(url: str) -> None:
        with (
            OpenAI(
                base_url=url, api_key="sk-none", max_retries=0, timeout=0.3, default_headers={"x-mneme-user": "hasty"}
            ) as client,
            pytest.raises(APITimeoutError),
        ):
            client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Are you there?"}])

    def recorded() -> bool:
        """On a busy machine a client may give up before its request is read: then nothing is recorded."""
        gives_up(mneme.url)
        return bool(Api(mneme, user="hasty").calls())

    wait_until(recorded, "a call to be recorded")
    exported(mneme, tmp_path, "--user", "hasty")
    call, *_ = load([tmp_path])
    assert (call.outcome, call.response) == ("gone", None)
    for speed in ("0", "1", "50"):
        with replaying(str(tmp_path), "--speed", speed) as url:
            gives_up(url)


def test_an_import_makes_the_same_calls_elsewhere(mneme: MnemeServer, tmp_path: Path) -> None:
    write(tmp_path / "in", [(f"{n}.json", cassette(n, call={"user": "imported", "model": MODEL})) for n in range(3)])
    done = mneme.command("capture", "import", str(tmp_path / "in"), "--base", mneme.base_url, "--json")
    assert json.loads(done.stdout) == {"imported": 3, "skipped": 0}, done.stderr
    done = mneme.command("capture", "import", str(tmp_path / "in"), "--base", mneme.base_url, "--json")
    assert json.loads(done.stdout) == {"imported": 0, "skipped": 3}
    exported(mneme, tmp_path / "out", "--user", "imported")
    assert [document(each) for each in load([tmp_path / "out"])] == [document(each) for each in load([tmp_path / "in"])]
    assert len(Api(mneme, user="imported").calls()) == 3
    done = mneme.command(
        "capture", "import", str(tmp_path / "in"), "--user", "other", "--base", mneme.base_url, "--json"
    )
    assert json.loads(done.stdout) == {"imported": 3, "skipped": 0}


KEY = "sk-proj-" + "a1B2" * 8


@pytest.mark.usefixtures("upstream")
def test_a_key_is_not_exported(mneme: MnemeServer, tmp_path: Path) -> None:
    ask(mneme, f"My key is {KEY}.", headers={"x-mneme-user": "keys", "authorization": f"Bearer {KEY}"})
    ask(mneme, "Harmless.", headers={"x-mneme-user": "keys", "x-mneme-label": "harmless"})
    out = tmp_path / "calls"
    options = ("capture", "export", "--out", str(out), "--base", mneme.base_url, "--user", "keys")
    done = mneme.command(*options)
    assert done.returncode == 1
    assert "Nothing was exported" in done.stderr
    assert "request.body has sk-pro…" in done.stderr
    assert KEY not in done.stderr
    assert not list(out.glob("**/*.json"))
    done = mneme.command(*options, "--redact", "$.messages[*].content")
    assert done.returncode == 0, done.stderr
    assert KEY not in "".join(each.read_text() for each in out.glob("*.json"))
    exported(mneme, out, "--user", "keys", "--mask-keys")
    assert KEY not in "".join(each.read_text() for each in out.glob("*.json"))
    # What was said before went upstream with it, as memory.
    labelled = exported(mneme, tmp_path / "labelled", "--user", "keys", "--label", "harmless", "--mask-keys")
    assert [each.labels for each in load(labelled)] == [("harmless",)]
    # A key on a line of its own, which JSON writes as \\nsk-…
    call = ask(mneme, f"My keys:\n{KEY}", headers={"x-mneme-user": "lines"}).headers["x-mneme-call-id"]
    options = ("capture", "export", "--out", str(tmp_path / "lines"), "--base", mneme.base_url, "--call", call)
    assert "request.body has sk-pro…" in mneme.command(*options).stderr
    done = mneme.command(*options, "--mask-keys", "--call", call[:-1] + ("0" if call[-1] != "0" else "1"))
    assert done.returncode == 1
    assert "of the calls that are named, 1 are not there" in done.stderr
    assert not (tmp_path / "lines").exists() or not list((tmp_path / "lines").iterdir())


def test_what_cannot_be_played_is_told(tmp_path: Path) -> None:
    assert "is not there" in refused("replay", "serve", str(tmp_path / "none"))
    assert "There is no cassette in" in refused("replay", "serve", str(tmp_path))
    write(tmp_path, [("a.json", cassette()), ("b.json", cassette())])
    assert "is there twice" in refused("replay", "serve", str(tmp_path))
    (tmp_path / "b.json").write_text('{\n  "mneme_cassette": 7\n}')
    told = refused("replay", "serve", str(tmp_path))
    assert f"{tmp_path / 'b.json'}:2: mneme_cassette: it was written by a newer Mneme: version 7" in told
    (tmp_path / "b.json").unlink()
    assert "is no JSON path" in refused("replay", "serve", str(tmp_path), "--ignore", "user")
    assert "cannot be listened on" in refused("replay", "serve", str(tmp_path), "--host", "192.0.2.1")
    told = refused("capture", "import", str(tmp_path), "--base", "http://127.0.0.1:1")
    assert "cannot be reached" in told
    told = refused("capture", "export", "--out", str(tmp_path / "x"), "--base", "http://127.0.0.1:1")
    assert "cannot be reached" in told
    assert "is no JSON path" in refused("capture", "export", "--out", str(tmp_path), "--redact", "user")
