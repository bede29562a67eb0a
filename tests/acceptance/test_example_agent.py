"""examples/agent-with-paging: the agent, its scripted model and Mneme between them, as its README starts them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import OwnServers
from tests.support.projects import ROOT, clean

pytestmark = pytest.mark.heavy

EXAMPLE = ROOT / "examples" / "agent-with-paging"
README = (EXAMPLE / "README.md").read_text()
PAGED = re.compile(r"step \d: [\d,]+ characters of transcript; zone=\w+;tokens=(\d+);budget=(\d+);saved=(\d+);(.*)")


@pytest.fixture
def model() -> Iterator[str]:
    """The scripted model; its base URL."""
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLE / "model.py"), "--port", "0"], env=clean(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def test_the_agent_finds_what_has_left_its_prompt(model: str, own_server: OwnServers) -> None:
    (budget,) = set(re.findall(r"MNEME_PAGING_BUDGET_TOKENS=(\d+)", README))
    mneme = own_server(model, worker=True, PAGING_BUDGET_TOKENS=budget)
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "agent.py")],
        env=clean() | {"OPENAI_BASE_URL": mneme.url, "OPENAI_API_KEY": "sk-anything"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, *steps, last = done.stdout.splitlines()
    assert first == "step 1: 142 characters of transcript; not paged", "there is nothing to page yet"
    assert last == "answer: Module m137 failed: undefined name 'ledger_total'."
    told = [found.groups() for each in steps if (found := PAGED.fullmatch(each))]
    assert len(told) == len(steps) == 4, done.stdout
    assert all(int(tokens) <= int(budget) == int(limit) for tokens, limit, _, _ in told)
    assert int(told[-1][2]) > 2 * int(budget), "far more than the budget was left out"
    assert told[-1][3] == "faults=1", "the model asked for it, and the agent saw nothing of that"
    assert "memory_query" not in done.stdout
