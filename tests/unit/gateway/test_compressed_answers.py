"""Bodies that an upstream compressed."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

from app.gateway.encodings import MAX_DECODED_LINES, Problem, decode_body, find_codings
from tests.support.tables import each_of

TEXT = b'{"a":"' + b"word " * 40_000 + b'"}'
RAW = zlib.compressobj(wbits=-15)
DEFLATED = RAW.compress(TEXT) + RAW.flush()
GZIPPED = gzip.compress(TEXT)


@each_of(
    ("body", "codings"),
    [
        (TEXT, ()),
        (GZIPPED, ("gzip",)),
        (GZIPPED, ("x-gzip",)),
        (gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:]), ("gzip",)),
        (GZIPPED + b"\0\0\0", ("gzip",)),
        (zlib.compress(TEXT), ("deflate",)),
        (zlib.compress(TEXT, 9), ("deflate",)),
        (DEFLATED, ("deflate",)),
        (gzip.compress(zlib.compress(TEXT)), ("deflate", "gzip")),
    ],
)
def test_what_can_be_decoded(body: bytes, codings: tuple[str, ...]) -> None:
    assert decode_body(body, codings) == (TEXT, None)


@each_of(
    ("body", "codings", "problem"),
    [
        (GZIPPED[:-1], ("gzip",), "truncated"),
        (GZIPPED[: len(GZIPPED) // 2], ("gzip",), "truncated"),
        (GZIPPED[:3], ("gzip",), "truncated"),
        (DEFLATED[:-4], ("deflate",), "truncated"),
        (GZIPPED[:40] + b"\xff" * 40 + GZIPPED[80:], ("gzip",), "corrupt"),
        (GZIPPED[:-8] + b"\0" * 8, ("gzip",), "corrupt"),
        (TEXT, ("gzip",), "corrupt"),
        (b"\xff", ("deflate",), "corrupt"),
        (TEXT, ("br",), "unknown coding"),
        (TEXT, ("zstd",), "unknown coding"),
        (GZIPPED, ("gzip", "br"), "unknown coding"),
        (GZIPPED, ("gzip", "gzip", "gzip"), "unknown coding"),
    ],
)
def test_what_cannot_be_decoded_is_as_much_as_was_read(body: bytes, codings: tuple[str, ...], problem: Problem) -> None:
    decoded = decode_body(body, codings)
    assert decoded.problem == problem
    assert TEXT.startswith(decoded.body)


def test_a_small_body_that_would_grow_without_end_is_cut() -> None:
    bomb = gzip.compress(b"0" * 50_000_000)
    tracemalloc.start()
    decoded = decode_body(bomb, ("gzip",), 100_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decoded == (b"", "too large")
    assert peak < 2_000_000
    assert decode_body(gzip.compress(bomb), ("gzip", "gzip"), 100_000).problem == "too large"
    for end in (b"\n", b"\r"):
        assert decode_body(gzip.compress(end * (MAX_DECODED_LINES + 1)), ("gzip",)) == (b"", "too large")


@each_of(
    ("values", "codings"),
    [
        ([], ()),
        ([b"identity"], ()),
        ([b"GZIP"], ("gzip",)),
        ([b"deflate, gzip"], ("deflate", "gzip")),
        ([b"identity", b" br ,, "], ("br",)),
    ],
)
def test_the_codings_that_headers_name(values: list[bytes], codings: tuple[str, ...]) -> None:
    headers = [(b"x", b"y"), *((b"Content-Encoding", value) for value in values)]
    assert find_codings(headers) == codings
