"""The real command as a subprocess: `python -m app.cli replay serve`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextmanager
def replaying(*arguments: str, heard: list[str] | None = None) -> Iterator[str]:
    """`mneme replay serve` on a free port, without any database; its base URL. It ends with 0 at SIGTERM. `heard`: what it
    says of requests without a cassette, line by line, when it has ended."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MNEME_", "OPENAI_", "PYTEST_"))
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "replay", "serve", "--port", "0", *arguments],
        env=environment | {"PYTHONPATH": str(ROOT), "MNEME_DATABASE_URL": "postgresql://127.0.0.1:1/none"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    heard = [] if heard is None else heard
    listening = threading.Thread(target=lambda: heard.extend(process.stderr or ()), daemon=True)
    listening.start()
    try:
        first = process.stdout.readline()
        assert " on http://127.0.0.1:" in first, heard
        yield first.split()[-1]
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(20)
        listening.join(5)
        process.stdout.close()
        process.stderr.close()
    assert code == 0, heard
