"""The format of the spool's files: what is written is read, and damage costs only what it hit."""

from __future__ import annotations

from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from app.features.spool.frames import CallBegin, Frame, FrameCodec, Kind, SpooledCall

CODEC = FrameCodec(b"a file's name")
USER = UUID(int=7)


@st.composite
def draw_call(draw: st.DrawFn) -> SpooledCall:
    small = st.binary(max_size=24)
    call = SpooledCall(
        draw(st.uuids(version=4)),
        CallBegin(draw(st.uuids()), draw(st.integers(0, 2**63)), draw(small), draw(st.none() | small), draw(small)),
        head=draw(st.none() | small),
        end=draw(st.none() | small),
    )
    call.chunks = draw(st.lists(st.tuples(st.integers(0, 2**63), st.binary(min_size=1, max_size=24)), max_size=4))
    call.size = sum(len(data) for _, data in call.chunks)
    return call


def encode(call: SpooledCall) -> bytes:
    return b"".join(CODEC.encode_call(call))


def is_part(found: SpooledCall | None, whole: SpooledCall) -> bool:
    """Return whether everything in `found` is in `whole`, and its chunks are the first ones."""
    return found is None or (
        found.call == whole.call
        and found.begin == whole.begin
        and found.chunks == whole.chunks[: len(found.chunks)]
        and found.head in (None, whole.head)
        and found.end in (None, whole.end)
    )


@given(draw_call())
def test_what_is_written_is_read(call: SpooledCall) -> None:
    assert CODEC.decode_call(encode(call)) == call


@given(draw_call(), st.data())
def test_a_torn_file_loses_its_end_only(call: SpooledCall, data: st.DataObject) -> None:
    whole = encode(call)
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    assert is_part(CODEC.decode_call(cut), call)
    frames, found = list(CODEC.decode_frames(whole)), list(CODEC.decode_frames(cut))
    assert frames[: len(found)] == found


@given(draw_call(), st.data())
def test_a_flipped_bit_costs_one_frame(call: SpooledCall, data: st.DataObject) -> None:
    whole = encode(call)
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    damaged = bytearray(whole)
    damaged[bit // 8] ^= 1 << bit % 8
    frames, rest = list(CODEC.decode_frames(whole)), list(CODEC.decode_frames(bytes(damaged)))
    assert any(frames[:i] + frames[i + 1 :] == rest for i in range(len(frames))), "one is missing, and none is new"
    found = CODEC.decode_call(bytes(damaged))
    assert is_part(found, call)
    assert found != call


@given(draw_call(), st.integers(0, 3))
def test_rubbish_between_frames_is_skipped(call: SpooledCall, size: int) -> None:
    frames = [b"".join(CODEC.encode_frame(frame.kind, frame.call, [frame.payload])) for frame in frames_of(call)]
    assert CODEC.decode_call((b"\0" * size * 97).join(frames)) == call


def frames_of(call: SpooledCall) -> list[Frame]:
    return list(CODEC.decode_frames(encode(call)))


@given(draw_call(), draw_call())
def test_a_body_that_looks_like_a_frame_is_a_body(inner: SpooledCall, outer: SpooledCall) -> None:
    """Bytes written for another file, in a body whose own frame is broken, make no call."""
    forged = b"".join(FrameCodec(b"another file").encode_call(inner))
    frame = b"".join(CODEC.encode_frame(Kind.BEGIN, outer.call, CallBegin(USER, 1, b"", forged).to_parts()))
    assert list(CODEC.decode_frames(b"?" + frame[1:])) == []


def test_a_hole_in_the_answer_ends_what_is_told_of_it() -> None:
    chunks = [(5, b"abc"), (7, b"def"), (9, b"ghi")]
    first, second, *_ = chunks
    whole = encode(SpooledCall(uuid4(), CallBegin(USER, 1, b"n"), b"head", chunks, b"end", size=9))
    at = whole.index(second[1])
    call = CODEC.decode_call(whole[:at] + b"DEF" + whole[at + 3 :])
    assert call is not None
    assert (call.chunks, call.is_torn, call.end) == ([first], True, b"end")


def test_frames_without_their_call_are_left_out() -> None:
    call, stranger = SpooledCall(uuid4(), CallBegin(USER, 1, b"n")), uuid4()
    of_a_stranger = b"".join(CODEC.encode_frame(Kind.END, stranger, [b"{}"]))
    assert CODEC.decode_call(of_a_stranger) is None
    assert CODEC.decode_call(encode(call) + of_a_stranger) == call
