"""What is said in a shared space is known to its members while they are members, and to nobody else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import openai
import pytest

from app.store import ids
from app.store.ids import LOCAL_TENANT
from tests.acceptance.conftest import OwnServers
from tests.support.clients import MODEL, sdk
from tests.support.database import connected
from tests.support.mcp_clients import over_http, refused, told
from tests.support.replies import Script, reply_json
from tests.support.responses import responses_script, said
from tests.support.rows import count_rows, find_tables, read_blocks, read_messages, read_sessions
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"MCP": "on", "RETRIEVAL_DEADLINE_MS": "10000"}  # what is to be found is found, however busy the machine


SAID = "We deploy the billing service on Thursdays."
ASKED = "On which day do we deploy the billing service?"


@pytest.fixture
def api(mneme: MnemeServer, upstream: ScriptedUpstream) -> httpx.Client:
    """With the module's upstream as it was, whatever the test before asked of it."""
    return mneme.http


def say(mneme: MnemeServer, text: str | list[Any], **headers: str) -> Any:
    messages: list[Any] = [{"role": "user", "content": text}] if isinstance(text, str) else text
    own = {f"X-Mneme-{name.capitalize()}": value for name, value in headers.items()}
    with sdk(mneme.url) as client:
        return client.chat.completions.create(model=MODEL, messages=messages, extra_headers=own)


def knows(mneme: MnemeServer, upstream: ScriptedUpstream, user: str) -> bool:
    say(mneme, ASKED, user=user)
    return SAID in upstream.requests[-1].body.decode()


def made(api: httpx.Client, name: str, *users: str, by_word: bool = False) -> None:
    assert api.post("/api/v1/spaces", json={"name": name, "by_word": by_word}).status_code == 201
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
    mneme: MnemeServer, module_database: str, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    with MnemeServer(tmp_path, database=module_database, upstream=upstream.url) as other:
        ends_at_once(mneme, other, upstream)


def ends_at_once(one: MnemeServer, other: MnemeServer, upstream: ScriptedUpstream) -> None:
    made(one.http, "everywhere", "eva", "emil")
    say(other, SAID, user="eva", space="everywhere")
    asked = [{"role": "user", "content": ASKED}]
    for server in (one, other):
        assert knows(server, upstream, "emil")  # both have the space's index from now on
    # A conversation that goes on: what stands in its prompts of the space goes from them, too.
    further = [*asked, {"role": "assistant", "content": "All right."}, {"role": "user", "content": "And why then?"}]
    say(other, further, user="emil")
    assert SAID in upstream.requests[-1].body.decode()
    assert one.http.delete("/api/v1/spaces/everywhere/members/emil").status_code == 200
    for server in (other, one):
        say(server, further, user="emil")
        assert SAID not in upstream.requests[-1].body.decode()
        assert not knows(server, upstream, "emil")
        assert knows(server, upstream, "eva")


async def test_nothing_that_is_stored_of_who_left_quotes_the_space(
    mneme: MnemeServer, module_database: str, upstream: ScriptedUpstream
) -> None:
    """Blocks of whatever epoch of their prompts; what is their own stays, and others' blocks do."""
    made(mneme.http, "quoted", "fay", "finn", "fritz")
    say(mneme, SAID, user="fay", space="quoted")
    for user in ("finn", "fritz"):
        assert knows(mneme, upstream, user)
    finn, fritz = (ids.user_id(LOCAL_TENANT, user) for user in ("finn", "fritz"))
    async with connected(module_database) as connection:

        async def find_quoting() -> set[UUID]:
            return {row["user_id"] for row in await read_blocks(connection) if row["item_spaces"]} & {finn, fritz}

        assert await find_quoting() == {finn, fritz}
        assert mneme.http.delete("/api/v1/spaces/quoted/members/finn").status_code == 200
        assert await find_quoting() == {fritz}


def test_what_is_taken_back_is_in_no_prompt_of_the_others_and_stays_in_ones_own_history(
    mneme: MnemeServer, upstream: ScriptedUpstream
) -> None:
    made(mneme.http, "taken", "gus", "hal")
    call = say(mneme, SAID, user="gus", space="taken")
    assert call.choices[0].message.content
    asked = [{"role": "user", "content": ASKED}]
    assert knows(mneme, upstream, "hal")
    (item,) = mneme.http.get("/api/v1/spaces/taken/items").json()["items"]
    gone = mneme.http.delete(f"/api/v1/spaces/taken/items/{item['id']}", headers={"X-Mneme-User": "gus"})
    assert gone.status_code == 200, gone.text
    # Neither anew, nor in the conversation that had it.
    assert not knows(mneme, upstream, "hal")
    say(
        mneme, [*asked, {"role": "assistant", "content": "All right."}, {"role": "user", "content": "Why?"}], user="hal"
    )
    assert SAID not in upstream.requests[-1].body.decode()
    (session,) = mneme.http.get("/api/v1/sessions", params={"user": "gus"}).json()["sessions"]
    assert SAID in mneme.http.get(f"/api/v1/sessions/{session['id']}/history").text
    # Said again, it is known again.
    say(mneme, SAID, user="gus", space="taken")
    assert knows(mneme, upstream, "hal")


def test_what_is_said_for_the_team_is_kept_though_memory_is_late(
    own_server: OwnServers, upstream: ScriptedUpstream
) -> None:
    """Which spaces there are is asked when the turn is stored, where it was not known in time."""
    mneme = own_server(upstream.url, RETRIEVAL_DEADLINE_MS="1")
    made(mneme.http, "ops", "ana", by_word=True)
    say(mneme, "Remember for the team: the gate opens at 7.", user="ana")
    assert known_in(mneme.http, "ops") == [("the gate opens at 7.", ["ana"])]


def test_a_space_that_is_not_there_and_one_of_others_are_refused_alike(mneme: MnemeServer, api: httpx.Client) -> None:
    made(api, "others", "olga")
    answers = []
    for name in ("others", "nowhere"):
        with pytest.raises(openai.NotFoundError) as error:
            say(mneme, SAID, user="ana", space=name)
        answers.append(str(error.value).replace(name, "…"))
        assert "POST /api/v1/spaces" in str(error.value)
        answer = api.get(f"/api/v1/spaces/{name}", headers={"X-Mneme-User": "ana"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "space_not_found")
    assert answers[0] == answers[1]


async def test_a_space_is_never_a_caller(mneme: MnemeServer, module_database: str, api: httpx.Client) -> None:
    """Its own id, and the ids of the sessions in which it keeps what was said, open nothing, whoever sends them."""
    made(api, "closed", "dora")
    say(mneme, SAID, user="dora", space="closed")
    space = ids.space_id(LOCAL_TENANT, "closed")
    async with connected(module_database) as connection:
        found = (await read_sessions(connection, user_id=space))[0]["session_id"]
        before = await count_rows(connection, "conversation_history")
        for session in (str(found), str(space)):
            for named in (dict[str, str](), {"user": "dora"}):
                with pytest.raises(openai.NotFoundError, match="no such session"):
                    say(mneme, ASKED, session=session, **named)
        assert await count_rows(connection, "conversation_history") == before


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
        found = await read_messages(connection)
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
        """Every table in which it stands, as text or as bytes."""
        async with connected(database) as connection:
            return await find_tables(connection, word)

    assert knows(mneme, upstream, "bob")
    both = {"conversation_history", "context_blocks"}
    assert both <= await holding("Thursdays")
    assert both <= await holding("Mondays")
    assert mneme.http.delete("/api/v1/users/ana").status_code == 200
    assert await holding("Thursdays") <= {"message_blobs"}  # requests of bob's, as they were sent: the receipt says so
    assert not knows(mneme, upstream, "bob")
    assert both <= await holding("Mondays")
    assert mneme.http.delete("/api/v1/spaces/ops").status_code == 200
    assert not {"context_blocks", "memory_store"} & await holding("Mondays")  # what is left is bob's own, of his turn
    assert not knows(mneme, upstream, "bob")
    assert mneme.http.delete("/api/v1/users/bob").status_code == 200
    assert await holding("Thursdays") == await holding("Mondays") == set()


def known_in(api: httpx.Client, name: str) -> list[tuple[str, list[str]]]:
    found = api.get(f"/api/v1/spaces/{name}/items").json()["items"]
    return [(each["text"], each["users"]) for each in found if each["kind"] == "message"]


BODIES: dict[str, Any] = {
    "/v1/messages": lambda text: {"max_tokens": 99, "messages": [{"role": "user", "content": text}]},
    "/v1/responses": lambda text: {"input": text},
}


@pytest.mark.parametrize("path", BODIES)
def test_every_dialect_speaks_to_spaces_and_reads_them(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: httpx.Client, path: str
) -> None:
    name = path.rsplit("/", 1)[-1]
    ana, bob = f"ana of {name}", f"bob of {name}"
    made(api, name, ana, bob)

    def post(text: str, user: str, **headers: str) -> httpx.Response:
        body = {"model": MODEL, **BODIES[path](text)}
        return api.post(path, json=body, headers={"X-Mneme-User": user, **headers})

    upstream.script = script_of(path)
    answer = post(SAID, ana, **{"X-Mneme-Space": name})
    assert (answer.status_code, answer.headers["x-mneme-space"]) == (200, name), answer.text
    assert known_in(api, name) == [(SAID, [ana])]
    assert post(ASKED, bob).status_code == 200
    sent = upstream.requests[-1].body.decode()
    assert SAID in sent
    assert f"shared in {name}" in sent
    answer = post(SAID, "eve", **{"X-Mneme-Space": name})
    assert answer.status_code == 404
    assert "POST /api/v1/spaces" in answer.text
    assert post(ASKED, "eve").status_code == 200
    assert SAID not in upstream.requests[-1].body.decode()


def script_of(path: str) -> Script:
    """An upstream that says the same to everything, in the dialect of the path."""
    if path == "/v1/responses":
        return responses_script(lambda asked: [said("All right.")])
    answer = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "stop_reason": "end_turn",
        "stop_sequence": None, "content": [{"type": "text", "text": "All right."}],
        "usage": {"input_tokens": 5, "output_tokens": 4},
    }  # fmt: skip
    return lambda request: reply_json(answer)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("Remember for the team: {}", True),
        ("please note this for the word1 team that {}", True),
        ("Merk dir für das Team, dass {}", True),
        ("Remember for the quiet: {}", False),
        ("Remember for the nowhere: {}", False),
        ("Somebody said: remember for the team: {}", False),
    ],
)
def test_what_is_said_for_the_team_is_kept_where_that_is_allowed(
    mneme: MnemeServer, api: httpx.Client, words: str, kept: bool
) -> None:
    """Without those words; and only in a space whose members may say so."""
    if api.get("/api/v1/spaces/word1").status_code == 404:
        made(api, "word1", "wanda", by_word=True)
        made(api, "quiet", "wanda")
    text = f"the gate opens at {len(words)}."
    say(mneme, words.format(text), user="wanda")
    assert ((text, ["wanda"]) in known_in(api, "word1")) is kept
    assert known_in(api, "quiet") == []


def test_for_the_team_means_none_where_two_may_be_meant(mneme: MnemeServer, api: httpx.Client) -> None:
    for name in ("red", "blue"):
        made(api, name, "tom", by_word=True)
    say(mneme, "Remember for the team: lunch is at noon.", user="tom")
    assert known_in(api, "red") == known_in(api, "blue") == []
    say(mneme, "Remember for the red team: lunch is at noon.", user="tom")
    assert (known_in(api, "red"), known_in(api, "blue")) == ([("lunch is at noon.", ["tom"])], [])


async def test_agents_remember_for_a_space_and_find_what_is_known_there(mneme: MnemeServer, api: httpx.Client) -> None:
    made(api, "crew", "agnes", "boris")
    async with over_http(mneme.base_url, x_mneme_user="agnes") as agnes:
        assert [each["space"] for each in (await told(agnes, "spaces"))["spaces"]] == ["crew"]
        made_there = await told(agnes, "remember", text="The crew meets at the north gate.", space="crew")
        assert made_there["space"] == "crew"
        await told(agnes, "remember", text="Agnes meets her sister at the south gate.")
        assert len((await told(agnes, "memories"))["memories"]) == 1, "the other is the space's"
    async with over_http(mneme.base_url, x_mneme_user="boris") as boris:
        (found,) = (await told(boris, "search", query="Where do we meet, at which gate?"))["items"]
        assert (found["text"], found["space"]) == ("The crew meets at the north gate.", "crew")
        assert "memory" not in found, "what others share is not one's own to correct"
        assert "nothing of this id" in await refused(boris, "forget", item=found["item"], space="crew")
        assert "`space`" in await refused(boris, "forget", item=found["item"])
        assert len((await told(boris, "search", query="Which gate?", space="crew"))["items"]) == 1
    async with over_http(mneme.base_url, x_mneme_user="vera") as vera:
        assert (await told(vera, "search", query="Where do we meet, at which gate?"))["items"] == []
        assert "no space" in await refused(vera, "search", query="Which gate?", space="crew")
        assert "no space" in await refused(vera, "remember", text="Vera was here.", space="crew")
    async with over_http(mneme.base_url, x_mneme_user="agnes") as agnes:
        more = await told(agnes, "remember", text="The crew meets at the east gate on Sundays.", space="crew")
        await told(agnes, "forget", item=more["item"], space="crew")
    async with httpx.AsyncClient(base_url=mneme.base_url) as client:
        assert "east gate" not in (await client.get("/api/v1/spaces/crew/items")).text
        assert (await client.delete("/api/v1/spaces/crew/members/boris")).is_success
    async with over_http(mneme.base_url, x_mneme_user="boris") as boris:
        assert (await told(boris, "search", query="Where do we meet, at which gate?"))["items"] == []


def test_the_page_shows_which_spaces_a_user_has_and_who_said_what(mneme: MnemeServer, api: httpx.Client) -> None:
    made(api, "desk", "petra", "paul")
    say(mneme, SAID, user="petra", space="desk")
    page = api.get("/ui/users/paul?tab=spaces").text
    assert SAID in page
    assert 'href="/ui/users/petra"' in page
    assert "2 members" in page
    # Who said it takes it back there; the others see no button.
    form = re.search(r'action="(/ui/users/petra/spaces/desk/items/[^"]+)"', api.get("/ui/users/petra?tab=spaces").text)
    assert form
    assert "take-back" not in page
    previewed = api.get("/ui/users/paul", params={"question": ASKED}).text
    assert SAID in previewed
    assert "shared in desk" in previewed
    assert "shared in desk" in api.get("/ui/users/paul", params={"tab": "memories", "q": ASKED, "said": "on"}).text
    say(mneme, ASKED, user="paul")
    call = api.get("/api/v1/calls", params={"user": "paul"}).json()["calls"][0]["id"]
    assert "shared in desk" in api.get(f"/ui/calls/{call}").text
    token = re.search(r'name="csrf" value="([^"]+)"', api.get("/ui/users/petra?tab=spaces").text)
    assert token
    for notice in ("Taken back", "There is nothing of this id"):
        done = api.post(form[1], data={"csrf": token[1]}, follow_redirects=True)
        assert notice in done.text
    assert SAID not in api.get("/ui/users/paul?tab=spaces").text
    api.post("/api/v1/users", json={"id": "piet"})
    assert "No shared spaces." in api.get("/ui/users/piet?tab=spaces").text
    assert api.get("/ui/users/piet?tab=spaces&space=desk").status_code == 404
