"""Format of the spool's files: one call as frames, each with its length and its checksum. This module does no I/O.

    frame    mark (4)  checksum (4)  length of the payload (4)  kind (1)  call id (16)  payload
    BEGIN    user id (16)  time (8, µs since 1970)  length of the notes (4)  notes  length of the body (4)  body  sent body
    HEAD     notes on the head of the answer
    CHUNK    time (8, µs since the request came)  offset in the body (8)  bytes
    END      notes on how it ended

Numbers are little-endian. Only the keeper reads `notes`. The mark and the checksum's seed come from the file's name, which
nobody who writes into a body knows: bytes of a body never pass for a frame. A reader that meets a broken frame goes on at the
next mark, so a flipped bit or a torn end costs no more than the frame that it hit.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID
from zlib import crc32

from msgspec import Struct, field

_FRONT = struct.Struct("<4sI")
_TAIL = struct.Struct("<IB16s")
HEAD_BYTES = _FRONT.size + _TAIL.size
"""Bytes of a frame before its payload."""
_BEGIN = struct.Struct("<16sQI")
_LENGTH = struct.Struct("<I")
_CHUNK = struct.Struct("<QQ")

NO_BODY = 2**32 - 1
"""The length of a body that is not kept."""


class Kind(IntEnum):
    BEGIN = 1
    HEAD = 2
    CHUNK = 3
    END = 4


class Frame(NamedTuple):
    kind: Kind
    call: UUID
    payload: bytes


class CallBegin(Struct, frozen=True):
    """The request of a call. `at_us`: when it came, microseconds since 1970. `body`: as it came, None where it is not
    kept; `sent`: as it went on, where that is another."""

    user: UUID
    at_us: int
    notes: bytes
    body: bytes | None = None
    sent: bytes = b""

    def to_parts(self) -> list[bytes]:
        """Return the payload in pieces."""
        head = _BEGIN.pack(self.user.bytes, self.at_us, len(self.notes))
        if self.body is None:
            return [head, self.notes, _LENGTH.pack(NO_BODY), self.sent]
        return [head, self.notes, _LENGTH.pack(len(self.body)), self.body, self.sent]

    @classmethod
    def from_payload(cls, payload: bytes) -> CallBegin:
        user, at_us, length = _BEGIN.unpack_from(payload)
        at = _BEGIN.size + length
        notes = payload[_BEGIN.size : at]
        (length,) = _LENGTH.unpack_from(payload, at)
        at += _LENGTH.size
        body = None if length == NO_BODY else payload[at : at + length]
        return cls(UUID(bytes=user), at_us, notes, body, payload[at + len(body or b"") :])


class SpooledCall(Struct):
    """A call that has ended. `chunks`: (microseconds since the request came, bytes), up to the first that is missing; `head`:
    None where no answer came; `end`: None where its frame is damaged."""

    call: UUID
    begin: CallBegin
    head: bytes | None = None
    chunks: list[tuple[int, bytes]] = field(default_factory=list)
    end: bytes | None = None
    size: int = 0
    """Bytes of the chunks."""
    is_torn: bool = False
    """A chunk is missing; those behind it are left out."""


class FrameCodec:
    """Encodes and decodes frames under a key: the file's name."""

    __slots__ = ("_mark", "_seed")

    def __init__(self, key: bytes) -> None:
        derived = blake2b(key, digest_size=8, person=b"mneme journal").digest()
        self._mark = derived[:4]
        self._seed = int.from_bytes(derived[4:], "little")

    def encode_frame(self, kind: Kind, call: UUID, parts: Sequence[bytes]) -> list[bytes]:
        """Return a frame in pieces, for one write."""
        tail = _TAIL.pack(sum(map(len, parts)), kind, call.bytes)
        checksum = crc32(tail, self._seed)
        for part in parts:
            checksum = crc32(part, checksum)
        return [_FRONT.pack(self._mark, checksum) + tail, *parts]

    def encode_call(self, call: SpooledCall) -> list[bytes]:
        """Return a file's content in pieces."""
        pieces = self.encode_frame(Kind.BEGIN, call.call, call.begin.to_parts())
        if call.head is not None:
            pieces += self.encode_frame(Kind.HEAD, call.call, [call.head])
        offset = 0
        for time_us, data in call.chunks:
            pieces += self.encode_frame(Kind.CHUNK, call.call, [_CHUNK.pack(time_us, offset), data])
            offset += len(data)
        if call.end is not None:
            pieces += self.encode_frame(Kind.END, call.call, [call.end])
        return pieces

    def decode_frames(self, data: bytes) -> Iterator[Frame]:
        """Yield the whole frames of a file in their order, whatever stands between them."""
        at = 0
        while (at := data.find(self._mark, at)) >= 0:
            frame, at = self._decode_frame(data, at)
            if frame is not None:
                yield frame

    def decode_call(self, data: bytes) -> SpooledCall | None:
        """Return the call of a file; None where its BEGIN is damaged."""
        call: SpooledCall | None = None
        for kind, call_id, payload in self.decode_frames(data):
            if kind is Kind.BEGIN:
                call = SpooledCall(call_id, CallBegin.from_payload(payload))
            elif call is not None and call_id == call.call:
                _add_frame(call, kind, payload)
        return call

    def _decode_frame(self, data: bytes, at: int) -> tuple[Frame | None, int]:
        """Return the frame that begins here and where it ends; None, and where to look on, if it is not whole."""
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


def _add_frame(call: SpooledCall, kind: Kind, payload: bytes) -> None:
    if kind is Kind.CHUNK:
        time_us, offset = _CHUNK.unpack_from(payload)
        if offset != call.size:
            call.is_torn = True
        else:
            call.chunks.append((time_us, payload[_CHUNK.size :]))
            call.size += len(payload) - _CHUNK.size
    elif kind is Kind.HEAD:
        call.head = payload
    elif kind is Kind.END:
        call.end = payload
