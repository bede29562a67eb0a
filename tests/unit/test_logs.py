from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from app import logs
from app.logs import JsonFormatter, QuietBreaks, TextFormatter, redacted
from tests.support.tables import each_of


def record(message: str = "said %s", *arguments: Any, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("mneme.test", logging.WARNING, __file__, 1, message, arguments, None)
    vars(made).update(extra)
    return made


def line(made: logging.LogRecord) -> dict[str, Any]:
    text = JsonFormatter().format(made)
    assert "\n" not in text
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def failed(error: Exception) -> logging.LogRecord:
    try:
        raise error
    except type(error):
        made = record("it failed")
        made.exc_info = sys.exc_info()
        return made


def test_a_record_is_one_line_of_json() -> None:
    found = line(record("said %s\nand more", "hello", call_id="c", figure=1.5, nothing=None))
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "warning",
        "logger": "mneme.test",
        "message": "said hello\nand more",
        "call_id": "c",
        "figure": 1.5,
    }


def test_what_is_given_does_not_hide_what_is_known() -> None:
    assert line(record("m", level="none", time="never"))["level"] == "warning"


def test_an_error_has_its_traceback() -> None:
    assert "ValueError: broken" in line(failed(ValueError("broken")))["error"]
    assert "ValueError: broken" in TextFormatter().format(failed(ValueError("broken")))


@each_of("value", [object(), {1: 2}, b"bytes", "\ud800", 2**70, {"a"}])
def test_no_value_loses_a_line(value: Any) -> None:
    assert line(record("kept", value=value))["message"] == "kept"


def test_text_for_people() -> None:
    text = TextFormatter().format(record("hello", call_id="c"))
    assert text.split(maxsplit=1)[1] == "warning hello  call_id=c"


@each_of(
    "text",
    [
        "key mneme_AbCdEfGh0123456789-_xyz was shown",
        "sk-proj-0123456789abcdef",
        'header "Authorization: Bearer abc.def-ghi"',
        "BEARER abcdefghij",
    ],
)
def test_keys_are_taken_out(text: str) -> None:
    assert "***" in redacted(text)
    for part in ("AbCdEfGh", "0123456789", "abc.def", "abcdefghij"):
        assert part not in redacted(text)


@each_of("text", ["mneme_owner", "the bearer of news", "a task-list", "mneme.turn", "risk-averse people"])
def test_words_are_left_alone(text: str) -> None:
    assert redacted(text) == text


def test_a_key_in_an_error_is_in_no_line() -> None:
    canary = "mneme_CanaryCanaryCanary"
    assert canary not in JsonFormatter().format(failed(ValueError(f"who sent {canary}?")))
    assert canary not in TextFormatter().format(record(f"{canary}", key=canary))
    assert canary not in JsonFormatter().format(record("m", key=canary))


@pytest.fixture
def quiet() -> Iterator[None]:
    """Logging as it was."""
    root, error = logging.getLogger(), logging.getLogger("uvicorn.error")
    names = ("httpx", "httpcore", "aiohttp.access", "uvicorn.access", "pgqueuer", "asyncio")
    before = (root.handlers[:], root.level, error.filters[:], {name: logging.getLogger(name).level for name in names})
    yield
    root.handlers[:], error.filters[:] = before[0], before[2]
    root.setLevel(before[1])
    for name, level in before[3].items():
        logging.getLogger(name).setLevel(level)


@pytest.mark.parametrize(("shape", "begins"), [("json", '{"time"'), ("text", "")])
def test_set_up_sends_all_to_standard_error(
    quiet: None, monkeypatch: pytest.MonkeyPatch, shape: Any, begins: str
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.set_up("info", shape)
    logging.getLogger("mneme.any").info("told", extra={"call_id": "c"})
    logging.getLogger("mneme.any").debug("not told")
    logging.getLogger("httpx").info("GET https://example/?key=1")
    logging.getLogger("uvicorn.error").error("ASGI callable returned without completing response.")
    (only,) = stream.getvalue().splitlines()
    assert only.startswith(begins)
    assert "told" in only
    assert "call_id" in only


def test_the_filter_lets_other_records_through() -> None:
    quiet = QuietBreaks()

    assert not quiet.filter(record("ASGI callable returned without completing response."))
    assert quiet.filter(record("ASGI callable returned without starting response."))
