"""Other people's projects: a folder with tests in it, which pytest runs by itself, far from this checkout."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path

from tests.support.forking import run

ROOT = Path(__file__).parents[2]
LOADED = ("pytest", "openai", "httpx")
"""What is loaded when a project's pytest begins; nothing of ours, which it finds by its own path."""
RUN_S = 110.0
"""Seconds that a run may take: below the time-out of a test."""
PAGE = (ROOT / "docs" / "how-to" / "cassettes.md").read_text()
FIVE_LINES = next(iter(re.findall(r"```python\n(from openai import OpenAI\n\n\ndef test_[\s\S]*?)```", PAGE)))
"""The test that docs/how-to/cassettes.md shows."""

_FOREIGN = ("OPENAI_", "MNEME_", "PYTEST_", "PYTHON", "VIRTUAL_ENV")


def clean() -> dict[str, str]:
    """The environment without what is this run's own: its path, its settings, keys."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}


def summary(told: str) -> Mapping[str, int]:
    """What pytest counted: of the line with the figures; clients that nobody closed may complain behind it."""
    line = next((line for line in reversed(told.splitlines()) if re.search(r" in \d+\.\d+s", line)), "")
    return {name: int(n) for n, name in re.findall(r"(\d+) (passed|failed|error)", line)}


class Project:
    """A project whose tests are run by this run's interpreter, with this checkout on its path. `path`: what else is."""

    def __init__(self, folder: Path, *, path: Sequence[Path] = ()) -> None:
        self.folder = folder
        self._path = [ROOT, *path]

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def run(
        self,
        *arguments: str,
        passed: int = 0,
        failed: int = 0,
        errors: int = 0,
        loaded: bool = True,
        **environment: str,
    ) -> str:
        """What pytest says; its figures are as given. `loaded`: whether `LOADED` is from the start."""
        installed = any(each.value == "mneme_replay.plugin" for each in entry_points(group="pytest11"))
        named = [] if installed else ["-p", "mneme_replay.plugin"]
        options = [
            "-W",
            "error",
            "-W",
            "ignore::ResourceWarning",  # the suites do not close their clients
            "-W",
            "ignore::pytest.PytestUnraisableExceptionWarning",
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",  # what is loaded by then is not
            "-p",
            "no:cacheprovider",
            "-p",
            "no:asyncio",  # which warns where it is not configured
            "-p",
            "no:schemathesis",  # this and the next load more than all the rest
            "-p",
            "no:hypothesispytest",
            "--strict-markers",
        ]
        done = run(
            [*options, *named, *arguments],
            environment=clean() | {"PYTHONPATH": os.pathsep.join(map(str, self._path))} | environment,
            folder=self.folder,
            program="pytest",
            loaded=LOADED if loaded else (),
            timeout_s=RUN_S,
        )
        told = done.stdout + done.stderr
        assert summary(told) == {n: c for n, c in (("passed", passed), ("failed", failed), ("error", errors)) if c}, (
            told
        )
        return told

    @property
    def cassettes(self) -> list[str]:
        return sorted(str(each.relative_to(self.folder)) for each in self.folder.rglob("*.json"))
