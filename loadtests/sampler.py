"""Runs `mneme` with a sampler of its own in it: where does the CPU time of the server's Python go?

    python -m loadtests.sampler FILE serve --port 0

SIGUSR1 begins; SIGUSR2 ends and writes FILE: one line for each stack, `outermost;…;innermost count`, the form that flame graph
tools read. A sample is taken each time the process has used some CPU, so waiting costs nothing. What C code does is counted
with the Python function that called it, or, where none did, that comes next.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

EVERY_S = 0.001
"""CPU seconds between two samples; the kernel makes it the step of its own clock, 4 or 10 ms on most."""
ROOT = Path(__file__).parents[1]


class Sampler:
    """Counts stacks."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stacks: Counter[tuple[str, ...]] = Counter()

    def install(self) -> None:
        signal.signal(signal.SIGPROF, self._sample)
        signal.signal(signal.SIGUSR1, self._begin)
        signal.signal(signal.SIGUSR2, self._end)

    def _begin(self, _number: int, _frame: FrameType | None) -> None:
        self._stacks.clear()
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        fresh = self._file.with_suffix(".new")
        fresh.write_text("".join(f"{';'.join(stack)} {count}\n" for stack, count in self._stacks.items()))
        fresh.replace(self._file)

    def _sample(self, _number: int, frame: FrameType | None) -> None:
        stack = []
        while frame is not None:
            stack.append(f"{short(frame.f_code.co_filename)}:{frame.f_code.co_qualname}")
            frame = frame.f_back
        self._stacks[tuple(reversed(stack))] += 1


def short(file: str) -> str:
    """A source file's name without the folders that every machine has elsewhere."""
    for marker in ("/site-packages/", f"{ROOT}/"):
        if marker in file:
            return file.rpartition(marker)[2]
    return "/".join(file.split("/")[-2:])


if __name__ == "__main__":
    Sampler(Path(sys.argv.pop(1))).install()
    from app.cli import main

    main()
