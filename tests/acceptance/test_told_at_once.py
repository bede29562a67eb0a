"""What the user states, and what the user tells memory to do, holds for the next request: there is no worker here."""

from __future__ import annotations

from tests.support.clients import Api, ask, prompt_of
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer


def test_what_is_stated_is_known_in_the_next_conversation(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    headers = {"x-mneme-user": "ines"}
    ask(mneme, "I live in Lisbon.", headers=headers)
    known = Api(mneme, user="ines").get("/memories")["memories"]
    assert [each["text"] for each in known] == ["Lives in Lisbon"]
    upstream.requests.clear()
    ask(mneme, "Where do I live?", headers=headers)
    (sent,) = upstream.requests
    assert "Lisbon" in prompt_of(sent)
    figures = mneme.http.get("/metrics").text
    assert 'mneme_inline_learning_total{outcome="done"} 1.0' in figures
