"""The format of cassettes: whatever a call was it comes back, and what is wrong with a file is said with its line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mneme_replay.cassette import Cassette, CassetteError, Chunk, Request, Response
from mneme_replay.fileformat import BadCassette, document, parse, render
from mneme_replay.files import answered, load, name_of, numbered, write
from tests.support.cassettes import captured, cassette, streamed, streaming
from tests.support.properties import examples
from tests.support.replies import captured_cases
from tests.support.tables import each_of

SCHEMA = Path(__file__).parents[3] / "mneme_replay" / "cassette.schema.json"
VALIDATOR = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()))

HEADERS = st.lists(
    st.tuples(st.text("abc-X", min_size=1), st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0")))
).map(tuple)
EVENTS = st.lists(st.binary(max_size=40) | st.sampled_from(streaming("Hel", "größe 🙂")), max_size=8)


@st.composite
def cut(draw: st.DrawFn, body: bytes) -> tuple[Chunk, ...]:
    """Chunks of a body, wherever they are cut."""
    places = sorted(draw(st.lists(st.integers(0, len(body)), max_size=6)))
    times = sorted(draw(st.lists(st.integers(0, 10**12), min_size=len(places) + 1, max_size=len(places) + 1)))
    borders = [0, *places, len(body)]
    return tuple(Chunk(at, borders[n + 1] - borders[n]) for n, at in enumerate(times))


@st.composite
def calls(draw: st.DrawFn) -> Cassette:
    body = b"".join(draw(EVENTS))
    response = Response(
        status=draw(st.integers(100, 599)),
        headers=draw(HEADERS),
        body=body,
        chunks=draw(cut(body)),
        truncated=draw(st.booleans()),
    )
    outcome = draw(st.sampled_from(["complete", "broken", "gone", "cancelled", "failed"]))
    return Cassette(
        id=draw(st.text(st.characters(exclude_categories=["Cs"]))),
        recorded_at="2026-05-03T10:00:00Z",
        labels=draw(st.none() | st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=3).map(tuple)),
        outcome=outcome,  # type: ignore[arg-type]
        error=draw(st.none() | st.just("The upstream broke off.")),
        redacted=draw(st.lists(st.just("$.user")).map(tuple)),
        request=Request(
            method="POST",
            path="/v1/chat/completions?a=b",
            headers=draw(HEADERS),
            body=draw(st.binary()),
            truncated=draw(st.booleans()),
        ),
        sent=draw(st.none() | st.binary()),
        response=None if outcome == "failed" else response,
        call=draw(st.just({}) | st.just({"user": "ana", "usage": {"prompt_tokens": 3}})),
        name="a.json",
    )


@examples(40)
@given(calls())
def test_any_call_comes_back_whole(call: Cassette) -> None:
    data = render(call)
    assert parse(data, "a.json") == call
    assert render(parse(data, "b.json")) == data
    VALIDATOR.validate(json.loads(data))


@each_of("case", captured_cases())
def test_what_a_real_server_sent_comes_back_whole(case: str) -> None:
    call = captured(case)
    back = parse(render(call), call.name)
    assert back.response is not None
    assert call.response is not None
    assert (back.request, back.response.body) == (
        replace(call.request, headers=tuple(call.request.headers)),
        call.response.body,
    )
    assert list(back.response.chunks) == list(call.response.chunks)
    VALIDATOR.validate(document(call))


def test_a_file_is_read_by_people() -> None:
    text = render(streamed()).decode()
    assert text.startswith('{\n  "mneme_cassette": 1,\n  "id": ')
    assert '          "content": "Say hello."\n' in text
    assert '      ["content-type", "application/json"]\n' in text
    assert '"choices": [{"index": 0, "delta": {"content": "lo!"}, "finish_reason": null}]}},\n' in text
    assert "      [10000, " in text
    assert text.endswith("}\n")


def test_names_that_mean_something_to_the_writer_mean_nothing_inside_a_body() -> None:
    body = b'{"headers":[["a","b"]],"sse":[{"data":1}],"chunks":[[1,2]]}'
    call = cassette(body=body)
    assert parse(render(call), call.name).request.body == body


def changed(**fields: Any) -> bytes:
    """A cassette with some of its fields replaced; `None` removes one. `a__b` is b of a."""
    doc = json.loads(render(streamed()))
    for name, value in fields.items():
        *above, last = name.split("__")
        part = doc
        for each in above:
            part = part[each]
        if value is None:
            del part[last]
        else:
            part[last] = value
    return json.dumps(doc, indent=2).encode()


@each_of(
    ("fields", "line", "message"),
    [
        ({"mneme_cassette": 2}, '"mneme_cassette": 2,', "newer Mneme: version 2, and this one reads up to 1"),
        ({"mneme_cassette": "1"}, '"mneme_cassette": "1",', "a version is"),
        ({"mneme_cassette": None}, "{", "this is no cassette"),
        ({"recorded_at": "yesterday"}, '"recorded_at": "yesterday",', "recorded_at: this is no time in ISO 8601"),
        ({"outcome": "odd"}, '"outcome": "odd",', "outcome: an outcome is one of"),
        ({"outcome": "failed"}, '"response": {', "response: there is no response exactly where"),
        ({"request": None}, "{", "`request` is missing"),
        ({"request__method": 1}, '"method": 1,', "request.method: this must be a JSON string"),
        ({"request__path": None}, '"request": {', "request: `path` is missing"),
        ({"request__odd": 1}, '"odd": 1', "request.odd: nothing of this name is known"),
        ({"request__headers": [["a"]]}, "[", "request.headers[0]: a header is"),
        ({"request__headers": [["a", "Ā"]]}, "[", "request.headers[0]: a header is"),
        ({"request__sha256": "0" * 64}, f'"sha256": "{"0" * 64}",', "request.sha256: the body is not the recorded one"),
        ({"request__sha256": "0"}, '"sha256": "0",', "request.sha256: a SHA-256 is"),
        ({"request__body": {"text": [1]}}, "1", "request.body.text[0]: text is"),
        ({"request__body": {"style": [], "json": 1}}, '"style": [],', "request.body.style: a style is one of"),
        ({"request__method": "GE\0T"}, '"method": "GE\\u0000T",', "request.method: this is no method of HTTP"),
        ({"request__path": "/v1/\n"}, '"path": "/v1/\\n",', "request.path: a path is not empty"),
        ({"redacted": ["$.a", "a"]}, '"a"', "redacted[1]: 'a' is no JSON path"),
        ({"response__status": 99}, '"status": 99,', "response.status: a status is"),
        ({"response__chunks": [[1, 2]]}, '"chunks": [', "response.chunks: the chunks add up to 2 bytes"),
        ({"response__chunks": [[2, 0], [1, 0]]}, "[", "response.chunks[1]: a chunk is"),
        ({"response__chunks": [[1.5, 2]]}, "[", "response.chunks[0]: a chunk is"),
        ({"response__body__sse": [{"data": 1, "id": 1}]}, "{", "response.body.sse[0]: an event has"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(fields: dict[str, Any], line: str, message: str) -> None:
    data = changed(**fields)
    with pytest.raises(BadCassette) as caught:
        parse(data, "calls/a.json")
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"calls/a.json:{caught.value.line}: ")
    assert data.decode().splitlines()[caught.value.line - 1].strip() == line


@each_of(
    ("data", "line", "message"),
    [
        (b"", 1, "no JSON: the file is cut off"),
        (render(cassette())[:300], None, "no JSON"),
        (b'{\n  "mneme_cassette": 1,\n  "id": "\xff"\n}', 3, "this line is not UTF-8"),
        (b'{\n"mneme_cassette": 1,\n"id": oops}', 3, "no JSON"),
        (b'{"mneme_cassette": 1, "id": NaN}', 1, "NaN is no JSON"),
        (b"[" * 100_000, 1, "no JSON"),
        (b"[]", 1, "this is no cassette"),
    ],
)
def test_a_damaged_file_is_told_with_its_line(data: bytes, line: int | None, message: str) -> None:
    with pytest.raises(BadCassette) as caught:
        parse(data, "a.json")
    assert message in str(caught.value)
    assert line is None or caught.value.line == line


@examples(40)
@given(st.integers(0, len(render(cassette())) - 3))
def test_a_file_cut_anywhere_is_refused(size: int) -> None:
    with pytest.raises(BadCassette, match=r"^a\.json:\d+: "):
        parse(render(cassette())[:size], "a.json")


def test_without_chunks_a_body_comes_in_one_piece() -> None:
    call = parse(changed(response__chunks=None, response__sha256=None, response__body={"text": ["abc"]}), "a")
    assert call.response is not None
    assert (call.response.body, call.response.chunks) == (b"abc", (Chunk(0, 3),))


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_folder_is_read_in_the_order_of_the_recording(tmp_path: Path) -> None:
    calls = [cassette(n) for n in (3, 1, 2)]
    write(tmp_path / "a", [(f"{n}.json", each) for n, each in enumerate(calls)])
    assert [each.id[-1] for each in load([tmp_path])] == ["1", "2", "3"]
    assert len(load([tmp_path / "a" / "0.json", tmp_path])) == 3
    assert not [each for each in (tmp_path / "a").iterdir() if each.name.startswith(".")]


def test_a_call_that_is_there_twice_is_told_with_both_files(tmp_path: Path) -> None:
    write(tmp_path, [("a.json", cassette()), ("b.json", cassette())])
    with pytest.raises(CassetteError, match=r"b\.json: call .* is there twice: .*a\.json has it"):
        load([tmp_path])


def test_answers_can_be_read_when_they_are_played(tmp_path: Path) -> None:
    calls = [streamed(1, sent=b"{}", call={"user": "ana"}), replace(cassette(2), response=None, outcome="failed")]
    write(tmp_path, numbered(calls))
    found = load([tmp_path], answers=False)
    assert [each.request for each in found] == [each.request for each in calls]
    assert [each.response and each.response.body for each in found] == [b"", None]
    assert [render(answered(each)) for each in found] == [render(each) for each in calls]
    # Whatever is wrong with a file is told when it is loaded, or when it went wrong.
    file = Path(found[0].name)
    file.write_bytes(render(cassette(3)))
    with pytest.raises(CassetteError, match=r"001-chat-completions\.json was changed since it was loaded"):
        answered(found[0])
    file.write_bytes(b"{")
    with pytest.raises(BadCassette, match=r"001-chat-completions\.json:1"):
        answered(found[0])
    with pytest.raises(BadCassette):
        load([tmp_path], answers=False)
    file.unlink()
    with pytest.raises(CassetteError, match="cannot be read"):
        answered(found[0])


def test_a_file_that_is_named_twice_is_one(tmp_path: Path) -> None:
    write(tmp_path, [("a.json", cassette())])
    (tmp_path / "b.json").symlink_to(tmp_path / "a.json")
    assert len(load([tmp_path, tmp_path / "a.json"])) == 1
    (tmp_path / "c.json").symlink_to(tmp_path / "nowhere.json")
    with pytest.raises(CassetteError, match=r"c\.json cannot be read"):
        load([tmp_path])


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(CassetteError, match="is not there"):
        load([tmp_path / "none"])


def test_names_say_when_and_what() -> None:
    assert name_of(cassette(7)) == "20260503T100007-000000-chat-completions-000000000007.json"
    assert [name for name, _ in numbered([cassette(), cassette(2)])] == [
        "001-chat-completions.json",
        "002-chat-completions.json",
    ]


def test_the_order_is_that_of_times_however_they_are_written(tmp_path: Path) -> None:
    times = ["2026-05-03T10:00:00Z", "2026-05-03T10:00:00.5Z", "2026-05-03T12:00:01+02:00", "2026-05-03T10:00:02"]
    calls = [replace(cassette(n), recorded_at=each) for n, each in enumerate(times, 1)]
    write(tmp_path, [(f"{9 - n}.json", each) for n, each in enumerate(calls)])
    assert [each.recorded_at for each in load([tmp_path])] == times


def in_lines(calls: Sequence[Cassette], last: object) -> bytes:
    """As `GET /api/v1/cassettes` gives them."""
    return b"".join(json.dumps(each).encode() + b"\n" for each in [*map(document, calls), last])


def test_what_the_route_gave_is_read_as_it_is(tmp_path: Path) -> None:
    calls = [streamed(1), cassette(2)]
    file = tmp_path / "calls.jsonl"
    file.write_bytes(in_lines(calls, {"end": {"calls": 2}}))
    found = load([tmp_path], answers=False)
    assert [each.name for each in found] == [f"{file}:1", f"{file}:2"]
    assert [render(answered(each)) for each in found] == [render(each) for each in calls]
    assert load([file]) == [answered(each) for each in found]
    write(tmp_path, [("a.json", calls[1])])
    with pytest.raises(CassetteError, match=r"calls\.jsonl:2: call .* is there twice: .*a\.json has it"):
        load([tmp_path])


@pytest.mark.parametrize(
    ("last", "message"),
    [
        ({"error": {"message": "Postgres is away."}}, r"calls\.jsonl:2: here the export broke off: Postgres is away\."),
        ({"mneme_cassette": 9}, r"calls\.jsonl:2: .*newer Mneme"),
        ([], r"calls\.jsonl:2: this is no cassette"),
    ],
)
def test_a_line_that_is_no_cassette_is_told(tmp_path: Path, last: object, message: str) -> None:
    file = tmp_path / "calls.jsonl"
    file.write_bytes(in_lines([cassette()], last))
    with pytest.raises(BadCassette, match=message):
        load([file])


def test_lines_that_are_cut_off_are_told(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    file.write_bytes(in_lines([cassette(1)], document(cassette(2)))[:-9])
    with pytest.raises(BadCassette, match=r"calls\.jsonl:2: no JSON: the file is cut off"):
        load([file])
    file.write_bytes(in_lines([cassette(1)], {"end": {"calls": 1}}))
    (found,) = load([file])
    file.write_bytes(b"\n" + file.read_bytes())
    with pytest.raises(CassetteError, match="was changed since it was loaded"):
        answered(found)


def test_the_one_label_of_an_older_file() -> None:
    assert parse(changed(label="tried"), "a.json").labels == ("tried",)
    with pytest.raises(BadCassette, match="label: this stands in `labels`"):
        parse(changed(labels=["a"], label="b"), "a.json")
