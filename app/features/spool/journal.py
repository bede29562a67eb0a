"""The journal's format: what is known of a call, in frames, each with its length and its checksum. Plain bytes, no files.

    frame    mark (4)  checksum (4)  length of the payload (4)  kind (1)  call id (16)  payload
    BEGIN    user id (16)  time (8, µs since 1970)  length of the notes (4)  notes  length of the body (4)  body  sent body
    HEAD     notes on the head of the answer
    CHUNK    time (8, µs since the request came)  offset in the body (8)  bytes
    END      notes on how it ended
    DONE     nothing: the call needs no more

Numbers are little-endian. `notes` are the gateway's, who alone reads them. The mark and the checksum's beginning come from
a key that nobody who writes into a body knows: bytes of a body never pass for a frame. A reader that meets a broken frame
goes on at the next mark: a torn end, or a flipped bit, costs what it hit and no more.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID
from zlib import crc32

from msgspec import Struct, field

_FRONT = struct.Struct("<4sI")
_TAIL = struct.Struct("<IB16s")
HEAD_BYTES = _FRONT.size + _TAIL.size
"""Bytes of a frame before its payload: no two frames of a file have the same, but by chance (their checksum is in it)."""
_BEGIN = struct.Struct("<16sQI")
_LENGTH = struct.Struct("<I")
_CHUNK = struct.Struct("<QQ")
_CHUNK_TAIL = struct.Struct("<IB16sQQ")

NO_BODY = 2**32 - 1
"""The length of a body that is not kept."""


class Kind(IntEnum):
    BEGIN = 1
    HEAD = 2
    CHUNK = 3
    END = 4
    DONE = 5


_IS_CHUNK = int(Kind.CHUNK)


class Frame(NamedTuple):
    kind: Kind
    call: UUID
    payload: bytes


class CallBegin(Struct, frozen=True):
    """A call that goes upstream. `at_us`: when it came, microseconds since 1970. `body`: as it came, None where it is not
    kept; `sent`: as it went on, where that is another."""

    user: UUID
    at_us: int
    notes: bytes
    body: bytes | None = None
    sent: bytes = b""

    def parts(self) -> list[bytes]:
        """The payload, in pieces."""
        head = _BEGIN.pack(self.user.bytes, self.at_us, len(self.notes))
        if self.body is None:
            return [head, self.notes, _LENGTH.pack(NO_BODY), self.sent]
        return [head, self.notes, _LENGTH.pack(len(self.body)), self.body, self.sent]

    @classmethod
    def of(cls, payload: bytes) -> CallBegin:
        user, at_us, length = _BEGIN.unpack_from(payload)
        at = _BEGIN.size + length
        notes = payload[_BEGIN.size : at]
        (length,) = _LENGTH.unpack_from(payload, at)
        at += _LENGTH.size
        body = None if length == NO_BODY else payload[at : at + length]
        return cls(UUID(bytes=user), at_us, notes, body, payload[at + len(body or b"") :])


class KeptCall(Struct):
    """A call as its frames tell it. `chunks`: (microseconds since the request came, bytes), one behind the other as far as
    none is missing; `end`: None where it did not end."""

    call: UUID
    begin: CallBegin
    head: bytes | None = None
    chunks: list[tuple[int, bytes]] = field(default_factory=list)
    end: bytes | None = None
    done: bool = False
    size: int = 0
    """Bytes of the chunks."""
    torn: bool = False
    """A chunk is missing; those behind it are left out."""


class Codec:
    """Writes and reads frames under a key: for a file, whatever of its name nobody can guess or write elsewhere."""

    __slots__ = ("_mark", "_seed")

    def __init__(self, key: bytes) -> None:
        derived = blake2b(key, digest_size=8, person=b"mneme journal").digest()
        self._mark = derived[:4]
        self._seed = int.from_bytes(derived[4:], "little")

    def frame(self, kind: Kind, call: UUID, parts: Sequence[bytes] = ()) -> list[bytes]:
        """A frame in pieces, for one write."""
        tail = _TAIL.pack(sum(map(len, parts)), kind, call.bytes)
        checksum = crc32(tail, self._seed)
        for part in parts:
            checksum = crc32(part, checksum)
        return [_FRONT.pack(self._mark, checksum) + tail, *parts]

    def chunk(self, call: bytes, time_us: int, offset: int, data: bytes) -> bytes:
        """A CHUNK frame; `call`: the id's bytes. The shortest way: this runs for every chunk of every answer."""
        tail = _CHUNK_TAIL.pack(_CHUNK.size + len(data), _IS_CHUNK, call, time_us, offset) + data
        return _FRONT.pack(self._mark, crc32(tail, self._seed)) + tail

    def scan(self, data: bytes) -> Iterator[Frame]:
        """The whole frames of a file, in their order, whatever stands between them."""
        return (frame for frame, _, _ in self.located(data))

    def located(self, data: bytes) -> Iterator[tuple[Frame, int, int]]:
        """The same, each with where it begins and ends."""
        at = 0
        while (at := data.find(self._mark, at)) >= 0:
            frame, end = self._frame_at(data, at)
            if frame is not None:
                yield frame, at, end
            at = end

    def _frame_at(self, data: bytes, at: int) -> tuple[Frame | None, int]:
        """The frame that begins here and where it ends; None, and where to look on, if it is not whole."""
        if at + HEAD_BYTES > len(data):
            return None, at + 1
        checksum = _FRONT.unpack_from(data, at)[1]
        length, kind, call = _TAIL.unpack_from(data, at + _FRONT.size)
        end = at + HEAD_BYTES + length
        if end > len(data) or crc32(memoryview(data)[at + _FRONT.size : end], self._seed) != checksum:
            return None, at + 1
        if kind not in Kind._value2member_map_:
            return None, end  # of a later version
        return Frame(Kind(kind), UUID(bytes=call), data[at + HEAD_BYTES : end]), end


def gather(frames: Iterable[Frame]) -> list[KeptCall]:
    """The calls that frames tell of, in the order in which they began. A BEGIN that comes twice replaces the first: the
    call went out once more. What has lost its BEGIN is no call any more."""
    calls: dict[UUID, KeptCall] = {}
    for kind, call, payload in frames:
        if kind is Kind.BEGIN:
            begin = CallBegin.of(payload)
            if call in calls:
                calls[call].begin = begin
            else:
                calls[call] = KeptCall(call, begin)
        elif (kept := calls.get(call)) is not None:
            _add(kept, kind, payload)
    return list(calls.values())


def _add(kept: KeptCall, kind: Kind, payload: bytes) -> None:
    if kind is Kind.CHUNK:
        time_us, offset = _CHUNK.unpack_from(payload)
        if offset != kept.size:
            kept.torn = kept.torn or offset > kept.size
        else:
            kept.chunks.append((time_us, payload[_CHUNK.size :]))
            kept.size += len(payload) - _CHUNK.size
    elif kind is Kind.HEAD:
        kept.head = payload
    elif kind is Kind.END:
        kept.end = payload
    elif kind is Kind.DONE:
        kept.done = True


def frames_of(codec: Codec, kept: KeptCall) -> list[bytes]:
    """A call as the frames of a file of its own, in pieces."""
    pieces = codec.frame(Kind.BEGIN, kept.call, kept.begin.parts())
    if kept.head is not None:
        pieces += codec.frame(Kind.HEAD, kept.call, [kept.head])
    offset = 0
    for time_us, data in kept.chunks:
        pieces.append(codec.chunk(kept.call.bytes, time_us, offset, data))
        offset += len(data)
    if kept.end is not None:
        pieces += codec.frame(Kind.END, kept.call, [kept.end])
    return pieces
