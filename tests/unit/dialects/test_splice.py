"""Splicing must change what it says and nothing else, for every JSON that a client may write."""

from __future__ import annotations

import json
import sys
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from app.gateway.dialects.splice import (
    Insertion,
    append_text,
    dump,
    escape,
    insert_messages,
    insert_text,
    parse_object,
    replace_value,
    scan,
    splice,
    with_value,
)
from tests.support.properties import examples
from tests.support.tables import each_of

# --- JSON text as clients write it: any white space, any escapes, numbers that floats would not survive ---------------

SPACE = st.sampled_from(["", "", "", " ", "\n", "\t", "\r\n  "])
NUMBERS = st.sampled_from(["0", "-0", "1.0", "1e5", "1E-2", "12345678901234567890", "0.1000", "-7"])
CHARACTERS = st.one_of(
    st.characters(exclude_categories=["Cs"], exclude_characters='"\\', min_codepoint=32),
    st.sampled_from(
        ['\\"', "\\\\", "\\/", "\\n", "\\u00e9", "\\ud83d\\ude00", "\\u0000", "{", "}", "[", "]", ",", ":", "é", "🙂"]
    ),
)
STRINGS = st.lists(CHARACTERS, max_size=8).map(lambda parts: '"' + "".join(parts) + '"')
SCALARS = st.one_of(NUMBERS, STRINGS, st.sampled_from(["true", "false", "null"]))


@st.composite
def arrays(draw: st.DrawFn, items: st.SearchStrategy[str], max_size: int = 3) -> str:
    parts = [draw(SPACE) + item + draw(SPACE) for item in draw(st.lists(items, max_size=max_size))]
    return "[" + (",".join(parts) or draw(SPACE)) + "]"


@st.composite
def objects(draw: st.DrawFn, members: st.SearchStrategy[tuple[str, str]], max_size: int = 4) -> str:
    parts = [
        f"{draw(SPACE)}{key}{draw(SPACE)}:{draw(SPACE)}{value}{draw(SPACE)}"
        for key, value in draw(st.lists(members, max_size=max_size))
    ]
    return "{" + (",".join(parts) or draw(SPACE)) + "}"


VALUES = st.recursive(SCALARS, lambda inner: st.one_of(arrays(inner), objects(st.tuples(STRINGS, inner))), max_leaves=8)
PARTS = st.one_of(
    st.just('{"type":"text","text":"x"}'),
    objects(st.tuples(st.sampled_from(['"type"', '"text"', '"image_url"']), VALUES)),
)
CONTENTS = st.one_of(STRINGS, STRINGS, st.just("null"), arrays(PARTS))
CONTENT_KEYS = st.sampled_from(['"content"', '"content"', '"cont\\u0065nt"'])
MESSAGES = objects(
    st.one_of(
        st.tuples(CONTENT_KEYS, CONTENTS),
        st.tuples(st.sampled_from(['"role"', '"name"', '"tool_calls"', '"x\\"y"']), VALUES),
    )
)
MESSAGE_KEYS = st.sampled_from(['"messages"', '"messages"', '"mess\\u0061ges"'])
BODIES = st.builds(
    lambda before, body, after: (before + body + after).encode(),
    SPACE,
    objects(
        st.one_of(st.tuples(MESSAGE_KEYS, arrays(MESSAGES, 4)), st.tuples(STRINGS, VALUES)),
        max_size=5,
    ),
    SPACE,
)
TEXTS = st.text(max_size=12)


def loads(body: bytes) -> Any:
    return json.loads(body)


def repaired(text: str) -> str:
    """What a text becomes in JSON: lone surrogates are replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def only_inserted(before: bytes, after: bytes, insertions: list[Insertion]) -> bool:
    """Take the insertions out again, by hand, and get the body back."""
    ordered = sorted(insertions, key=lambda each: each.pos)  # those for one place in the order given
    for n in reversed(range(len(ordered))):
        pos, data, drop = ordered[n]
        offset = sum(len(each.data) - each.drop for each in ordered[:n])
        at = pos + offset
        assert after[at : at + len(data)] == data
        after = after[:at] + before[pos : pos + drop] + after[at + len(data) :]
    return after == before


# --- scan -------------------------------------------------------------------------------------------------------------


@examples(300)
@given(BODIES)
def test_spans_hold_what_a_parser_sees(body: bytes) -> None:
    envelope = scan(body)
    document = loads(body)
    if "messages" not in document:
        assert envelope is None
        return
    assert envelope is not None
    assert loads(body[envelope.array_start : envelope.array_end]) == document["messages"]
    assert [loads(body[m.start : m.end]) for m in envelope.messages] == document["messages"]
    assert {name: loads(body[span.start : span.end]) for name, span in envelope.members.items()} == document
    for span, message in zip(envelope.messages, document["messages"], strict=True):
        content = span.content(body)
        if "content" in message:
            assert loads(body[content.start : content.end]) == message["content"]
        else:
            assert content.kind == "absent"


@each_of(
    "body",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b"{}",
        b'"messages"',
        b'{"messages":null}',
        b'{"messages":{}}',
        b'{"messages":["a"]}',
        b'{"messages":[{},1]}',
        b'{"messages":[{},[]]}',
        b'{"messages":[{}],"messages":3}',
        b'{"messages":[{}]',
        b'{"messages":[{}]}}',
        b'{"messages":[{]}}',
        b'{"messages":[{}],}',
        b"{'messages':[{}]}",
        b'{"messages":[{"content":"\n"}]}',
        '{"messages":[{}]}'.encode("utf-16"),
        b'{"other":{"messages":[{}]}}',
        b"[" * 5000,
        b'{"messages":' * 5000,
    ],
)
def test_what_is_no_chat_request_is_refused(body: bytes) -> None:
    assert scan(body) is None


@given(st.binary(max_size=60))
def test_no_bytes_make_it_raise(body: bytes) -> None:
    scan(body)
    scan(b'{"messages":[' + body)
    scan(b'{"messages":[{"content":"' + body + b'"}]}')


def test_the_last_duplicate_counts() -> None:
    body = b'{"messages":[{"content":"a","content":"b"}],"x":[{"messages":1}],"m\\u0065ssages":[{},{"content":"c"}]}'
    envelope = scan(body)
    assert envelope is not None
    assert [loads(body[m.start : m.end]) for m in envelope.messages] == [{}, {"content": "c"}]
    first = scan(body.replace(b"m\\u0065ssages", b"other"))
    assert first is not None
    content = first.messages[0].content(body)
    assert body[content.start : content.end] == b'"b"'


@each_of(
    ("message", "content"),
    [
        (b'{"role":"tool","tool_call_id":"c","content":"a\\"b\\\\"}', b'"a\\"b\\\\"'),
        (b'{ "content" : "first", "n" : 1.5 , "role":"tool" }', b'"first"'),
        (b'{"content":"first","content":"last"}', b'"last"'),
        (b'{"content":"first","conten\\u0074":"last"}', b'"last"'),
        (b'{"content":null,"x":"content","y":true}', b"null"),
        (b'{"x":{"content":"inner"},"content":"outer"}', b'"outer"'),
        (b'{"content":"outer","x":["content","inner"]}', b'"outer"'),
    ],
)
def test_the_content_of_a_message_is_its_last(message: bytes, content: bytes) -> None:
    body = b'{"messages":[' + message + b',{"content":"another"}]}'
    envelope = scan(body)
    assert envelope is not None
    found = envelope.messages[0].content(body)
    assert body[found.start : found.end] == content


@each_of("backslashes", range(24))
def test_any_number_of_backslashes_before_a_quote(backslashes: int) -> None:
    tail = "\\" * backslashes + '"' if backslashes % 2 == 0 else "\\" * backslashes + '" } ] x"'
    body = ('{"messages":[{"content":"a' + tail + ',"role":"user"}],"z":1}').encode()
    envelope = scan(body)
    assert envelope is not None
    content = envelope.messages[0].content(body)
    assert loads(body[content.start : content.end]) == loads(body)["messages"][0]["content"]


def sized(name: str) -> bytes:
    """Bodies that would be slow, or crash, if scanning were recursive or not linear."""
    deep, many = 1000, 20_000
    inside = {
        "deep": b"[" * deep + b"]" * deep,
        "deep at the end of wide": b'[{"a":1,"b":[]},' * 500 + b"[1]" + b"]" * 500,
        "wide": b"[" + b'{"a":[[{}]]},' * many + b"[]]",
        "escaped quotes": b'"' + b'\\"' * many + b'"',
        "backslashes": b'"' + b"\\\\" * many + b'"',
        "brackets in a string": b'"' + b"[{" * many + b'"',
        "many strings": b"[" + b'"",' * many + b'""]',
        "white space": b" " * many + b"1",
    }[name]
    return b'{"x":' + inside + b',"messages":[{"content":"y"},{"a":' + inside + b"}]}"


@each_of(
    "name",
    [
        "deep",
        "deep at the end of wide",
        "wide",
        "escaped quotes",
        "backslashes",
        "brackets in a string",
        "many strings",
        "white space",
    ],
)
def test_hostile_shapes(name: str) -> None:
    body = sized(name)
    envelope = scan(body)
    assert envelope is not None
    first, second = envelope.messages
    assert body[first.start : first.end] == b'{"content":"y"}'
    assert body[second.start : second.end] == body[body.rindex(b'{"a":', 0, second.start + 5) : -2]
    assert second.content(body).kind == "absent"


def test_depth_costs_no_stack() -> None:
    limit = sys.getrecursionlimit()
    body = b'{"messages":[{"content":' + b"[" * 1000 + b"]" * 1000 + b"}]}"
    sys.setrecursionlimit(200)
    try:
        envelope = scan(body)
    finally:
        sys.setrecursionlimit(limit)
    assert envelope is not None
    assert envelope.messages[0].content(body).end == len(body) - 3


# --- building and splicing --------------------------------------------------------------------------------------------


@examples(300)
@given(BODIES, TEXTS, TEXTS, st.lists(st.integers(0, 9), max_size=3, unique=True))
def test_texts_are_added_and_nothing_else_changes(body: bytes, front: str, back: str, where: list[int]) -> None:
    envelope = scan(body)
    if envelope is None:
        return
    expected = loads(body)
    insertions = []
    for index in where:
        if index >= len(envelope.messages):
            continue
        message, span = expected["messages"][index], envelope.messages[index]
        made = insert_text(body, span, front)
        assert made is not None
        insertions.append(made)
        content = message.get("content")
        if isinstance(content, list):
            message["content"] = [{"type": "text", "text": repaired(front)}, *content]
        elif isinstance(content, str):
            # U+0000 to U+001F aside, JSON text may begin with half a surrogate pair: none is made here
            message["content"] = repaired(front) + content
        else:
            message["content"] = repaired(front)
            continue
        if content or isinstance(content, str):
            made = append_text(body, span, back)
            assert made is not None
            insertions.append(made)
            if isinstance(content, list):
                message["content"].append({"type": "text", "text": repaired(back)})
            else:
                message["content"] += repaired(back)
    spliced = splice(body, insertions)
    assert loads(spliced) == expected
    assert only_inserted(body, spliced, insertions)
    assert list(loads(spliced)) == list(expected)


@examples(200)
@given(BODIES, st.integers(0, 5), st.lists(st.dictionaries(TEXTS, TEXTS, max_size=2), max_size=3))
def test_messages_are_added_and_nothing_else_changes(body: bytes, index: int, new: list[dict[str, str]]) -> None:
    envelope = scan(body)
    if envelope is None:
        return
    insertions = [insert_messages(envelope, index, new)]
    expected = loads(body)
    expected["messages"][index:index] = [{repaired(k): repaired(v) for k, v in m.items()} for m in new]
    spliced = splice(body, insertions)
    assert loads(spliced) == expected
    assert only_inserted(body, spliced, insertions)


def edited(body: bytes, build: Any, text: str = "T") -> bytes | None:
    envelope = scan(body)
    assert envelope is not None
    made = build(body, envelope.messages[0], text)
    return None if made is None else splice(body, [made])


@each_of(
    ("content", "inserted", "appended"),
    [
        (b'"a"', b'"Ta"', b'"aT"'),
        (b'""', b'"T"', b'"T"'),
        (b"[]", b'[{"type":"text","text":"T"}]', b'[{"type":"text","text":"T"}]'),
        (b"[ ]", b'[{"type":"text","text":"T"} ]', b'[ {"type":"text","text":"T"}]'),
        (b"[ {} ]", b'[{"type":"text","text":"T"}, {} ]', b'[ {} ,{"type":"text","text":"T"}]'),
        (b"null", b'"T"', b'"T"'),
        (b"1.0", None, None),
        (b"{}", None, None),
        (b'["a"]', None, None),
    ],
)
def test_every_kind_of_content(content: bytes, inserted: bytes | None, appended: bytes | None) -> None:
    body = b'{"messages":[{"role":"user", "content": ' + content + b' ,"n":1.0}]}'
    for build, result in ((insert_text, inserted), (append_text, appended)):
        assert edited(body, build) == (None if result is None else body.replace(content, result, 1))


def test_absent_content() -> None:
    assert edited(b'{"messages":[{}]}', insert_text) == b'{"messages":[{"content":"T"}]}'
    assert edited(b'{"messages":[{ "a":1}]}', insert_text) == b'{"messages":[{"content":"T", "a":1}]}'


@each_of("text", ['"', "\\", "\n\x00\x1f", "é🙂\u2028", "\ud800", "a\udc00b", "\ud83d\ude00"])
def test_escaping(text: str) -> None:
    escaped = escape(text)
    assert json.loads(b'"' + escaped + b'"') == orjson.loads(b'"' + escaped + b'"') == repaired(text)


def test_dump_writes_what_orjson_cannot() -> None:
    assert dump({"n": 12345678901234567890123, "s": "\ud800"}) == '{"n":12345678901234567890123,"s":"\ufffd"}'.encode()


def test_insertions_in_one_place_keep_their_order() -> None:
    body = b'{"messages":[{"content":"a"}]}'
    envelope = scan(body)
    assert envelope is not None
    spliced = splice(body, [insert_messages(envelope, 0, [{"n": 1}]), insert_messages(envelope, 0, [{"n": 2}])])
    assert loads(spliced)["messages"] == [{"n": 1}, {"n": 2}, {"content": "a"}]


def test_stored_messages_go_in_as_they_are() -> None:
    body = b'{"messages":[ {"a":1} , {"b":2} ]}'
    envelope = scan(body)
    assert envelope is not None
    raw = b'{"n": 1.0}'
    assert splice(body, [insert_messages(envelope, 1, [raw, raw])]) == (
        b'{"messages":[ {"a":1} , {"n": 1.0},{"n": 1.0},{"b":2} ]}'
    )
    assert splice(body, [insert_messages(envelope, 9, [raw])]) == b'{"messages":[ {"a":1} , {"b":2},{"n": 1.0} ]}'


def test_a_value_is_replaced_in_place() -> None:
    body = b'{"model" : "a\\u0062", "messages":[],"n":1.0}'
    envelope = scan(body)
    assert envelope is not None
    change = replace_value(envelope, "model", "other")
    assert change is not None
    assert splice(body, [change]) == b'{"model" : "other", "messages":[],"n":1.0}'
    assert replace_value(envelope, "user", "x") is None


@each_of(
    ("body", "expected"),
    [
        (b'{"model":"a","input":[1.0, 1e5]}', b'{"model":"b","input":[1.0, 1e5]}'),
        (b' { "x" : {"model": "a"}, "model" :\n"a" }\n', b' { "x" : {"model": "a"}, "model" :\n"b" }\n'),
        (b'{"model":"first","model":"a"}', b'{"model":"first","model":"b"}'),
        (b'{"mod\\u0065l": 3, "n": 12345678901234567890}', b'{"mod\\u0065l": "b", "n": 12345678901234567890}'),
        (b'{"model": "\\u0062"}', b'{"model": "\\u0062"}'),
        (b'{"input": "model"}', b'{"input": "model"}'),
        (b"{}", b"{}"),
    ],
)
def test_a_value_of_any_object_is_replaced_and_nothing_else(body: bytes, expected: bytes) -> None:
    assert with_value(body, "model", "b") == expected


@each_of(
    "invalid",
    [
        rb"\ud83d",
        rb"\ude00\ud83d",
        rb"\\\ud83d\\",
        b"\xed\xa0\xbd",
        b"\xff\xfe",
        b"\xf0\x9f",
        rb"\ud83d\"",
        rb"\ud83d\\\\\\\\",
    ],
)
def test_insertions_beside_invalid_text_are_at_their_places(invalid: bytes) -> None:
    message = b'{"%%":1,"role":"user","content":"a %% b"}'.replace(b"%%", invalid)
    for mark in (b"", b"\xef\xbb\xbf"):
        body = mark + b'{"x%%":"%%","messages":[%s,%s],"%%":2}'.replace(b"%%", invalid) % (message, message)
        envelope = scan(body)
        assert envelope is not None
        made = [
            insert_text(body, envelope.messages[0], "X"),
            append_text(body, envelope.messages[1], "Y"),
            insert_messages(envelope, 1, [{"role": "system", "content": "Z"}]),
        ]
        new = splice(body, [insertion for insertion in made if insertion is not None])
        first, second = (
            message.replace(b'"content":"', b'"content":"X'),
            message.replace(b' b"}', b' bY"}'),
        )
        middle = b'{"role":"system","content":"Z"}'
        assert new == body.replace(message + b"," + message, first + b"," + middle + b"," + second)
        read = parse_object(new)
        assert read is not None
        assert [message["content"][:1] for message in read["messages"]] == ["X", "Z", "a"]
