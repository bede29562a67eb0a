"""The rules of all languages are prepared after a start, and a start does not depend on it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.languages import LANGUAGES, language_of
from app.memory.candidate import SourceExchange
from app.memory.commands import commands
from app.memory.extract import extract
from app.server import rehearsal

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_each_language_with_rules_has_a_statement_and_a_command() -> None:
    for sentences in (rehearsal.STATEMENTS, rehearsal.COMMANDS):
        assert {language_of(sentence) for sentence in sentences} == set(LANGUAGES)


@pytest.mark.parametrize("sentence", rehearsal.STATEMENTS)
def test_statement_is_learned(sentence: str) -> None:
    assert extract(SourceExchange(sentence, NOW))


@pytest.mark.parametrize("sentence", rehearsal.COMMANDS)
def test_command_is_understood(sentence: str) -> None:
    assert [command.kind for command in commands(sentence)] == ["forget"]


async def test_rehearsal_that_fails_is_logged_and_raises_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(text: str, now: datetime) -> None:
        raise ValueError(text)

    monkeypatch.setattr(rehearsal, "read_sentence", fail)
    await rehearsal.rehearse_languages(NOW)
    (record,) = caplog.records
    assert "prepared with the first message" in record.message
