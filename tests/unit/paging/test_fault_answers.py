"""What follows of a fault, whoever asked; the way from the helper LLM to quotations is tried in test_faulting."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from msgspec.structs import replace

from app.features.paging.faults import FaultTimeouts, Writer, judged, result_of
from app.features.paging.quotes import AnswerSource
from app.features.paging.values import ContentKind, Fault, FaultRecord, FaultType
from tests.unit.paging.made import COUNT

FAULT = Fault(
    UUID(int=1), FaultType.MICRO_FAULT, 9, datetime(2026, 11, 22, tzinfo=UTC), UUID(int=2), question="Which port?"
)


@pytest.mark.parametrize(
    ("before", "shown_less", "kind", "raises", "pin"),
    [
        ((), True, FaultType.MICRO_FAULT, False, False),
        (("who wrote it?",), True, FaultType.MICRO_FAULT, False, False),
        (("who wrote it?", "since when?"), True, FaultType.ENTROPY_TRIGGERED, True, False),
        (("who wrote it?", "since when?"), False, FaultType.MICRO_FAULT, False, False),
        (("the port, which is it?",), True, FaultType.MICRO_FAULT, False, True),
        (("the port, which is it?",), False, FaultType.MICRO_FAULT, False, True),
    ],
)
def test_verdicts(before: tuple[str, ...], shown_less: bool, kind: FaultType, raises: bool, pin: bool) -> None:
    found = judged(FAULT, [FaultRecord(8, each) for each in before], shown_less)
    assert (found.fault_type, found.raises, found.pin) == (kind, raises, pin)
    assert replace(found, fault_type=FAULT.fault_type, raises=False, pin=False) == FAULT


def test_results() -> None:
    assert result_of(FAULT) == "answered"
    assert result_of(replace(FAULT, object_id=None)) == "nothing"
    assert result_of(replace(FAULT, fault_type=FaultType.FULL_RESTORE)) == "restored"
    assert result_of(replace(FAULT, fault_type=FaultType.ENTROPY_TRIGGERED)) == "answered"


async def test_without_sources_nothing_answers() -> None:
    assert (await Writer(COUNT).write("Which port?", [], 300)).quotes == ()


async def test_what_takes_too_long_is_given_up() -> None:
    source = AnswerSource(UUID(int=1), "x", ContentKind.LOG, "port 80\n" * 2_000)
    with pytest.raises(TimeoutError):
        await Writer(COUNT, limits=FaultTimeouts(quote=0.0)).write("Which port?", [source], 300)
