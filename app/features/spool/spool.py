"""What keeps calls on disk: the journal of those that run, and the spool of those that Postgres could not take.

    <spool>/
        running/<key>.journal           what a process is about; locked (flock) by it until it is dead
        new/                            files that are being written
        turns/<user>/<time>-<call>      calls that wait for Postgres; a user's folder is there as long as one of his waits
        dead/<user>/<time>-<call>       calls that Postgres refuses for what they are
        lock                            held by the process that drains

Each process writes down what it is about, as it comes and without fsync, so that a process that is killed leaves interrupted
turns and not nothing. A call's frames all stand in the segment where it began. A segment goes when none of its calls runs any
more; the one that is written begins again at its start when it is quiet, over pages that are there already (new ones cost three
times as much), and is emptied now and then. What is left behind the new frames then are calls that are done, or frames without
their BEGIN: no reader takes them for running ones. Writing never fails a call: what cannot be written is counted, and the call
goes on.

Of the spool, folders and names do the work: names sort by the time a call came, a file that is gone is done, and what belongs
to a user lies in one place. Several processes share the folder. Everything here blocks: the gateway runs it in a thread, but
for `behind`, which is one look at a folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

from msgspec import Struct, field

from app.errors import NotReady, SpoolUnavailable
from app.features import Finding, sync, writable
from app.features.spool.journal import HEAD_BYTES, CallBegin, Codec, KeptCall, Kind, frames_of, gather
from app.settings import Settings

log = logging.getLogger("mneme.journal")

SUFFIX = ".journal"
SEGMENT_LIFE_S = 60.0
"""Age from which a segment that is never quiet is followed by another: what is done does not lie about for longer."""
EMPTY_LIFE_S = 60.0
"""Age from which an empty segment that nobody holds was left behind: a new one is locked within a moment."""

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


# --- the journal of running calls ----------------------------------------------------------------------------------------


class JournalSegment:
    """One file of the journal, open for writing. Raises OSError when it cannot be made."""

    __slots__ = ("_codec", "_fd", "born", "current", "path", "running", "size", "used")

    def __init__(self, folder: Path) -> None:
        key = secrets.token_hex(16)
        self.path = folder / f"{key}{SUFFIX}"
        self._codec = Codec(key.encode())
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        self.size = 0
        self.used = False
        self.running = 0
        self.current = True
        self.born = time.monotonic()

    def frame(self, kind: Kind, call: UUID, parts: Sequence[bytes] = ()) -> None:
        """Append a frame. Raises OSError; then it is not there."""
        self._write(self._codec.frame(kind, call, parts))

    def chunk(self, call: bytes, time_us: int, offset: int, data: bytes) -> None:
        """Append a CHUNK; `call`: the id's bytes. Raises OSError."""
        frame = self._codec.chunk(call, time_us, offset, data)
        self.used = True
        if os.pwrite(self._fd, frame, self.size) == len(frame):
            self.size += len(frame)
        else:
            self._write([frame])

    def _write(self, pieces: list[bytes]) -> None:
        # A frame that was written in part is written over by the next one, or stays as a torn end.
        self.used = True
        length = sum(map(len, pieces))
        done = os.pwritev(self._fd, pieces, self.size)
        if done < length:
            data = b"".join(pieces)
            while done < length:
                done += os.pwrite(self._fd, memoryview(data)[done:], self.size + done)
        self.size += length

    def empty(self) -> None:
        os.ftruncate(self._fd, 0)
        self.size, self.used = 0, False

    def close(self) -> None:
        self.path.unlink(missing_ok=True)
        os.close(self._fd)


class JournalEntry:
    __slots__ = ("_call", "_id", "_journal", "_offset", "_open", "_segment", "_whole")

    def __init__(self, journal: Journal, segment: JournalSegment, call: UUID) -> None:
        self._journal = journal
        self._segment = segment
        self._call = call
        self._id = call.bytes
        self._offset = 0
        self._open = True
        self._whole = True

    def begin(self, begin: CallBegin) -> None:
        """It goes upstream; again, where it goes once more."""
        self._frame(Kind.BEGIN, begin.parts())

    def head(self, notes: bytes) -> None:
        """The head of the answer is here."""
        self._frame(Kind.HEAD, [notes])

    def chunk(self, time_us: int, data: bytes) -> None:
        """A piece of the answer is here, `time_us` microseconds after the request. After one that could not be written
        there would be a hole: no more is."""
        if self._open and self._whole:
            try:
                self._segment.chunk(self._id, time_us, self._offset, data)
                self._offset += len(data)
            except OSError as error:
                self._failed(error)

    def done(self) -> None:
        """It needs no more: it is stored, or has failed and somebody knows."""
        if self._open:
            self._frame(Kind.DONE, ())
            self._open = False
            self._segment.running -= 1
            self._journal.left(self._segment)

    def _frame(self, kind: Kind, parts: Sequence[bytes]) -> None:
        if self._open:
            try:
                self._segment.frame(kind, self._call, parts)
            except OSError as error:
                self._failed(error)

    def _failed(self, error: OSError) -> None:
        if self._whole:
            self._journal.failed(error)
        self._whole = False


class Journal:
    """The segments of this process."""

    def __init__(self, folder: Path, segment_bytes: int, on_failure: Callable[[], None]) -> None:
        """`segment_bytes`: size from which calls begin in a new segment. `on_failure`: something could not be written."""
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._on_failure = on_failure
        self._current: JournalSegment | None = None

    def begin(self, call: UUID, begin: CallBegin) -> JournalEntry | None:
        """Note a call; None where it cannot be noted."""
        try:
            segment = self._segment()
        except OSError as error:
            self.failed(error)
            return None
        segment.running += 1
        entry = JournalEntry(self, segment, call)
        entry.begin(begin)
        return entry

    def tidy(self) -> None:
        """Let go of what is done; now and then."""
        segment = self._current
        if segment is None or not segment.used:
            return
        if not segment.running:
            segment.empty()
            segment.born = time.monotonic()
        elif time.monotonic() - segment.born > SEGMENT_LIFE_S:
            self._retire(segment)

    def close(self) -> None:
        """At the end of the process. A segment with calls that have not ended stays for the next process."""
        if self._current is not None:
            self._retire(self._current)

    def left(self, segment: JournalSegment) -> None:
        """A call of this segment has ended."""
        if segment.running:
            return
        if not segment.current:
            segment.close()
        else:
            segment.size = 0

    def failed(self, error: OSError) -> None:
        """The disk does not take it: the call goes on without."""
        self._on_failure()
        log.warning("the journal of running calls cannot be written", extra={"error": error.strerror})

    def _segment(self) -> JournalSegment:
        segment = self._current
        if segment is not None and segment.size >= self._segment_bytes:
            self._retire(segment)
            segment = None
        if segment is None:
            segment = self._current = JournalSegment(self._folder)
        return segment

    def _retire(self, segment: JournalSegment) -> None:
        segment.current = False
        self._current = None
        if not segment.running:
            segment.close()


def calls_in(path: Path) -> list[KeptCall]:
    """The calls that a file tells of; its name is the key. Raises OSError."""
    return gather(Codec(path.name.removesuffix(SUFFIX).encode()).scan(path.read_bytes()))


def abandoned(folder: Path) -> Iterator[Path]:
    """The segments of dead processes, one after the other, each held while it is looked at. Blocks; raises OSError."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            fd = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            continue  # its process has taken it away
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = os.fstat(fd)
            if found.st_nlink and (found.st_size or time.time() - found.st_mtime > EMPTY_LIFE_S):
                yield path
        except BlockingIOError:
            continue  # its process lives
        finally:
            os.close(fd)


def wipe(folder: Path, user: UUID) -> None:
    """Overwrite what a user's calls have left in the segments, whoever writes them; and frames without their BEGIN, which may
    be his. Blocks; raises OSError.

    Beside the process that writes: a frame that it puts in the place of one of these within the microseconds between look and
    write is lost, and its call with it, if that process is killed before the call has ended. A call of the user that runs on
    writes frames without a BEGIN: nobody takes them for a call, and they go with their segment.
    """
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            fd = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            continue  # its process has taken it away
        try:
            _wipe(fd, Codec(path.name.removesuffix(SUFFIX).encode()), user)
        finally:
            os.close(fd)


def _wipe(fd: int, codec: Codec, user: UUID) -> None:
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    frames = list(codec.located(data))
    whose = {frame.call: CallBegin.of(frame.payload).user for frame, _, _ in frames if frame.kind is Kind.BEGIN}
    for frame, start, end in frames:
        if whose.get(frame.call, user) == user and os.pread(fd, HEAD_BYTES, start) == data[start : start + HEAD_BYTES]:
            os.pwrite(fd, bytes(end - start), start)


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
    journals: int = 0


class _Item(Struct):
    """One of the calls that are written together."""

    kept: KeptCall
    error: Exception | None = None
    target: Path = field(default_factory=Path)


class Spool:
    """The folder. Made by `open_spool`."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.running = folder / "running"
        self._new = folder / "new"
        self._turns = folder / "turns"
        self._dead = folder / "dead"
        self._max_bytes = max_bytes
        self._used = 0
        self._turns_name = str(self._turns) + os.sep

    def prepare(self) -> None:
        """Make the folders, for nobody but us; what is in them was said in confidence. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for each in (self.running, self._new, self._turns, self._dead):
            each.mkdir(exist_ok=True, mode=0o700)
        for left in self._new.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > LEFT_BEHIND_S:
                    left.unlink()
        sync(self.folder)
        self.usage()

    # --- in ---------------------------------------------------------------------------------------------------------------

    def store(self, calls: Sequence[KeptCall], *, bounded: bool = True) -> list[Exception | None]:
        """Write calls, and return when they are durable: for each, None or why it is not (SpoolUnavailable, OSError).

        What belongs together is done together: all files are synced, then each folder once. A call that is there already
        stays as it is.
        """
        items = [_Item(each) for each in calls]
        for each in items:
            _try(partial(self._write, each, bounded), each)
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

    def _write(self, item: _Item, bounded: bool) -> None:
        begin = item.kept.begin
        name = f"{begin.at_us:020d}-{item.kept.call.hex}"
        item.target = self._turns / begin.user.hex / name
        pieces = frames_of(Codec(name.encode()), item.kept)
        size = sum(map(len, pieces))
        if bounded and self._used + size > self._max_bytes:
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
                path.unlink()  # the first one knows more: a call is taken over after it was spooled, never before
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

    def take_over(self) -> int:
        """Put what dead processes were about among the calls that wait; how many calls that are. Raises OSError; then the
        rest stays for the next time."""
        found = 0
        for journal in abandoned(self.running):
            calls = [each for each in calls_in(journal) if not each.done]
            error = next((each for each in self.store(calls, bounded=False) if each is not None), None)
            if error is not None:
                raise error
            journal.unlink(missing_ok=True)
            found += len(calls)
        return found

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

    def load(self, waiting: WaitingCall) -> KeptCall | None:
        """A call; None where its file no longer tells what it was. Raises OSError."""
        return next((each for each in calls_in(waiting.path) if each.call == waiting.call), None)

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
        """Take away all that waits, or was set aside, of a user, and what his calls have left in the journals; how many calls
        waited or were set aside. What is being written this moment is not: that meets the drain. Raises OSError."""
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
                if time.time() - left.stat().st_mtime > WRITING_S and not self._told(left).isdisjoint((user, None)):
                    left.unlink()
        wipe(self.running, user)
        return erased

    def _told(self, path: Path) -> set[UUID | None]:
        """Whose calls a file tells of; of one that tells of none, whoever asks may be meant."""
        found = calls_in(path)
        return {each.begin.user for each in found} if found else {None}

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
            if kind == "running":
                count[kind] += name.endswith(SUFFIX)
            elif rest and _NAME.fullmatch(name):
                count[kind] += 1
                if kind == "turns":
                    users.add(rest[0])
                    oldest = min(oldest, int(name.partition("-")[0]) / 1e6)
    waited = time.time() - oldest if users else 0.0
    return SpoolUsage(count["turns"], len(users), count["size"], waited, count["dead"], count["running"])


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
