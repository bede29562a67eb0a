"""Extraction by rules: the labelled set, and what each part of a candidate must be."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.memory.candidate import Candidate, Exchange
from app.memory.extract import extract
from tests.unit.memory.labelled import Expected, labelled

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def found(text: str) -> list[Candidate]:
    return extract(Exchange(text, NOW))


def fits(candidate: Candidate, expected: Expected) -> bool:
    content = candidate.content.casefold()
    return candidate.kind in expected.kinds and all(word in content for word in expected.words)


def test_precision_and_recall_on_the_labelled_set(capsys: pytest.CaptureFixture[str]) -> None:
    right = wrong = missed = 0
    report: list[str] = []
    utterances = labelled()
    for text, expected in utterances:
        candidates = found(text)
        good = [c for c in candidates if any(fits(c, e) for e in expected)]
        lost = [e for e in expected if not any(fits(c, e) for c in candidates)]
        right, wrong, missed = right + len(good), wrong + len(candidates) - len(good), missed + len(lost)
        report += [f"  wrong  {text!r} → {c.kind}: {c.content}" for c in candidates if c not in good]
        report += [f"  missed {text!r} → {'/'.join(sorted(e.kinds))}: {' '.join(e.words)}" for e in lost]
    precision, recall = right / (right + wrong), right / (right + missed)
    with capsys.disabled():
        print(f"\nextraction: {len(utterances)} utterances, precision {precision:.3f}, recall {recall:.3f}")
        print("\n".join(report))
    assert len(utterances) >= 150
    assert precision >= 0.95
    assert recall >= 0.8
