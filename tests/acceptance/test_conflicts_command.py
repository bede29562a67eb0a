"""`mneme conflicts` and its route: two sisters may live in two places, until somebody says where."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.clients import Api, ask
from tests.support.server import MnemeServer

pytestmark = pytest.mark.heavy


WORKER = True


def run(mneme: MnemeServer, *arguments: str, exits: int = 0) -> Any:
    """`mneme conflicts …`, as JSON where it succeeds."""
    done = mneme.command("conflicts", *arguments, "--json")
    assert done.returncode == exits, done.stderr
    return json.loads(done.stdout) if exits == 0 else done.stderr


def test_list_show_and_resolve(mneme: MnemeServer) -> None:
    for text in ("My sister lives in Ghent", "My sister lives in Porto"):
        ask(mneme, text, headers={"x-mneme-user": "ana"})
        Api(mneme, user="ana").wait_for_quiet()
    (found,) = run(mneme, "list", "--user", "ana", "--status", "open")
    assert (found["type"], found["strategy"], found["user"]) == ("memory_vs_memory", "both", "ana")
    assert run(mneme, "list", "--user", "bo") == []
    assert run(mneme, "list", "--entity", "customer:gai_123") == []
    assert run(mneme, "show", found["id"]) == found
    text = mneme.command("conflicts", "list").stdout
    assert 'lives_in: "Porto" (memory) against "Ghent" (memory)' in text

    api = Api(mneme, user="ana")
    (listed,) = api.all("/conflicts", "conflicts")
    assert listed["id"] == found["id"]
    assert len(api.all("/memories", "memories")) == 2

    kept = next(each["memory_id"] for each in found["data"]["memories"] if each["value"] == "Ghent")
    solved = run(mneme, "resolve", found["id"], "--keep", "memory", "--memory", kept, "--note", "she told us")
    assert (solved["status"], solved["outcome"]["note"]) == ("resolved", "she told us")
    assert [each["text"] for each in api.all("/memories", "memories")] == ["Sister lives in Ghent"]
    assert "resolved already" in run(mneme, "resolve", found["id"], "--keep", "both", exits=1)


def test_wrong_use_and_what_is_not_there(mneme: MnemeServer) -> None:
    nothing = "00000000-0000-7000-8000-000000000000"
    assert "no such conflict" in run(mneme, "show", nothing, exits=1)
    assert "There is no tenant" in run(mneme, "list", "--tenant", "nobody", exits=1)
    assert run(mneme, "resolve", nothing, exits=2)
    assert run(mneme, "resolve", nothing, "--keep", "nothing", exits=2)
    assert run(mneme, "show", "nonsense", exits=2)
