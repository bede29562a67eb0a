"""What is said in a shared space is known to its members while they are members, and to nobody else."""

from __future__ import annotations

import re
from typing import Any

import httpx
import openai
import pytest

from app.store import ids
from app.store.ids import LOCAL_TENANT
from tests.acceptance.conftest import OwnServers
from tests.support.clients import MODEL, sdk
from tests.support.database import connected
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

SAID = "We deploy the billing service on Thursdays."
ASKED = "On which day do we deploy the billing service?"


@pytest.fixture
def api(mneme: MnemeServer) -> httpx.Client:
    return mneme.http


def say(mneme: MnemeServer, text: str | list[Any], **headers: str) -> Any:
    messages: list[Any] = [{"role": "user", "content": text}] if isinstance(text, str) else text
    own = {f"X-Mneme-{name.capitalize()}": value for name, value in headers.items()}
    with sdk(mneme.url) as client:
        return client.chat.completions.create(model=MODEL, messages=messages, extra_headers=own)


def knows(mneme: MnemeServer, upstream: ScriptedUpstream, user: str) -> bool:
    say(mneme, ASKED, user=user)
    return SAID in upstream.requests[-1].body.decode()


def made(api: httpx.Client, name: str, *users: str) -> None:
    assert api.post("/api/v1/spaces", json={"name": name}).status_code == 201
    for user in users:
        assert api.put(f"/api/v1/spaces/{name}/members/{user}").status_code == 200


def test_members_know_it_and_whose_it_is_until_they_leave(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: httpx.Client
) -> None:
    made(api, "ops", "ana", "bob")
    say(mneme, SAID, user="ana", space="ops")
    assert knows(mneme, upstream, "bob")
    assert "shared in ops" in upstream.requests[-1].body.decode()
    assert not knows(mneme, upstream, "carol")
    assert api.delete("/api/v1/spaces/ops/members/bob").status_code == 200
    assert not knows(mneme, upstream, "bob")


def test_leaving_ends_reading_at_once_in_every_server_and_conversation(
    own_server: OwnServers, upstream: ScriptedUpstream
) -> None:
    one, other = (own_server(upstream.url) for _ in range(2))
    made(one.http, "ops", "ana", "bob")
    say(other, SAID, user="ana", space="ops")
    asked = [{"role": "user", "content": ASKED}]
    for server in (one, other):
        assert knows(server, upstream, "bob")  # both have the space's index from now on
    # A conversation that goes on: what stands in its prompts of the space goes from them, too.
    further = [*asked, {"role": "assistant", "content": "All right."}, {"role": "user", "content": "And why then?"}]
    say(other, further, user="bob")
    assert SAID in upstream.requests[-1].body.decode()
    assert one.http.delete("/api/v1/spaces/ops/members/bob").status_code == 200
    for server in (other, one):
        say(server, further, user="bob")
        assert SAID not in upstream.requests[-1].body.decode()
        assert not knows(server, upstream, "bob")
        assert knows(server, upstream, "ana")


def test_a_space_that_is_not_there_and_one_of_others_are_refused_alike(mneme: MnemeServer, api: httpx.Client) -> None:
    made(api, "others", "olga")
    told = []
    for name in ("others", "nowhere"):
        with pytest.raises(openai.NotFoundError) as refused:
            say(mneme, SAID, user="ana", space=name)
        told.append(str(refused.value).replace(name, "…"))
        assert "POST /api/v1/spaces" in str(refused.value)
        answer = api.get(f"/api/v1/spaces/{name}", headers={"X-Mneme-User": "ana"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "space_not_found")
    assert told[0] == told[1]


async def test_a_space_is_never_a_caller(mneme: MnemeServer, module_database: str, api: httpx.Client) -> None:
    """Its own id, and the ids of the sessions in which it keeps what was said, open nothing, whoever sends them."""
    made(api, "closed", "dora")
    say(mneme, SAID, user="dora", space="closed")
    space = ids.space_id(LOCAL_TENANT, "closed")
    async with connected(module_database) as connection:
        count = "SELECT count(*) FROM agent_data.conversation_history"
        found = await connection.fetchval("SELECT session_id FROM agent_data.sessions WHERE user_id = $1", space)
        before = await connection.fetchval(count)
        for session in (str(found), str(space)):
            for named in (dict[str, str](), {"user": "dora"}):
                with pytest.raises(openai.NotFoundError, match="no such session"):
                    say(mneme, ASKED, session=session, **named)
        assert await connection.fetchval(count) == before


BREAK = """
CREATE FUNCTION agent_data.broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$;
CREATE TRIGGER broken BEFORE INSERT ON agent_data.space_sayings FOR EACH ROW EXECUTE FUNCTION agent_data.broken();
"""


async def test_a_turn_is_recorded_though_its_space_cannot_be_written(
    own_server: OwnServers, database: str, upstream: ScriptedUpstream
) -> None:
    mneme = own_server(upstream.url)
    made(mneme.http, "ops", "ana")
    async with connected(database) as connection:
        await connection.execute(BREAK)
        say(mneme, SAID, user="ana", space="ops")
        found = await connection.fetch("SELECT user_id, content FROM agent_data.conversation_history")
    assert {(row["user_id"], row["content"]) for row in found} == {
        (ids.user_id(LOCAL_TENANT, "ana"), each) for each in (SAID, "All right.")
    }
    assert "what was said to a space is not kept" in mneme.log_text()


def test_who_is_in_no_space_sends_the_same_bytes_whatever_spaces_there_are(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: httpx.Client
) -> None:
    """Whoever says and asks the same has the same prompt, whether the tenant has spaces or the user once had one."""
    made(api, "elsewhere", "once", "olga")
    say(mneme, "We deploy the garden gate on Fridays.", user="olga", space="elsewhere")
    assert api.delete("/api/v1/spaces/elsewhere/members/once").status_code == 200
    prompts = []
    for user in ("never", "once"):
        say(mneme, SAID, user=user)
        say(mneme, ASKED, user=user)
        prompts.append(re.sub(rb"mneme-memory [0-9a-f]+", b"mneme-memory", upstream.requests[-1].body))
    assert prompts[0] == prompts[1]
    assert SAID.encode() in prompts[0]
    assert b"shared in" not in prompts[0]


async def test_what_was_said_goes_with_its_user_and_with_its_space(
    own_server: OwnServers, database: str, upstream: ScriptedUpstream
) -> None:
    """From the tables, too: also from the stored blocks of others that quote it."""
    mneme = own_server(upstream.url)
    made(mneme.http, "ops", "ana", "bob")
    say(mneme, SAID, user="ana", space="ops")
    say(mneme, "We deploy the search cluster on Mondays.", user="bob", space="ops")

    async def holding(word: str) -> set[str]:
        async with connected(database) as connection:
            return {
                table
                for table, column in (("conversation_history", "content"), ("context_blocks", "text"))
                if await connection.fetchval(
                    f"SELECT EXISTS (SELECT FROM agent_data.{table} WHERE {column} LIKE '%' || $1 || '%')", word
                )
            }

    assert knows(mneme, upstream, "bob")
    assert await holding("Thursdays") == await holding("Mondays") == {"conversation_history", "context_blocks"}
    assert mneme.http.delete("/api/v1/users/ana").status_code == 200
    assert await holding("Thursdays") == set()
    assert not knows(mneme, upstream, "bob")
    assert await holding("Mondays") == {"conversation_history", "context_blocks"}
    assert mneme.http.delete("/api/v1/spaces/ops").status_code == 200
    assert await holding("Mondays") == {"conversation_history"}  # bob's own, of his turn
    assert not knows(mneme, upstream, "bob")
