"""Every word that an account can say has plain words on the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

import app.gateway
from app.context.assemble import RebaseReason
from app.context.budget import KNOWN_SECTIONS, TaskType
from app.context.candidates import CHANNELS
from app.context.pack import Reason
from app.context.score import SIGNALS
from app.features.calls import Outcome
from app.features.paging.state import Paging
from app.features.paging.values import Fidelity
from app.features.ui import call_prompt
from app.metrics import MemoryStatus

GATEWAY = Path(app.gateway.__file__).parent
GIVEN = re.compile(
    r'\.degraded\("([a-z-]+)"\)|(?<!, )made\.reason = "([a-z-]+)"|[( ]reason="([a-z-]+)"'
    r'|reason = "([a-z-]+)" if off|else "(busy)"'
)
"""How the gateway says why memory was not what it could be."""


@pytest.mark.parametrize(
    ("told", "known"),
    [
        (map(str, Reason), call_prompt.REASONS),
        (SIGNALS, call_prompt.SIGNALS),
        (CHANNELS, call_prompt.CHANNELS),
        (get_args(Outcome), call_prompt.OUTCOMES),
        (get_args(MemoryStatus), call_prompt.MEMORY),
        (get_args(RebaseReason), call_prompt.REBASED),
        (map(str, TaskType), call_prompt.TASKS),
        (KNOWN_SECTIONS, call_prompt.NOTES),
    ],
)
def test_it_has_words(told: object, known: object) -> None:
    assert set(told) <= set(known)  # type: ignore[call-overload]


def test_each_reason_of_the_gateway_has_words() -> None:
    found = {
        word for path in GATEWAY.glob("*.py") for groups in GIVEN.findall(path.read_text()) for word in groups if word
    }
    assert {"too-long", "memory-off", "not-chat"} <= found
    assert found | {Paging.name} <= set(call_prompt.CAUSES)


def test_levels_and_tiers_are_counted_from_nought() -> None:
    assert len(call_prompt.LEVELS) == len(Fidelity)
    assert call_prompt.TIERS[3] == "semantic"


def test_a_word_that_is_new_is_shown_as_it_is() -> None:
    assert call_prompt.reason("brand_new").name == "brand new"
    assert call_prompt.signal("brand_new").name == "brand new"
    assert call_prompt.memory("odd", "brand-new") == ("odd", "", " Brand new.")


def test_a_degraded_call_says_what_was_missing() -> None:
    label, tone, words = call_prompt.memory("degraded", "store")
    assert (label, tone) == ("degraded", "warn")
    assert "The database could not be reached." in words
