"""Keys with limits, as OpenAI's SDK meets them; several servers on one database."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from click.testing import CliRunner

from app.cli import main
from tests.support.clients import MODEL, Api, ask, error_of, sdk, user
from tests.support.replies import Recorded, Reply, Script, Send, Stall, chat_script, reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer, wait_until
from tests.support.sockets import RawClient, eventually

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"AUTH": "keys"}


@pytest.fixture(scope="module")
def script() -> Script:
    return chat_script(lambda asked: "one two three four")


@pytest.fixture(scope="module")
def servers(
    mneme: MnemeServer,
    module_database: str,
    module_upstream: ScriptedUpstream,
    settings: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[list[MnemeServer]]:
    """The module's, and another on its database."""
    folder, upstream = tmp_path_factory.mktemp("other"), module_upstream.url
    with MnemeServer(folder, database=module_database, upstream=upstream, settings=settings) as other:
        yield [mneme, other]


def bearer(key: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} | {name.replace("_", "-"): value for name, value in more.items()}


def chats(upstream: ScriptedUpstream) -> int:
    return sum(each.path == CHAT for each in upstream.requests)


def listed(server: MnemeServer, name: str) -> dict[str, Any]:
    found = json.loads(server.command("keys", "list", "--json").stdout)
    return next(each for each in found if each["name"] == name)


def test_two_servers_let_exactly_the_rate_through(servers: list[MnemeServer], upstream: ScriptedUpstream) -> None:
    key = servers[0].create_key("busy", "--rpm", "30")
    clients = [httpx.Client(base_url=each.base_url, timeout=60, trust_env=False) for each in servers]
    body = {"model": MODEL, "messages": [user("hi")]}

    def one(n: int) -> httpx.Response:
        return clients[n % 2].post(CHAT, json=body, headers=bearer(key, x_mneme_memory="off"))

    began = time.monotonic()
    with ThreadPoolExecutor(100) as threads:
        answers = list(threads.map(one, range(100)))
    assert time.monotonic() - began < 60, "this test is about one minute"
    for client in clients:
        client.close()
    statuses = [each.status_code for each in answers]
    assert (statuses.count(200), statuses.count(429)) == (30, 70)
    assert chats(upstream) == 30
    left = sorted(int(each.headers["x-ratelimit-remaining-requests"]) for each in answers if each.status_code == 200)
    assert left == list(range(30))


@pytest.mark.parametrize("streamed", [False, True])
def test_the_sdk_waits_as_long_as_it_is_told(
    mneme: MnemeServer, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    key = mneme.create_key(f"slow {streamed}", "--rpm", "1")
    waits: list[float] = []
    monkeypatch.setattr("openai._base_client.time.sleep", waits.append)
    with sdk(mneme.url, key=key, retries=2) as client:
        answer = client.chat.completions.with_raw_response.create(
            model=MODEL, messages=[{"role": "user", "content": "hi"}]
        )
        assert answer.headers["x-ratelimit-limit-requests"] == "1"
        assert answer.headers["x-ratelimit-remaining-requests"] == "0"
        with pytest.raises(openai.RateLimitError) as refused:
            client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=streamed)
    error = refused.value
    assert (error.status_code, error.code, error.type, error.param) == (429, "rate_limit_exceeded", "requests", None)
    assert chats(upstream) == 1
    assert len(waits) == 2
    assert all(30 < each <= 60 for each in waits), waits
    assert float(error.response.headers["retry-after-ms"]) / 1000 <= waits[1]


def test_the_sdk_does_not_try_again_without_quota(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    # An answer of this upstream costs some thousandths of a cent: the first call uses the budget up.
    key = mneme.create_key("poor", "--money-budget", "0.00000001", "--money-period", "day")
    assert ask(mneme, "hi", headers=bearer(key)).status_code == 200
    wait_until(lambda: ask(mneme, "hi", headers=bearer(key)).status_code == 429, "the first call is settled")
    refusals = mneme.http.get("/metrics").text.count('mneme_refusals_total{limit="money_budget"}')
    assert refusals == 1
    before = counted(mneme, "money_budget")
    with sdk(mneme.url, key=key, retries=5) as client, pytest.raises(openai.RateLimitError) as refused:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])
    assert (refused.value.code, refused.value.type) == ("insufficient_quota", "insufficient_quota")
    assert int(refused.value.response.headers["retry-after"]) <= 86_400
    assert counted(mneme, "money_budget") == before + 1


def counted(server: MnemeServer, limit: str) -> float:
    lines = server.http.get("/metrics").text.splitlines()
    return float(
        next(each for each in lines if each.startswith(f'mneme_refusals_total{{limit="{limit}"}}')).split()[-1]
    )


def test_a_budget_holds_but_for_what_was_in_flight(servers: list[MnemeServer], upstream: ScriptedUpstream) -> None:
    key = servers[0].create_key("team", "--money-budget", "0.005", "--money-period", "ever")
    flying = 8
    asked = [{"role": "user", "content": "word " * 200}]  # some 250 tokens of gpt-4o

    def one(n: int) -> httpx.Response:
        body = {"model": MODEL, "messages": asked, "max_tokens": 40}
        with httpx.Client(base_url=servers[n % 2].base_url, timeout=60, trust_env=False) as client:
            return client.post(CHAT, json=body, headers=bearer(key, x_mneme_memory="off"))

    statuses: list[int] = []
    with ThreadPoolExecutor(flying) as threads:
        while 429 not in statuses[-flying:]:
            statuses += [each.status_code for each in threads.map(one, range(flying))]
            assert len(statuses) < 400, "the budget never ends"
    assert set(statuses) == {200, 429}
    passed = statuses.count(200)
    spend = Api(servers[0], key=servers[0].create_key("reader", "--scope", "read")).get("/spend", by="key")["spend"]
    (row,) = [each for each in spend if each["name"] == "team"]
    assert row["calls"] == passed
    each_usd = row["cost_usd"] / passed
    assert 0.005 - each_usd * flying <= row["cost_usd"] <= 0.005 + each_usd * flying


def test_what_is_not_captured_is_spent_too(mneme: MnemeServer) -> None:
    key = mneme.create_key("silent", "--tenant", "quiet", "--no-capture", "--token-budget", "1000000")
    reader = mneme.create_key("reader", "--tenant", "quiet", "--scope", "read")
    assert ask(mneme, "hi", headers=bearer(key, x_mneme_memory="off")).status_code == 200
    api = Api(mneme, key=reader)
    wait_until(lambda: bool(api.get("/spend", by="model")["spend"]), "the call is settled")
    (row,) = api.get("/spend", by="model")["spend"]
    assert (row["id"], row["calls"]) == (MODEL, 1)
    assert row["completion_tokens"] > 0
    assert api.get("/calls")["calls"] == []
    done = json.loads(mneme.command("keys", "spend", "--tenant", "quiet", "--json").stdout)
    assert [(each["name"], each["calls"]) for each in done] == [("silent", 1)]


def test_limits_are_set_shown_and_taken_away(servers: list[MnemeServer]) -> None:
    """Servers notice within KEY_CACHE_S; one that has not seen the key notices at once."""
    mneme, other = servers
    key = mneme.create_key("changing", "--model", "o3", "--rpm", "5")
    row = listed(mneme, "changing")
    assert row["limits"] == {"requests_per_minute": 5, "models": ["o3"]}
    answer = ask(mneme, "hi", headers=bearer(key))
    assert (answer.status_code, error_of(answer)["code"]) == (403, "model_not_found")
    shown = mneme.command("keys", "limit", row["id"], "--model", "gpt-*", "--rpm", "none", "--money-budget", "2.5")
    assert shown.returncode == 0, shown.stderr
    assert listed(mneme, "changing")["limits"] == {"models": ["gpt-*"], "money_budget_usd": 2.5}
    assert ask(other, "hi", headers=bearer(key)).status_code == 200
    assert mneme.command("keys", "limit", row["id"], "--money-budget", "0").returncode == 0
    noticed = "the server to notice the key's limits"
    wait_until(lambda: ask(mneme, "hi", headers=bearer(key)).status_code == 429, noticed)
    shown = mneme.command("keys", "limit", row["id"], "--money-budget", "none", "--model", "none")
    assert "no limits" in shown.stdout
    wait_until(lambda: ask(mneme, "hi", headers=bearer(key)).status_code == 200, noticed)
    assert "x-ratelimit-limit-requests" not in ask(mneme, "hi", headers=bearer(key)).headers


@pytest.mark.parametrize(
    "options",
    [["--rpm", "-1"], ["--rpm", "1.5"], ["--rpm", "nan"], ["--tpm", "9" * 30], ["--money-budget", "NaN"],
     ["--money-budget", "-1"], ["--money-budget", "1e99"], ["--token-period", "week"], ["--rpm", "٣"]],
    ids=" ".join,
)  # fmt: skip
def test_hostile_limits_are_wrong_use(options: list[str]) -> None:
    done = CliRunner().invoke(main, ["keys", "create", "hostile", *options])
    assert done.exit_code == 2, done.output
    assert isinstance(done.exception, SystemExit)


def test_a_rate_of_nothing_is_refused(mneme: MnemeServer) -> None:
    done = mneme.command("keys", "create", "hostile", "--rpm", "0")
    assert done.returncode == 1
    assert "from 1" in done.stderr


def test_two_tenants_do_not_share_anything(mneme: MnemeServer) -> None:
    keys = [mneme.create_key("same", "--tenant", f"tenant {n}", "--rpm", "2") for n in range(2)]
    for key in keys:
        assert [ask(mneme, "hi", headers=bearer(key)).status_code for _ in range(3)] == [200, 200, 429]
    for key in keys:
        assert [each["calls"] for each in Api(mneme, key=key).get("/spend")["spend"]] == [2]


@pytest.mark.parametrize("sent", [0, 200], ids=["before the head", "within the body"])
async def test_who_hangs_up_before_the_end_spends_the_prompt(
    mneme: MnemeServer, upstream: ScriptedUpstream, sent: int
) -> None:
    """The upstream has read it, and charges it."""

    def hangs(request: Recorded) -> Reply:
        if b"hi" in request.body:
            return reply_json({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 0}})
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n"
        return Reply([Send(head + b" " * sent), Stall()] if sent else [Stall()])

    upstream.script = hangs
    key = mneme.create_key("hasty", "--tenant", f"hasty {sent}", "--token-budget", "800", "--token-period", "day")
    api = Api(mneme, key=key)
    body = json.dumps({"model": MODEL, "messages": [user("word " * 800)], "max_tokens": 5}).encode()
    headers = [(b"content-type", b"application/json"), (b"authorization", f"Bearer {key}".encode())]
    async with RawClient(mneme.port) as client:
        await client.send("POST", CHAT, headers, body)
        await eventually(lambda: any(b"word" in each.body for each in upstream.requests), "the upstream to be asked")
        if sent:
            await client.read_until(b"\r\n\r\n" + b" " * sent)
    wait_until(lambda: bool(api.get("/spend")["spend"]), "the call to be recorded")
    assert 800 <= api.get("/spend")["spend"][0]["prompt_tokens"] < 1000
    wait_until(lambda: ask(mneme, "hi", headers=bearer(key), max_tokens=5).status_code == 429, "its budget to be spent")
    assert sum(each.path == CHAT and b"word" in each.body for each in upstream.requests) == 1
