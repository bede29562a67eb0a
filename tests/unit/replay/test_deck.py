"""Which cassette answers a request, by each matching; and what is said where none does."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import pytest

from mneme_replay.cassette import Cassette
from mneme_replay.deck import Deck, Miss
from mneme_replay.requests import Asked, Reader, asked_of
from tests.support.cassettes import CHAT, asking, cassette
from tests.support.tables import each_of

RECORDED: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "größe?"}],
    "temperature": 0,
    "user": "ana",
}


def posting(body: bytes | dict[str, Any], path: str = CHAT, **headers: str) -> Asked:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Asked("POST", path, [*headers.items()], data)


def deck_of(*cassettes: Cassette, matching: str = "normalised", ignore: tuple[str, ...] = (), **kwargs: Any) -> Deck:
    return Deck(cassettes, Reader.of(matching, ignore), **kwargs)


def with_(**fields: Any) -> dict[str, Any]:
    return RECORDED | fields


@each_of(
    ("asked", "strict", "normalised", "prompt"),
    [
        (json.dumps(RECORDED).encode(), True, True, True),
        (json.dumps(RECORDED, ensure_ascii=False, indent=3).encode(), False, True, True),
        (with_(**dict(reversed(RECORDED.items()))), True, True, True),
        (dict(reversed(RECORDED.items())), False, True, True),
        (with_(temperature=0.0), False, True, True),
        (with_(user="ben", seed=7, metadata={"a": "b"}, safety_identifier="x", store=True), False, True, True),
        (with_(tools=None), False, True, True),
        (with_(temperature=0.5), False, False, True),
        (with_(model="other"), False, False, True),
        (with_(stream=True), False, False, False),
        (with_(messages=RECORDED["messages"][1:]), False, False, False),
        (
            with_(
                messages=[RECORDED["messages"][0], {"role": "user", "content": [{"type": "text", "text": "größe?"}]}]
            ),
            False,
            False,
            True,
        ),
        (with_(messages=[RECORDED["messages"][0], {"role": "user", "content": "größe? "}]), False, False, True),
        (with_(messages=[{"role": "user", "content": "größe?"}, RECORDED["messages"][0]]), False, False, False),
        (b"not JSON", False, False, False),
        (b"", False, False, False),
    ],
)
def test_what_makes_two_requests_the_same(asked: Any, strict: bool, normalised: bool, prompt: bool) -> None:
    recorded = cassette(body=json.dumps(RECORDED).encode())
    for matching, expected in (("strict", strict), ("normalised", normalised), ("prompt", prompt), ("sequence", True)):
        found = deck_of(recorded, matching=matching).play(posting(asked))
        assert isinstance(found, Cassette) is expected, matching


@pytest.mark.parametrize("matching", ["strict", "normalised", "prompt", "sequence"])
@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"a": "\\ud800"}', b"[]", b'"a"', b"{}", b"[" * 10_000])
def test_any_body_finds_itself(matching: str, body: bytes) -> None:
    recorded = cassette(body=body)
    assert deck_of(recorded, matching=matching).play(asked_of(recorded)) is recorded
    if matching != "sequence":
        assert isinstance(deck_of(recorded, matching=matching).play(posting(b"{1")), Miss)


@each_of(
    ("path", "strict", "normalised", "prompt"),
    [
        ("/v1/a?x=1&y=2", True, True, True),
        ("/v1/a?y=2&x=1", False, True, True),
        ("/v1/a?x=1&y=2&api_key=sk-1", True, True, True),
        ("/v1/a?x=1", False, False, True),
        ("/v1/b?x=1&y=2", False, False, False),
    ],
)
def test_paths_and_queries(path: str, strict: bool, normalised: bool, prompt: bool) -> None:
    recorded = replace(cassette(), request=replace(cassette().request, path="/v1/a?x=1&y=2&api_key=***"))
    for matching, expected in (("strict", strict), ("normalised", normalised), ("prompt", prompt)):
        found = deck_of(recorded, matching=matching).play(posting(asking(), path))
        assert isinstance(found, Cassette) is expected, matching
    assert deck_of(recorded).find(Asked("GET", "/v1/a?x=1&y=2", (), asking())) is None
    assert isinstance(deck_of(recorded).play(Asked("GET", "/v1/a?x=1&y=2", (), asking())), Miss)


def test_fields_can_be_ignored() -> None:
    recorded = cassette(body=json.dumps(RECORDED).encode())
    asked = posting(with_(messages=[{"role": "system", "content": "It is 10:03."}, RECORDED["messages"][1]]))
    assert isinstance(deck_of(recorded).play(asked), Miss)
    assert deck_of(recorded, ignore=("$.messages[0].content",)).play(asked) is recorded
    with pytest.raises(ValueError, match="is no JSON path"):
        Reader.of("normalised", ["messages"])
    with pytest.raises(ValueError, match="A matching is one of strict, normalised, prompt, sequence"):
        Reader.of("odd")


def test_what_was_taken_out_of_a_cassette_does_not_count() -> None:
    recorded = cassette(body=json.dumps(with_(messages="***")).encode(), redacted=("$.messages",))
    plain = cassette(2, body=json.dumps(RECORDED).encode())
    deck = deck_of(recorded, plain, reuse="once")
    assert deck.play(posting(RECORDED)) is recorded
    assert deck.play(posting(RECORDED)) is plain


def test_a_form_is_the_same_whatever_border_its_parts_have() -> None:
    def form(border: str) -> Asked:
        body = f'--{border}\r\ncontent-disposition: form-data; name="file"\r\n\r\nabc\r\n--{border}--\r\n'
        return Asked("POST", "/v1/files", [("content-type", f"multipart/form-data; boundary={border}")], body.encode())

    one = form("x1")
    recorded = replace(
        cassette(),
        request=replace(cassette().request, path=one.path, headers=tuple(one.headers), body=one.body),
    )
    for matching in ("strict", "normalised"):
        assert deck_of(recorded, matching=matching).play(form("boundary77")) is recorded


# --- once, again, in turn ---------------------------------------------------------------------------------------------


def played(deck: Deck, *asked: Asked) -> list[int | None]:
    found = [deck.play(each) for each in asked]
    return [None if isinstance(each, Miss) else int(each.id[-12:]) for each in found]


def test_equal_requests_get_their_cassettes_in_order() -> None:
    calls = [cassette(1), cassette(2), cassette(3, body=asking("Other."))]
    same, other = posting(asking()), posting(asking("Other."))
    assert played(deck_of(*calls, reuse="once"), same, other, same, same, other) == [1, 3, 2, None, None]
    assert played(deck_of(*calls, reuse="again"), same, other, same, same, other) == [1, 3, 2, 2, 3]


def test_in_turn_whatever_is_asked() -> None:
    calls = [cassette(1), cassette(2)]
    any_ = posting(b"anything")
    assert played(deck_of(*calls, matching="sequence", reuse="once"), any_, any_, any_) == [1, 2, None]
    assert played(deck_of(*calls, matching="sequence"), any_, any_, any_) == [1, 2, 1]
    deck = deck_of(*calls, matching="sequence")
    miss = deck.play(posting(b"", "/v1/embeddings"))
    assert isinstance(miss, Miss)
    assert miss.told == ("POST /v1/embeddings is out of turn: number 1, 001.json, answers POST /v1/chat/completions.")
    assert played(deck, any_) == [1]


def test_side_by_side_each_is_played_once() -> None:
    calls = [cassette(n) for n in range(200)]
    deck, found = deck_of(*calls, reuse="once"), list[Any]()
    threads = [
        threading.Thread(target=lambda: found.extend(deck.play(posting(asking())) for _ in range(25))) for _ in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(each.id for each in found) == [each.id for each in calls]
    assert deck.plays == 200
    assert not deck.unplayed


# --- misses -----------------------------------------------------------------------------------------------------------


def missed(deck: Deck, asked: Asked) -> str:
    found = deck.play(asked)
    assert isinstance(found, Miss)
    assert deck.misses == [found]
    return found.told


def test_the_nearest_is_shown_with_the_difference() -> None:
    far = cassette(1, body=asking("Something else altogether.", temperature=1, tools=[]))
    near = cassette(2, body=json.dumps(RECORDED).encode())
    told = missed(deck_of(far, near), posting(with_(temperature=0.7)))
    assert told == (
        "No cassette answers POST /v1/chat/completions (by normalised body). The nearest is 002.json; the request differs:\n\n"
        "--- 002.json\n"
        "+++ the request\n"
        "@@ -11,5 +11,5 @@\n"
        "     }\n"
        "   ],\n"
        '   "model": "tiny",\n'
        '-  "temperature": 0\n'
        '+  "temperature": 0.7\n'
        " }"
    )


def test_a_long_text_differs_line_by_line() -> None:
    lines = [f"Line {n}: größe." for n in range(30)]
    recorded = cassette(body=asking("\n".join(lines)))
    told = missed(deck_of(recorded), posting(asking("\n".join([*lines[:20], "Changed.", *lines[21:]]))))
    assert "-        Line 20: größe.\n+        Changed.\n" in told
    assert "Line 10" not in told


def test_bytes_that_differ_are_shown() -> None:
    told = missed(deck_of(cassette(), matching="strict"), posting(json.dumps(json.loads(asking())).encode()))
    assert "The JSON is the same, and its bytes differ from byte 12 on:" in told


@each_of(
    ("deck", "asked", "told"),
    [
        (deck_of(), posting(b"{}"), "No cassette answers POST /v1/chat/completions: there are none."),
        (
            deck_of(cassette()),
            posting(b"{}", "/v1/embeddings"),
            "No cassette answers POST /v1/embeddings. There are some for POST /v1/chat/completions.",
        ),
        (
            deck_of(matching="sequence"),
            posting(b"{}"),
            "No cassette answers POST /v1/chat/completions: there are none.",
        ),
    ],
)
def test_what_there_is_instead_is_told(deck: Deck, asked: Asked, told: str) -> None:
    assert missed(deck, asked) == told


def test_one_that_was_played_already_is_told() -> None:
    deck = deck_of(cassette(), reuse="once")
    deck.play(posting(asking()))
    assert missed(deck, posting(asking())) == (
        "POST /v1/chat/completions was recorded once, and has been played as often (last 001.json)."
    )


def test_a_difference_without_end_is_cut() -> None:
    recorded = cassette(body=asking("\n".join(map(str, range(1000)))))
    told = missed(deck_of(recorded), posting(asking("\n".join(map(str, range(1000, 2000))))))
    assert told.endswith("lines more")
    assert told.count("\n") < 150


def test_the_nearest_is_found_among_very_many() -> None:
    calls = [cassette(n, body=asking(f"How many guests has table {n}?")) for n in range(1500)]
    deck = deck_of(*calls)
    miss = deck.play(posting(asking("How many guests has table 1399 now?")))
    assert isinstance(miss, Miss)
    assert miss.nearest is calls[1399]
    # One that comes later is known, too.
    deck.add(late := cassette(1500, body=asking("How many chairs has the hall?")))
    miss = deck.play(posting(asking("How many chairs has the hall then?")))
    assert isinstance(miss, Miss)
    assert miss.nearest is late


def test_of_what_was_taken_out_the_nearest_is_found_too() -> None:
    plain = cassette(1, body=asking("Something else."))
    hidden = cassette(2, body=asking("***", temperature=0.5), redacted=("$.messages",))
    miss = deck_of(plain, hidden).play(posting(asking("Whatever.", temperature=0.4)))
    assert isinstance(miss, Miss)
    assert miss.nearest is hidden
