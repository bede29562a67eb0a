"""examples/langchain: the chain, with LangChain as it is installed today."""

from __future__ import annotations

import subprocess

import pytest

from tests.acceptance.conftest import OwnServers
from tests.support.client_envs import Client, install
from tests.support.projects import ROOT, clean

CHAIN = ROOT / "examples" / "langchain" / "chain.py"
LANGCHAIN = Client("langchain", "LangChain", "langchain_openai_client.py", ("langchain-openai",))


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_the_chain_remembers(own_server: OwnServers) -> None:
    installed = install(LANGCHAIN)
    mneme = own_server(None, worker=True)
    done = subprocess.run(
        [*installed.command, str(CHAIN)],
        env=clean() | {"OPENAI_BASE_URL": mneme.url, "OPENAI_API_KEY": "sk-anything"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    later, stream = done.stdout.splitlines()[0], done.stdout.partition("stream:")[2]
    assert later.startswith("later:")
    assert "by train" in stream, "the second conversation knows what was said in the first"
