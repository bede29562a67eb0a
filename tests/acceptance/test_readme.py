"""The README's own snippets, as written, against what `make serve` starts: the embedded Postgres and the simulated upstream."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import MnemeServer

README = (Path(__file__).parents[2] / "README.md").read_text()
SHOWN = "http://127.0.0.1:8080"
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MnemeServer]:
    with MnemeServer(tmp_path_factory.mktemp("readme"), database=None, upstream=None, worker=True) as server:
        yield server


def snippets(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands_of(words: str) -> list[str]:
    """The commands of the block that has these words."""
    return next(each for each in snippets("sh") if words in each).strip().split("\n\n")


def run(command: list[str]) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_curl_commands_and_the_python_of_the_readme_work_as_written(served: MnemeServer) -> None:
    commands = commands_of("Suggest a restaurant")
    assert len(commands) == 2
    first, second = (run(["bash", "-c", each.replace(SHOWN, served.base_url)]) for each in commands)
    assert "simulated" in first
    assert "Lisbon" in second, "the second answer knows what was said in the first conversation"
    code = next(each for each in snippets("python") if SHOWN in each)  # the test of a project is in test_plugin.py
    told = run([sys.executable, "-c", code.replace(SHOWN, served.base_url)])
    assert "vegetarian" in told


def test_every_header_that_the_readme_promises_is_there(served: MnemeServer) -> None:
    answer = served.http.post(
        "/v1/chat/completions",
        json={"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]},
        headers={"X-Mneme-Paging": "on"},
    )
    at_times = {"x-mneme-reason", "x-mneme-durability", "x-mneme-paging"}
    promised = set(re.findall(r"`(x-mneme-[a-z-]+)", README)) - at_times
    assert promised
    assert promised <= set(answer.headers)


def test_the_long_result_of_the_readme_is_shown_within_its_budget(served: MnemeServer) -> None:
    first, second = (run(["bash", "-c", each.replace(SHOWN, served.base_url)]) for each in commands_of("make build"))
    chosen = json.loads(first)["config"]
    assert chosen["paging"] == "on"
    answer = json.loads(second)
    assert answer["usage"]["prompt_tokens"] <= chosen["paging_budget_tokens"]
    objects = served.http.get("/api/v1/objects", params={"session": "build-7"}).json()["objects"]
    assert len(objects) == 1
