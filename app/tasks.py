"""Work beside other work: in the background, supervised, named and waited for at the end; or left out where it fails."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from app.errors import MnemeError
from app.patience import without
from app.settings import SUPERVISOR

log = logging.getLogger("mneme.tasks")

CLOSING_S = 5.0
"""Seconds for what still runs when a process closes: records of cancelled answers, mostly; each takes milliseconds."""
ORPHAN_LOOK_S = 2.0
"""Seconds between two looks whether the supervisor still lives; the next one starts processes of its own meanwhile."""

T = TypeVar("T")


class Supervisor:
    """Owns the tasks that outlive the call that started them. A failure is logged with the task's name, never lost."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run `work` beside everything else. Whoever awaits the task should shield it: that is why it is here."""
        task = asyncio.get_running_loop().create_task(work, name=name, context=without())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def __len__(self) -> int:
        return len(self._tasks)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background task failed", extra={"task": task.get_name()}, exc_info=error)

    async def close(self, grace_s: float) -> None:
        """Give what runs `grace_s` seconds to end, then cancel it and wait."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=grace_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)


class FailOpen(contextlib.AbstractContextManager["FailOpen", bool]):
    """A boundary, around what a request, or a loop, goes on without: whatever fails within is logged, with a trace where it is
    neither Mneme's own error nor late, and ends here."""

    def __init__(self, say: Callable[..., None], message: str, **told: object) -> None:
        """`say`: logs `message`, at its level (`log.warning`), with what is `told`."""
        self._say = say
        self._message = message
        self._told = told
        self.error: Exception | None = None
        """What failed."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self.error = error
        trace = None if isinstance(error, MnemeError | TimeoutError) else error
        self._say(self._message, extra={**self._told, "error": type(error).__name__}, exc_info=trace)
        return True


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Wait so long, or until `stop`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


async def until_orphaned(stop: asyncio.Event) -> bool:
    """Wait until the process that started this one is gone (True), or until `stop` is set (False).

    A supervisor that was killed stops nobody: its children notice by themselves. They are told who it is, for it may be gone
    before the first look; a process that nobody told has no supervisor.
    """
    supervisor = os.environ.get(SUPERVISOR)
    if supervisor is None or int(supervisor) == os.getpid():
        await stop.wait()
        return False
    while not stop.is_set():
        if os.getppid() != int(supervisor):
            return True
        await pause(stop, ORPHAN_LOOK_S)
    return False
