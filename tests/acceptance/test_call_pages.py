"""The pages of calls, over HTTP: what a person who asks “why did the model know that?” gets to see."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import httpx
import pytest

from app.features.ui.call_prompt import SHOWN_CHARS
from tests.support.clients import Api, ask, assistant, call_of, user
from tests.support.replies import Script, chat_script, reply_bytes
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

pytestmark = pytest.mark.usefixtures("upstream")  # each test has the module's script again
HOSTILE = "<script>alert('x')</script> \u202eevil\u202c " + "w" * 3000
PIECES = ["You ", "live ", "in ", "Lisbon."]
TOKEN = re.compile(r'name="csrf" value="([^"]+)"')


@pytest.fixture(scope="module")
def script() -> Script:
    def answer(asked: dict[str, Any]) -> list[str]:
        if "ten thousand" in json.dumps(asked["messages"][-1]):
            return [f"{n} " for n in range(10_000)]
        return PIECES

    return chat_script(answer)


def page(server: MnemeServer, path: str, status: int = 200) -> str:
    answer = server.http.get(path)
    assert answer.status_code == status, answer.text[-500:]
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not re.search(r"<script>|\sstyle=|\son[a-z]+=", answer.text)
    return answer.text


def words(html: str) -> str:
    """What stands on a page, without its marks."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html.partition("<main")[2])))


def send(server: MnemeServer, path: str, form: dict[str, str], *, seen: str | None = None) -> httpx.Response:
    """POST a form as the page `seen` has it: with its token."""
    html = server.http.get(seen or path).text
    token = TOKEN.search(html)
    assert token is not None
    return server.http.post(path, data={"csrf": token[1], **form})


@pytest.fixture(scope="module")
def empty(mneme: MnemeServer) -> str:
    """The list before the first call."""
    return page(mneme, "/ui/calls")


@pytest.fixture(scope="module")
def told(mneme: MnemeServer, empty: str) -> str:
    """A streamed call whose prompt has a memory and something that was said, and drops what is said twice."""
    Api(mneme, user="ana").post("/memories", {"text": "Prefers Friday deliveries", "kind": "preference"})
    Api(mneme, user="ana").post("/memories", {"text": "Wants deliveries in Lisbon by <script>alert('x')</script>"})
    for text in ("I live in Lisbon, near the river.", HOSTILE, "My deliveries go to Lisbon."):
        ask(mneme, text, headers={"x-mneme-user": "ana"})
    head = {"x-mneme-user": "ana", "x-mneme-label": "golden, <b>x</b>"}
    return call_of(ask(mneme, "Where do I live, and when do I want deliveries in Lisbon?", stream=True, headers=head))


def test_an_empty_list_says_how_to_make_a_call(mneme: MnemeServer, empty: str) -> None:
    assert "No calls yet" in empty
    assert f"curl -s {mneme.base_url}/v1/chat/completions" in empty


def test_the_list_has_the_call_and_filters_it(mneme: MnemeServer, told: str) -> None:
    html = page(mneme, "/ui/calls")
    assert f'href="/ui/calls/{told}"' in html
    assert "&lt;b&gt;x&lt;/b&gt;" in html
    found = page(mneme, "/ui/calls?label=golden&user=ana&outcome=complete&has_error=false&since=2020-01-01T00:00")
    assert f'href="/ui/calls/{told}"' in found
    assert 'value="golden"' in found
    none = page(mneme, "/ui/calls?label=golden&until=2020-01-01T00:00:00")
    assert "No calls like these" in none
    assert "curl" not in none


def test_a_filter_that_is_none_says_so_and_stays(mneme: MnemeServer, told: str) -> None:
    html = page(mneme, "/ui/calls?status=abc", 400)
    assert 'role="alert"' in html
    assert 'value="abc"' in html


def test_pages_follow_one_another(mneme: MnemeServer, told: str) -> None:
    for n in range(51):
        ask(mneme, f"Number {n}", headers={"x-mneme-user": "many", "x-mneme-memory": "off"})
    html = page(mneme, "/ui/calls?user=many")
    following = re.search(r'rel="next" href="([^"]+)"', html)
    assert following is not None
    assert len(re.findall(r"<tr>", html)) == 51
    second = page(mneme, unescape(following[1]))
    assert len(re.findall(r"<tr>", second)) == 2
    assert 'rel="next"' not in second


def test_the_context_explains_each_candidate(mneme: MnemeServer, told: str) -> None:
    html = page(mneme, f"/ui/calls/{told}")
    shown = words(html)
    items = Api(mneme, user="ana").get(f"/calls/{told}/context")["items"]
    assert any(each["chosen"] for each in items)
    for each in items:
        assert f'id="i-{each["id"]}"' in html
        for source in each["provenance"]:
            assert f'#m-{source["message_id"]}"' in html
        if each["source"] == "memory":
            assert f'href="/ui/memories/{each["id"]}"' in html
    assert "Prefers Friday deliveries" in shown
    assert "✓ In the prompt" in shown
    assert "What the signals mean" in shown
    dropped = [each for each in items if not each["chosen"]]
    assert dropped
    only = page(mneme, f"/ui/calls/{told}?show=chosen")
    assert not any(f'id="i-{each["id"]}"' in only for each in dropped)


def test_the_prompt_shows_what_mneme_put_there(mneme: MnemeServer, told: str) -> None:
    html = page(mneme, f"/ui/calls/{told}")
    chosen = [each for each in Api(mneme, user="ana").chosen(told) if each["source"] == "memory"]
    added = re.findall(r"<ins[^>]*>(.*?)</ins>", html, re.DOTALL)
    assert added
    assert "mneme-memory" in added[0]
    assert f'href="#i-{chosen[0]["id"]}"' in added[0]
    assert "Where do I live" not in added[0]
    budget = Api(mneme).get(f"/calls/{told}/context")["budget"]
    assert f"{budget['window']:,} tokens" in words(html)


def test_hostile_text_is_only_text(mneme: MnemeServer, told: str) -> None:
    html = page(mneme, f"/ui/calls/{told}")
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html


def test_the_stream_is_a_timeline(mneme: MnemeServer, told: str) -> None:
    html = page(mneme, f"/ui/calls/{told}?tab=stream")
    times = [int(each) for each in re.findall(r'data-t="(\d+)"', html)]
    events = Api(mneme).get(f"/calls/{told}/events")["events"]
    assert len(times) == len(PIECES)
    assert set(times) <= {each["t_us"] for each in events}
    assert "You live in Lisbon." in re.sub(r"<[^>]+>", "", html)
    assert "data-play" in html
    assert html.count("<details><summary>Show</summary><pre>") == len(events)


def test_ten_thousand_events_are_shown_in_parts(mneme: MnemeServer, told: str) -> None:
    call = call_of(ask(mneme, "Count to ten thousand", stream=True, headers={"x-mneme-user": "counting"}))
    html = page(mneme, f"/ui/calls/{call}?tab=stream")
    assert 3000 < html.count("data-t=") <= 4000
    assert len(html) < 400_000
    onward = re.findall(r'class="button"[^>]* href="([^"]+)"', html)
    assert len(onward) == 2  # further along in time, and in the table
    later = page(mneme, unescape(onward[0]))
    assert 'data-t="' in later
    assert "51" in words(page(mneme, unescape(onward[1])))


def test_an_answer_in_one_piece_has_one_arrival(mneme: MnemeServer, told: str) -> None:
    call = call_of(ask(mneme, "Hello", headers={"x-mneme-user": "one"}))
    assert "came in one piece" in words(page(mneme, f"/ui/calls/{call}?tab=stream"))


def test_bytes_are_shown_and_downloaded_as_they_are(mneme: MnemeServer, told: str) -> None:
    html = page(mneme, f"/ui/calls/{told}?tab=raw")
    assert "SHA-256" in html
    for part in ("request", "sent", "response"):
        assert f'href="/ui/calls/{told}/raw?part={part}"' in html
        answer = mneme.http.get(f"/ui/calls/{told}/raw", params={"part": part})
        assert answer.content == mneme.http.get(f"/api/v1/calls/{told}/raw", params={"part": part}).content
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"] == "attachment"
        assert "nosniff" in answer.headers["x-content-type-options"]
    page(mneme, f"/ui/calls/{told}/raw?part=other", 404)


def test_bytes_that_are_no_text(mneme: MnemeServer, upstream: ScriptedUpstream, told: str) -> None:
    body = b"\xff\xfe<script>alert(1)</script>\0"
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    upstream.script = reply_bytes(head + body)
    call = call_of(ask(mneme, "Binary", headers={"x-mneme-user": "binary"}))
    for tab in ("raw", "stream", "context"):
        page(mneme, f"/ui/calls/{call}?tab={tab}")
    assert "ff fe 3c 73" in page(mneme, f"/ui/calls/{call}?tab=raw")


def test_a_replay_sends_the_call_again_and_compares_the_answers(mneme: MnemeServer, told: str) -> None:
    answer = send(mneme, f"/ui/calls/{told}/replay", {}, seen=f"/ui/calls/{told}?tab=replay")
    assert answer.status_code == 200
    assert "the same answer" in words(answer.text)


def test_a_call_without_memory_is_replayed_as_it_was(mneme: MnemeServer) -> None:
    call = call_of(ask(mneme, "Hello", headers={"x-mneme-memory": "off"}))
    html = page(mneme, f"/ui/calls/{call}")
    assert "No context was compiled" in html
    assert "The client asked for no memory." in words(html)
    answer = send(mneme, f"/ui/calls/{call}/replay", {}, seen=f"/ui/calls/{call}?tab=replay")
    assert "the same answer" in words(answer.text)


def test_a_call_that_cannot_be_sent_again_says_why(mneme: MnemeServer) -> None:
    answer = mneme.http.post("/v1/embeddings", json={"model": "m", "input": "x"}, headers={"x-mneme-user": "vectors"})
    call = answer.headers["x-mneme-call-id"]
    answer = send(mneme, f"/ui/calls/{call}/replay", {}, seen=f"/ui/calls/{call}?tab=replay")
    assert answer.status_code == 409
    assert 'role="alert"' in answer.text
    assert "Only chats can be sent again" in words(answer.text)


def test_labels_and_outcomes_are_kept(mneme: MnemeServer, told: str) -> None:
    path = f"/ui/calls/{told}"
    assert send(mneme, f"{path}/labels", {"labels": "golden, new one"}, seen=path).status_code == 303
    assert Api(mneme).call(told)["labels"] == ["golden", "new one"]
    answer = send(mneme, f"{path}/outcome", {"outcome": "positive", "comment": "Right", "tab": "raw"}, seen=path)
    assert answer.headers["location"] == f"{path}?tab=raw"
    worth = Api(mneme).get(f"/outcomes/{told}")
    assert (worth["outcome"], worth["comment"]) == ("positive", "Right")
    html = page(mneme, path)
    assert "Noted." in html
    assert 'value="positive" required checked' in html
    send(mneme, f"{path}/outcome", {"back": "1"}, seen=path)
    assert Api(mneme).send("GET", f"/outcomes/{told}").status_code == 404
    send(mneme, f"{path}/labels", {"labels": "golden, <b>x</b>"}, seen=path)


@pytest.mark.parametrize("what", ["labels", "outcome", "replay"])
def test_forms_of_other_sites_change_nothing(mneme: MnemeServer, told: str, what: str) -> None:
    before = Api(mneme).call(told)
    assert mneme.http.post(f"/ui/calls/{told}/{what}", data={"labels": "x", "outcome": "negative"}).status_code == 403
    assert mneme.http.get(f"/ui/calls/{told}/{what}").status_code == 405
    assert Api(mneme).call(told) == before


def test_a_long_prompt_is_cut_on_the_page(mneme: MnemeServer) -> None:
    said = [user("x" * 1_000_000), assistant("y"), *(user(f"and {n}") for n in range(500))]
    call = call_of(ask(mneme, said, headers={"x-mneme-user": "long"}))
    html = page(mneme, f"/ui/calls/{call}")
    assert len(html) < 300_000
    assert html.count("x" * SHOWN_CHARS) == 1
    assert "more characters in the download" in words(html)
    assert len(page(mneme, f"/ui/calls/{call}?tab=raw")) < 300_000


def test_supplied_history_is_marked(mneme: MnemeServer) -> None:
    head = {"x-mneme-user": "hist", "x-mneme-session": "s/1 <i>", "x-mneme-history": "server"}
    ask(mneme, "I keep bees.", headers=head)
    call = call_of(ask(mneme, "What do I keep?", headers=head))
    html = page(mneme, f"/ui/calls/{call}")
    assert html.count('<li class="c-said c-added">') == 2
    assert "supplied by Mneme" in words(html)


@pytest.mark.parametrize("call", ["nothing", "01a204b3-59a1-76ee-ba60-fb3806f40618", "%3Cscript%3E"])
def test_a_call_that_is_not_there(mneme: MnemeServer, call: str) -> None:
    for tab in ("context", "stream", "raw", "replay"):
        assert "There is no such call." in page(mneme, f"/ui/calls/{call}?tab={tab}", 404)
