"""Clients of other people's making, each in an environment of its own, installed when a test first wants it.

The environments stay in a cache folder (`MNEME_TEST_CACHE`, by default `~/.cache/mneme-tests`), one for each client and list of
packages. A client whose registry cannot be reached cannot be tested, and its tests say so.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

INSTALL_S = 540.0
"""Seconds that an installation may take; the largest of them are some hundred megabytes."""
RUN_S = 150.0
"""Seconds that a client may take for all scenarios, on a busy machine."""
DRIVERS = Path(__file__).parents[1] / "clients"

_UNREACHABLE = re.compile(
    r"NewConnectionError|Failed to establish|Temporary failure in name resolution|ConnectTimeout|No matching distribution"
    r"|ENOTFOUND|ECONNREFUSED|ETIMEDOUT|EAI_AGAIN|ECONNRESET|network",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Client:
    """`packages`: what is installed, the first of which is the one whose version counts. `driver`: a file in tests/clients."""

    name: str
    shown: str
    driver: str
    packages: Sequence[str] = ()

    @property
    def tool(self) -> str:
        """What runs it."""
        return {".py": "python", ".mjs": "node", ".sh": "curl"}[Path(self.driver).suffix]


@dataclass(frozen=True)
class Installed:
    """A client that can be run."""

    client: Client
    command: Sequence[str]
    version: str
    environment: Mapping[str, str]

    def run(self, base_url: str, prefix: str) -> dict[str, object]:
        """What each scenario came to, by its name. `prefix`: of the users that the scenarios act for."""
        done = subprocess.run(
            [*self.command, str(DRIVERS / self.client.driver)],
            env={**_clean(), **self.environment, "BASE_URL": base_url, "USER_PREFIX": prefix},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        found: dict[str, object] = {}
        for line in done.stdout.splitlines():
            if line.startswith('{"scenario"'):
                told = json.loads(line)
                found[told["scenario"]] = told.get("result", {"raised": told.get("raised")})
        assert found, (
            f"{self.client.name} said nothing ({done.returncode}):\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        )
        return found


def install(client: Client) -> Installed:
    """The client, installed. Skips the test where its registry or what runs it is not to be had."""
    binary = shutil.which(client.tool) if client.tool != "python" else sys.executable
    if binary is None:
        pytest.skip(f"{client.shown}: there is no `{client.tool}` here")
    if client.tool == "curl":
        told = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
        return Installed(client, ["bash"], told.split()[1], {})
    names = " ".join([f"{sys.version_info[0]}.{sys.version_info[1]}", *client.packages])
    folder = _cache() / f"{client.name}-{hashlib.sha256(names.encode()).hexdigest()[:10]}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _fetch(client, folder)
            (folder / "ready").touch()
    if client.tool == "python":
        return Installed(client, [str(folder / "venv/bin/python")], _python_version(client, folder), {})
    found = json.loads((folder / "node_modules" / client.packages[0] / "package.json").read_text())
    return Installed(client, [binary], found["version"], {"CLIENT_MODULES": str(folder / "node_modules")})


def unreachable(told: str) -> bool:
    """Whether an installer says that its registry cannot be reached."""
    return _UNREACHABLE.search(told) is not None


def _cache() -> Path:
    return Path(os.environ.get("MNEME_TEST_CACHE") or Path.home() / ".cache" / "mneme-tests") / "clients"


def _fetch(client: Client, folder: Path) -> None:
    if client.tool == "python":
        shutil.rmtree(folder / "venv", ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True, capture_output=True)
        pip = [str(folder / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command = [*pip, *client.packages]
    else:
        shutil.rmtree(folder / "node_modules", ignore_errors=True)
        (folder / "package.json").write_text('{"private": true}')
        command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *client.packages]
    done = subprocess.run(
        command, cwd=folder, env=_clean(), capture_output=True, text=True, timeout=INSTALL_S, check=False
    )
    if done.returncode == 0:
        return
    told = done.stdout + done.stderr
    if unreachable(told):
        pytest.skip(f"{client.shown} cannot be installed, for its registry cannot be reached: {told.strip()[-300:]}")
    pytest.fail(f"{client.shown} cannot be installed:\n{told[-3000:]}")


def _python_version(client: Client, folder: Path) -> str:
    name = re.split(r"[\[<>=]", client.packages[0])[0]
    asked = f"import importlib.metadata as m; print(m.version({name!r}))"
    command = [str(folder / "venv/bin/python"), "-c", asked]
    return subprocess.run(command, env=_clean(), capture_output=True, text=True, check=True).stdout.strip()


def _clean() -> dict[str, str]:
    """Without what would make another program of it: this checkout's path, and keys and proxies of the developer's."""
    foreign = ("PYTHON", "OPENAI_", "MNEME_", "VIRTUAL_ENV", "LITELLM_", "LANGCHAIN_", "LANGSMITH_")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
