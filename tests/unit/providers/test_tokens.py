"""Counting: which tokenizer for which model, pathological texts, chat framing, and the memory of counts."""

from __future__ import annotations

import base64
import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from app.context.transcript import canonical, message_hash
from app.errors import NotReady
from app.providers import tokens
from app.providers.tokens import (
    IMAGE_TOKENS,
    IMAGE_TOKENS_LOW,
    MESSAGE_TOKENS,
    REPLY_TOKENS,
    RUN_LIMIT,
    WINDOW,
    CountCache,
    TokenCounter,
    Tokenizers,
    message_tokens,
    prompt_tokens,
    supplied_tokens,
    tools_tokens,
)
from tests.support.properties import examples
from tests.support.tables import each_of


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    found = Tokenizers()
    found.warm()
    return found


@pytest.fixture(scope="module")
def gpt4o(tokenizers: Tokenizers) -> TokenCounter:
    return tokenizers.for_model("gpt-4o")


@pytest.mark.parametrize(
    ("model", "name", "exact"),
    [
        ("gpt-4o", "o200k_base", True),
        ("gpt-4o-mini-2024-07-18", "o200k_base", True),
        ("openai/gpt-4.1-mini", "o200k_base", True),
        ("gpt-5-mini", "o200k_base", True),
        ("o3-mini", "o200k_base", True),
        ("openai/gpt-oss-20b", "o200k_base", True),
        ("ft:gpt-4o-mini-2024-07-18:acme::x1", "o200k_base", True),
        ("gpt-4", "cl100k_base", True),
        ("gpt-3.5-turbo-0125", "cl100k_base", True),
        ("text-embedding-3-small", "cl100k_base", True),
        ("gpt-17-colossus", "o200k_base+10%", False),
        ("meta-llama/Llama-3.1-8B-Instruct", "o200k_base+30%", False),
        ("text-davinci-003", "o200k_base+30%", False),  # its encoding is not shipped
        ("", "o200k_base+30%", False),
    ],
)
def test_the_counter_of_a_model(tokenizers: Tokenizers, model: str, name: str, exact: bool) -> None:
    counter = tokenizers.for_model(model)
    assert (counter.name, counter.exact) == (name, exact)
    assert (counter.margin == 0) is exact


def test_known_counts(gpt4o: TokenCounter, tokenizers: Tokenizers) -> None:
    assert gpt4o.count("") == 0
    assert gpt4o.count("hello world") == 2
    assert tokenizers.for_model("gpt-4").count("hello world") == 2
    assert tokenizers.for_model("tiny").count("hello world") == 3  # ⌈2 × 1.3⌉


def test_the_guess_is_on_the_safe_side_for_other_scripts(tokenizers: Tokenizers) -> None:
    """The larger of two vocabularies counts: a newer one alone flatters scripts that older models spell out."""
    text = "मैं तीन साल से लिस्बन में रहती हूँ"
    old, new = tokenizers.for_model("gpt-4").count(text), tokenizers.for_model("gpt-4o").count(text)
    assert old > 2 * new
    assert tokenizers.for_model("tiny").count(text) >= 1.3 * old


def test_special_tokens_in_a_text_are_text(gpt4o: TokenCounter) -> None:
    assert gpt4o.count("<|endoftext|>") > 1
    assert gpt4o.count("<|im_start|>system") > 3


def test_one_log_line_a_model(caplog: pytest.LogCaptureFixture) -> None:
    found = Tokenizers()
    with caplog.at_level(logging.WARNING, logger=tokens.__name__):
        for _ in range(3):
            found.for_model("mistral-small")
            found.for_model("gpt-4o")
    assert [record.getMessage() for record in caplog.records].count(caplog.records[0].getMessage()) == 1
    assert "mistral-small" in caplog.text
    assert "gpt-4o" not in caplog.text


def test_model_names_of_clients_do_not_fill_the_memory(caplog: pytest.LogCaptureFixture) -> None:
    found = Tokenizers()
    with caplog.at_level(logging.ERROR):
        for i in range(Tokenizers.MODELS_KEPT + 50):
            found.for_model(f"model-{i}")
    assert len(found._by_model) == Tokenizers.MODELS_KEPT


@pytest.mark.parametrize(
    "text",
    ["a" * 10**6, " " * 10**6, "\t" * 10**6, " \u3000" * 500_000, "^" * 10**6, "漢" * 10**6, "\n" * 10**6, "1" * 10**6],
    ids=["letters", "spaces", "tabs", "wide spaces", "signs", "han", "lines", "digits"],
)
@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4"])
def test_a_million_of_anything_is_counted(tokenizers: Tokenizers, model: str, text: str) -> None:
    """tiktoken alone panics on some of these (an overflow of the stack of its regular expressions)."""
    assert 1000 < tokenizers.for_model(model).count(text) <= 2_000_200


@given(st.text(st.characters(codec="utf-8"), max_size=300))
@examples(60)
def test_cutting_never_counts_less(gpt4o: TokenCounter, tokenizers: Tokenizers, text: str) -> None:
    unit = text.replace(" ", "") or "x"
    long = unit * (2 * RUN_LIMIT // len(unit) + 1)
    assert gpt4o.count(long) >= len(tokenizers.encoding("o200k_base").encode_ordinary(long))


def test_ordinary_long_text_is_not_cut(gpt4o: TokenCounter, tokenizers: Tokenizers) -> None:
    text = "The quick brown fox jumps over 13 lazy dogs.\n\n" * 2000
    assert gpt4o.count(text) == len(tokenizers.encoding("o200k_base").encode_ordinary(text))


@each_of("unit", ["The quick brown fox. ", "Schöne Grüße,\n\n  aus 漢字 ", "x", " ", "no-space\n"])
def test_no_tokenizer_gets_a_long_text_in_one_piece(unit: str) -> None:
    """While it works on a piece, and the look for long runs on a window, no other Python runs."""
    text = unit * (3 * WINDOW // len(unit))
    given: list[str] = []
    tokens._count_bounded(text, lambda piece: given.append(piece) or [1])  # type: ignore[func-returns-value]
    assert "".join(given) == text
    assert max(map(len, given)) <= WINDOW


def test_lone_surrogates_are_counted(gpt4o: TokenCounter, tokenizer_json: Path) -> None:
    assert gpt4o.count("a\ud800b") >= 2
    assert Tokenizers(tokenizer_json).for_model("tiny").count("a\ud800b") >= 1


def test_loading_among_threads_builds_one_encoding() -> None:
    found = Tokenizers()
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(id(found.encoding("cl100k_base")))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 1


# --- a tokenizer.json ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer_json(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = Tokenizer(
        models.WordLevel({"[UNK]": 0, "hello": 1, "world": 2, "<": 3, "end": 4, ">": 5}, unk_token="[UNK]")
    )
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    model.add_special_tokens([AddedToken("<end>", special=True)])
    model.enable_truncation(2)
    model.enable_padding(length=50)
    path = tmp_path_factory.mktemp("hf") / "tokenizer.json"
    model.save(str(path))
    return path


def test_a_given_tokenizer_counts_exactly(tokenizer_json: Path) -> None:
    counter = Tokenizers(tokenizer_json).for_model("tiny")
    assert counter.exact
    assert counter.name.startswith("json-")
    assert counter.count("hello world hello") == 3  # neither truncated nor padded
    assert counter.count("hello <end>") == 4  # a special token that a user typed is text
    assert counter.count("") == 0
    assert Tokenizers(tokenizer_json).for_model("gpt-4o").name == "o200k_base"


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff\xfe not json"])
def test_a_bad_tokenizer_file_says_what_to_mend(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(NotReady, match="MNEME_TOKENIZER_JSON"):
        Tokenizers(path)


# --- chat framing ----------------------------------------------------------------------------------------


def test_the_cookbooks_formula(gpt4o: TokenCounter) -> None:
    """3 a message, 1 a name, 3 for the answer's opening (on the cookbook's own example this gives the API's 124)."""
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "name": "ana", "content": "Where do I live?"},
    ]
    texts = sum(gpt4o.count(text) for text in ("system", "Be brief.", "user", "ana", "Where do I live?"))
    assert prompt_tokens(messages, gpt4o) == texts + 2 * 3 + 1 + 3


def test_what_is_in_a_message(gpt4o: TokenCounter) -> None:
    plain = message_tokens({"role": "user", "content": "hello world"}, gpt4o)
    assert plain == MESSAGE_TOKENS + 1 + 2
    parts = [{"type": "text", "text": "hello world"}]
    assert message_tokens({"role": "user", "content": parts}, gpt4o) == plain
    assert message_tokens({"role": "user", "content": ["hello world"]}, gpt4o) == plain
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10**6}}
    assert message_tokens({"role": "user", "content": [*parts, image]}, gpt4o) == plain + IMAGE_TOKENS
    image["image_url"] = {"url": "https://example.com/a.png", "detail": "low"}
    assert message_tokens({"role": "user", "content": [*parts, image]}, gpt4o) == plain + IMAGE_TOKENS_LOW
    assert prompt_tokens([], gpt4o) == REPLY_TOKENS


@pytest.mark.parametrize("model", ["gpt-4o", "llama"])
@pytest.mark.parametrize("text", ["", "a", "one two three", "four or five words " * 40])
def test_a_stored_count_gives_the_count_in_a_prompt(
    tokenizers: Tokenizers, gpt4o: TokenCounter, model: str, text: str
) -> None:
    """Of ASCII, where the counters of unknown models are o200k's with a margin."""
    counter = tokenizers.for_model(model)
    for role in ("user", "assistant", "system", "no role of OpenAI's"):
        supplied = supplied_tokens(gpt4o.count(text), counter.count(role), counter)
        assert supplied == message_tokens({"role": role, "content": text}, counter)


def test_audio_and_files_are_estimated(gpt4o: TokenCounter) -> None:
    ten_seconds = base64.b64encode(bytes(10 * 48_000)).decode()
    part = {"type": "input_audio", "input_audio": {"data": ten_seconds, "format": "wav"}}
    assert message_tokens({"role": "user", "content": [part]}, gpt4o) == MESSAGE_TOKENS + 1 + 100
    file = {"type": "file", "file": {"file_id": "file-1"}}
    assert message_tokens({"role": "user", "content": [file]}, gpt4o) > 1000


def test_tool_calls_count(gpt4o: TokenCounter) -> None:
    bare = message_tokens({"role": "assistant", "content": None}, gpt4o)
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Lisbon"}'}}
    one = message_tokens({"role": "assistant", "content": None, "tool_calls": [call]}, gpt4o)
    two = message_tokens({"role": "assistant", "content": None, "tool_calls": [call, call]}, gpt4o)
    assert one - bare >= gpt4o.count("get_weather") + gpt4o.count('{"city": "Lisbon"}')
    assert two - one == one - bare
    legacy = message_tokens({"role": "assistant", "content": None, "function_call": call["function"]}, gpt4o)
    assert legacy == one


def test_tools_count_their_schema(gpt4o: TokenCounter) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    assert tools_tokens(None, gpt4o) == tools_tokens([], gpt4o) == 0
    assert tools_tokens([tool], gpt4o) > gpt4o.count("f object")
    assert tools_tokens([tool, tool], gpt4o) > tools_tokens([tool], gpt4o)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["role", "content", "name", "tool_calls", "function_call", "refusal", "x"]), json_values
    )
)
@examples(200)
def test_any_message_can_be_counted(gpt4o: TokenCounter, message: dict[str, Any]) -> None:
    """What a client sends is any JSON: counting it must not fail, whatever the upstream will say to it."""
    assert message_tokens(message, gpt4o) >= MESSAGE_TOKENS
    assert CountCache().message(message, gpt4o) == message_tokens(message, gpt4o)


def test_a_huge_unknown_part_is_not_tokenized(gpt4o: TokenCounter) -> None:
    part = {"type": "hologram", "data": "A" * 1_000_000}
    assert message_tokens({"role": "user", "content": [part]}, gpt4o) >= 250_000


# --- the memory of counts --------------------------------------------------------------------------------


class Spy:
    name = "spy"
    exact = True
    margin = 0.0

    def __init__(self) -> None:
        self.texts: list[str] = []

    def count(self, text: str) -> int:
        self.texts.append(text)
        return len(text)


def test_a_message_is_counted_once() -> None:
    cache, spy = CountCache(), Spy()
    message = {"role": "user", "content": "hello"}
    first = cache.message(message, spy)
    asked = len(spy.texts)
    assert cache.message(json.loads(json.dumps(message)), spy) == first
    assert len(spy.texts) == asked
    assert cache.message({"role": "user", "content": "hello!"}, spy) != first


def test_kinds_and_counters_do_not_mix(gpt4o: TokenCounter) -> None:
    cache, spy = CountCache(), Spy()
    assert cache.text("hello world", spy) == 11
    assert cache.text("hello world", gpt4o) == 2
    assert cache.tools(["hello world"], spy) != cache.message({"content": "hello world"}, spy)
    assert len(cache) == 4


def test_the_least_used_count_goes_first() -> None:
    cache, spy = CountCache(size=2), Spy()
    for text in ("a", "b", "a", "c", "a"):
        cache.text(text, spy)
    assert spy.texts == ["a", "b", "c"]
    cache.text("b", spy)
    assert spy.texts == ["a", "b", "c", "b"]
    assert len(cache) == 2


def test_integers_beyond_64_bits_and_surrogates_have_a_key(gpt4o: TokenCounter) -> None:
    cache = CountCache()
    assert cache.message({"role": "user", "content": "\ud800", "x": 10**30}, gpt4o) > 0
    assert cache.text("\ud800", gpt4o) > 0


def test_a_count_is_found_by_the_messages_hash() -> None:
    cache, spy = CountCache(), Spy()
    hashed = message_hash(canonical({"role": "user", "content": "hello"}) or b"")
    first = cache.message({"role": "user", "content": "hello"}, spy, hashed)
    asked = len(spy.texts)
    assert cache.message({"content": "hello", "role": "user"}, spy, hashed) == first
    assert len(spy.texts) == asked


def test_a_tools_result_is_found_by_its_hash_and_the_space_around_it() -> None:
    """Its id costs nothing; a line feed at its end does."""
    cache, spy = CountCache(), Spy()
    plain = {"role": "tool", "tool_call_id": "c1", "content": "hello"}
    hashed = message_hash(canonical(plain) or b"")
    first = cache.message(plain, spy, hashed)
    asked = len(spy.texts)
    assert cache.message({**plain, "tool_call_id": "c2"}, spy, hashed) == first
    assert len(spy.texts) == asked
    ended = [
        cache.message({**plain, "content": text}, spy, hashed) for text in ("hello\n", "\nhello", " hello\n", "hello")
    ]
    assert ended == [first + 1, first + 1, first + 2, first]
    blank = {**plain, "content": " \n"}
    assert cache.message(blank, spy, message_hash(canonical(blank) or b"")) == first - 3


@pytest.mark.parametrize(
    "other",
    [
        {"role": "user", "content": "hello      "},
        {"role": "user", "content": "hello", "name": "A longer name"},
        {"name": "A longer name", "content": "hello"},
    ],
)
def test_what_the_hash_leaves_out_is_counted(other: dict[str, Any], gpt4o: TokenCounter) -> None:
    cache = CountCache()
    hashed = message_hash(canonical({"role": "user", "content": "hello"}) or b"")
    cache.message({"role": "user", "content": "hello"}, gpt4o, hashed)
    assert cache.message(other, gpt4o, hashed) == message_tokens(other, gpt4o)
