"""Other proxies, installed on demand into a folder of their own, started before the same upstream.

Neither is a dependency of the project: `python -m loadtests.bench --peers` needs pip's index, node and npm. A peer that
cannot be installed is left out, and the run says so.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mneme-peers"
"""Outside the checkout: hundreds of megabytes, the same for every copy of it."""
INSTALL_S = 600.0
"""Seconds for an installation; LiteLLM's takes one minute, Portkey's some seconds."""
START_S = 120.0
POLL_S = 0.2


class PeerFailed(Exception):
    """A peer could not be installed or started; the message says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One proxy. `install`: commands, run once in its folder; `command`: starts it, `environment` with it; `health`: a path
    that answers when it is ready. In the texts `{folder}`, `{port}`, `{spare}` (another port), `{upstream}` (its base URL, with
    /v1) and `{origin}` (without) are filled in."""

    name: str
    version: str
    install: tuple[tuple[str, ...], ...]
    command: tuple[str, ...]
    health: str
    environment: Mapping[str, str]
    files: Mapping[str, str]

    @property
    def folder(self) -> Path:
        return FOLDER / f"{self.name}-{self.version}"

    def installed(self, say: Callable[[str], None]) -> None:
        """Install it, if it is not there yet. Raises PeerFailed."""
        done = self.folder / ".installed"
        if done.exists():
            return
        say(f"installing {self.name} {self.version}")
        self.folder.mkdir(parents=True, exist_ok=True)
        for command in self.install:
            try:
                subprocess.run(
                    self._filled(command, 0, ""), cwd=self.folder, capture_output=True, timeout=INSTALL_S, check=True
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise PeerFailed(f"{self.name} cannot be installed: {error}") from error
        done.touch()

    def start(self, port: int, upstream: str, log: Path) -> subprocess.Popen[bytes]:
        """Start it on a loopback port. Raises PeerFailed where it does not become ready."""

        def answers() -> bool:
            with suppress(httpx.TransportError):
                return httpx.get(f"http://127.0.0.1:{port}{self.health}", trust_env=False).status_code == 200
            return False

        return self.start_until(answers, port, upstream, log)

    def start_until(self, ready: Callable[[], bool], port: int, upstream: str, log: Path) -> subprocess.Popen[bytes]:
        """Start it, and wait until it is `ready`. Raises PeerFailed."""
        for name, text in self.files.items():
            (self.folder / name).write_text(self._filled([text], port, upstream)[0], encoding="utf-8")
        with log.open("wb") as out:
            process = subprocess.Popen(
                self._filled(self.command, port, upstream),
                cwd=self.folder,
                env={**_plain_environment(), **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while process.poll() is None and time.monotonic() < deadline:
            if ready():
                return process
            time.sleep(POLL_S)
        process.kill()
        raise PeerFailed(f"{self.name} does not become ready:\n{log.read_text(errors='replace')[-1000:]}")

    def _filled(self, command: Sequence[str], port: int, upstream: str) -> list[str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            spare = free.getsockname()[1]
        given = {
            "folder": self.folder,
            "spare": spare,
            "port": port,
            "upstream": upstream,
            "origin": upstream.removesuffix("/v1"),
        }
        return [part.format(**given) for part in command]


def _plain_environment() -> dict[str, str]:
    """Without what is there for Mneme, and without this Python's own paths."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("MNEME_", "OPENAI_", "PYTHON"))}


LITELLM = Peer(
    name="litellm",
    version="1.106.2",
    install=(
        (sys.executable, "-m", "venv", "venv"),
        ("{folder}/venv/bin/pip", "install", "--quiet", "litellm[proxy]==1.106.2"),
    ),
    command=(
        "{folder}/venv/bin/litellm", "--config", "config.yaml", "--host", "127.0.0.1", "--port", "{port}", "--num_workers", "1",
    ),
    health="/health/liveliness",
    environment={
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    },
    files={
        "config.yaml": 'model_list:\n  - model_name: "*"\n    litellm_params:\n      model: "openai/*"\n'
        "      api_base: {upstream}\n      api_key: sk-none\nlitellm_settings:\n  telemetry: false\n"
    },
)  # fmt: skip
"""As its own documentation starts it, without a database and without logging: less than Mneme does with memory off."""

PORTKEY = Peer(
    name="portkey",
    version="1.15.2",
    install=(
        ("npm", "init", "-y"),
        # Its range allows 1.19.19, on which every stream is a 500 (the headers of a fetched answer are immutable there).
        ("npm", "pkg", "set", "overrides[@hono/node-server]=1.13.8"),
        ("npm", "install", "--silent", "--no-fund", "--no-audit", "@portkey-ai/gateway@1.15.2"),
    ),
    command=("node", "node_modules/.bin/gateway", "--port={port}", "--headless"),
    health="/",
    environment={"TRUSTED_CUSTOM_HOSTS": "127.0.0.1", "NODE_ENV": "production"},
    files={},
)

PEERS = {each.name: each for each in (LITELLM, PORTKEY)}
