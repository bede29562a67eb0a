"""The blocks of code in the documents, and a reader who does what they say.

A block of sh, python, sql, json, yaml or toml is run or read by tests/acceptance/test_documents.py. A comment right above it
says what the test needs to know, and is seen by nobody else:

    <!-- not run: why -->           it cannot be run, or parsed, here
    <!-- run: name -->              docs/how-to/operations.md: tests/acceptance/test_operations.py runs it by this name
    <!-- run by: tests/….py -->     another test runs it
    <!-- server: NAME=value … -->   from here on the document's server has these settings; it starts anew
    <!-- server: again -->          it starts anew
    <!-- prints: text -->           it prints this, among other things
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.server import MnemeServer

ROOT = Path(__file__).parents[2]
SHOWN = re.compile(r"http://(?:127\.0\.0\.1|localhost):8080")
"""The server, as documents write it."""
RUN = frozenset({"sh", "python", "sql", "js"})
READ = frozenset({"json", "yaml", "toml"})
FIGURES = frozenset({"", "mermaid"})
"""Drawings, formats, what is printed: nothing to run."""
INSTALLING = ("make", "pip", "pip3", "npm", "uv", "apt-get")
"""Programs that no block may run here."""
BLOCK_S = 90.0
"""Seconds that one block may take."""

_FENCE = re.compile(r"^( *)```(\S*)$")
_NOTE = re.compile(r"^ *<!-- ([a-z ]+): (.+) -->$")
_NOTES = frozenset({"not run", "run", "run by", "server", "prints"})


@dataclass(frozen=True)
class Block:
    """One fenced block. `line`: of its opening fence. `notes`: what the comments above it say."""

    document: str
    line: int
    language: str
    text: str
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def elsewhere(self) -> bool:
        """Whether this is not ours to run or read."""
        return bool(self.notes.keys() & {"not run", "run", "run by"})


def documents() -> list[str]:
    """All that a user reads, from the root."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
    found += [*sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").glob("*/README.md"))]
    return [str(each.relative_to(ROOT)) for each in found]


def blocks(document: str) -> list[Block]:
    """Those of a document, in order."""
    return parse(document, (ROOT / document).read_text())


def parse(document: str, text: str) -> list[Block]:
    found: list[Block] = []
    notes: dict[str, str] = {}
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if note := _NOTE.match(line):
            notes[note[1]] = note[2]
        elif fence := _FENCE.match(line):
            assert notes.keys() <= _NOTES, f"{document}:{number}: what does {', '.join(notes)} mean?"
            inner = []
            for _, each in lines:
                if each.strip() == "```":
                    break
                inner.append(each.removeprefix(fence[1]))
            else:
                raise AssertionError(f"{document}:{number}: the block has no end")
            found.append(Block(document, number, fence[2], "\n".join(inner) + "\n", notes))
            notes = {}
        else:
            assert not notes.keys() & _NOTES, f"{document}:{number}: a note is about the block right below it"
            notes = {}
    return found


class Reader:
    """Somebody who follows one document. The folder looks like a checkout; variables that a block sets, and the folder it goes
    to, are there in the next one. `curl` fails where the answer is an error."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._own = folder / ".reader"
        tools = folder / ".venv" / "bin"
        tools.mkdir(parents=True)
        self._own.mkdir()
        for each in ROOT.iterdir():
            if not each.name.startswith(".") and each.name != "mneme.toml":
                (folder / each.name).symlink_to(each)
        python, curl = shlex.quote(sys.executable), shutil.which("curl") or "curl"
        guarded = f'[ "$1 $2" != "-m pip" ] || exit 64\nexec {python} "$@"'
        for name, command in {
            "mneme": f'exec {python} -m app.cli "$@"',
            "python": guarded,
            "python3": guarded,
            "curl": f'exec {curl} --fail-with-body --silent --show-error "$@"',
            # What installs would install into the tests' own environment.
            **dict.fromkeys(INSTALLING, "exit 64"),
        }.items():
            (tools / name).write_text(f"#!/bin/sh\n{command}\n")
            (tools / name).chmod(0o755)
        (tools / "activate").write_text("")
        (self._own / "state").write_text(f"cd {shlex.quote(str(folder))}\n")

    def run(self, block: Block, server: MnemeServer) -> None:
        """Fails where it fails, or prints something else."""
        text = SHOWN.sub(server.base_url, block.text)
        script = self._own / "block"
        if block.language == "python":
            (self._own / "block.py").write_text(text)
            text = f"python {shlex.quote(str(self._own / 'block.py'))}\n"
        state = shlex.quote(str(self._own / "state"))
        script.write_text(
            f". {state}\nset -aeuo pipefail\n{text}\nset +a\n{{ export -p; printf 'cd %q\\n' \"$PWD\"; }} > {state}\n"
        )
        environment = server.environment | {
            "PATH": f"{self.folder / '.venv' / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.folder),
            "MNEME_PORT": str(server.port),
        }
        done = subprocess.run(
            ["bash", str(script)],
            cwd=self.folder,
            env={name: value for name, value in environment.items() if not name.startswith("OPENAI_")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BLOCK_S,
            check=False,
        )
        assert done.returncode == 0, f"{block.place} exits with {done.returncode}\n{done.stdout}\n{done.stderr}"
        expected = block.notes.get("prints", "")
        assert expected in done.stdout, f"{block.place} does not print {expected!r}, but\n{done.stdout}"
