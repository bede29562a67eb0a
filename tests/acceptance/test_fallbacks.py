"""Upstreams that fail, in front of the real command: who answers instead, what is recorded, and what is said."""

from __future__ import annotations

import json
from collections.abc import Callable

from app.gateway.forward import BREAKER_FAILURES
from tests.support.clients import Api, user
from tests.support.replies import Reply, Rst, chat_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

CHAT = "/v1/chat/completions"
BODY = {"model": "gpt-4o", "messages": [user("Who answers?")]}

StartServer = Callable[..., MnemeServer]


def upstreams(first: ScriptedUpstream, second: ScriptedUpstream) -> str:
    return json.dumps(
        [
            {"name": "first", "base_url": first.url, "fallbacks": ["second"]},
            {
                "name": "second",
                "base_url": second.url,
                "models": [],
                "aliases": {"gpt-4o": "llama"},
                "api_key": "sk-second",
            },
        ]
    )


async def test_a_fallback_answers_and_the_first_is_left_alone(own_server: StartServer) -> None:
    with (
        ScriptedUpstream(Reply([Rst()])) as first,
        ScriptedUpstream(chat_script(lambda asked: f"I am {asked['model']}")) as second,
    ):
        mneme = own_server(None, UPSTREAMS=upstreams(first, second))
        api = Api(mneme, user="ana")
        headers = {"authorization": "Bearer sk-of-the-client", "x-mneme-user": "ana"}
        for attempts in ["2"] * BREAKER_FAILURES + [None]:
            answer = mneme.http.post(CHAT, json=BODY, headers=headers)
            assert answer.json()["choices"][0]["message"]["content"] == "I am llama"
            assert answer.headers.get("x-mneme-attempts") == attempts
            assert answer.headers["x-mneme-upstream"] == "second"
            assert api.call(answer.headers["x-mneme-call-id"])["upstream"] == "second"
        asked = [each for each in first.requests if each.path == CHAT]
        assert [each.header("authorization") for each in asked] == ["Bearer sk-of-the-client"] * BREAKER_FAILURES
        assert {each.header("authorization") for each in second.requests} == {"Bearer sk-second"}
        metrics = mneme.http.get("/metrics").text
        assert 'mneme_upstream_breaker{upstream="first"} 2.0' in metrics
        assert 'mneme_upstream_attempts_total{result="unreachable",upstream="first"} 5.0' in metrics
        assert 'mneme_upstream_attempts_total{result="answered",upstream="second"} 6.0' in metrics
        told = "the upstream is left alone for a while"
        mneme.wait_for_log(told)
        assert len(mneme.said(told)) == 1


async def test_a_fallback_sees_no_key_of_the_clients(own_server: StartServer) -> None:
    """Wherever gateways and clouds take theirs: in headers of many names, in the query."""
    names = (
        "Authorization",
        "X-Api-Key",
        "apikey",
        "Ocp-Apim-Subscription-Key",
        "X-Password",
        "Cookie",
        "OpenAI-Project",
    )
    key = "canary-of-the-client"
    with ScriptedUpstream(Reply([Rst()])) as first, ScriptedUpstream(chat_script(lambda asked: "yes")) as second:
        mneme = own_server(None, UPSTREAMS=upstreams(first, second))
        headers = {**dict.fromkeys(names, key), "Idempotency-Key": "once", "X-Own": "mine"}
        answer = mneme.http.post(f"{CHAT}?api-version=3&api-key={key}&key={key}", json=BODY, headers=headers)
        assert answer.json()["choices"][0]["message"]["content"] == "yes"
        (sent,) = [each for each in second.requests if each.path == CHAT]
        (asked,) = [each for each in first.requests if each.path == CHAT]
        assert asked.target.endswith(f"?api-version=3&api-key={key}&key={key}")
        assert sent.target == f"{CHAT}?api-version=3"
        assert key not in str(sent.headers) + sent.target
        assert (sent.header("idempotency-key"), sent.header("x-own")) == ("once", "mine")
