"""Seed 004's worked example with a real vLLM behind Mneme. Set MNEME_TEST_VLLM_URL (test_vllm.py): its words are gibberish,
what stood in its prompt is not."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.clients import call_of
from tests.support.sample_domain import SampleDomain
from tests.support.server import MnemeServer
from tests.support.worked_example import LAST_MONTH, SEPTEMBER, UNHURRIED, Tenant, business, domains, queried

URL = os.environ.get("MNEME_TEST_VLLM_URL", "")
pytestmark = [
    pytest.mark.heavy, pytest.mark.timeout(300), pytest.mark.skipif(not URL, reason="MNEME_TEST_VLLM_URL names no vLLM"),
]  # fmt: skip

TINY = "tiny"
SMALL = {"MEMORY_BUDGET_TOKENS": "300"}
"""In a window of 2,048 tokens the sections share some 400: as budgets are else, a line on a conflict finds no room."""
GAI = "customer:gai_123"


@pytest.fixture(scope="module")
async def sample(postgres_server: str) -> AsyncIterator[SampleDomain]:
    async with business(postgres_server) as found:
        yield found


@pytest.fixture(scope="module")
def tenant(tmp_path_factory: pytest.TempPathFactory, module_database: str, sample: SampleDomain) -> Iterator[Tenant]:
    settings = UNHURRIED | {"DOMAINS": domains(erp=(sample.dsn, ["vllm"])), "DEFAULT_MODEL": TINY} | SMALL
    folder = tmp_path_factory.mktemp("vllm")
    with MnemeServer(folder, database=module_database, upstream=URL, worker=True, settings=settings) as server:
        yield Tenant(server, "vllm", model=TINY)


def sent(tenant: Tenant, call: str) -> str:
    """The prompt as it went to vLLM."""
    messages = json.loads(tenant.api().request(call, sent=True))["messages"]
    return "\n".join(str(each["content"]) for each in messages)


def test_the_worked_example(tenant: Tenant) -> None:
    for message in ("Tell me about Gai Media", "Remember, Gai Media prefers Friday deliveries"):
        tenant.chat(message, "before", max_tokens=16)
    told = tenant.chat(SEPTEMBER, "now", max_tokens=16)
    assert told["response"]["role"] == "assistant"
    assert told["response"]["content"]
    assert told["metadata"]["llm_model"] == TINY
    assert [(each["mention"], each["canonical_id"], each["method"]) for each in told["entities_resolved"]] == [
        ("Gai Media", GAI, "known_alias")
    ]
    assert queried(told) == [
        ("customer", None, 1), ("sales_order", ["2024-09-01", "2024-09-30"], 2), ("work_order", None, 3),
    ]  # fmt: skip
    assert told["conflicts"] is None
    assert [each["memory_type"] for each in told["memories_created"]] == ["episodic"]
    prompt = sent(tenant, told["metadata"]["call_id"])
    assert "SO-1045 (2024-09-15): status: fulfilled, total_amount: 3500 — work orders: 2 done" in prompt
    assert "2 in all, total_amount 5700" in prompt
    assert "Friday" in prompt

    answer = tenant.completion(LAST_MONTH, "literal", max_tokens=16, stream=True)
    assert answer.status_code == 200
    assert answer.text.rstrip().endswith("data: [DONE]")
    assert "2 in all, total_amount 5700" in sent(tenant, call_of(answer))
    assert [each["result_count"] for each in tenant.explained(call_of(answer))["domain"]["queries"]] == [1, 2, 3]


def test_the_row_wins_and_then_thursday(tenant: Tenant) -> None:
    who = "user_456"
    tenant.chat("Remember, Gai Media's payment terms are NET30", "one", who, max_tokens=16)
    asked = tenant.chat("What are Gai Media's payment terms?", "two", who, max_tokens=16)
    assert [(each["stands"], each["memory"]["value"], each["db_source"]["value"]) for each in asked["conflicts"]] == [
        ("domain", "NET30", "NET15")
    ]
    answer = tenant.completion("And the terms of Gai Media?", "three", who, max_tokens=16)
    prompt = json.loads(tenant.api(who).request(call_of(answer), sent=True))["messages"][-1]["content"]
    assert "the company's records say NET15 (authoritative since" in prompt

    tenant.chat("Remember, Gai Media prefers Friday deliveries", "four", who, max_tokens=16)
    tenant.chat("They prefer Thursday now", "four", who, max_tokens=16)
    known = [each["object"] for each in tenant.memories(who) if each["predicate"] == "delivery_day_preference"]
    assert known == ["Thursday"]
