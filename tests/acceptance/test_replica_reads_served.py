"""The real server on a primary and its standbys: prompts say what was acknowledged, whichever server they are read from."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import Api, ask, assistant, prompt_of, user
from tests.support.database import MEMORY
from tests.support.replicas import Cluster, login
from tests.support.replies import chat_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer, wait_until

pytestmark = pytest.mark.heavy

_READS = re.compile(
    r'^mneme_replica_reads_total\{pool="(\w+)",result="(\w+)",server="([^"]+)"\} ([0-9.]+)', re.MULTILINE
)


GONE = 1
"""A port at which nobody listens."""


@dataclass
class Stage:
    cluster: Cluster
    one: MnemeServer
    two: MnemeServer
    upstream: ScriptedUpstream
    text: str = ""

    def reads(self, server: MnemeServer) -> dict[str, float]:
        """How many by result, so far."""
        found: dict[str, float] = {}
        for _, result, _, count in _READS.findall(server.http.get("/metrics").text):
            found[result] = found.get(result, 0) + float(count)
        return found

    def prompt(self, server: MnemeServer, who: str, question: str) -> str:
        """What the upstream is asked, when a user who begins anew asks this."""
        answer = ask(server, question, headers={"x-mneme-user": who})
        assert (answer.status_code, answer.headers["x-mneme-status"]) == (200, "ok"), dict(answer.headers)
        return prompt_of(self.upstream.requests[-1])

    async def settled(self, server: MnemeServer, who: str, question: str) -> str:
        """The same, once a standby has everything, and answers."""
        await self.cluster.caught_up()
        before = self.reads(server)

        def answered() -> bool:
            self.text = self.prompt(server, who, question)
            changed = {name for name, count in self.reads(server).items() if count != before.get(name, 0.0)}
            before.update(self.reads(server))
            return changed == {"replica"}

        wait_until(answered, "a standby to answer")
        return self.text


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("served")
    with (
        tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as place,
        ScriptedUpstream(chat_script(lambda asked: "All right.")) as upstream,
    ):
        Path(place).chmod(0o755)
        with Cluster(Path(place)) as cluster:
            settings = {
                "DATABASE_HISTORY_URL": cluster.standbys_dsn,
                "DATABASE_MEMORY_URL": cluster.standbys_dsn,
                # Machines that run tests are busy.
                "RETRIEVAL_DEADLINE_MS": "125000",
            }
            own: dict[str, Any] = {"database": cluster.primary.dsn, "upstream": upstream.url, "settings": settings}
            with MnemeServer(folder / "one", worker=True, **own) as one, MnemeServer(folder / "two", **own) as two:
                yield Stage(cluster, one, two, upstream)


async def test_reads_leave_the_primary(stage: Stage) -> None:
    ask(stage.one, "My dog is called Bello.", headers={"x-mneme-user": "ana"})
    assert "Bello" in await stage.settled(stage.two, "ana", "What is my dog called?")
    servers = {
        server for _, result, server, _ in _READS.findall(stage.two.http.get("/metrics").text) if result == "replica"
    }
    assert servers == {f"127.0.0.1:{node.port}" for node in stage.cluster.standbys}


async def test_a_conversation_goes_on_at_another_server_while_no_standby_replays(stage: Stage) -> None:
    async with stage.cluster.paused():
        said = [user("Let us talk about boats.")]
        first = ask(stage.one, said, headers={"x-mneme-user": "ben"})
        for n in range(3):
            said += [assistant("All right."), user(f"And then? {n}")]
            server = (stage.two, stage.one)[n % 2]
            nxt = ask(server, said, headers={"x-mneme-user": "ben"})
            assert nxt.headers["x-mneme-session-id"] == first.headers["x-mneme-session-id"]
        assert len(Api(stage.one, user="ben").history(first.headers["x-mneme-session-id"])) == 8


@pytest.mark.parametrize("deed", ["forget", "correct", "erase"])
async def test_what_was_taken_back_at_one_server_is_in_no_prompt_of_the_other(stage: Stage, deed: str) -> None:
    who = f"carl-{deed}"
    api = Api(stage.one, user=who)
    made = api.post("/memories", {"text": f"The door code is 4711 {deed}."})["id"]
    assert "4711" in await stage.settled(stage.two, who, "What is the door code?")
    async with stage.cluster.paused():
        if deed == "forget":
            assert api.send("DELETE", f"/memories/{made}").is_success
        elif deed == "correct":
            assert api.send("PATCH", f"/memories/{made}", json={"text": "The door code is 1234."}).is_success
        else:
            assert stage.one.http.delete(f"/api/v1/users/{who}").is_success
        before = stage.reads(stage.two)
        text = stage.prompt(stage.two, who, "What is the door code?")
        assert "4711" not in text
        assert ("1234" in text) == (deed == "correct")
        assert stage.reads(stage.two)["behind"] > before.get("behind", 0)
    assert "4711" not in await stage.settled(stage.two, who, "What is the door code?")


async def test_a_lost_standby_and_its_return(stage: Stage) -> None:
    ask(stage.one, "My cat is called Minka.", headers={"x-mneme-user": "dora"})
    await stage.settled(stage.two, "dora", "What is my cat called?")
    lost = stage.cluster.standbys[0]
    lost.kill9()
    try:
        for _ in range(6):
            assert "Minka" in stage.prompt(stage.two, "dora", "What is my cat called?")
    finally:
        lost.start()
    name = f"127.0.0.1:{lost.port}"

    def by_it() -> float:
        found = _READS.findall(stage.two.http.get("/metrics").text)
        return sum(float(count) for _, result, server, count in found if (result, server) == ("replica", name))

    before = by_it()

    def back() -> bool:
        stage.prompt(stage.two, "dora", "What is my cat called?")
        return by_it() > before

    wait_until(back, "the standby to be read from again")


async def test_the_doctor_looks_at_each_server(stage: Stage) -> None:
    await stage.cluster.caught_up()
    well, late = stage.cluster.standbys
    urls = {
        "MNEME_DATABASE_HISTORY_URL": login([well.port, late.port, GONE]),
        "MNEME_DATABASE_MEMORY_URL": stage.cluster.primary.dsn,
        "MNEME_DATABASE_BACKGROUND_URL": well.dsn,
    }
    async with stage.cluster.paused(late):
        done = stage.one.command("doctor", **urls)
    assert done.returncode == 1
    told = done.stdout
    assert re.search(rf"The history pool's server 127\.0\.0\.1:{well.port} is a standby, \d+ ms late\.", told), told
    assert f"The history pool's server 127.0.0.1:{late.port} replays nothing" in told
    assert f"The history pool's server 127.0.0.1:{GONE} cannot be reached; the primary answers meanwhile" in told
    assert f"The memory pool's server 127.0.0.1:{stage.cluster.primary.port} is the primary itself" in told
    assert f"The background pool's server 127.0.0.1:{well.port} is a standby, and jobs write" in told


def test_nothing_was_complained_of(stage: Stage) -> None:
    """Last."""
    for server in (stage.one, stage.two):
        assert not [line for line in server.logs if line.get("level") == "error"]
