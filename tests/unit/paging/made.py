"""Transcripts and objects for the tests of paging."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from app.context.transcript import Transcript
from app.features.paging.segment import Segmentation, marks, segment
from app.features.paging.values import ContentKind, Counter, Fidelity, ObjectSpan, ObjectType, SemanticObject, Shrunk
from app.providers.tokens import Tokenizers

SESSION = UUID(int=7)
COUNT: Counter = Tokenizers().for_model("gpt-4o").count

CODE = '''"""Money, and what it is worth."""

from decimal import Decimal

SCALE = Decimal("0.01")


class MoneyError(ValueError):
    """What cannot be added."""


def convert_currency(amount: Decimal, rate: Decimal) -> Decimal:
    """The amount in another currency, rounded half up."""
    if rate <= 0:
        raise MoneyError("a rate is positive")
    scaled = amount * rate
    return scaled.quantize(SCALE)
'''
LONG_CODE = CODE + "".join(
    f'\n\ndef helper_{i}(value: int) -> int:\n    """Adds {i}."""\n    total = value + {i}\n    for step in range({i}):\n'
    f"        total += step * {i}\n"
    f"    while total > {i}:\n        total -= value % 7 + {i}\n    names = [str(each) for each in range(total)]\n"
    f"    print('{i}', names, sep=', ')\n    return total\n"
    for i in range(30)
)
TRACEBACK = (
    "Traceback (most recent call last):\n"
    + "".join(f'  File "src/money.py", line {i}, in step_{i}\n    run_{i}()\n' for i in range(40))
    + "MoneyError: a rate is positive\n"
)
PROSE = (
    "The harbour was rebuilt in 1874 by the brothers Falk. It has four basins and a lock. Ships of up to 90 metres can enter. "
    "In winter the ice closes it for some weeks. The town pays for the lights. "
)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def called(tool: str, arguments: object, result: str, call_id: str = "c1") -> list[dict[str, Any]]:
    """An assistant's call and what came of it."""
    given = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call = {"id": call_id, "type": "function", "function": {"name": tool, "arguments": given}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]


def cut(messages: list[dict[str, Any]], before: Segmentation | None = None) -> Segmentation:
    """The segmentation of a transcript, or of what is new in it."""
    known = before.marks if before else frozenset[bytes]()
    return segment(
        SESSION, messages, Transcript.of(messages), COUNT, known=known, objects=before.objects if before else ()
    )


def sized(
    number: int,
    tokens: int,
    turn: int = 0,
    *,
    fidelity: Fidelity = Fidelity.FULL,
    pinned: bool = False,
    levels: bool = True,
    parts: int = 1,
) -> SemanticObject:
    """An object of so many tokens, with L1 and L2 of the seed's ratios."""
    return SemanticObject(
        id=UUID(int=number + 1),
        object_type=ObjectType.TOOL_RESULT,
        kind=ContentKind.PROSE,
        content="",
        stub=f"Read file {number}",
        tokens_l0=tokens,
        tokens_l3=30,
        parts=tuple(ObjectSpan(bytes([i]), 0, 1) for i in range(parts)),
        content_hash=b"",
        source_turn_start=turn,
        source_turn_end=turn,
        detailed=Shrunk("", int(tokens * 0.3)) if levels else None,
        compact=Shrunk("", int(tokens * 0.05)) if levels else None,
        fidelity=fidelity,
        pinned=pinned,
        last_accessed=turn,
    )


def places(
    transcript: Transcript, objects: Sequence[SemanticObject]
) -> Mapping[UUID, tuple[tuple[int, ObjectSpan], ...]]:
    """Where the objects stand in this transcript: (index of the message, part), in order; without those that are not in it."""
    where = {mark: i for i, mark in enumerate(marks(transcript)) if mark is not None}
    found = {each.id: tuple((where[part.mark], part) for part in each.parts if part.mark in where) for each in objects}
    return {key: parts for key, parts in found.items() if parts}
