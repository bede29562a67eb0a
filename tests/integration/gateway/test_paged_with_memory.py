"""A long session on a real store keeps within its budget with memory in it."""

from __future__ import annotations

from typing import Any

import asyncpg
import orjson

from app.features.paging.values import Fidelity, Zone
from app.providers.tokens import prompt_tokens, tools_tokens
from app.store.pools import Pool
from tests.support.journey import Message, Reply, completion, user
from tests.support.paging import COUNTER
from tests.support.rows import read_objects, read_paged_sessions
from tests.support.stored_stage import FACTS, make_stage
from tests.unit.paging.made import LONG_CODE

BUDGET = 12_000
READS = 12


def calling(asked: Message) -> Reply:
    """Reads a file in each round, and says so at the end."""
    read = sum(each["role"] == "tool" for each in asked["messages"])
    if read % 4 == 3 and asked["messages"][-1]["role"] == "tool":
        return completion("All read.")
    call = {
        "id": f"c{read}",
        "type": "function",
        "function": {"name": "Read", "arguments": f'{{"path":"src/p{read}.py"}}'},
    }
    return completion(None, tool_calls=[call])


async def test_a_paged_session_with_memory_is_within_its_budget(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    stage = await make_stage(pool, admin, paging="on", paging_budget_tokens=BUDGET)
    await stage.remember(*FACTS)
    stage.journey.upstream.script = calling
    messages = [{"role": "system", "content": "You repair."}, user("Which chess club is Ana's? Read all of it.")]
    made = []
    for i in range(READS):
        answer = await stage.ask(messages, model="gpt-4o")
        made.append((answer, stage.sent()))
        said = orjson.loads(answer.body)["choices"][0]["message"]
        messages.append(said)
        if said.get("tool_calls"):
            text = LONG_CODE.replace("helper_", f"part{i}_") + f"\nSECRET = 'w{i * 7919}'\n"
            messages.append({"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": text})
        else:
            messages.append(user(f"And the chess of part{i % 3}? Read on."))
    assert len({answer.headers["x-mneme-session-id"] for answer, _ in made}) == 1
    for answer, sent in made:
        assert answer.headers["x-mneme-status"] == "ok", answer.headers
        document = orjson.loads(sent)
        tokens = prompt_tokens(document["messages"], COUNTER) + tools_tokens(document.get("tools"), COUNTER)
        assert tokens <= BUDGET
    assert b"mneme-memory" in made[-1][1]
    assert b"mneme-object" in made[-1][1]
    assert b"memory_restore" in made[-1][1]
    (row,) = await read_paged_sessions(admin)
    assert row["tokens"] > 2 * row["shown_tokens"]
    assert row["offered"]
    assert row["zone"] in list(Zone)
    assert {each["current_fidelity"] for each in await read_objects(admin)} > {Fidelity.FULL}
