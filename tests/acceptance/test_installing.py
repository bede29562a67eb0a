"""From nothing: the wheel in a fresh environment, and the sample project set up as its README says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.client_envs import unreachable
from tests.support.projects import FIVE_LINES, ROOT, clean, summary
from tests.support.replies import chat_script
from tests.support.scripted import ScriptedUpstream

INSTALL_S = 800.0
pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "tests", "loadtests")
"""Of a checkout: nothing that is installed needs it."""


def run(command: Sequence[str], folder: Path, **environment: str) -> str:
    """What a command says; it ends with 0. Skips the test where it could not reach its registry."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=clean() | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    told = done.stdout + done.stderr
    if done.returncode and unreachable(told):
        pytest.skip(f"a registry cannot be reached: {told.strip()[-300:]}")
    assert done.returncode == 0, told[-4000:]
    return told


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This checkout as somebody clones it."""
    folder = tmp_path_factory.mktemp("clone") / "mneme"
    shutil.copytree(ROOT, folder, ignore=LEFT_OUT)
    shutil.copytree(
        ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns(".*", "__pycache__"), dirs_exist_ok=True
    )
    return folder


def test_five_lines_with_the_wheel(checkout: Path, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    wheels = tmp_path / "wheels"
    run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(wheels), str(checkout)], tmp_path)
    (wheel,) = wheels.glob("mneme_proxy-*.whl")
    run([sys.executable, "-m", "venv", "venv"], tmp_path)
    python = str(tmp_path / "venv" / "bin" / "python")
    run([python, "-m", "pip", "install", "--quiet", str(wheel), "pytest", "openai"], tmp_path)

    project = tmp_path / "project"
    project.mkdir()
    (project / "test_greeting.py").write_text(FIVE_LINES)
    pytest_ = [python, "-m", "pytest", "-p", "no:cacheprovider"]
    upstream.script = chat_script(lambda asked: "Hello, and welcome!")
    told = run([*pytest_, "--mneme-record=once"], project, MNEME_RECORD_UPSTREAM=upstream.url, OPENAI_API_KEY="sk-none")
    assert summary(told) == {"passed": 1}, told
    asked = len(upstream.requests)
    told = run(pytest_, project)
    assert summary(told) == {"passed": 1}, told
    assert len(upstream.requests) == asked == 1
    # The server's command is there, too, and finds its SQL.
    assert "serve" in run([str(tmp_path / "venv" / "bin" / "mneme"), "--help"], tmp_path)
    assert list((tmp_path / "venv").glob("lib/*/site-packages/sql/schema/001*.sql"))


def test_the_example_is_set_up_as_its_readme_says(checkout: Path) -> None:
    folder = checkout / "examples" / "support-desk"
    commands, *_ = re.findall(r"```sh\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    told = run(["bash", "-ec", commands.replace("python3 ", f"{sys.executable} ", 1)], folder)
    assert summary(told) == {"passed": 13}, told
