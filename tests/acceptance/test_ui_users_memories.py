"""Users and memories on the page, over HTTP, as a browser without script uses them: links and forms, against a real server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from uuid import UUID

import httpx
import pytest

from tests.support.clients import Api, ask, session_of
from tests.support.database import connected
from tests.support.rows import set_memory
from tests.support.server import MnemeServer

HOSTILE = "<script>alert(1)</script> & \"quotes\" 'single' {{ 7 * 7 }} مرحبا 🙂"


class Page(HTMLParser):
    """What a browser without script makes of an answer: its text, links and forms."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__()
        self.status, self.html, self.path = response.status_code, response.text, response.url.raw_path.decode()
        self.links: list[tuple[str, str]] = []
        self.forms: list[dict[str, Any]] = []
        self._words: list[str] = []
        self._open: list[tuple[str, int, dict[str, str]]] = []
        self.feed(response.text)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self._words).split())

    @property
    def main(self) -> str:
        head, _, main = self.text.partition("Sign out")
        assert "Memories" in head
        assert main, "the menu ends with this button"
        return main

    def link(self, text: str) -> str:
        """Where the link of this text, or name, goes."""
        return next(href for said, href in self.links if said == text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(
                {"action": given["action"], "method": given.get("method", "get"), "fields": {}, "buttons": []}
            )
        if tag in ("input", "textarea", "select") and self.forms and given.get("type") != "checkbox":
            self.forms[-1]["fields"][given.get("name", "")] = given.get("value", "")
        if tag == "option" and "selected" in given:
            self.forms[-1]["fields"][[each for each in self._open if each[0] == "select"][-1][2]["name"]] = given[
                "value"
            ]
        if tag in ("a", "button", "textarea", "select"):
            self._open.append((tag, len(self._words), given))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1][0] != tag:
            return
        _, began, given = self._open.pop()
        said = "".join(self._words[began:])
        if tag == "a":
            self.links.append((given.get("aria-label", " ".join(said.split())), given.get("href", "")))
        elif tag == "button" and self.forms:
            self.forms[-1]["buttons"].append(given.get("aria-label", " ".join(said.split())))
        elif tag == "textarea":
            self.forms[-1]["fields"][given["name"]] = said.removeprefix("\n")

    def handle_data(self, data: str) -> None:
        self._words.append(data)


class Browser:
    """Somebody at the page; cookies stay."""

    def __init__(self, server: MnemeServer, key: str) -> None:
        self.http = httpx.Client(base_url=server.base_url, timeout=30, trust_env=False, follow_redirects=True)
        self.page = self.go("/ui/login")
        self._sign_in(key)

    def _sign_in(self, key: str) -> None:
        form = next(each for each in self.page.forms if each["action"] == "/ui/login")
        self.page = Page(self.http.post("/ui/login", data={**form["fields"], "key": key}))

    def go(self, path: str) -> Page:
        self.page = Page(self.http.get(path))
        return self.page

    def press(self, button: str, **fields: str) -> Page:
        """Fill the form that has this button, and press it."""
        form = next(each for each in self.page.forms if button in each["buttons"])
        unknown = set(fields) - set(form["fields"]) - {"tombstones", "said"}
        assert not unknown, f"the form has no {unknown}"
        filled = form["fields"] | fields
        if form["method"] == "post":
            self.page = Page(self.http.post(form["action"], data=filled))
        else:
            self.page = Page(self.http.get(form["action"], params=filled))
        return self.page


Visitor = Callable[[str], Browser]


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"AUTH": "keys"}


WORKER = True


@pytest.fixture(scope="module")
def key(mneme: MnemeServer) -> str:
    return mneme.create_key("page")


@pytest.fixture(scope="module")
def visitor(mneme: MnemeServer) -> Iterator[Visitor]:
    """Opens the page with a key."""
    opened: list[Browser] = []

    def visit(key: str) -> Browser:
        opened.append(Browser(mneme, key))
        return opened[-1]

    yield visit
    for each in opened:
        each.http.close()


@pytest.fixture(scope="module")
def browser(visitor: Visitor, key: str) -> Browser:
    return visitor(key)


@pytest.fixture
def api(mneme: MnemeServer, key: str) -> Api:
    return Api(mneme, key=key)


def remember(api: Api, user: str, text: str, **more: Any) -> str:
    return str(api.post("/memories", {"user": user, "text": text} | more)["id"])


def path_of(user: str) -> str:
    return f"/ui/users/{quote(user, safe='')}"


# --- users ----------------------------------------------------------------------------------------------------------------


def test_where_nobody_is_the_page_says_what_makes_a_user(mneme: MnemeServer, visitor: Visitor) -> None:
    nobody = visitor(mneme.create_key("nobody", "--tenant", "empty"))
    page = nobody.go("/ui/users")
    assert "There are no users yet" in page.text
    assert f"curl -s {mneme.base_url}/v1/chat/completions" in page.text
    assert "Nothing is remembered yet" in nobody.go("/ui/memories").text


def test_users_are_found_by_id_and_listed_page_by_page(browser: Browser, api: Api) -> None:
    for n in range(60):
        api.post("/users", {"id": f"list/{n:02}", "name": f"Number {n}"})
    first = browser.go("/ui/users?id=list/")
    assert "No user has exactly this id" in first.text
    rows = [text for text, _ in first.links if text.startswith("list/")]
    assert rows == [f"list/{n:02}" for n in range(50)]
    second = browser.go(first.link("Next page"))
    assert [text for text, _ in second.links if text.startswith("list/")] == [f"list/{n:02}" for n in range(50, 60)]
    found = browser.go("/ui/users?id=list/07")
    assert next(text for text, _ in found.links if text.startswith("list/")) == "list/07"
    assert "Number 7" in browser.go(found.link("list/07")).text


def test_a_user_is_changed_and_a_mistake_says_so_and_keeps_what_was_typed(browser: Browser, api: Api) -> None:
    api.post("/users", {"id": "edit", "name": "Before"})
    browser.go(path_of("edit"))
    wrong = browser.press("Save", name="Ana", metadata="[1]")
    assert (wrong.status, "Metadata are a JSON object" in wrong.text, api.get("/users/edit")["name"]) == (
        400, True, "Before",
    )  # fmt: skip
    done = browser.press("Save", email="ana@example.org", metadata='{"team": "A"}')
    assert "Saved." in done.text
    held = api.get("/users/edit")
    assert (held["name"], held["email"], held["metadata"]) == ("Ana", "ana@example.org", {"team": "A"})


def test_what_a_prompt_would_say_of_them(browser: Browser, api: Api) -> None:
    remember(api, "prompted", "Is allergic to nuts")
    browser.go(path_of("prompted"))
    page = browser.press("Compile", question="What may I cook, with nuts?")
    assert "Is allergic to nuts" in page.main
    assert api.get("/sessions", user="prompted")["sessions"] == [], "nothing is stored"


# --- facts ----------------------------------------------------------------------------------------------------------------


def test_a_fact_is_stated_corrected_rated_and_deleted(browser: Browser, api: Api) -> None:
    api.post("/users", {"id": "factual"})
    assert "Nothing is known as a fact yet" in browser.go(path_of("factual") + "?tab=facts").text
    browser.press("State", key="favourite/colour", value="blue", category="taste")
    assert "Said: it holds from now on." in browser.page.text
    browser.press("Correct", value="a dark green", confidence="80")
    shown = browser.page.main
    assert "blue" in shown.partition("History")[2], "what was so before is in the history"
    assert "blue" not in shown.partition("History")[0]
    assert "80 %" in shown
    browser.press("Rate", confidence="30")
    assert "30 %" in browser.page.main
    listed = browser.go(path_of("factual") + "?tab=facts")
    assert "a dark green" in listed.main
    browser.go(listed.link("favourite/colour"))
    gone = browser.press("Delete the fact")
    assert "The fact is gone" in gone.text
    assert "green" not in gone.main
    history = browser.go(path_of("factual") + "/facts/" + quote("favourite/colour", safe="") + "?category=taste").main
    assert "blue" not in history
    assert "green" not in history


def test_a_value_that_is_no_text(browser: Browser, api: Api) -> None:
    api.post("/users", {"id": "json"})
    browser.go(path_of("json") + "?tab=facts")
    browser.press("State", key="sizes", value='{"shoe": 42}', **{"as": "json"})
    assert api.get("/users/json/facts/sizes")["value"] == {"shoe": 42}
    browser.go(path_of("json") + "?tab=facts")
    assert browser.press("State", key="sizes", value="{", **{"as": "json"}).status == 400


# --- memories -------------------------------------------------------------------------------------------------------------


def test_what_is_corrected_is_in_the_history_and_the_new_is_what_search_finds(browser: Browser, api: Api) -> None:
    remember(api, "corrected", "The gate code is 4711", tags=["gate"])
    listed = browser.go(path_of("corrected") + "?tab=memories")
    browser.go(listed.link("Correct: The gate code is 4711"))
    done = browser.press("Save", text="The gate code is 0815", tags="gate, code", importance="0.9")
    assert "Corrected." in done.text
    history = done.main.partition("History")[2]
    assert "4711" in history
    assert "0815" in history
    assert "4711" not in done.main.partition("History")[0]
    assert "a client (API or page)" in history
    browser.go(path_of("corrected") + "?tab=memories")
    found = browser.press("Show", q="what is the gate code?")
    assert "0815" in found.main
    assert "4711" not in found.main
    assert "vector" in found.main, "the signals of the find are told"


def test_another_memory_takes_its_place_and_both_lead_to_each_other(browser: Browser, api: Api) -> None:
    old = remember(api, "replaced", "Release day is Tuesday")
    browser.go(f"/ui/memories/{old}")
    new = browser.press("Put this in its place", correction="Release day is Wednesday")
    assert "Release day is Tuesday" in new.main.partition("What it took the place of")[2]
    back = browser.go(new.link("Release day is Tuesday"))
    assert "superseded" in back.main
    assert browser.go(back.link("Release day is Wednesday")).path == new.path
    browser.go(path_of("replaced") + "?tab=memories")
    assert "Tuesday" not in browser.press("Show", q="which day is release day?").main


def test_what_is_forgotten_is_nowhere_on_the_page(browser: Browser, api: Api, mneme: MnemeServer, key: str) -> None:
    headers = {"x-mneme-key": key, "x-mneme-user": "forgetful"}
    assert ask(mneme, "I live in Zanzibar. My name is Theodora.", headers=headers).status_code == 200
    api.wait_for_quiet()
    assert "Zanzibar" in browser.go(path_of("forgetful")).main, "it is known"
    listed = browser.go(path_of("forgetful") + "?tab=memories")
    asked = browser.go(listed.link("Forget: Lives in Zanzibar"))
    assert "Forget this memory?" in asked.text
    memory = asked.path.split("/")[3]
    assert api.get(f"/memories/{memory}")["status"] == "active", "asking forgets nothing"
    assert "Forgotten:" in browser.press("Forget it").text
    own = path_of("forgetful")
    tabs = [own, f"{own}?tab=facts", f"{own}?tab=memories&status=all", f"{own}?tab=due", f"{own}?tab=sessions"]
    search = f"{own}?tab=memories&q=where+do+they+live&said=on&status=all"
    for path in (*tabs, search, "/ui/memories?user=forgetful&status=all", f"/ui/memories/{memory}"):
        assert "Zanzibar" not in browser.go(path).html, path
    assert browser.page.status == 404
    assert "Theodora" in browser.go(own).main, "what else was said stays"


def test_a_memory_leads_to_the_turn_that_said_it(browser: Browser, api: Api, mneme: MnemeServer, key: str) -> None:
    answer = ask(mneme, "I work at Acme.", headers={"x-mneme-key": key, "x-mneme-user": "employed"})
    api.wait_for_quiet()
    listed = browser.go(path_of("employed") + "?tab=memories")
    page = browser.go(listed.link("Works at Acme"))
    assert "Learned" in page.main.partition("History")[2]
    where = urlsplit(page.link("turn 1 of the conversation"))
    message = api.history(session_of(answer))[0]["id"]
    assert (where.path, where.fragment) == (f"/ui/sessions/{session_of(answer)}", f"m-{message}")
    assert parse_qs(where.query) == {"turn": ["1"]}


def test_confirmed_invalidated_and_brought_back_from_the_list(browser: Browser, api: Api) -> None:
    memory = remember(api, "judged", "Drives a van")
    here = path_of("judged") + "?tab=memories&status=all"
    browser.go(here)
    assert "Confirmed." in browser.press("Confirm: Drives a van").text
    assert browser.page.path == here, "one is back where one was"
    browser.press("Not true any more: Drives a van")
    assert api.get(f"/memories/{memory}")["status"] == "invalidated"
    browser.press("Bring back: Drives a van")
    assert api.get(f"/memories/{memory}")["status"] == "active"
    events = [each["event"] for each in api.get(f"/memories/{memory}/history")["events"]]
    assert events == ["created", "confirmed", "invalidated", "restored"]


def test_what_cannot_be_done_is_said_where_it_was_tried(browser: Browser, api: Api) -> None:
    remember(api, "twice", "likes tea")
    other = remember(api, "twice", "likes coffee")
    browser.go(f"/ui/memories/{other}")
    page = browser.press("Save", text="Likes tea!")
    assert page.status == 409
    assert (
        "Likes tea!"
        in page.forms[next(n for n, each in enumerate(page.forms) if "Save" in each["buttons"])]["fields"]["text"]
    )
    assert api.get(f"/memories/{other}")["text"] == "likes coffee"


async def test_what_is_in_doubt_is_asked_and_answered(browser: Browser, api: Api, module_database: str) -> None:
    memory = remember(api, "doubtful", "Prefers trains")
    async with connected(module_database) as admin:
        await set_memory(admin, UUID(memory), status="aging")
    page = browser.go(path_of("doubtful") + "?tab=due")
    assert "is that still right?" in page.main
    done = browser.press("Yes, still right")
    assert "Nothing asks to be confirmed" in done.main
    assert api.get(f"/memories/{memory}")["status"] == "active"


def test_what_was_told_in_a_chat_is_shown_and_undone(browser: Browser, api: Api, mneme: MnemeServer, key: str) -> None:
    headers = {"x-mneme-key": key, "x-mneme-user": "teller"}
    ask(mneme, "I live in Zanzibar.", headers=headers)
    api.wait_for_quiet()
    ask(mneme, "Please forget that I live in Zanzibar.", headers=headers)
    assert api.get("/memories", user="teller")["memories"] == []
    page = browser.go(path_of("teller") + "?tab=commands")
    assert "Forget: done" in page.main
    assert "Lives in Zanzibar" in page.main
    done = browser.press("Undo")
    assert "Undone." in done.text
    assert "Undo" not in [button for each in done.forms for button in each["buttons"]]
    assert [each["text"] for each in api.get("/memories", user="teller")["memories"]] == ["Lives in Zanzibar"]


def test_a_memory_is_added_by_hand(browser: Browser, api: Api) -> None:
    browser.go("/ui/memories/new?user=handy")
    wrong = browser.press("Remember", text="Has a cat", metadata="nonsense")
    assert (wrong.status, "Metadata are a JSON object" in wrong.text) == (400, True)
    done = browser.press("Remember", metadata="{}", tags="pets", kind="fact")
    assert "Remembered." in done.text
    (held,) = api.get("/memories", user="handy")["memories"]
    assert (held["text"], held["tags"]) == ("Has a cat", ["pets"])
    browser.go("/ui/memories/new?user=handy")
    assert "it counts one more time" in browser.press("Remember", text="has a cat").text


def test_a_tenants_memories_are_listed_and_a_search_asks_whose(browser: Browser, api: Api) -> None:
    remember(api, "one of many", "Plays the oboe", tags=["music"], metadata={"from": {"crm": 7}})
    page = browser.go("/ui/memories?tags=music")
    assert "Plays the oboe" in page.main
    assert page.link("one of many") == path_of("one of many") + "?tab=memories"
    assert "Plays the oboe" in browser.go("/ui/memories?metadata=" + quote('{"from": {"crm": 7}}')).main
    assert "say whose" in browser.go("/ui/memories?q=music").main
    assert "Plays the oboe" in browser.go("/ui/memories?q=music&user=" + quote("one of many")).main
    wrong = browser.go("/ui/memories?metadata=[1")
    assert (wrong.status, "not a JSON object" in wrong.main) == (200, True)
    assert "Nothing is like that" in browser.go("/ui/memories?tags=no+such+tag").main


def test_many_memories_are_paged_and_a_search_is_bounded(browser: Browser, api: Api) -> None:
    api.post("/memories", [{"user": "many", "text": f"Lamp number {n} is in hall {n % 7}"} for n in range(120)])
    path, seen = path_of("many") + "?tab=memories&kind=fact", list[str]()
    while path:
        page = browser.go(path)
        rows = [text for text, _ in page.links if text.startswith("Lamp number")]
        assert len(rows) <= 50
        seen += rows
        path = next((href for text, href in page.links if text == "Next page"), "")
    assert len(seen) == len(set(seen)) == 120
    browser.go(path_of("many") + "?tab=memories")
    found = browser.press("Show", q="Which lamp is in hall 3?")
    assert 0 < len([text for text, _ in found.links if text.startswith("Lamp number")]) <= 50


# --- everything at once ---------------------------------------------------------------------------------------------------


def test_whatever_was_said_is_only_text(browser: Browser, api: Api) -> None:
    user = "a/b <i>\"'🙂"
    memory = remember(api, user, HOSTILE, tags=["<b>"], metadata={"</pre><script>": "x"})
    remember(api, user, "x" * 10_000)
    api.send(
        "PUT",
        f"/users/{quote(user, safe='')}/facts/{quote('k/<x>', safe='')}",
        json={"value": [HOSTILE], "category": "<c>"},
    )
    api.send("PATCH", f"/users/{quote(user, safe='')}", json={"name": HOSTILE, "metadata": {HOSTILE: HOSTILE}})
    own = path_of(user)
    fact = f"{own}/facts/{quote('k/<x>', safe='')}?category={quote('<c>')}"
    paths = [
        "/ui/users",
        own,
        f"{own}?tab=facts",
        f"{own}?tab=memories",
        f"{own}?tab=memories&q=alert",
        f"{own}?tab=due",
    ]
    paths += [
        f"{own}/erase",
        fact,
        f"/ui/memories/{memory}",
        f"/ui/memories/{memory}/forget",
        "/ui/memories",
        f"{own}?question=alert",
    ]
    for path in paths:
        page = browser.go(path)
        assert page.status == 200, path
        assert "<script>alert" not in page.html, path
        assert "</pre><script>" not in page.html, path
        assert "<i>" not in page.html, path
    assert "{{ 7 * 7 }}" in browser.go(f"/ui/memories/{memory}").text


def test_a_user_is_exported_as_a_file(browser: Browser, api: Api) -> None:
    remember(api, "ex/port", "Plays chess")
    browser.go(path_of("ex/port"))
    answer = browser.http.get(browser.page.link("Export"))
    assert (
        answer.headers["content-disposition"]
        == "attachment; filename=\"export.jsonl\"; filename*=UTF-8''ex%2Fport.jsonl"
    )
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert lines[0]["export"]["user"] == "ex/port"
    assert set(lines[-1]) == {"end"}
    assert any(each.get("row", {}).get("content_text") == "Plays chess" for each in lines)
    assert browser.go(path_of("no such user") + "/export").status == 404


def test_a_user_is_erased_whose_id_is_typed(browser: Browser, api: Api) -> None:
    remember(api, "leaving", "Collects stamps")
    browser.go(path_of("leaving"))
    page = browser.go(browser.page.link("Erase …"))
    assert "Backups" in page.main, "what stays is said"
    wrong = browser.press("Erase this user", id="leavin")
    assert (wrong.status, "nothing was erased" in wrong.text) == (400, True)
    assert api.get("/memories", user="leaving")["memories"]
    receipt = browser.press("Erase this user", id="leaving", tombstones="on")
    assert "memory_store" in receipt.main
    assert "keyed hashes of what was said were kept" in receipt.main
    assert "leaving" not in receipt.main, "a receipt does not say whose"
    assert browser.go(path_of("leaving")).status == 404
    assert "Collects stamps" not in browser.go("/ui/memories?status=all").html


def test_a_user_is_erased_without_tombstones(browser: Browser, api: Api) -> None:
    remember(api, "unmarked", "Collects coins")
    browser.go(path_of("unmarked") + "/erase")
    assert "none were kept" in browser.press("Erase this user", id="unmarked").main


# --- who may --------------------------------------------------------------------------------------------------------------


def test_a_form_of_another_site_changes_nothing(browser: Browser, api: Api) -> None:
    memory = remember(api, "guarded", "Keeps bees")
    actions = ["confirm", "replace", "invalidate", "restore", "forget"]
    paths = [f"/ui/memories/{memory}", *(f"/ui/memories/{memory}/{each}" for each in actions), "/ui/memories/new"]
    own = path_of("guarded")
    paths += [own, f"{own}/erase", f"{own}/facts", f"{own}/facts/k/rate", f"{own}/facts/k/delete"]
    for path in paths:
        answer = browser.http.post(path, data={"csrf": "guessed", "id": "guarded", "text": "x"})
        assert (answer.status_code, "not one of ours" in answer.text) == (403, True), path
    (event,) = api.get(f"/memories/{memory}/history")["events"]
    assert event["event"] == "created"


def test_a_key_that_may_only_read_is_told_so(mneme: MnemeServer, visitor: Visitor, api: Api) -> None:
    memory = remember(api, "readable", "Sings")
    reader = visitor(mneme.create_key("reader", "--scope", "read"))
    reader.go(f"/ui/memories/{memory}")
    refused = reader.press("Confirm")
    assert (refused.status, "no scope to write" in refused.text) == (403, True)
    assert "Sings" in reader.go(path_of("readable") + "?tab=memories&q=sings").main, "a search only reads"


def test_a_key_of_one_user_sees_that_one(mneme: MnemeServer, visitor: Visitor, api: Api) -> None:
    remember(api, "confined", "Rows")
    other = remember(api, "somebody else", "Sails")
    own = visitor(mneme.create_key("own", "--user", "confined"))
    assert [text for text, href in own.go("/ui/users").links if href == path_of(text)] == ["confined"]
    assert "Rows" in own.go("/ui/memories?q=rows").main, "a search needs no name"
    assert "Sails" not in own.go("/ui/memories").html
    assert own.go(path_of("somebody else")).status == 403
    assert own.go(f"/ui/memories/{other}").status == 404
