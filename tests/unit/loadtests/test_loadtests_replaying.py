"""What differs between a played answer and its recording is found, and the figures count it."""

from __future__ import annotations

from dataclasses import replace

from loadtests.replaying import Round, summarise
from mneme_replay.cassette import Cassette, Response
from tests.support.cassettes import captured, streamed
from tests.support.round_trip import Call, Compared, Made, compare
from tests.support.sockets import RawResponse

CALL = streamed()


def answered(cassette: Cassette, late_s: float = 0.002) -> RawResponse:
    """The answer of a cassette, as a client gets it that much late."""
    response = cassette.response
    assert response is not None
    headers = [(name.encode(), value.encode()) for name, value in response.headers]
    headers += [(b"transfer-encoding", b"chunked"), (b"x-mneme-cassette", cassette.id.encode())]
    answer = RawResponse(response.status, "OK", headers, response.body, [], "whole")
    at = 0
    for chunk in response.chunks:
        answer.add(response.body[at : at + chunk.size], chunk.at_us / 1e6 + late_s)
        at += chunk.size
    return answer


def test_an_answer_that_is_as_recorded_differs_in_nothing() -> None:
    found = compare(CALL, answered(CALL), Made(Call("one", "POST", "/", [], b""), CALL.id, answered(CALL, 0.5)))
    assert (found.bytes, found.chunks, found.pieces) == ([], [], 5)
    assert [round(each, 6) for each in found.late_ms] == [2.0] * 5


def test_each_difference_is_told() -> None:
    answer = answered(CALL)
    answer.chunks = [answer.chunks[0] + answer.chunks[1], *answer.chunks[2:]]
    answer.times = answer.times[1:]
    found = compare(CALL, answer)
    assert found.bytes == []
    assert len(found.chunks) == 1
    assert [round(each, 6) for each in found.late_ms] == [12.0, 2.0, 2.0, 2.0, 2.0], "one waited for the other"
    other = replace(answered(CALL), status=500, ended="eof", body=b"?")
    told = "\n".join(compare(CALL, other).bytes)
    assert all(f": {what}: " in told for what in ("status", "body", "whole"))
    seen = replace(answered(CALL), body=b"!")
    told = "\n".join(compare(CALL, answered(CALL), Made(Call("one", "POST", "/", [], b""), CALL.id, seen)).bytes)
    assert "body, as its client saw it" in told


def test_a_border_within_a_read_is_timed_by_the_read() -> None:
    call = captured("chat")
    response = call.response
    assert response is not None
    half = len(response.body) // 2
    cut = [(1000, half), (3000, len(response.body) - half)]
    parts = replace(response, chunks=[type(response.chunks[0])(*each) for each in cut])
    answer = answered(replace(call, response=Response(status=200, body=response.body, chunks=[parts.chunks[0]])))
    answer.headers, answer.chunks, answer.times = [], [response.body], [0.004]
    found = compare(replace(call, response=parts), answer)
    assert (found.pieces, [round(each, 6) for each in found.late_ms]) == (0, [3.0, 1.0])


def test_the_figures_are_of_all_rounds() -> None:
    good = Compared(bytes=[], chunks=[], pieces=2, late_ms=[1.0, -2.0])
    plain = Compared(bytes=["x: body"], chunks=[], pieces=0, late_ms=[3.0])
    torn = Compared(bytes=[], chunks=["x: [1] became [2]"], pieces=1, late_ms=[4.0])
    found = summarise("live", 16, [Round([good, plain], [0.001]), Round([good, torn], [0.003])])
    assert (found.calls, found.equal, found.chunked, found.chunks_equal, found.true) == (4, 3, 3, 2, False)
    assert (found.rounds, found.pieces, found.timed) == (2, 5, 6)
    assert (found.p50_ms, found.max_ms, found.late_ms) == (2.0, 4.0, 5 / 6)
    assert found.timer_p95_ms == 3.0
    assert summarise("live", 1, [Round([good], [])]).true
