"""An agent's session several times longer than its budget, through the real server: the model asks back what it is not shown,
and the client notices nothing. `python -m loadtests.agent_session` plays the long one."""

from __future__ import annotations

import json

import pytest

from app.providers.tokens import Tokenizers
from tests.support.agent_client import Session, expected, play
from tests.support.agent_model import MODEL, ScriptedModel
from tests.support.agent_work import Work, work
from tests.support.clients import Api
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

pytestmark = pytest.mark.heavy

BUDGET = 8_000
RESULTS, TOKENS, GIANT = 25, 50_000, 10_000
WINDOW = 200_000
USER = "agent"


WORKER = True


@pytest.fixture(scope="module")
def made() -> Work:
    count = Tokenizers().for_model("gpt-4o").count
    return work(11, count, results=RESULTS, tokens=TOKENS, questions=6, apart=5, giant=GIANT, again=1)


@pytest.fixture(scope="module")
def script(made: Work) -> ScriptedModel:
    return ScriptedModel(made, Tokenizers().for_model("gpt-4o"), WINDOW)


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    windows = json.dumps({MODEL: WINDOW})
    return {"PAGING_BUDGET_TOKENS": str(BUDGET), "MODEL_WINDOWS": windows}


@pytest.fixture(scope="module")
def played(mneme: MnemeServer, made: Work, script: ScriptedModel) -> Session:
    """The whole session, which its header has paged."""
    api = Api(mneme, user=USER)
    headers = {"x-mneme-user": USER, "x-mneme-paging": "on"}
    return play(mneme.base_url, made, script, headers=headers, between=api.wait_for_quiet)


def test_no_prompt_is_over_its_budget(played: Session, script: ScriptedModel) -> None:
    assert all(each.status == "ok" for each in played.turns), [(each.status, each.reason) for each in played.turns]
    assert max(each.bare_tokens for each in played.turns) > 5 * BUDGET
    assert max(each.tokens for each in script.prompts) <= BUDGET


def test_every_needed_detail_is_reached(played: Session, made: Work, script: ScriptedModel) -> None:
    assert len(script.ways) == len(made.questions) == 6
    assert "nowhere" not in script.ways.values(), script.ways
    assert {"query", "restore"} & set(script.ways.values()), "nothing had to be looked up"
    assert script.asked
    assert len(script.prompts) > len(played.turns), "each look-up is a leg"


def test_the_client_sees_the_same_session_as_without_paging(
    played: Session, made: Work, script: ScriptedModel, mneme: MnemeServer
) -> None:
    assert played.wrong == []
    assert played.messages == expected(made, script.ways)
    said = [(each["role"], each["content"]) for each in played.messages if each["role"] != "system"]
    assert Api(mneme, user=USER).said(played.session_id) == said


def test_what_it_saved_is_counted(played: Session, script: ScriptedModel, mneme: MnemeServer) -> None:
    text = mneme.http.get("/metrics").text
    counted = {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in text.splitlines())
        if name.startswith("mneme_paging_")
    }
    bare, sent = sum(each.bare_tokens for each in played.turns), sum(each.tokens for each in script.prompts)
    assert counted["mneme_paging_avoided_tokens_total"] > 0.5 * (bare - sent)
    assert sum(value for name, value in counted.items() if "_prompts_total" in name) == len(played.turns)
    assert counted["mneme_paging_legs_total"] == len(script.prompts) - len(played.turns)
    faults = sum(value for name, value in counted.items() if "_faults_total" in name)
    assert faults >= len(script.asked)


# --- who says that it is paged ----------------------------------------------------------------------------------------


def shortened(upstream: ScriptedUpstream, mneme: MnemeServer, made: Work, **headers: str) -> bool:
    """Whether the upstream gets the whole session, in one transcript, otherwise than as the client wrote it."""
    messages = expected(made)[:-1]
    body = json.dumps({"model": MODEL, "messages": messages}).encode()
    answer = mneme.http.post(
        "/v1/chat/completions", content=body, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-mneme-status"] == "ok"
    sent = next(each.body for each in upstream.requests if each.path == "/v1/chat/completions")
    upstream.requests.clear()
    assert (b"<mneme-object" in sent) == (len(sent) < len(body) / 3) == ("x-mneme-paging" in answer.headers)
    return b"<mneme-object" in sent


def test_header_session_and_key_say_whether_it_is_paged(
    made: Work, upstream: ScriptedUpstream, mneme: MnemeServer
) -> None:
    assert not shortened(upstream, mneme, made, x_mneme_user="nobody", x_mneme_session="plain")
    assert shortened(upstream, mneme, made, x_mneme_user="asked", x_mneme_paging="on")
    api = Api(mneme, user="chosen")
    api.post("/sessions", {"id": "long", "user": "chosen", "config": {"paging": "on"}})
    chosen = {"x_mneme_user": "chosen", "x_mneme_session": "long"}
    assert shortened(upstream, mneme, made, **chosen)
    assert not shortened(upstream, mneme, made, **chosen, x_mneme_paging="off")
    api.send("PATCH", "/sessions/long", json={"config": {"paging": None}})
    assert not shortened(upstream, mneme, made, **chosen)
    key = mneme.create_key("agents", "--user", "keyed", "--paging", "on")
    assert shortened(upstream, mneme, made, authorization=f"Bearer {key}")
    assert not shortened(upstream, mneme, made, authorization=f"Bearer {key}", x_mneme_paging="off")
