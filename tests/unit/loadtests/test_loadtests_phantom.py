"""What is measured of the phantom engine is what it does."""

from __future__ import annotations

from loadtests.phantom import engaged, measure, relayed, second_leg, text_stream, ways


def test_every_way_takes_the_whole_stream() -> None:
    chunks = text_stream(5)
    size = sum(map(len, chunks))
    alone, first, second = (ready()() for ready in ways(chunks).values())
    assert alone == first == size
    assert second == size - len(chunks[0]), "the second leg's role is not told again; its id is as long"
    assert relayed(chunks) == size
    assert engaged(chunks, second_leg()) == second


def test_a_measurement() -> None:
    found = measure(3, 2)
    assert [each.way for each in found] == ["relay alone", "with the engine, no call", "with the engine, second leg"]
    assert all(0 < each.median_us <= each.p99_us for each in found)
