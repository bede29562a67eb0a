"""docs/how-to/clients.md: what each client's guide shows is run as it stands there, and the client knows what Mneme knows.

The clients whose packages a registry has are installed as they are today; see `client_envs`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.client_envs import Client, Installed, install
from tests.support.clients import Api
from tests.support.documents import SHOWN, Block, blocks
from tests.support.server import MnemeServer

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

PAGE = "docs/how-to/clients.md"
FACT = "I live in Lisbon."
QUESTION = "What do you know about me?"
RUN_S = 150.0
"""Seconds that one may take, on a busy machine."""


@dataclass(frozen=True)
class Guide:
    """`shows`: what only its block has."""

    shows: str
    client: Client


VERCEL = ("ai", "@ai-sdk/openai-compatible", "@ai-sdk/openai", "zod")
GUIDES = [
    Guide("ChatOpenAI(", Client("langchain", "LangChain", "guide.py", ("langchain-openai",))),
    Guide("OpenAILike(", Client("llamaindex", "LlamaIndex", "guide.py", ("llama-index-llms-openai-like",))),
    Guide("from pydantic_ai", Client("pydantic-ai", "Pydantic AI", "guide.py", ("pydantic-ai-slim[openai]",))),
    Guide("from agents", Client("openai-agents", "openai-agents", "guide.py", ("openai-agents",))),
    Guide("createOpenAICompatible(", Client("vercel-ai", "Vercel AI SDK", "guide.mjs", VERCEL)),
    Guide("claude -p", Client("claude-code", "Claude Code", "guide.mjs", ("@anthropic-ai/claude-code",))),
    Guide("requestOptions", Client("continue", "Continue", "guide.mjs", ("@continuedev/cli",))),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, module_database: str) -> Iterator[MnemeServer]:
    """A server without an upstream: its answers say what memory gave them."""
    folder = tmp_path_factory.mktemp("guides")
    with MnemeServer(folder, database=module_database, upstream=None, worker=True) as server:
        asked = {"model": "gpt-4o", "user": "ana", "messages": [{"role": "user", "content": FACT}]}
        assert server.http.post("/v1/chat/completions", json=asked).is_success
        yield server


def block_of(guide: Guide) -> Block:
    found = [each for each in blocks(PAGE) if guide.shows in each.text and "run by" in each.notes]
    assert len(found) == 1, f"{guide.shows}: {len(found)} blocks"
    return found[0]


def told_by(installed: Installed, block: Block, server: MnemeServer, home: Path) -> str:
    """What a client prints that does what the block shows."""
    text = SHOWN.sub(server.base_url, block.text)
    modules = installed.environment.get("CLIENT_MODULES")
    binaries = f"{modules}/.bin:" if modules else ""
    environment = {
        "PATH": binaries + os.environ["PATH"], "HOME": str(home), "ANTHROPIC_API_KEY": "unused", "CI": "1",
        "DISABLE_TELEMETRY": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CONTINUE_TELEMETRY_ENABLED": "0",
    }  # fmt: skip
    match block.language:
        case "python":
            (home / "guide.py").write_text(text)
            command = [*installed.command, str(home / "guide.py")]
        case "js":  # beside its modules
            assert modules is not None
            script = Path(modules).parent / f"guide-{os.getpid()}.mjs"
            script.write_text(text)
            command = [*installed.command, str(script)]
        case "yaml":
            (home / "config.yaml").write_text(text)
            command = [f"{modules}/.bin/cn", "--config", str(home / "config.yaml"), "-p", QUESTION]
        case _:
            command = ["bash", "-euc", text]
    done = subprocess.run(
        command, cwd=home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.parametrize("guide", GUIDES, ids=[each.client.name for each in GUIDES])
def test_a_guide_does_what_it_says(guide: Guide, served: MnemeServer, tmp_path: Path) -> None:
    installed = install(guide.client)
    api = Api(served, user="ana")
    before = len(api.calls())
    told = told_by(installed, block_of(guide), served, tmp_path)
    assert "Lisbon" in told, told
    assert len(api.calls()) > before, "whose memory it is, it says, too"
