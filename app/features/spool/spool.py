"""The spool: files of the calls that Postgres could not take.

    <spool>/
        new/                            files that are being written
        turns/<user>/<time>-<call>      calls that wait for Postgres; a user's folder is there as long as one of his waits
        dead/<user>/<time>-<call>       calls that Postgres refuses for what they are
        lock                            held by the process that drains

Folders and names do the work: names sort by the time a call came, a file that is gone is done, and what belongs to a user lies
in one place. Several processes share the folder. Everything here blocks: the gateway runs it in a thread, but for `behind`,
which is one look at a folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

from msgspec import Struct, field

from app.errors import NotReady, SpoolUnavailable
from app.features import Finding, sync, writable
from app.features.spool.frames import FrameCodec, SpooledCall
from app.settings import Settings

LEFT_BEHIND_S = 3600.0
"""Age from which a file that somebody began to write is nobody's; writing one takes milliseconds."""
WRITING_S = 60.0
"""Age from which, for an erasure, nobody writes a file any more."""
PIECES = 512
"""Buffers given to one write: systems take 1,024 (IOV_MAX)."""
ATTEMPTS = 20
"""Tries to move a file into a user's folder, which the drain may take away at the same moment."""

# What is named otherwise is none of ours.
_HEX = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"[0-9]{20}-[0-9a-f]{32}")


# --- calls that wait for Postgres ----------------------------------------------------------------------------------------


class WaitingCall(Struct, frozen=True):
    user: UUID
    path: Path

    @property
    def call(self) -> UUID:
        return UUID(self.path.name.partition("-")[2])


class SpoolUsage(Struct, frozen=True):
    """What the spool holds. `oldest`: seconds that the first call has waited. `size`: bytes of everything in the folder."""

    calls: int = 0
    users: int = 0
    size: int = 0
    oldest: float = 0.0
    dead: int = 0


class _Item(Struct):
    """One of the calls that are written together."""

    kept: SpooledCall
    error: Exception | None = None
    target: Path = field(default_factory=Path)


class Spool:
    """The folder. Made by `open_spool`."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self._new = folder / "new"
        self._turns = folder / "turns"
        self._dead = folder / "dead"
        self._max_bytes = max_bytes
        self._used = 0
        self._turns_name = str(self._turns) + os.sep

    def prepare(self) -> None:
        """Make the folders, for nobody but us; what is in them was said in confidence. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for folder in (self._new, self._turns, self._dead):
            folder.mkdir(exist_ok=True, mode=0o700)
        for left in self._new.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > LEFT_BEHIND_S:
                    left.unlink()
        sync(self.folder)
        self.usage()

    # --- in ---------------------------------------------------------------------------------------------------------------

    def store(self, calls: Sequence[SpooledCall]) -> list[Exception | None]:
        """Write calls, and return when they are durable: for each, None or why it is not (SpoolUnavailable, OSError).

        What belongs together is done together: all files are synced, then each folder once. A call that is there already
        stays as it is.
        """
        items = [_Item(call) for call in calls]
        for item in items:
            _try(partial(self._write, item), item)
        for each in items:
            _try(partial(self._place, each), each)
        folders = {each.target.parent for each in items if each.error is None}
        failed = dict[Path, OSError]()
        for folder in [*folders, *([self._turns] if folders else [])]:
            try:
                sync(folder)
            except OSError as error:
                failed[folder] = error
        for each in items:
            if each.error is None:
                each.error = failed.get(each.target.parent) or failed.get(self._turns)
        return [each.error for each in items]

    def _write(self, item: _Item) -> None:
        begin = item.kept.begin
        name = f"{begin.at_us:020d}-{item.kept.call.hex}"
        item.target = self._turns / begin.user.hex / name
        pieces = FrameCodec(name.encode()).encode_call(item.kept)
        size = sum(map(len, pieces))
        if self._used + size > self._max_bytes:
            raise SpoolUnavailable("The spool is full (MNEME_SPOOL_MAX_BYTES).")
        path = self._new / name
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write_all(fd, pieces)
            os.fsync(fd)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        finally:
            os.close(fd)
        self._used += size

    def _place(self, item: _Item) -> None:
        """Into the user's folder, where it counts."""
        path = self._new / item.target.name
        for _ in range(ATTEMPTS):
            item.target.parent.mkdir(exist_ok=True, mode=0o700)
            if item.target.exists():
                path.unlink()  # the same call
                return
            try:
                path.rename(item.target)
            except FileNotFoundError:
                if not path.exists():
                    raise
            else:
                return
            # The drain has just taken the empty folder away.
        raise SpoolUnavailable("The spool's folder changes too fast.")

    # --- out --------------------------------------------------------------------------------------------------------------

    def behind(self, user: UUID) -> bool:
        return os.path.exists(self._turns_name + user.hex)

    def users(self) -> list[UUID]:
        return [UUID(name) for name in os.listdir(self._turns) if _HEX.fullmatch(name)]

    def turns(self, user: UUID) -> list[WaitingCall]:
        """A user's calls, in the order in which they came."""
        folder = self._turns / user.hex
        try:
            return [WaitingCall(user, folder / name) for name in sorted(os.listdir(folder)) if _NAME.fullmatch(name)]
        except FileNotFoundError:
            return []

    def load(self, waiting: WaitingCall) -> SpooledCall | None:
        """Read a call; None where its file is too damaged to tell what it was. Raises OSError."""
        return read_call(waiting.path)

    def remove(self, waiting: WaitingCall) -> None:
        """It is stored. Not synced: should the file come back, it is stored already."""
        with contextlib.suppress(FileNotFoundError):
            size = waiting.path.stat().st_size
            waiting.path.unlink()
            self._used = max(0, self._used - size)

    def leave(self, user: UUID) -> bool:
        """Take a user's folder away; False: another call has come meanwhile."""
        try:
            (self._turns / user.hex).rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def bury(self, waiting: WaitingCall) -> None:
        """Set a call aside that nothing will ever store."""
        grave = self._dead / waiting.user.hex
        grave.mkdir(exist_ok=True, mode=0o700)
        waiting.path.replace(grave / waiting.path.name)
        sync(grave)
        sync(self._dead)

    def erase(self, user: UUID) -> int:
        """Delete the calls of a user that wait or were set aside, and return how many they were. A file that is being written
        this moment stays: the drain meets the erasure. Raises OSError."""
        erased = 0
        for folder in (self._turns / user.hex, self._dead / user.hex):
            with contextlib.suppress(FileNotFoundError):
                for each in list(folder.iterdir()):
                    each.unlink(missing_ok=True)
                    erased += 1
                with contextlib.suppress(OSError):  # another one has come; it is counted, and taken, the next time
                    folder.rmdir()
        for left in self._new.iterdir() if self._new.exists() else ():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime <= WRITING_S:
                    continue
                call = read_call(left)
                if call is None or call.begin.user == user:  # a damaged file may be his
                    left.unlink()
        return erased

    @contextlib.contextmanager
    def draining(self) -> Iterator[bool]:
        """Hold the drain; False: another process has it."""
        fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(fd)

    def usage(self) -> SpoolUsage:
        found = look(self.folder)
        self._used = found.size
        return found


def read_call(path: Path) -> SpooledCall | None:
    """Read the call of a file, whose name is the key; None where it is too damaged. Raises OSError."""
    return FrameCodec(path.name.encode()).decode_call(path.read_bytes())


def open_spool(folder: Path, max_bytes: int) -> Spool:
    """The spool of a folder, which is made. Raises OSError."""
    spool = Spool(folder, max_bytes)
    spool.prepare()
    return spool


def erasing(folder: Path) -> Callable[[UUID, UUID], Awaitable[Mapping[str, int]]]:
    """Erases a user (of a tenant, which is in the user's id) from the spool of a folder, also beside a server that runs: for
    `Eraser`. Raises NotReady where the folder may not be changed."""

    async def erase(tenant: UUID, user: UUID) -> Mapping[str, int]:
        try:
            return {"spool": await asyncio.to_thread(Spool(folder, 0).erase, user)}
        except OSError as error:
            raise NotReady(
                f"The user cannot be erased from the spool: {error}. The erasure goes on when asked again."
            ) from error

    return erase


def look(folder: Path) -> SpoolUsage:
    """What a spool's folder holds; nothing where there is none."""
    count = Counter[str]()
    users = set[str]()
    oldest = time.time()
    for path, _, names in os.walk(folder):
        kind, *rest = Path(path).relative_to(folder).parts or ("",)
        for name in names:
            with contextlib.suppress(OSError):
                count["size"] += os.stat(os.path.join(path, name)).st_size
            if rest and _NAME.fullmatch(name):
                count[kind] += 1
                if kind == "turns":
                    users.add(rest[0])
                    oldest = min(oldest, int(name.partition("-")[0]) / 1e6)
    waited = time.time() - oldest if users else 0.0
    return SpoolUsage(count["turns"], len(users), count["size"], waited, count["dead"])


def _try(step: Callable[[], None], item: _Item) -> None:
    if item.error is None:
        try:
            step()
        except (OSError, SpoolUnavailable) as error:
            item.error = error


def _write_all(fd: int, pieces: Sequence[bytes]) -> None:
    for begin in range(0, len(pieces), PIECES):
        some = pieces[begin : begin + PIECES]
        length = sum(map(len, some))
        done = os.writev(fd, some)
        if done < length:
            data = b"".join(some)
            while done < length:
                done += os.write(fd, memoryview(data)[done:])


# --- `mneme doctor` ------------------------------------------------------------------------------------------------------

NEARLY_FULL = 0.8
"""Share of the spool's bound from which there is little time left."""


def findings(settings: Settings) -> Iterator[Finding]:
    if not settings.spool_max_bytes:
        yield Finding(
            "warning",
            "There is no spool: while Postgres is away, answers do not end.",
            "Set MNEME_SPOOL_MAX_BYTES to more than 0.",
        )
        return
    folder = settings.spool_folder.absolute()
    used = look(folder)
    if not writable(folder):
        yield Finding(
            "error",
            f"The spool cannot be written to ({folder}): while Postgres is away, answers do not end.",
            "Set MNEME_SPOOL_DIR to a folder that this user may write to, or make room there.",
        )
        return
    if used.dead:
        yield Finding(
            "error",
            f"{used.dead} calls could not be stored for what they are; they lie in {folder / 'dead'}.",
            f"The log says why. Move their folders to {folder / 'turns'} to try again, or delete them.",
        )
    if used.size > settings.spool_max_bytes * NEARLY_FULL:
        yield Finding(
            "error",
            f"The spool is nearly full: {used.size >> 20} of {settings.spool_max_bytes >> 20} MiB.",
            "Bring Postgres back, or set MNEME_SPOOL_MAX_BYTES higher: when it is full, answers do not end.",
        )
    if used.calls:
        calls = "1 call waits" if used.calls == 1 else f"{used.calls} calls wait"
        yield Finding(
            "warning",
            f"{calls} in the spool ({used.size >> 10} KiB, the first for {used.oldest:.0f} s).",
            "They are stored by themselves once Postgres takes writes and a server runs.",
        )
    elif not used.dead:
        yield Finding("ok", f"The spool is empty ({folder}).")
