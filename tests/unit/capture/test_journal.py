"""The journal's format: what is written is read, and what is damaged costs itself and nothing else."""

from __future__ import annotations

from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from app.features.spool.journal import CallBegin, Codec, Frame, KeptCall, Kind, frames_of, gather

KEY = b"a file's name"
USER = UUID(int=7)


def joined(codec: Codec, calls: list[KeptCall]) -> bytes:
    return b"".join(piece for each in calls for piece in frames_of(codec, each))


def told(calls: list[KeptCall]) -> dict[UUID, tuple[object, ...]]:
    return {c.call: (c.begin, c.head, tuple(c.chunks), c.end, c.done, c.size, c.torn) for c in calls}


@st.composite
def kept(draw: st.DrawFn) -> KeptCall:
    small = st.binary(max_size=24)
    made = KeptCall(
        draw(st.uuids(version=4)),
        CallBegin(draw(st.uuids()), draw(st.integers(0, 2**63)), draw(small), draw(st.none() | small), draw(small)),
        head=draw(st.none() | small),
        end=draw(st.none() | small),
    )
    made.chunks = draw(st.lists(st.tuples(st.integers(0, 2**63), st.binary(min_size=1, max_size=24)), max_size=4))
    made.size = sum(len(data) for _, data in made.chunks)
    return made


calls = st.lists(kept(), max_size=4, unique_by=lambda each: each.call)


@given(calls)
def test_what_is_written_is_read(written: list[KeptCall]) -> None:
    codec = Codec(KEY)
    assert told(gather(codec.scan(joined(codec, written)))) == told(written)


def is_part(found: KeptCall, whole: KeptCall) -> bool:
    """Nothing in `found` that `whole` has not, and its chunks are the first ones."""
    return (
        found.begin == whole.begin
        and found.chunks == whole.chunks[: len(found.chunks)]
        and found.head in (None, whole.head)
        and found.end in (None, whole.end)
    )


@given(calls, st.data())
def test_a_torn_file_loses_its_end_only(written: list[KeptCall], data: st.DataObject) -> None:
    codec = Codec(KEY)
    whole = joined(codec, written)
    cut = data.draw(st.integers(0, len(whole)))
    found = gather(codec.scan(whole[:cut]))
    assert [each.call for each in found] == [each.call for each in written[: len(found)]]
    assert all(is_part(a, b) for a, b in zip(found, written, strict=False))
    assert told(found[:-1]) == told(written[: max(0, len(found) - 1)]), "all but the last are whole"
    frames = list(codec.scan(whole))
    assert list(codec.scan(whole[:cut])) == frames[: len(list(codec.scan(whole[:cut])))]


@given(calls.filter(bool), st.data())
def test_a_flipped_bit_costs_one_frame(written: list[KeptCall], data: st.DataObject) -> None:
    codec = Codec(KEY)
    whole = joined(codec, written)
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    damaged = bytearray(whole)
    damaged[bit // 8] ^= 1 << bit % 8
    frames, left = list(codec.scan(whole)), list(codec.scan(bytes(damaged)))
    gone = [i for i in range(len(frames)) if frames[:i] + frames[i + 1 :] == left]
    assert gone, "exactly one frame is missing, and none is new"
    found = {each.call: each for each in gather(left)}
    before = {each.call: each for each in written}
    assert set(found) <= set(before)
    assert len(found) == len(gather(left))
    assert all(is_part(each, before[call]) for call, each in found.items())
    assert sum(told([each]) != told([before[call]]) for call, each in found.items()) <= 1


@given(calls, calls, st.integers(0, 3))
def test_rubbish_between_frames_is_skipped(one: list[KeptCall], two: list[KeptCall], size: int) -> None:
    codec = Codec(KEY)
    both = [*one, *(each for each in two if each.call not in {c.call for c in one})]
    parts = [joined(codec, [each]) for each in both]
    assert told(gather(codec.scan((b"\0" * size * 97).join(parts)))) == told(both)


@given(kept(), kept())
def test_a_body_that_looks_like_a_frame_is_a_body(inner: KeptCall, outer: KeptCall) -> None:
    """Bytes written for another file, in a body whose own frame is broken: they make no call."""
    forged = joined(Codec(b"another file"), [inner])
    codec = Codec(KEY)
    frame = b"".join(codec.frame(Kind.BEGIN, outer.call, CallBegin(USER, 1, b"", forged).parts()))
    assert list(codec.scan(b"?" + frame[1:])) == []


def test_a_hole_in_the_answer_ends_what_is_told_of_it() -> None:
    codec, call = Codec(KEY), uuid4()
    pieces = codec.frame(Kind.BEGIN, call, CallBegin(USER, 1, b"n").parts())
    pieces += [codec.chunk(call.bytes, 5, 0, b"abc"), codec.chunk(call.bytes, 9, 6, b"ghi")]
    pieces += codec.frame(Kind.DONE, call)
    (found,) = gather(codec.scan(b"".join(pieces)))
    assert (found.chunks, found.torn, found.done) == ([(5, b"abc")], True, True)


def test_a_call_that_goes_out_again_is_one_call() -> None:
    codec, call = Codec(KEY), uuid4()
    pieces = [
        p for notes in (b"first", b"again") for p in codec.frame(Kind.BEGIN, call, CallBegin(USER, 1, notes).parts())
    ]
    (found,) = gather(codec.scan(b"".join(pieces)))
    assert found.begin.notes == b"again"


def test_frames_of_nobody_are_left_out() -> None:
    assert gather([Frame(Kind.END, uuid4(), b"{}"), Frame(Kind.DONE, uuid4(), b"")]) == []
