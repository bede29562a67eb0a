"""The journal of running calls: each process writes down what it is about, as it comes and without fsync, so that a process
that is killed leaves interrupted turns and not nothing.

    <spool>/running/<key>.journal    locked (flock) by the process that writes it, until that is dead

A call's frames all stand in the segment where it began. A segment goes when none of its calls runs any more; the one that is
written begins again at its start when it is quiet, over pages that are there already (new ones cost three times as much), and
is emptied now and then. What is left behind the new frames then are calls that are done, or frames without their BEGIN: no
reader takes them for running ones. Writing never fails a call: what cannot be written is counted, and the call goes on.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import UUID

from app.capture.journal import HEAD_BYTES, Begin, Codec, Kept, Kind, gather

log = logging.getLogger("mneme.journal")

SUFFIX = ".journal"
SEGMENT_LIFE_S = 60.0
"""Age from which a segment that is never quiet is followed by another: what is done does not lie about for longer."""
EMPTY_LIFE_S = 60.0
"""Age from which an empty segment that nobody holds was left behind: a new one is locked within a moment."""


class Segment:
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
        """Forget all of it."""
        os.ftruncate(self._fd, 0)
        self.size, self.used = 0, False

    def close(self) -> None:
        """Take the file away."""
        self.path.unlink(missing_ok=True)
        os.close(self._fd)


class Entry:
    """One running call in the journal."""

    __slots__ = ("_call", "_id", "_journal", "_offset", "_open", "_segment", "_whole")

    def __init__(self, journal: Journal, segment: Segment, call: UUID) -> None:
        self._journal = journal
        self._segment = segment
        self._call = call
        self._id = call.bytes
        self._offset = 0
        self._open = True
        self._whole = True

    def begin(self, begin: Begin) -> None:
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
        self._current: Segment | None = None

    def begin(self, call: UUID, begin: Begin) -> Entry | None:
        """Note a call; None where it cannot be noted."""
        try:
            segment = self._segment()
        except OSError as error:
            self.failed(error)
            return None
        segment.running += 1
        entry = Entry(self, segment, call)
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

    def left(self, segment: Segment) -> None:
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

    def _segment(self) -> Segment:
        segment = self._current
        if segment is not None and segment.size >= self._segment_bytes:
            self._retire(segment)
            segment = None
        if segment is None or self._current is None:
            segment = self._current = Segment(self._folder)
        return segment

    def _retire(self, segment: Segment) -> None:
        segment.current = False
        self._current = None
        if not segment.running:
            segment.close()


class Abandoned:
    """A segment whose process is dead, locked by us while we read it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def unfinished(self) -> list[Kept]:
        """The calls that ran when it died."""
        codec = Codec(self._path.name.removesuffix(SUFFIX).encode())
        return [each for each in gather(codec.scan(self._path.read_bytes())) if not each.done]

    def remove(self) -> None:
        """Its calls are elsewhere now."""
        self._path.unlink(missing_ok=True)


def abandoned(folder: Path) -> Iterator[Abandoned]:
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
                yield Abandoned(path)
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
    whose = {frame.call: Begin.of(frame.payload).user for frame, _, _ in frames if frame.kind is Kind.BEGIN}
    for frame, start, end in frames:
        if whose.get(frame.call, user) == user and os.pread(fd, HEAD_BYTES, start) == data[start : start + HEAD_BYTES]:
            os.pwrite(fd, bytes(end - start), start)
