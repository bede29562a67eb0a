"""The log of a turn, in figures."""

from __future__ import annotations

import orjson
import pytest

from loadtests.mock_upstream import plain_answer, stream_events
from loadtests.wal import content_of, figures
from loadtests.wal_reads import NOWHERE, VECTORS, Log, Written, size_query


def log() -> Log:
    return Log(
        total=5000,
        images=1000,
        image_count=2,
        tables=[
            Written("streams", 2, 0, 1600.0, 3000.0, 1800, 200, 900),
            Written(VECTORS, 4, 0, 1000.0, 1000.0, 1100, 500, 100),
            Written("sessions", 0, 2, 400.0, 400.0, 300, 0, 0),
            Written(NOWHERE, 0, 0, 0.0, 0.0, 100, 0, 0),
        ],
    )


def test_amplification_leaves_vectors_and_images_out_on_both_sides() -> None:
    found = log()
    assert (found.plain, found.part(VECTORS)) == (4000, 1600)
    assert found.amplification() == pytest.approx((5000 - 1000 - 1600) / (1600 + 400))
    assert found.amplification(stored=False) == pytest.approx(2400 / 3400)


def test_figures_are_per_turn() -> None:
    found = figures(log(), "reply", 2)
    assert (found["wal"], found["images"], found["vectors"], found["image_count"]) == (2500, 500, 800, 1)
    assert found["tables"][0] == {
        "table": "streams", "rows": 1, "updates": 0, "stored": 800, "plain": 1500, "heap": 900, "indexes": 100, "images": 450,
    }  # fmt: skip
    assert found["amplification"] == pytest.approx(1.2)


def test_what_the_upstream_said_is_read_from_either_kind() -> None:
    whole = plain_answer("m", 7, 3).decode()
    expected = orjson.loads(whole)["choices"][0]["message"]["content"]
    assert content_of(whole, stream=False) == expected
    assert content_of(b"".join(stream_events("m", 7, 3, False)).decode(), stream=True).strip() == expected


def test_values_are_sized_as_stored_and_as_they_were() -> None:
    query = size_query("t", ["a", "b", "c"], ["text", "jsonb", "uuid"], ["text", "jsonb", "uuid"])
    assert 'COALESCE(pg_column_size("a"), 0) + COALESCE(pg_column_size("b"), 0)' in query
    assert "pg_column_size(\"a\" || ''::text)" in query
    assert 'pg_column_size("b"::text::jsonb)' in query
    assert query.count('pg_column_size("c")') == 2
